#include <gtest/gtest.h>
#include <sched.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

class CpuDevice : public ::testing::Test {
 protected:
  std::string describe() {
    EXPECT_EQ(device_.open(plugin_.self(), 0), MORTISE_OK);
    mortise_str about{};
    EXPECT_EQ(device_.describe(plugin_.self(), &about), MORTISE_OK);
    return std::string(view(about));
  }
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_device& device_ = plugin_.object<mortise_device>("device");
};

TEST_F(CpuDevice, IsTheHostsProcessor) { EXPECT_EQ(device_.kind, static_cast<uint32_t>(MORTISE_CPU)); }

TEST_F(CpuDevice, NamesItsThreadsAndTheProcessor) {
  const std::string about = describe();
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_TRUE(about.starts_with(std::to_string(CPU_COUNT(&set)) + " thread")) << about;
  EXPECT_GT(about.size(), about.find(", ") + 2) << about;
  EXPECT_EQ(about.find('('), std::string::npos) << about;
}

TEST_F(CpuDevice, CountsOnlyTheThreadsThatItMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_TRUE(describe().starts_with("1 thread, "));
  sched_setaffinity(0, sizeof before, &before);
}

TEST_F(CpuDevice, MeasuresMemoryThatIsInUse) {
  int64_t used = 0, peak = 0, total = 0;
  ASSERT_EQ(device_.memory(plugin_.self(), &used, &peak, &total), MORTISE_OK);
  EXPECT_GT(used, 0);
  EXPECT_GE(peak, used);
  EXPECT_GT(total, peak);
  const std::vector<char> block(64 << 20, 1);
  int64_t more = 0;
  ASSERT_EQ(device_.memory(plugin_.self(), &more, &peak, &total), MORTISE_OK);
  EXPECT_GT(more, used + (32 << 20)) << block.size();
}

TEST_F(CpuDevice, HasNoSecondDevice) {
  EXPECT_EQ(device_.open(plugin_.self(), 1), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.error(), "device.cpu has no device 1: the processor is one device, 0");
}
}  // namespace
