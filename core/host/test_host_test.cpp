// The host for tests itself, as its header says it is used.
#include <ATen/ops/linear.h>

#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise::testing;

TEST(TestHost, ComparesAPairWithAtensAutograd) {
  TestHost host;
  host.provide("linear", linear_pair());
  mortise_layer* linear = nullptr;
  host.declare([&](Builder& b) {
    b.segment("h.0");
    linear = b.layer("linear", "h.0.fc", {{"in", 8}, {"out", 4}});
  });
  const at::Tensor x = random({2, 8}, 1);
  host.step(2, [&](Call& c) { return c.layer(linear, {x})[0].sum(); });

  auto p = host.leaves();
  for (int micro = 0; micro < 2; ++micro) at::linear(x, p["h.0.fc.weight"], p["h.0.fc.bias"]).sum().backward();
  EXPECT_TRUE(bitwise(host.grad("h.0.fc.weight"), p["h.0.fc.weight"].grad()));
  EXPECT_TRUE(bitwise(host.grad("h.0.fc.bias"), p["h.0.fc.bias"].grad()));
  EXPECT_EQ(host.log, (std::vector<std::string>{"forward linear h.0.fc", "backward linear h.0.fc",
                                                "summed h.0.fc.weight", "summed h.0.fc.bias", "forward linear h.0.fc",
                                                "backward linear h.0.fc", "ready h.0.fc.weight", "ready h.0.fc.bias"}));
}

}  // namespace
