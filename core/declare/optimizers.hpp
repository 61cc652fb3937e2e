// Which optimizer updates which parameter, and what it keeps of each: sizes and dtypes, before anything is allocated.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/abi/instances.hpp"
#include "core/abi/states.hpp"
#include "core/base/mesh.hpp"
#include "core/manifest/manifest.hpp"
#include "mortise/optimizer.h"

namespace mortise {

struct DeclaredOptimizer {
  Instance* by = nullptr;
  Provided<mortise_optimizer> object;
  std::vector<mortise_param*> params;
  std::vector<ParamStates> states;  // of the trainable ones

  // Each rank updates its own elements.
  bool is_cut() const { return !states.empty() && !states.front().pieces.empty(); }
  // Each rank has states of some elements alone.
  bool is_in_parts() const {
    return is_cut() || std::ranges::any_of(states, [](const ParamStates& s) { return s.param->is_placed(); });
  }
  bool writes_value() const { return object && (object.object->flags & MORTISE_WRITES_VALUE); }
};

// Every trainable parameter to one optimizer, by the plan's claims; writes the parameters' groups. Of several ranks
// `replicas` says who updates what, and what this one has of each parameter. Throws Failure or PluginError.
std::vector<DeclaredOptimizer> declare_optimizers(Instances& instances, Declaration& d, const Manifest& manifest,
                                                  const Provided<mortise_replicas>& replicas, const Mesh& mesh,
                                                  std::vector<Group>* groups);

// What plugin `by` keeps beside sharded parameters is sharded as they are. Throws PluginError: it cannot be.
void shard_kept(std::vector<ParamStates>& kept, const std::string& by);

}  // namespace mortise
