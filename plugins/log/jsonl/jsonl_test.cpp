#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

class Jsonl : public ::testing::Test {
 protected:
  Jsonl() {
    std::filesystem::create_directories(folder_);
    host_.set("stdout", false);
  }
  ~Jsonl() override { std::filesystem::remove_all(folder_); }

  FakeRecord run() const { return FakeRecord("run").add("run", "a -> runs/a").add("dir", folder_.string()); }
  // The lines of the file, each time replaced by T.
  std::vector<std::string> lines() const {
    std::ifstream in(folder_ / "metrics.jsonl");
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(timeless(line));
    return all;
  }
  static std::string timeless(std::string text) {
    constexpr std::string_view form = "2026-11-21T04:11:09Z", before = "\"time\":\"";
    for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
      at += before.size();
      for (size_t i = 0; i < form.size(); ++i)
        if (isdigit(form[i]) ? !isdigit(text[at + i]) : text[at + i] != form[i]) return "no time: " + text;
      text.replace(at, form.size(), "T");
    }
    return text;
  }
  // What is written for one record, after the beginning.
  std::string written(const FakeRecord& record) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    FakeRecord copy = record;
    EXPECT_EQ(plugin.notify("run.begin", run()), MORTISE_OK);
    EXPECT_EQ(plugin.notify("record", copy), MORTISE_OK);
    return lines().back();
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_jsonl_test_" + std::to_string(getpid()));
  FakeHost host_;
};

TEST_F(Jsonl, WritesAStepWithItsPlaceFirst) {
  EXPECT_EQ(
      written(FakeRecord("step")
                  .add("loss", 3.412)
                  .add("step", 1200)
                  .add("of", 5000)
                  .add("lr", 3e-4)
                  .add("due", 1)
                  .add("tokens", int64_t{629145600})
                  .add("skipped", 0)),
      R"({"event":"step","step":1200,"of":5000,"time":"T","loss":3.412,"lr":3e-04,"tokens":629145600,"skipped":0})");
}

TEST_F(Jsonl, WritesTheBeginningTheRestAndTheEndOnce) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  for (const char* point : {"run.begin", "record"}) EXPECT_EQ(plugin.notify(point, run()), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", FakeRecord("eval").add("step", 3).add("eval.loss", 2.5)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", 4).add("due", 0).add("skipped", 0)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", 5).add("due", 0).add("skipped", 1)), MORTISE_OK);
  for (const char* point : {"record", "run.end"})
    EXPECT_EQ(plugin.notify(point, FakeRecord("end").add("steps", 5).add("exit", 0)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("run.end"), MORTISE_OK);
  const std::string dir = folder_.string();
  EXPECT_EQ(lines(), (std::vector<std::string>{R"({"event":"run","time":"T","run":"a -> runs/a","dir":")" + dir + "\"}",
                                               R"({"event":"eval","step":3,"time":"T","eval.loss":2.5})",
                                               R"({"event":"step","step":5,"time":"T","skipped":1})",
                                               R"({"event":"end","time":"T","steps":5,"exit":0})"}));
}

TEST_F(Jsonl, NumbersReadBackAsTheyWere) {
  for (const double x : {0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5e-10, 123456789.0, 3.0}) {
    const std::string line = written(FakeRecord("note").add("x", x));
    EXPECT_EQ(std::strtod(line.c_str() + line.rfind(':') + 1, nullptr), x) << line;
  }
}

TEST_F(Jsonl, WritesNullForWhatIsNoNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(written(FakeRecord("step").add("loss", std::nan("")).add("grad_norm", inf).add("x", -inf)),
            R"({"event":"step","time":"T","loss":null,"grad_norm":null,"x":null})");
}

TEST_F(Jsonl, EscapesText) {
  EXPECT_EQ(written(FakeRecord("note").add("text", "say \"é\" \\ \n\t\x01\xFF.")),
            R"({"event":"note","time":"T","text":"say \"é\" \\ \n\u0009\u0001\ufffd."})");
}

TEST_F(Jsonl, LeavesOutColumnsThatAreNeitherNumberNorText) {
  EXPECT_EQ(written(FakeRecord("note").add("nothing", mortise::none()).add("yes", true)),
            R"({"event":"note","time":"T","yes":true})");
}

