// BERT to classify samples of one length, in a training loop of its own: a row of configs/bench/guides.toml. After
// Devlin et al. 2018 (arXiv:1810.04805), without types of tokens. Its sizes are in the manifest.
#include <torch/nn.h>

#include "mortise/runtime.hpp"

namespace nn = torch::nn;
constexpr double kDropout = 0.1;

struct Sizes {
  int64_t layers, heads, width, inner;
};

struct Layer : nn::Module {
  explicit Layer(const Sizes& s)
      : heads(s.heads), projections(register_module("projections", nn::Linear(s.width, 3 * s.width))),
        output(register_module("output", nn::Linear(s.width, s.width))),
        up(register_module("up", nn::Linear(s.width, s.inner))),
        down(register_module("down", nn::Linear(s.inner, s.width))),
        attention_norm(register_module("attention_norm", nn::LayerNorm(nn::LayerNormOptions({s.width})))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.width})))) {}

  at::Tensor forward(const at::Tensor& x) {
    const double dropout = is_training() ? kDropout : 0;
    const auto qkv = projections->forward(x).unflatten(-1, {3, heads, -1}).permute({2, 0, 3, 1, 4}).unbind();
    const at::Tensor attended = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, dropout);
    const at::Tensor mixed = output->forward(attended.transpose(1, 2).flatten(2));
    const at::Tensor between = attention_norm->forward(x + at::dropout(mixed, kDropout, is_training()));
    const at::Tensor made = down->forward(at::gelu(up->forward(between)));
    return norm->forward(between + at::dropout(made, kDropout, is_training()));
  }

  int64_t heads;
  nn::Linear projections, output, up, down;
  nn::LayerNorm attention_norm, norm;
};

struct Bert : nn::Module {
  Bert(const Sizes& s, int64_t vocabulary, int64_t length, int64_t classes)
      : words(register_module("words", nn::Embedding(vocabulary, s.width))),
        positions(register_module("positions", nn::Embedding(length, s.width))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({s.width})))),
        layers(register_module("layers", nn::ModuleList())),
        pooler(register_module("pooler", nn::Linear(s.width, s.width))),
        classifier(register_module("classifier", nn::Linear(s.width, classes))) {
    for (int64_t i = 0; i < s.layers; ++i) layers->push_back(Layer(s));
    const at::NoGradGuard no_grad;
    for (const auto& p : named_parameters())
      if (p.value().dim() == 2) p.value().normal_(0, 0.02);
  }

  at::Tensor logits(const at::Tensor& ids) {
    at::Tensor x = norm->forward(words->forward(ids) + positions->weight.slice(0, 0, ids.size(1)));
    x = at::dropout(x, kDropout, is_training());
    for (const auto& layer : *layers) x = layer->as<Layer>()->forward(x);
    const at::Tensor pooled = at::tanh(pooler->forward(x.select(1, 0)));
    return classifier->forward(at::dropout(pooled, kDropout, is_training()));
  }

  nn::Embedding words, positions;
  nn::LayerNorm norm;
  nn::ModuleList layers;
  nn::Linear pooler, classifier;
};

int main(int argc, char** argv) {
  auto run = mortise::Run::open("run.toml", argc, argv);
  const std::vector<int64_t> sizes = run.sizes();
  Bert model({sizes.at(0), sizes.at(1), sizes.at(2), sizes.at(3)}, run.fact("vocabulary").value(),
             run.fact("sequence_length").value(), run.fact("classes").value());
  run.adopt(model);
  const auto pass = [&](mortise::Micro& micro) {
    model.train(at::GradMode::is_enabled());
    micro.backward(at::cross_entropy_loss(model.logits(micro["input_ids"]), micro["labels"], {}, at::Reduction::Sum),
                   "samples");
  };
  run.evaluate_with(pass);
  for (auto& step : run) {
    for (auto& micro : step) pass(micro);
    step.update();
  }
  return run.finish();
}
