#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

// What follows from it is the core's: core/loop/step_test.cpp, tests/e2e/offload_test.py.
TEST(OffloadOptimizer, HasEveryParameterUpdatedOnTheHostAndTouchesNoOtherField) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  for (const char* role : {"matrix", "vector", "norm", "embedding", "buffer"}) {
    mortise_param* p = host.add_param(role, role, {4, 4});
    const mortise_param_info before = mortise::info_of(p);
    mortise_event event{};
    event.param = p;
    ASSERT_EQ(plugin.notify("params.declared", event), MORTISE_OK) << host.error();
    const mortise_param_info& after = mortise::info_of(p);
    EXPECT_EQ(before.update_on_host, 0);
    EXPECT_EQ(after.update_on_host, 1);
    EXPECT_EQ(after.trainable, before.trainable);
    EXPECT_EQ(after.master_dtype, before.master_dtype);
  }
}

}  // namespace
