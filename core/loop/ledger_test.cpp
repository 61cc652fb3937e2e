#include "core/loop/test_run.hpp"

#include <cmath>

namespace mortise::testing {
namespace {

struct Rates {
  FakeSchedule schedule;
  Horizon horizon;
  std::unique_ptr<Ledger> ledger;
  Rates(Horizon h, std::function<double(double)> factor, std::vector<Group> groups = {{0, 1.0, 0.0}}) : horizon(h) {
    if (factor) schedule.factor = std::move(factor);
    ledger = std::make_unique<Ledger>(c10::Device(c10::kCPU), groups, schedule.provided(), h);
  }
  // The rate of a step, which is then applied or skipped; the host knows of `late` steps less than were begun.
  double step(bool apply = true, int64_t late = 0) {
    ledger->begin_step(attempted, std::max<int64_t>(applied - late, 0));
    ledger->begin_update(at::full({}, true, at::kBool));
    ledger->vote(scalar(apply ? 1 : 0));
    ledger->commit();
    ++attempted;
    applied += apply;
    return ledger->lr[0].item<double>();
  }
  int64_t attempted = 0, applied = 0;
};

TEST(Ledger, WarmsUpInSoManyStepsThenFollowsTheSchedule) {
  Rates rates({4, 8}, [](double progress) { return 1 - progress; });
  std::vector<double> lr;
  for (int i = 0; i < 10; ++i) lr.push_back(rates.step());
  EXPECT_EQ(lr, (std::vector<double>{0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25, 0, 0}));
}

TEST(Ledger, WithoutWarmUpBeginsAtThePeak) {
  Rates rates({0, 4}, [](double progress) { return 1 - progress; });
  EXPECT_EQ(rates.step(), 1);
  EXPECT_EQ(rates.step(), 0.75);
}

TEST(Ledger, AWarmUpLongerThanTheScheduleEndsAtItsEnd) {
  Rates rates({3, 2}, [](double progress) { return progress; });
  for (int i = 0; i < 3; ++i) rates.step();
  EXPECT_EQ(rates.step(), 0);
  EXPECT_EQ(rates.step(), 1) << "one step of schedule at least";
}

TEST(Ledger, RefusesAScheduleThatRemembersItsCalls) {
  int calls = 0;
  const std::string error = error_of([&] { Rates({0, 4}, [&](double) { return 1.0 / ++calls; }).step(); });
  EXPECT_NE(error.find(" gave 1.000000 and then 0.500000 for the same progress"), std::string::npos) << error;
}

// The table is filled again on the way; the device picks its row by its own count, however late the host's is.
TEST(Ledger, ASkippedStepKeepsItsRate) {
  for (const int64_t late : {0, 1, 2}) {
    Rates rates({100, 300}, [](double progress) { return 1 - progress; });
    for (int i = 0; i < 400; ++i) {
      const int64_t a = rates.applied;
      const double expected =
          a < 100 ? (static_cast<double>(a) + 1) / 100 : 1 - std::min((static_cast<double>(a) - 100) / 200, 1.0);
      ASSERT_DOUBLE_EQ(rates.step(i % 7 != 3, late), expected) << "step " << i << ", " << late << " late";
    }
    EXPECT_EQ(rates.ledger->applied.item<int64_t>(), rates.applied);
  }
}

TEST(Ledger, HasARateAndADecayForEachGroup) {
  Rates rates({2, 10}, nullptr, {{0, 1.0, 0.1}, {1, 0.5, 0.0}});
  rates.step();
  EXPECT_EQ(rates.ledger->lr[0].item<double>(), 0.5);
  EXPECT_EQ(rates.ledger->lr[1].item<double>(), 0.25);
  EXPECT_EQ(rates.ledger->weight_decay[0].item<double>(), 0.1);
  EXPECT_EQ(rates.ledger->weight_decay[1].item<double>(), 0.0);
  EXPECT_EQ(rates.ledger->c().n_groups, 2u);
}

TEST(Ledger, RefusesAFactorOutsideOfThePeak) {
  for (const double factor : {50.0, -0.1, std::nan("")}) {
    Rates rates({0, 10}, [=](double) { return factor; });
    EXPECT_NE(error_of([&] { rates.step(); }).find("schedule.fake gave the factor "), std::string::npos) << factor;
  }
}

TEST(Ledger, RefusesAScheduleThatSaysNothing) {
  Rates rates({0, 10}, nullptr);
  rates.schedule.speaks = false;
  EXPECT_NE(error_of([&] { rates.step(); }).find("schedule.fake gave the factor nan"), std::string::npos);
}

TEST(Ledger, MultipliesOverOneToTheScaleAnewInEachStep) {
  Rates rates({0, 10}, nullptr);
  rates.ledger->scale.fill_(8);
  rates.step();
  EXPECT_EQ(rates.ledger->multiplier.item<double>(), 0.125);
  rates.ledger->multiply(scalar(0.5));
  rates.ledger->multiply(scalar(0.5));
  EXPECT_EQ(rates.ledger->multiplier.item<double>(), 0.125 / 4);
  rates.step();
  EXPECT_EQ(rates.ledger->multiplier.item<double>(), 0.125) << "factors are of one step";
}

TEST(Ledger, AVoteIsOfAnyTypeAndNotANumberIsAVoteAgainst) {
  Rates rates({0, 10}, nullptr);
  rates.ledger->begin_step(0, 0);
  rates.ledger->begin_update(at::full({}, true, at::kBool));
  rates.ledger->vote(at::full({}, true, at::kBool));  // what isfinite gives
  rates.ledger->vote(at::full({}, -2, at::kLong));
  EXPECT_EQ(rates.ledger->verdict.item<double>(), 1);
  rates.ledger->vote(scalar(std::nan("")));
  EXPECT_EQ(rates.ledger->verdict.item<double>(), 0);
}

TEST(Ledger, AStepThatHasNothingToLearnIsSkippedWhateverTheVotes) {
  Rates rates({0, 10}, nullptr);
  rates.ledger->begin_step(0, 0);
  rates.ledger->begin_update(at::full({}, false, at::kBool));
  rates.ledger->vote(scalar(1));
  rates.ledger->commit();
  EXPECT_EQ(rates.ledger->applied.item<int64_t>(), 0);
}

TEST(Ledger, OneVoteAgainstSkips) {
  Rates rates({0, 10}, nullptr);
  rates.ledger->begin_step(0, 0);
  rates.ledger->begin_update(at::full({}, true, at::kBool));
  for (const double vote : {1, 0, 1}) rates.ledger->vote(scalar(vote));
  rates.ledger->commit();
  EXPECT_EQ(rates.ledger->applied.item<int64_t>(), 0);
  rates.ledger->begin_update(at::full({}, true, at::kBool));
  EXPECT_EQ(rates.ledger->verdict.item<double>(), 1) << "a vote is of one step";
}

// Steps are counted and gradients multiplied by it.
TEST(Ledger, AVoteIsZeroOrOneWhateverItsNumber) {
  Rates rates({}, {});
  const auto verdict = [&](double vote) {
    rates.ledger->begin_update(at::full({}, true, at::kBool));
    rates.ledger->vote(scalar(vote));
    return rates.ledger->verdict.item<double>();
  };
  EXPECT_EQ(verdict(0.25), 1);
  EXPECT_EQ(verdict(-3), 1);
  EXPECT_EQ(verdict(INFINITY), 1);
  EXPECT_EQ(verdict(NAN), 0);
  EXPECT_EQ(verdict(-0.0), 0);
}

TEST(Ledger, GoesOnWhereItWas) {
  Rates rates({4, 8}, [](double progress) { return 1 - progress; });
  for (int i = 0; i < 3; ++i) rates.step();
  rates.ledger->restore(6, 4.0);
  rates.attempted = 9;
  rates.applied = 6;
  EXPECT_EQ(rates.ledger->applied.item<int64_t>(), 6);
  EXPECT_EQ(rates.step(), 0.5);
  EXPECT_EQ(rates.ledger->multiplier.item<double>(), 0.25);
}

}  // namespace
}  // namespace mortise::testing
