// A language model of one LSTM, and its training loop. What the loop does not say is in run.toml.
#include <torch/nn.h>

#include "mortise/runtime.hpp"

struct Model : torch::nn::Module {
  Model(int64_t vocabulary, int64_t width)
      : embedding(register_module("embedding", torch::nn::Embedding(vocabulary, width))),
        lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(width, width).batch_first(true)))),
        head(register_module("head", torch::nn::Linear(width, vocabulary))) {}

  // The cross-entropy of every next token, summed.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels) {
    const at::Tensor states = std::get<0>(lstm->forward(embedding->forward(ids)));
    const at::Tensor logits = head->forward(states);
    return at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, at::Reduction::Sum, -100);
  }

  torch::nn::Embedding embedding;
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};

int main(int argc, char** argv) {
  auto run = mortise::Run::open("run.toml", argc, argv);
  Model model(run.fact("vocabulary").value(), 96);
  run.adopt(model);
  const auto pass = [&](mortise::Micro& micro) {
    micro.backward(model.loss(micro["input_ids"], micro["labels"]), "tokens");
  };
  run.evaluate_with(pass);
  for (auto& step : run) {
    for (auto& micro : step) pass(micro);
    step.update();
  }
  return run.finish();
}
