#include "core/plan/points.hpp"

#include <gtest/gtest.h>

#include <set>

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

}  // namespace
}  // namespace mortise
