// Ranks that are small shell scripts: what they begin with, how they end, and what is told of it.
#include "core/cli/launcher.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <sstream>
#include <thread>

#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

using std::chrono::milliseconds;
constexpr auto kEndless = std::chrono::seconds(60);  // of what no test waits for, however busy the machine is
constexpr Patience kShort = {.lost = milliseconds(200), .stopped = kEndless, .killed = milliseconds(300)};

// A process that calls run_ranks(), whose signals and whose death are its own.
class StartedRanks : public testing::Test {
 protected:
  void SetUp() override {
    const char* name = testing::UnitTest::GetInstance()->current_test_info()->name();
    dir_ = fs::path(testing::TempDir()) / ("mortise_ranks_" + std::to_string(getpid()) + name);
    fs::create_directories(dir_);
    fs::current_path(dir_);
  }
  void TearDown() override {
    if (parent_ > 0) kill(parent_, SIGKILL), waitpid(parent_, nullptr, 0);
    fs::current_path("/");
    fs::remove_all(dir_);
  }

  // `script`: what each rank does; `first` is called before they are started.
  void start(int n, const std::string& script, const std::function<void()>& first = [] {}) {
    const char* begins = "test $RANK = 0 && printf 'run\\nresume\\n\\nsaves\\n' >&$MORTISE_TOLD_FD\n";
    std::ofstream(words_[1]) << (begins_ ? begins : "") << script;
    parent_ = fork();
    if (parent_ > 0) return;
    setpgid(0, 0);
    for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_DFL);  // as a shell's background ignores them
    if (!freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(99);
    setenv("OMP_NUM_THREADS", "7", 1);
    globals().name = "program";
    first();
    const int exit = run_ranks(n, words_, "/bin/sh", patience_);
    std::cout.flush();
    std::cerr.flush();
    _exit(exit);
  }
  int end() {
    int status = 0;
    waitpid(parent_, &status, 0);
    parent_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(int n, const std::string& script) {
    start(n, script);
    return end();
  }
  static std::string text(const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  // Waits until the ranks have written what they are.
  static pid_t pid_of(int rank) {
    for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(milliseconds(10)))
      if (const std::string pid = text("pid" + std::to_string(rank)); pid.ends_with('\n')) return std::stoi(pid);
    ADD_FAILURE() << "rank " << rank << " has not begun";
    return -1;
  }
  static bool is_there(pid_t pid) {
    const std::string stat = text("/proc/" + std::to_string(pid) + "/stat");
    return !stat.empty() && stat.find(") Z ") == std::string::npos;
  }
  static bool is_gone(pid_t pid) {
    for (int i = 0; i < 500 && is_there(pid); ++i) std::this_thread::sleep_for(milliseconds(10));
    return !is_there(pid);
  }

  // What ends them is not that a stop that was asked for is waited for no longer.
  void expect_soon() const { EXPECT_LT(std::chrono::steady_clock::now() - began_, std::chrono::seconds(20)); }

  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  pid_t parent_ = -1;
  std::vector<std::string> words_ = {"sh", "rank.sh", "a b"};
  Patience patience_ = kShort;
  bool begins_ = true;  // rank 0 says that it has begun a run
  fs::path dir_;
};

const char* const kSleep = "echo $$ > p$RANK && mv p$RANK pid$RANK\nexec sleep 60\n";

TEST_F(StartedRanks, HaveTheVariablesOfALauncher) {
  EXPECT_EQ(run(3,
                "env > env$RANK; readlink /proc/self/fd/0 > in$RANK; echo \"$1\" > word$RANK\n"
                "test $RANK != 0 || readlink /proc/self/fd/$MORTISE_LISTEN_FD > listens\n"),
            0);
  EXPECT_EQ(text("err"), "");
  std::string port;
  for (int rank = 0; rank < 3; ++rank) {
    const std::string env = "\n" + text("env" + std::to_string(rank)), is = std::to_string(rank);
    for (const std::string& line : {"RANK=" + is, std::string("WORLD_SIZE=3"), "LOCAL_RANK=" + is,
                                    std::string("LOCAL_WORLD_SIZE=3"), std::string("MASTER_ADDR=127.0.0.1"),
                                    std::string("MORTISE_LAUNCHED_BY=--ranks"), std::string("OMP_NUM_THREADS=7")})
      EXPECT_NE(env.find("\n" + line + "\n"), std::string::npos) << line;
    EXPECT_EQ(env.find("\nMORTISE_LISTEN_FD=") != std::string::npos, rank == 0);
    const size_t at = env.find("\nMASTER_PORT=") + 13;
    const std::string its = env.substr(at, env.find('\n', at) - at);
    EXPECT_EQ(its, rank == 0 ? its : port) << "all ranks have the same";
    port = its;
    EXPECT_EQ(text("in" + is) == "/dev/null\n", rank != 0 || text("in0") == "/dev/null\n");
    EXPECT_EQ(text("word" + is), "a b\n");
  }
  EXPECT_TRUE(text("listens").starts_with("socket:")) << text("listens");
}

// Once rank 0 is gone, nobody can be met there, and whoever tries is told at once.
TEST_F(StartedRanks, TheFirstAloneListens) {
  start(2, "test $RANK != 0 || readlink /proc/self/fd/$MORTISE_LISTEN_FD > listens\n" + std::string(kSleep));
  const pid_t first = pid_of(0), second = pid_of(1);
  const std::string listens = text("listens");
  const auto has_it = [&](pid_t pid) {
    for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(pid) + "/fd"))
      if (std::error_code gone; fs::read_symlink(fd, gone).string() + "\n" == listens) return true;
    return false;
  };
  EXPECT_TRUE(has_it(first));
  EXPECT_FALSE(has_it(second));
  for (int i = 0; i < 500 && has_it(parent_); ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_FALSE(has_it(parent_));
}

