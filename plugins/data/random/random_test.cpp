#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;

class RandomData : public ::testing::Test {
 protected:
  RandomData() {
    host_.set("samples", 512).set("validation_samples", 0).set("low", 100).set("high", 30000).set("shortest", 0);
    host_.set("classes", 0);
  }
  mortise_status open(Plugin& plugin, int64_t length, uint64_t seed = 0) {
    const mortise_data_request request = {sizeof request, 0, length, seed};
    return plugin.object<mortise_data>("data").open(plugin.self(), &request);
  }
  FakeHost host_;
};

TEST_F(RandomData, DescribesItself) {
  host_.set("validation_samples", 7);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  const mortise_data& data = plugin.object<mortise_data>("data");
  ASSERT_EQ(open(plugin, 512), MORTISE_OK);
  const mortise_split train = plugin.describe("train"), validation = plugin.describe("validation");
  int64_t vocabulary = 0;
  EXPECT_EQ(data.vocabulary(plugin.self(), &vocabulary), MORTISE_OK);
  EXPECT_EQ(train.samples, 512);
  EXPECT_EQ(view(train.about), "512 samples of random ids, 100 to 29,999");
  EXPECT_EQ(validation.samples, 7);
  EXPECT_EQ(vocabulary, 30000);
}

TEST_F(RandomData, ItsFingerprintSaysAllThatASampleDependsOn) {
  host_.set("validation_samples", 7);
  const auto fingerprint = [&](int64_t length, uint64_t seed, std::string_view split = "train") {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length, seed), MORTISE_OK);
    return std::string(view(plugin.describe(split).fingerprint));
  };
  const uint64_t seed = (uint64_t{1} << 32) + 7;
  EXPECT_EQ(fingerprint(64, seed), "512 samples of random ids, 100 to 29,999, lengths 64 to 64, seed 4294967303");
  std::set<std::string> all = {fingerprint(64, seed), fingerprint(65, seed), fingerprint(64, 7),
                               fingerprint(64, seed, "validation")};
  for (const char* key : {"samples", "low", "high", "shortest", "classes"}) {
    const int64_t before = std::map<std::string, int64_t>{{"samples", 512}, {"low", 100}, {"high", 30000}}[key];
    host_.set(key, before + 1);
    all.insert(fingerprint(64, seed));
    host_.set(key, before);
  }
  EXPECT_EQ(all.size(), 9u);
}

TEST_F(RandomData, WritesNoFingerprintIntoTheShorterStructOfAnOlderHost) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 8), MORTISE_OK);
  mortise_split older{};
  older.struct_size = offsetof(mortise_split, fingerprint);
  ASSERT_EQ(plugin.object<mortise_data>("data").describe(plugin.self(), MORTISE_STR("train"), &older), MORTISE_OK);
  EXPECT_EQ(older.samples, 512);
  EXPECT_EQ(older.fingerprint.ptr, nullptr);
}

TEST_F(RandomData, LabelsAreTheNextIds) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 6), MORTISE_OK);
  auto s = plugin.samples("train", {3})[0];
  ASSERT_EQ(s["input_ids"].size(), 6U);
  EXPECT_EQ(Ids(s["input_ids"].begin() + 1, s["input_ids"].end()), Ids(s["labels"].begin(), s["labels"].end() - 1));
  EXPECT_EQ(s["positions"], (Ids{0, 1, 2, 3, 4, 5}));
}

TEST_F(RandomData, GivesTheSameSampleWheneverAndWithWhomeverItIsAsked) {
  Ids first, later;
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 64, 9), MORTISE_OK);
    first = plugin.samples("train", {0, 5, 1})[1]["input_ids"];
  }
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 64, 9), MORTISE_OK);
  later = plugin.samples("train", {5})[0]["input_ids"];
  EXPECT_EQ(first, later);
}

TEST_F(RandomData, DiffersBySampleSeedAndSplit) {
  host_.set("validation_samples", 4);
  Ids other_seed;
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 16, uint64_t{1} << 32), MORTISE_OK);
    other_seed = plugin.samples("train", {0})[0]["input_ids"];
  }
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 16, 0), MORTISE_OK);
  auto samples = plugin.samples("train", {0, 1});
  EXPECT_NE(samples[0]["input_ids"], samples[1]["input_ids"]);
  EXPECT_NE(samples[0]["input_ids"], other_seed);
  EXPECT_NE(samples[0]["input_ids"], plugin.samples("validation", {0})[0]["input_ids"]);
}

