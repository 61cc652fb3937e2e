// model.gpt: GPT-2's architecture, with the names of its checkpoint on the hub.
//
// Shapes  B batch, T positions, W width, V vocabulary.
//
// A block takes and gives two streams, (branch, residual): what the last part of the block before computed and what it
// is to be added to. So every residual addition is made together with the norm that follows it, across the border of
// blocks too:
//
//   embed    –                → –,      x        x = dropout(wte[ids] + wpe[positions])
//   h.i      branch, residual → branch, x        (a, r) = ln_1(branch, residual)
//                                                (m, x) = ln_2(attn(a), r)
//                                                branch = mlp(m)
//   head     branch, residual → loss, logits     ln_f, then the tied embedding
#include <cmath>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/transformer.hpp"

namespace mortise {
namespace {

class Gpt {
 public:
  Gpt()
      : layers_(config::integer("layers")), heads_(config::integer("heads")), width_(config::integer("width")),
        context_(config::integer("context")), dropout_(config::number("dropout")) {
    check_heads(heads_, width_);
  }

  void declare(mortise_builder* builder) {
    const Builder build(builder);
    const int64_t vocabulary = vocabulary_of(build);
    const auto width = static_cast<double>(width_);
    check_parameters(static_cast<double>(layers_) * (12 * width + 13) * width +
                         (static_cast<double>(vocabulary) + static_cast<double>(context_) + 2) * width,
                     layers_, width_);
    check_context(build, context_);
    mask_ = packed_mask(build);

    build.segment("embed");
    wte_ = build.layer("embedding", "wte", {attr("vocab", vocabulary), attr("width", width_), attr("init", kInit)});
    wpe_ = build.layer("embedding", "wpe", {attr("vocab", context_), attr("width", width_), attr("init", kInit)});
    if (dropout_ > 0) drop_ = build.layer("dropout", "drop", {attr("p", dropout_)});
    blocks_.clear();
    for (int64_t i = 0; i < layers_; ++i) {
      const std::string path = "h." + std::to_string(i);
      build.segment(path, MORTISE_BLOCK);
      blocks_.push_back(declare_block(build, path, i == 0));
    }
    build.segment("head");
    ln_f_ = residual_norm(build, "ln_f");
    mortise_param* const tie = param_named("wte.weight");
    head_ = build.layer("head_loss", "lm_head", {attr("vocab", vocabulary), attr("width", width_), attr("tie", tie)});
  }

  void segment(mortise_call* call, uint32_t index) const {
    if (index == 0) return embed(call);
    if (index <= blocks_.size())
      return run_block(call, blocks_[index - 1], index == 1, nullptr, field(call->batch, "segments"));
    head(call);
  }

 private:
  static constexpr double kInit = 0.02;

  StreamBlock declare_block(const Builder& build, const std::string& path, bool first) const {
    // Each block adds to the stream twice; the sum keeps its deviation.
    const double residual_init = kInit / std::sqrt(2.0 * static_cast<double>(layers_));
    StreamBlock b{};
    b.norm_1 = first ? build.layer("norm", path + ".ln_1", {attr("width", width_), attr("eps", kEps)})
                     : residual_norm(build, path + ".ln_1");
    b.attention =
        build.layer("self_attention", path + ".attn",
                    {attr("qkv", "c_attn"), attr("out", "c_proj"), attr("width", width_), attr("heads", heads_),
                     attr("causal", true), attr("dropout", dropout_), attr("mask", mask_), attr("layout", "in_out"),
                     attr("init", kInit), attr("init_out", residual_init)});
    b.norm_2 = residual_norm(build, path + ".ln_2");
    b.mlp = build.layer("mlp", path + ".mlp",
                        {attr("up", "c_fc"), attr("down", "c_proj"), attr("width", width_), attr("inner", 4 * width_),
                         attr("activation", "gelu_tanh"), attr("layout", "in_out"), attr("init_up", kInit),
                         attr("init_down", residual_init)});
    return b;
  }
  mortise_layer* residual_norm(const Builder& build, const std::string& path) const {
    return build.layer("residual_norm", path, {attr("width", width_), attr("eps", kEps), attr("dropout", dropout_)});
  }
  static constexpr double kEps = 1e-5;

  void embed(mortise_call* call) const {
    const Tensor ids_BT = ids_of(call->batch, context_), positions = positions_of(call->batch, ids_BT);
    const auto [token_BTW] = call_layer<1>(wte_, ids_BT);
    const auto [position] = call_layer<1>(wpe_, positions);
    Tensor x_BTW = ops::add(token_BTW, position);
    if (drop_) x_BTW = std::move(call_layer<1>(drop_, x_BTW)[0]);
    give(call, 1, std::move(x_BTW));
  }

  void head(mortise_call* call) const {
    const auto [y_BTW, sum] = call_layer<2>(ln_f_, call->args[0], call->args[1]);
    const Tensor labels_BT = labels_of(call);
    auto [loss, logits_BTV] = call_layer<2>(head_, y_BTW, labels_BT);
    give_loss(call, std::move(loss), "tokens");
    give(call, 1, std::move(logits_BTV));
  }

  int64_t layers_, heads_, width_, context_;
  double dropout_;
  std::string_view mask_ = "none";  // "segments": several samples are packed into one
  mortise_layer *wte_ = nullptr, *wpe_ = nullptr, *drop_ = nullptr, *ln_f_ = nullptr, *head_ = nullptr;
  std::vector<StreamBlock> blocks_;
};

const mortise_model kModel = {sizeof kModel, 0, thunk<&Gpt::declare>, thunk<&Gpt::segment>};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Gpt, mortise::provide("model", &mortise::kModel))
