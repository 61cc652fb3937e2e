#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;
using Ids = std::vector<int64_t>;

namespace {

struct Mixture : testing::Test {
  Mixture() {
    configure({0.7, 0.3});
    host.op("aten::fill_.Scalar", [this](auto args) {
      return host.set_element(args[0].v.t, 0, args[1].v.f), mortise::Tensor::share(args[0].v.t);
    });
  }
  void configure(const std::vector<double>& weights, const Ids& from = {}) {
    host.set("weights", weights);
    from.empty() ? host.unset("from_step") : host.set("from_step", from);
  }
  mortise_status open() {
    plugin.reset();
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    std::vector<mortise_group> groups;
    ask.samples = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      groups.push_back({sizeof(mortise_group), 0, mortise::str(names[i]), sizes[i]});
      ask.samples += sizes[i];
    }
    if (ask.per_epoch == 0) ask.per_epoch = ask.samples;
    ask.groups = groups.data();
    ask.n_groups = static_cast<uint32_t>(groups.size());
    return object().open(plugin->self(), &ask);
  }
  const mortise_order& object() { return plugin->object<mortise_order>("data.order"); }
  struct Epoch {
    Ids samples, before;
    bool operator==(const Epoch&) const = default;
  };
  Epoch epoch(int64_t number) {
    Epoch e{Ids(static_cast<size_t>(ask.per_epoch), -1), Ids(static_cast<size_t>(ask.per_epoch), -1)};
    EXPECT_EQ(object().epoch(plugin->self(), number, e.samples.data(), e.before.data()), MORTISE_OK);
    return e;
  }
  // The first n draws, whatever the epochs are.
  Epoch draws(int64_t n) {
    Epoch all;
    for (int64_t e = 0; static_cast<int64_t>(all.samples.size()) < n; ++e) {
      const Epoch next = epoch(e);
      all.samples.insert(all.samples.end(), next.samples.begin(), next.samples.end());
      all.before.insert(all.before.end(), next.before.begin(), next.before.end());
    }
    all.samples.resize(static_cast<size_t>(n)), all.before.resize(static_cast<size_t>(n));
    return all;
  }
  size_t group_of(int64_t sample) const {
    size_t g = 0;
    for (int64_t end = sizes[0]; sample >= end; end += sizes[++g]) {
    }
    return g;
  }
  // What the step record has of each group after so many steps.
  std::vector<int64_t> reported(int64_t steps) {
    host.clock.attempted = steps;
    host.reported.clear();
    EXPECT_EQ(plugin->notify("step.end"), MORTISE_OK);
    std::vector<int64_t> all;
    for (const auto& r : host.reported) all.push_back(static_cast<int64_t>(r.number));
    return all;
  }

  FakeHost host;
  std::vector<std::string> names = {"web", "code", "books"};
  Ids sizes = {1000, 500};
  mortise_order_request ask = [] {
    mortise_order_request r{};
    r.struct_size = sizeof r;
    r.per_step = 8;
    r.seed = 5;
    r.shuffle = 1;
    return r;
  }();
  std::optional<Plugin> plugin;
};

