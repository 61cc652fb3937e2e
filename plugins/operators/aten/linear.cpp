// linear: y = activation(x · Wᵀ + b). W is [out, in] as torch stores it, or [in, out] as GPT-2's files do ("in_out").
//
// Backward is what ATen's autograd does, product for product, so the bits are the same.
#include <variant>

#include "grouped_linear.hpp"

namespace mortise::aten {
namespace {

class Linear {
 public:
  Linear(const Builder& build, const LayerSpec& spec)
      : in_out_(spec.choice("layout", {"out_in", "in_out"}) == 1),
        activation_(spec, {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"}) {
    const int64_t in = spec.integer("in"), out = spec.integer("out");
    const std::string name = spec.name();
    const std::string weight = name + ".weight";
    const double init = spec.number("init", 0.02);
    const std::vector<int64_t> parts = equal_parts(spec, out);
    weight_ = in_out_ ? build.param({weight, "matrix", {"in", "out"}, {in, out}, "normal", init, nullptr, 1, parts})
                      : build.param({weight, "matrix", {"out", "in"}, {out, in}, "normal", init, nullptr, 0, parts});
    if (spec.flag("bias", true)) bias_ = build.param({name + ".bias", "vector", {"out"}, {out}, "constant", 0});
  }

  // Saved: what the activation's gradient needs (z, or the result itself), then x if the weight learns.
  void forward(mortise_call* call, Saves& saves) const {
    const uint32_t dtype = compute_dtype(call, weight_);
    const Tensor weight = weight_in(weight_, dtype), x = cast(call->args[0], dtype);
    const Tensor w_IO = in_out_ ? weight : ops::t(weight);
    const Tensor z_NO = bias_ ? ops::addmm(weight_in(bias_, dtype), as_rows(x), w_IO) : ops::mm(as_rows(x), w_IO);
    Tensor z = as_leading(z_NO, Info(x));
    if (!activation_.none()) activation_.saves_result() ? saves.output(0) : saves.own(z);
    if (trainable(weight_)) saves.input(0, x);
    give(call, 0, activation_(std::move(z)));
  }

  void backward(mortise_call*, Backward& b) const {
    if (!b.grad(0)) return;
    uint32_t next = 0;
    Tensor g = Tensor::share(b.grad(0));
    if (!activation_.none()) g = activation_.backward(std::move(g), b.saved(next++));
    const Info like(g);
    const Tensor g_NO = as_rows(g);
    if (b.wants(0)) {
      const Tensor weight = weight_in(weight_, like.dtype);
      const Tensor w_OI = in_out_ ? ops::t(weight) : weight;
      b.give(0, as_leading(ops::mm(g_NO, w_OI), like));
    }
    if (trainable(weight_)) {
      const Tensor x_NI = as_rows(b.saved(next));
      in_out_ ? product_gradient(weight_, ops::t(x_NI), g_NO) : product_gradient(weight_, ops::t(g_NO), x_NI);
    }
    if (bias_ && trainable(bias_)) rows_gradient(bias_, g_NO);
  }

 private:
  // The sizes of the packed parts of the weight, along its outputs; none of one.
  static std::vector<int64_t> equal_parts(const LayerSpec& spec, int64_t out) {
    const int64_t n = spec.integer("parts", 1);
    if (n < 1 || out % n != 0)
      throw Error(MORTISE_E_ARGUMENT,
                  spec.path() + ": " + std::to_string(out) + " outputs are not " + std::to_string(n) + " equal parts");
    return std::vector<int64_t>(n > 1 ? static_cast<size_t>(n) : 0, out / n);
  }

  bool in_out_;
  kernels::Activation activation_;
  mortise_param *weight_ = nullptr, *bias_ = nullptr;
};

// One, or as many as the attribute `groups` says.
class OneOrGroups {
 public:
  OneOrGroups(const Builder& build, const LayerSpec& spec) {
    if (spec.integer("groups", 1) == 1) linear_.emplace<Linear>(build, spec);
    else linear_.emplace<GroupedLinear>(build, spec);
  }
  void forward(mortise_call* call, Saves& saves) const {
    visit([&](const auto& linear) { linear.forward(call, saves); });
  }
  void backward(mortise_call* call, Backward& b) const {
    visit([&](const auto& linear) { linear.backward(call, b); });
  }

 private:
  template <class Body>
  void visit(const Body& body) const {
    if (const auto* one = std::get_if<Linear>(&linear_)) body(*one);
    else if (const auto* groups = std::get_if<GroupedLinear>(&linear_)) body(*groups);
  }
  std::variant<std::monostate, Linear, GroupedLinear> linear_;
};

}  // namespace

const mortise_operator* linear() { return operator_of<OneOrGroups>(); }

}  // namespace mortise::aten
