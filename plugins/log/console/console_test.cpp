#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

// Of the environment of whoever runs the tests, nothing.
struct Variables {
  explicit Variables(std::map<std::string, std::string> set) {
    for (const char* name : {"TERM", "NO_COLOR", "CLICOLOR_FORCE"})
      set.contains(name) ? setenv(name, set[name].c_str(), 1) : unsetenv(name);
  }
};

class Console : public ::testing::Test {
 protected:
  // What is printed for a record.
  std::string printed(FakeRecord record, const char* point = "record") {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(plugin_.notify(point, record), MORTISE_OK);
    return ::testing::internal::GetCapturedStdout();
  }
  static FakeRecord step(int number, int of) {
    return FakeRecord("step").add("step", number).add("of", of).add("due", 1).add("skipped", 0);
  }

  Variables variables_{{}};
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
};

TEST_F(Console, BeginsWithWhatRunsOnWhat) {
  FakeRecord run =
      FakeRecord("run")
          .add("run", "quickstart -> runs/quickstart")
          .add("dir", "/somewhere/runs/quickstart")
          .add("model", "model.gpt 0.9 M parameters · data.text README.md, 61,204 tokens (tokenizer.byte)")
          .add("device",
               "device.cpu, 2 threads        device.cuda cannot run here: no NVIDIA driver; fallback of default.toml:4")
          .add("batch", "8 samples × 128 tokens (8 a device × 1 accumulated × 1 rank) · 300 steps")
          .add("parameters", 900000);
  EXPECT_EQ(
      printed(run, "run.begin"),
      "run     quickstart -> runs/quickstart\n"
      "model   model.gpt 0.9 M parameters · data.text README.md, 61,204 tokens (tokenizer.byte)\n"
      "device  device.cpu, 2 threads        device.cuda cannot run here: no NVIDIA driver; fallback of default.toml:4\n"
      "batch   8 samples × 128 tokens (8 a device × 1 accumulated × 1 rank) · 300 steps\n");
}

TEST_F(Console, SaysItsBeginningAndItsEndOnceHoweverOftenTheyAreTold) {
  EXPECT_EQ(printed(FakeRecord("run").add("run", "a -> runs/a"), "run.begin"), "run     a -> runs/a\n");
  EXPECT_EQ(printed(FakeRecord("run").add("run", "a -> runs/a")), "");
  EXPECT_EQ(printed(FakeRecord("end").add("steps", 1).add("exit", 0)), "done    1 step\n");
  EXPECT_EQ(printed(FakeRecord("end").add("steps", 1).add("exit", 0), "run.end"), "");
}

TEST_F(Console, PrintsAStepAsTheManualShowsIt) {
  EXPECT_EQ(
      printed(step(1200, 5000)
                  .add("loss", 3.412)
                  .add("lr", 3e-4)
                  .add("grad_norm", 0.71)
                  .add("tokens_per_s", 412031.0)
                  .add("samples_per_s", 402.0)
                  .add("throughput_unit", "tok")
                  .add("flop_per_s", 353.2e12)
                  .add("mfu", 0.357)
                  .add("memory_bytes", int64_t{13} << 30)
                  .add("memory_total_bytes", int64_t{139} << 30)
                  .add("data_wait_share", 0.004)
                  .add("left_s", 724.0)),
      "step    1200/5000  loss 3.412  lr 3.0e-04  grad 0.71  412k tok/s  353 TFLOP/s (36%)  mem 13/139 GiB  12m04s "
      "left\n");
  EXPECT_EQ(printed(step(10, 300)
                        .add("loss", 4.812)
                        .add("lr", 1e-3)
                        .add("grad_norm", 2.31)
                        .add("tokens_per_s", 9811.0)
                        .add("left_s", 31.2)),
            "step    10/300  loss 4.812  lr 1.0e-03  grad 2.31  9.8k tok/s  31s left\n");
}

