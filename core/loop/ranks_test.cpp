// What several ranks put together, over a stand-in for the others.
#include "core/loop/ranks.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

#include "core/declare/join.hpp"
#include "core/host/handle.hpp"
#include "core/loop/test_comm.hpp"
#include "core/loop/test_trainings.hpp"

namespace mortise {
namespace {

using testing::error_of;
using testing::FakeComm;
using testing::scalar;
using testing::Steps;

struct RanksTest : ::testing::Test {
  RanksTest() { comm.join(services); }
  FakeComm comm;
  Services services;
  Ranks ranks{services};
};

TEST_F(RanksTest, AddCountsUpByTheirUnits) {
  comm.other = [](int64_t own, size_t i) { return i == 0 ? 3 : i == 1 ? 40 : own; };
  Counts counts = {{"samples", 4}, {"tokens", 60}};
  ranks.sum(counts, "loss by tokens");
  EXPECT_EQ(counts, (Counts{{"samples", 7}, {"tokens", 100}}));
}

TEST_F(RanksTest, CountWhatSeveralSeeOnce) {
  services.mesh = Mesh(0, 2, {{.name = "tensor", .by = "", .size = 2, .shares_data = true}});
  services.groups.data = reinterpret_cast<mortise_rank_group*>(this);
  Counts counts = {{"samples", 4}};
  ranks.sum(counts, "");
  EXPECT_EQ(counts, (Counts{{"samples", 4}}));
  ranks.sum_of_samples({scalar(1)});
  EXPECT_EQ(comm.group, services.groups.data);
  ranks.sum(std::vector<at::Tensor>{scalar(1)});
  EXPECT_EQ(comm.group, nullptr) << "of all ranks";
}

TEST_F(RanksTest, CompareUnitsAndTerms) {
  std::set<int64_t> sent;
  comm.other = [&](int64_t own, size_t i) {
    if (i == 32) sent.insert(own);
    return own;
  };
  for (const auto& [unit, terms] :
       {std::pair("samples", "loss"), std::pair("tokens", "loss"), std::pair("tokens", "")}) {
    Counts counts = {{unit, 4}};
    ranks.sum(counts, terms);
  }
  EXPECT_EQ(sent.size(), 3U);
}

TEST_F(RanksTest, RefuseOtherUnitsOrTerms) {
  comm.other = [](int64_t own, size_t i) { return i == 32 ? own + 1 : own; };
  Counts counts = {{"samples", 4}};
  EXPECT_EQ(error_of([&] { ranks.sum(counts, "loss by tokens"); }),
            "the ranks do not do the same: this one counts loss by tokens samples");
  Counts many;
  for (int i = 0; i < 33; ++i) many["unit " + std::to_string(i)] = 1;
  EXPECT_EQ(error_of([&] { ranks.sum(many, ""); }),
            "the data counts 33 units; of several ranks at most 32 are put together");
}

TEST_F(RanksTest, SayThatOneIsLostWithoutAskingTheOthers) {
  comm.other = [](int64_t, size_t) { return ADD_FAILURE() << "there is nothing to send", 0; };
  services.must_be_there();
  EXPECT_EQ(comm.calls, 1);
  comm.status = MORTISE_E_LOST;
  EXPECT_NE(error_of([&] { services.must_be_there(); }), "");
  services.world.size = 1;
  services.must_be_there();
}

TEST_F(RanksTest, AddScalarsUpWhereTheyAre) {
  comm.meet = [](const at::Tensor& own, uint32_t) { own.add_(10); };
  const at::Tensor a = scalar(1), b = scalar(2);
  ranks.sum(std::vector<at::Tensor>{a, b});
  EXPECT_EQ(a.item<double>(), 11);
  EXPECT_EQ(b.item<double>(), 12);
  EXPECT_EQ(comm.calls, 1) << "in one piece";
}

TEST_F(RanksTest, SendAsManySumsWhateverTermsTheyHave) {
  comm.meet = [](const at::Tensor& own, uint32_t) {
    EXPECT_EQ(own.numel(), 64);
    own.add_(10);
  };
  const at::Tensor a = scalar(1), b = scalar(2);
  ranks.sum_of_samples({a, b});
  ranks.sum_of_samples({a});
  EXPECT_EQ(a.item<double>(), 21);
  EXPECT_EQ(b.item<double>(), 12);
  EXPECT_EQ(error_of([&] { ranks.sum_of_samples(std::vector<at::Tensor>(65, a)); }),
            "the model has 65 terms; of several ranks at most 64 are put together");
}

TEST_F(RanksTest, TakeTheStrongestWish) {
  comm.other = [](int64_t, size_t) { return 5; };
  EXPECT_EQ(ranks.most(2), 5);
  EXPECT_EQ(ranks.most(7), 7);
}

TEST_F(RanksTest, KnowTheNumbersOfEach) {
  services.world.rank = 1;
  comm.other = [](int64_t own, size_t i) {
    EXPECT_EQ(own, (std::vector<int64_t>{0, 7, 0, -8}.at(i)));
    return std::vector<int64_t>{5, 0, 6, 0}.at(i);
  };
  EXPECT_EQ(ranks.of_each({7, -8}), (std::vector<std::vector<int64_t>>{{5, 7}, {6, -8}}));
}

TEST_F(RanksTest, NameTheFirstThatHasOtherBits) {
  const std::vector<std::pair<std::string, at::Tensor>> all = {{"a", at::full({3}, -0.5, at::kFloat)},
                                                               {"b", at::full({2}, 0.5, at::kBFloat16)},
                                                               {"c", at::full({2}, 7, at::kByte)}};
  EXPECT_EQ(ranks.first_unlike(all), "");
  for (const size_t unlike : {1U, 2U}) {
    comm.differ_in(unlike);
    EXPECT_EQ(ranks.first_unlike(all), all[unlike].first);
  }
  comm.other = [](int64_t own, size_t) { return own + 1; };
  EXPECT_EQ(error_of([&] { ranks.first_unlike(all); }),
            "the ranks do not have the same tensors whole, of which this one has 3: a plugin places a parameter, or "
            "keeps something, on some of them alone");
}

TEST_F(RanksTest, TellTensorsOfOtherNames) {
  const auto first_sent = [&](const std::string& name) {
    std::optional<int64_t> sent;
    comm.other = [&](int64_t own, size_t) { return sent = sent.value_or(own), own; };
    EXPECT_EQ(ranks.first_unlike({{name, at::ones({2})}}), "");
    return sent.value_or(0);
  };
  EXPECT_NE(first_sent("w"), first_sent("v"));
  EXPECT_EQ(first_sent("w"), first_sent("w"));
}

// What this rank sends of a tensor, of which the ranks are to have the same.
TEST_F(RanksTest, TellRowsThatChangedPlaces) {
  const auto sent_of = [&](const at::Tensor& t) {
    int64_t sent = 0;
    comm.other = [&](int64_t own, size_t i) { return i == 0 ? sent = own : own; };
    ranks.first_unlike({{"w", t}});
    return sent;
  };
  for (const auto& [rows, columns] : {std::pair{3, 2}, std::pair{700, 768}, std::pair{5, 1021}}) {
    const at::Tensor w = at::arange(rows * columns, at::kFloat).view({rows, columns});
    EXPECT_EQ(sent_of(w), sent_of(w.clone()));
    at::Tensor swapped = w.clone();
    swapped[0][0] = w[0][1], swapped[0][1] = w[0][0];
    EXPECT_NE(sent_of(w), sent_of(swapped)) << columns;
    EXPECT_EQ(sent_of(w) == sent_of(w.flip(0)), columns == 1021) << columns;
  }
}

// A plugin that votes sees its own rank's numbers; masters that only one rank updated would part for good.
TEST(RanksOfAStep, AVoteOnAnotherRankSkipsItHereToo) {
  FakeComm comm;
  testing::TestRun run;
  comm.join(run.host.services);
  run.build();
  const double before = run.value();
  comm.meet = [](const at::Tensor& own, uint32_t op) { op == MORTISE_MIN ? own.zero_() : own.mul_(2); };
  EXPECT_FALSE(run.run().applied);
  EXPECT_EQ(run.value(), before);
  comm.meet = [](const at::Tensor& own, uint32_t op) {
    if (op == MORTISE_SUM) own.mul_(2);
  };
  EXPECT_TRUE(run.run().applied);
  EXPECT_NE(run.value(), before);
}

// A run that gives one more term where a test says so, and what the ranks compare of the terms.
struct TermsThatChange {
  TermsThatChange() {
    comm.join(run.host.services);
    comm.other = [this](int64_t own, size_t i) {
      if (comm.asked == 33 && i == 32) hashes.push_back(own);
      return own;
    };
    run.terms = [this, loss = run.terms](mortise_call& call, const at::Tensor& w, const at::Tensor& x) {
      loss(call, w, x);
      if (gives_more) run.term("more", w.sum());
    };
    run.data.validation = 2;
    run.build();
  }
  FakeComm comm;
  testing::TestRun run;
  std::vector<int64_t> hashes;
  bool gives_more = false;
};

// Terms that only some ranks give in a step would be added up beside others.
TEST(RanksOfAStep, SayWhichTermsTheyGive) {
  TermsThatChange a;
  for (const bool more : {false, false, true, true, false, false}) {
    a.gives_more = more;
    a.run.run();
  }
  ASSERT_EQ(a.hashes.size(), 6U) << "each of what the step before gave";
  EXPECT_EQ(a.hashes[1], a.hashes[2]);
  EXPECT_NE(a.hashes[2], a.hashes[3]) << "one more term";
  EXPECT_EQ(a.hashes[3], a.hashes[4]);
  EXPECT_NE(a.hashes[4], a.hashes[5]) << "which was not given";
}

TEST(RanksOfAStep, SayWhichTermsTheyMeasured) {
  TermsThatChange a;
  for (const bool more : {false, true}) {
    a.gives_more = more;
    a.run.passes->evaluate();
  }
  ASSERT_EQ(a.hashes.size(), 2U);
  EXPECT_NE(a.hashes[0], a.hashes[1]);
}

// What a lost rank was to send to a device is whatever the memory had, and nobody else says so.
TEST(RanksOfAStep, MeasureNothingOfTheLost) {
  FakeComm comm;
  testing::TestRun run;
  comm.join(run.host.services);
  run.data.validation = 2;
  run.build();
  comm.has_lost = true;
  EXPECT_NE(error_of([&] { run.passes->evaluate(); }), "");
}

TEST(RanksOfAStep, SayHowManyMicroBatchesItHas) {
  std::vector<int64_t> hashes;
  for (const int window : {1, 2}) {
    FakeComm comm;
    testing::TestRun run;
    comm.join(run.host.services);
    comm.other = [&](int64_t own, size_t i) {
      if (comm.asked == 33 && i == 32) hashes.push_back(own);
      return own;
    };
    run.build({.window = window});
    run.run();
  }
  ASSERT_EQ(hashes.size(), 2U);
  EXPECT_NE(hashes[0], hashes[1]);
}

// This is rank 0, which has used 1 byte, 2 at most (FakeDevice).
struct RanksOfATraining : testing::Trainings {
  static constexpr size_t kWaited = 1, kUsed = 3, kPeak = 5;  // where the other's numbers stand in what is exchanged
  void SetUp() override {
    Trainings::SetUp();
    comm.join(run.host.services);
    options.log_every = {2, 0};
    options.hosts = {"a", "b"};
    comm.other = [this](int64_t own, size_t i) {
      if (comm.asked == 33 && i == 32) std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      if (comm.asked != 6) return own;
      ++exchanges;
      return i == kWaited ? other_waited_ns : i == kUsed ? 20 : i == kPeak ? other_peak : 0;
    };
  }
  FakeComm comm;
  int wait_ms = 0, exchanges = 0;
  int64_t other_waited_ns = 0, other_peak = 30;
};

TEST_F(RanksOfATraining, TheSlowestIsTheOneThatWaitsLeast) {
  wait_ms = 20;  // for the counts of the other one, in each step
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(of("run").at(0).numbers.at("hosts"), 2);
  EXPECT_EQ(exchanges, 3 * 6) << "of the steps that are due";
  EXPECT_FALSE(of("step").at(0).numbers.contains("slowest_rank"));
  const auto found = of("step").at(3);
  EXPECT_EQ(found.numbers.at("slowest_rank"), 1);
  EXPECT_EQ(found.texts.at("slowest_host"), "b");
  EXPECT_GE(found.numbers.at("slowest_lag_s"), 0.02);
  EXPECT_GT(found.numbers.at("slowest_lag_share"), 0.05);
  EXPECT_LE(found.numbers.at("slowest_lag_share"), 1);
}

TEST_F(RanksOfATraining, ThisRankIsTheSlowestWhereTheOtherWaits) {
  other_waited_ns = 10'000'000'000;
  EXPECT_EQ(train(), kExitOk);
  const auto found = of("step").at(3);
  EXPECT_EQ(found.numbers.at("slowest_rank"), 0);
  EXPECT_EQ(found.texts.at("slowest_host"), "a");
  EXPECT_NEAR(found.numbers.at("slowest_lag_s"), 5, 1) << "of two steps";
  EXPECT_EQ(found.numbers.at("slowest_lag_share"), 1) << "by another clock";
}

// Whoever hears of a signal within a second of a save that it asked for has its answer.
TEST_F(RanksOfATraining, ASaveAnswersEveryRank) {
  interrupt = [this] { return attempted() == 2 ? Interrupt::kSave : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 6}));
  EXPECT_GT(asked_since, std::chrono::steady_clock::now()) << "no step took a second";
}

