// After a step a value is its master, cast: finish_slice sees to it, and FakeSlice finds out who does not.
#include "mortise/testing/fake_slice.hpp"

#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"

namespace {
using namespace mortise::testing;

// The plugin asked for the tables when it was made, and would call one that it does not have.
TEST(FakeBuild, IsMadeBeforeThePlugin) {
  FakeHost host;
  host.set("value", "finish");
  {
    Plugin plugin(host, FORGETFUL);
    EXPECT_THROW(FakeBuild late(host), std::logic_error);
  }
  FakeBuild build(host);
  Plugin plugin(host, FORGETFUL);
}

struct Values : testing::Test {
  mortise_status step(const char* what, uint32_t dtype) {
    host.set("value", what);
    Plugin plugin(host, FORGETFUL);
    FakeSlice slice(host, plugin, host.add_param("w", "matrix", {2}), std::vector<float>{1, 2},
                    std::vector<float>{0.25f, 0.5f}, dtype);
    const mortise_status s = update(host, plugin, {&slice});
    first = host.element(slice.slice.value, 0);
    copy = host.element(slice.slice.states[0], 1);
    return s;
  }
  FakeHost host;
  double first = 0, copy = 0;
};

TEST_F(Values, AreCastByFinishSliceInEveryDtype) {
  for (const uint32_t dtype : {MORTISE_BF16, MORTISE_F16, MORTISE_F64}) {
    EXPECT_EQ(step("finish", dtype), MORTISE_OK) << host.error();
    EXPECT_EQ(first, 0.75);
    EXPECT_EQ(copy, 2) << "the master as it was at first";
  }
}

TEST_F(Values, ThatAnOptimizerForgetsFailTheStep) {
  EXPECT_EQ(step("forget", MORTISE_BF16), MORTISE_E_PLUGIN);
  EXPECT_EQ(host.error(),
            "the value of w is 1.000000 at 0, its master cast is 0.750000: an optimizer with MORTISE_WRITES_VALUE "
            "writes or casts every value");
  EXPECT_EQ(step("wrong", MORTISE_BF16), MORTISE_E_PLUGIN);
  EXPECT_EQ(step("silent", MORTISE_BF16), MORTISE_E_PLUGIN);
  EXPECT_EQ(host.error(), "the value of w was changed without `written`");
}
}  // namespace
