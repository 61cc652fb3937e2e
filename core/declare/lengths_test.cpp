#include "core/declare/lengths.hpp"

#include <gtest/gtest.h>

#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

Value amount(double number, Unit unit) {
  Value v;
  v.data = Amount{number, unit};
  return v;
}

Lengths lengths() {
  Lengths l;
  l.steps_per_epoch = 25;
  l.samples_per_step = 8;
  l.tokens_per_step = 1024;
  l.run = 1000;
  return l;
}

TEST(Lengths, CountEveryUnitInSteps) {
  EXPECT_EQ(lengths().steps(amount(300, Unit::kSteps), "run.length"), 300);
  EXPECT_EQ(lengths().steps(amount(3, Unit::kEpochs), "run.length"), 75);
  EXPECT_EQ(lengths().steps(amount(800, Unit::kSamples), "run.length"), 100);
  EXPECT_EQ(lengths().steps(amount(10240, Unit::kTokens), "run.length"), 10);
  EXPECT_EQ(lengths().steps(amount(6, Unit::kPercent), "schedule.warmup"), 60);
}

TEST(Lengths, AreRoundedUpAndNeverLessThanOneForSomething) {
  EXPECT_EQ(lengths().steps(amount(801, Unit::kSamples), "run.length"), 101);
  EXPECT_EQ(lengths().steps(amount(0.01, Unit::kEpochs), "run.length"), 1);
  EXPECT_EQ(lengths().steps(amount(0, Unit::kSteps), "schedule.warmup"), 0);
}

std::string refused(const Lengths& l, const Value& v) {
  try {
    l.steps(v, "run.length");
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "wrong_unit");
    return f.diagnostic.message;
  }
  return "";
}

TEST(Lengths, RefuseWhatCannotBeCounted) {
  EXPECT_EQ(refused(lengths(), amount(1e300, Unit::kEpochs)), "run.length is more than 2^53 steps");
  EXPECT_EQ(refused(lengths(), amount(60, Unit::kSeconds)), "run.length is a time; the schedule needs steps");
  Lengths without_tokens = lengths();
  without_tokens.tokens_per_step = 0;
  EXPECT_EQ(refused(without_tokens, amount(5, Unit::kTokens)), "run.length is in tokens, and this data counts none");
}

TEST(Lengths, APeriodIsOfStepsOrOfTheClock) {
  EXPECT_EQ(lengths().period(amount(2, Unit::kEpochs), "eval.every").steps, 50);
  EXPECT_EQ(lengths().period(amount(90, Unit::kSeconds), "eval.every").seconds, 90);
  EXPECT_EQ(lengths().period(Value(), "eval.every").steps, 0);
}

}  // namespace
}  // namespace mortise
