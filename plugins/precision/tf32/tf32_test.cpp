#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

TEST(TF32, IsSwitchedOnBeforeTheFirstForwardAndOnce) {
  FakeHost host;
  int at_call = -1;
  FakeChain chain(host, [&](mortise_call&) { return at_call = host.fast_products, MORTISE_OK; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (int i = 0; i < 2; ++i) {
    FakeCall call({}, 2);
    ASSERT_EQ(chain.wrap(plugin, "forward", call), MORTISE_OK) << host.error();
    EXPECT_EQ(at_call, 1);
  }
  EXPECT_EQ(host.fast_products_set, 1);
}
