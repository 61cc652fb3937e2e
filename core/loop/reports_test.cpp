#include "core/loop/reports.hpp"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace mortise {
namespace {

at::Tensor scalar(double v) { return at::full({}, v, at::kDouble); }

void push(Reports& reports, int64_t n) {
  StepReport begun;
  begun.attempted = n;
  begun.tokens = 100 + n;
  const auto v = static_cast<double>(n);
  reports.push(begun, {scalar(n % 2 == 0 ? 1 : 0), scalar(v + 0.25), scalar(v + 0.5), scalar(v + 0.75), {}});
}

// Which steps came at once after each push, then which were left at the end.
std::vector<std::vector<int64_t>> taken(int depth, int64_t n) {
  Reports reports(depth);
  std::vector<std::vector<int64_t>> all;
  for (int64_t i = 0; i <= n; ++i) {
    if (i < n) push(reports, i);
    auto& now = all.emplace_back();
    while (const auto r = reports.take(i == n)) now.push_back(r->attempted);
  }
  EXPECT_EQ(reports.under_way(), 0);
  return all;
}

using Taken = std::vector<std::vector<int64_t>>;

TEST(Reports, ComeLateByTheDepthInOrderAndAllOfThem) {
  EXPECT_EQ(taken(0, 4), (Taken{{0}, {1}, {2}, {3}, {}}));
  EXPECT_EQ(taken(1, 4), (Taken{{}, {0}, {1}, {2}, {3}}));
  EXPECT_EQ(taken(2, 4), (Taken{{}, {}, {0}, {1}, {2, 3}}));
  EXPECT_EQ(taken(2, 1), (Taken{{}, {0}}));
}

TEST(Reports, SayWhatTheDeviceFound) {
  Reports reports(0);
  push(reports, 2);
  push(reports, 3);
  const StepReport applied = *reports.take(true), skipped = *reports.take(true);
  EXPECT_TRUE(applied.applied);
  EXPECT_EQ(applied.loss, 2.25);
  EXPECT_EQ(applied.norm, 2.5);
  EXPECT_EQ(applied.lr, 2.75);
  EXPECT_EQ(applied.tokens, 102);
  EXPECT_FALSE(skipped.applied);
  EXPECT_EQ(reports.take(true), std::nullopt);
}

TEST(Reports, NameTheMetrics) {
  Reports reports(0);
  reports.push({},
               {scalar(1), scalar(0), scalar(0), scalar(0), {{"accuracy", "", scalar(0.5)}, {"z", "ms", scalar(7)}}});
  using Metrics = std::vector<Reported<double>>;
  EXPECT_EQ(reports.take(true)->metrics, (Metrics{{"accuracy", "", 0.5}, {"z", "ms", 7}}));
}

// The next step writes into the same scalars before this one is read.
TEST(Reports, KeepWhatWasPushed) {
  Reports reports(1);
  const at::Tensor verdict = scalar(0), loss = scalar(4);
  reports.push({}, {verdict, loss, scalar(0), scalar(0), {}});
  verdict.fill_(1);
  loss.fill_(9);
  const StepReport r = *reports.take(true);
  EXPECT_FALSE(r.applied);
  EXPECT_EQ(r.loss, 4);
}

// In milliseconds; a sleep is never shorter than it was asked to be.
TEST(Reports, KnowHowLongStepsWaited) {
  Reports reports(1);
  const auto wait = [&](
                        int ms, const std::function<void()>& inside = [] {}) {
    reports.wait(at::kCPU, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      inside();
    });
  };
  wait(600);  // before the first step
  reports.start();
  wait(0, [&] { wait(300); });  // once
  push(reports, 0);
  wait(30);  // between two steps
  reports.start();
  push(reports, 1);
  reports.pause();
  wait(600);
  reports.start();
  push(reports, 2);
  for (const auto& [least, most] : {std::pair(0.3, 0.6), std::pair(0.03, 0.5), std::pair(0.0, 0.5)}) {
    const double waited_s = reports.take(true)->waited_s;
    EXPECT_GE(waited_s, least);
    EXPECT_LT(waited_s, most);
  }
}

}  // namespace
}  // namespace mortise
