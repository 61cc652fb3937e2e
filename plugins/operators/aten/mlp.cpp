// mlp: down(activation(up(x))), or with a gate down(activation(gate(x)) · up(x)). A composite of layers of its own.
// With `groups` each of its linears is as many, whose rows the second argument tells apart.
#include "common.hpp"

namespace mortise::aten {
namespace {

class Mlp {
 public:
  Mlp(const Builder& build, const LayerSpec& spec) : is_grouped_(spec.integer("groups", 1) > 1) {
    const int64_t width = spec.integer("width"), inner = spec.integer("inner");
    const std::string_view gate = spec.text("gate", ""), activation = spec.text("activation", "gelu");
    const auto linear = [&](std::string_view name, int64_t in, int64_t out, std::string_view then, double init) {
      const std::string part = "." + std::string(name), whole = spec.name() + part;
      std::vector<mortise_attr> attrs = {attr("name", std::string_view(whole)),
                                         attr("in", in),
                                         attr("out", out),
                                         attr("layout", spec.text("layout", "out_in")),
                                         attr("activation", then),
                                         attr("bias", spec.flag("bias", true)),
                                         attr("init", init)};
      if (is_grouped_) attrs.push_back(attr("groups", spec.integer("groups")));
      return build.layer("linear", spec.path() + part, attrs);
    };
    const double init_up = spec.number("init_up", 0.02);
    if (!gate.empty()) {
      gate_ = linear(gate, width, inner, "none", init_up);
      gated_ = build.layer("gated", spec.path() + ".gated", {attr("activation", activation)});
    }
    up_ = linear(spec.text("up", "up"), width, inner, gate_ ? "none" : activation, init_up);
    down_ = linear(spec.text("down", "down"), inner, width, "none", spec.number("init_down", 0.02));
  }
  void forward(mortise_call* call) const {
    const auto linear = [&](mortise_layer* layer, const auto& x) {
      return std::move((is_grouped_ ? call_layer<1>(layer, x, call->args[1]) : call_layer<1>(layer, x))[0]);
    };
    Tensor inner = linear(up_, call->args[0]);
    if (gate_) inner = std::move(call_layer<1>(gated_, linear(gate_, call->args[0]), inner)[0]);
    give(call, 0, linear(down_, inner));
  }

 private:
  bool is_grouped_;
  mortise_layer *gate_ = nullptr, *gated_ = nullptr, *up_, *down_;
};

}  // namespace

const mortise_operator* mlp() { return operator_of<Mlp>(); }

}  // namespace mortise::aten