TEST_F(Console, SaysWhenTheDeviceWaitsForData) {
  EXPECT_EQ(printed(step(1, 2).add("loss", 1.0).add("data_wait_share", 0.28).add("left_s", 4.4)),
            "step    1/2  loss 1.000  waiting for data 28%  4s left\n");
  EXPECT_EQ(printed(step(1, 2).add("data_wait_share", 0.05)), "step    1/2\n");
  // On a device that runs ahead.
  const auto waiting = [&](double data, double idle) {
    return printed(step(1, 2).add("data_wait_share", data).add("idle_share", idle));
  };
  EXPECT_EQ(waiting(0.6, 0.01), "step    1/2\n") << "it had work enough meanwhile";
  EXPECT_EQ(waiting(0.6, 0.3), "step    1/2  waiting for data 30%\n");
  EXPECT_EQ(waiting(0.2, 0.3), "step    1/2  waiting for data 20%\n");
  EXPECT_EQ(waiting(0.01, 0.3), "step    1/2  device idle 30%\n");
}

TEST_F(Console, NamesTheRankForWhichTheOthersWaitMuch) {
  const auto waiting = [&](double seconds, double share) {
    return printed(step(1, 2)
                       .add("slowest_rank", 1)
                       .add("slowest_lag_s", seconds)
                       .add("slowest_lag_share", share)
                       .add("slowest_host", "b")
                       .add("left_s", 4.4));
  };
  EXPECT_EQ(waiting(0.0123, 0.2), "step    1/2  rank 1 is 12 ms behind  4s left\n");
  EXPECT_EQ(waiting(0.0123, 0.05), "step    1/2  4s left\n");
  EXPECT_EQ(waiting(0.0004, 0.2), "step    1/2  rank 1 is 0.4 ms behind  4s left\n");
  EXPECT_EQ(waiting(0.00994, 0.2), "step    1/2  rank 1 is 9.9 ms behind  4s left\n");
  EXPECT_EQ(waiting(0.9996, 0.2), "step    1/2  rank 1 is 1.0s behind  4s left\n");
  printed(FakeRecord("run").add("hosts", 2), "run.begin");
  EXPECT_EQ(waiting(0.0123, 0.2), "step    1/2  rank 1 (host b) is 12 ms behind  4s left\n");
}

TEST_F(Console, SaysNothingOfTheTimeLeftAtTheEnd) {
  EXPECT_EQ(printed(step(2, 2).add("loss", 1.0).add("left_s", 0.0)), "step    2/2  loss 1.000\n");
}

TEST_F(Console, CountsSamplesForClassification) {
  EXPECT_EQ(printed(step(1, 2).add("tokens_per_s", 9e5).add("samples_per_s", 402.3).add("throughput_unit", "samples")),
            "step    1/2  402 samples/s\n");
  EXPECT_EQ(printed(step(1, 2).add("samples_per_s", 3.14)), "step    1/2  3.1 samples/s\n");
}

TEST_F(Console, RoundsCountsUpIntoTheNextUnit) {
  const auto shown = [&](double n) { return printed(step(1, 2).add("tokens_per_s", n)).substr(13); };
  EXPECT_EQ(shown(9.94), "9.9 tok/s\n");
  EXPECT_EQ(shown(9.96), "10 tok/s\n");
  EXPECT_EQ(shown(999.4), "999 tok/s\n");
  EXPECT_EQ(shown(999.6), "1.0k tok/s\n");
  EXPECT_EQ(shown(999600), "1.0M tok/s\n");
  EXPECT_EQ(shown(3.19e6), "3.2M tok/s\n");
  EXPECT_EQ(shown(0), "0.0 tok/s\n");
}

TEST_F(Console, ShowsSmallMemoryInSmallUnitsAndWithoutATotal) {
  EXPECT_EQ(printed(step(1, 2).add("memory_bytes", int64_t{412} << 20)), "step    1/2  mem 412 MiB\n");
  EXPECT_EQ(printed(step(1, 2).add("memory_bytes", int64_t{412} << 20).add("memory_total_bytes", int64_t{8} << 30)),
            "step    1/2  mem 0.4/8.0 GiB\n");
}

TEST_F(Console, IsSilentAboutStepsThatAreNotDue) {
  EXPECT_EQ(printed(FakeRecord("step").add("step", 11).add("due", 0).add("skipped", 0)), "");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 11)), "step    11\n") << "without the column it is";
}

