// Which rank updates what, and what is sent when it has. Buckets: parallel.ddp's test. Sums of real ranks:
// tests/e2e/joint_batch_test.py.
#include <gtest/gtest.h>

#include <optional>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

using Parts = std::vector<std::pair<int64_t, int64_t>>;  // offset and length, by rank

class Zero : public testing::Test {
 protected:
  Zero() {
    host_.ranks = 3;
    host_.set("bucket_mib", 1).set("unused", "first_step").set("stage", 1).set("whole_below", 100);
    host_.op("aten::fill_.Scalar", [](auto args) { return mortise::Tensor::share(args[0].v.t); });
    host_.op("aten::narrow", [this](auto args) {
      narrowed_.emplace_back(args[2].v.i, args[3].v.i);
      return host_.tensor<float>({args[3].v.i}, std::vector<float>(static_cast<size_t>(args[3].v.i)));
    });
  }
  ~Zero() override { plugin_.reset(); }
  const mortise_replicas& object() {
    if (!plugin_) plugin_.emplace(host_, MORTISE_PLUGIN_FILE);
    return plugin_->object<mortise_replicas>("replicas");
  }
  Parts parts(const std::string& name, int64_t numel, int64_t cut = 1) {
    mortise_param_info info{};
    info.struct_size = sizeof info;
    info.name = {name.data(), name.size()};
    info.numel = numel;
    info.replicas = host_.ranks;
    Parts all;
    for (int32_t rank = 0; rank < host_.ranks; ++rank) {
      int64_t offset = -1, length = -1;
      EXPECT_EQ(object().own(plugin_->self(), &info, cut, rank, &offset, &length), MORTISE_OK);
      all.emplace_back(offset, length);
    }
    return all;
  }
  // What a run asks of one parameter when it is declared. MORTISE_WHOLE, …
  uint32_t declare(mortise_param* param, int64_t cut = 1) {
    const mortise_param_info& info = mortise::info_of(param);
    parts(std::string(mortise::view(info.name)), info.numel, cut);
    uint32_t what = MORTISE_WHOLE;
    int64_t room = info.numel;
    EXPECT_EQ(object().shard(plugin_->self(), &info, &what, &room), MORTISE_OK);
    if (what != MORTISE_WHOLE) host_.rooms[param] = room;
    return what;
  }
  // A parameter of each of `n` segments, sharded.
  using Groups = std::map<int32_t, const mortise_rank_group*>;  // of parameters that not all ranks have
  std::vector<mortise_param*> model(int32_t n, int64_t stage, int64_t numel = 192, const Groups& groups = {}) {
    host_.set("stage", stage);
    std::vector<mortise_param*> params;
    for (int32_t i = 0; i < n; ++i) {
      params.push_back(host_.add_param("w" + std::to_string(i), "matrix", {numel}));
      host_.put_into(params.back(), i);
      if (const auto its = groups.find(i); its != groups.end()) host_.groups[params.back()] = its->second;
      host_.has_gradient[params.back()] = 1;
    }
    for (mortise_param* p : params) EXPECT_NE(declare(p), uint32_t{MORTISE_WHOLE});
    EXPECT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK);
    return params;
  }
  void need(mortise_param* p, int32_t segment, int32_t backward) {
    ASSERT_EQ(object().need(plugin_->self(), p, segment, backward), MORTISE_OK) << host_.error();
    EXPECT_TRUE(host_.held.contains(p));
  }
  void ready(mortise_param* p, int32_t last = 1) {
    ASSERT_EQ(object().ready(plugin_->self(), p, 0, last), MORTISE_OK) << host_.error();
  }
  // The kinds of what was started since the last time.
  std::vector<uint32_t> started() {
    std::vector<uint32_t> kinds;
    for (; seen_ < host_.collectives.size(); ++seen_) kinds.push_back(host_.collectives[seen_].kind);
    return kinds;
  }
  using Kinds = std::vector<uint32_t>;
  using Params = std::vector<const mortise_param*>;

  FakeHost host_;
  std::optional<Plugin> plugin_;
  size_t seen_ = 0;
  Parts narrowed_;  // what `aten::narrow` was asked for
};

