#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

TEST(FP32, SetsTheComputeDtypeOfForwardAndGoesOn) {
  FakeHost host;
  uint32_t seen = 99;
  FakeChain chain(host, [&](mortise_call& call) { return seen = call.compute_dtype, MORTISE_OK; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  ASSERT_EQ(chain.wrap(plugin, "forward", call), MORTISE_OK);
  EXPECT_EQ(seen, static_cast<uint32_t>(MORTISE_F32));
}

TEST(FP32, PassesOnAFailureOfForward) {
  FakeHost host;
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  EXPECT_EQ(chain.wrap(plugin, "forward", call), MORTISE_E_OPERATOR);
}

}  // namespace
