// LoRA: beside each linear that its `where` takes, a product of two thin matrices; only these learn.
//   y = activation(x Wᵀ + b + scale · (dropout(x) Aᵀ) Bᵀ)     A [rank, in], B [out, rank], scale = alpha / rank
// The linear inside is whoever's the next claim is. A starts as PEFT's, B at zero, so the first step sees the model as
// it was.
#include <algorithm>
#include <cmath>

#include "formats/glob.hpp"
#include "kernels/activation/activation.hpp"
#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

constexpr std::string_view kTag = "adapter";

class Lora {
 public:
  Lora(const Builder& build, const LayerSpec& spec)
      : scale_(config::number("alpha") / static_cast<double>(config::integer("rank"))),
        activation_(spec, {"none", "gelu", "gelu_tanh", "relu", "silu", "tanh"}) {
    const std::string name = spec.name();
    base_ = build.layer("linear", spec.path(), without_activation(spec));
    const int64_t rank = config::integer("rank"), in = spec.integer("in"), out = spec.integer("out");
    // torch's kaiming_uniform_ with a = sqrt(5): sqrt(6 / ((1 + 5) in)).
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    a_ = build.param({.name = name + ".lora_A.weight",
                      .role = "matrix",
                      .dims = {"rank", "in"},
                      .sizes = {rank, in},
                      .init = "uniform",
                      .scale = bound,
                      .tags = {kTag, "new"}});
    b_ = build.param({.name = name + ".lora_B.weight",
                      .role = "matrix",
                      .dims = {"out", "rank"},
                      .sizes = {out, rank},
                      .init = "constant",
                      .scale = 0,
                      .tags = {kTag, "new"}});
    build.merge(name + ".weight", b_, a_, scale_, spec.text("layout", "out_in") == "in_out");
    if (const double p = config::number("dropout"); p > 0)
      dropout_ = build.layer("dropout", spec.path() + ".lora_dropout", {attr("p", p)});
  }

  static Refusal supports(const mortise_place* place) {
    const Attrs attrs(place);
    const int64_t rank = config::integer("rank"), in = attrs.integer("in"), out = attrs.integer("out");
    const std::string most = std::to_string(std::min(in, out));
    if (rank <= std::min(in, out)) return {};
    return {"a rank of " + std::to_string(rank) + " is above what a matrix of " + std::to_string(out) + " x " +
                std::to_string(in) + " can have",
            "[adapter.lora] rank = " + most + ", or a `where` without this layer"};
  }

  void forward(mortise_call* call) const {
    const Ref x = call->args[0];
    const Tensor y = std::move(call_layer<1>(base_, x)[0]);
    const Info like(y);
    const Tensor dropped =
        dropout_ && call->mode == MORTISE_TRAIN ? std::move(call_layer<1>(dropout_, x)[0]) : Tensor::share(x);
    const Tensor rows = ops::reshape(cast(dropped, like.dtype), {-1, Info(x).size(-1)});
    const Tensor thin = ops::mm(rows, ops::t(cast(use(a_), like.dtype)));
    const Tensor delta = ops::mul(ops::mm(thin, ops::t(cast(use(b_), like.dtype))), scale_);
    give(call, 0, activation_(ops::add(y, ops::view(delta, like.shape()))));
  }

 private:
  // The sum comes before the activation, so the linear inside has none.
  static std::vector<mortise_attr> without_activation(const LayerSpec& spec) {
    const std::span<const mortise_attr> asked = spec.all();
    std::vector<mortise_attr> attrs(asked.begin(), asked.end());
    std::erase_if(attrs, [](const mortise_attr& a) { return view(a.key) == "activation"; });
    return attrs;
  }

  double scale_;
  kernels::Activation activation_;
  mortise_layer *base_ = nullptr, *dropout_ = nullptr;
  mortise_param *a_ = nullptr, *b_ = nullptr;
};

class Adapter : public Layers {
 public:
  // Everything is frozen but the adapters, what is new in the run, and what `also` names.
  void declared(const mortise_event* event) {
    const mortise_param_info& info = info_of(event->param);
    bool learns = false;
    for (uint32_t i = 0; i < info.n_tags; ++i) learns |= view(info.tags[i]) == kTag || view(info.tags[i]) == "new";
    for (const std::string_view glob : config::texts("also")) learns |= names(glob, info);
    if (!learns) check(api.params->set(api.host, event->param, MORTISE_STR("trainable"), value(false)));
  }

 private:
  static bool names(std::string_view glob, const mortise_param_info& info) {
    if (!glob.starts_with("tag:")) return glob_match(glob, view(info.name));
    for (uint32_t i = 0; i < info.n_tags; ++i)
      if (view(info.tags[i]) == glob.substr(4)) return true;
    return false;
  }
};
}  // namespace

MORTISE_PLUGIN(Adapter, mortise::provide("linear", mortise::operator_of<Lora, Adapter>()),
               mortise::listen<&Adapter::declared>("params.declared"))