TEST_F(Zero, GivesEachRankAsMuchOfAParameter) {
  EXPECT_EQ(parts("a", 1920), (Parts{{0, 640}, {640, 640}, {1280, 640}}));
  EXPECT_EQ(parts("b", 1000), (Parts{{0, 384}, {384, 384}, {768, 232}})) << "in parts of 64";
  EXPECT_EQ(parts("c", 1024, 256), (Parts{{0, 512}, {512, 512}, {1024, 0}})) << "in blocks of 256";
  EXPECT_EQ(parts("d", 480, 48), (Parts{{0, 192}, {192, 192}, {384, 96}})) << "of 64 and more, in blocks of 48";
}

TEST_F(Zero, GivesWhatIsNotCutToWhoeverHasTheFewest) {
  EXPECT_EQ(parts("a", 300, 300), (Parts{{0, 300}, {0, 0}, {0, 0}}));
  EXPECT_EQ(parts("b", 100), (Parts{{0, 0}, {0, 100}, {0, 0}}));
  EXPECT_EQ(parts("c", 10), (Parts{{0, 0}, {0, 0}, {0, 10}}));
  EXPECT_EQ(parts("d", 20), (Parts{{0, 0}, {0, 0}, {0, 20}}));
  EXPECT_EQ(parts("a", 300, 300), (Parts{{0, 300}, {0, 0}, {0, 0}})) << "and says the same again";
}

// Ranks along an axis are others than all: each list begins with its own first.
TEST_F(Zero, CountsWhatRanksHaveByAxis) {
  const auto owner = [&](const std::string& axis, int32_t replicas) {
    mortise_param_info info{};
    info.struct_size = sizeof info;
    const std::string name = axis + std::to_string(replicas);
    info.name = {name.data(), name.size()};
    info.axis = {axis.data(), axis.size()};
    info.numel = 3;
    info.replicas = replicas;
    for (int32_t rank = 0; rank < replicas; ++rank) {
      int64_t offset = -1, length = -1;
      EXPECT_EQ(object().own(plugin_->self(), &info, 1, rank, &offset, &length), MORTISE_OK);
      if (length > 0) return rank;
    }
    return -1;
  };
  EXPECT_EQ(owner("experts", 2), 0);
  EXPECT_EQ(owner("", 3), 0);
}

TEST_F(Zero, SendsEachPartFromWhoUpdatedIt) {
  auto* const a = host_.add_param("a", "matrix", {256});
  auto* const b = host_.add_param("b", "vector", {10});
  parts("a", 256);
  parts("b", 10);
  ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 3U);
  const Parts asked = {{0, 128}, {128, 128}, {0, 10}};
  const std::vector<int32_t> from = {0, 1, 2};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(host_.collectives[i].kind, MORTISE_BROADCAST);
    EXPECT_EQ(host_.collectives[i].root, from[i]);
    EXPECT_TRUE(host_.collectives[i].is_waited_for);
    EXPECT_EQ(std::pair(host_.masters[i].offset, host_.masters[i].length), asked[i]);
    EXPECT_EQ(host_.masters[i].param, i < 2 ? a : b);
  }
}

TEST_F(Zero, SendsWhatAMiddleRankHasAlone) {
  auto* const a = host_.add_param("a", "vector", {10});
  auto* const b = host_.add_param("b", "vector", {10});
  parts("a", 10);
  EXPECT_EQ(parts("b", 10), (Parts{{0, 0}, {0, 10}, {0, 0}}));
  ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(started(), (Kinds{MORTISE_BROADCAST, MORTISE_BROADCAST}));
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(host_.collectives[i].root, static_cast<int32_t>(i));
  EXPECT_EQ(host_.masters[0].param, a);
  EXPECT_EQ(host_.masters[1].param, b);
}

