// model.bert: BERT for classification of samples or for masked language modelling, with the names of its checkpoints on
// the hub.
//
// Shapes  B batch, T positions, W width, V vocabulary, C classes.
//
//   embeddings   –  → x            x = dropout(norm(word[ids] + type[types] + position[0 1 2 …]))
//   layer.i      x  → x            y = norm(x + dropout(attention(x)));  x = norm(y + dropout(mlp(y)))
//   head         x  → loss, logits
//                classification    logits [B, C] = classifier(dropout(tanh(pooler(x[:, 0]))))
//                masked_lm         logits [B, T, V] = norm(gelu(dense(x))) · wordᵀ + bias
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/transformer.hpp"

namespace mortise {
namespace {

struct Block {
  mortise_layer *attention, *norm_1, *mlp, *norm_2;
};

class Bert {
 public:
  Bert()
      : layers_(config::integer("layers")), heads_(config::integer("heads")), width_(config::integer("width")),
        inner_(config::integer("inner")), context_(config::integer("context")), types_(config::integer("types")),
        eps_(config::number("eps")), dropout_(config::number("dropout")),
        attention_dropout_(config::number("attention_dropout")), classifies_(config::text("task") == "classification") {
    check_heads(heads_, width_);
  }

  void declare(mortise_builder* builder) {
    const Builder build(builder);
    const int64_t vocabulary = vocabulary_of(build);
    check_parameters(
        static_cast<double>(layers_) * static_cast<double>(width_) *
                (4 * static_cast<double>(width_) + 2 * static_cast<double>(inner_)) +
            static_cast<double>(width_) * (static_cast<double>(vocabulary) + static_cast<double>(context_)),
        layers_, width_);
    check_context(build, context_);
    // Where samples are padded, nothing may attend to the padding; where they are packed, to another sample either.
    mask_ = packed_mask(build);
    masks_by_positions_ = !build.fact("field.attention_mask") && build.fact("field.positions");
    if (mask_ == "none" && (masks_by_positions_ || build.fact("field.attention_mask"))) mask_ = "keys";

    build.segment("bert.embeddings");
    embeddings_ = build.layer(
        "embedding_norm", "bert.embeddings",
        {attr("vocab", vocabulary), attr("positions", context_), attr("types", types_), attr("width", width_),
         attr("eps", eps_), attr("word", "word_embeddings"), attr("position", "position_embeddings"),
         attr("type", "token_type_embeddings"), attr("norm", "LayerNorm")});
    if (dropout_ > 0) drop_ = build.layer("dropout", "bert.embeddings.dropout", {attr("p", dropout_)});
    blocks_.clear();
    for (int64_t i = 0; i < layers_; ++i) {
      const std::string path = "bert.encoder.layer." + std::to_string(i);
      build.segment(path, MORTISE_BLOCK);
      blocks_.push_back(declare_block(build, path));
    }
    build.segment("head");
    classifies_ ? declare_classifier(build) : declare_masked_lm(build, vocabulary);
  }

  void segment(mortise_call* call, uint32_t index) const {
    if (index == 0) return embed(call);
    if (index <= blocks_.size()) return block(call, blocks_[index - 1]);
    classifies_ ? classify(call) : predict(call);
  }

 private:
  Block declare_block(const Builder& build, const std::string& path) const {
    Block b{};
    b.attention = build.layer(
        "self_attention", path + ".attention",
        {attr("q", "self.query"), attr("k", "self.key"), attr("v", "self.value"), attr("out", "output.dense"),
         attr("width", width_), attr("heads", heads_), attr("dropout", attention_dropout_), attr("mask", mask_)});
    b.norm_1 = residual_norm(build, path + ".attention.output.LayerNorm");
    b.mlp = build.layer("mlp", path + ".mlp",
                        {attr("name", path), attr("up", "intermediate.dense"), attr("down", "output.dense"),
                         attr("width", width_), attr("inner", inner_), attr("activation", "gelu")});
    b.norm_2 = residual_norm(build, path + ".output.LayerNorm");
    return b;
  }
  mortise_layer* residual_norm(const Builder& build, const std::string& path) const {
    return build.layer("residual_norm", path, {attr("width", width_), attr("eps", eps_), attr("dropout", dropout_)});
  }

