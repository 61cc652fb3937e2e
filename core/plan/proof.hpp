// A proof before the run. [ranks] of plugin.toml says what a layer gives along an axis of ranks, how it leaves
// gradients, and who sums or averages what. From that, and from where parameters lie: every gradient is summed once,
// every norm counts each element once, every term is divided once (docs/adr/0051).
#pragma once
#include <string>
#include <vector>

#include "core/base/mesh.hpp"
#include "core/plan/plan.hpp"

namespace mortise {

// A layer in training, and whose it is. Of a parameter that the model declares itself the path is "".
struct RankedLayer {
  std::string path;
  const PluginInfo* by = nullptr;
};

// A trainable parameter.
struct RankedParameter {
  std::string name;
  int axis = -1;                    // of the mesh, along which ranks have other elements; -1: of none
  bool is_sharded = false;          // so are its replicas, by the provider of `replicas`
  std::vector<RankedLayer> inside;  // where it was declared, the innermost first
};

// Does this rank count what it has of such a parameter, in a sum of squares over all ranks? The core's norm is that.
bool counts_squares(const Mesh& mesh, int axis, bool is_sharded);

// What holds of several ranks, in a few lines. Throws Failure `not_proven`, with the path that breaks it.
std::vector<std::string> proof_of(const Plan& plan, const Mesh& mesh, const std::vector<RankedLayer>& layers,
                                  const std::vector<RankedParameter>& params);

}  // namespace mortise
