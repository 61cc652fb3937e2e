// The activations, and what each one's gradient needs: its argument z or its result y.
#pragma once
#include "mortise/cpp/operator.hpp"

namespace mortise::kernels {

class Activation {
 public:
  Activation(const LayerSpec& spec, std::initializer_list<std::string_view> names)
      : kind_(kind_of(*(names.begin() + spec.choice("activation", names)))) {}

  bool none() const { return kind_ == Kind::kNone; }
  // What backward gets: y, otherwise z.
  bool saves_result() const { return kind_ == Kind::kRelu || kind_ == Kind::kTanh; }
  Tensor operator()(Tensor z) const {
    switch (kind_) {
      case Kind::kNone: return z;
      case Kind::kGelu: return ops::gelu(z, "none");
      case Kind::kGeluTanh: return ops::gelu(z, "tanh");
      case Kind::kRelu: return ops::relu(z);
      case Kind::kSilu: return ops::silu(z);
      case Kind::kTanh: return ops::tanh(z);
    }
    return z;
  }
  Tensor backward(Tensor g, Ref saved) const {
    switch (kind_) {
      case Kind::kNone: return g;
      case Kind::kGelu: return ops::gelu_backward(g, saved, "none");
      case Kind::kGeluTanh: return ops::gelu_backward(g, saved, "tanh");
      case Kind::kRelu: return ops::relu_backward(g, saved);
      case Kind::kSilu: return ops::silu_backward(g, saved);
      case Kind::kTanh: return ops::tanh_backward(g, saved);
    }
    return g;
  }

 private:
  enum class Kind { kNone, kGelu, kGeluTanh, kRelu, kSilu, kTanh };
  static Kind kind_of(std::string_view name) {
    static constexpr std::array<std::string_view, 6> kNames = {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"};
    size_t i = 0;
    while (kNames[i] != name) ++i;
    return static_cast<Kind>(i);
  }
  Kind kind_;
};

}  // namespace mortise::kernels
