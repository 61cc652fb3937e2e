// Which buckets gradients lie in, and when they are sent. Sums of real ranks: tests/e2e/joint_batch_test.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

namespace {

class Ddp : public testing::Test {
 protected:
  Ddp() {
    host_.ranks = 2;
    host_.set("bucket_mib", 1).set("unused", "first_step");
    host_.op("aten::fill_.Scalar", [](auto args) { return mortise::Tensor::share(args[0].v.t); });
  }
  ~Ddp() override { plugin_.reset(); }
  void begin(const std::map<std::string, int64_t>& params) {
    for (const auto& [name, numel] : params) {
      params_[name] = host_.add_param(name, "vector", {numel});
      host_.has_gradient[params_[name]] = 1;
    }
    plugin_.emplace(host_, MORTISE_PLUGIN_FILE);
    object_ = &plugin_->object<mortise_replicas>("replicas");
    ASSERT_EQ(object_->layout(plugin_->self(), 0), MORTISE_OK);
  }
  void ready(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      ASSERT_EQ(object_->ready(plugin_->self(), params_.at(name), 0, 1), MORTISE_OK) << name;
  }
  mortise_status finish() { return object_->finish(plugin_->self(), 0); }
  int64_t offset(const char* name) { return host_.placed.at(params_.at(name)).offset; }
  mortise_tensor* bucket(const char* name) { return host_.placed.at(params_.at(name)).flat; }
  // Whose buckets were sent since the last time, by a parameter in each.
  std::vector<std::string> sent(const std::vector<std::string>& of) {
    std::vector<std::string> names;
    for (; seen_ < host_.collectives.size(); ++seen_) {
      const auto& c = host_.collectives[seen_];
      EXPECT_EQ(c.kind, MORTISE_ALL_REDUCE);
      EXPECT_EQ(c.op, MORTISE_SUM);
      for (const std::string& name : of)
        if (bucket(name.c_str()) == c.out) names.push_back(name);
    }
    return names;
  }
  bool all_waited_for() { return std::ranges::all_of(host_.collectives, &FakeHost::Collective::is_waited_for); }