TEST_F(StartedRanks, ShareTheProcessors) {
  start(2, "echo $OMP_NUM_THREADS > threads$RANK", [] { unsetenv("OMP_NUM_THREADS"); });
  EXPECT_EQ(end(), 0);
  const int each = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / 2);
  EXPECT_EQ(text("threads0"), std::to_string(each) + "\n");
  EXPECT_EQ(text("threads1"), std::to_string(each) + "\n");
}

TEST_F(StartedRanks, OnlyTheFirstSpeaks) {
  EXPECT_EQ(run(3, "echo out $RANK; echo err $RANK >&2"), 0);
  EXPECT_EQ(text("out"), "out 0\n");
  EXPECT_EQ(text("err"), "err 0\n");
}

TEST_F(StartedRanks, ThatFailAlikeAreToldOnce) {
  EXPECT_EQ(run(3, "echo 'error[bad_data]: it is bad' >&2; exit 65"), 65);
  EXPECT_EQ(text("err"), "error[bad_data]: it is bad\n");
}

TEST_F(StartedRanks, OneThatFailsOtherwiseIsToldWithItsNumber) {
  EXPECT_EQ(run(3,
                "test $RANK = 2 || exec sleep 60\n"
                "echo begun\necho 'error[bad_data]: it is bad' >&2; echo '  fix: another' >&2; exit 3"),
            3);
  EXPECT_EQ(text("err"), "rank 2: error[bad_data]: it is bad\nrank 2:   fix: another\n");
}

TEST_F(StartedRanks, OfALongTextTheEndIsTold) {
  EXPECT_EQ(run(2,
                "test $RANK = 1 || exit 0\n"
                "i=0; while test $i -lt 9000; do echo line $i of many; i=$((i+1)); done; exit 3"),
            3);
  const std::string err = text("err");
  EXPECT_EQ(std::ranges::count(err, '\n'), 40);
  EXPECT_TRUE(err.starts_with("rank 1: line 8960 of many\n")) << err;
  EXPECT_TRUE(err.ends_with("rank 1: line 8999 of many\n")) << err;
}

