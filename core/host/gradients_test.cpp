// Gradients through pairs, uses outside of pairs, ties, checkpointed blocks and several micro-batches: bit for bit
// those of plain autograd, each parameter ready once and in the order of backward.
#include <ATen/ATen.h>

#include <algorithm>

#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

constexpr int kBlocks = 3, kWidth = 6, kVocabulary = 11;

enum class Checkpoint { kNone, kAll, kEverySecond, kTwice, kKeepingLinear };
enum class Frozen { kNothing, kABlock, kTheFront };
enum class Unused { kNothing, kFirst, kLast };  // `extra` is not used in that micro-batch; `ghost` never

struct Case {
  bool tied;
  Checkpoint checkpoint;
  int micros;
  Frozen frozen;
  Unused unused;
};

// The model, over whatever gives parameters and computes a linear layer: the host, or plain ATen.
struct Net {
  const Case& c;
  std::function<at::Tensor(const std::string&)> use;
  std::function<at::Tensor(int block, const at::Tensor&)> fc;
  std::function<at::Tensor(int block, const at::Tensor&)> call_block;

  static std::string name(int i, const char* what) { return "h." + std::to_string(i) + "." + what; }
  at::Tensor block(int i, const at::Tensor& x) const {
    at::Tensor gain = use(name(i, "gain"));  // used twice, by two uses
    const at::Tensor y = at::tanh(fc(i, x)) * gain;
    return x + y * use(c.tied ? "shared" : name(i, "own")) + use(name(i, "gain"));
  }
  at::Tensor loss(const at::Tensor& ids, int micro) const {
    at::Tensor x = at::embedding(use("embed.weight"), ids);
    for (int i = 0; i < kBlocks; ++i) x = call_block(i, x);
    at::Tensor y = at::mm(x, use(c.tied ? "embed.weight" : "head.weight").t()).pow(2).mean();
    const bool skip =
        (c.unused == Unused::kFirst && micro == 0) || (c.unused == Unused::kLast && micro == c.micros - 1);
    return skip ? y : y + (use("extra") * use("extra")).sum();
  }
};

class Gradients : public ::testing::TestWithParam<std::tuple<bool, Checkpoint, int, Frozen, Unused>> {
 public:
  static std::string name_of(const ::testing::TestParamInfo<ParamType>& info) {
    static const char* const checkpoints[] = {"Plain", "Checkpointed", "EverySecondCheckpointed", "CheckpointedTwice",
                                              "KeepingLinear"};
    static const char* const frozen[] = {"", "WithAFrozenBlock", "WithAFrozenFront"};
    static const char* const unused[] = {"", "SkippingTheFirst", "SkippingTheLast"};
    const auto [tied, checkpoint, micros, f, u] = info.param;
    return std::string(checkpoints[static_cast<int>(checkpoint)]) + (tied ? "Tied" : "") + std::to_string(micros) +
           "Micros" + frozen[static_cast<int>(f)] + unused[static_cast<int>(u)];
  }

 protected:
  void SetUp() override {
    std::tie(c_.tied, c_.checkpoint, c_.micros, c_.frozen, c_.unused) = GetParam();
    if (c_.checkpoint != Checkpoint::kNone) {
      std::map<std::string, Value> values;
      if (c_.checkpoint == Checkpoint::kKeepingLinear) values["keep"] = texts({"linear"});
      host_.provide("linear", linear_pair(kWidth, kWidth));
      host_.load(MORTISE_CHECKPOINTING, values, c_.checkpoint == Checkpoint::kEverySecond ? "h.[02]" : "*");
      if (c_.checkpoint == Checkpoint::kTwice) host_.load(MORTISE_CHECKPOINTING);
    } else {
      host_.provide("linear", linear_pair(kWidth, kWidth));
    }
    host_.declare([&](Builder& b) {
      b.segment("front");
      b.param("embed.weight", {kVocabulary, kWidth});
      b.param("head.weight", {kVocabulary, kWidth});
      for (const char* n : {"shared", "extra", "ghost"}) b.param(n, {kWidth}, {}, "vector");
      for (int i = 0; i < kBlocks; ++i) {
        b.segment("h." + std::to_string(i), MORTISE_BLOCK,
                  [this, i](Call& call) { call.give(0, net(call).block(i, call.arg(0))); });
        layers_.push_back(b.layer("linear", Net::name(i, "fc")));
        for (const char* n : {"gain", "own"}) b.param(Net::name(i, n), {kWidth}, {}, "vector");
      }
      if (c_.frozen == Frozen::kABlock)
        for (const char* n : {"fc.weight", "fc.bias", "gain"}) b.find(Net::name(1, n))->info.trainable = 0;
      if (c_.frozen == Frozen::kTheFront)
        for (const char* n : {"embed.weight", "h.0.fc.weight"}) b.find(n)->info.trainable = 0;
    });
  }

