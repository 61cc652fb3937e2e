#include "core/plan/points.hpp"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

namespace mortise {
namespace {

TEST(Points, HaveNamesOfTheirOwn) {
  const PointTable table;
  std::set<std::string> names;
  for (uint32_t i = 0; i < table.size(); ++i) EXPECT_TRUE(names.insert(table[i].name).second) << table[i].name;
}

TEST(Points, AreFoundUnderTheIndexOfTheirSymbol) {
  const PointTable table;
  EXPECT_EQ(table.find("grad.transform"), kGradTransform);
  EXPECT_EQ(table[kOptimizer].name, "optimizer");
  EXPECT_EQ(table.find("optimiser"), -1);
}

TEST(Points, TakeOperatorsAsRowsOfData) {
  PointTable table;
  const uint32_t scan = table.add_operator("scan", "x -> y", "a scan", "operators.mine");
  EXPECT_EQ(scan, kFirstOperator);
  EXPECT_EQ(table[scan].kind, Kind::Operator);
  EXPECT_EQ(table[scan].from, "operators.mine");
}

TEST(Points, KeepTheFirstRowOfAnOperatorThatTwoBring) {
  PointTable table;
  const uint32_t first = table.add_operator("scan", "x -> y", "a scan", "operators.mine");
  EXPECT_EQ(table.add_operator("scan", "", "", "operators.yours"), first);
  EXPECT_EQ(table[first].from, "operators.mine");
}

TEST(PrintPoints, GroupsByStageInAlignedColumns) {
  PointTable table;
  table.add_operator("scan", "x -> y", "a scan", "operators.mine");
  std::ostringstream out;
  print_points(out, table, false);
  const std::string text = out.str();
  EXPECT_NE(text.find("\nbuild\n  device           object    L       open, describe, memory"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  scan             operator  R; A    x -> y"), std::string::npos) << text;
  EXPECT_NE(text.find("a scan"), std::string::npos);
  EXPECT_LT(text.find("  scan"), text.find("\nupdate\n"));
  EXPECT_NE(text.find("  operators.mine\n"), std::string::npos);
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "no line ends in a blank";
}

TEST(PrintPoints, WritesOneObjectAPointForPrograms) {
  std::ostringstream out;
  print_points(out, PointTable(), true);
  EXPECT_EQ(out.str().find("[{\"name\":\"device\",\"stage\":\"build\",\"kind\":\"object\",\"thread\":\"L\",\"fields\":\"open, describe, memory\","),
            0U);
  EXPECT_TRUE(out.str().ends_with("\"from\":\"core\"}]\n"));
}

TEST(PrintPoints, MakesATableAStageForTheGuide) {
  const std::string text = points_markdown(PointTable());
  EXPECT_NE(text.find("\n## update\n\n| point | kind |"), std::string::npos);
  EXPECT_NE(text.find("| `grad.transform` | filter | L | multiplier | what the optimizer multiplies gradients by | core |\n"), std::string::npos);
  EXPECT_NE(text.find("`watch` `capture` `retain` `repeat` `place` `adapt` `cast`."), std::string::npos);
}

}  // namespace
}  // namespace mortise
