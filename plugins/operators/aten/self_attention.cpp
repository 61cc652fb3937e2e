// self_attention: queries, keys and values of x, rotated if `theta` is given, attention, and its product with a matrix.
// A composite of layers of its own; queries, keys and values come from one packed linear (`qkv`) or from three.
#include "common.hpp"

namespace mortise::aten {
namespace {

class SelfAttention {
 public:
  SelfAttention(const Builder& build, const LayerSpec& spec)
      : heads_(spec.integer("heads")), kv_heads_(spec.integer("kv_heads", heads_)),
        head_dim_(spec.integer("head_dim", spec.integer("width") / heads_)) {
    const int64_t width = spec.integer("width"), own = heads_ * head_dim_, shared = kv_heads_ * head_dim_;
    const std::string_view packed = spec.text("qkv", "");
    const double init = spec.number("init", 0.02), theta = spec.number("theta", 0);
    const auto linear = [&](std::string_view name, int64_t in, int64_t out, double deviation, int64_t parts) {
      const std::string part = "." + std::string(name);
      return build.layer("linear", spec.path() + part,
                         {attr("name", spec.name() + part), attr("in", in), attr("out", out),
                          attr("layout", spec.text("layout", "out_in")), attr("bias", spec.flag("bias", true)),
                          attr("init", deviation), attr("parts", parts)});
    };
    if (packed.empty()) {
      q_ = linear(spec.text("q", "q"), width, own, init, 1);
      k_ = linear(spec.text("k", "k"), width, shared, init, 1);
      v_ = linear(spec.text("v", "v"), width, shared, init, 1);
    } else if (heads_ == kv_heads_) {
      qkv_ = linear(packed, width, 3 * own, init, 3);
    } else {
      throw Error(MORTISE_E_ARGUMENT, spec.path() + ": heads that share keys and values are not packed",
                  "attributes q, k and v instead of qkv");
    }
    std::vector<mortise_attr> turns = {attr("head_dim", head_dim_), attr("theta", theta),
                                       attr("layout", spec.text("rope_layout", "half"))};
    for (const std::string_view scaling : {"rope_factor", "rope_low", "rope_high", "rope_context"})
      for (const mortise_attr& given : spec.all())
        if (view(given.key) == scaling) turns.push_back({str(scaling.substr(5)), given.value});
    if (theta > 0) rope_ = build.layer("rope", spec.path() + ".rope", turns);
    attention_ = build.layer("attention", spec.path() + ".attention",
                             {attr("heads", heads_), attr("kv_heads", kv_heads_), attr("head_dim", head_dim_),
                              attr("causal", spec.flag("causal", false)), attr("window", spec.integer("window", 0)),
                              attr("dropout", spec.number("dropout", 0)), attr("mask", spec.text("mask", "none"))});
    out_ = linear(spec.text("out", "out"), own, width, spec.number("init_out", init), 1);
  }

  void forward(mortise_call* call) const {
    const mortise_value x = call->args[0], positions = argument(call, 1), mask = argument(call, 2);
    Tensor q, k, v;
    if (qkv_) {
      q = std::move(call_layer<1>(qkv_, x)[0]);
    } else {
      q = std::move(call_layer<1>(q_, x)[0]);
      k = std::move(call_layer<1>(k_, x)[0]);
      v = std::move(call_layer<1>(v_, x)[0]);
    }
    if (rope_ && qkv_) {
      const int64_t own = heads_ * head_dim_;
      k = ops::narrow(q, 2, own, own);
      v = ops::narrow(q, 2, 2 * own, own);
      q = ops::narrow(q, 2, 0, own);
    }
    if (rope_) {
      q = std::move(call_layer<1>(rope_, q, positions)[0]);
      k = std::move(call_layer<1>(rope_, k, positions)[0]);
    }
    const auto [attended] = call_layer<1>(attention_, q, k, v, mask);
    auto [y] = call_layer<1>(out_, attended);
    give(call, 0, std::move(y));
  }

 private:
  int64_t heads_, kv_heads_, head_dim_;
  mortise_layer *qkv_ = nullptr, *q_ = nullptr, *k_ = nullptr, *v_ = nullptr, *rope_ = nullptr, *attention_, *out_;
};

}  // namespace

const mortise_operator* self_attention() { return operator_of<SelfAttention>(); }

}  // namespace mortise::aten