TEST_F(Console, AlwaysPrintsASkippedStepWithItsParameter) {
  EXPECT_EQ(
      printed(FakeRecord("step")
                  .add("step", 1220)
                  .add("of", 5000)
                  .add("due", 0)
                  .add("skipped", 1)
                  .add("loss", std::nan(""))
                  .add("grad_norm", std::numeric_limits<double>::infinity())
                  .add("skipped_parameter", "model.h.7.mlp.c_fc.weight")
                  .add("skipped_in_a_row", 1)
                  .add("stop_after", 3)),
      "step    1220/5000  skipped: gradient of model.h.7.mlp.c_fc.weight is inf (1 of 3 in a row before stopping)\n");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 2).add("skipped", 1)),
            "step    2  skipped: gradient is not finite\n");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 2).add("skipped", 1).add("skipped_reason", "why")),
            "step    2  skipped: why\n");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 2).add("skipped", 1).add("scale", 32768.0)),
            "step    2  skipped: gradient is not finite, scale 3.3e+04\n");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 2).add("skipped", 1).add("grad_norm", std::nan(""))),
            "step    2  skipped: gradient is nan\n");
  EXPECT_EQ(printed(FakeRecord("step").add("step", 2).add("skipped", 1).add("grad_norm", 1.5)),
            "step    2  skipped: a plugin voted against it\n");
}

TEST_F(Console, ShowsNumbersThatAreNoneOrTinyOrHuge) {
  EXPECT_EQ(printed(step(1, 2).add("loss", std::nan("")).add("grad_norm", 1.5e7)),
            "step    1/2  loss nan  grad 1.5e+07\n");
  EXPECT_EQ(printed(step(1, 2).add("loss", 4.2e-5).add("grad_norm", 0.0)), "step    1/2  loss 4.2e-05  grad 0.00\n");
  EXPECT_EQ(printed(step(1, 2).add("loss", -std::numeric_limits<double>::infinity())), "step    1/2  loss -inf\n");
}

TEST_F(Console, PrintsAnEvaluationWithWhatItMeasured) {
  EXPECT_EQ(printed(FakeRecord("eval")
                        .add("step", 1250)
                        .add("of", 5000)
                        .add("eval.loss", 3.398)
                        .add("samples", 10000)
                        .add("seconds", 4.1)
                        .add("best", 1)),
            "eval    1250/5000  eval.loss 3.398  (10,000 samples, 4.1s)   best so far, kept\n");
  EXPECT_EQ(printed(FakeRecord("eval")
                        .add("step", 300)
                        .add("of", 300)
                        .add("eval.loss", 2.604)
                        .add("samples", 48)
                        .add("tokens", 6120)
                        .add("seconds", 0.4)
                        .add("best", 0)),
            "eval    300/300  eval.loss 2.604  (6,120 tokens, 0.4s)\n");
  EXPECT_EQ(printed(FakeRecord("eval").add("step", 704).add("eval.loss", 0.213).add("eval.accuracy", 0.918)),
            "eval    704  eval.loss 0.213  eval.accuracy 0.918\n");
}

TEST_F(Console, PrintsWhatWasSaved) {
  EXPECT_EQ(printed(FakeRecord("saved")
                        .add("step", 1250)
                        .add("bytes", int64_t{1503238553})
                        .add("seconds", 3.1)
                        .add("background", 1)),
            "saved   1250       1.4 GiB in 3.1s, in the background\n");
  const auto held = [](double seconds) {
    return FakeRecord("saved").add("step", 50).add("seconds", 3.1).add("background", 1).add("held_seconds", seconds);
  };
  EXPECT_EQ(printed(held(0.09)), "saved   50        in 3.1s, in the background\n");
  EXPECT_EQ(printed(held(0.2)), "saved   50        in 3.1s, in the background; training waited 0.2s\n");
  EXPECT_EQ(printed(FakeRecord("saved")
                        .add("step", 5)
                        .add("bytes", 2048)
                        .add("seconds", 0.02)
                        .add("path", "runs/a/checkpoints/step-5")),
            "saved   5          2.0 KiB in 0.0s  runs/a/checkpoints/step-5\n");
}

TEST_F(Console, PrintsSamplesAsABlockThatATerminalCannotObey) {
  EXPECT_EQ(
      printed(FakeRecord("sample").add("step", 500).add("of", 1000).add("text", "The core\nof é\x1b[2J\xFF\ttab")),
      "sample  500/1000\n"
      "        The core\n"
      "        of é\\x1b[2J\\xff\ttab\n");
}

