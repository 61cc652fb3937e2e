// Each call of a save fails in each way, once and for ever, or is the last one before the process is killed: what was
// saved is found.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace mortise {
namespace {

using Environment = std::map<std::string, std::string>;

struct Seen {
  int64_t save = 0, number = 0;
  std::string call, path;
  bool fault = false;
};

struct Ended {
  int status = 0;
  std::string said;
  std::vector<Seen> calls;
  int64_t saved() const {  // the last step
    int64_t last = 0;
    std::istringstream in(said);
    for (std::string line; std::getline(in, line);)
      if (line.starts_with("saved ")) last = std::stoll(line.substr(6));
    return last;
  }
  long faults() const { return std::ranges::count(calls, true, &Seen::fault); }
  // The disk that fails for ever cannot be asked at the end: another process does that.
  bool went_on(bool asked) const {
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || (!asked && WEXITSTATUS(status) == 2));
  }
  bool is_killed() const { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
};

class Shim : public testing::Test {
 protected:
  void SetUp() override {
    const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::path(testing::TempDir());
    run_ = base / ("mortise_shim." + std::to_string(::getpid()));
    clear();
  }
  void TearDown() override { fs::remove_all(run_); }
  void clear() {
    fs::remove_all(run_);
    fs::create_directory(run_);
    fs::copy_file(MORTISE_SHIM, run_ / "shim.so");  // LD_PRELOAD takes no path with a space
  }

  // The driver with these two words; under the shim if there is an environment for it.
  Ended drive(const std::string& a, const std::string& b, Environment faults = {}) {
    const fs::path report = run_ / "report", out = run_ / "out";
    fs::remove(report);
    if (!faults.empty()) {
      faults["FAULT_REPORT"] = report.string();
      faults["LD_PRELOAD"] = (run_ / "shim.so").string();
      const char* options = std::getenv("ASAN_OPTIONS");  // what is loaded first is the shim
      faults["ASAN_OPTIONS"] = std::string(options ? options : "") + ":verify_asan_link_order=0";
    }
    const std::string root = (run_ / "checkpoints").string();
    std::fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
      if (!std::freopen(out.c_str(), "w", stdout)) _exit(70);
      for (const auto& [name, text] : faults) ::setenv(name.c_str(), text.c_str(), 1);
      ::execl(MORTISE_SAVE_DRIVER, MORTISE_SAVE_DRIVER, root.c_str(), a.c_str(), b.c_str(), nullptr);
      _exit(70);
    }
    Ended ended;
    ::waitpid(child, &ended.status, 0);
    std::ostringstream said;
    said << std::ifstream(out).rdbuf();
    ended.said = said.str();
    std::ifstream in(report);
    for (std::string line; std::getline(in, line);) {
      Seen seen;
      std::istringstream words(line);
      std::string fault;
      words >> seen.save >> seen.number >> seen.call >> seen.path >> fault;
      seen.fault = fault == "fault";
      ended.calls.push_back(seen);
    }
    return ended;
  }

  // The calls of the third save, which has an older one beside it and removes the first.
  std::vector<Seen> calls_of_a_save() {
    clear();
    const Ended ended = drive("1", "4", {{"FAULT_EACH", "1"}});
    EXPECT_EQ(ended.status, 0) << ended.said;
    EXPECT_EQ(ended.saved(), 4);
    std::vector<Seen> calls;
    for (const Seen& seen : ended.calls)
      if (seen.save == 3) calls.push_back(seen);
    clear();
    return calls;
  }

  // After a fault: what was saved is found by a process whose disk is well, and it can go on.
  void expect_found(const Ended& ended, const std::string& what) {
    const Ended checked = drive("--check", std::to_string(ended.saved()));
    EXPECT_EQ(checked.status, 0) << what << "\n" << ended.said << checked.said;
    const std::string next = std::to_string(ended.saved() + 1);
    EXPECT_EQ(drive(next, next).status, 0) << what << ", and then a save";
    for (const auto& entry : fs::directory_iterator(run_ / "checkpoints"))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp-step-")) << what << " left " << entry.path();
  }

  fs::path run_;
};

TEST_F(Shim, SeesEveryCallOfASave) {
  std::map<std::string, int> calls;
  for (const Seen& seen : calls_of_a_save()) {
    EXPECT_NE(seen.path.find("/checkpoints"), std::string::npos);
    EXPECT_FALSE(seen.fault);
    ++calls[seen.call];
  }
  // Three files and a manifest; two folders within, the folder, its parent, and those of the next save's beginning.
  EXPECT_EQ(calls["mkdir"], 4);
  EXPECT_EQ(calls["write"], 4);
  EXPECT_EQ(calls["fsync"], 4 + 4);
  EXPECT_EQ(calls["rename"], 3);  // into place, the link, the old one aside
  EXPECT_GE(calls["unlink"], 7);
  EXPECT_GE(calls["open"], 4 + 4);
}

