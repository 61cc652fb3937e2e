// model.vit: a vision transformer that classifies images, with the names of its checkpoints on the hub.
//
// Shapes  B batch, C channels, S pixels a side, P pixels a side of a patch, N = (S / P)² patches, W width.
//
//   vit.embeddings       –                → –,      x   patches as rows [B, N, C·P·P] times a matrix, behind a token of
//                                                       its own; dropout(that + positions)
//   vit.encoder.layer.i  branch, residual → branch, x   as model.gpt's blocks
//   head                 branch, residual → loss, logits [B, classes] of the first token

#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/transformer.hpp"

namespace mortise {
namespace {

class Vit {
 public:
  Vit()
      : layers_(config::integer("layers")), heads_(config::integer("heads")), width_(config::integer("width")),
        inner_(config::integer("inner")), size_(config::integer("image_size")), patch_(config::integer("patch_size")),
        channels_(config::integer("channels")), eps_(config::number("eps")), dropout_(config::number("dropout")),
        attention_dropout_(config::number("attention_dropout")) {
    check_heads(heads_, width_);
    if (size_ % patch_ != 0)
      config::refuse(
          "patch_size",
          "patches of " + std::to_string(patch_) + " pixels do not divide a side of " + std::to_string(size_),
          "a divisor of " + std::to_string(size_));
  }

  void declare(mortise_builder* builder) {
    const Builder build(builder);
    const int64_t side = size_ / patch_, classes = classes_of(build);
    check_parameters(static_cast<double>(layers_) * static_cast<double>(width_) *
                             (4 * static_cast<double>(width_) + 2 * static_cast<double>(inner_)) +
                         static_cast<double>(width_) * static_cast<double>(side) * static_cast<double>(side),
                     layers_, width_);
    const std::string path = "vit.embeddings";
    build.segment(path);
    patches_ = build.param({path + ".patch_embeddings.projection.weight",
                            "matrix",
                            {"out", "channels", "height", "width"},
                            {width_, channels_, patch_, patch_},
                            "normal",
                            kInit});
    patches_bias_ =
        build.param({path + ".patch_embeddings.projection.bias", "vector", {"out"}, {width_}, "constant", 0});
    token_ = build.param({path + ".cls_token", "embedding", {"one", "one", "width"}, {1, 1, width_}, "normal", kInit});
    positions_ = build.param({path + ".position_embeddings",
                              "embedding",
                              {"one", "positions", "width"},
                              {1, side * side + 1, width_},
                              "normal",
                              kInit});
    if (dropout_ > 0) drop_ = build.layer("dropout", path + ".dropout", {attr("p", dropout_)});
    blocks_.clear();
    for (int64_t i = 0; i < layers_; ++i) {
      const std::string block = "vit.encoder.layer." + std::to_string(i);
      build.segment(block, MORTISE_BLOCK);
      blocks_.push_back(declare_block(build, block, i == 0));
    }
    build.segment("head");
    norm_ = norm(build, "vit.layernorm", false);
    classifier_ = build.layer("linear", "classifier", {attr("in", width_), attr("out", classes)});
    loss_ = build.layer("loss", "loss", {});
  }

  void segment(mortise_call* call, uint32_t index) const {
    if (index == 0) return embed(call);
    if (index <= blocks_.size()) return run_block(call, blocks_[index - 1], index == 1, nullptr, nullptr);
    head(call);
  }

 private:
  static constexpr double kInit = 0.02;

  StreamBlock declare_block(const Builder& build, const std::string& path, bool first) const {
    StreamBlock b{};
    b.norm_1 = norm(build, path + ".layernorm_before", first);
    b.attention = build.layer("self_attention", path + ".attention",
                              {attr("q", "attention.query"), attr("k", "attention.key"), attr("v", "attention.value"),
                               attr("out", "output.dense"), attr("width", width_), attr("heads", heads_),
                               attr("dropout", attention_dropout_)});
    b.norm_2 = norm(build, path + ".layernorm_after", false);
    b.mlp = build.layer("mlp", path + ".mlp",
                        {attr("name", path), attr("up", "intermediate.dense"), attr("down", "output.dense"),
                         attr("width", width_), attr("inner", inner_), attr("activation", "gelu")});
    return b;
  }
  mortise_layer* norm(const Builder& build, const std::string& path, bool first) const {
    if (first) return build.layer("norm", path, {attr("width", width_), attr("eps", eps_)});
    return build.layer("residual_norm", path, {attr("width", width_), attr("eps", eps_), attr("dropout", dropout_)});
  }

  void embed(mortise_call* call) const {
    const Tensor images_BCSS = needed_field(call->batch, "pixel_values");
    const Info like(images_BCSS);
    const int64_t B = like.size(0), side = size_ / patch_;
    if (like.rank != 4 || like.size(1) != channels_ || like.size(2) != size_ || like.size(3) != size_)
      throw Error(MORTISE_E_DATA, "the images are not [" + std::to_string(channels_) + ", " + std::to_string(size_) +
                                      ", " + std::to_string(size_) + "], as model.vit was configured");
    const uint32_t stored = info_of(patches_).value_dtype;
    const uint32_t dtype = call->compute_dtype == MORTISE_NO_DTYPE ? stored : call->compute_dtype;
    const Tensor cut =
        ops::permute(ops::reshape(images_BCSS, {B, channels_, side, patch_, side, patch_}), {0, 2, 4, 1, 3, 5});
    const Tensor rows = ops::reshape(cast(cut, dtype), {B * side * side, channels_ * patch_ * patch_});
    const Tensor matrix = ops::reshape(cast(use(patches_), dtype), {width_, -1});
    const Tensor of_patches =
        ops::reshape(ops::addmm(cast(use(patches_bias_), dtype), rows, ops::t(matrix)), {B, side * side, width_});
    const Tensor token = ops::expand(use(token_), {B, 1, width_});
    const Tensor patches = cast(of_patches, Info(token).dtype);
    Tensor x = ops::add(ops::cat({token.get(), patches.get()}, 1), use(positions_));
    if (drop_) x = std::move(call_layer<1>(drop_, x)[0]);
    give(call, 1, std::move(x));
  }

  void head(mortise_call* call) const {
    const auto [y, sum] = call_layer<2>(norm_, call->args[0], call->args[1]);
    auto [logits_BC] = call_layer<1>(classifier_, ops::select(y, 1, 0));
    if (const Tensor labels_B = labels_of(call))
      give_loss(call, std::move(call_layer<1>(loss_, logits_BC, labels_B)[0]), "samples");
    give(call, 1, std::move(logits_BC));
  }

  int64_t layers_, heads_, width_, inner_, size_, patch_, channels_;
  double eps_, dropout_, attention_dropout_;
  mortise_param *patches_ = nullptr, *patches_bias_ = nullptr, *token_ = nullptr, *positions_ = nullptr;
  mortise_layer *drop_ = nullptr, *norm_ = nullptr, *classifier_ = nullptr, *loss_ = nullptr;
  std::vector<StreamBlock> blocks_;
};

const mortise_model kModel = {sizeof kModel, 0, thunk<&Vit::declare>, thunk<&Vit::segment>};

}  // namespace
}  // namespace mortise

MORTISE_PLUGIN(mortise::Vit, mortise::provide("model", &mortise::kModel))
