// A checkpointed block is one node of the graph. Its forward runs the block without a graph and saves the inputs; its
// backward runs the block again, now with a graph, and goes backward through that. The kept call brings the frame back:
// mode, random site, compute dtype.
#include <algorithm>
#include <memory>
#include <vector>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

bool requires_grad(Ref t) { return t.handle && (Info(t).flags & MORTISE_REQUIRES_GRAD); }

// One pass of one block, from its forward to its backward.
struct Region {
  static constexpr mortise_str kName = MORTISE_STR("activation.checkpointing");
  // Parameters are used inside, so the output needs a gradient even when no input does.
  static constexpr uint32_t kFlags = MORTISE_NODE_REQUIRES_GRAD;

  Kept kept;
  uint32_t flags = 0;                // of the pass that is kept
  std::vector<mortise_value> args;   // numbers as they are; tensors are saved by the node
  std::vector<bool> differentiable;  // which tensors want a gradient

  void forward(mortise_node* node, std::span<const mortise_value> in, std::span<mortise_value> out) const {
    std::vector<mortise_tensor*> inputs;
    for (const mortise_value& v : in) inputs.push_back(Ref(v));
    save(node, inputs);
    check(kept.run(MORTISE_FIRST_PASS | flags, in, out));
  }

  void backward(mortise_node* node, std::span<mortise_tensor* const> grad_out,
                std::span<mortise_tensor*> grad_in) const {
    if (std::ranges::all_of(grad_out, [](mortise_tensor* g) { return g == nullptr; })) return;

    std::vector<mortise_value> given = args;
    std::vector<Tensor> held;  // what `given` and `leaves` borrow
    std::vector<mortise_tensor*> leaves;
    std::vector<size_t> leaf_of;
    for (size_t i = 0; i < grad_in.size(); ++i) {
      if (given[i].tag != MORTISE_TENSOR) continue;
      held.push_back(saved(node, static_cast<uint32_t>(i)));
      if (differentiable[i]) {
        held.back() = detach(held.back(), true);
        leaves.push_back(held.back().get());
        leaf_of.push_back(i);
      }
      given[i] = value(held.back());
    }

    std::vector<mortise_value> results(grad_out.size(), none());
    const mortise_status ran = kept.run(MORTISE_GRAD | MORTISE_REPLAY | flags, given, results);
    std::vector<mortise_tensor*> roots, seeds;
    for (size_t k = 0; k < results.size(); ++k) {
      held.push_back(take(results[k]));
      if (ran != MORTISE_OK || !grad_out[k] || !requires_grad(held.back())) continue;
      roots.push_back(held.back().get());
      seeds.push_back(grad_out[k]);
    }
    check(ran);
    if (roots.empty()) return;
    std::vector<Tensor> grads = mortise::backward(roots, seeds, leaves);
    for (size_t k = 0; k < grads.size(); ++k) grad_in[leaf_of[k]] = grads[k].release();
  }
};

class Checkpointing {
 public:
  Checkpointing() {
    for (const std::string_view name : config::texts("keep")) keep_.push_back(str(name));
  }

  void block(mortise_call* call, mortise_next* next) {
    if (!(call->flags & MORTISE_GRAD)) return check(api.call->next(api.host, next, call));
    auto region = std::make_unique<Region>();
    region->flags = call->flags & MORTISE_REPLAY;
    for (uint32_t i = 0; i < call->n_args; ++i) {
      const mortise_value& arg = call->args[i];
      if (is_borrowed(arg))
        throw Error(MORTISE_E_UNSUPPORTED, "a block that is checkpointed takes tensors and numbers; argument " +
                                               std::to_string(i) + " of " + std::string(view(call->path)) +
                                               " is neither");
      region->args.push_back(arg);
      region->differentiable.push_back(requires_grad(arg));
    }
    region->kept = Kept(call, next, keep_);
    apply_node(std::move(region), {call->args, call->n_args}, {call->results, call->n_results});
  }

 private:
  // Values that point to memory of the caller, which will be gone in backward.
  static bool is_borrowed(const mortise_value& v) {
    switch (v.tag) {
      case MORTISE_NONE:
      case MORTISE_TENSOR:
      case MORTISE_INT:
      case MORTISE_FLOAT:
      case MORTISE_LOGICAL:
      case MORTISE_DTYPE:
      case MORTISE_PARAM: return false;
      default: return true;
    }
  }
  std::vector<mortise_str> keep_;
};
}  // namespace

MORTISE_PLUGIN(Checkpointing, mortise::wrap<&Checkpointing::block>("block"))
