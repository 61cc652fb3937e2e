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
    host_.set("bucket_mib", 1).set("unused", "first_step");
    host_.op("aten::fill_.Scalar", [](auto args) { return mortise::Tensor::share(args[0].v.t); });
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
    Parts all;
    for (int32_t rank = 0; rank < host_.ranks; ++rank) {
      int64_t offset = -1, length = -1;
      EXPECT_EQ(object().own(plugin_->self(), &info, cut, rank, &offset, &length), MORTISE_OK);
      all.emplace_back(offset, length);
    }
    return all;
  }
  FakeHost host_;
  std::optional<Plugin> plugin_;
};

TEST_F(Zero, GivesEachRankAsMuchOfAParameter) {
  EXPECT_EQ(parts("a", 1920), (Parts{{0, 640}, {640, 640}, {1280, 640}}));
  EXPECT_EQ(parts("b", 1000), (Parts{{0, 384}, {384, 384}, {768, 232}})) << "in parts of 64";
  EXPECT_EQ(parts("c", 1024, 256), (Parts{{0, 512}, {512, 512}, {1024, 0}})) << "in blocks of 256";
}

TEST_F(Zero, GivesWhatIsNotCutToWhoeverHasTheFewest) {
  EXPECT_EQ(parts("a", 300, 300), (Parts{{0, 300}, {0, 0}, {0, 0}}));
  EXPECT_EQ(parts("b", 100), (Parts{{0, 0}, {0, 100}, {0, 0}}));
  EXPECT_EQ(parts("c", 10), (Parts{{0, 0}, {0, 0}, {0, 10}}));
  EXPECT_EQ(parts("d", 20), (Parts{{0, 0}, {0, 0}, {0, 20}}));
  EXPECT_EQ(parts("a", 300, 300), (Parts{{0, 300}, {0, 0}, {0, 0}})) << "and says the same again";
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

TEST_F(Zero, SumsGradientsInBuckets) {
  auto* const a = host_.add_param("a", "matrix", {256});
  ASSERT_EQ(object().layout(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(object().ready(plugin_->self(), a, 0, 1), MORTISE_OK);
  ASSERT_EQ(object().finish(plugin_->self(), 0), MORTISE_OK);
  ASSERT_EQ(host_.collectives.size(), 1U);
  EXPECT_EQ(host_.collectives[0].kind, MORTISE_ALL_REDUCE);
}

}  // namespace
