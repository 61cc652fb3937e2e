#include "core/declare/samples.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

namespace mortise {
namespace {

// An instance of a plugin that is in no library.
struct FakeInstance {
  FakeInstance(const char* id, void* self) {
    info.schema.id = id;
    instance.member = &member;
    instance.self = self;
  }
  PluginInfo info;
  Member member{&info, nullptr};
  Instance instance;
};

// A data plugin that has so many samples in each split, and nothing else.
struct Data {
  int64_t train = 100, validation = 0;
  std::vector<mortise_group> groups;
  static mortise_status give_groups(void* self, mortise_str, const mortise_group** out, uint32_t* n) noexcept {
    *out = static_cast<const Data*>(self)->groups.data();
    *n = static_cast<uint32_t>(static_cast<const Data*>(self)->groups.size());
    return MORTISE_OK;
  }
  static mortise_status describe(void* self, mortise_str split, mortise_split* out) noexcept {
    const auto* data = static_cast<const Data*>(self);
    out->samples = view(split) == "train" ? data->train : data->validation;
    out->about = str(view(split));
    out->fingerprint = view(split) == "train" ? str("of train") : mortise_str{};
    return MORTISE_OK;
  }
  FakeInstance by{"data.fake", this};
  mortise_data object = [] {
    mortise_data d{};
    d.struct_size = sizeof d;
    d.describe = describe;
    d.groups = give_groups;
    return d;
  }();
  Provided<mortise_data> provided() { return {&object, &by.instance}; }
};

SampleOptions options() {
  SampleOptions o;
  o.micro_batch_size = 8;
  o.eval_micro_batch_size = 8;
  o.seed = 3;
  return o;
}

std::vector<int64_t> epoch(Samples& samples, const std::string& split, int64_t number) {
  std::vector<int64_t> all;
  const int64_t n = samples.micros_per_epoch(split);
  for (int64_t i = number * n; i < (number + 1) * n; ++i) {
    const Samples::Micro m = samples.micro(split, i);
    all.insert(all.end(), m.numbers(), m.numbers() + m.n);
  }
  return all;
}

std::vector<int64_t> sorted(std::vector<int64_t> numbers) {
  std::ranges::sort(numbers);
  return numbers;
}

TEST(Samples, EveryEpochHasEachOnceInAnOrderOfItsOwn) {
  Data data;
  Samples samples(data.provided(), options());
  const auto first = epoch(samples, "train", 0), second = epoch(samples, "train", 1);
  std::vector<int64_t> each(100);
  std::iota(each.begin(), each.end(), 0);
  EXPECT_EQ(sorted(first), each);
  EXPECT_EQ(sorted(second), each);
  EXPECT_NE(first, second);
  EXPECT_NE(first, each);
  EXPECT_EQ(epoch(samples, "train", 0), first) << "pure in its number";
}

TEST(Samples, TheOrdersOfTwoEpochsAreKeptForLoadersAtTheirBorder) {
  Data data;
  Samples samples(data.provided(), options());
  const int64_t border = samples.micros_per_epoch("train");
  const auto before = samples.micro("train", border - 1).order, after = samples.micro("train", border).order;
  EXPECT_NE(before, after);
  EXPECT_EQ(samples.micro("train", border - 1).order, before);
  EXPECT_EQ(samples.micro("train", border).order, after);
}

TEST(Samples, TheOrderHangsOnTheSeedAlone) {
  Data data;
  SampleOptions other = options();
  other.seed = 4;
  Samples a(data.provided(), options()), b(data.provided(), options()), c(data.provided(), other);
  EXPECT_EQ(epoch(a, "train", 5), epoch(b, "train", 5));
  EXPECT_NE(epoch(a, "train", 5), epoch(c, "train", 5));
}

// ---- an order that a plugin gives ----

// Draws two of three times from the first group, one behind the other.
struct Order {
  std::vector<std::pair<std::string, int64_t>> groups;
  mortise_order_request ask{};
  int64_t wrong = 0, asked = 0;
  static mortise_status open(void* self, const mortise_order_request* ask) noexcept {
    auto& o = *static_cast<Order*>(self);
    o.ask = *ask;
    for (uint32_t i = 0; i < ask->n_groups; ++i)
      o.groups.emplace_back(view(ask->groups[i].name), ask->groups[i].samples);
    return MORTISE_OK;
  }
  static mortise_status epoch(void* self, int64_t number, int64_t* samples, int64_t* before) noexcept {
    auto& o = *static_cast<Order*>(self);
    ++o.asked;
    for (int64_t i = 0; i < o.ask.per_epoch; ++i) samples[i] = (number + i) % 7, before[i] = (number + i) / 7;
    samples[0] += o.wrong;
    return MORTISE_OK;
  }
  FakeInstance by{"data.order", this};
  mortise_order object{sizeof(mortise_order), 0, open, nullptr, epoch};
  Provided<mortise_order> provided() { return {&object, &by.instance}; }
};

TEST(Samples, APluginMayOrderWhatIsTrainedOn) {
  Data data;
  data.validation = 30;
  Samples samples(data.provided(), options());
  Order order;
  samples.order_by(data.provided(), order.provided(), 24);
  EXPECT_EQ(order.ask.samples, 100);
  EXPECT_EQ(order.ask.per_epoch, 100);
  EXPECT_EQ(order.ask.per_step, 24);
  EXPECT_EQ(order.ask.seed, 3u);
  EXPECT_EQ(order.ask.shuffle, 1u);
  EXPECT_EQ(order.groups, (std::vector<std::pair<std::string, int64_t>>{{"all", 100}}));
  const Samples::Micro m = samples.micro("train", 2 * 13 + 1);  // draws 8 to 15 of epoch 2
  EXPECT_EQ(std::vector<int64_t>(m.numbers(), m.numbers() + m.n), (std::vector<int64_t>{3, 4, 5, 6, 0, 1, 2, 3}));
  EXPECT_EQ(m.epochs(), (std::vector<int64_t>{1, 1, 1, 1, 2, 2, 2, 2}));
  EXPECT_EQ(samples.micro("train", 2 * 13 + 12).n, 4u);
  EXPECT_EQ(order.asked, 1) << "an epoch is kept";
  EXPECT_EQ(epoch(samples, "validation", 0).size(), 30u);
  EXPECT_EQ(samples.micro("validation", 31).epochs(), std::vector<int64_t>(6, 7)) << "as ever";
}

TEST(Samples, AnOrderIsOfWhatIsNotHeldOutAndNotDropped) {
  Data data;
  data.groups = {{sizeof(mortise_group), 0, MORTISE_STR("web"), 60},
                 {sizeof(mortise_group), 0, MORTISE_STR("code"), 40}};
  SampleOptions o = options();
  o.validation = 0.15;
  o.drop_last = true;
  Samples samples(data.provided(), o);
  std::vector<int64_t> left = epoch(samples, "train", 0), all(85);
  Order order;
  samples.order_by(data.provided(), order.provided(), 8);
  const auto held = epoch(samples, "validation", 0);
  const int64_t of_web = 60 - std::ranges::count_if(held, [](int64_t n) { return n < 60; });
  EXPECT_EQ(order.groups, (std::vector<std::pair<std::string, int64_t>>{{"web", of_web}, {"code", 85 - of_web}}));
  EXPECT_EQ(order.ask.per_epoch, 80);
  const Samples::Micro m = samples.micro("train", 0);
  for (uint32_t i = 0; i < m.n; ++i) EXPECT_EQ(std::ranges::count(held, m.numbers()[i]), 0);
}

TEST(Samples, AnOrderOfSeveralRanksIsOfWhatAllTakeTogether) {
  Data data;
  SampleOptions o = options();
  o.drop_last = true;
  o.ranks = 5;
  Samples samples(data.provided(), o);
  Order order;
  samples.order_by(data.provided(), order.provided(), 8);
  const int64_t together = 5 * o.micro_batch_size;
  EXPECT_NE(100 / together * together, 100 / o.micro_batch_size * o.micro_batch_size) << "else it shows nothing";
  EXPECT_EQ(order.ask.per_epoch, 100 / together * together);
}

TEST(Samples, AnOrderOfSamplesThatThereAreNotIsRefused) {
  Data data;
  Order order;
  for (const int64_t wrong : {-1, 100}) {
    Samples samples(data.provided(), options());
    order.wrong = wrong;
    samples.order_by(data.provided(), order.provided(), 8);
    EXPECT_THROW(samples.micro("train", 0), PluginError) << wrong;
  }
  data.groups = {{sizeof(mortise_group), 0, MORTISE_STR("web"), 60}};
  Samples samples(data.provided(), options());
  EXPECT_THROW(samples.order_by(data.provided(), order.provided(), 8), PluginError) << "groups of fewer samples";
}

// Sattolo's variant, one index less, would never leave a sample where it is; Fisher and Yates leaves one on average.
TEST(Samples, AShuffleLeavesOneInItsPlaceOnAverage) {
  Data data;
  Samples samples(data.provided(), options());
  int64_t left = 0;
  for (int64_t e = 0; e < 400; ++e) {
    const auto order = epoch(samples, "train", e);
    for (size_t i = 0; i < order.size(); ++i) left += order[i] == static_cast<int64_t>(i);
  }
  EXPECT_NEAR(static_cast<double>(left) / 400, 1, 0.25);  // five standard errors of a mean of 400 with variance 1
}

TEST(Samples, WithoutShufflingStandAsTheyAre) {
  Data data;
  SampleOptions o = options();
  o.shuffle = false;
  Samples samples(data.provided(), o);
  EXPECT_TRUE(std::ranges::is_sorted(epoch(samples, "train", 0)));
}

TEST(Samples, TheLastMicroBatchIsShortOrDropped) {
  Data data;
  SampleOptions o = options();
  Samples samples(data.provided(), o);
  EXPECT_EQ(samples.micros_per_epoch("train"), 13);
  EXPECT_EQ(samples.micro("train", 12).n, 4u);
  EXPECT_EQ(samples.micro("train", 13).n, 8u) << "the next epoch";
  o.drop_last = true;
  Samples dropped(data.provided(), o);
  EXPECT_EQ(dropped.micros_per_epoch("train"), 12);
  EXPECT_EQ(epoch(dropped, "train", 0).size(), 96u);
}

TEST(Samples, ThatFillNoMicroBatchAreRefusedWithWhatToDo) {
  Data data;
  SampleOptions o = options();
  o.drop_last = true;
  o.micro_batch_size = 64;
  o.ranks = 2;
  const auto said = [&] {
    try {
      const Samples samples(data.provided(), o);
    } catch (const PluginError& e) {
      return e.text();
    }
    return std::string();
  };
  EXPECT_EQ(said(),
            "data.fake has 100 samples to train on, too few for one micro-batch of 64 for each of 2 ranks\n"
            "  fix: --set data.micro_batch_size=50, or less\n"
            "  fix: --set data.drop_last=false trains on what does not fill one");
  o.micro_batch_size = 50;
  EXPECT_EQ(said(), "");
  data.train = 0;
  EXPECT_EQ(said(), "data.fake has 0 samples to train on, too few for one micro-batch of 50 for each of 2 ranks");
}

TEST(Samples, WhatIsHeldOutIsNeverTrainedOn) {
  Data data;
  SampleOptions o = options();
  o.validation = 0.15;
  Samples samples(data.provided(), o);
  EXPECT_EQ(samples.count("validation"), 15);
  EXPECT_EQ(samples.count("train"), 85);
  const auto train = epoch(samples, "train", 0), held = epoch(samples, "validation", 0);
  std::set<int64_t> both(train.begin(), train.end());
  both.insert(held.begin(), held.end());
  EXPECT_EQ(both.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(held));
  EXPECT_NE(held.back(), 14) << "drawn, not the first ones";
  EXPECT_EQ(samples.micro("validation", 0).split, "train");
}

TEST(Samples, TheDatasOwnValidationComesFirst) {
  Data data;
  data.validation = 20;
  SampleOptions o = options();
  o.validation = 0.5;
  Samples samples(data.provided(), o);
  EXPECT_EQ(samples.count("train"), 100);
  EXPECT_EQ(samples.count("validation"), 20);
  EXPECT_EQ(samples.micro("validation", 0).split, "validation");
}

TEST(Samples, OfAnEvaluationOnSomeAreDrawn) {
  Data data;
  data.validation = 1000;
  SampleOptions o = options();
  o.eval_samples = 50;
  Samples samples(data.provided(), o);
  const auto some = epoch(samples, "validation", 0);
  EXPECT_EQ(some.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(some));
  EXPECT_GT(some.back(), 500) << "not the first ones only";
}

TEST(Samples, RanksShareAnEpochWithoutOverlap) {
  Data data;
  std::multiset<int64_t> all;
  for (int rank = 0; rank < 3; ++rank) {
    SampleOptions o = options();
    o.rank = rank;
    o.ranks = 3;
    Samples samples(data.provided(), o);
    EXPECT_EQ(samples.micros_per_epoch("train"), 5);
    const auto own = epoch(samples, "train", 0);
    all.insert(own.begin(), own.end());
  }
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 100u);
}

// Together they take what one rank takes that has micro-batches as large as all of theirs; nobody is left without a
// call to make.
TEST(Samples, RanksTakeOneOrderTogether) {
  Data data;
  data.train = 37;
  SampleOptions o = options();
  o.micro_batch_size = 12;
  Samples joint(data.provided(), o);
  for (o.ranks = 1; o.ranks <= 4; ++o.ranks) {
    o.micro_batch_size = 12 / o.ranks;
    for (int64_t index = 0; index < 8; ++index) {
      const Samples::Micro whole = joint.micro("train", index);
      std::vector<int64_t> theirs;
      int n_filled = 0;
      for (o.rank = 0; o.rank < o.ranks; ++o.rank) {
        Samples own(data.provided(), o);
        const Samples::Micro part = own.micro("train", index);
        EXPECT_GE(part.n, 1U);
        n_filled += part.is_fill;
        if (!part.is_fill) theirs.insert(theirs.end(), part.numbers(), part.numbers() + part.n);
      }
      EXPECT_EQ(theirs, std::vector<int64_t>(whole.numbers(), whole.numbers() + whole.n));
      EXPECT_EQ(n_filled, index % 4 == 3 ? o.ranks - 1 : 0) << "one sample is left of thirty-seven";
    }
  }
}

TEST(Samples, OneAtLeastIsHeldOutAndOneStaysToTrain) {
  Data data;
  SampleOptions o = options();
  o.validation = 0.001;
  Samples few(data.provided(), o);
  EXPECT_EQ(few.count("validation"), 1);
  EXPECT_EQ(few.count("train"), 99);
  o.validation = 0.999;
  Samples most(data.provided(), o);
  EXPECT_EQ(most.count("validation"), 99);
  EXPECT_EQ(most.count("train"), 1);
}

TEST(Samples, WhatIsLeftToTrainOnStandsAsItWas) {
  Data data;
  SampleOptions o = options();
  o.shuffle = false;
  o.validation = 0.15;
  Samples samples(data.provided(), o);
  EXPECT_TRUE(std::ranges::is_sorted(epoch(samples, "train", 0)));
}

// A share of the samples to train on is evaluated on: they are asked for although nothing is trained, and a run that
// goes on notices that they are others.
TEST(Samples, WhatIsHeldOutIsOfTheSamplesToTrainOn) {
  Data data;
  SampleOptions o = options();
  o.train = false;
  o.validation = 0.15;
  Samples held(data.provided(), o);
  EXPECT_EQ(held.count("validation"), 15);
  EXPECT_EQ(held.fingerprint("validation"), "of train");
  o.split = "test";
  EXPECT_EQ(Samples(data.provided(), o).count("validation"), 0) << "a share is no substitute for another split";
}

// With the same bits, the first of the first epoch would be just those that are held out of another run of that seed.
TEST(Samples, WhatIsHeldOutAndTheOrderAreDrawnApart) {
  Data data;
  SampleOptions o = options();
  std::vector<int64_t> order = epoch(*std::make_unique<Samples>(data.provided(), o), "train", 0);
  o.validation = 0.15;
  Samples samples(data.provided(), o);
  order.resize(15);
  EXPECT_NE(sorted(order), epoch(samples, "validation", 0));
}

TEST(Samples, TooFewOrTooManyAreRefused) {
  Data data;
  const auto status = [&](int64_t samples) -> mortise_status {
    data.train = samples;
    try {
      Samples(data.provided(), options());
    } catch (const PluginError& e) {
      return e.status();
    }
    return MORTISE_OK;
  };
  EXPECT_EQ(status(0), MORTISE_E_DATA);
  EXPECT_EQ(status(int64_t{1} << 40), MORTISE_E_DATA);
  // No data is like that: the plugin is wrong.
  EXPECT_EQ(status((int64_t{1} << 40) + 1), MORTISE_E_PLUGIN);
  EXPECT_EQ(status(-1), MORTISE_E_PLUGIN);
}

}  // namespace
}  // namespace mortise