// Only one of them writes.
TEST_F(RanksOfATraining, NobodyIsSlowWhoSaves) {
  options.save_every = {1, 0};
  bool was_saved = false;
  saver_options.format.write = [&](const std::vector<StoredEntry>&, const Sink&) { was_saved = true; };
  const auto others = comm.other;
  comm.other = [&](int64_t own, size_t i) {
    if (comm.asked == 1 && std::exchange(was_saved, false)) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return others(own, i);
  };
  EXPECT_EQ(train(), kExitOk);
  for (const size_t due : {1, 3, 5}) EXPECT_LT(of("step").at(due).numbers.at("slowest_lag_s"), 0.09) << "of 200 ms";
}

TEST_F(RanksOfATraining, SayTheMostMemoryOfAny) {
  EXPECT_EQ(train(), kExitOk);
  auto numbers = of("step").back().numbers;
  EXPECT_EQ(numbers.at("memory_rank"), 1);
  EXPECT_EQ(numbers.at("memory_bytes"), 20);
  EXPECT_EQ(numbers.at("memory_peak_bytes"), 30);
  EXPECT_EQ(numbers.at("memory_total_bytes"), 3);
  options.length = 8;
  other_peak = 1;
  EXPECT_EQ(train_on(), kExitOk);
  numbers = of("step").back().numbers;
  EXPECT_EQ(numbers.at("memory_rank"), 0);
  EXPECT_EQ(numbers.at("memory_peak_bytes"), 2);
}

