// Which checkpoints may go.
#include "core/store/retention.hpp"

#include <gtest/gtest.h>

#include <map>

namespace mortise {
namespace {

using Steps = std::vector<int64_t>;

TEST(Retention, IsWhatItsKeysSay) {
  using Keys = std::map<std::string, int64_t>;
  const auto read = [](const Keys& keys) {
    return read_retention([&](const std::string& key) {
      const auto found = keys.find(key);
      return found == keys.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(read({{"keep", 2}}).keep, 2);
  EXPECT_EQ(read({{"keep", 2}}).keep_every, 0);
  EXPECT_EQ(read({{"keep", 2}, {"keep_every", 100}}).keep_every, 100);
}

TEST(Retention, KeepsSoManyOfTheNewest) {
  const Steps there = {3, 6, 9, 12, 15};
  EXPECT_EQ(steps_to_remove(there, {.keep = 2}, {.saved = 15}), (Steps{9, 6, 3}));
  EXPECT_EQ(steps_to_remove(there, {.keep = 4}, {.saved = 15}), (Steps{3}));
  EXPECT_EQ(steps_to_remove(there, {.keep = 5}, {.saved = 15}), (Steps{}));
  EXPECT_EQ(steps_to_remove(there, {.keep = 6}, {.saved = 15}), (Steps{}));
  EXPECT_EQ(steps_to_remove({15}, {.keep = 1}, {.saved = 15}), (Steps{}));
}

TEST(Retention, KeepsOneOfEachInterval) {
  const Steps there = {2, 4, 6, 8, 10, 12, 13};
  EXPECT_EQ(steps_to_remove(there, {.keep = 1, .keep_every = 4}, {.saved = 13}), (Steps{10, 6, 2}));
  EXPECT_EQ(steps_to_remove(there, {.keep = 1, .keep_every = 5}, {.saved = 13}), (Steps{12, 8, 6, 4, 2}));
}

TEST(Retention, KeepsTheBest) {
  EXPECT_EQ(steps_to_remove({3, 6, 9}, {.keep = 1}, {.saved = 9, .best = 3}), (Steps{6}));
  // Among the newest it takes nobody's place, and one that is not there takes none either.
  EXPECT_EQ(steps_to_remove({3, 6, 9}, {.keep = 2}, {.saved = 9, .best = 9}), (Steps{3}));
  EXPECT_EQ(steps_to_remove({3, 6, 9}, {.keep = 2}, {.saved = 9, .best = 4}), (Steps{3}));
}

// Step 8 may still turn out to be damaged or bad; step 6, which the run would then go on from, names 4 as its best.
TEST(Retention, KeepsTheBestBeforeUntilTheNewOneIsConfirmed) {
  Held held{.saved = 8, .confirmed = 7, .best = 8, .best_before = 4};
  EXPECT_EQ(steps_to_remove({3, 4, 6, 8}, {.keep = 1}, held), (Steps{3}));
  held.confirmed = 8;
  EXPECT_EQ(steps_to_remove({4, 6, 8}, {.keep = 1}, held), (Steps{6, 4}));
}

// A damaged newer one is no reason to remove what was announced a moment ago.
TEST(Retention, DoesNotCountWhatIsNewerThanTheRun) {
  EXPECT_EQ(steps_to_remove({18, 21, 29}, {.keep = 1}, {.saved = 21}), (Steps{18}));
  EXPECT_EQ(steps_to_remove({15, 18, 21, 29, 32}, {.keep = 2}, {.saved = 21}), (Steps{15}));
  EXPECT_EQ(steps_to_remove({18, 29}, {.keep = 1}, {}), (Steps{}));
}

TEST(Retention, KeepsWhatWasResumedFrom) {
  EXPECT_EQ(steps_to_remove({12, 15, 18, 21, 24}, {.keep = 1}, {.saved = 24, .resumed = 15}), (Steps{21, 18, 12}));
  EXPECT_EQ(steps_to_remove({12, 15}, {.keep = 1}, {.resumed = 15}), (Steps{12}));
}

// The last one may be what its own update made of the model.
TEST(Retention, KeepsTheNewestThatIsConfirmed) {
  EXPECT_EQ(steps_to_remove({12, 15, 18}, {.keep = 1}, {.saved = 18, .confirmed = 17}), (Steps{12}));
  EXPECT_EQ(steps_to_remove({12, 15, 18}, {.keep = 1}, {.saved = 18, .confirmed = 15}), (Steps{12}));
  EXPECT_EQ(steps_to_remove({12, 15, 18}, {.keep = 1}, {.saved = 18, .confirmed = 14}), (Steps{15}));
  EXPECT_EQ(steps_to_remove({12, 15, 18}, {.keep = 1}, {.saved = 18, .confirmed = 18}), (Steps{15, 12}));
}

}  // namespace
}  // namespace mortise
