// Ends of a process, each in a child: what it says, and with which status it ends.
#include "core/plugin/crash.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <functional>
#include <thread>

#include "core/plugin/calls.hpp"
#include "core/plugin/test_fixtures.hpp"
#include "core/plugin/watchdog.hpp"

namespace mortise {
namespace {

struct End {
  int status = 0;
  std::string said;
  int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
  int exit() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
};

// `body` in a process of its own, with stderr here.
End end_of(const std::function<void()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    for (const int each : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) signal(each, SIG_DFL);
    guard_process();
    body();
    _exit(0);
  }
  close(ends[1]);
  End end;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) end.said.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  waitpid(child, &end.status, 0);
  return end;
}

[[gnu::noinline, gnu::no_sanitize("undefined")]] void crash() {
  volatile int* volatile nowhere = nullptr;  // so that no compiler knows it
  *nowhere = 1;
}

[[gnu::noinline]] int deep(volatile char* outer, uint64_t levels) {
  volatile char room[4096];
  room[0] = outer ? outer[0] : char{1};
  return levels == 0 ? 0 : deep(room, levels - 1) + room[0];
}

// A run directory with a checkpoint of step 3.
std::string run_in(const TemporaryFolder& folder) {
  std::filesystem::create_directories(folder / "checkpoints/step-3");
  std::filesystem::create_directory_symlink("step-3", folder / "checkpoints/latest");
  return folder.text();
}

TEST(Crash, NamesPluginPointPlaceStepAndTheWayToGoOn) {
  const TemporaryFolder folder;
  const std::string dir = run_in(folder);
  const End end = end_of([&] {
    const RunUnderWay run(dir, "mortise resume " + dir, {});
    RunUnderWay::set_step(5);
    const PluginScope scope("optimizer.bad", "block", "h.3");
    crash();
  });
  EXPECT_EQ(end.signal(), SIGSEGV);
  EXPECT_EQ(end.said,
            "error[plugin_crashed]: optimizer.bad crashed in `block` at h.3 (SIGSEGV at 0x0); step 5; last checkpoint "
            "is step 3; fix: mortise resume " +
                dir + "\n");
}

TEST(Crash, SaysThatNothingIsSaved) {
  const TemporaryFolder folder;
  const End end = end_of([&] {
    const RunUnderWay run(folder.text(), "mortise resume " + folder.text(), {});
    const PluginScope scope("optimizer.bad", "step");
    abort();
  });
  EXPECT_EQ(end.signal(), SIGABRT);
  EXPECT_EQ(end.said,
            "error[plugin_crashed]: optimizer.bad crashed in `step` (SIGABRT); step 0; nothing is saved yet\n");
}

TEST(Crash, IsAnObjectForMachines) {
  const End end = end_of([] {
    set_guard_output([](const Diagnostic&) {}, /*json=*/true);
    const PluginScope scope("optimizer.bad", "a \"step\"");
    raise(SIGFPE);
  });
  EXPECT_EQ(end.signal(), SIGFPE);
  EXPECT_EQ(end.said,
            "{\"level\":\"error\",\"code\":\"plugin_crashed\",\"message\":\"optimizer.bad crashed in `a \\\"step\\\"` "
            "(SIGFPE)\",\"fix\":[],\"plugin\":\"optimizer.bad\",\"exit\":null}\n");
}

TEST(Crash, IsTheCoresOutsideOfEveryPlugin) {
  EXPECT_EQ(end_of([] { raise(SIGILL); }).said, "error[crashed]: the core crashed (SIGILL)\n");
  const End inside = end_of([] {
    const PluginScope around("optimizer.bad", "block");
    const PluginScope core("", "forward");
    raise(SIGBUS);
  });
  EXPECT_EQ(inside.said, "error[crashed]: the core crashed in `forward` (SIGBUS)\n");
}