// Of a run that takes weeks.
TEST_F(StartedRanks, OfALongTextTheEndIsKept) {
  start(2,
        "test $RANK = 0 && exec sleep 60\n"
        "i=0; while test $i -lt 400; do printf %08192d 0; i=$((i+1)); done\n"
        "echo $$ > p$RANK && mv p$RANK pid$RANK; exec sleep 60");
  pid_of(1);
  const auto kept = [&] {
    int64_t bytes = 0;
    for (const auto& fd : fs::directory_iterator("/proc/" + std::to_string(parent_) + "/fd")) {
      struct stat said{};
      std::error_code error;
      if (fs::read_symlink(fd, error).string().find("memfd:rank 1") != std::string::npos &&
          stat(fd.path().c_str(), &said) == 0)
        bytes += said.st_blocks * 512;
    }
    return bytes;
  };
  EXPECT_GT(kept(), 3 << 20);
  kill(parent_, SIGHUP);  // it looks, and tells nobody
  for (int i = 0; i < 500 && kept() > 1 << 20; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_LT(kept(), 1 << 20);
}

TEST_F(StartedRanks, TheOthersMayEndByThemselves) {
  patience_.lost = kEndless;
  EXPECT_EQ(run(2, "test $RANK = 1 && exit 3; sleep 0.05; echo done > late; exit 75"), 3);
  EXPECT_EQ(text("late"), "done\n");
}

TEST_F(StartedRanks, OneThatIsKilledEndsAll) {
  start(3, kSleep);
  const pid_t first = pid_of(0), second = pid_of(1), third = pid_of(2);
  kill(third, SIGKILL);
  EXPECT_EQ(end(), kExitResumable);
  EXPECT_FALSE(is_there(first) || is_there(second));
  EXPECT_EQ(text("err"),
            "error[rank_lost]: rank 2 ended: signal 9 (Killed)\n"
            "  effect: the other ranks ended too; what was saved before is there\n"
            "  fix: program rank.sh 'a b' --ranks 3\n");
}

TEST_F(StartedRanks, OneThatDiesOfItselfIsToldWithWhatItSaid) {
  EXPECT_EQ(run(2, "test $RANK = 1 || exec sleep 60\necho terminate called >&2; kill -ABRT $$"), kExitResumable);
  EXPECT_TRUE(text("err").starts_with("rank 1: terminate called\nerror[rank_lost]: rank 1 ended: signal 6 (Aborted)\n"))
      << text("err");
}

// Others die of it too, in their own ways.
TEST_F(StartedRanks, AKillIsTheReasonNotWhatFollows) {
  start(2,
        "echo $$ > p$RANK && mv p$RANK pid$RANK\ntest $RANK = 1 && exec sleep 60\n"
        "while test -d /proc/$(cat pid1 2>/dev/null || echo self); do sleep 0.01; done\nexit 71");
  pid_of(0);
  kill(pid_of(1), SIGKILL);
  EXPECT_EQ(end(), kExitResumable);
  EXPECT_TRUE(text("err").starts_with("error[rank_lost]: rank 1 ended: signal 9 (Killed)\n")) << text("err");
}

TEST_F(StartedRanks, WhoDoesNotEndIsKilled) {
  start(2,
        "trap '' TERM\necho $$ > p$RANK && mv p$RANK pid$RANK\ntest $RANK = 1 && exit 3\n"
        "while :; do sleep 0.05; done");
  const pid_t first = pid_of(0);
  EXPECT_EQ(end(), 3);
  EXPECT_FALSE(is_there(first));
}

TEST_F(StartedRanks, WhoDoesNotSeeThatAnotherIsLostIsKilledToo) {
  start(2,
        "trap '' TERM\necho $$ > p$RANK && mv p$RANK pid$RANK\ntest $RANK = 1 && exec sleep 60\n"
        "while :; do sleep 0.05; done");
  const pid_t first = pid_of(0);
  kill(pid_of(1), SIGKILL);
  EXPECT_EQ(end(), kExitResumable);
  EXPECT_FALSE(is_there(first));
  EXPECT_NE(text("err").find("  effect: the other rank did not end, and was killed; what was saved"), std::string::npos)
      << text("err");
}

TEST_F(StartedRanks, WhoStopsIsWaitedForLonger) {
  // Longer than a rank that fails would be: rank 0 saves.
  for (const int exit : {kExitResumable, kExitInterrupted, kExitGuard}) {
    const std::string code = std::to_string(exit), steps = "steps" + code, saved = "saved" + code;
    EXPECT_EQ(run(2, "test $RANK = 0 && touch " + steps + "; while ! test -e " + steps + "; do sleep 0.01; done\n" +
                         "test $RANK = 1 && exit " + code + "; sleep 0.6; echo done > " + saved + "; exit " + code),
              exit);
    EXPECT_EQ(text(saved), "done\n");
    EXPECT_EQ(text("err"), "");
  }
}

TEST_F(StartedRanks, TheFirstThatFailsSaysHowLongTheOthersAreWaitedFor) {
  EXPECT_EQ(run(3, "test $RANK = 1 && exit 3; test $RANK = 2 && sleep 0.05 && exit 75; exec sleep 60"), 3);
  expect_soon();
}

TEST_F(StartedRanks, AnEvaluationThatIsEndedEndsAsOneProcessDoes) {
  words_ = {"sh", "eval"};
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove("pid0"), fs::remove("pid1");
    start(2, kSleep);
    pid_of(0), pid_of(1);
    kill(parent_, signal);
    EXPECT_EQ(end(), 128 + signal);
    EXPECT_EQ(text("err"), "");
  }
}

