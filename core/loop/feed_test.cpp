#include <atomic>
#include <thread>

#include "core/loop/test_run.hpp"

namespace mortise::testing {
namespace {

struct Fed {
  FakeData data;
  SampleOptions options;
  FeedOptions feed_options{0, 1, true, false};
  std::unique_ptr<Samples> samples;
  std::unique_ptr<Feed> feed;
  Fed() {
    options.micro_batch_size = 3;
    options.eval_micro_batch_size = 2;
    options.shuffle = false;
  }
  void build() {
    samples = std::make_unique<Samples>(data.provided(), options);
    feed = std::make_unique<Feed>(data.provided(), *samples, feed_options);
  }
  BatchPtr load(int64_t index, std::string_view split = "train") { return BatchPtr(feed->load(split, index)); }
  Numbers numbers(int64_t index, std::string_view split = "train") {
    const BatchPtr batch = load(index, split);
    const at::Tensor x = batch.get()->fields[0].second.flatten();
    return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
  }
};

TEST(Feed, GivesEverySampleOfAnEpochThenTheNext) {
  Fed fed;
  fed.data.validation = 3;
  fed.build();
  EXPECT_EQ(fed.numbers(0), (Numbers{1, 2, 3}));
  EXPECT_EQ(fed.numbers(2), (Numbers{7, 8})) << "the last of eight is short, not filled";
  EXPECT_EQ(fed.load(2).get()->count("samples"), 2);
  EXPECT_EQ(fed.numbers(3), (Numbers{1, 2, 3}));
  EXPECT_EQ(fed.numbers(1, "validation"), (Numbers{102}));
}

TEST(Feed, ShufflesEachEpochAnew) {
  Fed fed;
  fed.options.shuffle = true;
  fed.data.train = 30;
  fed.build();
  const auto epoch = [&](int64_t number) {
    Numbers all;
    for (int64_t i = 0; i < 10; ++i)
      for (const int64_t x : fed.numbers(number * 10 + i)) all.push_back(x);
    return all;
  };
  Numbers first = epoch(0), second = epoch(1);
  EXPECT_NE(first, second);
  EXPECT_EQ(epoch(0), first);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
}

// Who changes samples at random does it anew in each epoch.
TEST(Feed, TellsTheDataWhichEpochASampleIsFor) {
  Fed fed;
  fed.data.validation = 3;
  fed.build();
  for (const auto& [index, epoch] : {std::pair(0, 0), {2, 0}, {3, 1}, {7, 2}}) {
    fed.load(index);
    EXPECT_EQ(fed.data.epoch, epoch) << index;
  }
  fed.load(1, "validation");
  EXPECT_EQ(fed.data.epoch, 0);
}

TEST(Feed, PadsToTheLongestAndCountsWhatIsThere) {
  Fed fed;
  fed.data.sample = [](std::string_view, int64_t n) { return Numbers(static_cast<size_t>(n) + 1, n); };
  fed.feed_options.pad_to_multiple = 4;
  fed.build();
  const BatchPtr batch = fed.load(1);  // samples of 4, 5 and 6
  EXPECT_EQ(batch.get()->fields[0].second.sizes(), (at::IntArrayRef{3, 8}));
  EXPECT_EQ(batch.get()->count("tokens"), 15);
}

TEST(Feed, RefusesASampleThatIsNotPut) {
  for (const int64_t forgotten : {4, 5}) {  // in the middle of a batch and at its end
    Fed fed;
    fed.data.forgets = forgotten;
    fed.build();
    fed.load(0);
    try {
      fed.load(1);
      ADD_FAILURE() << "not refused";
    } catch (const PluginError& e) {
      EXPECT_EQ(std::string(e.what()), "data.fake put no `x` of sample " + std::to_string(forgotten) + " of `train`");
    }
  }
}

TEST(Feed, CutsWhatIsTooLongOrRefusesIt) {
  Fed fed;
  fed.data.sample = [](std::string_view, int64_t n) { return Numbers(static_cast<size_t>(n) + 1, n); };
  fed.feed_options.sequence_length = 5;
  fed.build();
  EXPECT_EQ(fed.load(1).get()->count("tokens"), 4 + 5 + 5);
  fed.feed_options.truncate = false;
  fed.build();
  EXPECT_NO_THROW(fed.load(0));
  EXPECT_EQ(error_of([&] { fed.load(1); }), "a sample is 6 long, data.sequence_length is 5 and data.truncate is off");
}

TEST(Feed, RefusesSamplesWithoutAnElement) {
  Fed fed;
  fed.data.sample = [](std::string_view, int64_t n) { return n < 3 ? Numbers{} : Numbers{n}; };
  fed.build();
  EXPECT_EQ(error_of([&] { fed.load(0); }), "data.fake gave 3 samples of `train` without an element");
  EXPECT_EQ(fed.numbers(1), (Numbers{3, 4, 5}));
}

// Sample n: n + 1 elements of `x`, and a label; `forgets` is the label that it does not put.
struct TwoFields : FakePlugin {
  int64_t forgets = -1;
  std::function<std::vector<Numbers>(int64_t n)> sample = [](int64_t n) {
    return std::vector<Numbers>{Numbers(static_cast<size_t>(n) + 1, n), {n}};
  };
  TwoFields() : FakePlugin("data.two") {
    object.struct_size = sizeof object;
    object.n_fields = 2;
    object.fields = fields;
    object.describe = [](void*, mortise_str, mortise_split* out) noexcept {
      out->samples = 8;
      return mortise_status{MORTISE_OK};
    };
    object.get = [](void* self, mortise_str, const int64_t* numbers, const int64_t*, uint32_t n,
                    mortise_rows* rows) noexcept {
      const auto& d = *static_cast<TwoFields*>(self);
      for (uint32_t i = 0; i < n; ++i)
        for (size_t f = 0; f < 2; ++f)
          if (f == 0 || d.forgets != numbers[i]) put_numbers(*rows, i, f, d.sample(numbers[i])[f]);
      return mortise_status{MORTISE_OK};
    };
  }
  BatchPtr load(int64_t index, FeedOptions feed_options = {0, 1, true, false}) {
    SampleOptions options;
    options.micro_batch_size = 3;
    options.shuffle = false;
    Samples samples({&object, &instance}, options);
    return BatchPtr(Feed({&object, &instance}, samples, feed_options).load("train", index));
  }
  mortise_field fields[2] = {
      {sizeof(mortise_field), MORTISE_I64, MORTISE_STR("x"), MORTISE_STR("tokens"), -1, FakeData::kSequence, 1, 0},
      {sizeof(mortise_field), MORTISE_I64, MORTISE_STR("label"), {}, -1, nullptr, 0, 0}};
  mortise_data object{};
};

TEST(Feed, GivesEachFieldItsOwnLength) {
  TwoFields data;
  const BatchPtr batch = data.load(2, {0, 4, true, false});  // the last two of eight, 7 and 8 long
  ASSERT_EQ(batch.get()->fields.size(), 2u);
  EXPECT_EQ(batch.get()->fields[0].second.sizes(), (at::IntArrayRef{2, 8}));
  EXPECT_EQ(batch.get()->fields[1].first, "label");
  EXPECT_EQ(batch.get()->fields[1].second.sizes(), (at::IntArrayRef{2})) << "one label a sample";
  EXPECT_EQ(batch.get()->count("tokens"), 15);
  EXPECT_EQ(batch.get()->count("samples"), 2);
}

TEST(Feed, RefusesAFieldThatIsNotPut) {
  for (const int64_t forgotten : {4, 5}) {
    TwoFields data;
    data.forgets = forgotten;
    data.load(0);
    EXPECT_EQ(error_of([&] { data.load(1); }),
              "data.two put no `label` of sample " + std::to_string(forgotten) + " of `train`");
  }
}

TEST(Feed, RefusesASequenceThatIsTooLongWhicheverItIs) {
  TwoFields data;
  data.fields[1].sizes = FakeData::kSequence;
  data.fields[1].n_sizes = 1;
  data.sample = [](int64_t n) { return std::vector<Numbers>{{n}, Numbers(4, n)}; };
  EXPECT_NO_THROW(data.load(0, {4, 1, false, false}));
  EXPECT_EQ(error_of([&] { data.load(0, {3, 1, false, false}); }),
            "a sample is 4 long, data.sequence_length is 3 and data.truncate is off");
}

// A sample without a label, or without a text, is still one.
TEST(Feed, TakesAFieldWithoutAnElementBesideOneThatHas) {
  TwoFields data;
  data.sample = [](int64_t n) { return std::vector<Numbers>{{n}, {}}; };
  EXPECT_EQ(data.load(0).get()->count("tokens"), 3);
  data.sample = [](int64_t n) { return std::vector<Numbers>{n == 1 ? Numbers{} : Numbers{n}, {}}; };
  EXPECT_EQ(data.load(0).get()->count("tokens"), 2);
}

// Each call waits a while for a second one to come in.
int calls_at_once(bool one_thread) {
  Fed fed;
  std::atomic<int> inside = 0, most = 0;
  fed.data.during_get = [&] {
    const int now = ++inside;
    if (now > most) most = now;
    for (int i = 0; i < 100 && most < 2; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
  };
  fed.feed_options.one_thread = one_thread;
  fed.build();
  std::thread other([&] { fed.load(0); });
  fed.load(1);
  other.join();
  return most;
}

TEST(Feed, CallsAPluginOfOneThreadOneAtATime) {
  EXPECT_EQ(calls_at_once(true), 1);
  EXPECT_EQ(calls_at_once(false), 2);
}

}  // namespace
}  // namespace mortise::testing