TEST_F(Zero, GathersEvenPartsAtOnce) {
  host_.set("stage", 1);
  host_.rank = 2;
  mortise_param* const p = host_.add_param("a", "matrix", {384});
  parts("a", 384);
  ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(started(), Kinds{MORTISE_ALL_GATHER});
  EXPECT_EQ(narrowed_, (Parts{{256, 128}})) << "this rank is the third";
  EXPECT_EQ(host_.masters.at(0).param, p);
  EXPECT_EQ(host_.masters[0].length, 384);
}

TEST_F(Zero, SumsGradientsInBuckets) {
  auto* const a = host_.add_param("a", "matrix", {256});
  ASSERT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(object().ready(plugin_->self(), a, 0, 1), MORTISE_OK);
  ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 1U);
  EXPECT_EQ(host_.collectives[0].kind, MORTISE_ALL_REDUCE);
}

// ---- stages 2 and 3 ----

TEST_F(Zero, ShardsWhatIsLargeAndOfStage3WhatIsFrozenToo) {
  mortise_param* const large = host_.add_param("large", "matrix", {1000});
  mortise_param* const small = host_.add_param("small", "vector", {99});
  mortise_param* const frozen = host_.add_param("frozen", "buffer", {1000});
  const auto all = [&](int64_t stage) {
    plugin_.reset();
    host_.set("stage", stage);
    return Kinds{declare(large), declare(small), declare(frozen)};
  };
  mortise_param* const limit = host_.add_param("limit", "vector", {100});
  EXPECT_EQ(all(1), (Kinds{MORTISE_WHOLE, MORTISE_WHOLE, MORTISE_WHOLE}));
  EXPECT_EQ(all(2), (Kinds{MORTISE_SHARDED, MORTISE_WHOLE, MORTISE_WHOLE}));
  EXPECT_EQ(all(3), (Kinds{MORTISE_COMES_AND_GOES, MORTISE_WHOLE, MORTISE_COMES_AND_GOES}));
  EXPECT_EQ(host_.rooms.at(large), 3 * 384) << "parts of one length";
  EXPECT_EQ(declare(limit), uint32_t{MORTISE_COMES_AND_GOES}) << "no fewer than are whole";
}

TEST_F(Zero, SharesNothingOutThatNoOtherRankHas) {
  host_.ranks = 1;
  host_.set("stage", 3);
  EXPECT_EQ(declare(host_.add_param("a", "matrix", {1000})), uint32_t{MORTISE_WHOLE});
}

TEST_F(Zero, GivesWhatIsNotCutRoomForItselfAlone) {
  host_.set("stage", 3);
  mortise_param* const p = host_.add_param("a", "matrix", {1000});
  EXPECT_EQ(declare(p, 1000), uint32_t{MORTISE_COMES_AND_GOES});
  EXPECT_EQ(host_.rooms.at(p), 1000);
  ASSERT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK);
  need(p, 0, 0);
  ASSERT_EQ(started(), Kinds{MORTISE_BROADCAST});
  EXPECT_EQ(host_.collectives[0].root, 0);
  ready(p);
  EXPECT_EQ(started(), Kinds{MORTISE_REDUCE});
}

TEST_F(Zero, SendsAGradientOnceItAndAllBeforeItAreReady) {
  const auto w = model(3, 2);
  ready(w[0], 0);
  ready(w[1], 0);
  EXPECT_TRUE(started().empty()) << "the last one declared goes first, on every rank";
  ready(w[2], 0);
  EXPECT_EQ(started(), Kinds(3, MORTISE_REDUCE_SCATTER)) << "in a micro-batch that is not the last, too";
  EXPECT_EQ(host_.taken, (Params{w[2], w[1], w[0]}));
  for (const auto* p : {w[2], w[1], w[0]}) ready(const_cast<mortise_param*>(p));
  EXPECT_EQ(host_.taken.size(), 6U) << "and again";
  ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK) << host_.error();
  EXPECT_EQ(host_.added.size(), 6U);
  EXPECT_EQ(host_.added[0].second, 64) << "elements that a rank owns";
}