TEST_F(StartedRanks, WhoEndsBecauseItHasLostAnotherIsNotWaitedForSo) {
  EXPECT_EQ(run(2,
                "test $RANK = 0 && exec sleep 60\n"
                "echo 'error[rank_lost]: rank 0 ended, or did not come' >&2; exit 75"),
            kExitResumable);
  EXPECT_TRUE(text("err").starts_with("rank 1: error[rank_lost]: rank 0 ended, or did not come\n")) << text("err");
  expect_soon();
}

// The others wait for one that will not come.
TEST_F(StartedRanks, BeforeARunHasBegunNobodyIsWaitedFor) {
  begins_ = false;
  patience_ = {.begins = milliseconds(100), .lost = std::chrono::seconds(30), .stopped = std::chrono::seconds(30)};
  EXPECT_EQ(run(3, "test $RANK = 0 && { echo refused >&2; exit 73; }; trap '' TERM; while :; do sleep 0.05; done"), 73);
  EXPECT_EQ(text("err"), "refused\n");
  expect_soon();
}

// A signal that one rank got alone: it was interrupted, and nobody is lost.
TEST_F(StartedRanks, AnInterruptOfOneRankIsAnInterrupt) {
  begins_ = false;
  EXPECT_EQ(run(2, "test $RANK = 1 || exit 130\nexec sleep 60\n"), 130);
  EXPECT_EQ(text("err"), "");
  EXPECT_EQ(run(2,
                "test $RANK = 0 && printf 'run\\nresume\\n\\nsaves nothing\\n' >&$MORTISE_TOLD_FD && touch told\n"
                "while ! test -e told; do sleep 0.01; done; test $RANK = 0 || exit 130\n"
                "trap 'echo SIGINT > got; exit 130' INT; while :; do sleep 0.01; done\n"),
            130);
  EXPECT_EQ(text("got"), "SIGINT\n");
  EXPECT_EQ(text("err"), "");
  expect_soon();
  begins_ = true;
  patience_.stopped = milliseconds(300);
  EXPECT_EQ(run(2, "test $RANK = 0 || exit 130\ntrap 'exit 75' TERM\nwhile :; do sleep 0.01; done\n"), 130);
  EXPECT_EQ(text("err"), "");
}

// There was no run when another failed, and there is one when the patience with ranks that begin ends.
TEST_F(StartedRanks, ARunThatBeginsMeanwhileIsAskedToEnd) {
  begins_ = false;
  patience_ = {.begins = milliseconds(1500), .lost = milliseconds(2000), .killed = std::chrono::seconds(30)};
  EXPECT_EQ(run(2,
                "test $RANK = 0 || exit 65\ntrap 'echo asked > got; exit 75' TERM\n"
                "sleep 0.2; printf 'run\\n' >&$MORTISE_TOLD_FD; while :; do sleep 0.05; done"),
            65);
  EXPECT_EQ(text("got"), "asked\n");
}

TEST_F(StartedRanks, WhoInterruptsTwiceBeforeThereIsARunHasLostNothing) {
  begins_ = false;
  start(2, "trap '' INT\n" + std::string(kSleep));
  pid_of(0), pid_of(1);
  kill(parent_, SIGINT);
  std::this_thread::sleep_for(milliseconds(600));
  kill(parent_, SIGINT);
  EXPECT_EQ(end(), kExitInterrupted);
  EXPECT_EQ(text("err"), "");
  expect_soon();
}

TEST_F(StartedRanks, AreWaitedForWhereTheParentsParentIgnoresThem) {
  start(2, "exit 0\n", [] { ::signal(SIGCHLD, SIG_IGN); });
  EXPECT_EQ(end(), 0);
  expect_soon();
}

TEST_F(StartedRanks, WhoDoesNotEndWellIsTheExit) { EXPECT_EQ(run(2, "test $RANK = 0 || exit 75\n"), 75); }

