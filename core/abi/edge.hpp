// The core as plugins see it, without LibTorch: their windows, the tables by id, the declaration. A host with tensors
// (core/host) is an edge with more tables; without one, whoever calls for a tensor is refused by name, and a model can
// still be declared and planned.
#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/abi/services.hpp"
#include "core/manifest/manifest.hpp"
#include "core/model/declaration.hpp"
#include "mortise/abi.h"

namespace mortise {

class Edge;

// What a plugin's mortise_host * is.
struct PluginHost : mortise_host {
  Edge* owner = nullptr;
  std::string id;
  const PluginTable* table = nullptr;  // its configuration; NULL: defaults of its schema only
  const PluginSchema* schema = nullptr;
  std::set<std::string> writes;                 // fields that its plugin.toml says it writes
  std::vector<std::string> told_before;         // who reads the columns of a record, and is told of it before this one
  std::mutex mutex;                             // of what follows: a loader's thread may ask for its configuration too
  std::map<std::string, mortise_value> config;  // values as C, made once
  std::deque<std::string> texts;
  std::deque<std::vector<mortise_str>> text_lists;
  std::deque<std::vector<double>> float_lists;
  std::deque<std::vector<int64_t>> int_lists;
  std::string failure;  // the first that it told `fail`
  Diagnostic blame;     // the last refusal of a value, with its position
  bool blamed = false;
};

class Edge {
 public:
  // Registers the tables that need no LibTorch; the others refuse.
  Edge(const PointTable& points, uint64_t seed);
  virtual ~Edge() = default;
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;

  // A plugin's window; lives as long as the edge.
  PluginHost& add_plugin(std::string id, const PluginSchema* schema, const PluginTable* table);
  // A table by id; a later one replaces an earlier one.
  void register_table(const std::string& id, const void* table) { tables_[id] = table; }
  const void* table(std::string_view id) const;

  const PointTable& points() const { return points_; }
  uint64_t seed() const { return seed_; }
  Declaration& declaration() { return declaration_; }

  Services services;
  // The run's device is open, MORTISE_CPU or MORTISE_CUDA: tensors are made there from now on, and with `repeats`
  // computed there in the same bits in every run.
  virtual void device_opened(uint32_t /*kind*/, int32_t /*index*/, bool /*repeats*/) {}

  // What the loop does for plugins; NULL until there is a loop.
  LoopServices* loop = nullptr;
  // Filters of params.declared are under way: the only time at which a parameter's fields may be set.
  bool declaring_parameters = false;
  // Threads that a device asked for where nothing computes; 0: nobody asked.
  int32_t threads = 0;
  // The id of the first plugin that called for a tensor where there is no LibTorch; empty: none did.
  std::string needs_tensors;

 private:
  const PointTable& points_;
  uint64_t seed_;
  Declaration declaration_;
  std::map<std::string, const void*, std::less<>> tables_;
  std::deque<PluginHost> plugins_;
};

inline PluginHost& plugin_of(mortise_host* h) { return *static_cast<PluginHost*>(h); }
inline Edge& edge_of(mortise_host* h) { return *plugin_of(h).owner; }

// Throws PluginError: a filter that changes what its plugin.toml does not say was not put in order with the others.
void must_write(mortise_host* h, std::string_view field);

}  // namespace mortise