// Backward takes another order on each rank where it is not said that it takes none.
TEST_F(Zero, SumsWhatIsWholeWhenAllThatIsShardedIsSent) {
  for (const int64_t stage : {2, 3}) {
    plugin_.reset();
    host_.set("stage", stage);
    mortise_param* const large = host_.add_param("large" + std::to_string(stage), "matrix", {192});
    mortise_param* const small = host_.add_param("small" + std::to_string(stage), "vector", {10});
    EXPECT_NE(declare(large), uint32_t{MORTISE_WHOLE});
    EXPECT_EQ(declare(small), uint32_t{MORTISE_WHOLE});
    ASSERT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK) << host_.error();
    started();
    ready(small);
    EXPECT_TRUE(started().empty());
    ready(large);
    ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK) << host_.error();
    EXPECT_EQ(started(), (Kinds{MORTISE_REDUCE_SCATTER, MORTISE_ALL_REDUCE})) << "stage " << stage;
  }
}

TEST_F(Zero, SendsASegmentsGradientsAlsoWhereItWasDeclaredAfterTheNext) {
  host_.set("stage", 3);
  mortise_param* const second = host_.add_param("second", "matrix", {192});
  mortise_param* const first = host_.add_param("first", "matrix", {192});
  host_.put_into(second, 1);
  host_.put_into(first, 0);
  for (mortise_param* p : {second, first}) EXPECT_NE(declare(p), uint32_t{MORTISE_WHOLE});
  ASSERT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK) << host_.error();
  need(first, 0, 0);
  need(second, 1, 0);
  need(second, 1, 1);
  ready(second);
  need(first, 0, 1);
  EXPECT_EQ(host_.taken, Params{second});
}

TEST_F(Zero, BringsGradientsBeforeMoreAreOnTheirWayThanABucketHas) {
  const auto params = model(3, 2, 180'000);
  ready(params[2]);
  EXPECT_TRUE(host_.added.empty());
  ready(params[1]);
  EXPECT_EQ(host_.added.size(), 1U) << "two of them are more than a MiB";
}

TEST_F(Zero, BringsThemNoEarlierInTheNextStep) {
  const auto params = model(3, 2, 90'000);
  for (size_t before = 0; before < 6; before += 3) {
    ready(params[2]);
    ready(params[1]);
    EXPECT_EQ(host_.added.size(), before) << "two of them are less than a MiB";
    ready(params[0]);
    EXPECT_EQ(host_.added.size(), before + 1);
    ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK) << host_.error();
  }
}

TEST_F(Zero, GathersASegmentAndTheNextAndDropsTheOneBefore) {
  const auto w = model(4, 3);
  need(w[0], 0, 0);
  EXPECT_EQ(host_.held, (std::set<const mortise_param*>{w[0], w[1]}));
  EXPECT_FALSE(host_.collectives[1].is_waited_for) << "the next is on its way";
  need(w[0], 0, 0);
  need(w[1], 1, 0);
  EXPECT_EQ(host_.held, (std::set<const mortise_param*>{w[1], w[2]}));
  EXPECT_EQ(started(), Kinds(3, MORTISE_ALL_GATHER)) << "each once";
  need(w[2], 2, 0);
  need(w[3], 3, 0);
  need(w[3], 3, 1);
  EXPECT_EQ(host_.held, (std::set<const mortise_param*>{w[3]})) << "backward begins where forward ends";
  EXPECT_EQ(started(), Kinds(1, MORTISE_ALL_GATHER));
}

TEST_F(Zero, KeepsWhatIsTiedWhileItsSecondSegmentUsesIt) {
  const auto w = model(4, 3);
  for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  need(w[0], 3, 0);
  need(w[0], 3, 1);
  EXPECT_TRUE(host_.held.contains(w[0]));
  EXPECT_EQ(started().size(), 5U) << "four segments, and the first once more";
  need(w[2], 2, 1);
  EXPECT_FALSE(host_.held.contains(w[0]));
}

TEST_F(Zero, GathersWhatIsTiedAheadFromTheSecondTimeOn) {
  const auto w = model(4, 3);
  const auto forward = [&] {
    for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  };
  forward();
  need(w[0], 3, 0);
  ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK) << host_.error();
  forward();
  EXPECT_EQ(host_.held, (std::set<const mortise_param*>{w[2], w[3], w[0]}));
  started();
  need(w[0], 3, 0);
  EXPECT_TRUE(started().empty());
}

