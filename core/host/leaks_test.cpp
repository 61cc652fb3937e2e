// Three hundred steps of each kind leave as many tensor bytes alive as one.
#include <ATen/ATen.h>

#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

constexpr int kSteps = 300;

struct Net {
  Net() {
    host.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}}, "h.1");
    host.load(MORTISE_FAULTY);
    host.provide("linear", linear_pair(4, 4));
    host.provide("dropout", dropout_pair());
    host.declare([&](Builder& b) {
      for (size_t i = 0; i < 2; ++i) {
        const std::string path = "h." + std::to_string(i);
        b.segment(path, MORTISE_BLOCK, [this, i, path](Call& c) {
          const at::Tensor y = c.layer(faulty[i], {c.layer(linear[i], {c.arg(0)})[0]})[0];
          c.give(0, c.layer(linear[i], {at::mm(c.layer(dropout[i], {y})[0], c.use(path + ".plain"))})[0]);
        });
        linear.push_back(b.layer("linear", path + ".fc"));
        faulty.push_back(b.layer("faulty", path + ".x", {{"width", 4}}));
        dropout.push_back(b.layer("dropout", path + ".drop"));
        b.param(path + ".plain", {4, 4});
      }
    });
    step();
  }
  void step() {
    host.step(2, [&](Call& c) { return c.model({x})[0].sum(); });
  }
  // After every step as many bytes as before the first.
  void expect_constant(const std::function<void()>& once) {
    const int64_t before = LiveBytes::now();
    for (int i = 0; i < kSteps; ++i) {
      once();
      host.log.clear();
      ASSERT_EQ(LiveBytes::now(), before) << "after step " << i;
    }
  }
  at::Tensor x = random({3, 4}, 1);
  std::vector<mortise_layer*> linear, faulty, dropout;
  TestHost host;
};

TEST(Leaks, AreNotInGoodSteps) {
  Net net;
  net.expect_constant([&] { net.step(); });
}

TEST(Leaks, AreNotInStepsWhoseBackwardFails) {
  Net net;
  net.host.pass.want = 2 << 3 | 1;  // fixtures/faulty.cpp: an exception in backward
  net.expect_constant([&] { EXPECT_EQ(thrown([&] { net.step(); }).status, MORTISE_E_PLUGIN); });
}

TEST(Leaks, AreNotInStepsWhoseForwardFails) {
  Net net;
  net.host.pass.want = 4 << 3 | 1;  // in the wrapper, after the block
  net.expect_constant([&] { EXPECT_EQ(thrown([&] { net.step(); }).status, MORTISE_E_PLUGIN); });
}

TEST(Leaks, AreNotInForwardAlone) {
  Net net;
  for (const uint32_t flags : {uint32_t{MORTISE_GRAD}, 0u}) {
    net.host.pass.flags = flags;
    net.expect_constant([&] {
      net.host.begin_step();
      net.host.begin_micro(0, true);
      net.host.forward([&](Call& c) { return c.model({net.x})[0].sum(); });
    });
  }
}

}  // namespace
