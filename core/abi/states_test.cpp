#include "core/abi/states.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/abi/error.hpp"

namespace mortise {
namespace {

using Sizes = std::vector<int64_t>;

struct StatesTest : testing::Test {
  StatesTest() {
    w.name = "w";
    w.sizes = {3, 5, 7};
    w.info.numel = 105;
    beside.param = &w;
  }
  void add(const char* name, const char* relation, uint32_t dtype = MORTISE_F32, double fill = 0) {
    add_state(beside, {{name, strlen(name)}, {relation, strlen(relation)}, dtype, 0, fill}, "optimizer.x");
  }
  std::string refused(const char* name, const char* relation, uint32_t dtype = MORTISE_F32, double fill = 0) {
    try {
      add(name, relation, dtype, fill);
    } catch (const PluginError& e) {
      return e.text();
    }
    return "";
  }
  mortise_param w;
  ParamStates beside;
};

TEST_F(StatesTest, HaveTheSizesOfTheirRelation) {
  const std::pair<const char*, Sizes> relations[] = {{"same", {3, 5, 7}}, {"copy", {3, 5, 7}}, {"rows", {3, 5}},
                                                     {"columns", {3, 7}}, {"scalar", {}},      {"blocks:32", {4}},
                                                     {"blocks:105", {1}}};
  for (const auto& [relation, sizes] : relations) {
    add(relation, relation);
    EXPECT_EQ(beside.states.back().sizes, sizes) << relation;
    EXPECT_EQ(beside.states.back().copies_master, std::string_view(relation) == "copy");
  }
  EXPECT_EQ(bytes_of({beside}), 4 * (105 + 105 + 15 + 21 + 1 + 4 + 1));
}

TEST_F(StatesTest, AreRefusedWhereTheyAreNone) {
  for (const char* relation : {"", "row", "blocks:", "blocks:0", "blocks:-4", "blocks:4x", "blocks: 4"})
    EXPECT_NE(refused("m", relation).find("relations are same, copy, rows, columns, scalar, blocks:N"),
              std::string::npos)
        << relation;
  EXPECT_NE(refused("", "same").find("not at all"), std::string::npos);
  EXPECT_NE(refused("m", "same", 99).find("element type 99"), std::string::npos);
  for (const char* name : {"a\nb", "\xff", "\x1b[31m"})
    EXPECT_NE(refused(name, "same").find("characters that a line cannot show"), std::string::npos) << name;
  const std::pair<uint32_t, double> fills[] = {
      {MORTISE_I64, NAN}, {MORTISE_I32, 0.5}, {MORTISE_U8, -1}, {MORTISE_BOOL, 5}};
  for (const auto& [dtype, fill] : fills)
    EXPECT_NE(refused("m", "same", dtype, fill).find("which its element type cannot hold"), std::string::npos) << fill;
  add("m", "same");
  EXPECT_NE(refused("m", "scalar").find("twice"), std::string::npos);
  w.sizes = {};
  EXPECT_NE(refused("r", "rows").find("relation `rows`"), std::string::npos);
  w.sizes = {4};
  EXPECT_NE(refused("c", "columns").find("relation `columns`"), std::string::npos);
}

// Of a parameter of 6 x 4 of which this rank has a part.
TEST_F(StatesTest, OfWhatLiesAlongAnAxisAreOfThatAndKnowTheWhole) {
  w.dims = {"out", "in"};
  w.sizes = {6, 4};
  place(w, {0, "tensor", 1, 2}, "out");
  add("m", "same");
  EXPECT_EQ(beside.states[0].sizes, (Sizes{3, 4}));
  EXPECT_EQ(beside.states[0].whole, (Sizes{6, 4}));
  EXPECT_EQ(bytes_of({beside}), 12 * 4);
  EXPECT_EQ(refused("r", "rows"),
            "optimizer.x keeps `r` (rows) of w, of which ranks along `tensor` have parts: it can "
            "keep what has the parameter's shape alone");
}

TEST_F(StatesTest, OfWhatAnotherRankHasAreNothing) {
  w.sizes = {6, 4};
  place(w, {0, "experts", 1, 2}, int64_t{0});
  for (const char* relation : {"same", "rows", "columns", "scalar", "blocks:4"}) add(relation, relation);
  EXPECT_EQ(bytes_of({beside}), 0);
  EXPECT_EQ(beside.states[2].whole, Sizes{4});
}

TEST_F(StatesTest, AreEightAtMost) {
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) add(name, "scalar");
  EXPECT_NE(refused("i", "scalar").find("keeps more than 8 states of w"), std::string::npos);
}

constexpr int64_t kMi = int64_t{1} << 20;

TEST_F(StatesTest, AreUpdatedOnTheHostInPartsThatEndWithABlock) {
  w.info.trainable = w.info.states_in_store = 1;
  w.info.grad_dtype = MORTISE_F32;
  w.info.numel = 20 * kMi;
  w.sizes = {20 * kMi};
  add("m", "same");
  add("codes", "same", MORTISE_U8);
  add("scales", "blocks:256");
  EXPECT_EQ(update_at_most(beside, 1), 8 * kMi);
  EXPECT_EQ(update_at_most(beside, 256), 8 * kMi);
  EXPECT_EQ(update_at_most(beside, 3), 0) << "no whole number of cuts";
  EXPECT_EQ(update_at_most(beside, w.info.numel), 0);
  beside.at_most = 8 * kMi;
  const auto lengths = [&](int32_t replica) {
    Sizes all;
    w.info.replica = replica;
    for (const Piece& part : parts_of(beside)) all.push_back(part.length);
    return all;
  };
  EXPECT_EQ(lengths(0), (Sizes{8 * kMi, 8 * kMi, 4 * kMi}));
  const auto bytes = [](int64_t elements) { return elements * 4 + elements + elements / 256 * 4; };
  EXPECT_EQ(stored_of({beside}).bytes, bytes(20 * kMi));
  EXPECT_EQ(stored_of({beside}).largest_piece, bytes(8 * kMi));
  beside.pieces = {{0, 9 * kMi}, {9 * kMi, 11 * kMi}, {20 * kMi, 0}};
  EXPECT_EQ(lengths(1), (Sizes{8 * kMi, 3 * kMi}));
  EXPECT_EQ(parts_of(beside)[1].offset, 17 * kMi);
  EXPECT_EQ(stored_of({beside}).bytes, bytes(11 * kMi));
  w.info.replica = 2;
  EXPECT_EQ(stored_of({beside}).bytes, 0);
  add("rows", "blocks:20971520");
  EXPECT_EQ(update_at_most(beside, 1), 0) << "a state that a part has no whole block of";
}

// Small ones are a piece together, and each state of them a block at least.
TEST_F(StatesTest, OfSmallParametersAreOnePiece) {
  w.info.trainable = w.info.states_in_store = 1;
  w.info.grad_dtype = MORTISE_F32;
  add("m", "same");
  EXPECT_EQ(stored_of({beside, beside, beside}).largest_piece, 3 * 4096);
  w.info.numel = 5 * kMi;
  EXPECT_EQ(stored_of({beside, beside, beside}).bytes, 3 * 20 * kMi);
  EXPECT_EQ(stored_of({beside, beside, beside}).largest_piece, 20 * kMi) << "two have 40 MiB of gradients";
  w.info.states_in_store = 0;
  EXPECT_EQ(stored_of({beside}).bytes, 0);
}

}  // namespace
}  // namespace mortise