TEST_F(Console, EndsWithTheResultAndWhatToTypeNext) {
  EXPECT_EQ(printed(FakeRecord("end")
                        .add("steps", 300)
                        .add("seconds", 33.2)
                        .add("loss_first", 5.54)
                        .add("loss_last", 2.41)
                        .add("dir", "runs/quickstart")
                        .add("exit", 0)
                        .add("reason", "")
                        .add("next", "mortise sample runs/quickstart --prompt \"The core\""),
                    "run.end"),
            "done    300 steps in 33s  loss 5.54 -> 2.41  runs/quickstart\n"
            "next    mortise sample runs/quickstart --prompt \"The core\"\n");
}

TEST_F(Console, SaysWhyItStoppedAndWithWhichCode) {
  EXPECT_EQ(printed(FakeRecord("end")
                        .add("steps", 11204)
                        .add("seconds", 24240.0)
                        .add("dir", "runs/a")
                        .add("exit", 75)
                        .add("reason", "time limit; resumable")),
            "stopped 11,204 steps in 6h44m  runs/a  time limit; resumable · exit 75\n");
}

// The time is that of one process, the steps are the whole run's.
TEST_F(Console, SaysHowManyStepsOfAResumedRunTheTimeIsOf) {
  EXPECT_EQ(printed(FakeRecord("end").add("steps", 1306).add("steps_here", 485).add("seconds", 2.1).add("exit", 0)),
            "done    1,306 steps, the last 485 in 2.1s\n");
}

TEST_F(Console, SaysThatAResumedRunHadNothingToDo) {
  EXPECT_EQ(printed(FakeRecord("end").add("steps", 9).add("steps_here", 0).add("exit", 0)),
            "done    9 steps, no new one\n");
}

TEST_F(Console, SaysNothingOfStepsThatAreAllItsOwn) {
  EXPECT_EQ(printed(FakeRecord("end").add("steps", 9).add("steps_here", 9).add("exit", 0)), "done    9 steps\n");
}

TEST_F(Console, IgnoresWhatItDoesNotKnow) {
  EXPECT_EQ(printed(FakeRecord("weather").add("rain", 1)), "");
  EXPECT_EQ(printed(FakeRecord("note").add("text", "a b")), "note    a b\n");
  EXPECT_EQ(plugin_.notify("run.end"), MORTISE_OK) << "no record at all";
  EXPECT_EQ(printed(FakeRecord("run").add("run", 5)), "") << "a column of another type";
}

TEST_F(Console, WarnsOnStandardError) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(printed(FakeRecord("note").add("text", "no gradient: a.weight").add("level", "warning")), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "warning no gradient: a.weight\n");
}

