// Saves now and in the background, with a format and a run that are made up: what is on the disk is what the run was.
#include "core/store/saver.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace fs = std::filesystem;

namespace mortise {
namespace {

using Steps = std::vector<int64_t>;

// Writing waits for it.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false;
};

class Savers : public testing::Test {
 protected:
  void SetUp() override {
    run = fs::path(testing::TempDir()) / ("mortise_saver." + std::to_string(getpid()));
    fs::remove_all(run);
    fs::create_directories(run);
    options.root = (run / "checkpoints").string();
    options.format = {".bin", [this](const std::vector<StoredEntry>& entries, const Sink& sink) {
                        if (before_writing) before_writing();
                        for (const StoredEntry& e : entries) sink(e.data, e.bytes);
                      }};
  }
  void TearDown() override { fs::remove_all(run); }

  Snapshot capture() {
    ++captured;
    Snapshot s;
    StoredEntry e;
    e.name = "w";
    e.data = weights.data();
    e.bytes = weights.size();
    s.tensors["model"] = {e};
    s.texts["state.json"] = "{}";
    return s;
  }
  void save(Saver& saver, int64_t step) {
    saver.save(step, [this] { return capture(); });
  }
  std::string saved_weights(int64_t step) const {
    std::ifstream in(options.root + "/step-" + std::to_string(step) + "/model.bin", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Steps there() const {
    Steps steps;
    for (const Found& found : checkpoints_in(options.root)) steps.push_back(found.step);
    std::ranges::reverse(steps);
    return steps;
  }

  fs::path run;
  SaverOptions options;
  std::string weights = std::string(3'000'000, 'a');
  std::function<void()> before_writing;
  int captured = 0;
};

TEST_F(Savers, SayWhatCameOfASave) {
  Saver saver(options);
  EXPECT_TRUE(saver.can_save());
  EXPECT_EQ(saver.last_step(), -1);
  save(saver, 5);
  EXPECT_EQ(saver.last_step(), 5);
  const std::vector<Saved> outcomes = saver.outcomes(false);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].step, 5);
  EXPECT_EQ(outcomes[0].bytes, 3'000'002);
  EXPECT_EQ(outcomes[0].path, options.root + "/step-5");
  EXPECT_FALSE(outcomes[0].background);
  EXPECT_FALSE(outcomes[0].failure);
  EXPECT_TRUE(saver.outcomes(true).empty());
}

// For the copy alone, if the rest is written in the background; and for the save before that is not done yet.
TEST_F(Savers, SayHowLongTrainingWaited) {
  before_writing = [] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
  for (const bool background : {false, true}) {
    options.background = background;
    Saver saver(options);
    save(saver, background ? 7 : 5);
    save(saver, background ? 8 : 6);
    const std::vector<Saved> outcomes = saver.outcomes(true);
    ASSERT_EQ(outcomes.size(), 2u);
    for (const Saved& s : outcomes) EXPECT_GE(s.seconds, 0.2);
    EXPECT_GE(outcomes[1].held_s, background ? 0.1 : outcomes[1].seconds);
    if (background) {
      EXPECT_LT(outcomes[0].held_s, 0.15);
    } else {
      EXPECT_GE(outcomes[0].held_s, outcomes[0].seconds);
    }
  }
}

TEST_F(Savers, SaveNothingWithoutAFolder) {
  options.root = "";
  Saver saver(options);
  EXPECT_FALSE(saver.can_save());
  save(saver, 5);
  saver.confirm(5);
  EXPECT_EQ(captured, 0);
  EXPECT_TRUE(saver.outcomes(true).empty());
  EXPECT_EQ(saver.newest_confirmed(), -1);
}

TEST_F(Savers, SaveAStepOnce) {
  options.resumed = 4;
  Saver saver(options);
  EXPECT_EQ(saver.last_step(), 4);
  for (const int64_t step : {4, 5, 5}) save(saver, step);
  EXPECT_EQ(captured, 1);
  EXPECT_EQ(saver.outcomes(true).size(), 1u);
}

// Training changes the weights while the file is written.
TEST_F(Savers, CopyWhatTheySaveInTheBackground) {
  options.background = true;
  Gate gate;
  before_writing = [&] { gate.wait(); };
  Saver saver(options);
  save(saver, 5);
  EXPECT_TRUE(saver.outcomes(false).empty());
  EXPECT_EQ(saver.last_step(), -1);
  weights.assign(weights.size(), 'b');
  gate.open();
  const std::vector<Saved> outcomes = saver.outcomes(true);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_TRUE(outcomes[0].background);
  EXPECT_EQ(saver.last_step(), 5);
  EXPECT_EQ(saved_weights(5), std::string(weights.size(), 'a'));
}

// A limit on processes, or on memory: a thread's stack does not fit the address space that is left.
TEST_F(Savers, SaveAtOnceWhereNoThreadCanBeStarted) {
  options.background = true;
  Saver saver(options);
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  pthread_attr_t usual, large;
  pthread_getattr_default_np(&usual);
  pthread_attr_init(&large);
  pthread_attr_setstacksize(&large, size_t{1} << 34);
  pthread_setattr_default_np(&large);
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit = {pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{1} << 30), before.rlim_max};
  setrlimit(RLIMIT_AS, &limit);
  EXPECT_NO_THROW(save(saver, 5));
  setrlimit(RLIMIT_AS, &before);
  pthread_setattr_default_np(&usual);
  const std::vector<Saved> outcomes = saver.outcomes(true);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_FALSE(outcomes[0].background);
  EXPECT_FALSE(outcomes[0].failure);
  EXPECT_EQ(saved_weights(5), weights);
}

