// Which optimizer updates which parameter, and what it keeps of each: sizes and dtypes, before anything is allocated.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/abi/instances.hpp"
#include "core/manifest/manifest.hpp"
#include "mortise/optimizer.h"

namespace mortise {

struct StateSpec {
  std::string name;
  std::vector<int64_t> sizes;
  uint32_t dtype = 0;
  double fill = 0;
};

struct DeclaredOptimizer {
  Instance* by = nullptr;
  Provided<mortise_optimizer> object;
  std::vector<mortise_param*> params;
  struct Slot {
    mortise_param* param;
    std::vector<StateSpec> states;
  };
  std::vector<Slot> slots;  // a trainable parameter each

  bool writes_value() const { return object && (object.object->flags & MORTISE_WRITES_VALUE); }
  int64_t state_bytes() const;
};

// Every trainable parameter to one optimizer, by the plan's claims; writes the parameters' groups. Throws Failure or
// PluginError.
std::vector<DeclaredOptimizer> declare_optimizers(Instances& instances, Declaration& d, const Manifest& manifest,
                                                  std::vector<Group>* groups);

}  // namespace mortise