TEST_F(Console, DrawsNoLiveLineIntoAPipe) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(printed(FakeRecord("step").add("step", 11).add("of", 20).add("due", 0).add("skipped", 0)), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// ---- on a terminal ----

// A terminal of the test's own.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : ours_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (ours_ < 0 || grantpt(ours_) != 0 || unlockpt(ours_) != 0) throw std::runtime_error("no terminal to be had");
    theirs_ = open(ptsname(ours_), O_RDWR | O_NOCTTY);
    const winsize size{24, columns, 0, 0};
    ioctl(theirs_, TIOCSWINSZ, &size);
    fcntl(ours_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() { close(theirs_), close(ours_); }

  // What it gets while `body` runs with these streams on it; what a failed expectation says goes where it always does.
  std::string gets(const std::vector<int>& streams, const std::function<void()>& body) {
    std::map<int, int> saved;
    for (const int fd : streams) saved[fd] = dup(fd), dup2(theirs_, fd);
    body();
    for (const auto& [fd, before] : saved) dup2(before, fd), close(before);
    std::string all;
    char piece[4096];
    for (ssize_t n; (n = read(ours_, piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(n));
    for (size_t at = 0; (at = all.find("\r\n", at)) != all.npos;) all.erase(at, 1);  // it makes \r\n of \n
    return all;
  }

 private:
  int ours_, theirs_ = -1;
};

class OnATerminal : public ::testing::Test {
 protected:
  void begin(std::map<std::string, std::string> variables = {{"TERM", "xterm"}, {"NO_COLOR", "1"}},
             unsigned short columns = 100) {
    Variables{std::move(variables)};
    terminal_.emplace(columns);
    EXPECT_EQ(gets([&] { plugin_.emplace(host_, MORTISE_PLUGIN_FILE); }), "");
  }
  std::string gets(const std::function<void()>& body) { return terminal_->gets(streams_, body); }
  std::string seen(FakeRecord record, const char* point = "record") {
    mortise_status status = MORTISE_E_INTERNAL;
    const std::string all = gets([&] { status = plugin_->notify(point, record); });
    EXPECT_EQ(status, MORTISE_OK);
    return all;
  }
  static FakeRecord step(int number, bool due = false) {
    return FakeRecord("step")
        .add("step", number)
        .add("of", 100)
        .add("due", due ? 1 : 0)
        .add("skipped", 0)
        .add("loss", 2.5);
  }
  static void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(110)); }

  FakeHost host_;
  std::vector<int> streams_ = {1, 2};  // both on one terminal, as for most people
  std::optional<Terminal> terminal_;
  std::optional<Plugin> plugin_;
};

TEST_F(OnATerminal, RedrawsOneLineAndErasesItBeforeOthers) {
  begin();
  EXPECT_EQ(seen(step(1)), "\rstep    1/100  loss 2.500\x1b[K");
  wait();
  EXPECT_TRUE(seen(step(2)).starts_with("\rstep    2/100  loss 2.500"));
  EXPECT_EQ(seen(step(3, true)), "\r\x1b[Kstep    3/100  loss 2.500\n");
  EXPECT_EQ(seen(FakeRecord("note").add("text", "a")), "note    a\n") << "there is nothing to erase";
  wait();
  EXPECT_NE(seen(step(4)), "");
  EXPECT_EQ(seen(FakeRecord("eval").add("step", 4).add("eval.loss", 1.0)), "\r\x1b[Keval    4  eval.loss 1.000\n");
  wait();
  EXPECT_NE(seen(step(5)), "");
  EXPECT_EQ(seen(FakeRecord("end").add("steps", 5).add("exit", 0), "run.end"), "\r\x1b[Kdone    5 steps\n");
}

TEST_F(OnATerminal, DrawsAtMostTenTimesASecond) {
  begin();
  const auto began = std::chrono::steady_clock::now();
  int drawn = 0;
  for (int i = 0; i < 2000; ++i) drawn += !seen(step(i % 100)).empty();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
  EXPECT_GE(drawn, 1);
  EXPECT_LE(drawn, 1 + 10 * spent.count());
}

TEST_F(OnATerminal, ErasesItsLineWhenTheRunEndsInAnErrorAndWhenItGoes) {
  begin();
  EXPECT_NE(seen(step(1)), "");
  EXPECT_EQ(gets([&] { plugin_->notify("run.end"); }), "\r\x1b[K");
  wait();
  EXPECT_NE(seen(step(2)), "");
  EXPECT_EQ(gets([&] { plugin_.reset(); }), "\r\x1b[K");
}

TEST_F(OnATerminal, ClipsTheLineToTheWidth) {
  begin({{"TERM", "xterm"}}, 20);
  EXPECT_EQ(seen(step(1)), "\r\x1b[2mstep    \x1b[0m1/100\x1b[2m  loss\x1b[0m\x1b[K")
      << "19 characters, colours not counted";
}

TEST_F(OnATerminal, LeavesOutWhatMattersLeastWhereItIsNarrow) {
  const auto full = [](int number, bool due) {
    return step(number, due)
        .add("lr", 3e-4)
        .add("grad_norm", 0.71)
        .add("tokens_per_s", 412031.0)
        .add("memory_bytes", int64_t{13} << 30)
        .add("memory_total_bytes", int64_t{139} << 30)
        .add("left_s", 724.0);
  };
  const std::map<std::string, std::string> plain = {{"TERM", "xterm"}, {"NO_COLOR", "1"}};
  begin(plain, 100);
  EXPECT_EQ(seen(full(10, true)),
            "step    10/100  loss 2.500  lr 3.0e-04  grad 0.71  412k tok/s  mem 13/139 GiB  12m04s left\n");
  begin(plain, 80);
  EXPECT_EQ(seen(full(10, true)), "step    10/100  loss 2.500  lr 3.0e-04  grad 0.71  412k tok/s  12m04s left\n");
  begin(plain, 60);
  EXPECT_EQ(seen(full(10, true)), "step    10/100  loss 2.500  412k tok/s  12m04s left\n");
  begin(plain, 30);
  EXPECT_EQ(seen(full(10, true)), "step    10/100  loss 2.500\n");
  wait();
  EXPECT_EQ(seen(full(11, false)), "\rstep    11/100  loss 2.500\x1b[K") << "the line that is redrawn does the same";
}

TEST_F(OnATerminal, TellsFromTheLastDueRecordWhatTheStepsInBetweenDoNotSay) {
  begin();
  seen(step(10, true)
           .add("tokens", 1000)
           .add("tokens_per_s", 5e5)
           .add("throughput_unit", "tok")
           .add("memory_bytes", int64_t{13} << 30)
           .add("memory_total_bytes", int64_t{139} << 30)
           .add("data_wait_share", 0.5)
           .add("left_s", 900.0));
  wait();
  const std::string line = seen(step(40).add("tokens", 1000 + 100000000));
  EXPECT_TRUE(line.starts_with("\rstep    40/100  loss 2.500  ")) << line;
  EXPECT_TRUE(line.ends_with("M tok/s  mem 13/139 GiB  10m00s left\x1b[K")) << line;  // 60 steps of 10 s
}

TEST_F(OnATerminal, MeasuresItselfBeforeTheFirstDueRecordAndAfterAPause) {
  begin();
  EXPECT_EQ(seen(step(1).add("samples", 10)), "\rstep    1/100  loss 2.500\x1b[K");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string line = seen(step(2).add("samples", 20));
  EXPECT_NE(line.find(" samples/s  "), line.npos) << line;
  EXPECT_TRUE(line.ends_with("s left\x1b[K"))
      << line;  // 98 steps, each as long as the first: 20 s, more on a busy machine
  seen(FakeRecord("eval").add("step", 2).add("eval.loss", 1.0));
  wait();
  EXPECT_EQ(seen(step(3).add("samples", 30)), "\rstep    3/100  loss 2.500\x1b[K")
      << "the evaluation is no part of a rate";
}

TEST_F(OnATerminal, ShowsEveryStepLiveIfTheLinesGoElsewhere) {
  streams_ = {2};
  ::testing::internal::CaptureStdout();
  begin();
  EXPECT_EQ(seen(step(1, true)), "\rstep    1/100  loss 2.500\x1b[K");
  EXPECT_EQ(seen(FakeRecord("note").add("text", "a")), "") << "the line stays";
  EXPECT_EQ(seen(FakeRecord("end").add("steps", 1).add("exit", 0)), "\r\x1b[K");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "step    1/100  loss 2.500\nnote    a\ndone    1 step\n");
}