TEST_F(StartedRanks, RankZeroIsTheLastToStop) {
  EXPECT_EQ(run(2, "test $RANK = 0 && exit 75; trap '' TERM; while :; do sleep 0.05; done"), kExitResumable);
  EXPECT_TRUE(text("err").starts_with("error[rank_lost]: rank 1 did not end when another had, and was killed\n"))
      << text("err");
  expect_soon();
}

// When all were asked to end.
TEST_F(StartedRanks, ARankIsNotWaitedForWhereRankZeroSavesNothing) {
  begins_ = false;
  start(2,
        "trap 'test $RANK = 0 && exit 75' TERM\n"
        "test $RANK = 0 && printf 'run\nresume\n\nsaves nothing\n' >&$MORTISE_TOLD_FD\n"
        "echo $$ > pid$RANK; while :; do sleep 0.05; done");
  pid_of(0), pid_of(1);
  kill(parent_, SIGTERM);
  EXPECT_EQ(end(), kExitResumable);
  EXPECT_TRUE(text("err").starts_with("error[rank_lost]: rank 1 did not end when another had, and was killed\n"))
      << text("err");
  expect_soon();
}

TEST_F(StartedRanks, OfARunThatHasSavedTheCommandThatGoesOnIsTold) {
  words_ = {"sh", "train", "run.toml"};
  begins_ = false;
  const auto lost = [&](const std::string& more) {
    return run(2, "test $RANK = 0 && { " + more + " sleep 0.4; exit 75; }; sleep 0.3; kill -9 $$");
  };
  for (const auto& [dir, effect, fix] :
       {std::tuple("none", "nothing was saved yet", "program train run.toml --ranks 2 --resume"),
        std::tuple("saved", "what was saved before is there", "program resume saved --ranks 2")}) {
    fs::create_directories("saved/checkpoints/step-20");
    EXPECT_EQ(lost("printf '" + std::string(dir) + "\\nprogram resume saved --ranks 2' >&$MORTISE_TOLD_FD;"),
              kExitResumable);
    EXPECT_EQ(text("err"), "error[rank_lost]: rank 1 ended: signal 9 (Killed)\n  effect: the other rank ended too; " +
                               std::string(effect) + "\n  fix: " + fix + "\n");
  }
}

TEST_F(StartedRanks, WhoHangsWhenTheOthersStopIsTold) {
  patience_.stopped = milliseconds(300);
  EXPECT_EQ(run(2, "test $RANK = 1 && exec sleep 60; exit 75"), kExitResumable);
  EXPECT_TRUE(text("err").starts_with("error[rank_lost]: rank 1 did not end when another had, and was killed\n"))
      << text("err");
  // One that ended well is not among those that did not end.
  EXPECT_EQ(run(3, "test $RANK = 1 && exec sleep 60; exit 75"), kExitResumable);
  EXPECT_NE(text("err").find("  effect: the other ranks ended too; "), std::string::npos) << text("err");
}

// Like a training it begins with its signals held, and handles them a while later. A shell would not do: it takes
// them.
const char* const kPython = R"(
import os, signal, time
def write(name, text):
    with open(name + "~", "w") as f: f.write(text)
    os.rename(name + "~", name)
rank, n = os.environ["RANK"], {}
if os.path.exists("slow"):
    write("early" + rank, "")
    time.sleep(0.5)
def on(s, _): n[s] = n.get(s, 0) + 1
for s in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1): signal.signal(s, on)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
write("pid" + rank, f"{os.getpid()}\n")
end = time.monotonic() + 60
while time.monotonic() < end and not (signal.SIGTERM in n or signal.SIGINT in n): time.sleep(0.01)
time.sleep(0.2)
write("got" + rank, " ".join(f"{signal.Signals(s).name} {k}" for s, k in sorted(n.items())) + "\n")
os._exit(130 if signal.SIGINT in n else 75)
)";

class StartedRanksSignals : public StartedRanks {
 protected:
  void start_python() {
    std::ofstream("rank.py") << kPython;
    start(2, "exec python3 rank.py");
    pid_of(0);
    pid_of(1);
  }
};

TEST_F(StartedRanksSignals, OfTheParentReachEveryRank) {
  start_python();
  kill(parent_, SIGUSR1);
  std::this_thread::sleep_for(milliseconds(100));
  kill(parent_, SIGTERM);
  EXPECT_EQ(end(), kExitResumable);
  EXPECT_EQ(text("got0"), "SIGUSR1 1 SIGTERM 1\n");
  EXPECT_EQ(text("got1"), text("got0"));
  EXPECT_EQ(text("err"), "");
}

