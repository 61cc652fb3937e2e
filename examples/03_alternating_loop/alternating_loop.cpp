// Two models that train against each other (Goodfellow et al. 2014, arXiv:1406.2661): one makes short pieces of text
// out of noise, one tells them from real ones. They take turns, a step each; who is frozen in a step is not updated.
#include <torch/nn.h>

#include "mortise/runtime.hpp"

namespace nn = torch::nn;
constexpr int64_t kNoise = 16, kWidth = 64;

struct Models : nn::Module {
  Models(int64_t length_of_a_piece, int64_t letters)
      : length(length_of_a_piece), alphabet(letters),
        generator(register_module("generator", nn::Sequential(nn::Linear(kNoise, kWidth), nn::ReLU(),
                                                              nn::Linear(kWidth, length * alphabet)))),
        discriminator(register_module("discriminator", nn::Sequential(nn::Linear(length * alphabet, kWidth),
                                                                      nn::LeakyReLU(), nn::Linear(kWidth, 1)))) {}

  at::Tensor real(const at::Tensor& ids) const { return at::one_hot(ids, alphabet).to(at::kFloat).flatten(1); }
  at::Tensor made(int64_t samples, at::Device device) {
    const at::Tensor noise = at::randn({samples, kNoise}, device);
    const at::Tensor letters = generator->forward(noise).view({samples, length, alphabet});
    return letters.softmax(-1).flatten(1);
  }
  // How far it is from saying `truth` of each sample, summed.
  at::Tensor mistaken(const at::Tensor& samples, double truth) {
    const at::Tensor says = discriminator->forward(samples).flatten();
    return at::binary_cross_entropy_with_logits(says, at::full_like(says, truth), {}, {}, at::Reduction::Sum);
  }

  int64_t length, alphabet;
  nn::Sequential generator, discriminator;
};

int main(int argc, char** argv) {
  auto run = mortise::Run::open("run.toml", argc, argv);
  Models models(run.fact("sequence_length").value(), run.fact("vocabulary").value());
  run.adopt(models);
  for (auto& step : run) {
    const bool generates = step.number() % 2 == 1;
    step.freeze(generates ? *models.discriminator : *models.generator);
    for (auto& micro : step) {
      const at::Tensor ids = micro["input_ids"], made = models.made(ids.size(0), ids.device());
      if (generates) {
        micro.backward({{"generator", models.mistaken(made, 1), "samples"}});
      } else {
        const at::Tensor real = models.real(ids);
        micro.backward({{"discriminator", models.mistaken(real, 1) + models.mistaken(made, 0), "samples"}});
      }
    }
    step.update();
  }
  return run.finish();
}
