// Failures of a plugin, wherever they come from: one status, a text that names everybody on the way, and nothing left
// of it in the next step.
#include <ATen/ATen.h>

#include <thread>

#include "core/abi/error.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

enum Where : uint32_t { kForward = 1, kBackward = 2, kBefore = 3, kAfter = 4 };
enum How : uint32_t { kException = 1, kNumber = 2, kBare = 3, kOperator = 4, kSwallowed = 5 };
struct Expected {
  How how;
  mortise_status status;
  const char* text;
} const kWays[] = {{kException, MORTISE_E_PLUGIN, "a bad day\n"},
                   {kNumber, MORTISE_E_PLUGIN, "an exception of an unknown type\n"},
                   {kBare, MORTISE_E_DATA, "returned status 5 (MORTISE_E_DATA) and no text\n"},
                   {kOperator, MORTISE_E_OPERATOR, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)\n"}};

struct Net {
  explicit Net(bool checkpointed) {
    if (checkpointed) host.load(MORTISE_CHECKPOINTING);
    host.load(MORTISE_FAULTY);
    host.declare([&](Builder& b) {
      for (size_t i = 0; i < 2; ++i) {
        const std::string path = "h." + std::to_string(i);
        b.segment(path, MORTISE_BLOCK, [this, i, path](Call& c) {
          c.give(0, at::mm(c.layer(layers[i], {c.arg(0)})[0], c.use(path + ".plain")));
        });
        layers.push_back(b.layer("faulty", path + ".x", {{"width", 4}}));
        b.param(path + ".plain", {4, 4});
      }
    });
  }
  void step() {
    host.step(2, [&](Call& c) { return c.model({x})[0].sum(); });
  }
  at::Tensor x = random({3, 4}, 1);
  std::vector<mortise_layer*> layers;
  TestHost host;
};

class Failure : public ::testing::TestWithParam<std::tuple<bool, Where>> {
 public:
  static std::string name_of(const ::testing::TestParamInfo<ParamType>& info) {
    static const char* const where[] = {"", "InForward", "InBackward", "InAWrapperBefore", "InAWrapperAfter"};
    return std::string(std::get<0>(info.param) ? "Checkpointed" : "Plain") + where[std::get<1>(info.param)];
  }
};

TEST_P(Failure, NamesEveryPluginOnTheWayAndLeavesNothing) {
  const auto [checkpointed, where] = GetParam();
  Net net(checkpointed);
  net.step();
  const at::Tensor before = net.host.grad("h.0.x.weight");
  for (const auto& way : kWays)
    for (const bool other_threads : {false, true}) {
      net.host.pass.want = where << 3 | way.how;
      const int64_t live = LiveBytes::now();
      Thrown t;
      if (other_threads) std::thread([&] { t = thrown([&] { net.step(); }); }).join();
      else t = thrown([&] { net.step(); });
      EXPECT_EQ(t.status, way.status) << t.text;
      EXPECT_EQ(t.text.substr(0, std::string(way.text).size()), way.text) << t.text;
      // Backward begins with the last block.
      const std::string h = where == kBackward ? "h.1" : "h.0";
      std::string path;
      if (where == kForward) path = "in plugin test.faulty, faulty at h.0.x\n";
      if (where == kBackward) path = "in plugin test.faulty, backward of faulty at h.1.x";
      if (where == kForward) path += "in plugin test.model, segment at h.0\n";
      if (where != kBackward) path += "in plugin test.faulty, block at h.0";
      if (checkpointed && where == kBackward)
        path += "\nin plugin activation.checkpointing, backward of 'activation.checkpointing'";
      if (checkpointed && where != kBackward)
        path +=
            "\nin plugin activation.checkpointing, forward of 'activation.checkpointing'\nin plugin "
            "activation.checkpointing, block at h.0";
      EXPECT_EQ(t.text, way.text + path);
      EXPECT_EQ(LiveBytes::now(), live);
      net.host.pass.want = 0;
      net.step();
      EXPECT_TRUE(bitwise(net.host.grad("h.0.x.weight"), before));
    }
}

TEST_P(Failure, ThatWasDealtWithIsNotTheTextOfALaterOne) {
  const auto [checkpointed, where] = GetParam();
  Net net(checkpointed);
  net.host.pass.want = where << 3 | kSwallowed;
  net.step();  // is no failure at all
  net.host.pass.want = where << 3 | kBare;
  EXPECT_EQ(thrown([&] { net.step(); }).text.substr(0, 46), "returned status 5 (MORTISE_E_DATA) and no text");
}

// Nor within one step.
TEST(Failure, OfOneCallIsNotTheTextOfTheNext) {
  for (const auto& [swallowed, bare] :
       {std::pair{kBefore, kForward}, std::pair{kForward, kAfter}, std::pair{kForward, kBackward}}) {
    Net net(false);
    net.host.pass.want = (swallowed << 3 | kSwallowed) << 8 | (bare << 3 | kBare);
    EXPECT_TRUE(thrown([&] { net.step(); }).text.starts_with("returned status 5 (MORTISE_E_DATA) and no text"))
        << swallowed << bare;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Failure,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(kForward, kBackward, kBefore, kAfter)),
                         Failure::name_of);

TEST(Failure, InTheReplayAloneNamesTheNodeAndTheBlock) {
  Net net(true);
  TestHost& host = net.host;
  host.begin_step();
  host.begin_micro(0, true);
  const at::Tensor loss = host.forward([&](Call& c) { return c.model({net.x})[0].sum(); });
  host.value("h.1.plain").resize_({2, 2});  // the second pass does not fit any more
  const Thrown t = thrown([&] { host.backward(loss); });
  EXPECT_EQ(t.status, MORTISE_E_OPERATOR);
  EXPECT_NE(t.text.find("in plugin test.model, segment at h.1"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("in plugin activation.checkpointing, backward of 'activation.checkpointing'"),
            std::string::npos)
      << t.text;
}

// Nested deeper than LibTorch goes on one thread: the text crosses threads on its way out.
TEST(Failure, ComesOutOfManyNestedBackwards) {
  constexpr size_t kDeep = 70;
  TestHost host;
  host.load(MORTISE_CHECKPOINTING);
  host.load(MORTISE_FAULTY);
  mortise_layer* layer = nullptr;
  host.declare([&](Builder& b) {
    for (size_t i = 0; i < kDeep; ++i)
      b.segment("h." + std::to_string(i), MORTISE_BLOCK, [&, i](Call& c) {
        c.give(0, i + 1 < kDeep ? c.segment(i + 1, {at::tanh(c.arg(0))})[0] : c.layer(layer, {c.arg(0)})[0]);
      });
    layer = b.layer("faulty", "x", {{"width", 4}});
  });
  const at::Tensor x = random({3, 4}, 1).set_requires_grad(true);
  const auto step = [&] { host.step(1, [&](Call& c) { return c.segment(0, {x})[0].sum(); }); };
  step();
  const at::Tensor before = host.grad("x.weight");
  host.pass.want = kBackward << 3 | kException;
  const Thrown t = thrown(step);
  EXPECT_TRUE(t.text.starts_with(
      "a bad day\nin plugin test.faulty, backward of faulty at x\nin plugin activation.checkpointing, "))
      << t.text;
  size_t nodes = 0;
  for (size_t at = 0; (at = t.text.find("backward of 'activation.checkpointing'", at)) != t.text.npos; ++at) ++nodes;
  EXPECT_EQ(nodes, kDeep);
  host.pass.want = 0;
  step();
  EXPECT_TRUE(bitwise(host.grad("x.weight"), before));
}

// A gradient is there in a backward alone, and is never of whole numbers.
TEST(Failure, OfAGradientThatIsAskedForElsewhereOrIsOfWholeNumbers) {
  TestHost host;
  mortise_layer* layer = nullptr;
  bool whole = false;
  host.provide("scale", {[](Builder& b, const std::string& path) { b.param(path + ".weight", {4}); },
                         [](Forward& f) { f.save_input(0), f.give(0, f.arg(0) * f.use(f.path() + ".weight")); },
                         [&](Backward& b) {
                           const at::Tensor g = (b.grad() * b.saved(0)).sum(0);
                           b.sum(b.path() + ".weight", whole ? g.to(at::kLong) : g.to(at::kDouble));
                         }});
  host.declare([&](Builder& b) {
    b.segment("s");
    layer = b.layer("scale", "x");
  });
  const at::Tensor x = random({3, 4}, 1);
  const auto step = [&] { host.step(1, [&](Call& c) { return c.layer(layer, {x})[0].sum(); }); };
  step();
  whole = true;
  const Thrown t = thrown(step);
  EXPECT_EQ(t.status, MORTISE_E_ARGUMENT);
  EXPECT_TRUE(
      t.text.starts_with("test.operators gives a gradient of x.weight in Long; a gradient is of a float dtype\n"))
      << t.text;

  mortise_tensor* out = nullptr;
  clear_error();
  EXPECT_EQ(kGradsApi.target(&host.window("test.outside"), host.param("x.weight"), MORTISE_F32, &out, nullptr),
            MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "test.outside asks for the gradient of x.weight outside of a backward");
}

TEST(Call, SaysItsPointAndWhoProvidesIt) {
  TestHost host;
  std::string said;
  mortise_layer* layer = nullptr;
  host.provide("scale", {{}, [](Forward& f) { f.give(0, f.arg(0) * 2); }, [](Backward&) {}});
  host.wrap("scale", "test.watch", [&](Call& c, mortise_next* next) {
    mortise_str name{}, provider{};
    mortise_host* h = &c.host.window("test.watch");
    EXPECT_EQ(kCallApi.name(h, &c.record, &name), MORTISE_OK);
    EXPECT_EQ(kCallApi.provider(h, next, &provider), MORTISE_OK);
    said = std::string(view(name)) + " of " + std::string(view(provider));
    const uint32_t point = std::exchange(c.record.point, 999);
    EXPECT_EQ(kCallApi.name(h, &c.record, &name), MORTISE_E_ARGUMENT) << "no such point";
    c.record.point = point;
    EXPECT_EQ(kCallApi.provider(h, nullptr, &provider), MORTISE_E_ARGUMENT);
    EXPECT_EQ(kCallApi.next(h, next, &c.record), MORTISE_OK);
  });
  host.declare([&](Builder& b) {
    b.segment("s");
    layer = b.layer("scale", "x");
  });
  host.forward([&](Call& c) { return c.layer(layer, {random({2}, 1)})[0]; });
  EXPECT_EQ(said, "scale of test.operators");
}

TEST(Failure, OfMemoryIsAStatusOfItsOwn) {
  TestHost host;
  host.declare([](Builder& b) { b.segment("s"); });
  EXPECT_EQ(thrown([&] { host.forward([](Call&) { return at::empty({int64_t{1} << 50}); }); }).status,
            MORTISE_E_MEMORY);
}

}  // namespace