// The memory of the copy is used again only when the save before has ended.
TEST_F(Savers, WaitForTheSaveBefore) {
  options.background = true;
  options.retention.keep = 2;
  std::atomic<int> writing = 0, most = 0;
  before_writing = [&] {
    most = std::max<int>(most, ++writing);
    --writing;
  };
  Saver saver(options);
  for (int64_t step = 1; step <= 5; ++step) {
    weights.assign(weights.size(), static_cast<char>('a' + step));
    save(saver, step);
  }
  EXPECT_EQ(saver.outcomes(true).size(), 5u);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(there(), (Steps{4, 5}));
  for (const int64_t step : {4, 5})
    EXPECT_EQ(saved_weights(step), std::string(weights.size(), static_cast<char>('a' + step)));
}

TEST_F(Savers, EndBeforeTheyAreDestroyed) {
  options.background = true;
  {
    Saver saver(options);
    save(saver, 5);
  }
  EXPECT_EQ(there(), (Steps{5}));
}

TEST_F(Savers, ReportAFailureAndGoOn) {
  Saver saver(options);
  save(saver, 5);
  before_writing = [] { throw std::runtime_error("the format has no room for it"); };
  save(saver, 6);
  before_writing = nullptr;
  EXPECT_EQ(saver.last_step(), 5);
  saver.confirm(6);
  save(saver, 7);
  const std::vector<Saved> outcomes = saver.outcomes(true);
  ASSERT_EQ(outcomes.size(), 3u);
  ASSERT_TRUE(outcomes[1].failure);
  EXPECT_EQ(outcomes[1].failure->level, Level::kWarning);
  EXPECT_EQ(outcomes[1].failure->code, "checkpoint_not_saved");
  EXPECT_EQ(outcomes[1].failure->message, "step 6 is not saved: the format has no room for it");
  EXPECT_EQ(outcomes[1].failure->exit, kExitIo);
  EXPECT_TRUE(outcomes[1].failure->fixes.empty());
  EXPECT_EQ(saver.last_step(), 7);
  EXPECT_EQ(there(), (Steps{5, 7}));
}

TEST_F(Savers, SayWhatHelpsWhenTheDiskIsFull) {
  const auto full = [] { throw Failure(trouble(kExitIo, "no_space", "No space left on device")); };
  const std::vector<std::pair<int64_t, std::string>> fixes = {
      {3, "free space; [checkpoint] keep = 2 keeps one checkpoint less"}, {1, "free space"}};
  for (const auto& [keep, fix] : fixes) {
    options.retention.keep = keep;
    Saver saver(options);
    int64_t step = 5;
    for (const std::string& wanted : {std::string("free space"), std::string("free space"), fix}) {  // of 0, 1, 2
      before_writing = full;
      save(saver, 100);
      const std::vector<Saved> outcomes = saver.outcomes(true);
      ASSERT_TRUE(outcomes.at(0).failure);
      EXPECT_EQ(outcomes[0].failure->fixes, std::vector<std::string>{wanted});
      before_writing = [] {};
      save(saver, step++);
      saver.outcomes(true);
    }
  }
}

TEST_F(Savers, ThrowWhatTheCaptureThrows) {
  Saver saver(options);
  EXPECT_THROW(saver.save(5, []() -> Snapshot { throw Failure(trouble(kExitPlugin, "plugin_state", "not UTF-8")); }),
               Failure);
  save(saver, 5);
  EXPECT_EQ(saver.last_step(), 5);
}