TEST_F(StartedRanksSignals, AnInterruptOfTheParentAloneReachesThemOnce) {
  start_python();
  kill(parent_, SIGINT);
  EXPECT_EQ(end(), kExitInterrupted);
  for (const char* got : {"got0", "got1"}) EXPECT_EQ(text(got), "SIGINT 1\n");
}

TEST_F(StartedRanksSignals, ThatComeBeforeTheyAreHandledAreNotLost) {
  std::ofstream("slow") << "";
  std::ofstream("rank.py") << kPython;
  start(2, "exec python3 rank.py");
  for (int i = 0; i < 2000 && !(fs::exists("early0") && fs::exists("early1")); ++i)
    std::this_thread::sleep_for(milliseconds(10));
  kill(parent_, SIGTERM);
  EXPECT_EQ(end(), kExitResumable);
  for (const char* got : {"got0", "got1"}) EXPECT_EQ(text(got), "SIGTERM 1\n");
}

// A rank that hangs hears nothing; who interrupts twice does not wait a minute for it.
TEST_F(StartedRanksSignals, TheSecondInterruptEndsThePatience) {
  start_python();
  kill(pid_of(1), SIGSTOP);
  kill(parent_, SIGINT);
  std::this_thread::sleep_for(milliseconds(600));
  kill(parent_, SIGINT);
  EXPECT_EQ(end(), kExitInterrupted);
  EXPECT_EQ(text("got0"), "SIGINT 1\n");
  EXPECT_TRUE(
      text("err").starts_with("error[rank_lost]: rank 1 did not end when it was interrupted again, and was killed\n"))
      << text("err");
}

TEST_F(StartedRanksSignals, WhoDoesNotEndIsSaid) {
  patience_.silent = milliseconds(1000);
  start_python();
  kill(parent_, SIGUSR1);  // no end
  std::this_thread::sleep_for(milliseconds(1300));
  EXPECT_EQ(text("err"), "");
  kill(pid_of(1), SIGSTOP);
  kill(parent_, SIGTERM);
  const auto asked = std::chrono::steady_clock::now();
  const char* const waits = "waiting for rank 1, which has not ended; Ctrl-C (SIGINT) twice ends it\n";
  for (int i = 0; i < 2000 && text("err") != waits; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(8));
  kill(parent_, SIGTERM);
  std::this_thread::sleep_for(milliseconds(1300));
  EXPECT_EQ(text("err"), waits) << "once";
  kill(pid_of(1), SIGCONT);
  EXPECT_EQ(end(), kExitResumable);
}

TEST_F(StartedRanks, WhoDoesNotEndWhenOthersAreDoneIsSaid) {
  patience_.silent = milliseconds(100);
  for (const auto& [ranks, who] :
       {std::pair(2, "1, which has"), {3, "1 and another, which have"}, {4, "1 and 2 others, which have"}}) {
    EXPECT_EQ(run(ranks, "test $RANK = 0 && exit 0\nwhile ! test -s err; do sleep 0.05; done"), 0);
    EXPECT_EQ(text("err"), "waiting for rank " + std::string(who) + " not ended; Ctrl-C (SIGINT) twice ends it\n");
  }
}

TEST_F(StartedRanks, WhatMoreAnInterruptWants) {
  patience_.silent = milliseconds(600);
  start(2, "trap '' INT\n" + std::string(kSleep));
  pid_of(0), pid_of(1);
  kill(parent_, SIGINT);
  const char* const waits = "waiting for rank 0 and another, which have not ended; Ctrl-C (SIGINT) once more ends it\n";
  for (int i = 0; i < 2000 && text("err") != waits; ++i) std::this_thread::sleep_for(milliseconds(10));
  kill(parent_, SIGINT);
  EXPECT_EQ(end(), kExitInterrupted);
  EXPECT_TRUE(text("err").starts_with(waits)) << text("err");
}

// An end that was asked for hides no failure.
TEST_F(StartedRanks, AFailureAfterAnInterruptIsTheExit) {
  EXPECT_EQ(run(2, "test $RANK = 0 && exit 130\nsleep 0.1; exit 65"), 65);
}

