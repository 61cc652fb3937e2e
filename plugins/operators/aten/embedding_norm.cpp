// embedding_norm: sum = rows of a table, of one of positions and, if there are types, of one of types; y = norm(sum). A
// composite of layers of its own.
#include "common.hpp"

namespace mortise::aten {
namespace {

class EmbeddingNorm {
 public:
  EmbeddingNorm(const Builder& build, const LayerSpec& spec) {
    const int64_t width = spec.integer("width");
    const auto table = [&](std::string_view key, std::string_view otherwise, int64_t rows) {
      const std::string part = "." + std::string(spec.text(key, otherwise));
      return build.layer("embedding", spec.path() + part,
                         {attr("name", spec.name() + part), attr("vocab", rows), attr("width", width),
                          attr("init", spec.number("init", 0.02))});
    };
    word_ = table("word", "word", spec.integer("vocab"));
    position_ = table("position", "position", spec.integer("positions"));
    if (const int64_t types = spec.integer("types", 0); types > 0) type_ = table("type", "type", types);
    const std::string norm = "." + std::string(spec.text("norm", "norm"));
    norm_ = build.layer("norm", spec.path() + norm,
                        {attr("name", spec.name() + norm), attr("width", width), attr("eps", spec.number("eps", 1e-5)),
                         attr("kind", spec.text("kind", "layer"))});
  }

  void forward(mortise_call* call) const {
    const mortise_value ids = call->args[0], positions = argument(call, 1), types = argument(call, 2);
    auto [sum] = call_layer<1>(word_, ids);
    if (type_) sum = ops::add(sum, call_layer<1>(type_, types)[0]);
    sum = ops::add(sum, call_layer<1>(position_, positions)[0]);
    auto [y] = call_layer<1>(norm_, sum);
    give(call, 0, std::move(y));
    give(call, 1, std::move(sum));
  }

 private:
  mortise_layer *word_, *position_, *type_ = nullptr, *norm_;
};

}  // namespace

const mortise_operator* embedding_norm() { return operator_of<EmbeddingNorm>(); }

}  // namespace mortise::aten
