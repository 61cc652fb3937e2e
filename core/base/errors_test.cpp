#include "core/base/errors.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

TEST(ErrorTable, StandInTheTableOnceEachAndInOrder) {
  EXPECT_TRUE(std::ranges::is_sorted(all_errors(), std::ranges::less_equal{}, &ErrorEntry::code));
  for (const ErrorEntry& entry : all_errors()) {
    EXPECT_TRUE(entry.meaning.find(". ") != std::string_view::npos || entry.meaning.ends_with('.')) << entry.code;
    const bool by_signal = entry.exit > 128;
    EXPECT_TRUE(entry.exit == 0 || by_signal || (entry.exit >= kExitUsage && entry.exit <= kExitGuard)) << entry.code;
  }
}

TEST(ErrorTable, AreExplained) {
  EXPECT_EQ(explain_error("unknown_key"), "error[unknown_key]\n  A table has no such key.\n  exit code 64\n");
  EXPECT_EQ(explain_error("not_on"), "warning[not_on]\n  `--without` names a plugin that is not on.\n");
}

TEST(ErrorTable, TellsTheNearestCode) {
  const auto fix_of = [](const std::string& code) {
    try {
      explain_error(code);
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "unknown_code");
      EXPECT_EQ(f.diagnostic.exit, kExitUsage);
      return f.diagnostic.fixes.at(0);
    }
    return std::string("explained");
  };
  EXPECT_EQ(fix_of("unknwon_key"), "mortise explain unknown_key");
  EXPECT_EQ(fix_of("something_else_entirely"), "mortise explain   lists them, mortise keys the keys");
}

TEST(ExitTable, HasEveryExitOnceAndTheExitOfEveryError) {
  EXPECT_TRUE(std::ranges::is_sorted(all_exits(), std::ranges::less_equal{}, &ExitEntry::code));
  for (const Exit exit : {kExitOk, kExitNo, kExitUsage, kExitData, kExitUnavailable, kExitBug, kExitPlugin, kExitExists,
                          kExitIo, kExitResumable, kExitGuard, kExitInterrupted})
    EXPECT_NE(find_exit(std::to_string(exit)), nullptr) << exit;
  EXPECT_EQ(all_exits().size(), 12u) << "an exit was added: list it above";
  for (const ErrorEntry& entry : all_errors())
    EXPECT_TRUE(entry.exit > 128 || find_exit(std::to_string(entry.exit))) << entry.code;
}

TEST(ExitTable, IsExplained) {
  EXPECT_TRUE(explain_error("76").starts_with("exit 76: a guard stopped it\n  A guard stopped the run"))
      << explain_error("76");
  EXPECT_THROW(explain_error("77"), Failure);
}

}  // namespace
}  // namespace mortise