// Of the first n draws of a block a group has its share but for less than 2 for each one in n's binary digits, and
// shares are weights but for 1/65536.
TEST_F(Mixture, DrawsEachGroupByItsWeightAtEveryLength) {
  sizes = {70'000, 40'000, 30'000};
  configure({0.5, 0.3, 0.2});
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch all = draws(140'000);
  double counts[3] = {};
  for (uint32_t n = 1; n <= 140'000; ++n) {
    ++counts[group_of(all.samples[n - 1])];
    for (size_t g = 0; g < 3; ++g) {
      const double exact = n * std::array{0.5, 0.3, 0.2}[g];
      ASSERT_LT(std::abs(counts[g] - exact), 2.0 * std::popcount(n % 65536) + n / 65536.0 + 1e-9)
          << n << ", group " << g;
    }
  }
}

TEST_F(Mixture, DoesNotRepeatASampleBeforeAllOfItsGroupWereDrawn) {
  sizes = {1000, 50};
  configure({0.5, 0.5});
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch all = draws(5000);
  std::map<int64_t, int64_t> times;
  int64_t drawn[2] = {};
  std::vector<Ids> passes;  // of the small group
  for (size_t i = 0; i < all.samples.size(); ++i) {
    const size_t g = group_of(all.samples[i]);
    ASSERT_EQ(all.before[i], times[all.samples[i]]++);
    ASSERT_EQ(all.before[i], drawn[g] / sizes[g]) << "each once before any comes again";
    if (g == 1 && drawn[1] % 50 == 0) passes.emplace_back();
    if (g == 1) passes.back().push_back(all.samples[i]);
    ++drawn[g];
  }
  ASSERT_GT(passes.size(), 40u);
  EXPECT_NE(passes[0], passes[1]) << "in another order";
}

TEST_F(Mixture, AnEpochIsAFunctionOfItsNumberAndTheSeed) {
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch third = epoch(3);
  EXPECT_NE(epoch(2), third);
  EXPECT_EQ(epoch(3), third);
  ASSERT_EQ(open(), MORTISE_OK);
  EXPECT_EQ(epoch(3), third) << "a run that goes on has seen no other";
  ask.seed = 6;
  ASSERT_EQ(open(), MORTISE_OK);
  EXPECT_NE(epoch(3), third);
}

TEST_F(Mixture, CountsWhatItDrewWithoutHavingDrawnIt) {
  sizes = {900, 100'000, 7};
  configure({0.31, 0.66, 0.03, 1, 0, 0, 0, 0.5, 0.5}, {1000, 9000});
  ask.per_epoch = 100'907;
  ASSERT_EQ(open(), MORTISE_OK);
  const int64_t steps = (ask.per_epoch + 7) / 8;  // of an epoch
  const Epoch all = draws(3 * ask.per_epoch);
  Ids counts(3, 0);
  size_t at = 0;
  for (int64_t step = 1; step <= 3 * steps; ++step) {
    const auto end = static_cast<size_t>(step / steps * ask.per_epoch + step % steps * 8);
    for (; at < end; ++at) ++counts[group_of(all.samples[at])];
    if (step % 997 == 0 || step < 20 || step % steps < 2) {
      ASSERT_EQ(reported(step), counts) << step;
    }
  }
  EXPECT_EQ(host.reported[2].name, "drawn.books");
}

TEST_F(Mixture, WeightsChangeAtTheirStep) {
  configure({1, 0, 0, 1}, {20});
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch all = draws(320);
  for (size_t i = 0; i < 320; ++i) ASSERT_EQ(group_of(all.samples[i]), i < 160 ? 0u : 1u) << i;
  // An epoch's last step is short: 1,500 samples are 188 steps of 8, and step 190 begins at 1,516.
  configure({1, 0, 0, 1}, {190});
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch second = epoch(1);
  for (size_t i = 0; i < 100; ++i) ASSERT_EQ(group_of(second.samples[i]), i < 16 ? 0u : 1u) << i;
}

TEST_F(Mixture, WithoutShufflingAGroupComesAsItStands) {
  ask.shuffle = 0;
  configure({0, 1});
  ASSERT_EQ(open(), MORTISE_OK);
  Ids expected(500);
  for (size_t i = 0; i < 500; ++i) expected[i] = 1000 + static_cast<int64_t>(i);
  EXPECT_EQ(draws(500).samples, expected);
}

TEST_F(Mixture, WeightsNeedNotAddUpToOne) {
  configure({7e-9, 3e-9});
  ASSERT_EQ(open(), MORTISE_OK);
  const Epoch tiny = epoch(0);
  configure({7, 3});
  ASSERT_EQ(open(), MORTISE_OK);
  EXPECT_EQ(epoch(0), tiny);
}

TEST_F(Mixture, SaysItsShares) {
  configure({7, 3, 0.125, 0.875}, {1000});
  ASSERT_EQ(open(), MORTISE_OK);
  mortise_str about{};
  ASSERT_EQ(object().describe(plugin->self(), &about), MORTISE_OK);
  EXPECT_EQ(mortise::view(about), "70 % web (1,000), 30 % code (500); from step 1,000 12.5 %, 87.5 %");
}

TEST_F(Mixture, RefusesWeightsThatMakeNoMixture) {
  const auto why = [&](const std::vector<double>& weights, const Ids& from = {}) {
    host.blamed.reset();
    configure(weights, from);
    EXPECT_EQ(open(), MORTISE_E_CONFIG);
    return host.blamed ? host.blamed->key + ": " + host.blamed->why : "";
  };
  EXPECT_EQ(why({0.5}), "weights: 1 weights for 2 sources (web, code)");
  EXPECT_EQ(why({1, 1, 1}, {5}), "weights: 3 weights for 2 sources (web, code), at the beginning and at 1 steps");
  EXPECT_EQ(why({0, 0}), "weights: all weights are 0: nothing would be drawn");
  EXPECT_EQ(why({1, 1, 0, 0}, {5}), "weights: all weights are 0: nothing would be drawn");
  EXPECT_EQ(why({1, 1e-6}), "weights: the weight of code is less than 1 of 65,536");
  EXPECT_EQ(why({1, 1, 1, 1, 1, 1}, {5, 5}), "from_step: step 5 does not follow the one before");
  names[1] = "web";
  EXPECT_EQ(why({0.5, 0.5}), "weights: two sources are both called web");
  names[1] = "code";
  sizes[1] = 0;
  EXPECT_EQ(why({0.5, 0.5}), "weights: code has no samples to draw from");
  configure({1, 0});
  EXPECT_EQ(open(), MORTISE_OK) << "nothing is drawn of it";
  sizes = {5};
  EXPECT_EQ(why({1, 1}), "weights: 2 weights for 1 source (web)");
}

}  // namespace
