#include "core/base/errors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

TEST(ErrorTable, StandInTheTableOnceEachAndInOrder) {
  EXPECT_TRUE(std::ranges::is_sorted(all_errors(), std::ranges::less_equal{}, &ErrorEntry::code));
  for (const ErrorEntry& entry : all_errors()) {
    EXPECT_TRUE(entry.meaning.find(". ") != std::string_view::npos || entry.meaning.ends_with('.')) << entry.code;
    EXPECT_TRUE(entry.exit == 0 || (entry.exit >= kExitUsage && entry.exit <= kExitGuard)) << entry.code;
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
  EXPECT_EQ(fix_of("something_else_entirely"), "mortise explain   lists them");
}

// Regenerate the page: mortise explain --markdown > docs/errors.md
TEST(ErrorTable, AreThePageOfTheDocuments) {
  std::ifstream in(MORTISE_SOURCE_DIR "/docs/errors.md");
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  EXPECT_EQ(page, errors_markdown());
}

}  // namespace
}  // namespace mortise
