// What mortise.loop/0 and mortise.state/0 answer without a loop behind them.
#include "core/abi/services.hpp"

#include <gtest/gtest.h>

#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"

namespace mortise {
namespace {

struct ServicesTest : ::testing::Test {
  PointTable points;
  Edge edge{points, 1};
  PluginHost& window = edge.add_plugin("test.x", nullptr, nullptr);
  const mortise_loop_api& loop = *static_cast<const mortise_loop_api*>(mortise_get(&window, "mortise.loop/0"));
  const mortise_state_api& state = *static_cast<const mortise_state_api*>(mortise_get(&window, "mortise.state/0"));
};

// The run's `comm`, an object that a test fills in.
struct CommTest : ServicesTest {
  CommTest() {
    object.struct_size = sizeof object;
    by.member = &member;
    edge.services.comm = {&object, &by};
  }
  mortise_comm object{};
  PluginInfo info;
  const Member member{&info, nullptr};
  Instance by;
  const mortise_comm_api& comm = *static_cast<const mortise_comm_api*>(mortise_get(&window, "mortise.comm/0"));
};

TEST_F(ServicesTest, ARequestIsOfAKindAndOfAPlugin) {
  EXPECT_EQ(loop.request(&window, 0, MORTISE_STR("")), MORTISE_E_ARGUMENT);
  EXPECT_EQ(loop.request(&window, 3, MORTISE_STR("")), MORTISE_E_ARGUMENT);
  EXPECT_EQ(edge.services.requests.strongest().what, 0u);
  EXPECT_EQ(loop.request(&window, MORTISE_ABORT, MORTISE_STR("nan")), MORTISE_OK);
  EXPECT_EQ(edge.services.requests.strongest().by, "test.x");
}

TEST_F(ServicesTest, AVoteAndAFactorHaveTheirTime) {
  window.writes = {"votes", "multiplier"};
  for (const Filter open : {Filter::kNone, Filter::kWindow, Filter::kTransform}) {
    const FilterScope scope(edge.services, open);
    EXPECT_EQ(loop.vote(&window, nullptr), MORTISE_E_ARGUMENT);
    EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "votes are cast in step.verdict only");
  }
  for (const Filter open : {Filter::kNone, Filter::kWindow, Filter::kVerdict}) {
    const FilterScope scope(edge.services, open);
    EXPECT_EQ(loop.multiply(&window, nullptr), MORTISE_E_ARGUMENT);
    EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "the multiplier is changed in grad.transform only");
  }
}

