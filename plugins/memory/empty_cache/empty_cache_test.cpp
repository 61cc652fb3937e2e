#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

struct EmptyCache : ::testing::Test {
  // After which of the steps up to `last` memory is given back; `first` is the first that this process takes.
  std::vector<int64_t> trimmed_after(int64_t every, int64_t first, int64_t last) {
    host.set("every", every);
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    std::vector<int64_t> steps;
    for (int64_t step = first; step <= last; ++step) {
      const int before = host.trimmed;
      host.clock.attempted = step;  // as it is when step.end is told
      EXPECT_EQ(plugin.notify("step.end"), MORTISE_OK) << host.error();
      if (host.trimmed > before) steps.push_back(step);
    }
    return steps;
  }
  FakeHost host;
};
using Steps = std::vector<int64_t>;

TEST_F(EmptyCache, GivesBackAfterEveryStep) {
  EXPECT_EQ(trimmed_after(1, 1, 3), (Steps{1, 2, 3}));
  EXPECT_EQ(host.trimmed, 3) << "once a step";
}

TEST_F(EmptyCache, GivesBackAfterEachOfSoManySteps) { EXPECT_EQ(trimmed_after(3, 1, 8), (Steps{3, 6})); }

TEST_F(EmptyCache, OfAResumedRunGivesBackAfterTheSameSteps) { EXPECT_EQ(trimmed_after(3, 5, 8), (Steps{6})); }

TEST_F(EmptyCache, IsToldOnlyWhenAStepHasEnded) {
  host.set("every", 1);
  const Plugin plugin(host, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(plugin.attachments().size(), 1u);
  EXPECT_EQ(mortise::view(plugin.attachments()[0].point), "step.end") << "never between micro-batches";
}

TEST_F(EmptyCache, PassesAFailureOfTheDeviceOn) {
  host.set("every", 1);
  static const mortise_device_api broken = {.struct_size = sizeof broken,
                                            .trim = [](mortise_host* h, int64_t*) noexcept {
                                              return h->fail(h, MORTISE_E_OPERATOR, MORTISE_STR("it is lost"));
                                            }};
  host.offer("mortise.device/0", &broken);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  host.clock.attempted = 1;
  EXPECT_EQ(plugin.notify("step.end"), MORTISE_E_OPERATOR);
  EXPECT_EQ(host.error(), "it is lost");
}

TEST_F(EmptyCache, NeedsAHostThatKnowsItsDevice) {
  host.set("every", 1);
  host.withhold("mortise.device/0");
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
}
}  // namespace
