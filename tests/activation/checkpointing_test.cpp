// What decides about saved tensors changes no bit: training that is checkpointed or offloaded equals plain training,
// for a small GPT with tied weights, dropout and several micro-batches, and for blocks that have what a GPT has not.
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tanh.h>

#include "core/host/test_host.hpp"
#include "mortise/loop.h"

namespace mortise::testing {
namespace {

std::string plugin(const std::string& id) { return std::string(MORTISE_PLUGINS) + "/" + id + ".so"; }

// Where the model's term of the loss goes: nowhere, the test takes the result.
const mortise_loop_api kNoLoop = {
    .struct_size = sizeof(mortise_loop_api),
    .term = [](mortise_host*, mortise_str, mortise_tensor*, mortise_str,
               double) noexcept { return mortise_status{MORTISE_OK}; },
};

// ---- a GPT ----

struct Options {
  bool checkpointed = false, offloaded = false;
  std::vector<std::string> keep = {};
  double dropout = 0;
  int micros = 1;
  uint32_t compute_dtype = MORTISE_NO_DTYPE;
};

struct Outcome {
  std::vector<at::Tensor> losses;
  std::map<std::string, at::Tensor> grads;
  std::vector<std::string> ready;
  size_t attentions = 0, linears = 0;  // forwards
};

Outcome train_gpt(const Options& o) {
  constexpr int64_t kVocabulary = 31;
  TestHost host(7);
  host.get().register_table("mortise.loop/0", &kNoLoop);
  host.load(plugin("operators.aten"));
  host.load(plugin("attention.math"));
  host.load(plugin("model.gpt"), {{"layers", {int64_t{3}, {}}},
                                  {"heads", {int64_t{2}, {}}},
                                  {"width", {int64_t{16}, {}}},
                                  {"context", {int64_t{12}, {}}},
                                  {"dropout", {o.dropout, {}}}});
  if (o.offloaded) host.load(plugin("activation.offload"), {{"min_kib", {int64_t{1}, {}}}});
  if (o.checkpointed) host.load(plugin("activation.checkpointing"), {{"keep", texts(o.keep)}});
  host.facts()["vocabulary"] = kVocabulary;
  host.declare();
  mortise_batch batch;
  batch.fields = {{"input_ids", random_ints({2, 9}, kVocabulary, 1)}, {"labels", random_ints({2, 9}, kVocabulary, 2)}};
  host.pass.batch = &batch;
  host.pass.compute_dtype = o.compute_dtype;
  Outcome r;
  for (int step = 0; step < 2; ++step)
    host.step(o.micros, [&](Call& c) {
      const at::Tensor loss = c.model({}, 2)[0];
      r.losses.push_back(loss.detach());
      return loss;
    });
  for (const auto& [name, leaf] : host.leaves()) r.grads[name] = host.grad(name);
  for (const std::string& line : host.log)
    if (line.starts_with("ready ")) r.ready.push_back(line);
  r.attentions = host.count("forward attention ");
  r.linears = host.count("forward linear ");
  return r;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_TRUE(bitwise(a.losses[i], b.losses[i])) << "loss " << i;
  ASSERT_EQ(a.grads.size(), b.grads.size());
  for (const auto& [name, grad] : a.grads) {
    EXPECT_TRUE(grad.defined()) << name;
    EXPECT_TRUE(bitwise(grad, b.grads.at(name))) << name;
  }
  EXPECT_EQ(a.ready, b.ready);
}

TEST(Checkpointing, EqualsThePlainRunBitForBit) {
  const Outcome plain = train_gpt({}), checkpointed = train_gpt({.checkpointed = true});
  expect_equal(plain, checkpointed);
  EXPECT_EQ(checkpointed.attentions, 2 * plain.attentions);
}

TEST(Checkpointing, DropsTheSameElementsInBothPasses) {
  const Outcome without = train_gpt({}), plain = train_gpt({.dropout = 0.2}),
                checkpointed = train_gpt({.checkpointed = true, .dropout = 0.2});
  EXPECT_FALSE(bitwise(without.losses[0], plain.losses[0]));
  expect_equal(plain, checkpointed);
}

TEST(Checkpointing, AddsUpOverMicroBatches) {
  expect_equal(train_gpt({.dropout = 0.2, .micros = 3}),
               train_gpt({.checkpointed = true, .dropout = 0.2, .micros = 3}));
}

TEST(Checkpointing, ComputesInTheDtypeOfTheFirstPass) {
  expect_equal(train_gpt({.compute_dtype = MORTISE_BF16}),
               train_gpt({.checkpointed = true, .compute_dtype = MORTISE_BF16}));
}

TEST(Checkpointing, RunsKeptOperatorsOnce) {
  for (const double dropout : {0.0, 0.2}) {
    const Outcome plain = train_gpt({.dropout = dropout}),
                  kept = train_gpt({.checkpointed = true, .keep = {"attention"}, .dropout = dropout});
    expect_equal(plain, kept);
    EXPECT_EQ(kept.attentions, plain.attentions);
    EXPECT_GT(kept.linears, plain.linears);
  }
}

TEST(Checkpointing, RefusesToKeepWhatIsNoOperator) {
  const Thrown t = thrown([] { train_gpt({.checkpointed = true, .keep = {"atention"}}); });
  EXPECT_EQ(t.status, MORTISE_E_CONFIG);
  EXPECT_NE(t.text.find("atention"), std::string::npos) << t.text;
}

TEST(Offload, EqualsThePlainRunBitForBit) {
  for (const bool checkpointed : {false, true})
    for (const uint32_t dtype : {MORTISE_NO_DTYPE, MORTISE_BF16}) {
      const Options plain = {.checkpointed = checkpointed, .dropout = 0.2, .micros = 3, .compute_dtype = dtype};
      Options offloaded = plain;
      offloaded.offloaded = true;
      expect_equal(train_gpt(plain), train_gpt(offloaded));
    }
}

// ---- blocks by hand ----

// An embedding, frozen or not; two blocks that share one weight and hand integers on; a sum.
struct Shared {
  explicit Shared(bool checkpointed, bool frozen) {
    if (checkpointed) host.load(plugin("activation.checkpointing"));
    host.declare([&](Builder& b) {
      b.segment("embed", 0, [](Call& c) { c.give(0, at::embedding(c.use("embed.weight"), c.arg(0))); });
      mortise_param* e = b.param("embed.weight", {11, 4});
      e->info.trainable = !frozen;
      for (const char* path : {"h.0", "h.1"})
        b.segment(path, MORTISE_BLOCK, [path](Call& c) {
          const at::Tensor x = c.arg(0);
          c.give(0, at::tanh(at::linear(x, c.use("h.0.weight")))
                        .add(x.mul(c.use(std::string(path) + ".gain")))
                        .add(c.arg(1).unsqueeze(-1)));
          c.give(1, c.arg(1).add(1));
        });
      b.param("h.0.weight", {4, 4});
      b.param("h.1.weight", {4, 4}, {.tie = b.find("h.0.weight")});
      b.param("h.0.gain", {4}, {}, "vector");
      b.param("h.1.gain", {4}, {}, "vector");
    });
    host.step(2, [&](Call& c) {
      const at::Tensor ids = random_ints({3, 5}, 11, 4);
      at::Tensor x = c.segment(0, {ids})[0], n = ids;
      for (size_t i = 1; i <= 2; ++i) {
        const Tensors out = c.segment(i, {x, n}, 2);
        x = out[0], n = out[1];
      }
      return x.mul(x).sum();
    });
  }
  TestHost host{3};
};

TEST(Checkpointing, CarriesTiedWeightsAndIntegersThroughItsBlocks) {
  Shared plain(false, false), checkpointed(true, false);
  for (const char* name : {"embed.weight", "h.0.weight", "h.0.gain", "h.1.gain"})
    EXPECT_TRUE(bitwise(plain.host.grad(name), checkpointed.host.grad(name))) << name;
  EXPECT_EQ(checkpointed.host.count("ready h.0.weight"), 1u);
}

TEST(Checkpointing, TrainsItsParametersOverAFrozenInput) {
  Shared plain(false, true), checkpointed(true, true);
  EXPECT_FALSE(checkpointed.host.grad("embed.weight").defined());
  for (const char* name : {"h.0.weight", "h.0.gain", "h.1.gain"}) {
    EXPECT_TRUE(checkpointed.host.grad(name).defined()) << name;
    EXPECT_TRUE(bitwise(plain.host.grad(name), checkpointed.host.grad(name))) << name;
  }
}

}  // namespace
}  // namespace mortise::testing
