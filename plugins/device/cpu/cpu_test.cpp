#include <gtest/gtest.h>
#include <sched.h>

#include "load.hpp"
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
  CpuDevice() { host_.unset("threads").set("wait", "auto"); }
  // Without what a host of 0.1 does not have.
  void become_older() {
    static mortise_parallel_api older = *api.parallel;
    older.struct_size = offsetof(mortise_parallel_api, threads);
    api.parallel = &older;
    host_.offer("mortise.parallel/0", &older);
  }
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_device& device_ = plugin_.object<mortise_device>("device");
};

TEST_F(CpuDevice, IsTheHostsProcessor) { EXPECT_EQ(device_.kind, static_cast<uint32_t>(MORTISE_CPU)); }

TEST_F(CpuDevice, NamesTheThreadsThatComputeAndTheProcessor) {
  host_.threads = 7;
  const std::string about = describe();
  EXPECT_TRUE(about.starts_with("7 threads, ")) << about;
  EXPECT_GT(about.size(), about.find(", ") + 2) << about;
  EXPECT_EQ(about.find('('), std::string::npos) << about;
}

TEST_F(CpuDevice, SetsTheThreadsThatTheManifestAsksFor) {
  host_.set("threads", 1);
  EXPECT_TRUE(describe().starts_with("1 thread, "));
  EXPECT_EQ(host_.threads, 1);
}

// What the machine does is no matter before the run is known to start. On one that does nothing else there is no note.
TEST_F(CpuDevice, NotesABusyMachineNoSoonerThanItIsAskedWhatItIs) {
  host_.threads = 1000;
  EXPECT_EQ(device_.open(plugin_.self(), 0), MORTISE_OK);
  EXPECT_TRUE(host_.log.empty());
  describe();
  describe();
  EXPECT_LE(host_.log.size(), 2u) << "once each time that it is opened";
}

TEST(Load, IsWhatRunsNowAndRanBefore) {
  EXPECT_EQ(others_running("7.20 4.19 2.42 9/312 4711"), 7);
  EXPECT_EQ(others_running("7.20 4.19 2.42 3/312 4711"), 2);  // a build that is over
  EXPECT_EQ(others_running("0.20 0.19 0.42 9/312 4711"), 0);  // a moment
  EXPECT_EQ(others_running("0.00 0.00 0.00 1/312 4711"), 0);
  EXPECT_EQ(others_running(""), 0);
}

TEST(Load, MakesFewerThreadsFasterOnlyWhereTheyWouldShareAProcessor) {
  EXPECT_EQ(threads_without_sharing(2, 2, 0), 2);
  EXPECT_EQ(threads_without_sharing(2, 2, 1), 1);
  EXPECT_EQ(threads_without_sharing(2, 2, 9), 1);
  EXPECT_EQ(threads_without_sharing(4, 16, 9), 4);
  EXPECT_EQ(threads_without_sharing(16, 16, 9), 7);
  EXPECT_EQ(threads_without_sharing(1, 2, 9), 1);
  EXPECT_EQ(threads_without_sharing(4, 2, 0), 4);  // who asks for more than there are gets them
}

TEST_F(CpuDevice, RefusesAnUnheardNumberOfThreadsUnderAnOlderHost) {
  become_older();
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  host_.set("threads", 3);
  EXPECT_EQ(plugin.object<mortise_device>("device").open(plugin.self(), 0), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.blamed.value().key, "threads");
}

TEST_F(CpuDevice, CountsOnlyTheProcessorsThatItMayUseUnderAnOlderHost) {
  become_older();
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  mortise_str about{};
  EXPECT_EQ(plugin.object<mortise_device>("device").open(plugin.self(), 0), MORTISE_OK);
  EXPECT_EQ(device_.describe(plugin.self(), &about), MORTISE_OK);
  EXPECT_TRUE(view(about).starts_with("1 thread, ")) << view(about);
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
