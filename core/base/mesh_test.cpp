#include "core/base/mesh.hpp"

#include <gtest/gtest.h>

namespace mortise {
namespace {

using Ranks = std::vector<int32_t>;
constexpr int kOfAll = -1;

// Of `size` ranks one after another, what `of` says of each.
template <class Of>
auto each(int size, const std::vector<Axis>& axes, Of of) {
  std::vector<decltype(of(Mesh()))> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(of(Mesh(rank, size, axes)));
  return all;
}

TEST(Mesh, OfRanksWithoutAnAxisAllShareEveryParameter) {
  EXPECT_EQ(Mesh(1, 3, {}).sharers(kOfAll), (Ranks{0, 1, 2}));
  EXPECT_EQ(Mesh(1, 3, {}).data_size(), 3);
  EXPECT_EQ(Mesh(1, 3, {}).data_rank(), 1);
  EXPECT_EQ(Mesh().sharers(kOfAll), Ranks{0});
}

// Four ranks, two along it: 0 and 1 have all experts between them, and so have 2 and 3.
TEST(Mesh, AlongAnAxisOfOtherDataEachRankHasItsOwn) {
  const std::vector<Axis> axes = {{.name = "experts", .by = "", .size = 2}};
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.along(0); }),
            (std::vector<Ranks>{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.sharers(0); }),
            (std::vector<Ranks>{{0, 2}, {1, 3}, {0, 2}, {1, 3}}));
  EXPECT_EQ(Mesh(3, 4, axes).sharers(kOfAll), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.data_rank(); }), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.place(0); }), (std::vector<int>{0, 1, 0, 1}));
}

TEST(Mesh, AlongAnAxisThatSharesDataRanksCountAsOne) {
  const std::vector<Axis> axes = {{.name = "tensor", .by = "", .size = 2, .shares_data = true}};
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.data_rank(); }), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(Mesh(0, 4, axes).data_size(), 2);
  for (const int axis : {kOfAll, 0})
    EXPECT_EQ(each(4, axes, [axis](const Mesh& m) { return m.sharers(axis); }),
              (std::vector<Ranks>{{0, 2}, {1, 3}, {0, 2}, {1, 3}}));
  EXPECT_EQ(each(4, axes, [](const Mesh& m) { return m.is_first_copy(kOfAll); }),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_TRUE(Mesh(1, 4, axes).is_first_copy(0)) << "what lies along it has other elements there";
}

// Four ranks, all of which see the same samples: two along each of two axes.
TEST(Mesh, AlongTwoAxesThatShareDataRanksCountAsOne) {
  const std::vector<Axis> axes = {{.name = "tensor", .by = "", .size = 2, .shares_data = true},
                                  {.name = "sequence", .by = "", .size = 2, .shares_data = true}};
  EXPECT_EQ(Mesh(0, 8, axes).copies(), 4);
  EXPECT_EQ(each(8, axes, [](const Mesh& m) { return m.data_rank(); }), (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(Mesh(3, 8, axes).sharers(kOfAll), (Ranks{3, 7}));
}

// Eight ranks: those that share data stand side by side, whoever was named first.
TEST(Mesh, OfTwoAxes) {
  const std::vector<Axis> axes = {{.name = "experts", .by = "", .size = 2},
                                  {.name = "tensor", .by = "", .size = 2, .shares_data = true}};
  const Mesh mesh(5, 8, axes);
  const int experts = mesh.find("experts"), tensor = mesh.find("tensor");
  EXPECT_EQ(mesh.along(tensor), (Ranks{4, 5}));
  EXPECT_EQ(mesh.along(experts), (Ranks{5, 7}));
  EXPECT_EQ(mesh.sharers(kOfAll), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(mesh.sharers(tensor), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(mesh.sharers(experts), (Ranks{1, 5}));
  EXPECT_EQ(mesh.data_rank(), 2);
  EXPECT_FALSE(mesh.is_first_copy(experts));
  EXPECT_EQ(mesh.find("stage"), -1);
}

// Sums over all ranks of what is counted by first copies alone have each element once.
TEST(Mesh, EachElementIsCountedOnce) {
  const std::vector<Axis> axes = {{.name = "experts", .by = "", .size = 2},
                                  {.name = "tensor", .by = "", .size = 2, .shares_data = true}};
  for (const std::string name : {"experts", "tensor"}) {
    std::vector<int> counted(2);
    for (int rank = 0; rank < 8; ++rank) {
      const Mesh m(rank, 8, axes);
      const int axis = m.find(name);
      if (m.is_first_copy(axis) && m.sharers(axis)[0] == rank) ++counted[static_cast<size_t>(m.place(axis))];
    }
    EXPECT_EQ(counted, (std::vector<int>{1, 1})) << name;
  }
}

}  // namespace
}  // namespace mortise
