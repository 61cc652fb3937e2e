// Calls that are run for another's results or again later, and nodes of one's own in the autograd graph.
#pragma once
#include <array>
#include <memory>

#include "mortise/cpp/core.hpp"

namespace mortise {

// Runs what a wrapper of `forward` is around and gives the logits, its second result, also where nobody else wants
// results. Empty: the model gives none.
inline Tensor run_for_logits(mortise_call* call, mortise_next* next) {
  call->want |= MORTISE_WANT_LOGITS;
  if (call->n_results >= 2) {
    check(api.call->next(api.host, next, call));
    return call->results[1].tag == MORTISE_TENSOR ? Tensor::share(call->results[1].v.t) : Tensor();
  }
  std::array<mortise_value, 2> own = {none(), none()};
  mortise_value* const results = std::exchange(call->results, own.data());
  const uint32_t n = std::exchange(call->n_results, 2);
  const mortise_status status = api.call->next(api.host, next, call);
  call->results = results;
  call->n_results = n;
  Tensor first = take(own[0]), logits = take(own[1]);
  check(status);
  if (call->n_results == 1) call->results[0] = value(first.release());
  return logits;
}

// Of a call that a wrapper is around: the name of its point, and the id of who provides it, "" for the core.
inline std::string_view name_of(const mortise_call* call) {
  mortise_str name{};
  check(api.call->name(api.host, call, &name));
  return view(name);
}
inline std::string_view provider_of(const mortise_next* next) {
  mortise_str id{};
  check(api.call->provider(api.host, next, &id));
  return view(id);
}

// An owned kept call (call.h); may be empty. Runs on any thread.
class Kept {
 public:
  Kept() = default;
  // `operators` names those whose results the first pass stores and a replay uses again.
  Kept(const mortise_call* call, mortise_next* next, std::span<const mortise_str> operators = {}) {
    const auto n = static_cast<uint32_t>(operators.size());
    check(api.call->keep(api.host, call, next, operators.data(), n, &handle_));
  }
  Kept(Kept&& o) noexcept : handle_(std::exchange(o.handle_, nullptr)) {}
  Kept& operator=(Kept o) noexcept {
    std::swap(handle_, o.handle_);
    return *this;
  }
  ~Kept() {
    if (handle_) api.call->drop(api.host, handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  // `results` must be NONE on entry. What a failed run put there is the caller's to release.
  mortise_status run(uint32_t flags, std::span<const mortise_value> args, std::span<mortise_value> results) const {
    return api.call->run(api.host, handle_, flags, args.data(), static_cast<uint32_t>(args.size()), results.data(),
                         static_cast<uint32_t>(results.size()));
  }

 private:
  mortise_kept* handle_ = nullptr;
};

// A node of the autograd graph (autograd.h). Node is a class of one's own with
//   static constexpr mortise_str kName;
//   static constexpr uint32_t kFlags;                        // MORTISE_NODE_REQUIRES_GRAD or 0
//   void forward(mortise_node*, std::span<const mortise_value> in, std::span<mortise_value> out);
//   void backward(mortise_node*, std::span<mortise_tensor* const> grad_out, std::span<mortise_tensor*> grad_in);
// and is deleted when the graph lets go of it, also if this fails.
template <class Node>
void apply_node(std::unique_ptr<Node> node, std::span<const mortise_value> in, std::span<mortise_value> out) {
  static constexpr mortise_node_fns kFunctions = {
      sizeof(mortise_node_fns),
      Node::kFlags,
      Node::kName,
      [](void* state, mortise_node* n, const mortise_value* i, uint32_t n_in, mortise_value* o,
         uint32_t n_out) noexcept {
        return guard([&] { static_cast<Node*>(state)->forward(n, {i, n_in}, {o, n_out}); });
      },
      [](void* state, mortise_node* n, mortise_tensor* const* grad_out, uint32_t n_out, mortise_tensor** grad_in,
         uint32_t n_in) noexcept {
        return guard([&] { static_cast<Node*>(state)->backward(n, {grad_out, n_out}, {grad_in, n_in}); });
      },
      [](void* state) noexcept { delete static_cast<Node*>(state); }};
  check(api.autograd->apply(api.host, &kFunctions, node.release(), in.data(), static_cast<uint32_t>(in.size()),
                            out.data(), static_cast<uint32_t>(out.size())));
}

// Keeps a tensor with its node for backward. In forward, once.
inline void save(mortise_node* node, std::span<mortise_tensor* const> tensors) {
  check(api.autograd->save(api.host, node, tensors.data(), static_cast<uint32_t>(tensors.size())));
}
inline Tensor saved(mortise_node* node, uint32_t index) {
  Tensor t;
  check(api.autograd->saved(api.host, node, index, t.put()));
  return t;
}
// A leaf over the same bytes, cut off from the graph.
inline Tensor detach(Ref t, bool requires_grad) {
  Tensor leaf;
  check(api.autograd->detach(api.host, t, requires_grad, leaf.put()));
  return leaf;
}
// Backward from `roots`; gradients of `inputs` (empty: none).
inline std::vector<Tensor> backward(std::span<mortise_tensor* const> roots, std::span<mortise_tensor* const> seeds,
                                    std::span<mortise_tensor* const> inputs, uint32_t flags = 0) {
  std::vector<mortise_tensor*> grads(inputs.size());
  check(api.autograd->backward(api.host, roots.data(), seeds.data(), static_cast<uint32_t>(roots.size()), inputs.data(),
                               grads.data(), static_cast<uint32_t>(inputs.size()), flags));
  std::vector<Tensor> owned;
  for (mortise_tensor* g : grads) owned.push_back(Tensor::own(g));
  return owned;
}

}  // namespace mortise