TEST_F(OnATerminal, ColoursLabelsAndWarnings) {
  begin({{"TERM", "xterm"}});
  EXPECT_EQ(seen(step(1, true)), "\x1b[2mstep    \x1b[0m1/100\x1b[2m  loss \x1b[0m2.500\n");
  EXPECT_EQ(seen(FakeRecord("step").add("step", 2).add("skipped", 1)),
            "\x1b[2mstep    \x1b[0m2\x1b[33m  skipped: gradient is not finite\x1b[0m\n");
  EXPECT_EQ(seen(FakeRecord("note").add("text", "a").add("level", "warning")), "\x1b[33mwarning \x1b[0ma\n");
}

TEST_F(OnATerminal, IsPlainWhereTheTerminalCannotBeRedrawn) {
  begin({{"TERM", "dumb"}});
  EXPECT_EQ(seen(step(1)), "");
  EXPECT_EQ(seen(step(2, true)), "step    2/100  loss 2.500\n");
}

// ---- colour without a terminal ----

TEST(Colour, OfAPipeIsForThoseWhoAsk) {
  const auto shown = [](std::map<std::string, std::string> variables) {
    Variables{std::move(variables)};
    FakeHost host;
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(plugin.notify("record", FakeRecord("note").add("text", "a")), MORTISE_OK);
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string plain = "note    a\n", coloured = "\x1b[2mnote    \x1b[0ma\n";
  EXPECT_EQ(shown({{"TERM", "xterm"}}), plain);
  EXPECT_EQ(shown({{"CLICOLOR_FORCE", "1"}}), coloured);
  EXPECT_EQ(shown({{"CLICOLOR_FORCE", "0"}}), plain);
  EXPECT_EQ(shown({{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", ""}}), coloured) << "an empty variable says nothing";
  EXPECT_EQ(shown({{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}), plain);
}
}  // namespace
