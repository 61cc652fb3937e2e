// An operator pair made of a class. An instance is a layer: it is made when the model is declared, and never changes
// afterwards.
//
//   class Scale {                                                          // y = x · w
//    public:
//     Scale(const mortise::Builder& build, const mortise::LayerSpec& spec)
//         : weight_(build.param(
//               {spec.name() + ".weight", "vector", {"width"}, {spec.integer("width")}, "constant", 1})) {}
//     void forward(mortise_call* call, mortise::Saves& saves) const {
//       saves.input(0);
//       mortise::give(call, 0, mortise::ops::mul(call->args[0], mortise::use(weight_)));
//     }
//     void backward(mortise_call*, mortise::Backward& b) const {
//       if (b.wants(0)) b.give(0, mortise::ops::mul(b.grad(0), mortise::use(weight_)));
//       if (mortise::trainable(weight_)) mortise::sum_gradient(weight_, …);
//     }
//    …
//   };
//   MORTISE_PLUGIN(mortise::Layers, mortise::provide("scale", mortise::operator_of<Scale>()))
//
// Without `backward` it is a composite: `void forward(mortise_call*) const`.
// `static mortise::Refusal supports(const mortise_place*)` may refuse a place.
// A gradient in another dtype than the argument's is cast by autograd.
#pragma once
#include <deque>
#include <memory>

#include "mortise/cpp/model.hpp"
#include "mortise/cpp/ops.hpp"

namespace mortise {

// Why an operator cannot run somewhere, and what to write instead. Empty: it can.
struct Refusal {
  std::string why, fix;
};

// What the layer was asked for with.
class LayerSpec : public Attrs {
 public:
  explicit LayerSpec(const mortise_layer_spec* s) : Attrs(s), path_(mortise::view(s->path)) {}
  std::string path() const { return std::string(path_); }
  // The prefix of the parameters' names.
  std::string name() const { return std::string(text("name", path_)); }
  // One of `choices`, as its index.
  int choice(std::string_view key, std::initializer_list<std::string_view> choices) const {
    const std::string_view chosen = text(key, *choices.begin());
    int i = 0;
    for (const auto c : choices) {
      if (c == chosen) return i;
      ++i;
    }
    throw Error(MORTISE_E_ARGUMENT, path() + ": there is no " + std::string(key) + " `" + std::string(chosen) + "`");
  }

 private:
  std::string_view path_;
};

// The instance of a plugin of operators: keeps its layers and the texts that it hands out.
class Layers {
 public:
  template <class Layer>
  Layer* keep(std::unique_ptr<Layer> layer) {
    Layer* const l = layer.get();
    layers_.push_back(std::move(layer));
    return l;
  }
  mortise_str keep(std::string text) { return str(texts_.emplace_back(std::move(text))); }

 private:
  std::vector<std::shared_ptr<void>> layers_;
  std::deque<std::string> texts_;
};

// What backward wants to see again. An absent tensor stays absent.
class Saves {
 public:
  Saves(mortise_call* call, mortise_saved* to, uint32_t* n) : call_(call), to_(to), n_(n) {}
  void input(uint32_t index) { put(MORTISE_SAVE_INPUT, index, nullptr); }
  void output(uint32_t index) { put(MORTISE_SAVE_OUTPUT, index, nullptr); }
  void own(Tensor t) { put(MORTISE_SAVE_OWN, 0, t.release()); }
  // Argument `index`, or what `cast` made of it.
  void input(uint32_t index, Tensor t) {
    const bool same = t.get() == Ref(call_->args[index]).handle;
    same ? input(index) : put(MORTISE_SAVE_CAST, index, t.release());
  }

 private:
  void put(uint32_t from, uint32_t index, mortise_tensor* t) {
    if (*n_ == MORTISE_MAX_SAVED) throw Error(MORTISE_E_INTERNAL, "an operator saves too many tensors");
    to_[(*n_)++] = {from, index, t};
  }
  mortise_call* call_;
  mortise_saved* to_;
  uint32_t* n_;
};

class Backward {
 public:
  explicit Backward(mortise_backward* b) : b_(b) {}
  Ref saved(uint32_t index) const { return b_->saved[index]; }
  uint32_t n_saved() const { return b_->n_saved; }
  Ref grad(uint32_t result) const { return result < b_->n_grad_out ? b_->grad_out[result] : nullptr; }
  bool wants(uint32_t argument) const { return b_->wanted >> argument & 1; }
  void give(uint32_t argument, Tensor t) { b_->grad_in[argument] = t.release(); }

