// Several linears of one shape, each with rows of its own: those of a group stand side by side, group g's up to row
// ends[g], and what the rows behind the last end get is undefined. A weight has its group's number in the place of the
// `*` of its name.
//
// One launch for all on a GPU from sm_90 on, in bf16, and nobody waits for it. Anywhere else LibTorch makes one product
// after another, and asks the device for the ends. It wants sizes that are multiples of 16 bytes.
//
// Shapes as suffixes: G groups.
#pragma once
#include <algorithm>

#include "common.hpp"
#include "kernels/activation/activation.hpp"

namespace mortise::aten {

class GroupedLinear {
 public:
  GroupedLinear(const Builder& build, const LayerSpec& spec)
      : in_out_(spec.choice("layout", {"out_in", "in_out"}) == 1),
        activation_(spec, {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"}) {
    const int64_t in = spec.integer("in"), out = spec.integer("out");
    const size_t star = spec.name().find('*');
    if (star == std::string::npos || in % 8 != 0 || out % 8 != 0 || spec.integer("parts", 1) != 1)
      throw Error(MORTISE_E_ARGUMENT, spec.path() +
                                          ": groups need a `*` in the name, sizes that are multiples of 8, and "
                                          "weights that are not packed");
    for (int64_t g = 0; g < spec.integer("groups"); ++g) {
      const std::string name = spec.name().replace(star, 1, std::to_string(g));
      const double init = spec.number("init", 0.02);
      weights_.push_back(in_out_ ? build.param({name + ".weight", "matrix", {"in", "out"}, {in, out}, "normal", init})
                                 : build.param({name + ".weight", "matrix", {"out", "in"}, {out, in}, "normal", init}));
      if (spec.flag("bias", true))
        biases_.push_back(build.param({name + ".bias", "vector", {"out"}, {out}, "constant", 0}));
    }
  }

  // Saved: the ends, what the activation's gradient needs, then x if a weight learns.
  void forward(mortise_call* call, Saves& saves) const {
    const uint32_t dtype = compute_dtype(call, weights_[0]);
    if (dtype == MORTISE_F64)
      throw Error(MORTISE_E_UNSUPPORTED, "LibTorch has no grouped products in fp64",
                  "another dtype, or experts one by one: `products = \"each\"`");
    const Tensor x = cast(call->args[0], dtype), weight = stacked(weights_, dtype);
    const Ref ends_G = call->args[1];
    Tensor z = product(as_rows(x), in_out_ ? weight : ops::transpose(weight, 1, 2), ends_G);
    if (!biases_.empty())
      ops::add_(z, ops::index_select(stacked(biases_, dtype), group_of_rows(ends_G, Info(z).size(0))));
    z = as_leading(z, Info(x));
    saves.input(1);
    if (!activation_.none()) activation_.saves_result() ? saves.output(0) : saves.own(z);
    if (learns(weights_)) saves.input(0, x);
    give(call, 0, activation_(std::move(z)));
  }

  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    const Ref ends_G = b.saved(0);
    uint32_t next = 1;
    Tensor g = Tensor::share(b.grad(0));
    if (!activation_.none()) g = activation_.backward(std::move(g), b.saved(next++));
    const Info like(g);
    const Tensor g_NO = ops::contiguous(as_rows(g));
    if (b.wants(0)) {
      const Tensor weight = stacked(weights_, like.dtype);
      b.give(0, as_leading(product(g_NO, in_out_ ? ops::transpose(weight, 1, 2) : weight, ends_G), like));
    }
    if (learns(weights_)) {
      const Tensor x_NI = ops::contiguous(as_rows(b.saved(next)));
      const Tensor all = in_out_ ? product(ops::t(x_NI), g_NO, ends_G) : product(ops::t(g_NO), x_NI, ends_G);
      sum_gradients(weights_, all, ends_G);
    }
    if (learns(biases_)) {  // the product with columns of ones, whose sums have one order: eight, for LibTorch's sake
      const Tensor ones_N8 = empty(like.dtype, {Info(g_NO).size(0), 8});
      ops::fill_(ones_N8, 1);
      sum_gradients(biases_, ops::select(product(ops::t(ones_N8), g_NO, ends_G), 1, 0), ends_G);
    }
  }

 private:
  using Params = std::vector<mortise_param*>;

  static bool learns(const Params& params) { return std::ranges::any_of(params, trainable); }
  // a [N, I] · b [G, I, O] → [N, O]; a [I, N] · b [N, O] → [G, I, O].
  static Tensor product(Ref a, Ref b, Ref ends_G) {
    static const Op op("aten::_grouped_mm");
    return op(a, b, ends_G, none(), none());
  }
  // A copy: parameters lie anywhere.
  static Tensor stacked(const Params& params, uint32_t dtype) {
    static const Op op("aten::stack");
    std::vector<Tensor> values;
    std::vector<mortise_tensor*> list;
    for (mortise_param* p : params) list.push_back(values.emplace_back(weight_in(p, dtype)).get());
    return op(tensors(list), 0);
  }
  // The last group for the rows behind.
  static Tensor group_of_rows(Ref ends_G, int64_t n) {
    static const Op op("aten::searchsorted.Tensor");
    const Tensor rows_N = empty(MORTISE_I64, {n});
    ops::arange_out(n, rows_N);
    const Tensor group_N = op(ends_G, ops::to(rows_N, MORTISE_I32), false, true, none(), none());
    return ops::op_clamp_max()(group_N, Info(ends_G).numel - 1);
  }
  // Of a group without rows LibTorch promises nothing: zeros.
  static void sum_gradients(const Params& params, const Tensor& all, Ref ends_G) {
    static const Op diff("aten::diff"), equal("aten::eq.Scalar"), fill("aten::masked_fill_.Scalar");
    const Tensor zero_1 = empty(MORTISE_I32, {1});
    ops::fill_(zero_1, 0);
    Tensor has_none = equal(diff(ends_G, 1, 0, zero_1, none()), 0);
    while (Info(has_none).rank < Info(all).rank) has_none = ops::unsqueeze(has_none, -1);
    fill(all, has_none, 0);
    for (size_t g = 0; g < params.size(); ++g)
      if (trainable(params[g])) sum_gradient(params[g], ops::select(all, 0, static_cast<int64_t>(g)));
  }

  bool in_out_;
  kernels::Activation activation_;
  Params weights_, biases_;
};

}  // namespace mortise::aten