// Of ranks that lost one another the first that ended saw it first; rank 0, which was stopped, blames them.
TEST_F(StartedRanks, WhoEndedFirstOfThoseThatAreLostIsTold) {
  patience_.lost = kEndless;
  EXPECT_EQ(run(2,
                "test $RANK = 0 && { sleep 0.3; echo 'error[rank_lost]: rank 1 ended' >&2; exit 75; }\n"
                "echo 'error[rank_lost]: rank 0 ended' >&2; exit 75"),
            kExitResumable);
  EXPECT_EQ(text("err"), "error[rank_lost]: rank 1 ended\nrank 1: error[rank_lost]: rank 0 ended\n");
}

// As any program: an evaluation has nothing to save.
TEST_F(StartedRanks, AHangupEndsAnEvaluation) {
  words_ = {"sh", "eval"};
  start(2, kSleep);
  pid_of(0), pid_of(1);
  kill(parent_, SIGHUP);
  EXPECT_EQ(end(), 128 + SIGHUP);
}

TEST_F(StartedRanksSignals, AnInterruptIsOneWhereARankHangs) {
  patience_.stopped = milliseconds(300);
  start_python();
  kill(pid_of(1), SIGSTOP);
  kill(parent_, SIGINT);
  EXPECT_EQ(end(), kExitInterrupted);
  EXPECT_TRUE(text("err").starts_with("error[rank_lost]: rank 1 did not end when another had, and was killed\n"))
      << text("err");
}

TEST_F(StartedRanksSignals, ThatCameTwiceAtOnceAreOne) {
  start_python();
  kill(pid_of(1), SIGSTOP);
  for (int i = 0; i < 2; ++i) kill(parent_, SIGINT), std::this_thread::sleep_for(milliseconds(50));
  for (int i = 0; i < 500 && !fs::exists("got0"); ++i) std::this_thread::sleep_for(milliseconds(10));
  std::this_thread::sleep_for(milliseconds(700));  // longer than a rank that was lost would be waited for
  EXPECT_TRUE(is_there(pid_of(1)));
  kill(pid_of(1), SIGCONT);
  EXPECT_EQ(end(), kExitInterrupted);
  EXPECT_EQ(text("err"), "");
}

// A training holds them until it handles them; an evaluation has nothing to save.
TEST_F(StartedRanks, OnlyATrainingBeginsWithSignalsHeld) {
  for (const auto& [verb, held] : {std::pair("train", true), std::pair("eval", false)}) {
    words_ = {"sh", verb};
    EXPECT_EQ(run(2, "exec grep SigBlk /proc/self/status > mask$RANK"), 0);
    for (const char* mask : {"mask0", "mask1"})
      EXPECT_EQ((std::stoull(text(mask).substr(8), nullptr, 16) & (1ull << (SIGTERM - 1))) != 0, held) << verb;
  }
}

TEST_F(StartedRanks, NoneStaysWhenTheParentIsKilled) {
  start(3, kSleep);
  const pid_t all[] = {pid_of(0), pid_of(1), pid_of(2)};
  kill(parent_, SIGKILL);
  EXPECT_EQ(end(), -SIGKILL);
  for (const pid_t pid : all) EXPECT_TRUE(is_gone(pid));
}

TEST_F(StartedRanks, AProgramThatIsNotThereIsSaidOnce) {
  std::ofstream("rank.sh") << "";
  parent_ = fork();
  if (parent_ == 0) {
    if (!freopen("err", "w", stderr)) _exit(99);
    _exit(run_ranks(2, {"x"}, "/nowhere/mortise", kShort));
  }
  EXPECT_EQ(end(), 127);
  EXPECT_EQ(text("err"), "error: /nowhere/mortise cannot be started: No such file or directory\n");
}

TEST(RanksWords, AreTheUsersOwnWithoutTheFlag) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(without_flag({"mortise", "train", "--ranks", "4", "run.toml", "--set", "a=b"}, "--ranks"),
            (Words{"mortise", "train", "run.toml", "--set", "a=b"}));
  EXPECT_EQ(without_flag({"mortise", "train", "run.toml", "--ranks=all"}, "--ranks"),
            (Words{"mortise", "train", "run.toml"}));
  EXPECT_EQ(without_flag({"mortise", "train", "run.toml"}, "--ranks"), (Words{"mortise", "train", "run.toml"}));
}

}  // namespace
}  // namespace mortise::cli
