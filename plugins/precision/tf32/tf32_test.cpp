#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

// What is computed after it, an evaluation that has it not, say, is in fp32 again.
TEST(TF32, IsOnWithinAStepOrAForwardAndOffAfterIt) {
  FakeHost host;
  int at_call = -1;
  Plugin* inside = nullptr;
  std::unique_ptr<FakeChain> forward;
  FakeChain chain(host, [&](mortise_call& call) {
    if (inside) {  // the forward of a micro-batch
      Plugin& plugin = *std::exchange(inside, nullptr);
      EXPECT_EQ(forward->wrap(plugin, "forward", call), MORTISE_OK);
    }
    return at_call = host.fast_products, MORTISE_OK;
  });
  forward = std::make_unique<FakeChain>(host, [](mortise_call&) { return mortise_status{MORTISE_OK}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const char* point : {"forward", "gradients"}) {
    FakeCall call({}, 2);
    inside = std::string(point) == "gradients" ? &plugin : nullptr;
    ASSERT_EQ(chain.wrap(plugin, point, call), MORTISE_OK) << host.error();
    EXPECT_EQ(at_call, 1) << point << ": backward is within the step, after the forward";
    EXPECT_EQ(host.fast_products, 0) << point;
  }
}

TEST(TF32, IsOffAfterAFailureToo) {
  FakeHost host;
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  EXPECT_EQ(chain.wrap(plugin, "forward", call), MORTISE_E_OPERATOR);
  EXPECT_EQ(host.fast_products, 0);
}
