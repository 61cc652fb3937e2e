#include "core/cli/command_line.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>

#include "core/abi/lost_device.hpp"
#include "core/base/diagnostic.hpp"

namespace mortise::cli {
namespace {

// What a verb throws that is no refusal.
TEST(CommandLine, AMistakeOfOurOwnIsSaidToBeOne) {
  std::string program = "mortise", verb = "points";
  char* words[] = {program.data(), verb.data(), nullptr};
  testing::internal::CaptureStderr();
  const int exit =
      command_line(2, words, [](const Verb&, const Arguments&) -> int { throw std::out_of_range("map::at"); });
  EXPECT_EQ(exit, kExitBug);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error[internal]: map::at\n"
            "  fix: this is a mistake of ours: report it with the command line and the manifest\n");
}

// With a device that is lost, and whatever `verb` does.
int on_lost_device(const RunVerb& verb) {
  lost_device = [] { return std::string("the GPU says: it is gone"); };
  std::string program = "mortise", name = "points";
  char* words[] = {program.data(), name.data(), nullptr};
  std::atexit([] { std::cerr << "destroyed"; });
  return command_line(2, words, verb);
}

TEST(LostDevice, EndsTheProcessWithoutDestroyingAnything) {
  EXPECT_EXIT(on_lost_device([](const Verb&, const Arguments&) -> int { throw Failure(device_lost()); }),
              testing::ExitedWithCode(kExitBug),
              "^error.device_lost.: the GPU says: it is gone\n  fix: which call it was: [^\n]*\n$");
}

TEST(LostDevice, IsWhatAnExceptionThatNobodyReadIsOf) {
  EXPECT_EXIT(on_lost_device([](const Verb&, const Arguments&) -> int { throw std::runtime_error("a destructor"); }),
              testing::ExitedWithCode(kExitBug), "^error.device_lost.: the GPU says: it is gone\n[^\n]*\n$");
}

// A destructor that calls CUDA, a program's loop that catches nothing.
TEST(LostDevice, IsWhatAnExceptionThatNobodyCatchesIsOf) {
  const std::function<void()> destroy = [] { throw std::runtime_error("cuda"); };
  EXPECT_EXIT(on_lost_device([&](const Verb&, const Arguments&) noexcept { return destroy(), kExitOk; }),
              testing::ExitedWithCode(kExitBug), "^error.device_lost.: the GPU says: it is gone\n[^\n]*\n$");
}

// Here as in the program, which links no LibTorch.
TEST(Verbs, HaveTheirWorkWhereTheyNeedNoLibTorch) {
  std::string here, computing;
  for (const Verb& verb : verbs()) (verb.work ? here : computing) += " " + verb.name;
  EXPECT_EQ(here, " init plan export checkpoint bench plugin explain keys points");
  EXPECT_EQ(computing, " data train resume sample eval help");
}

}  // namespace
}  // namespace mortise::cli