TEST(Crash, OfAMappedFileThatWasCutIsTheMistakeOfNobodysCode) {
  const TemporaryFolder folder;
  const std::string dir = run_in(folder);
  for (const bool json : {false, true}) {
    const End end = end_of([&] {
      set_guard_output([](const Diagnostic&) {}, json);
      const RunUnderWay run(dir, "mortise resume " + dir, {});
      const int fd = open((dir + "/file").c_str(), O_RDWR | O_CREAT, 0600);
      if (ftruncate(fd, 4096) != 0) _exit(1);
      const volatile char* mapped = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0));
      if (ftruncate(fd, 0) != 0) _exit(1);
      const PluginScope scope("data.bad", "get");
      static_cast<void>(mapped[0]);
    });
    EXPECT_EQ(end.exit(), 74);
    const std::string text = "a file that is mapped cannot be read or has no room: it was cut, or its disk failed";
    const std::string begins = json ? "{\"level\":\"error\",\"code\":\"mapped_file_lost\",\"message\":\"" + text
                                    : "error[mapped_file_lost]: " + text + " in `get` (SIGBUS at 0x";
    EXPECT_TRUE(end.said.starts_with(begins)) << end.said;
    EXPECT_TRUE(end.said.ends_with(json ? "\"plugin\":\"data.bad\",\"exit\":74}\n"
                                        : "; last checkpoint is step 3; fix: mortise resume " + dir + "\n"))
        << end.said;
  }
}

TEST(Crash, IsSaidByNobodyOnceTheSignalsAreGivenBack) {
  const End end = end_of([] {
    release_signals();
    const PluginScope scope("optimizer.bad", "step");
    raise(SIGFPE);
  });
  EXPECT_EQ(end.signal(), SIGFPE);
  EXPECT_EQ(end.said, "");
}

TEST(Crash, SaysThatTheStackIsFullOnItsOwnStack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers move stacks";
#endif
  for (const bool elsewhere : {false, true}) {
    const auto overflow = [] {
      const PluginScope scope("optimizer.bad", "step");
      deep(nullptr, UINT64_MAX);
    };
    const End end = end_of([&] { elsewhere ? std::thread(overflow).join() : overflow(); });
    EXPECT_EQ(end.signal(), SIGSEGV);
    EXPECT_EQ(end.said, "error[plugin_crashed]: optimizer.bad crashed in `step` (SIGSEGV, stack overflow)\n");
  }
}

TEST(Crash, FindsThePluginOfAThreadThatItMadeItself) {
  const End end = end_of([] {
    const auto at = reinterpret_cast<uintptr_t>(&crash) & ~uintptr_t{4095};
    register_code("data.bad", reinterpret_cast<const void*>(at), 2 * 4096);
    std::thread(crash).join();
  });
  EXPECT_EQ(end.said, "error[plugin_crashed]: data.bad crashed in a thread of its own (SIGSEGV at 0x0)\n");
}

