#include <gtest/gtest.h>

#include <algorithm>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Tensor;

namespace {

// Two samples of three tokens over four ids; the likeliest are 0 1 2 and 3 0 1.
struct Accuracy : testing::Test {
  Accuracy() {
    host.set("in_training", false);
    host.op("aten::argmax", [this](auto args) {
      EXPECT_EQ(args[1].v.i, -1) << "over the classes";
      EXPECT_FALSE(args[2].v.i) << "which then are no dimension any more";
      const auto x = host.values<float>(args[0].v.t);
      std::vector<int64_t> best;
      for (auto row = x.begin(); row != x.end(); row += 4) best.push_back(std::max_element(row, row + 4) - row);
      return host.tensor<int64_t>({2, 3}, best);
    });
    host.op("aten::eq.Tensor", [this](auto args) {
      const auto a = host.values<int64_t>(args[0].v.t), b = host.values<int64_t>(args[1].v.t);
      std::vector<float> same;
      for (size_t i = 0; i < a.size(); ++i) same.push_back(a[i] == b[i] ? 1.0F : 0.0F);
      return host.tensor<float>({2, 3}, same);
    });
    host.op("aten::ne.Scalar", [this](auto args) {
      std::vector<float> differ;
      for (const int64_t x : host.values<int64_t>(args[0].v.t)) differ.push_back(x != args[1].v.i ? 1.0F : 0.0F);
      return host.tensor<float>({static_cast<int64_t>(differ.size())}, differ);
    });
    host.op("aten::to.dtype", [](auto args) {
      EXPECT_EQ(args[1].v.i, MORTISE_F32) << "bf16 counts to 256";
      return Tensor::share(args[0].v.t);
    });
    host.op("aten::sum", [this](auto args) {
      float all = 0;
      for (const float x : host.values<float>(args[0].v.t)) all += x;
      return host.tensor<float>({}, {all});
    });
    logits.assign(24, 0.0F);
    for (size_t row = 0; row < 6; ++row) logits[4 * row + std::array{0, 1, 2, 3, 0, 1}[row]] = 1;
  }
  // What a forward of `mode` over these labels gives, to a caller that wants so many results.
  mortise_status run(uint32_t mode, const std::vector<int64_t>& labels, uint32_t n_results,
                     const std::vector<int64_t>& shape = {2, 3}) {
    FakeChain chain(host, [&](mortise_call& inner) {
      want = inner.want;
      if (inner.n_results > 0) inner.results[0] = mortise::value(host.tensor<float>({}, {2.5F}).release());
      if (inner.n_results > 1 && gives_logits)
        inner.results[1] = mortise::value(host.tensor<float>(with_classes(shape), logits).release());
      return ends_with;
    });
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    mortise::Batch batch = mortise::Batch::create(nullptr);
    if (!labels.empty()) {
      const Tensor t = host.tensor<int64_t>(shape, labels);
      mortise::check(mortise::api.batch->set(mortise::api.host, batch.get(), MORTISE_STR("labels"), t.get()));
    }
    FakeCall call({}, n_results);
    call.mode = mode;
    call.batch = batch.get();
    const mortise_status status = chain.wrap(plugin, "forward", call);
    losses.clear();
    for (uint32_t i = 0; i < n_results; ++i)
      losses.push_back(call.results[i].tag == MORTISE_TENSOR ? host.values<float>(call.results[i].v.t)[0] : -1);
    return status;
  }
  // How many labels a loaded batch is said to have.
  int64_t counted(uint32_t mode, const std::vector<int64_t>& labels, const std::vector<int64_t>& shape) {
    FakeChain chain(host, [&](mortise_call& inner) {
      mortise::Batch batch = mortise::Batch::create(nullptr);
      const Tensor t = host.tensor<int64_t>(shape, labels);
      mortise::check(mortise::api.batch->set(mortise::api.host, batch.get(), MORTISE_STR("labels"), t.get()));
      inner.results[0] = {MORTISE_BATCH, 0, {.b = batch.release()}};
      return MORTISE_OK;
    });
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    FakeCall call({}, 1);
    call.mode = mode;
    EXPECT_EQ(chain.wrap(plugin, "load", call), MORTISE_OK) << host.error();
    int64_t n = 0;
    mortise::check(
        mortise::api.batch->count(mortise::api.host, call.results[0].v.b, MORTISE_STR("metric.accuracy"), &n));
    return n;
  }
  static std::vector<int64_t> with_classes(std::vector<int64_t> shape) {
    shape.push_back(4);
    return shape;
  }
  FakeHost host;
  std::vector<float> logits, losses;
  uint32_t want = 0;
  bool gives_logits = true;
  mortise_status ends_with = MORTISE_OK;
};

TEST_F(Accuracy, CountsTheLabelsThatAreTheLikeliest) {
  ASSERT_EQ(run(MORTISE_EVAL, {0, 1, 0, 3, 1, -100}, 2), MORTISE_OK) << host.error();
  ASSERT_EQ(host.terms.size(), 1u);
  EXPECT_EQ(host.terms[0].name, "accuracy");
  EXPECT_EQ(host.terms[0].sum, 3);
  EXPECT_EQ(host.terms[0].unit, "tokens");
  EXPECT_EQ(host.terms[0].weight, 0);
  EXPECT_TRUE(want & MORTISE_WANT_LOGITS);
  EXPECT_EQ(losses, (std::vector<float>{2.5F, 1})) << "the caller's results are the model's";
}

TEST_F(Accuracy, OfOneLabelASampleCountsLabels) {
  ASSERT_EQ(run(MORTISE_EVAL, {0, 1, 2, 3, 0, -100}, 2, {6}), MORTISE_OK) << host.error();
  EXPECT_EQ(host.terms[0].sum, 5);
  EXPECT_EQ(host.terms[0].unit, "metric.accuracy");
  EXPECT_EQ(counted(MORTISE_EVAL, {0, 1, 2, 3, 0, -100}, {6}), 5) << "those with a label alone";
  EXPECT_EQ(counted(MORTISE_EVAL, {0, 1, 2, 3, 0, -100}, {2, 3}), 0) << "the data counts them";
  EXPECT_EQ(counted(MORTISE_TRAIN, {0, 1, 2, 3, 0, -100}, {6}), 0);
}

TEST_F(Accuracy, GivesACallerNoMoreThanItWants) {
  for (const uint32_t n : {0u, 1u}) {
    ASSERT_EQ(run(MORTISE_EVAL, {0, 1, 2, 3, 0, 1}, n), MORTISE_OK) << host.error();
    EXPECT_EQ(host.terms.back().sum, 6);
    EXPECT_EQ(losses, std::vector<float>(n, 2.5F));
  }
  EXPECT_EQ(host.live_tensors(), 0u);
}

TEST_F(Accuracy, IsOfTrainingOnlyWhereThatIsAskedFor) {
  const std::vector<int64_t> labels = {0, 1, 2, 3, 0, 1};
  ASSERT_EQ(run(MORTISE_TRAIN, labels, 0), MORTISE_OK);
  EXPECT_FALSE(want & MORTISE_WANT_LOGITS) << "nor are logits made";
  EXPECT_TRUE(host.terms.empty());
  host.set("in_training", true);
  ASSERT_EQ(run(MORTISE_TRAIN, labels, 0), MORTISE_OK);
  EXPECT_EQ(host.terms.size(), 1u);
}

TEST_F(Accuracy, LeavesSamplesAndBatchesWithoutLabelsAlone) {
  ASSERT_EQ(run(MORTISE_SAMPLE, {0, 1, 2, 3, 0, 1}, 2), MORTISE_OK);
  ASSERT_EQ(run(MORTISE_EVAL, {}, 2), MORTISE_OK);
  EXPECT_TRUE(host.terms.empty());
}

TEST_F(Accuracy, FailsAsTheModelDoes) {
  ends_with = MORTISE_E_DATA;
  for (const uint32_t n : {0u, 1u, 2u}) EXPECT_EQ(run(MORTISE_EVAL, {0, 1, 2, 3, 0, 1}, n), MORTISE_E_DATA) << n;
  EXPECT_TRUE(host.terms.empty());
  EXPECT_EQ(host.live_tensors(), 0u);
}

TEST_F(Accuracy, SaysThatAModelGivesNoLogits) {
  gives_logits = false;
  EXPECT_EQ(run(MORTISE_EVAL, {0, 1, 2, 3, 0, 1}, 2), MORTISE_E_UNSUPPORTED);
  EXPECT_EQ(host.error(), "the model gives no logits as its second result");
}

}  // namespace
