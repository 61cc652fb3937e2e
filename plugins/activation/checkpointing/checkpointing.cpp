// A checkpointed block is one node of the graph. Its forward runs the block without a graph and saves the inputs; its
// backward runs the block again, now with a graph, and goes backward through that. The kept call brings the frame back:
// mode, random site, compute dtype.
#include <algorithm>
#include <memory>
#include <vector>

#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

// One pass of one block, from its forward to its backward.
struct Region {
  mortise_kept* kept = nullptr;
  uint32_t flags = 0;                // of the pass that is kept
  std::vector<mortise_value> args;   // numbers as they are; tensors are saved by the node
  std::vector<bool> differentiable;  // which tensors want a gradient
  ~Region() {
    if (kept) api.call->drop(api.host, kept);
  }
};

bool requires_grad(Ref t) { return t.handle && (Info(t).flags & MORTISE_REQUIRES_GRAD); }

mortise_status forward(void* state, mortise_node* node, const mortise_value* in, uint32_t n, mortise_value* out,
                       uint32_t m) noexcept {
  return guard([&] {
    const Region& region = *static_cast<Region*>(state);
    std::vector<mortise_tensor*> inputs;
    for (uint32_t i = 0; i < n; ++i) inputs.push_back(Ref(in[i]));
    check(api.autograd->save(api.host, node, inputs.data(), n));
    check(api.call->run(api.host, region.kept, MORTISE_FIRST_PASS | region.flags, in, n, out, m));
  });
}

mortise_status backward(void* state, mortise_node* node, mortise_tensor* const* grad_out, uint32_t m,
                        mortise_tensor** grad_in, uint32_t n) noexcept {
  return guard([&] {
    const Region& region = *static_cast<Region*>(state);
    if (std::none_of(grad_out, grad_out + m, [](mortise_tensor* g) { return g != nullptr; })) return;

    std::vector<mortise_value> args = region.args;
    std::vector<Tensor> held;  // what `args` and `leaves` borrow
    std::vector<mortise_tensor*> leaves;
    std::vector<uint32_t> leaf_of;
    for (uint32_t i = 0; i < n; ++i) {
      if (args[i].tag != MORTISE_TENSOR) continue;
      Tensor saved;
      check(api.autograd->saved(api.host, node, i, saved.put()));
      if (region.differentiable[i]) {
        Tensor leaf;
        check(api.autograd->detach(api.host, saved.get(), 1, leaf.put()));
        leaves.push_back(leaf.get());
        leaf_of.push_back(i);
        saved = std::move(leaf);
      }
      args[i] = value(saved);
      held.push_back(std::move(saved));
    }

    std::vector<mortise_value> results(m, none());
    const mortise_status ran = api.call->run(api.host, region.kept, MORTISE_GRAD | MORTISE_REPLAY | region.flags,
                                             args.data(), n, results.data(), m);
    std::vector<mortise_tensor*> roots, seeds;
    for (uint32_t k = 0; k < m; ++k) {
      held.push_back(take(results[k]));
      if (ran != MORTISE_OK || !grad_out[k] || !requires_grad(held.back())) continue;
      roots.push_back(held.back().get());
      seeds.push_back(grad_out[k]);
    }
    check(ran);
    if (roots.empty()) return;
    std::vector<mortise_tensor*> grads(leaves.size());
    check(api.autograd->backward(api.host, roots.data(), seeds.data(), static_cast<uint32_t>(roots.size()),
                                 leaves.data(), grads.data(), static_cast<uint32_t>(leaves.size()), 0));
    for (size_t k = 0; k < leaves.size(); ++k) grad_in[leaf_of[k]] = grads[k];
  });
}

void drop(void* state) noexcept { delete static_cast<Region*>(state); }

// Parameters are used inside, so the output needs a gradient even when no input does.
constexpr mortise_node_fns kNode = {sizeof(mortise_node_fns),
                                    MORTISE_NODE_REQUIRES_GRAD,
                                    MORTISE_STR("activation.checkpointing"),
                                    forward,
                                    backward,
                                    drop};

class Checkpointing {
 public:
  Checkpointing() {
    for (const std::string_view name : config::texts("keep")) keep_.push_back(str(name));
  }

  void block(mortise_call* call, mortise_next* next) {
    if (!(call->flags & MORTISE_GRAD)) return check(api.call->next(api.host, next, call));
    auto region = std::make_unique<Region>();
    region->flags = call->flags & (MORTISE_REPLAY | MORTISE_LAST_MICRO);
    for (uint32_t i = 0; i < call->n_args; ++i) {
      const mortise_value& arg = call->args[i];
      if (is_borrowed(arg))
        throw Error(MORTISE_E_UNSUPPORTED, "a block that is checkpointed takes tensors and numbers; argument " +
                                               std::to_string(i) + " of " + std::string(view(call->path)) +
                                               " is neither");
      region->args.push_back(arg);
      region->differentiable.push_back(requires_grad(arg));
    }
    check(api.call->keep(api.host, call, next, keep_.data(), static_cast<uint32_t>(keep_.size()), &region->kept));
    // The node owns the region from here on, also when `apply` fails.
    check(api.autograd->apply(api.host, &kNode, region.release(), call->args, call->n_args, call->results,
                              call->n_results));
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
