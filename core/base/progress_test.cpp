#include "core/base/progress.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace mortise {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// What is written while three of four files of 100 bytes are worked on, and then the work ends.
std::string written(bool redrawn, std::chrono::duration<double> after, std::chrono::duration<double> between) {
  std::ostringstream out;
  const ProgressScreen before = progress_screen();
  progress_screen() = {&out, redrawn, after, between};
  {
    ProgressLine progress("checking 4 files", 400);
    for (int i = 0; i < 3; ++i) progress.add(100);
  }
  progress_screen() = before;
  return out.str();
}

TEST(Progress, IsRedrawnOnATerminalAndGoneAtTheEnd) {
  EXPECT_EQ(written(true, seconds(0), seconds(0)),
            "\rchecking 4 files  25 %\x1b[K\rchecking 4 files  50 %\x1b[K\rchecking 4 files  75 %\x1b[K\r\x1b[K");
}

TEST(Progress, IsOneLineWhereNothingCanBeRedrawn) {
  EXPECT_EQ(written(false, seconds(0), seconds(0)), "checking 4 files  25 %\n");
}

TEST(Progress, IsDrawnSoOftenAndNoMore) {
  EXPECT_EQ(written(true, seconds(0), hours(1)), "\rchecking 4 files  25 %\x1b[K\r\x1b[K");
}

TEST(Progress, OfShortWorkIsNotSaid) { EXPECT_EQ(written(true, hours(1), seconds(0)), ""); }

TEST(Progress, SaysHowLongItWillTake) {
  std::ostringstream out;
  const ProgressScreen before = progress_screen();
  progress_screen() = {&out, false, std::chrono::milliseconds(20), seconds(0)};
  ProgressLine progress("loading", 1000);
  while (out.str().empty()) progress.add(0), progress.add(out.str().empty() ? 0 : 1);
  EXPECT_EQ(out.str(), "loading  0 %\n");  // nothing is done: nothing can be said
  out.str("");
  ProgressLine second("loading", 1000000);
  second.add(1);
  while (out.str().empty()) second.add(0);
  EXPECT_EQ(out.str().substr(0, 14), "loading  0 %  ") << out.str();
  EXPECT_TRUE(out.str().ends_with("s left\n")) << out.str();
  progress_screen() = before;
}

}  // namespace
}  // namespace mortise
