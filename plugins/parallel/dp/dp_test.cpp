// Where gradients and masters go, and when. Buckets: parallel.ddp's test. Sums of real ranks:
// tests/e2e/joint_batch_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

class Dp : public testing::Test {
 protected:
  Dp() {
    host_.ranks = 3;
    host_.set("bucket_mib", 1).set("unused", "first_step");
    host_.op("aten::fill_.Scalar", [](auto args) { return mortise::Tensor::share(args[0].v.t); });
    for (const auto& [name, numel] : {std::pair("a", 300'000), std::pair("b", 10)}) {
      params_.push_back(host_.add_param(name, "vector", {numel}));
      host_.has_gradient[params_.back()] = 1;
    }
  }
  ~Dp() override { plugin_.reset(); }
  const mortise_replicas& begun(int32_t rank = 0) {
    host_.rank = rank;
    plugin_.emplace(host_, MORTISE_PLUGIN_FILE);
    const auto& object = plugin_->object<mortise_replicas>("replicas");
    EXPECT_EQ(object.layout(plugin_->self(), 0), MORTISE_OK);
    return object;
  }

  FakeHost host_;
  std::vector<mortise_param*> params_;
  std::optional<Plugin> plugin_;
};

TEST_F(Dp, TheFirstRankUpdatesAll) {
  const mortise_replicas& object = begun();
  for (int32_t rank = 0; rank < 3; ++rank) {
    int64_t offset = -1, length = -1;
    ASSERT_EQ(object.own(plugin_->self(), &mortise::info_of(params_[0]), 64, rank, &offset, &length), MORTISE_OK);
    EXPECT_EQ(std::pair(offset, length), std::pair(int64_t{0}, int64_t{rank == 0 ? 300'000 : 0}));
  }
}

TEST_F(Dp, RefusesWhatRanksHaveInParts) {
  const mortise_replicas& object = begun();
  mortise_param_info info = mortise::info_of(params_[0]);
  info.axis = MORTISE_STR("experts");
  int64_t offset = 0, length = 0;
  EXPECT_EQ(object.own(plugin_->self(), &info, 64, 0, &offset, &length), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.error(),
            "the first rank has all of the model, and of a ranks along `experts` have parts\n"
            "  fix: parallel.ddp, or parallel.zero");
}

TEST_F(Dp, SumsOnTheFirstRankOnceBackwardIsOver) {
  const mortise_replicas& object = begun();
  for (auto* param : params_) ASSERT_EQ(object.ready(plugin_->self(), param, 0, 1), MORTISE_OK);
  EXPECT_TRUE(host_.collectives.empty());
  ASSERT_EQ(object.finish(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 2U) << "more than a MiB together";
  for (size_t i = 0; i < 2; ++i) {
    const auto& c = host_.collectives[i];
    EXPECT_EQ(c.kind, MORTISE_REDUCE);
    EXPECT_EQ(c.root, 0);
    EXPECT_TRUE(c.is_waited_for);
  }
  EXPECT_EQ(host_.has_gradient[params_[0]], 1);
}

TEST_F(Dp, TheNormIsThatOfTheFirstRank) {
  const mortise_replicas& object = begun(2);
  const mortise::Tensor norm = host_.tensor<float>({}, {7});
  ASSERT_EQ(object.norm(plugin_->self(), norm.get()), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 1U);
  EXPECT_EQ(host_.collectives[0].kind, MORTISE_BROADCAST);
  EXPECT_EQ(host_.collectives[0].root, 0);
  EXPECT_EQ(host_.collectives[0].out, norm.get());
  EXPECT_TRUE(host_.collectives[0].is_waited_for);
}

TEST_F(Dp, SendsTheMastersFromTheFirstRank) {
  const mortise_replicas& object = begun(1);
  ASSERT_EQ(object.gather(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(host_.collectives[i].kind, MORTISE_BROADCAST);
    EXPECT_EQ(host_.collectives[i].root, 0);
    EXPECT_TRUE(host_.collectives[i].is_waited_for);
    EXPECT_EQ(host_.masters[i].param, params_[i]);
    EXPECT_EQ(std::pair(host_.masters[i].offset, host_.masters[i].length),
              std::pair(int64_t{0}, mortise::info_of(params_[i]).numel));
  }
}

}  // namespace