TEST_F(Zero, SendsASegmentsGradientsWhenBackwardHasLeftIt) {
  const auto w = model(3, 3);
  for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  need(w[2], 2, 1);
  ready(w[2]);
  EXPECT_TRUE(host_.taken.empty());
  need(w[1], 1, 1);
  EXPECT_EQ(host_.taken, Params{w[2]});
  ready(w[1]);
  ready(w[0]);
  EXPECT_EQ(host_.taken, (Params{w[2], w[1], w[0]})) << "in the end whatever is left";
}

// However much they are: until then they arrive beside what is computed.
TEST_F(Zero, BringsASegmentsGradientsWhenBackwardHasLeftTheNext) {
  const auto w = model(4, 3, 180'000);
  for (int32_t i = 0; i < 4; ++i) need(w[static_cast<size_t>(i)], i, 0);
  need(w[1], 1, 1);
  EXPECT_EQ(host_.taken, (Params{w[3], w[2]})) << "more than a MiB";
  EXPECT_TRUE(host_.added.empty());
  need(w[0], 0, 1);
  EXPECT_EQ(host_.added.size(), 2U);
  EXPECT_EQ(host_.taken, (Params{w[3], w[2], w[1]}));
}

TEST_F(Zero, SendsTheSameWhateverThisRankUsed) {
  const auto w = model(3, 3);
  for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  need(w[1], 1, 1);
  EXPECT_EQ(host_.taken, Params{w[2]}) << "of which this rank has no gradient";
  for (mortise_param* p : {w[1], w[2], w[0]}) ready(p);
  EXPECT_EQ(host_.taken, (Params{w[2], w[1], w[0]}));
}

// As with LoRA whose adapters are small: below the last gradient that is sent backward goes on.
TEST_F(Zero, SendsEachGradientOnceWhereLowerSegmentsAreFrozen) {
  const auto w = model(2, 3);
  for (const int64_t more : {2, 4}) {
    for (int32_t i = 0; i < 2; ++i) need(w[static_cast<size_t>(i)], i + 1, 0);
    need(w[1], 2, 1);
    ready(w[1]);
    need(w[0], 1, 1);
    ready(w[0]);
    need(w[0], 0, 1);
    EXPECT_EQ(host_.taken.size(), static_cast<size_t>(more));
    ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK) << host_.error();
    ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK) << host_.error();
  }
}

// Ranks that have no gradient of one: what is sent together is the same on all of them, wherever a segment begins.
TEST_F(Zero, EndsALotOfStage2ByBytesAlone) {
  const auto w = model(3, 2);
  for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  started();
  ready(w[2]);
  need(w[1], 1, 1);
  ready(w[1]);
  EXPECT_TRUE(started().empty()) << "they are less than half a MiB";
  ready(w[0]);
  EXPECT_EQ(started(), Kinds(3, MORTISE_REDUCE_SCATTER));
}

// What other ranks of `all` have in its place is no reason to send theirs.
TEST_F(Zero, EndsALotOfAGroupByTheGroupsBytesAlone) {
  host_.axes["experts"] = {.rank = 0, .size = 3};
  const mortise_rank_group* const some = host_.group_along("experts");
  const auto w = model(3, 2, 100'000, {{1, some}});
  for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
  started();
  ready(w[2]);
  ready(w[1]);
  EXPECT_TRUE(started().empty()) << "of each group they are less than half a MiB";
  const size_t before = host_.collectives.size();
  ready(w[0]);
  std::vector<const mortise_rank_group*> groups;
  for (size_t i = before; i < host_.collectives.size(); ++i) groups.push_back(host_.collectives[i].group);
  EXPECT_EQ(groups, (std::vector<const mortise_rank_group*>{nullptr, nullptr, some}));
}

TEST_F(Zero, GathersAheadInBackwardWhatBackwardCameToBefore) {
  const auto w = model(3, 3);
  const auto step = [&] {
    for (int32_t i = 0; i < 3; ++i) need(w[static_cast<size_t>(i)], i, 0);
    for (const int32_t i : {2, 1}) need(w[static_cast<size_t>(i)], i, 1);
    for (const size_t i : {2, 1, 0}) ready(w[i]);
    ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK) << host_.error();
    ASSERT_EQ(object().gather(plugin_->self(), 0), MORTISE_OK) << host_.error();
    EXPECT_TRUE(host_.held.empty()) << "all of it is old";
  };
  step();
  started();
  step();
  Kinds gathers = started();
  std::erase(gathers, uint32_t{MORTISE_REDUCE_SCATTER});
  EXPECT_EQ(gathers, Kinds(4, MORTISE_ALL_GATHER)) << "three, one again in backward, and nothing that is not used";
}

