// What the loop does for plugins, over whatever of it exists: the model once it is allocated, the rest once it trains.
#pragma once
#include "core/abi/services.hpp"
#include "core/loop/ledger.hpp"
#include "core/loop/passes.hpp"
#include "core/loop/step.hpp"
#include "mortise/objects.h"

namespace mortise {

class RunServices final : public LoopServices {
 public:
  RunServices(Host& host, Passes& passes) : host_(host), passes_(passes) {}
  // What plugins keep beside parameters, once these are allocated.
  void allocate_kept();
  std::deque<std::pair<const PluginHost*, States>>& kept() { return kept_; }
  // From here on there are steps.
  void train(Ledger& ledger, Provided<mortise_replicas> replicas, Step& step);

  const mortise_ledger& ledger() override;
  void vote(mortise_tensor* ok) override;
  void multiply(mortise_tensor* factor) override;
  void set_scale(mortise_tensor* scale) override;
  void report(std::string_view name, mortise_tensor* number, std::string_view unit) override;
  void metric(std::string_view name, double number) override;
  uint64_t recorded() override;
  void replayed(uint64_t token) override;
  void term(std::string_view name, mortise_tensor* sum, std::string_view unit, double weight) override;
  void attach_term(std::string_view name, mortise_tensor* carrier, mortise_tensor* sum, std::string_view unit,
                   double weight, mortise_tensor** out) override;
  void norm(mortise_tensor** out) override;
  void ready(mortise_param& p, int micro, bool last) override;
  void need(mortise_param& p, int segment, bool backward) override;
  void slices(const PluginHost& plugin, const mortise_slice** out, uint32_t* n) override;
  void publish(const mortise_param& p) override;
  void forward(mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results, uint32_t n) override;

 private:
  static std::string column_name(std::string_view name);  // throws PluginError: it is none
  static std::string term_name(std::string_view name, double weight);
  static at::Tensor one_number(mortise_tensor* handle, const std::string& what);
  // The term under `text`, as it is given where `f` is.
  static void count_term(const Frame& f, const std::string& text, std::string_view unit, double weight,
                         const at::Tensor& sum);
  Ledger& need_ledger() const;
  Step& need_step() const;

  States& states_of(const PluginHost& plugin);

  Host& host_;
  Passes& passes_;
  std::deque<std::pair<const PluginHost*, States>> kept_;  // also of who keeps nothing, once it asked for slices
  Ledger* ledger_ = nullptr;
  Provided<mortise_replicas> replicas_;
  Step* step_ = nullptr;
};

}  // namespace mortise
