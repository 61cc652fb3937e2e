#include <gtest/gtest.h>

#include <numeric>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Batch;
using mortise::Tensor;
using Ids = std::vector<int64_t>;

namespace {

// Samples of these lengths; the ids of sample i are 100·i, 100·i + 1, …
struct Pack : testing::Test {
  Pack() {
    host.set("multiple", 1);
    host.clock.sequence_length = 8;
    host.op("aten::fill_.Scalar",
            [this](auto args) { return host.set_element(args[0].v.t, 0, args[1].v.f), Tensor::share(args[0].v.t); });
  }
  ~Pack() override { plugin.reset(); }

  mortise_status data(mortise_call& call) {
    const auto rows = static_cast<int64_t>(lengths.size());
    const int64_t T = lengths.empty() ? 1 : std::ranges::max(lengths);
    Ids ids(static_cast<size_t>(rows * T), 7), labels(ids.size(), -100), positions(ids.size(), 0);
    std::vector<uint8_t> seen(ids.size(), 0);
    std::vector<float> pairs(2 * ids.size(), 9);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t t = 0; t < lengths[static_cast<size_t>(i)]; ++t) {
        const auto at = static_cast<size_t>(i * T + t);
        ids[at] = 100 * i + t, labels[at] = ids[at] + 1, positions[at] = t, seen[at] = 1;
        pairs[2 * at] = static_cast<float>(ids[at]), pairs[2 * at + 1] = 0.5f;
      }
    Batch batch = Batch::create(nullptr);
    const auto put = [&](const char* name, const Tensor& t) {
      if (fields.contains(name))
        mortise::check(mortise::api.batch->set(&host, batch.get(), mortise::str(std::string_view(name)), t.get()));
    };
    put("input_ids", host.tensor<int64_t>({rows, T}, ids));
    put("labels", host.tensor<int64_t>({rows, T}, labels));
    put("positions", host.tensor<int64_t>({rows, T}, positions));
    put("attention_mask", host.tensor<uint8_t>({rows, T}, seen));
    put("pairs", host.tensor<float>({rows, T, 2}, pairs));
    put("segments", host.tensor<int64_t>({rows, T}, positions));
    put("classes", host.tensor<int64_t>({rows}, Ids(lengths.size(), 1)));
    mortise::check(mortise::api.batch->set_count(&host, batch.get(), MORTISE_STR("samples"), rows));
    mortise::check(mortise::api.batch->set_count(&host, batch.get(), MORTISE_STR("tokens"),
                                                 std::accumulate(lengths.begin(), lengths.end(), int64_t{0})));
    call.results[0] = mortise::value(batch.release());
    return MORTISE_OK;
  }
  // The packed batch; nothing if it is refused.
  Batch load() {
    if (!plugin) {
      plugin.emplace(host, MORTISE_PLUGIN_FILE);
      EXPECT_EQ(plugin->notify("params.declared"), MORTISE_OK);
    }
    FakeCall call({mortise::value("train"), mortise::value(0)}, 1);
    status = chain.wrap(*plugin, "load", call);
    const mortise_value loaded = std::exchange(call.results[0], mortise::none());
    return loaded.tag == MORTISE_BATCH ? Batch::own(loaded.v.b) : Batch();
  }
  template <class T = int64_t>
  std::vector<T> values(const Batch& batch, std::string_view name) {
    return host.values<T>(mortise::field(batch.get(), name));
  }

  FakeHost host;
  Ids lengths = {3, 5, 2, 4, 1};
  std::set<std::string> fields = {"input_ids", "labels", "positions"};
  FakeChain chain{host, [this](mortise_call& call) { return data(call); }};
  std::optional<Plugin> plugin;
  mortise_status status = MORTISE_OK;
};

// 5 + 3 fill the first row; 4, 2 and 1 the second.
TEST_F(Pack, PutsTheLongestFirstEachWhereThereIsRoom) {
  const Batch batch = load();
  ASSERT_TRUE(batch);
  EXPECT_EQ(values(batch, "input_ids"), (Ids{100, 101, 102, 103, 104, 0, 1, 2, 300, 301, 302, 303, 200, 201, 400, 0}));
  EXPECT_EQ(values(batch, "segments"), (Ids{1, 1, 1, 1, 1, 0, 0, 0, 3, 3, 3, 3, 2, 2, 4, -1}));
  EXPECT_EQ(values(batch, "positions"), (Ids{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 0}));
  EXPECT_EQ(values(batch, "labels"), (Ids{101, 102, 103, 104, 105, 1, 2, 3, 301, 302, 303, 304, 201, 202, 401, -100}));
}

TEST_F(Pack, CountsWhatItCounted) {
  const Batch batch = load();
  int64_t samples = 0, tokens = 0;
  mortise::api.batch->count(&host, batch.get(), MORTISE_STR("samples"), &samples);
  mortise::api.batch->count(&host, batch.get(), MORTISE_STR("tokens"), &tokens);
  EXPECT_EQ(samples, 5);
  EXPECT_EQ(tokens, 15);
}