TEST_F(Zero, GivesNothingBackBeforeItHasArrived) {
  const auto w = model(2, 3);
  need(w[0], 0, 0);
  ASSERT_EQ(object().written(plugin_->self(), w[1]), MORTISE_OK) << "gathered ahead, and not used";
  EXPECT_TRUE(host_.collectives[1].is_waited_for);
  EXPECT_FALSE(host_.held.contains(w[1]));
}

TEST_F(Zero, GathersAgainWhatWasWritten) {
  const auto w = model(2, 2);
  need(w[0], 0, 0);
  need(w[1], 1, 0);
  EXPECT_EQ(started().size(), 2U);
  ASSERT_EQ(object().written(plugin_->self(), w[0]), MORTISE_OK);
  need(w[0], 0, 0);
  EXPECT_EQ(started().size(), 1U);
}

// Gradients of two segments, of which each is whole and, on its way, has this rank's part beside it.
TEST_F(Zero, CountsThePartsOfGradientsThatAreOnTheirWay) {
  model(2, 2);
  int64_t said = 0;
  ASSERT_EQ(object().transient(plugin_->self(), &said), MORTISE_OK);
  EXPECT_EQ(said, 2 * 192 * 4 + 2 * 64 * 4);
}

// Of what fewer ranks have, each has a larger part.
TEST_F(Zero, CountsThePartsOfTheFewestReplicas) {
  host_.set("stage", 2);
  for (const auto& [name, ranks] : {std::pair("expert", 2), std::pair("rest", 4)}) {
    host_.ranks = ranks;
    EXPECT_NE(declare(host_.add_param(name, "matrix", {256})), uint32_t{MORTISE_WHOLE});
  }
  int64_t said = 0;
  ASSERT_EQ(object().transient(plugin_->self(), &said), MORTISE_OK);
  EXPECT_EQ(said, 2 * 256 * 4 + 2 * 128 * 4);
}

// Of two segments, and of what one of them uses of a third, as a tied embedding.
TEST_F(Zero, CountsAValueOfAThirdSegment) {
  const auto said = [&](int32_t segments) {
    plugin_.reset();
    model(segments, 3);
    int64_t bytes = 0;
    EXPECT_EQ(object().transient(plugin_->self(), &bytes), MORTISE_OK);
    return bytes;
  };
  const int64_t of_two = said(2), of_three = said(3);
  EXPECT_EQ(of_three - of_two, 2 * 192 * 4) << "and a gradient more that is on its way";
  EXPECT_EQ(said(4), of_three);
}

TEST_F(Zero, SaysNoLessThanItHolds) {
  const auto w = model(5, 3);
  int64_t said = 0;
  ASSERT_EQ(object().transient(plugin_->self(), &said), MORTISE_OK);
  EXPECT_GE(said, 2 * 192 * 4 + 192 * 4) << "values of two segments, and a gradient";
  size_t most = 0;
  const auto pass = [&](int32_t i, int32_t backward) {
    need(w[static_cast<size_t>(i)], i, backward);
    most = std::max(most, host_.held.size());
  };
  for (int32_t i = 0; i < 5; ++i) pass(i, 0);
  for (int32_t i = 4; i >= 0; --i) pass(i, 1);
  EXPECT_EQ(most, 2U);
}

}  // namespace
