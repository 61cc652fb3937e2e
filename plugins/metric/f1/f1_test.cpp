#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Tensor;

namespace {

using Ids = std::vector<int64_t>;

// Micro-batches of labels over four classes, and what the model finds likeliest.
struct F1 : testing::Test {
  F1() {
    host.set("average", "macro").unset("positive");
    host.op("aten::argmax", [this](auto args) {
      EXPECT_EQ(args[1].v.i, -1) << "over the classes";
      const auto x = host.values<float>(args[0].v.t);
      Ids best;
      for (auto row = x.begin(); row != x.end(); row += 4) best.push_back(std::max_element(row, row + 4) - row);
      return ids(best);
    });
    host.op("aten::eq.Tensor", [this](auto args) {
      return masked(args[0].v.t, [&, i = size_t{0}, b = host.values<int64_t>(args[1].v.t)](int64_t a) mutable {
        return a == b[i++];
      });
    });
    host.op("aten::ge.Scalar",
            [this](auto args) { return masked(args[0].v.t, [&](int64_t a) { return a >= args[1].v.i; }); });
    host.op("aten::masked_select", [this](auto args) {
      const auto all = host.values<int64_t>(args[0].v.t);
      Ids chosen;
      for (size_t i = 0; i < all.size(); ++i)
        if (host.element(args[1].v.t, static_cast<int64_t>(i)) != 0) chosen.push_back(all[i]);
      return ids(chosen);
    });
    host.op("aten::bincount", [this](auto args) {
      Ids n(static_cast<size_t>(args[2].v.i));
      for (const int64_t id : host.values<int64_t>(args[0].v.t)) ++n.at(static_cast<size_t>(id));
      return ids(n);
    });
    host.op("aten::add.Tensor", [this](auto args) {
      Ids sum = host.values<int64_t>(args[0].v.t);
      const Ids more = host.values<int64_t>(args[1].v.t);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
      return ids(sum);
    });
  }
  Tensor ids(const Ids& all) { return host.tensor<int64_t>({static_cast<int64_t>(all.size())}, all); }
  template <class Test>
  Tensor masked(mortise_tensor* t, Test test) {
    const Ids all = host.values<int64_t>(t);
    Tensor mask = mortise::empty(MORTISE_BOOL, {static_cast<int64_t>(all.size())});
    for (size_t i = 0; i < all.size(); ++i) host.set_element(mask.get(), static_cast<int64_t>(i), test(all[i]));
    return mask;
  }

  struct Micro {
    Ids labels, said;
  };
  mortise_status forward(const Plugin& plugin, const Micro& m, uint32_t mode = MORTISE_EVAL) {
    FakeChain chain(host, [&](mortise_call& inner) {
      want = inner.want;
      std::vector<float> logits(4 * m.said.size());
      for (size_t row = 0; row < m.said.size(); ++row) logits[4 * row + static_cast<size_t>(m.said[row])] = 1;
      if (inner.n_results > 1)
        inner.results[1] =
            mortise::value(host.tensor<float>({static_cast<int64_t>(m.said.size()), 4}, logits).release());
      return MORTISE_OK;
    });
    mortise::Batch batch = mortise::Batch::create(nullptr);
    if (!m.labels.empty())
      mortise::check(mortise::api.batch->set(&host, batch.get(), MORTISE_STR("labels"), ids(m.labels).get()));
    FakeCall call({}, 2);
    call.mode = mode;
    call.batch = batch.get();
    return chain.wrap(plugin, "forward", call);
  }
  mortise_status evaluate(const Plugin& plugin, const std::vector<Micro>& micros) {
    FakeChain chain(host, [&](mortise_call&) {
      for (const Micro& m : micros)
        if (const mortise_status s = forward(plugin, m)) return s;
      return mortise_status{MORTISE_OK};
    });
    FakeCall call({}, 0);
    call.mode = MORTISE_EVAL;
    return chain.wrap(plugin, "eval", call);
  }
  double f1(const std::vector<Micro>& micros) {
    Plugin plugin(host, MORTISE_PLUGIN_FILE);
    host.metrics.clear();
    EXPECT_EQ(evaluate(plugin, micros), MORTISE_OK) << host.error();
    return host.metrics.at("f1");
  }
  FakeHost host;
  FakeChain calls{host, {}};  // a plugin asks for its tables when it is made
  uint32_t want = 0;
};

// Class 0: 2 hits of 3 said and 2 labels; class 1: 1 of 2 and 3; class 2: none of 1 and 1; class 3: nowhere.
const std::vector<F1::Micro> kMicros = {{{0, 1, 1, -100}, {0, 1, 0, 3}}, {{0, 1, 2}, {0, 2, 1}}};
constexpr double kOf0 = 4.0 / 5, kOf1 = 2.0 / 5;

// scikit-learn 1.5: f1_score([0, 1, 1, 0, 1, 2], [0, 1, 0, 0, 2, 1], average=…)
TEST_F(F1, IsTheMeanOverTheClassesThatAreThere) { EXPECT_DOUBLE_EQ(f1(kMicros), (kOf0 + kOf1 + 0) / 3); }

TEST_F(F1, IsWeightedByLabels) {
  host.set("average", "weighted");
  EXPECT_DOUBLE_EQ(f1(kMicros), (2 * kOf0 + 3 * kOf1 + 1 * 0) / 6);
}

TEST_F(F1, IsOfOneClass) {
  host.set("average", "binary");
  EXPECT_DOUBLE_EQ(f1(kMicros), kOf1);
  host.set("positive", 3);
  EXPECT_EQ(f1(kMicros), 0) << "nobody said it, and no label is it";
}

// It comes to light at the first evaluation, when a run has trained for long: that does not end it.
TEST_F(F1, IsNoNumberOfAClassThatTheModelDoesNotKnow) {
  host.set("average", "binary").set("positive", 4);
  EXPECT_TRUE(std::isnan(f1(kMicros)));
  ASSERT_EQ(host.log.size(), 1u);
  EXPECT_EQ(host.log[0].text, "there is no eval.f1 of class 4 (positive): the model knows 4, from 0");
}

TEST_F(F1, RefusesAPositiveClassOfAnAverageOfAll) {
  host.set("positive", 1);
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed->key, "positive");
}

TEST_F(F1, BeginsAnewWithEachEvaluation) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(evaluate(plugin, kMicros), MORTISE_OK);
  host.metrics.clear();
  ASSERT_EQ(evaluate(plugin, {{{1}, {1}}}), MORTISE_OK);
  EXPECT_EQ(host.metrics.at("f1"), 1);
}

TEST_F(F1, IsNoNumberWithoutALabel) {
  EXPECT_TRUE(std::isnan(f1({{{-100}, {2}}})));
  EXPECT_TRUE(std::isnan(f1({{{}, {2}}})));
}

TEST_F(F1, LeavesTrainingAlone) {
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(forward(plugin, {{1}, {1}}, MORTISE_TRAIN), MORTISE_OK);
  EXPECT_FALSE(want & MORTISE_WANT_LOGITS);
  ASSERT_EQ(forward(plugin, {{1}, {1}}), MORTISE_OK);
  EXPECT_TRUE(want & MORTISE_WANT_LOGITS);
}

}  // namespace