  FakeHost host_;
  std::map<std::string, mortise_param*> params_;
  std::optional<Plugin> plugin_;
  const mortise_replicas* object_ = nullptr;
  size_t seen_ = 0;
};

TEST_F(Ddp, PutsGradientsSideBySideFromTheLastToTheFirst) {
  begin({{"a", 200'000}, {"b", 100'000}, {"c", 10}});
  EXPECT_EQ(offset("c"), 0);
  EXPECT_EQ(offset("b"), 64) << "aligned";
  EXPECT_EQ(bucket("b"), bucket("c"));
  EXPECT_EQ(offset("a"), 0);
  EXPECT_NE(bucket("a"), bucket("b")) << "more than a MiB together";
}

TEST_F(Ddp, PutsNothingTogetherThatOtherRanksAddUp) {
  host_.axes["experts"] = {.rank = 0, .size = 2};
  const mortise_rank_group* const group = host_.group_along("experts");
  params_["b"] = host_.add_param("b", "vector", {10});
  host_.groups[params_["b"]] = group;
  begin({{"a", 10}, {"c", 10}});
  EXPECT_NE(bucket("a"), bucket("b"));
  host_.has_gradient[params_["b"]] = 1;
  ready({"a", "b", "c"});
  EXPECT_EQ(host_.collectives.size(), 2U);
  for (const auto& c : host_.collectives) EXPECT_EQ(c.group, c.out == bucket("b") ? group : nullptr);
  EXPECT_EQ(finish(), MORTISE_OK);
}

// As with gradients of matrices in bf16: norms and biases of all layers are sent once, when the last is there.
TEST_F(Ddp, HasABucketOfEachDtypeAndSendsFirstWhatIsFullFirst) {
  for (const char* name : {"0.w", "0.b", "1.w", "1.b", "2.w", "2.b"}) {
    params_[name] = host_.add_param(name, "vector", {name[2] == 'w' ? 400'000 : 10});
    host_.has_gradient[params_[name]] = 1;
    if (name[2] == 'w') const_cast<mortise_param_info&>(mortise::info_of(params_[name])).grad_dtype = MORTISE_BF16;
  }
  begin({});
  EXPECT_EQ(bucket("0.b"), bucket("2.b"));
  for (const char* name : {"0.w", "1.w"}) EXPECT_NE(bucket(name), bucket("2.w"));
  ready({"2.b", "2.w"});
  EXPECT_EQ(sent({"2.w", "1.w", "0.w", "0.b"}), (std::vector<std::string>{"2.w"}));
  ready({"1.b", "1.w", "0.b", "0.w"});
  EXPECT_EQ(sent({"2.w", "1.w", "0.w", "0.b"}), (std::vector<std::string>{"1.w", "0.b", "0.w"}));
  EXPECT_EQ(finish(), MORTISE_OK);
}

TEST_F(Ddp, SendsABucketOnceItIsFullAndInOneOrder) {
  begin({{"a", 200'000}, {"b", 100'000}, {"c", 10}});
  ready({"a", "c"});
  EXPECT_TRUE(host_.collectives.empty()) << "the first is not full, and the second waits for it";
  ready({"b"});
  EXPECT_EQ(sent({"a", "b"}), (std::vector<std::string>{"b", "a"}));
  EXPECT_FALSE(all_waited_for());
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_TRUE(all_waited_for());
  EXPECT_EQ(host_.collectives.size(), 2U);
}

TEST_F(Ddp, WaitsInEachStepForWhatABucketHas) {
  begin({{"a", 10}, {"b", 20}});
  for (size_t step = 0; step < 3; ++step) {
    ready({"b"});
    EXPECT_EQ(host_.collectives.size(), step);
    ready({"a"});
    EXPECT_EQ(host_.collectives.size(), step + 1);
    EXPECT_EQ(finish(), MORTISE_OK);
  }
}

TEST_F(Ddp, SendsWhatIsLeftInTheEnd) {
  begin({{"a", 10}});
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(host_.collectives.size(), 1U);
  EXPECT_TRUE(all_waited_for());
}

TEST_F(Ddp, WaitsForTheLastMicroBatch) {
  begin({{"a", 10}});
  EXPECT_EQ(object_->ready(plugin_->self(), params_["a"], 0, 0), MORTISE_OK);
  EXPECT_TRUE(host_.collectives.empty());
}

// Of a run that goes on the first backward is a later one of the run that never stopped.
TEST_F(Ddp, KeepsItsOrderWhateverThatOfBackwardIs) {
  begin({{"a", 10}, {"b", 20}, {"c", 30}});
  const auto offsets = [&] { return std::vector<int64_t>{offset("c"), offset("b"), offset("a")}; };
  for (const auto& order : {std::vector<std::string>{"a", "c", "b"}, {"b", "c", "a"}}) {
    EXPECT_EQ(offsets(), (std::vector<int64_t>{0, 64, 128}));
    ready(order);
    EXPECT_EQ(finish(), MORTISE_OK);
  }
  EXPECT_EQ(offsets(), (std::vector<int64_t>{0, 64, 128}));
}

TEST_F(Ddp, UpdatesEverywhereWhatAnyRankUsed) {
  begin({{"a", 10}, {"b", 20}});
  host_.has_gradient[params_["b"]] = 0;
  host_.others = [](auto& numbers, uint32_t op) {
    if (op == MORTISE_MAX) numbers = {1, 1};
  };
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(host_.has_gradient[params_["b"]], 1);
}

TEST_F(Ddp, RefusesAGradientThatNobodyHadInTheFirstStep) {
  begin({{"a", 10}, {"b", 20}});
  host_.has_gradient[params_["b"]] = 0;
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(host_.has_gradient[params_["b"]], 0) << "nobody used it";
  host_.has_gradient[params_["b"]] = 1;
  EXPECT_EQ(finish(), MORTISE_E_UNSUPPORTED);
  EXPECT_EQ(host_.error(),
            "b has a gradient, and had none in the first step\n  fix: `unused = \"every_step\"` in its table");
}

TEST_F(Ddp, AsksInEveryStepIfItIsToldTo) {
  host_.set("unused", "every_step");
  begin({{"a", 10}, {"b", 20}});
  int asked = 0;
  host_.others = [&](auto&, uint32_t op) { asked += op == MORTISE_MAX; };
  host_.has_gradient[params_["b"]] = 0;
  EXPECT_EQ(finish(), MORTISE_OK);
  host_.has_gradient[params_["b"]] = 1;
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(asked, 2);
}

// A rank that plays what it has recorded would not answer.
TEST_F(Ddp, AsksOnceWhereStepsAreRecorded) {
  host_.set("unused", "every_step");
  host_.records_steps = true;
  begin({{"a", 10}});
  int asked = 0;
  host_.others = [&](auto&, uint32_t op) { asked += op == MORTISE_MAX; };
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(finish(), MORTISE_OK);
  EXPECT_EQ(asked, 1);
}

}  // namespace