TEST_F(RanksOfATraining, SaveNothingOfTheLost) {
  comm.has_lost = true;
  EXPECT_THROW(train(), Failure);
  EXPECT_EQ(captured.size(), 0U);
}

// What waits in a recording cannot be timed.
TEST_F(RanksOfATraining, NameNoSlowestWhereStepsAreRecorded) {
  run.host.services.records_steps = true;
  EXPECT_EQ(train(), kExitOk);
  EXPECT_FALSE(run.host.services.timed_wait);
  EXPECT_FALSE(of("step").back().numbers.contains("slowest_rank"));
  EXPECT_EQ(of("step").back().numbers.at("memory_rank"), 1);
}

// Who ended sooner would be taken for lost while others still save.
TEST_F(RanksOfATraining, MeetOnceMoreWhenAllIsSaved) {
  std::vector<std::string> order;
  comm.other = [&](int64_t own, size_t i) {
    if (i == 0) order.emplace_back("they meet");
    return own;
  };
  run.listen(kRecord, [&](const mortise_event& e) { order.emplace_back(view(e.record->kind)); });
  EXPECT_EQ(train(), kExitOk);
  ASSERT_GE(order.size(), 3U);
  EXPECT_EQ(std::vector(order.end() - 3, order.end()), (std::vector<std::string>{"saved", "they meet", "end"}));
}