  void declare_classifier(const Builder& build) {
    const int64_t classes = classes_of(build);
    pooler_ = build.layer("linear", "bert.pooler.dense",
                          {attr("in", width_), attr("out", width_), attr("activation", "tanh")});
    if (dropout_ > 0) head_drop_ = build.layer("dropout", "dropout", {attr("p", dropout_)});
    classifier_ = build.layer("linear", "classifier", {attr("in", width_), attr("out", classes)});
    loss_ = build.layer("loss", "loss", {});
  }
  void declare_masked_lm(const Builder& build, int64_t vocabulary) {
    // Attention sees both ways: a label that is the next token stands in the input, one position on.
    if (build.fact("field.labels") && !build.fact("labels_in_place"))
      config::refuse("task", "the labels of the data are not known to stand in the place of the words that they are",
                     "a plugin that masks words; or, for next tokens, [model.gpt]");
    const std::string path = "cls.predictions.transform";
    transform_ =
        build.layer("linear", path + ".dense", {attr("in", width_), attr("out", width_), attr("activation", "gelu")});
    transform_norm_ = build.layer("norm", path + ".LayerNorm", {attr("width", width_), attr("eps", eps_)});
    head_ = build.layer("head_loss", "cls.predictions",
                        {attr("vocab", vocabulary), attr("width", width_), attr("bias", true),
                         attr("tie", param_named("bert.embeddings.word_embeddings.weight"))});
  }

  void embed(mortise_call* call) const {
    const Tensor ids_BT = ids_of(call->batch, context_);
    Tensor types_BT = field(call->batch, "token_type_ids");
    if (!types_BT && types_ > 0) {
      types_BT = empty(MORTISE_I64, Info(ids_BT).shape());
      ops::fill_(types_BT, 0);
    }
    auto [x_BTW] = call_layer<1>(embeddings_, ids_BT, positions_of(call->batch, ids_BT), types_BT);
    if (drop_) x_BTW = std::move(call_layer<1>(drop_, x_BTW)[0]);
    give(call, 0, std::move(x_BTW));
  }

  void block(mortise_call* call, const Block& b) const {
    const Ref x_BTW = call->args[0];
    const auto [attended] = call_layer<1>(b.attention, x_BTW, none(), mask_of(call->batch));
    const auto [y_BTW, first_sum] = call_layer<2>(b.norm_1, attended, x_BTW);
    const auto [m_BTW] = call_layer<1>(b.mlp, y_BTW);
    auto [z_BTW, second_sum] = call_layer<2>(b.norm_2, m_BTW, y_BTW);
    give(call, 0, std::move(z_BTW));
  }
  Tensor mask_of(const mortise_batch* batch) const {
    if (mask_ == "segments") return needed_field(batch, "segments");
    if (mask_ == "keys" && masks_by_positions_) {  // which are 0 at the first token, and in padding
      Tensor mask_BT = ops::ne(needed_field(batch, "positions"), int64_t{0});
      ops::fill_(ops::select(mask_BT, 1, 0), 1);
      return mask_BT;
    }
    // The data's numbers (1: a token, 0: padding) as what attention takes for true and false.
    return mask_ == "keys" ? ops::ne(field(batch, "attention_mask"), int64_t{0}) : Tensor();
  }

  void classify(mortise_call* call) const {
    auto [pooled_BW] = call_layer<1>(pooler_, ops::select(call->args[0], 1, 0));
    if (head_drop_) pooled_BW = std::move(call_layer<1>(head_drop_, pooled_BW)[0]);
    auto [logits_BC] = call_layer<1>(classifier_, pooled_BW);
    if (const Tensor labels_B = labels_of(call))
      give_loss(call, std::move(call_layer<1>(loss_, logits_BC, labels_B)[0]), "samples");
    give(call, 1, std::move(logits_BC));
  }
  void predict(mortise_call* call) const {
    const auto [h_BTW] = call_layer<1>(transform_, call->args[0]);
    const auto [n_BTW] = call_layer<1>(transform_norm_, h_BTW);
    auto [loss, logits_BTV] = call_layer<2>(head_, n_BTW, labels_of(call));
    give_loss(call, std::move(loss), "tokens");
    give(call, 1, std::move(logits_BTV));
  }

  int64_t layers_, heads_, width_, inner_, context_, types_;
  double eps_, dropout_, attention_dropout_;
  bool classifies_;
  std::string_view mask_ = "none";
  bool masks_by_positions_ = false;
  mortise_layer *embeddings_ = nullptr, *drop_ = nullptr, *head_drop_ = nullptr, *pooler_ = nullptr,
                *classifier_ = nullptr, *loss_ = nullptr, *transform_ = nullptr, *transform_norm_ = nullptr,
                *head_ = nullptr;
  std::vector<Block> blocks_;
};

const mortise_model kModel = {sizeof kModel, 0, thunk<&Bert::declare>, thunk<&Bert::segment>};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Bert, mortise::provide("model", &mortise::kModel))
