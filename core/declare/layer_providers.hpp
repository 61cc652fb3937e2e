// Who provides each layer, in each mode: asked while the model is being declared, so that a provider can declare the
// layer's parameters. Choosers ask their candidates what they support.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/abi/instances.hpp"
#include "mortise/operator.h"

namespace mortise {

// The layers of an operator's point, one a path, in the order of the model: what a `where` with `every` counts, for
// providers and wrappers alike. `index_of` gets the layer of each, if it is wanted.
std::vector<Element> elements_at(const Declaration& d, uint32_t point, std::vector<uint32_t>* index_of = nullptr);

class LayerProviders {
 public:
  // `device` is MORTISE_CPU or MORTISE_CUDA.
  LayerProviders(Edge& edge, Instances& instances, uint32_t device)
      : edge_(edge), instances_(instances), device_(device) {}

  // Calls `declare` of every distinct provider of the layer's modes. Throws Failure: nobody provides it, or not there.
  void declare(mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec);
  // Once the model is declared: every claim and every `where` took something. Throws Failure.
  void check() const;

  // The member that provides a layer in a mode; -1: the layer inside another that nobody asked for in this mode.
  int member(const mortise_layer& layer, uint32_t mode) const { return taken_[layer.index].members[mode]; }
  // Which candidates a chooser's layers got: id of the chooser -> ids of the chosen, in the order of the layers.
  const std::map<std::string, std::vector<std::string>>& chosen() const { return chosen_; }
  // Whose layers stand inside those of a plugin at the same path: its id -> theirs.
  const std::map<std::string, std::vector<std::string>>& inside() const { return inside_; }
  // Where a provider gave way since it covers a point to which others attach: its id -> "h.0.mlp, for FAMILY.NAME".
  const std::map<std::string, std::vector<std::string>>& apart() const { return apart_; }

 private:
  // The claims on a layer in each mode; the first has it.
  using Claims = std::array<std::vector<const Claim*>, MORTISE_MODES>;
  struct Taken {
    Claims claims;
    std::array<int, MORTISE_MODES> members{};  // the one that the first claim means
  };
  // Asked once for each layer, before those that it declares inside: whether a selector takes a layer hangs on the ones
  // before it only.
  Claims claims_on(const mortise_layer& layer);
  // A claim provides nothing inside what it provides: there the next one does. So this ends.
  Taken taken(const mortise_layer& layer);
  bool is_declared_by(const Declarer& declarer, uint32_t mode) const;
  [[noreturn]] void nothing_provides(const mortise_layer& layer) const;
  void declare_in(uint32_t mode, mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec);
  const std::string& id_of(int member) const;
  std::vector<int> in_order(const Claim& claim, const mortise_layer& layer, uint32_t mode) const;
  int choose(const Claim& claim, const mortise_layer& layer, uint32_t mode);
  // A provider that nobody chose, and that covers what others attach to there, is refused with them.
  void check_covered(const Claim& claim, const mortise_layer& layer, uint32_t mode);
  bool gives_way(int member, const mortise_layer& layer, uint32_t mode);  // and notes it
  struct Answer {
    bool yes = true;
    std::string why, fix;
  };
  static Answer knows_attributes(const Provided<mortise_operator>& op, const mortise_layer& layer);
  Answer supports(const Provided<mortise_operator>& op, const mortise_layer& layer, uint32_t mode) const;
  [[noreturn]] void cannot_run(const std::string& id, const mortise_layer& layer, const Answer& answer,
                               const Position& at) const;

  Edge& edge_;
  Instances& instances_;
  uint32_t device_;
  std::map<const Claim*, Selection> selections_;
  std::deque<Taken> taken_;  // by index of the layer
  std::map<std::string, std::vector<std::string>> chosen_, inside_, apart_;
};

}  // namespace mortise
