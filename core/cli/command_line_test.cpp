#include "core/cli/command_line.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

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

// Here as in the program, which links no LibTorch.
TEST(Verbs, HaveTheirWorkWhereTheyNeedNoLibTorch) {
  std::string here, computing;
  for (const Verb& verb : verbs()) (verb.work ? here : computing) += " " + verb.name;
  EXPECT_EQ(here, " init checkpoint plan bench points keys export plugin explain");
  EXPECT_EQ(computing, " train resume data sample eval help");
}

}  // namespace
}  // namespace mortise::cli
