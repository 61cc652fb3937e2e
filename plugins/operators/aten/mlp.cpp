// mlp: down(activation(up(x))), a composite of two linear layers of its own.
#include "common.hpp"

namespace mortise::aten {
namespace {

class Mlp {
 public:
  Mlp(const Builder& build, const LayerSpec& spec) {
    const int64_t width = spec.integer("width"), inner = spec.integer("inner");
    const std::string_view layout = spec.text("layout", "out_in");
    const std::string up = "." + std::string(spec.text("up", "up")),
                      down = "." + std::string(spec.text("down", "down"));
    up_ = build.layer("linear", spec.path() + up,
                      {attr("name", spec.name() + up), attr("in", width), attr("out", inner), attr("layout", layout),
                       attr("activation", spec.text("activation", "gelu")), attr("bias", spec.flag("bias", true)),
                       attr("init", spec.number("init_up", 0.02))});
    down_ =
        build.layer("linear", spec.path() + down,
                    {attr("name", spec.name() + down), attr("in", inner), attr("out", width), attr("layout", layout),
                     attr("bias", spec.flag("bias", true)), attr("init", spec.number("init_down", 0.02))});
  }
  void forward(mortise_call* call) const {
    const auto [inner] = call_layer<1>(up_, call->args[0]);
    auto [y] = call_layer<1>(down_, inner);
    give(call, 0, std::move(y));
  }

 private:
  mortise_layer *up_, *down_;
};

}  // namespace

const mortise_operator* mlp() { return operator_of<Mlp>(); }

}  // namespace mortise::aten
