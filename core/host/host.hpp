// The host as plugins see it: their windows into it, the tables by id, the parameters, and the chains that calls run
// through.
#pragma once
#include <c10/core/Device.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/host/call.hpp"
#include "core/host/parameters.hpp"
#include "core/manifest/manifest.hpp"
#include "core/model/declaration.hpp"
#include "mortise/abi.h"

namespace mortise {

class Host;

// What a plugin's mortise_host * is.
struct PluginHost : mortise_host {
  Host* owner = nullptr;
  std::string id;
  const PluginTable* table = nullptr;  // its configuration; NULL: defaults of its schema only
  const PluginSchema* schema = nullptr;
  std::set<std::string> writes;                 // fields that its plugin.toml says it writes
  std::map<std::string, mortise_value> config;  // values as C, made once
  std::deque<std::string> texts;
  std::deque<std::vector<mortise_str>> text_lists;
  std::deque<std::vector<double>> float_lists;
  std::deque<std::vector<int64_t>> int_lists;
  Diagnostic blame;  // the last refusal of a value, with its position
  bool blamed = false;
};

class Host {
 public:
  // The constructor touches nothing of LibTorch: the device opens first, and is set then.
  Host(const PointTable& points, uint64_t seed, c10::Device device = c10::Device(c10::kCPU));
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // A plugin's window; lives as long as the host.
  PluginHost& add_plugin(std::string id, const PluginSchema* schema, const PluginTable* table);
  // Other rooms lend tables of their own.
  void register_table(const std::string& id, const void* table) { tables_[id] = table; }
  const void* table(std::string_view id) const;

  const PointTable& points() const { return points_; }
  c10::Device device() const { return device_; }
  void set_device(c10::Device d) { device_ = d; }
  uint64_t seed() const { return seed_; }
  Parameters& parameters() { return parameters_; }
  Declaration& declaration() { return declaration_; }

  mortise_next* add_link() { return &links_.emplace_back(); }
  // The chain of a layer in a mode; NULL if none was set.
  const mortise_next* layer_chain(const mortise_layer& l, uint32_t mode) const {
    return l.index < layer_chains_.size() && mode < MORTISE_MODES ? layer_chains_[l.index][mode] : nullptr;
  }
  void set_layer_chain(const mortise_layer& l, uint32_t mode, const mortise_next* chain);

  // The step that random bits belong to; set by the loop.
  int64_t step = 0;
  // The global gradient norm in true units, computed once a step; set by the loop, which knows the scale and the ranks.
  std::function<at::Tensor()> norm_of_step;
  // The loop, for the tables that it lends.
  void* loop = nullptr;

 private:
  const PointTable& points_;
  c10::Device device_;
  uint64_t seed_;
  Declaration declaration_;
  Parameters parameters_;
  std::map<std::string, const void*, std::less<>> tables_;
  std::deque<PluginHost> plugins_;
  std::deque<mortise_next> links_;
  std::vector<std::array<const mortise_next*, MORTISE_MODES>> layer_chains_;
};

// Throws PluginError: a filter that changes what its plugin.toml does not say was not put in order with the others.
void must_write(mortise_host* h, std::string_view field);

inline PluginHost& plugin_of(mortise_host* h) { return *static_cast<PluginHost*>(h); }
inline Host& host_of(mortise_host* h) { return *plugin_of(h).owner; }

// Backward from `roots`; at the end of the outermost one the parameters are told. Throws PluginError.
void run_backward(Host& host, const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& seeds,
                  uint32_t flags = 0);

}  // namespace mortise