 private:
  mortise_backward* b_;
};

namespace detail {
template <class Layer>
concept Pair = requires(const Layer& l, mortise_call* c, Backward& b) { l.backward(c, b); };
template <class Layer>
concept Chooses = requires(const mortise_place* p) { Layer::supports(p); };

template <class Layer, class Plugin>
struct OperatorOf {
  static mortise_status declare(void* self, mortise_builder* b, const mortise_layer_spec* s, void** data) noexcept {
    return guard([&] { *data = static_cast<Plugin*>(self)->keep(std::make_unique<Layer>(Builder(b), LayerSpec(s))); });
  }
  static mortise_status supports(void* self, const mortise_place* place, int* yes, mortise_str* why,
                                 mortise_str* fix) noexcept {
    return guard([&] {
      *yes = 1;
      if constexpr (Chooses<Layer>) {
        Refusal r = Layer::supports(place);
        if (r.why.empty()) return;
        *yes = 0;
        *why = static_cast<Plugin*>(self)->keep(std::move(r.why));
        *fix = static_cast<Plugin*>(self)->keep(std::move(r.fix));
      }
    });
  }
  static mortise_status forward(void*, mortise_call* call, mortise_saved* saved, uint32_t* n) noexcept {
    return guard([&] {
      const Layer& layer = *static_cast<const Layer*>(call->layer_data);
      if constexpr (Pair<Layer>) {
        Saves saves(call, saved, n);
        layer.forward(call, saves);
      } else {
        layer.forward(call);
      }
    });
  }
  static mortise_status backward(void*, mortise_call* call, mortise_backward* b) noexcept {
    return guard([&] {
      if constexpr (Pair<Layer>) {
        Backward gradients(b);
        static_cast<const Layer*>(call->layer_data)->backward(call, gradients);
      }
    });
  }
};
}  // namespace detail

// The C object of an operator point.
template <class Layer, class Plugin = Layers>
const mortise_operator* operator_of() {
  using O = detail::OperatorOf<Layer, Plugin>;
  static const mortise_operator object = {sizeof object, 0,          O::declare,
                                          O::supports,   O::forward, detail::Pair<Layer> ? O::backward : nullptr};
  return &object;
}

// ---- what pairs share ----

// The tensor in this dtype; itself if it has it already. MORTISE_NO_DTYPE: as it is.
inline Tensor cast(Ref t, uint32_t dtype) {
  return dtype == MORTISE_NO_DTYPE || Info(t).dtype == dtype ? Tensor::share(t) : ops::to(t, dtype);
}

inline bool trainable(const mortise_param* p) { return info_of(p).trainable != 0; }
// The buffer of a gradient, to be overwritten whole, if it may be and has this dtype; else empty: sum_gradient a
// temporary. [autograd]
inline Tensor gradient_buffer(mortise_param* p, uint32_t dtype) {
  Tensor t;
  check(api.grads->target(api.host, p, dtype, t.put(), nullptr));
  return t;
}
// The same where a kernel can also add to it: `add` says whether it must. Empty: another dtype, or frozen. [autograd]
struct GradientTarget {
  Tensor buffer;
  bool add = false;
};
inline GradientTarget gradient_target(mortise_param* p, uint32_t dtype) {
  GradientTarget target;
  int32_t add = 0;
  check(api.grads->target(api.host, p, dtype, target.buffer.put(), &add));
  target.add = add != 0;
  return target;
}
inline void sum_gradient(mortise_param* p, Ref contribution) { check(api.grads->sum(api.host, p, contribution)); }

// Where in the random stream this call stands; `draw` numbers several in one call.
inline mortise_philox random_site(const mortise_call* call, uint32_t draw = 0) {
  mortise_philox place;
  check(api.random->site(api.host, call, draw, &place));
  return place;
}

}  // namespace mortise