TEST(Exit, InsideACallIsAFailureOfThePlugin) {
  const TemporaryFolder folder;
  const End end = end_of([&] {
    const RunUnderWay run(run_in(folder), "mortise resume " + folder.text(),
                          [](int code) { std::cerr << "ended " << code << "\n"; });
    RunUnderWay::set_step(2);
    const PluginScope scope("optimizer.bad", "step");
    exit(0);
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_EQ(
      end.said,
      "error[plugin_exited]: optimizer.bad called exit(0) in `step`\n  at: step 2\n  effect: the run stopped; last "
      "checkpoint is step 3\n  fix: mortise resume " +
          folder.text() + "\nended 71\n");
}

TEST(Exit, OfAThreadThatNobodyKnowsIsOneTooWhileARunIsUnderWay) {
  const TemporaryFolder folder;
  const End end = end_of([&] {
    const RunUnderWay run(folder.text(), "mortise resume " + folder.text(), {});
    std::thread([] { exit(0); }).join();
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_TRUE(end.said.starts_with("error[plugin_exited]: a thread that the core did not start called exit(0)\n"));
}

TEST(Exit, OfSeveralThreadsAtOnceIsSaidOnce) {
  const End end = end_of([] {
    set_guard_output(
        [](const Diagnostic& d) {
          usleep(50'000);
          print(std::cerr, d, false);
        },
        false);
    const auto leave = [] {
      const PluginScope scope("data.bad", "get");
      exit(0);
    };
    std::thread other(leave);
    leave();
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_EQ(end.said, "error[plugin_exited]: data.bad called exit(0) in `get`\n");
}

// What an exit destroys, other threads may still stand on.
TEST(Exit, ThatMakesAnotherThreadCrashIsWhatIsSaid) {
  const End end = end_of([] {
    static std::atomic<bool> ending{false};
    set_guard_output(
        [](const Diagnostic& d) {
          ending = true;
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          dprintf(STDERR_FILENO, "%s", d.message.c_str());
        },
        /*json=*/false);
    std::thread other([] {
      while (!ending) std::this_thread::yield();
      crash();
    });
    other.detach();
    const PluginScope scope("data.bad", "get");
    exit(0);
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_EQ(end.said, "data.bad called exit(0) in `get`");
}

TEST(Exit, OutsideOfPluginsIsLeftAlone) {
  const End end = end_of([] { exit(3); });
  EXPECT_EQ(end.exit(), 3);
  EXPECT_EQ(end.said, "");
}

TEST(Exit, OfAChildThatAPluginMadeIsLeftAlone) {
  const End end = end_of([] {
    const PluginScope scope("data.bad", "open");
    const pid_t child = fork();
    if (child == 0) exit(4);
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WEXITSTATUS(status));
  });
  EXPECT_EQ(end.exit(), 4);
  EXPECT_EQ(end.said, "");
}

TEST(Exit, IsNotZeroAfterALateFailure) {
  const End end = end_of([] {
    report_late_failure(trouble(kExitPlugin, "plugin_failed", "too late"));
    exit(0);
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_EQ(end.said, "error[plugin_failed]: too late\n");
}

TEST(Exit, LeavesOutWhatWasRegisteredBefore) {
  const auto end_with = [](int status, bool late_failure) {
    return end_of([&] {
      std::atexit([] { std::fputs("before", stderr); });
      leave_out_exit_handlers_so_far();
      std::atexit([] { std::fputs("after", stderr); });
      if (late_failure) report_late_failure(trouble(kExitPlugin, "plugin_failed", "too late"));
      guard_process();
      exit(status);
    });
  };
  for (const int status : {0, 75}) {
    const End end = end_with(status, false);
    EXPECT_EQ(end.exit(), status);
    EXPECT_EQ(end.said, "after");
  }
  EXPECT_EQ(end_with(0, true).exit(), kExitPlugin);
}

// A machine that does much else may let a thread wait for a good part of a second.
constexpr std::chrono::milliseconds kFarFromAnyCall(2000);

TEST(Watchdog, EndsACallThatDoesNotComeBack) {
  const End end = end_of([] {
    const CallWatchdog watchdog(std::chrono::milliseconds(100));
    const PluginScope scope("data.bad", "get");
    for (;;) pause();
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_TRUE(end.said.starts_with(
      "error[plugin_hangs]: no return for 0.1s, which is run.call_timeout: of data.bad from `get`\n"))
      << end.said;
}

TEST(Watchdog, LetsManyShortCallsAndTheCoreTakeTheirTime) {
  const End end = end_of([] {
    const CallWatchdog watchdog(kFarFromAnyCall);
    const PluginScope around("model.good", "block");
    for (int i = 0; i < 20; ++i) {
      const PluginScope scope("data.good", "get");
      usleep(110'000);
    }
    const PluginScope core("", "forward");
    usleep(2'200'000);
  });
  EXPECT_EQ(end.exit(), 0);
  EXPECT_EQ(end.said, "");
}

// One of them may only wait for what the other one does.
TEST(Watchdog, NamesEveryCallThatIsSlow) {
  const End end = end_of([] {
    const CallWatchdog watchdog(kFarFromAnyCall);
    std::thread other([] {
      usleep(100'000);
      const PluginScope scope("loader.bad", "next");
      for (;;) pause();
    });
    const PluginScope scope("data.bad", "get");
    for (;;) pause();
  });
  EXPECT_EQ(end.exit(), kExitPlugin);
  EXPECT_NE(end.said.find("of data.bad from `get`, of loader.bad from `next`\n"), std::string::npos) << end.said;
}

TEST(Watchdog, KnowsNoThreadThatEnded) {
  const auto known = [] {
    const std::lock_guard lock(all_threads().mutex);
    return all_threads().list.size();
  };
  const PluginScope here("data.good", "get");
  const size_t before = known();
  std::thread([&] {
    const PluginScope scope("data.good", "get");
    EXPECT_EQ(known(), before + 1);
  }).join();
  EXPECT_EQ(known(), before);
}

// The next thread's calls stand at the address of those of the thread before, and look like them.
TEST(Watchdog, TakesNoThreadForTheOneBeforeIt) {
  const End end = end_of([] {
    const CallWatchdog watchdog(kFarFromAnyCall);
    for (int i = 0; i < 20; ++i)
      std::thread([] {
        const PluginScope scope("data.good", "get");
        usleep(110'000);
      }).join();
  });
  EXPECT_EQ(end.exit(), 0);
  EXPECT_EQ(end.said, "");
}

}  // namespace
}  // namespace mortise
