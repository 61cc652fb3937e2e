#include <gtest/gtest.h>

#include <sstream>

#include "core/cli/print.hpp"

namespace mortise::cli {
namespace {

TEST(PrintPoints, GroupsByStageInAlignedColumns) {
  PointTable table;
  table.add_operator("scan", "x -> y", "a scan", "operators.mine");
  std::ostringstream out;
  print_points(out, table, false);
  const std::string text = out.str();
  EXPECT_NE(text.find("\nbuild\n  device             object    L       open, describe, memory"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  scan               operator  R; A    x -> y"), std::string::npos) << text;
  EXPECT_NE(text.find("a scan"), std::string::npos);
  EXPECT_LT(text.find("  scan"), text.find("\nupdate\n"));
  EXPECT_NE(text.find("  operators.mine\n"), std::string::npos);
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "no line ends in a blank";
}

TEST(PrintPoints, WritesOneObjectAPointForPrograms) {
  std::ostringstream out;
  print_points(out, PointTable(), true);
  EXPECT_EQ(out.str().find("[{\"name\":\"device\",\"stage\":\"build\",\"kind\":\"object\",\"thread\":\"L\",\"fields\":"
                           "\"open, describe, memory\","),
            0U);
  EXPECT_TRUE(out.str().ends_with("\"from\":\"core\"}]\n"));
}

TEST(PrintPoints, MakesATableAStageForTheGuide) {
  const std::string text = points_markdown(PointTable());
  EXPECT_NE(text.find("\n## update\n\n| point | kind |"), std::string::npos);
  EXPECT_NE(
      text.find("| `grad.transform` | filter | L | multiplier | what the optimizer multiplies gradients by | core |\n"),
      std::string::npos);
  EXPECT_NE(text.find("`watch` `capture` `retain` `repeat` `place` `adapt` `cast`."), std::string::npos);
}

}  // namespace
}  // namespace mortise::cli
