// model.llama: Llama's architecture (RMS norm, rotary positions, shared heads of keys and values, SwiGLU), with the
// names of its checkpoints on the hub.
//
// Shapes  B batch, T positions, W width, V vocabulary.
//
// A block takes and gives two streams, (branch, residual), as model.gpt's does: every residual addition is made
// together with the norm that follows it.
//
//   model.embed_tokens  –                → –,      x   x = table[ids]
//   model.layers.i      branch, residual → branch, x   (a, r) = input_layernorm(branch, residual)
//                                                      (m, x) = post_attention_layernorm(self_attn(a), r)
//                                                      branch = mlp(m)
//   head                branch, residual → loss, logits

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/transformer.hpp"

namespace mortise {
namespace {

class Llama {
 public:
  Llama()
      : layers_(config::integer("layers")), heads_(config::integer("heads")), kv_heads_(config::integer("kv_heads")),
        width_(config::integer("width")), inner_(config::integer("inner")), context_(config::integer("context")),
        eps_(config::number("eps")), theta_(config::number("theta")), dropout_(config::number("attention_dropout")),
        tied_(config::flag("tied")) {
    check_heads(heads_, width_);
    if (width_ / heads_ % 2 != 0)
      config::refuse("heads", "a head of width " + std::to_string(width_ / heads_) + " has no pairs to turn",
                     "heads of an even width");
    if (heads_ % kv_heads_ != 0)
      config::refuse("kv_heads",
                     std::to_string(kv_heads_) + " heads of keys and values do not divide " + std::to_string(heads_) +
                         " heads of queries",
                     "a divisor of " + std::to_string(heads_));
    for (const char* key : {"rope_factor", "rope_low", "rope_high", "rope_context"}) read_scaling(key);
    if (rope_ == "llama3" && config::number("rope_high") <= config::number("rope_low"))
      config::refuse("rope_high", "rope_high is not above rope_low", "4.0 and 1.0, as Llama 3.1");
  }

  void declare(mortise_builder* builder) {
    const Builder build(builder);
    const int64_t vocabulary = vocabulary_of(build);
    const auto width = static_cast<double>(width_);
    check_parameters(static_cast<double>(layers_) * width *
                             (3 * static_cast<double>(inner_) +
                              2 * width * (1 + static_cast<double>(kv_heads_) / static_cast<double>(heads_))) +
                         (tied_ ? 1 : 2) * static_cast<double>(vocabulary) * width,
                     layers_, width_);
    check_context(build, context_);
    mask_ = packed_mask(build);

    build.segment("model.embed_tokens");
    embedding_ = build.layer("embedding", "model.embed_tokens", {attr("vocab", vocabulary), attr("width", width_)});
    blocks_.clear();
    for (int64_t i = 0; i < layers_; ++i) {
      const std::string path = "model.layers." + std::to_string(i);
      build.segment(path, MORTISE_BLOCK);
      blocks_.push_back(declare_block(build, path, i == 0));
    }
    build.segment("head");
    norm_ = norm(build, "residual_norm", "model.norm");
    const auto own = {attr("vocab", vocabulary), attr("width", width_)};
    head_ = tied_ ? build.layer("head_loss", "lm_head",
                                {attr("vocab", vocabulary), attr("width", width_),
                                 attr("tie", param_named("model.embed_tokens.weight"))})
                  : build.layer("head_loss", "lm_head", own);
  }

  void segment(mortise_call* call, uint32_t index) const {
    if (index == 0) return embed(call);
    if (index <= blocks_.size())
      return run_block(call, blocks_[index - 1], index == 1, field(call->batch, "positions"),
                       field(call->batch, "segments"));
    head(call);
  }

 private:
  // An attribute of self_attention by the name of the key.
  void read_scaling(const char* key) {
    const mortise_value number = config::get(key);
    const bool wanted = rope_ == "llama3" || (rope_ == "linear" && key == std::string_view("rope_factor"));
    if (wanted && number.tag == MORTISE_NONE)
      config::refuse("rope_type", std::string(rope_) + " needs " + key, "as the config.json of the model has it");
    if (!wanted && number.tag != MORTISE_NONE)
      config::refuse(key, "frequencies of rope_type " + std::string(rope_.empty() ? "default" : rope_) + " have none",
                     "leave it out, or rope_type = \"llama3\"");
    if (wanted) scaling_.push_back({str(key), number});
  }

  StreamBlock declare_block(const Builder& build, const std::string& path, bool first) const {
    StreamBlock b{};
    b.norm_1 = norm(build, first ? "norm" : "residual_norm", path + ".input_layernorm");
    std::vector<mortise_attr> attention = {attr("q", "q_proj"),         attr("k", "k_proj"),   attr("v", "v_proj"),
                                           attr("out", "o_proj"),       attr("width", width_), attr("heads", heads_),
                                           attr("kv_heads", kv_heads_), attr("theta", theta_), attr("causal", true),
                                           attr("dropout", dropout_),   attr("mask", mask_),   attr("bias", false)};
    attention.insert(attention.end(), scaling_.begin(), scaling_.end());
    b.attention = build.layer("self_attention", path + ".self_attn", attention);
    b.norm_2 = norm(build, "residual_norm", path + ".post_attention_layernorm");
    b.mlp =
        build.layer("mlp", path + ".mlp",
                    {attr("gate", "gate_proj"), attr("up", "up_proj"), attr("down", "down_proj"), attr("width", width_),
                     attr("inner", inner_), attr("activation", "silu"), attr("bias", false)});
    return b;
  }
  mortise_layer* norm(const Builder& build, std::string_view slot, const std::string& path) const {
    return build.layer(slot, path, {attr("width", width_), attr("eps", eps_), attr("kind", "rms")});
  }

  void embed(mortise_call* call) const {
    auto [x_BTW] = call_layer<1>(embedding_, ids_of(call->batch, context_));
    give(call, 1, std::move(x_BTW));
  }

  void head(mortise_call* call) const {
    const auto [y_BTW, sum] = call_layer<2>(norm_, call->args[0], call->args[1]);
    auto [loss, logits_BTV] = call_layer<2>(head_, y_BTW, labels_of(call));
    give_loss(call, std::move(loss), "tokens");
    give(call, 1, std::move(logits_BTV));
  }

  int64_t layers_, heads_, kv_heads_, width_, inner_, context_;
  double eps_, theta_, dropout_;
  bool tied_;
  const std::string_view rope_ = config::text("rope_type");
  std::vector<mortise_attr> scaling_;  // of the rotary frequencies, if they are scaled
  std::string_view mask_ = "none";
  mortise_layer *embedding_ = nullptr, *norm_ = nullptr, *head_ = nullptr;
  std::vector<StreamBlock> blocks_;
};

const mortise_model kModel = {sizeof kModel, 0, thunk<&Llama::declare>, thunk<&Llama::segment>};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Llama, mortise::provide("model", &mortise::kModel))