TEST_F(Jsonl, CutsWhatIsBehindTheStepThatItGoesOnFrom) {
  std::ofstream(folder_ / "metrics.jsonl") << R"({"event":"run","step":0}
{"event":"step","step":9}
{"event":"step","step":10,"of":20}
{"event":"eval","step":10}
{"event":"end","steps":10}
{"event":"step","step":11}
{"event":"saved","step":9}
{"event":"st)";
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  FakeRecord again = run();
  EXPECT_EQ(plugin.notify("run.begin", again.add("step", 10)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", 11)), MORTISE_OK);
  const auto all = lines();
  ASSERT_EQ(all.size(), 7U);
  EXPECT_EQ(all[4], R"({"event":"end","steps":10})");
  EXPECT_TRUE(all[5].starts_with(R"({"event":"run","step":10)")) << all[5];
  EXPECT_TRUE(all[6].starts_with(R"({"event":"step","step":11)")) << all[6];
}

TEST_F(Jsonl, KeepsNothingButWholeLinesOfARunThatBeginsAgain) {
  std::ofstream(folder_ / "metrics.jsonl")
      << "{\"event\":\"run\",\"step\":0}\n{\"event\":\"step\",\"step\":1}\n{\"event\":\"st";
  EXPECT_EQ(written(FakeRecord("note").add("text", "again")), R"({"event":"note","time":"T","text":"again"})");
  EXPECT_EQ(lines().size(), 3U);
}

TEST_F(Jsonl, PrintsToStandardOutputTooWhenAsked) {
  host_.set("stdout", true);
  ::testing::internal::CaptureStdout();
  written(FakeRecord("note").add("text", "hello"));
  const std::string printed = timeless(::testing::internal::GetCapturedStdout());
  EXPECT_EQ(printed.substr(printed.find('\n') + 1), "{\"event\":\"note\",\"time\":\"T\",\"text\":\"hello\"}\n");
}

// As a program makes pipes that waits for several: a full one takes a part of a line, and says EAGAIN.
TEST_F(Jsonl, PrintsWholeLinesToAPipeThatDoesNotBlock) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  const int before = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  close(ends[1]);
  host_.set("stdout", true);
  const std::string text(3000, 'x');
  std::string printed;
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it is full by then
    char piece[4096];
    for (ssize_t n; (n = read(ends[0], piece, sizeof piece)) > 0;) printed.append(piece, static_cast<size_t>(n));
  });
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    dup2(before, STDOUT_FILENO);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(plugin.notify("record", FakeRecord("note").add("text", text)), MORTISE_OK);
  }
  reader.join();
  close(before), close(ends[0]);
  std::istringstream lines(printed);
  int whole = 0;
  for (std::string line; std::getline(lines, line);) whole += line.ends_with("x\"}");
  EXPECT_EQ(whole, 100);
}

TEST_F(Jsonl, PrintsEvenWithoutARunDirectory) {
  host_.set("stdout", true);
  ::testing::internal::CaptureStdout();
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", 1)), MORTISE_OK);
  EXPECT_EQ(timeless(::testing::internal::GetCapturedStdout()), "{\"event\":\"step\",\"step\":1,\"time\":\"T\"}\n");
  EXPECT_TRUE(host_.log.empty());
}

TEST_F(Jsonl, SaysOnceThatTheDiskIsFullAndGoesOn) {
  std::filesystem::create_symlink("/dev/full", folder_ / "metrics.jsonl");
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("run.begin", run()), MORTISE_OK);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", i)), MORTISE_OK);
  ASSERT_EQ(host_.log.size(), 1U);
  EXPECT_EQ(host_.log[0].level, static_cast<uint32_t>(MORTISE_LOG_WARNING));
  EXPECT_EQ(host_.log[0].text, "log.jsonl cannot write " + folder_.string() +
                                   "/metrics.jsonl: No space left on device; the run goes on without these lines");
}

TEST_F(Jsonl, SurvivesAFolderThatIsNotThereAndAHostWithoutALog) {
  host_.withhold("mortise.log/0");
  std::filesystem::remove_all(folder_);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("run.begin", run()), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", FakeRecord("step").add("step", 1)), MORTISE_OK);
}
}  // namespace
