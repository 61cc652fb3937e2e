#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <thread>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using namespace std::chrono_literals;

namespace {

// Data whose micro-batch i holds the number i; it notes what it was asked for.
struct Prefetch : testing::Test {
  Prefetch() { configure(1, 4); }
  ~Prefetch() override { plugin_.reset(); }
  void configure(int workers, int depth) { host.set("workers", workers).set("depth", depth); }

  mortise_status data(mortise_call& call) {
    const std::string split(mortise::view(call.args[0].v.s));
    const int64_t index = call.args[1].v.i;
    {
      const std::scoped_lock lock(mutex);
      asked.insert({split, index});
      if (std::this_thread::get_id() != loop) ahead.insert(index);
    }
    changed.notify_all();
    std::this_thread::sleep_for(pause);
    if (index == fails_at) return host.fail(&host, MORTISE_E_DATA, MORTISE_STR("sample 5 is broken"));
    mortise::Batch batch = mortise::Batch::create(nullptr);
    const mortise::Tensor t = host.tensor<int64_t>({1}, {split == "train" ? index : -index});
    mortise::check(mortise::api.batch->set(mortise::api.host, batch.get(), MORTISE_STR("n"), t.get()));
    call.results[0] = mortise::value(batch.release());
    return MORTISE_OK;
  }
  // The number in the batch that `load` gives; nothing after an error.
  std::optional<int64_t> load(int64_t index, const char* split = "train", uint32_t mode = MORTISE_TRAIN) {
    if (!plugin_) plugin_.emplace(host, MORTISE_PLUGIN_FILE);
    const std::string text = split;  // gone when the worker runs
    FakeCall call({mortise::value(std::string_view(text)), mortise::value(index)}, 1);
    call.mode = mode;
    if ((status = chain.wrap(*plugin_, "load", call)) != MORTISE_OK) return {};
    return host.values<int64_t>(mortise::field(call.results[0].v.b, "n"))[0];
  }
  bool soon(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 10s, holds);
  }

  FakeHost host;
  std::chrono::milliseconds pause{0};
  int64_t fails_at = -1;
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::pair<std::string, int64_t>> asked;
  std::set<int64_t> ahead;  // loaded by another thread than the caller's
  const std::thread::id loop = std::this_thread::get_id();
  FakeChain chain{host, [this](mortise_call& call) { return data(call); }};
  mortise_status status = MORTISE_OK;
  std::optional<Plugin> plugin_;
};

TEST_F(Prefetch, GivesTheSameBatchesInOrderForAnyNumberOfWorkers) {
  for (const int workers : {0, 1, 2, 7}) {
    plugin_.reset();
    configure(workers, 3);
    for (int64_t i = 0; i < 200; ++i) ASSERT_EQ(load(i), i) << workers << " workers";
  }
}

TEST_F(Prefetch, LoadsAheadWhileTheStepIsBusy) {
  configure(2, 4);
  EXPECT_EQ(load(10), 10);
  EXPECT_TRUE(soon([&] { return ahead == std::set<int64_t>{11, 12, 13, 14}; }));
  EXPECT_EQ(asked.count({"train", 15}), 0u);  // no further than depth
  EXPECT_EQ(load(11), 11);
  EXPECT_TRUE(soon([&] { return ahead.contains(15); }));
}

TEST_F(Prefetch, KeepsTheOrderWhenTheDataAreSlow) {
  configure(3, 4);
  pause = 2ms;
  for (int64_t i = 0; i < 50; ++i) ASSERT_EQ(load(i), i);
}

TEST_F(Prefetch, LoadsNothingTwiceWhenTheStepIsSlow) {
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(load(i), i);
    ASSERT_TRUE(soon([&] { return ahead.contains(i + 4); }));
  }
  EXPECT_EQ(ahead.size(), 13u);
  EXPECT_EQ(asked.size(), 14u);
}

TEST_F(Prefetch, TellsAnErrorAtItsIndexAndGoesOnAfterIt) {
  configure(2, 8);
  fails_at = 5;
  for (int64_t i = 0; i < 5; ++i) ASSERT_EQ(load(i), i);
  ASSERT_TRUE(soon([&] { return ahead.contains(8); }));
  EXPECT_EQ(load(5), std::nullopt);
  EXPECT_EQ(status, MORTISE_E_DATA);
  EXPECT_EQ(host.error(), "sample 5 is broken");
  for (int64_t i = 6; i < 12; ++i) ASSERT_EQ(load(i), i);
}

TEST_F(Prefetch, StartsAgainAfterAJump) {
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(load(i), i);
  ASSERT_TRUE(soon([&] { return ahead.contains(6); }));  // what must not be delivered is there
  EXPECT_EQ(load(100), 100);
  EXPECT_EQ(load(101), 101);
  EXPECT_EQ(load(7), 7);
  EXPECT_EQ(load(7), 7);
  EXPECT_EQ(load(8), 8);
}

TEST_F(Prefetch, KeepsOneLineForEachSplit) {
  configure(2, 2);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(load(i), i);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(load(i, "validation", MORTISE_EVAL), -i);
  EXPECT_EQ(chain.kept, 2);
  for (int64_t i = 5; i < 9; ++i) EXPECT_EQ(load(i), i);
}

TEST_F(Prefetch, LeavesNothingBehindWhenItEndsInTheMiddle) {
  configure(4, 16);
  pause = 1ms;
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(load(i), i);
  plugin_.reset();
  EXPECT_EQ(chain.kept, 0);
  EXPECT_EQ(host.live_batches(), 0u);
}

TEST_F(Prefetch, TouchesNoDataAfterTheEndOfTheRun) {
  configure(3, 8);
  EXPECT_EQ(load(0), 0);
  plugin_->notify("run.end");
  EXPECT_EQ(chain.kept, 0);
  const size_t before = asked.size();
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(asked.size(), before);
  EXPECT_EQ(load(4), 4);  // and can begin anew
}

TEST_F(Prefetch, WithoutWorkersIsNotThere) {
  configure(0, 4);
  EXPECT_EQ(load(0), 0);
  EXPECT_EQ(chain.kept, 0);
  EXPECT_TRUE(ahead.empty());
}

// Threads whose stacks do not fit the address space that is left.
class LargeStacks {
 public:
  explicit LargeStacks(size_t stack, size_t room) {
    getrlimit(RLIMIT_AS, &before_);
    pthread_getattr_default_np(&attributes_before_);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit limit = {pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + room, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~LargeStacks() {
    setrlimit(RLIMIT_AS, &before_);
    pthread_setattr_default_np(&attributes_before_);
    pthread_attr_destroy(&attributes_before_);
  }

 private:
  rlimit before_{};
  pthread_attr_t attributes_before_{};
};

TEST_F(Prefetch, LoadsWithTheThreadsThatTheMachineGives) {
  const LargeStacks large(size_t{1} << 30, size_t{3} << 30);
  configure(1000, 4);
  for (int64_t i = 0; i < 20; ++i) ASSERT_EQ(load(i), i) << host.error();
  ASSERT_EQ(host.log.size(), 1u);
  EXPECT_NE(host.log[0].text.find(" of 1000 cannot be started: "), std::string::npos) << host.log[0].text;
}

TEST_F(Prefetch, RefusesWhereNoThreadCanBeStarted) {
  const LargeStacks large(size_t{1} << 30, size_t{1} << 29);
  configure(2, 4);
  EXPECT_EQ(load(0), std::nullopt);
  EXPECT_EQ(status, MORTISE_E_MEMORY);
  EXPECT_NE(host.error().find("fix: [loader.prefetch] workers = 0"), std::string::npos) << host.error();
}

}  // namespace