TEST_F(ServicesTest, AColumnIsANumberOrATextOfARecordThatIsTold) {
  const mortise_value whole = {MORTISE_INT, 0, {.i = 7}};
  EXPECT_EQ(loop.column(&window, MORTISE_STR("extra"), whole), MORTISE_E_ARGUMENT) << "no record is told";
  std::vector<std::string> added;
  edge.services.add_column = [&](std::string_view name, const mortise_value&) { added.emplace_back(name); };
  EXPECT_EQ(loop.column(&window, MORTISE_STR("int"), whole), MORTISE_OK);
  EXPECT_EQ(loop.column(&window, MORTISE_STR("float"), {MORTISE_FLOAT, 0, {.f = 7}}), MORTISE_OK);
  EXPECT_EQ(loop.column(&window, MORTISE_STR("text"), {MORTISE_TEXT, 0, {.s = MORTISE_STR("x")}}), MORTISE_OK);
  EXPECT_EQ(loop.column(&window, MORTISE_STR("list"), {MORTISE_INTS, 0, {.is = nullptr}}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(loop.column(&window, MORTISE_STR("none"), {MORTISE_NONE, 0, {.i = 0}}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(loop.column(&window, MORTISE_STR("null"), {MORTISE_TEXT, 0, {.s = {nullptr, 5}}}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "gave a text of 5 bytes at NULL");
  EXPECT_EQ(added, (std::vector<std::string>{"int", "float", "text"}));
}

TEST_F(ServicesTest, AClockNeedsAPlace) { EXPECT_EQ(loop.clock(&window, nullptr), MORTISE_E_ARGUMENT); }

// Rank 5 of eight, two along each of two axes.
TEST_F(ServicesTest, APlaceIsThatAlongTheAxisOrAmongThoseOfOtherSamples) {
  const auto& comm = *static_cast<const mortise_comm_api*>(mortise_get(&window, "mortise.comm/0"));
  edge.services.world.rank = 5, edge.services.world.size = 8;
  edge.services.mesh = Mesh(
      5, 8, {{.name = "tensor", .by = "", .size = 2, .shares_data = true}, {.name = "experts", .by = "", .size = 2}});
  auto* const along = reinterpret_cast<mortise_rank_group*>(this);
  edge.services.groups.along = {nullptr, along};
  mortise_rank_group* group = nullptr;
  int32_t rank = -1, size = -1;
  EXPECT_EQ(comm.axis(&window, MORTISE_STR("experts"), &group, &rank, &size), MORTISE_OK);
  EXPECT_EQ(std::pair(rank, size), std::pair(0, 2));
  EXPECT_EQ(group, along);
  EXPECT_EQ(comm.data_place(&window, &rank, &size), MORTISE_OK);
  EXPECT_EQ(std::pair(rank, size), std::pair(2, 4));
  EXPECT_EQ(comm.place(&window, &rank, &size), MORTISE_OK);
  EXPECT_EQ(std::pair(rank, size), std::pair(5, 8));
}

// One after another, where `comm` cannot begin them together; each has its own work.
TEST_F(CommTest, CollectivesThatAreSentTogetherHaveAWorkEach) {
  static mortise_tensor* started[2];
  static int n;
  n = 0;
  object.start = [](void*, const mortise_collective* what, mortise_work** out) noexcept {
    started[n++] = what->out;
    *out = reinterpret_cast<mortise_work*>(what->out);
    return mortise_status{MORTISE_OK};
  };
  auto* const first = reinterpret_cast<mortise_tensor*>(this);
  auto* const second = reinterpret_cast<mortise_tensor*>(&object);
  const mortise_collective a = {.struct_size = sizeof a, .out = first}, b = {.struct_size = sizeof b, .out = second};
  const mortise_collective* const both[] = {&a, &b};
  mortise_work* works[2] = {};
  ASSERT_EQ(comm.start_all(&window, both, 2, works), MORTISE_OK);
  EXPECT_EQ(std::pair(started[0], started[1]), std::pair(first, second));
  EXPECT_EQ(static_cast<void*>(works[0]), first);
  EXPECT_EQ(static_cast<void*>(works[1]), second);
}

// Wherever in a step a plugin waits: in a layer, too.
TEST_F(CommTest, AWaitForOtherRanksIsTimed) {
  object.wait = [](void*, mortise_work*) noexcept { return mortise_status{MORTISE_OK}; };
  std::vector<bool> on_host;
  edge.services.timed_wait = [&](bool host, const std::function<void()>& body) { on_host.push_back(host), body(); };
  EXPECT_EQ(comm.wait(&window, reinterpret_cast<mortise_work*>(this)), MORTISE_OK);
  EXPECT_EQ(on_host, std::vector<bool>{false});
}

// What it does not say is 0, whatever lies behind it.
TEST_F(CommTest, ACollectiveOfAnOlderHeaderIsOfAllRanks) {
  static const mortise_rank_group* group;
  object.start = [](void*, const mortise_collective* what, mortise_work**) noexcept {
    group = what->group;
    return mortise_status{MORTISE_OK};
  };
  mortise_collective older{};
  older.group = group = reinterpret_cast<const mortise_rank_group*>(this);
  older.struct_size = offsetof(mortise_collective, group);
  mortise_work* work = nullptr;
  EXPECT_EQ(comm.start(&window, &older, &work), MORTISE_OK);
  EXPECT_EQ(group, nullptr);
}

// Is a rank lost? Nobody is waited for, on whatever thread, and no time is taken.
TEST_F(CommTest, OfNoNumbersOnlyALossIsTold) {
  object.host_all_reduce = [](void* self, int64_t*, uint32_t n, uint32_t) noexcept {
    ++*static_cast<int*>(self);
    return mortise_status{n == 0 ? MORTISE_E_LOST : MORTISE_OK};
  };
  int asked = 0;
  by.self = &asked;
  edge.services.timed_wait = [](bool, const std::function<void()>&) { FAIL() << "it is no wait"; };
  EXPECT_EQ(comm.host_all_reduce(&window, nullptr, 0, MORTISE_SUM), MORTISE_OK);
  EXPECT_EQ(asked, 0) << "one rank alone";
  edge.services.world.size = 2;
  EXPECT_EQ(comm.host_all_reduce(&window, nullptr, 0, MORTISE_SUM), MORTISE_E_LOST);
  EXPECT_EQ(asked, 1);
  take_error(MORTISE_E_LOST);
}

// By its name, among what the same plugin keeps.
TEST_F(ServicesTest, AStateIsKeptOnceOfEachPlugin) {
  const auto save = [](void*, const mortise_sink*) noexcept { return mortise_status{MORTISE_OK}; };
  const auto load = [](void*, uint32_t, mortise_str) noexcept { return mortise_status{MORTISE_OK}; };
  const mortise_blob good = {sizeof(mortise_blob), 1, MORTISE_STR("a"), save, load};
  mortise_blob unnamed = good, short_one = good, no_save = good, no_load = good;
  unnamed.name = {};
  short_one.struct_size = sizeof good - 1;
  short_one.name = no_save.name = no_load.name = MORTISE_STR("b");
  no_save.save = nullptr;
  no_load.load = nullptr;
  EXPECT_EQ(state.keep(&window, &good), MORTISE_OK);
  for (const mortise_blob* bad : std::vector<const mortise_blob*>{&good, &unnamed, &short_one, &no_save, &no_load})
    EXPECT_EQ(state.keep(&window, bad), MORTISE_E_ARGUMENT);
  EXPECT_EQ(state.keep(&window, nullptr), MORTISE_E_ARGUMENT);
  EXPECT_EQ(state.keep(&edge.add_plugin("test.y", nullptr, nullptr), &good), MORTISE_OK) << "another's";
  ASSERT_EQ(edge.services.blobs.size(), 2u);
  EXPECT_EQ(edge.services.blobs[1].host->id, "test.y");
}

// ---- the tokenizer ----

mortise_status give_special(void*, mortise_str role, int64_t* id) noexcept {
  if (view(role) != "eos") return MORTISE_E_NOT_FOUND;
  *id = 50256;
  return MORTISE_OK;
}

TEST_F(ServicesTest, ASpecialTokenIsTheTokenizersOrThereIsNone) {
  PluginInfo info;
  info.schema.id = "tokenizer.x";
  Member member;
  member.info = &info;
  Instance by;
  by.member = &member;
  mortise_tokenizer object{};
  object.struct_size = sizeof object;
  edge.services.tokenizer = {&object, &by};
  const auto& tokenizer = *static_cast<const mortise_tokenizer_api*>(mortise_get(&window, "mortise.tokenizer/0"));
  int64_t id = -1;
  EXPECT_EQ(tokenizer.special(&window, MORTISE_STR("eos"), &id), MORTISE_E_NOT_FOUND) << "it has no such function";
  object.special = give_special;
  EXPECT_EQ(tokenizer.special(&window, MORTISE_STR("eos"), &id), MORTISE_OK);
  EXPECT_EQ(id, 50256);
  EXPECT_EQ(tokenizer.special(&window, MORTISE_STR("cls"), &id), MORTISE_E_NOT_FOUND);
  object.struct_size = offsetof(mortise_tokenizer, special);
  EXPECT_EQ(tokenizer.special(&window, MORTISE_STR("eos"), &id), MORTISE_E_NOT_FOUND) << "one of an older header";
}

}  // namespace
}  // namespace mortise
