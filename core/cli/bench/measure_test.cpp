#include "core/cli/bench/measure.hpp"

#include <gtest/gtest.h>

namespace mortise::cli {
namespace {

constexpr const char* kRun = R"({"event":"run","device":"device.cpu, 2 threads"})";
constexpr const char* kEnd = R"({"event":"end","exit":0,"seconds":4.0,"loss_first":0.7,"loss_last":0.6})";

std::string step(int n, double rate, int samples, const std::string& more = "") {
  return R"({"event":"step","step":)" + std::to_string(n) + R"(,"of":4,"loss":0.65,"samples_per_s":)" +
         std::to_string(rate) + R"(,"samples":)" + std::to_string(samples) + more + "}";
}

TEST(Meter, LeavesOutTheStepsThatWarmUp) {
  Meter meter(2);
  for (const std::string& line :
       {std::string(kRun), step(1, 0.1, 4), step(2, 0.1, 8), step(3, 10, 12), step(4, 40, 16), std::string(kEnd)})
    meter.take(line);
  Measure row;
  ASSERT_TRUE(meter.finish(row));
  EXPECT_EQ(row.steps, 4);
  EXPECT_EQ(row.samples, 16);
  EXPECT_EQ(row.device, "device.cpu, 2 threads");
  EXPECT_DOUBLE_EQ(*row.samples_per_s, 4) << "16 samples in 4 seconds";
  EXPECT_DOUBLE_EQ(*row.steady_samples_per_s, 16) << "a step at 10 and one at 40: two steps in 1/10 + 1/40";
  EXPECT_DOUBLE_EQ(*row.loss_first, 0.7);
  EXPECT_DOUBLE_EQ(*row.loss_last, 0.6);
  EXPECT_FALSE(row.tokens_per_s);
}

TEST(Meter, WeighsARateByTheStepsThatItIsOf) {
  Meter meter(0);
  for (const std::string& line : {step(3, 10, 12), step(4, 40, 16), std::string(kEnd)}) meter.take(line);
  Measure row;
  ASSERT_TRUE(meter.finish(row));
  EXPECT_DOUBLE_EQ(*row.steady_samples_per_s, 4 / (3.0 / 10 + 1.0 / 40));
}

TEST(Meter, TakesTheMostOfMemoryAndTokensWhereTheyAreCounted) {
  Meter meter(0);
  meter.take(
      step(1, 10, 4, R"(,"tokens_per_s":100,"flop_per_s":5e14,"mfu":0.5,"memory_peak_bytes":5,"gpu.memory_bytes":9)"));
  meter.take(step(2, 10, 8,
                  R"(,"tokens_per_s":300,"flop_per_s":1.5e15,"mfu":1.5,"memory_peak_bytes":4,"gpu.memory_bytes":7)"));
  meter.take(kEnd);
  Measure row;
  ASSERT_TRUE(meter.finish(row));
  EXPECT_EQ(row.memory_peak_bytes, 5);
  EXPECT_EQ(row.nvml_peak_bytes, 9);
  EXPECT_DOUBLE_EQ(*row.tokens_per_s, 150);
  EXPECT_DOUBLE_EQ(*row.flop_per_s, 7.5e14) << "of as many tokens a second";
  EXPECT_DOUBLE_EQ(*row.mfu, 0.75);
}

TEST(Meter, HasNoSteadyRateWhereEveryStepWarmsUp) {
  Meter meter(4);
  for (const std::string& line : {step(4, 10, 16), std::string(kEnd)}) meter.take(line);
  Measure row;
  ASSERT_TRUE(meter.finish(row));
  EXPECT_FALSE(row.steady_samples_per_s);
  EXPECT_DOUBLE_EQ(rate_of(row), 4) << "that of the whole training";
}

TEST(Meter, IsNotMisledByWhatIsNoRecord) {
  Meter meter(0);
  for (const char* line : {"", "{", "[1]", "null", R"({"event":"step","step":1,"samples_per_s":0})",
                           R"({"event":"step","step":1,"skipped":1})"})
    meter.take(line);
  Measure row;
  EXPECT_FALSE(meter.finish(row)) << "no end";
  meter.take(kEnd);
  EXPECT_FALSE(meter.finish(row)) << "no step";
  EXPECT_EQ(meter.progress(), "");
}

TEST(Meter, ALossThatIsNoNumberIsNone) {
  Meter meter(0);
  for (const std::string& line :
       {step(1, 10, 4), std::string(R"({"event":"end","seconds":1,"loss_first":0.7,"loss_last":null})")})
    meter.take(line);
  Measure row;
  ASSERT_TRUE(meter.finish(row));
  EXPECT_FALSE(row.loss_last);
}

TEST(Meter, SaysHowFarARowIs) {
  Meter meter(0);
  meter.take(step(3, 36.4, 12));
  EXPECT_EQ(meter.progress(), "step 3/4  36.4 samples/s  loss 0.650");
}

TEST(Measure, ComesBackFromJsonAsItWas) {
  Measure row{.name = "a",
              .file = "a",
              .key = "k",
              .build = "b",
              .machine = "m",
              .state = "measured",
              .device = "d",
              .steps = 3,
              .samples = 12};
  row.seconds = 1.5;
  row.steady_samples_per_s = 8;
  row.nvml_peak_bytes = int64_t{1} << 40;
  EXPECT_EQ(json_of(measure_of(json_of(row, row)), row)["steady_samples_per_s"], 8);
  Measure back = measure_of(json_of(row, row));
  back.file = row.file;
  EXPECT_EQ(json_of(back, row), json_of(row, row));
  EXPECT_THROW(measure_of(Json::parse(R"({"name":"a"})")), Json::exception);
}

TEST(Measure, HasARatioOnlyWhereBothWereMeasured) {
  Measure a{.state = "measured", .samples_per_s = 4}, b{.state = "measured", .samples_per_s = 6},
      failed{.state = "failed"};
  EXPECT_DOUBLE_EQ(*ratio(b, a), 1.5);
  EXPECT_FALSE(ratio(failed, a));
  EXPECT_FALSE(ratio(a, failed));
}

}  // namespace
}  // namespace mortise::cli
