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
  void configure(int workers, int depth, bool pinned = true) {
    host.set("workers", workers).set("depth", depth).set("pinned", pinned);
  }

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

// On a device with queues of its own. `to_device` gives a batch of the same numbers in other tensors.
struct Copies : Prefetch {
  Copies() { host.has_queues = true; }
  ~Copies() override { plugin_.reset(); }  // its worker comes here

  mortise_status to_device(mortise_call& call) {
    const std::scoped_lock lock(mutex);
    const uintptr_t queue = FakeHost::queue_of_thread();
    mortise_batch* const from = call.args[0].v.b;
    const int64_t number = host.values<int64_t>(mortise::field(from, "n"))[0];
    copied[number].push_back(queue);
    changed.notify_all();
    if (queue != 0 && number == fails_ahead_at) return host.fail(&host, MORTISE_E_MEMORY, MORTISE_STR("full"));
    mortise::Batch there = mortise::Batch::create(from);
    const mortise::Tensor t = host.tensor<int64_t>({1}, {number});
    mortise::check(mortise::api.batch->set(mortise::api.host, there.get(), MORTISE_STR("n"), t.get()));
    call.results[0] = mortise::value(there.release());
    return MORTISE_OK;
  }
  // The number on the device of what was loaded as `index`; nothing after an error.
  std::optional<int64_t> step(int64_t index, bool is_changed = false, const char* split = "train",
                              uint32_t mode = MORTISE_TRAIN) {
    if (!plugin_) plugin_.emplace(host, MORTISE_PLUGIN_FILE);
    const std::string text = split;
    FakeCall call({mortise::value(std::string_view(text)), mortise::value(index)}, 1);
    call.mode = mode;
    if (chain.wrap(*plugin_, "load", call) != MORTISE_OK) return {};
    mortise_batch* const loaded = call.results[0].v.b;
    mortise::check(mortise::api.batch->set_count(mortise::api.host, loaded, MORTISE_STR("seen"), index));
    if (is_changed) {
      const mortise::Tensor other = host.tensor<int64_t>({1}, {index + 1000});
      mortise::check(mortise::api.batch->set(mortise::api.host, loaded, MORTISE_STR("n"), other.get()));
    }
    FakeCall placing({mortise::value(loaded)}, 1);
    placing.mode = mode;
    if ((status = placed.wrap(*plugin_, "batch", placing)) != MORTISE_OK) return {};
    mortise_batch* const there = placing.results[0].v.b;
    int64_t seen = 0;
    mortise::check(mortise::api.batch->count(mortise::api.host, there, MORTISE_STR("seen"), &seen));
    EXPECT_EQ(seen, index);  // a count that was added after it was copied
    return host.values<int64_t>(mortise::field(there, "n"))[0];
  }
  // On which a number was copied.
  std::vector<uintptr_t> queues_of(int64_t number) {
    const std::scoped_lock lock(mutex);
    return copied[number];
  }
  bool copied_ahead(int64_t number) {
    return soon([&] { return copied[number] == std::vector<uintptr_t>{1}; });
  }

  std::map<int64_t, std::vector<uintptr_t>> copied;
  int64_t fails_ahead_at = -1;
  FakeChain placed{host, [this](mortise_call& call) { return to_device(call); }};
};

TEST_F(Copies, AreMadeAheadOnAQueueOfTheirOwnAndTheStepsQueueWaitsForEach) {
  for (int64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(step(i), i);
    ASSERT_TRUE(soon([&] { return ahead.contains(i + 4); }));
    if (i >= 5) {
      EXPECT_EQ(queues_of(i).size(), 1u) << "copied ahead, and not again in its turn";
    }
  }
  EXPECT_GE(host.waited.size(), 15u);
  for (const auto& [who, whom] : host.waited) EXPECT_EQ(std::pair(who, whom), std::pair(uintptr_t{0}, uintptr_t{1}));
  EXPECT_EQ(host.recorded.size(), host.waited.size());
  for (const auto& [tensor, queue] : host.recorded) EXPECT_EQ(queue, 0u);
  plugin_.reset();
  EXPECT_TRUE(host.marks.empty());
  EXPECT_EQ(chain.kept + placed.kept, 0);
  EXPECT_EQ(host.live_batches(), 0u);
}

TEST_F(Copies, AreOneQueueForTrainingAndEvaluation) {
  for (int64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(step(i), i);
    ASSERT_EQ(step(i, false, "validation", MORTISE_EVAL), -i);
  }
  EXPECT_TRUE(copied_ahead(9));
  EXPECT_TRUE(copied_ahead(-9));
}

TEST_F(Copies, AreMadeAgainOfABatchThatWasChangedSince) {
  for (int64_t i = 0; i < 6; ++i) ASSERT_EQ(step(i), i);
  ASSERT_TRUE(copied_ahead(7));
  EXPECT_EQ(step(6), 6);
  EXPECT_EQ(step(7, true), 1007);
  EXPECT_EQ(step(8), 8);
}

TEST_F(Copies, ThatFailAheadAreMadeInTheirTurn) {
  fails_ahead_at = 7;
  for (int64_t i = 0; i < 12; ++i) {
    ASSERT_EQ(step(i), i) << host.error();
    ASSERT_TRUE(soon([&] { return ahead.contains(i + 4); }));
  }
  EXPECT_EQ(queues_of(7), (std::vector<uintptr_t>{1, 0}));
}

TEST_F(Copies, AreMadeInTheirTurnWhereNothingIsPinnedAndWhereThereIsOneQueue) {
  configure(1, 4, false);
  for (int64_t i = 0; i < 8; ++i) ASSERT_EQ(step(i), i);
  plugin_.reset();
  configure(1, 4);
  host.has_queues = false;
  for (int64_t i = 8; i < 16; ++i) ASSERT_EQ(step(i), i);
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(queues_of(i), std::vector<uintptr_t>{0});
  EXPECT_TRUE(host.waited.empty());
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