TEST_F(Savers, KeepWhatIsSaid) {
  options.retention = {.keep = 2, .keep_every = 10};
  Saver saver(options);
  for (int64_t step = 2; step <= 24; step += 2) save(saver, step);
  EXPECT_EQ(there(), (Steps{10, 20, 22, 24}));
}

// The last one alone, as soon as the step after it shows that it is good.
TEST_F(Savers, KeepOneMoreUntilTheLastIsConfirmed) {
  for (const bool background : {false, true}) {
    options.background = background;
    fs::remove_all(options.root);
    Saver saver(options);
    for (const int64_t step : {3, 6, 9}) {
      saver.confirm(step - 1);
      save(saver, step);
    }
    EXPECT_EQ(saver.outcomes(true).size(), 3u);
    EXPECT_EQ(there(), (Steps{6, 9}));
    EXPECT_EQ(saver.newest_confirmed(), 6);
    saver.confirm(8);
    EXPECT_EQ(there(), (Steps{6, 9}));
    saver.confirm(9);
    EXPECT_EQ(there(), (Steps{9}));
    EXPECT_EQ(saver.newest_confirmed(), 9);
  }
}

// The step after may be done long before the save is.
TEST_F(Savers, AreConfirmedWhileTheyWrite) {
  options.background = true;
  Saver saver(options);
  save(saver, 3);
  saver.confirm(3);
  save(saver, 6);
  saver.outcomes(true);
  Gate gate;
  before_writing = [&] { gate.wait(); };
  save(saver, 9);
  saver.confirm(9);
  EXPECT_EQ(there(), (Steps{3, 6})) << "nothing goes while a save is under way";
  gate.open();
  saver.outcomes(true);
  EXPECT_EQ(there(), (Steps{9}));
}

TEST_F(Savers, KeepWhatTheyResumedFrom) {
  {
    Saver saver(options);
    save(saver, 3);
    saver.confirm(5);
    save(saver, 6);
  }
  options.resumed = 6;
  options.confirmed = 5;
  Saver saver(options);
  EXPECT_EQ(saver.newest_confirmed(), 3);
  for (const int64_t step : {9, 12}) save(saver, step);
  saver.confirm(12);
  EXPECT_EQ(there(), (Steps{6, 12}));
}

// Whose loss is NaN says nothing good of what was saved before.
TEST_F(Savers, KeepTheLastGoodOneHoweverManyBadOnesFollow) {
  {
    Saver saver(options);
    save(saver, 3);
    saver.confirm(3);
    for (const int64_t step : {6, 9}) save(saver, step);
    EXPECT_EQ(there(), (Steps{3, 9}));
    EXPECT_EQ(saver.confirmed(), 3);
  }
  options.resumed = 9;
  options.confirmed = 3;
  Saver saver(options);
  for (const int64_t step : {12, 15}) save(saver, step);
  EXPECT_EQ(there(), (Steps{3, 9, 15}));
  EXPECT_EQ(saver.newest_confirmed(), 3);
}

TEST_F(Savers, KeepTheBest) {
  options.best = {5.0, 3};
  options.resumed = 3;
  {
    Saver saver(SaverOptions{.root = options.root, .format = options.format});
    save(saver, 3);
  }
  Saver saver(options);
  EXPECT_EQ(saver.best().step, 3);
  saver.set_best({4.0, 6});
  save(saver, 6);
  for (const int64_t step : {9, 12, 15}) save(saver, step);
  saver.confirm(15);
  EXPECT_EQ(there(), (Steps{3, 6, 15}));  // resumed from, best, last
  EXPECT_EQ(fs::read_symlink(options.root + "/best"), "step-6");
  EXPECT_EQ(saver.best().value, 4.0);
}

// What was not saved is not the best that there is.
TEST_F(Savers, PutTheBestBackWhenItsSaveFails) {
  for (const bool background : {false, true}) {
    options.background = background;
    fs::remove_all(options.root);
    Saver saver(options);
    saver.set_best({5.0, 3});
    save(saver, 3);
    saver.outcomes(true);
    before_writing = [] { throw std::runtime_error("no"); };
    saver.set_best({4.0, 6});
    save(saver, 6);
    saver.set_best({3.0, 9});  // of the one at 6 nothing is known yet in the background
    save(saver, 9);
    saver.outcomes(true);
    EXPECT_EQ(saver.best().step, 3);
    EXPECT_EQ(saver.best().value, 5.0);
    before_writing = nullptr;
    save(saver, 12);
    saver.outcomes(true);
    saver.confirm(12);
    EXPECT_EQ(there(), (Steps{3, 12}));
    EXPECT_EQ(fs::read_symlink(options.root + "/best"), "step-3");
  }
}

}  // namespace
}  // namespace mortise