// Who ends before it says it is heard of at once: fetching, one would wait for the timeout.
TEST_F(RanksTest, MeetBeforeTheyFetchWhatOneSays) {
  static std::vector<std::string> order;
  order.clear();
  comm.object.host_all_reduce = [](void*, int64_t*, uint32_t, uint32_t) noexcept {
    return order.emplace_back("meet"), mortise_status{MORTISE_OK};
  };
  comm.object.share = [](void*, mortise_str, mortise_str) noexcept {
    return order.emplace_back("share"), mortise_status{MORTISE_OK};
  };
  comm.object.fetch = [](void*, mortise_str, mortise_str* text) noexcept {
    *text = MORTISE_STR("its");
    return order.emplace_back("fetch"), mortise_status{MORTISE_OK};
  };
  EXPECT_EQ(said_by(services, 1, "key", "own"), "its");
  EXPECT_EQ(said_by(services, 0, "key", "own"), "own");
  EXPECT_EQ(order, (std::vector<std::string>{"meet", "fetch", "share", "meet"}));
}

TEST_F(RanksTest, OfOneNobodyIsAsked) {
  services.world.size = 1;
  Counts counts = {{"samples", 4}};
  ranks.sum(counts, "");
  ranks.sum(std::vector<at::Tensor>{scalar(1)});
  EXPECT_EQ(ranks.first_unlike({{"a", scalar(1)}}), "");
  EXPECT_EQ(ranks.most(3), 3);
  EXPECT_EQ(ranks.of_each({3, 4}), (std::vector<std::vector<int64_t>>{{3}, {4}}));
  EXPECT_EQ(comm.calls, 0);
}

}  // namespace
}  // namespace mortise