  Net net(Call& call) {
    return {c_, [&](const std::string& name) { return call.use(name); },
            [&](int i, const at::Tensor& x) { return call.layer(layers_[static_cast<size_t>(i)], {x})[0]; },
            [&](int i, const at::Tensor& x) { return call.segment(static_cast<size_t>(i) + 1, {x})[0]; }};
  }
  static at::Tensor ids(int step, int micro) {
    return random_ints({5}, kVocabulary, static_cast<uint64_t>(10 * step + micro));
  }

  // Gradients of plain autograd over all micro-batches of a step.
  std::map<std::string, at::Tensor> expected(int step) {
    auto p = host_.leaves();
    Net plain{c_,
              [&](const std::string& name) { return p.at(name); },
              [&](int i, const at::Tensor& x) {
                return at::linear(x, p.at(Net::name(i, "fc.weight")), p.at(Net::name(i, "fc.bias")));
              },
              {}};
    plain.call_block = [&](int i, const at::Tensor& x) { return plain.block(i, x); };
    for (int m = 0; m < c_.micros; ++m) plain.loss(ids(step, m), m).backward();
    return p;
  }

  Case c_{};
  TestHost host_;
  std::vector<mortise_layer*> layers_;
};

TEST_P(Gradients, AreThoseOfPlainAutogradAndEachIsReadyOnce) {
  for (int step = 0; step < 2; ++step) {
    host_.log.clear();
    host_.step(c_.micros, [&](Call& call) { return net(call).loss(ids(step, call.record.micro), call.record.micro); });
    const auto p = expected(step);
    for (auto& declared : host_.get().declaration().params) {
      EXPECT_TRUE(bitwise(host_.grad(declared.name), p.at(declared.name).grad()))
          << declared.name << " in step " << step;
      EXPECT_EQ(host_.count("ready " + declared.name), declared.info.trainable ? 1u : 0u) << declared.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Gradients,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(Checkpoint::kNone, Checkpoint::kAll,
                                                              Checkpoint::kEverySecond, Checkpoint::kTwice,
                                                              Checkpoint::kKeepingLinear),
                                            ::testing::Values(1, 2, 3),
                                            ::testing::Values(Frozen::kNothing, Frozen::kABlock, Frozen::kTheFront),
                                            ::testing::Values(Unused::kNothing, Unused::kFirst, Unused::kLast)),
                         Gradients::name_of);

// A stack of blocks with one pair and one plain use each.
struct Stack {
  explicit Stack(int blocks, int64_t width, bool checkpointed = false, std::map<std::string, Value> values = {})
      : n(blocks) {
    host.provide("linear", linear_pair(width, width));
    if (checkpointed) host.load(MORTISE_CHECKPOINTING, std::move(values));
    host.declare([&](Builder& b) {
      for (int i = 0; i < n; ++i) {
        const std::string path = "h." + std::to_string(i);
        b.segment(path, MORTISE_BLOCK, [this, i, path](Call& c) {
          const at::Tensor y = c.layer(layers[static_cast<size_t>(i)], {c.arg(0)})[0];
          c.give(0, at::mm(y, c.use(path + ".plain")));
        });
        layers.push_back(b.layer("linear", path + ".fc"));
        b.param(path + ".plain", {width, width});
      }
    });
  }
  int n;
  TestHost host;
  std::vector<mortise_layer*> layers;
};

TEST(Ready, ComesInTheOrderOfBackwardBetweenTheBlocks) {
  for (const bool checkpointed : {false, true}) {
    Stack stack(3, 4, checkpointed);
    stack.host.step(1, [&](Call& c) { return c.model({random({2, 4}, 1)})[0].sum(); });
    std::vector<std::string> seen;
    for (const auto& line : stack.host.log)
      if (!line.starts_with("forward")) seen.push_back(line);
    std::vector<std::string> expected;
    for (const std::string h : {"h.2", "h.1", "h.0"})
      for (const std::string& line : {"ready " + h + ".plain", "backward linear " + h + ".fc",
                                      "ready " + h + ".fc.weight", "ready " + h + ".fc.bias"})
        expected.push_back(line);
    EXPECT_EQ(seen, expected) << (checkpointed ? "checkpointed" : "plain");
  }
}

// A pair may take a parameter's value as an argument, write its gradient itself and give none to autograd. The use has
// arrived all the same.
TEST(Ready, ComesAlsoWhenTheGradientOfAUseIsUndefined) {
  TestHost host;
  Operator scale;
  scale.forward = [](Forward& f) {
    f.give(0, f.arg(0) * f.arg(1));
    f.save_input(0);
  };
  scale.backward = [](Backward& b) {
    b.sum("w", (b.grad() * b.saved(0)).sum(0));
    b.give_grad(0, b.grad().clone());
  };
  host.provide("scale", scale);
  mortise_layer* layer = nullptr;
  host.declare([&](Builder& b) {
    b.segment("s");
    layer = b.layer("scale", "s.scale");
    b.param("first", {4}, {}, "vector");
    b.param("w", {4}, {}, "vector");
  });
  host.step(1, [&](Call& c) { return c.layer(layer, {random({3, 4}, 1) + c.use("first"), c.use("w")})[0].sum(); });
  EXPECT_EQ(host.log,
            (std::vector<std::string>{"forward scale s.scale", "backward scale s.scale", "ready w", "ready first"}));
}

TEST(Ready, OfAGraphThatIsRetainedSumsTheSameAgain) {
  TestHost host;
  host.declare([](Builder& b) {
    b.segment("s");
    b.param("w", {4, 4});
  });
  host.begin_step();
  host.begin_micro(0, true);
  at::Tensor loss = host.forward(
      [&](Call& c) { return at::mm(at::mm(at::tanh(c.use("w")), c.use("w")), at::exp(c.use("w"))).sum(); });
  host.backward(loss, MORTISE_RETAIN_GRAPH);
  const at::Tensor once = host.grad("w");
  host.backward(loss);
  EXPECT_TRUE(bitwise(host.grad("w"), once + once));
  EXPECT_EQ(host.count("ready w"), 1u);
}

TEST(Ready, OfAWeightOfWhichOneUseIsLeftOutIsInEveryMicroBatch) {
  TestHost host;
  host.declare([](Builder& b) {
    b.segment("s");
    b.param("w", {4, 4});
  });
  const auto steps = [&](int micros) {
    host.step(micros, [&](Call& c) {
      const at::Tensor left_out = at::tanh(c.use("w"));
      return at::sin(c.use("w")).sum();
    });
    return host.grad("w").clone();
  };
  const at::Tensor once = steps(1);
  EXPECT_TRUE(bitwise(steps(3), once + once + once));
}

TEST(Ready, OfAnEarlierMicroBatchIsASumOnly) {
  Stack stack(1, 4);
  stack.host.step(2, [&](Call& c) { return c.model({random({2, 4}, 1)})[0].sum(); });
  EXPECT_EQ(stack.host.count("summed "), 3u);
  EXPECT_EQ(stack.host.count("ready "), 3u);
}

// Gradients go to their buffers as they come: above what is alive anyway there is never more than one of them, and the
// activations' two.
TEST(Memory, HasNoGradientTwice) {
  constexpr int64_t kWide = 256, kGradient = kWide * kWide * 4;
  for (const bool checkpointed : {false, true}) {
    Stack stack(6, kWide, checkpointed);
    const at::Tensor x = random({4, kWide}, 1);
    stack.host.step(1, [&](Call& c) { return c.model({x})[0].sum(); });  // buffers come with the first step
    for (int micros : {1, 2}) {
      stack.host.begin_step();
      int64_t above = 0;
      for (int m = 0; m < micros; ++m) {
        stack.host.begin_micro(m, m == micros - 1);
        const at::Tensor loss = stack.host.forward([&](Call& c) { return c.model({x})[0].sum(); });
        const int64_t before = LiveBytes::now();
        LiveBytes::reset_peak();
        stack.host.backward(loss);
        above = std::max(above, LiveBytes::peak() - before);
      }
      EXPECT_LT(above, 2 * kGradient) << micros << " micro-batches, " << (checkpointed ? "checkpointed" : "plain");
      EXPECT_GE(above, kGradient);  // the plain use makes one, else this measures nothing
    }
  }
}

// As on a device: there is nothing to be kept for.
TEST(Memory, OfAGradientIsGivenBackBeforeTheNextStep) {
  TestHost host;
  host.declare([](Builder& b) {
    b.segment("s");
    b.param("w", {4, 4});
  });
  host.get().parameters().keep_gradients(false);
  const auto step = [&] { host.step(2, [&](Call& c) { return at::tanh(c.use("w")).sum(); }); };
  step();
  const at::Tensor first = host.grad("w");
  host.begin_step();
  EXPECT_FALSE(host.get().parameters().all().front().grad.defined());
  step();
  EXPECT_TRUE(bitwise(host.grad("w"), first));
}

// A fused unit that adds to the buffer itself, against `sum`: used once and twice a micro-batch, over three of them.
TEST(Targets, ThatAreAddedToHaveTheBitsOfSums) {
  for (const bool twice : {false, true}) {
    at::Tensor expected;
    for (const bool direct : {false, true}) {
      TestHost host;
      mortise_layer* layer = nullptr;
      int overwritten = 0, added = 0;
      host.provide("scale", {[](Builder& b, const std::string& path) { b.param(path + ".weight", {4}); },
                             [](Forward& f) { f.save_input(0), f.give(0, f.arg(0) * f.use("x.weight")); },
                             [&](Backward& b) {
                               const at::Tensor g = (b.grad() * b.saved(0)).sum(0);
                               if (b.wants(0)) b.give_grad(0, b.grad() * b.use("x.weight"));
                               if (!direct) return b.sum("x.weight", g);
                               int32_t add = -1, none = -1;
                               at::Tensor to = b.target("x.weight", MORTISE_F32, &add);
                               EXPECT_FALSE(b.target("x.weight", MORTISE_BF16, &none).defined()) << "of another type";
                               to = b.target("x.weight", MORTISE_F32, nullptr).defined() ? at::Tensor() : to;
                               ASSERT_TRUE(to.defined()) << "nothing is left to overwrite";
                               add ? to.add_(g) : to.copy_(g);
                               ++(add ? added : overwritten);
                             }});
      host.declare([&](Builder& b) {
        b.segment("s");
        layer = b.layer("scale", "x");
      });
      int micro = 0;
      host.step(3, [&](Call& c) {
        const at::Tensor x = random({3, 4}, static_cast<uint64_t>(++micro)).set_requires_grad(true);
        const at::Tensor y = c.layer(layer, {x})[0];
        return (twice ? c.layer(layer, {y.tanh()})[0] : y).sum();
      });
      if (!direct) {
        expected = host.grad("x.weight");
        continue;
      }
      EXPECT_TRUE(bitwise(host.grad("x.weight"), expected)) << (twice ? "twice" : "once");
      EXPECT_EQ(overwritten, twice ? 3 : 1) << "the buffer, and the sum of each later micro-batch";
      EXPECT_EQ(added, twice ? 3 : 2);
    }
  }
}

TEST(Fresh, IsNotAParameterWithoutAGradientThisStep) {
  Stack stack(2, 4);
  const at::Tensor x = random({2, 4}, 1);
  stack.host.step(1, [&](Call& c) { return c.model({x})[0].sum(); });
  EXPECT_TRUE(stack.host.grad("h.1.plain").defined());
  stack.host.log.clear();
  stack.host.step(1, [&](Call& c) { return c.segment(0, {x})[0].sum(); });
  for (const char* name : {"h.1.plain", "h.1.fc.weight", "h.1.fc.bias"}) {
    EXPECT_FALSE(stack.host.grad(name).defined()) << name;  // the buffer still holds the last step's
    EXPECT_EQ(stack.host.count(std::string("ready ") + name), 1u) << name;
  }
  auto p = stack.host.leaves();
  at::mm(at::linear(x, p["h.0.fc.weight"], p["h.0.fc.bias"]), p["h.0.plain"]).sum().backward();
  EXPECT_TRUE(bitwise(stack.host.grad("h.0.fc.weight"), p["h.0.fc.weight"].grad()));
  const at::Tensor norms =
      at::stack({p["h.0.fc.weight"].grad().norm(), p["h.0.fc.bias"].grad().norm(), p["h.0.plain"].grad().norm()});
  EXPECT_NEAR(stack.host.get().parameters().norm().item().toDouble(), norms.norm().item().toDouble(), 1e-5);
}

// A norm in bf16 would have 8 bits; that of 300² numbers of about 300 is beyond fp16's 65,504. Of 4,096 squares,
// summed in fp32, each of the sums is off by some 2^-24: sqrt(4096 / 3) of them are 1.1e-6, and the root halves that.
TEST(Norm, OfGradientsInHalfPrecisionIsThatOfTheSameNumbersInFP32) {
  for (const auto& [dtype, scale] : {std::pair{at::kBFloat16, 1.0}, std::pair{at::kHalf, 300.0}}) {
    TestHost host;
    host.declare([&, type = dtype](Builder& b) {
      b.segment("s");
      b.param("w", {300, 300});
      b.find("w")->info.value_dtype = b.find("w")->info.master_dtype = b.find("w")->info.grad_dtype =
          type == at::kHalf ? MORTISE_F16 : MORTISE_BF16;
    });
    const at::Tensor g = (random({300, 300}, 1) * scale).to(dtype);
    host.step(1, [&](Call& c) { return (c.use("w") * g).sum(); });
    ASSERT_EQ(host.grad("w").scalar_type(), dtype);
    const double expected = g.to(at::kDouble).norm().item().toDouble();
    EXPECT_NEAR(host.get().parameters().norm().item().toDouble(), expected, 1e-6 * expected);
  }
}

TEST(Fresh, SurvivesAFailedStep) {
  Stack stack(2, 4);
  const at::Tensor x = random({2, 4}, 1);
  const auto good = [&](Call& c) { return c.model({x})[0].sum(); };
  stack.host.step(2, good);
  const at::Tensor before = stack.host.grad("h.0.fc.weight");
  EXPECT_EQ(thrown([&] {
              stack.host.step(2, [&](Call& c) {
                if (c.record.micro == 0) return good(c);
                return c.model({random({2, 3}, 1)})[0].sum();
              });
            }).status,
            MORTISE_E_OPERATOR);
  stack.host.step(2, good);
  EXPECT_TRUE(bitwise(stack.host.grad("h.0.fc.weight"), before));
}

TEST(InPlace, WritingAParameterIsRefusedByName) {
  Stack stack(1, 4);
  const at::Tensor x = random({2, 4}, 1);
  const Thrown t = thrown([&] {
    stack.host.step(1, [&](Call& c) {
      at::Tensor w = c.use("h.0.plain");
      return at::mm(x, w.mul_(2)).sum();
    });
  });
  EXPECT_NE(t.text.find("h.0.plain"), std::string::npos) << t.text;
  stack.host.step(1, [&](Call& c) { return c.model({x})[0].sum(); });  // nothing of it is left
  auto p = stack.host.leaves();
  at::mm(at::linear(x, p["h.0.fc.weight"], p["h.0.fc.bias"]), p["h.0.plain"]).sum().backward();
  EXPECT_TRUE(bitwise(stack.host.grad("h.0.plain"), p["h.0.plain"].grad()));
}

TEST(InPlace, WritingAParameterInsideAPairIsRefusedToo) {
  TestHost host;
  Operator op = linear_pair(4, 4);
  op.forward = [](Forward& f) { f.give(0, at::mm(f.arg(0), f.use("s.fc.weight").mul_(2))); };
  host.provide("linear", op);
  mortise_layer* layer = nullptr;
  host.declare([&](Builder& b) {
    b.segment("s");
    layer = b.layer("linear", "s.fc");
  });
  const Thrown t = thrown([&] { host.step(1, [&](Call& c) { return c.layer(layer, {random({2, 4}, 1)})[0].sum(); }); });
  EXPECT_NE(t.text.find("s.fc.weight"), std::string::npos) << t.text;
}

// A compute copy apart from the master: the gradient arrives in bf16 and is kept in fp32; the first contribution is
// copied, not added to what is there.
TEST(ComputeCopies, SumBfloat16ContributionsInAFloat32Buffer) {
  TestHost host;
  host.declare([](Builder& b) {
    b.segment("s");
    b.param("w", {4, 4})->info.value_dtype = MORTISE_BF16;
  });
  const at::Tensor x = random({2, 4}, 1, at::kBFloat16);
  for (int step = 0; step < 2; ++step) host.step(2, [&](Call& c) { return at::mm(x, c.use("w")).sum(); });
  const at::Tensor once = at::mm(x.t(), at::ones({2, 4}, at::kBFloat16)).to(at::kFloat);
  EXPECT_TRUE(bitwise(host.grad("w"), once + once));
  EXPECT_EQ(host.get().parameters().state(*host.param("w")).value.scalar_type(), at::kBFloat16);
  host.value("w").fill_(3);
  host.get().parameters().publish(std::vector<bool>(1, false));
  EXPECT_TRUE(bitwise(host.get().parameters().state(*host.param("w")).value, at::full({4, 4}, 3, at::kBFloat16)));
}

}  // namespace
