// mlp: down(activation(up(x))), or with a gate down(activation(gate(x)) · up(x)). A composite of layers of its own.
#include "common.hpp"

namespace mortise::aten {
namespace {

class Mlp {
 public:
  Mlp(const Builder& build, const LayerSpec& spec) {
    const int64_t width = spec.integer("width"), inner = spec.integer("inner");
    const std::string_view gate = spec.text("gate", ""), activation = spec.text("activation", "gelu");
    const auto linear = [&](std::string_view name, int64_t in, int64_t out, std::string_view then, double init) {
      const std::string part = "." + std::string(name);
      return build.layer("linear", spec.path() + part,
                         {attr("name", spec.name() + part), attr("in", in), attr("out", out),
                          attr("layout", spec.text("layout", "out_in")), attr("activation", then),
                          attr("bias", spec.flag("bias", true)), attr("init", init)});
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
    auto [inner] = call_layer<1>(up_, call->args[0]);
    if (gate_) {
      const auto [gate] = call_layer<1>(gate_, call->args[0]);
      inner = std::move(call_layer<1>(gated_, gate, inner)[0]);
    }
    auto [y] = call_layer<1>(down_, inner);
    give(call, 0, std::move(y));
  }

 private:
  mortise_layer *gate_ = nullptr, *gated_ = nullptr, *up_, *down_;
};

}  // namespace

const mortise_operator* mlp() { return operator_of<Mlp>(); }

}  // namespace mortise::aten