TEST_F(Pack, LosesNoTokenAndMixesNoTwoSamplesForAnyLengths) {
  uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    lengths.clear();
    const auto next = [&](uint32_t n) {
      return static_cast<int64_t>((state = state * 1664525u + 1013904223u) >> 16) % n;
    };
    for (int64_t i = 0, n = 1 + next(20); i < n; ++i) lengths.push_back(1 + next(8));
    const Batch batch = load();
    const Ids ids = values(batch, "input_ids"), segments = values(batch, "segments");
    const Ids positions = values(batch, "positions"), labels = values(batch, "labels");
    Ids seen(lengths.size(), 0);
    const auto L = mortise::Info(mortise::field(batch.get(), "segments")).size(1);
    ASSERT_LE(L, 8);
    for (size_t at = 0; at < ids.size(); ++at) {
      const int64_t i = segments[at];
      if (i < 0) {
        ASSERT_EQ(labels[at], -100);
        continue;
      }
      ASSERT_EQ(positions[at], seen[static_cast<size_t>(i)]++) << "in order, without a gap";
      ASSERT_EQ(ids[at], 100 * i + positions[at]);
      ASSERT_EQ(labels[at], ids[at] + 1);
      ASSERT_TRUE(positions[at] == 0 || segments[at - 1] == i);
    }
    ASSERT_EQ(seen, lengths);
  }
}

TEST_F(Pack, RowsAreAsLongAsTheLongestRoundedUpButNeverLonger) {
  const auto L = [&](const Ids& of, int multiple) {
    lengths = of;
    plugin.reset();
    host.set("multiple", multiple);
    return mortise::Info(mortise::field(load().get(), "input_ids")).size(1);
  };
  EXPECT_EQ(L({2, 3}, 1), 5);
  EXPECT_EQ(L({2, 3}, 6), 6);
  EXPECT_EQ(L({4, 3}, 6), 8);
  EXPECT_EQ(L({8, 8}, 1), 8);
}

TEST_F(Pack, TakesTheEndOfASampleFromTheMaskAndDropsIt) {
  fields = {"input_ids", "labels", "attention_mask"};
  const Batch batch = load();
  EXPECT_EQ(values(batch, "segments"), (Ids{1, 1, 1, 1, 1, 0, 0, 0, 3, 3, 3, 3, 2, 2, 4, -1}));
  EXPECT_EQ(values(batch, "positions"), (Ids{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 0}));
  EXPECT_FALSE(mortise::field(batch.get(), "attention_mask"));
}

TEST_F(Pack, MovesFieldsOfAnyTypeAndOfSeveralNumbersAPosition) {
  lengths = {1, 2};
  fields.insert("pairs");
  EXPECT_EQ(values<float>(load(), "pairs"), (std::vector<float>{100, 0.5f, 101, 0.5f, 0, 0.5f}));
}

TEST_F(Pack, RefusesOneLabelASample) {
  fields.insert("classes");
  EXPECT_FALSE(load());
  EXPECT_EQ(status, MORTISE_E_DATA);
  EXPECT_EQ(host.error(),
            "`classes` has no element for each position, so samples cannot be packed\n"
            "  fix: leave [data.pack] out: it is for data with a label a token");
}

TEST_F(Pack, RefusesSamplesWithoutAnEndAndSuchAsArePackedAlready) {
  fields = {"input_ids", "labels"};
  EXPECT_FALSE(load());
  EXPECT_EQ(host.error(), "samples have neither `attention_mask` nor `positions`: nobody says where they end");
  fields = {"input_ids", "positions", "segments"};
  EXPECT_FALSE(load());
  EXPECT_EQ(host.error(), "these samples are packed already");
}

TEST_F(Pack, RefusesARunWithoutALength) {
  host.clock.sequence_length = 0;
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin->notify("params.declared"), MORTISE_E_CONFIG);
}

TEST_F(Pack, SaysHowManySamplesARowOfTheStepHad) {
  const Batch batch = load();
  FakeChain device(host, [](mortise_call& call) {
    call.results[0] = mortise::value(Batch::share(call.args[0].v.b).release());
    return MORTISE_OK;
  });
  for (const uint32_t mode : {MORTISE_TRAIN, MORTISE_EVAL, MORTISE_TRAIN}) {
    FakeCall call({mortise::value(batch.get())}, 1);
    call.mode = mode;
    ASSERT_EQ(device.wrap(*plugin, "batch", call), MORTISE_OK);
  }
  ASSERT_EQ(plugin->notify("step.end"), MORTISE_OK);
  ASSERT_EQ(host.reported.size(), 1u);
  EXPECT_EQ(host.reported[0].name, "samples_per_row");
  EXPECT_EQ(host.reported[0].number, 2.5);
}

}  // namespace
