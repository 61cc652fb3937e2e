// Chains: for each point, block and layer, and each mode, the wrappers of the plan around the provider, as links that
// calls run through.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/loop/plugins.hpp"

namespace mortise {

struct Listener {
  mortise_event_fn fn;
  Instance* by;
};

class Chains {
 public:
  Chains(Host& host, const Plan& plan, Plugins& plugins);

  // The provider of a call point that the core itself fills.
  void core(Point point, CoreFunction fn);
  // After the model is declared: chains of points, of each block and of each layer.
  void build(const Provided<mortise_model>& model);

  // Providers of a layer while it is declared: every distinct one of its modes. `supports` of chosen candidates is
  // asked here.
  void declare_layer(mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec);

  const mortise_next* at(Point point, uint32_t mode) const { return points_[point][mode]; }
  const mortise_next* segment(size_t index, uint32_t mode) const { return segments_[index][mode]; }
  // Which candidate a chooser's layers got: id of the chooser → "-> ids of the chosen".
  const std::map<std::string, std::string>& chosen() const { return chosen_; }

  // Tells every listener of an event, in order; throws what the first failing one returned.
  void notify(Point point, mortise_event event) const;

 private:
  using Modes = std::array<const mortise_next*, MORTISE_MODES>;
  mortise_next* wrapped(uint32_t point, uint32_t mode, const std::vector<size_t>& wrappers, mortise_next* provider);
  int provider_of(const mortise_layer& layer, uint32_t mode);
  int choose(const Claim& claim, const mortise_layer& layer, uint32_t mode);
  void check_places() const;

  Host& host_;
  const Plan& plan_;
  Plugins& plugins_;
  std::vector<Modes> points_;
  std::vector<Modes> segments_;
  std::vector<CoreFunction> core_;
  std::vector<std::vector<Listener>> listeners_;
  std::vector<std::array<int, MORTISE_MODES>> layer_members_;  // by index of the layer
  std::map<std::string, std::string> chosen_;
};

}  // namespace mortise