TEST_F(RandomData, StaysInItsRangeAndIsEvenlySpread) {
  host_.set("low", 3).set("high", 7);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 1000), MORTISE_OK);
  int counts[4] = {};
  for (auto& sample : plugin.samples("train", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
    for (const int64_t id : sample["input_ids"]) {
      ASSERT_GE(id, 3);
      ASSERT_LT(id, 7);
      ++counts[id - 3];
    }
  for (const int c : counts)
    EXPECT_NEAR(c, 2500, 5 * std::sqrt(10000 * 0.25 * 0.75));  // five deviations of a binomial count
}

TEST_F(RandomData, GivesUnlikeLengthsFromTheShortestToTheWhole) {
  host_.set("shortest", 2);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 5), MORTISE_OK);
  Ids numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  std::set<size_t> lengths;
  for (auto& sample : plugin.samples("train", numbers)) {
    lengths.insert(sample["input_ids"].size());
    EXPECT_EQ(sample["labels"].size(), sample["input_ids"].size());
  }
  EXPECT_EQ(lengths, (std::set<size_t>{2, 3, 4, 5}));
}

TEST_F(RandomData, GivesEachSampleAClassToClassify) {
  host_.set("classes", 3);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 16), MORTISE_OK);
  EXPECT_EQ(view(plugin.describe("train").about), "512 samples of random ids, 100 to 29,999, 3 classes");
  const mortise_str* names = nullptr;
  uint32_t n = 0;
  ASSERT_EQ(plugin.object<mortise_data>("data").classes(plugin.self(), &names, &n), MORTISE_OK);
  ASSERT_EQ(n, 3U);
  EXPECT_EQ(view(names[2]), "2");
  Ids numbers(300);
  std::iota(numbers.begin(), numbers.end(), 0);
  int counts[3] = {};
  for (auto& sample : plugin.samples("train", numbers)) {
    EXPECT_EQ(sample["input_ids"].size(), 16U);
    EXPECT_FALSE(sample.contains("attention_mask")) << "nothing is padded";
    ASSERT_EQ(sample["labels"].size(), 1U);
    ASSERT_GE(sample["labels"][0], 0);
    ASSERT_LT(sample["labels"][0], 3);
    ++counts[sample["labels"][0]];
  }
  for (const int c : counts) EXPECT_NEAR(c, 100, 5 * std::sqrt(300 * (1.0 / 3) * (2.0 / 3)));  // five deviations
}

TEST_F(RandomData, TheIdsOfASampleAreTheSameWithAndWithoutClasses) {
  Ids ids;
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 16), MORTISE_OK);
    ids = plugin.samples("train", {7})[0]["input_ids"];
  }
  host_.set("classes", 2);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 16), MORTISE_OK);
  EXPECT_EQ(plugin.samples("train", {7})[0]["input_ids"], ids);
}

TEST_F(RandomData, OfUnlikeLengthsSaysWhatIsNoPadding) {
  host_.set("classes", 2).set("shortest", 2);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 5), MORTISE_OK);
  const Ids numbers = {0, 1, 2, 3, 4, 5, 6, 7};
  auto samples = plugin.samples("train", numbers);
  auto masks = plugin.samples<uint8_t>("train", numbers);
  std::set<size_t> lengths;
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(masks[i]["attention_mask"], std::vector<uint8_t>(samples[i]["input_ids"].size(), 1));
    lengths.insert(samples[i]["input_ids"].size());
  }
  EXPECT_GT(lengths.size(), 1U);
}

TEST_F(RandomData, CanHaveOneIdAndOneElement) {
  host_.set("low", 41).set("high", 42).set("shortest", 1);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 1), MORTISE_OK);
  auto sample = plugin.samples("train", {0})[0];
  EXPECT_EQ(sample["input_ids"], Ids{41});
  EXPECT_EQ(sample["labels"], Ids{41});
}

TEST_F(RandomData, RefusesNumbersThatDoNotFitOneAnother) {
  host_.set("low", 30000);
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_E_CONFIG);
    EXPECT_EQ(host_.blamed.value().key, "low");
  }
  host_.set("low", 0).set("shortest", 9);
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_E_CONFIG);
    EXPECT_EQ(host_.blamed.value().why, "9 is longer than data.sequence_length, 8");
  }
  host_.set("shortest", 0);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin, 0), MORTISE_E_CONFIG);
}

// The draw multiplies a word of 32 bits by the number of ids, and the positions of the longest sample are kept.
TEST_F(RandomData, RefusesIdsAndLengthsThatItCannotCount) {
  host_.set("high", std::numeric_limits<int64_t>::max());
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_E_CONFIG);
    EXPECT_EQ(host_.blamed.value().key, "high");
  }
  host_.set("high", 30000);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin, std::numeric_limits<int64_t>::max()), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.error(),
            "data.random makes samples of at most 16,777,216 ids, data.sequence_length is 9,223,372,036,854,775,807\n"
            "  fix: [data] sequence_length = 128");
}

TEST_F(RandomData, RefusesASampleThatItDoesNotHave) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 8), MORTISE_OK);
  EXPECT_THROW(plugin.samples("train", {512}), PluginError);
  EXPECT_THROW(plugin.samples("validation", {0}), PluginError);
}
}  // namespace