// One run, in which the first save fails at its first call, the second one at its second, and so on.
TEST_F(Shim, FailsEachCallOnceInOneRun) {
  const std::vector<Seen> calls = calls_of_a_save();
  for (const char* with : {"ENOSPC", "EIO", "EDQUOT", "ENFILE", "EINVAL", "short", "eintr"})
    for (const char* times : {"once", "ever"}) {
      const std::string what = std::string(with) + " " + times;
      clear();
      const int64_t saves = static_cast<int64_t>(calls.size()) + 2;
      const Ended ended = drive(
          "1", std::to_string(saves),
          {{"FAULT_WITH", with}, {"FAULT_TIMES", times}, {"FAULT_EACH", "1"}, {"FAULT_SAVE", "3"}, {"FAULT_AT", "1"}});
      EXPECT_TRUE(ended.went_on(std::string(times) == "once")) << what << "\n" << ended.said;
      std::map<int64_t, std::vector<const Seen*>> of_save;
      for (const Seen& seen : ended.calls) of_save[seen.save].push_back(&seen);
      EXPECT_EQ(of_save.rbegin()->first, saves) << what << ": every save began";
      int due = 0, made = 0;
      for (const auto& [save, seen] : of_save) {
        const int64_t at = save - 2;
        for (const Seen* one : seen) {
          const bool is_write = one->call == "write";
          if (save >= 3 && one->number == at && (is_write || std::string(with) != "short")) {
            ++due;
            made += one->fault;
          }
          EXPECT_FALSE(one->fault && (save < 3 || one->number < at)) << what;
        }
      }
      // An interruption for ever comes every other time.
      EXPECT_EQ(made, what == "eintr ever" ? made : due) << what;
      EXPECT_GT(due, std::string(with) == "short" ? 2 : static_cast<int>(calls.size()) / 2) << what;
      std::printf("%s: %lld saves, %ld faults, the last saved is %lld\n", what.c_str(), static_cast<long long>(saves),
                  ended.faults(), static_cast<long long>(ended.saved()));
      expect_found(ended, what);
    }
}

// A process for each call, in the third of five saves: nothing works from there on, or the process is gone.
TEST_F(Shim, FailsForEverFromEachCallOn) {
  const std::vector<Seen> calls = calls_of_a_save();
  for (const char* with : {"ENOSPC", "EIO", "kill"}) {
    long faults = 0;
    for (size_t at = 1; at <= calls.size(); ++at) {
      const std::string what = std::string(with) + " from call " + std::to_string(at) + " on, " + calls[at - 1].call +
                               " " + calls[at - 1].path;
      clear();
      const Ended ended =
          drive("1", "5",
                {{"FAULT_WITH", with}, {"FAULT_TIMES", "ever"}, {"FAULT_SAVE", "3"}, {"FAULT_AT", std::to_string(at)}});
      EXPECT_GT(ended.faults(), 0) << what;
      faults += ended.faults();
      if (std::string(with) == "kill") EXPECT_TRUE(ended.is_killed()) << what;
      else EXPECT_TRUE(ended.went_on(false)) << what << "\n" << ended.said;
      EXPECT_GE(ended.saved(), 2) << what;
      EXPECT_LE(ended.saved(), 3) << what;
      expect_found(ended, what);
    }
    std::printf("%s: %zu runs, %ld faults\n", with, calls.size(), faults);
  }
}

TEST_F(Shim, FailsTheCallsThatItIsTold) {
  for (const char* call : {"open", "write", "fsync", "close", "mkdir", "rename", "unlink"}) {
    clear();
    const Ended ended = drive("1", "4", {{"FAULT_WITH", "EIO"}, {"FAULT_CALLS", call}, {"FAULT_AT", "9"}});
    EXPECT_EQ(ended.status, 0) << call << "\n" << ended.said;
    for (const Seen& seen : ended.calls) {
      EXPECT_EQ(seen.call, call);
      EXPECT_EQ(seen.fault, seen.number == 9) << call;
    }
    EXPECT_EQ(ended.faults(), 1) << call;
    expect_found(ended, call);
  }
  clear();
  const Ended elsewhere =
      drive("1", "2", {{"FAULT_WITH", "EIO"}, {"FAULT_TIMES", "ever"}, {"FAULT_BELOW", "elsewhere"}});
  EXPECT_EQ(elsewhere.calls.size(), 0u);
  EXPECT_EQ(elsewhere.saved(), 2);
}

}  // namespace
}  // namespace mortise
