// Parameters of which this rank has a part: memory, values that come and go, gradients of own elements. With real
// ranks: tests/e2e/joint_batch_test.py.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "core/abi/error.hpp"
#include "core/abi/test_loop.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise::testing {
namespace {

// Gathers nothing: what others would bring is missing.
struct Loop final : NoLoop {
  std::vector<std::string> needed;
  Host& host;
  explicit Loop(Host& h) : host(h) {}
  void need(mortise_param& p, int, bool) override {
    needed.push_back(p.name);
    host.parameters().hold(p);
  }
};

class Shards : public ::testing::Test {
 protected:
  // A matrix of `in` x 2.
  mortise_param& add(const char* name, int64_t in) {
    const int64_t sizes[] = {in, 2};
    const mortise_str dims[] = {MORTISE_STR("in"), MORTISE_STR("out")};
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.name = str(name);
    spec.role = MORTISE_STR("matrix");
    spec.init = MORTISE_STR("ones");
    spec.dims = dims;
    spec.sizes = sizes;
    spec.rank = 2;
    return *add_param(builder, spec);
  }
  // A parameter of 5 x 2, of which this rank, the second of two, has the last 4 elements; room for 12.
  mortise_param& declare(bool comes_and_goes, uint32_t value_dtype = MORTISE_F32, Piece own = {6, 4}) {
    mortise_param& p = add("w", 5);
    p.info.value_dtype = value_dtype;
    p.shards = {{{0, own.offset}, own}, own, 12, comes_and_goes};
    parameters.allocate(host.declaration(), at::kCPU, 1, [](const mortise_param&, at::Tensor& m) {
      m.view(-1).copy_(at::arange(10));
      return true;
    });
    parameters.begin_step();
    parameters.begin_micro(0, true);
    return p;
  }
  // What is in memory, each storage once.
  int64_t held(const mortise_param& p) {
    const ParameterState& s = parameters.state(p);
    std::map<const void*, int64_t> bytes;
    for (const at::Tensor& t : {s.master, s.value, s.grad, s.own_grad})
      if (t.defined()) bytes[t.storage().unsafeGetStorageImpl()] = static_cast<int64_t>(t.storage().nbytes());
    int64_t all = 0;
    for (const auto& [storage, n] : bytes) all += n;
    return all;
  }
  int64_t planned() {
    const Memory m = weights_and_gradients(host.declaration());
    return m.weights + m.casts;
  }
  void contribute(const mortise_param& p, double v) { parameters.sum(p, at::full({5, 2}, v)); }

  Shards() {
    add_segment(builder, "h.0", MORTISE_BLOCK);
    host.loop = &loop;
  }
  PointTable points;
  Host host{points, 1};
  mortise_builder builder{host.declaration(), {}};
  Loop loop{host};
  Parameters& parameters = host.parameters();
};

TEST_F(Shards, HaveTheMemoryThatThePlanSays) {
  mortise_param& p = declare(/*comes_and_goes=*/true);
  EXPECT_EQ(held(p), 4 * 4);
  EXPECT_EQ(held(p), planned());
  parameters.hold(p);
  EXPECT_EQ(held(p), 4 * 4 + 12 * 4);
  parameters.drop(p);
  EXPECT_EQ(held(p), 4 * 4) << "a value that goes takes no memory along";
}

TEST_F(Shards, OfAValueThatStaysHaveTheMasterInItsMemory) {
  mortise_param& p = declare(false);
  EXPECT_EQ(held(p), 12 * 4);
  EXPECT_EQ(held(p), planned());
  parameters.drop(p);
  EXPECT_EQ(held(p), 12 * 4);
  parameters.state(p).master.fill_(7);
  EXPECT_EQ(parameters.hold(p)[6].item<double>(), 7);
}

TEST_F(Shards, OfACopyThatStaysHaveTheirOwnMaster) {
  mortise_param& p = declare(false, MORTISE_BF16);
  EXPECT_EQ(held(p), 4 * 4 + 12 * 2);
  EXPECT_EQ(held(p), planned());
}

TEST_F(Shards, AreHeldAsTheMasterIsNow) {
  for (const uint32_t dtype : {MORTISE_F32, MORTISE_BF16}) {
    host.declaration() = {};
    mortise_param& p = declare(true, dtype);
    EXPECT_EQ(parameters.hold(p)[6].item<double>(), 6);
    parameters.drop(p);
    parameters.state(p).master.fill_(8);
    const at::Tensor flat = parameters.hold(p);
    EXPECT_EQ(flat.sizes(), at::IntArrayRef({12}));
    EXPECT_EQ(flat[9].item<double>(), 8);
    EXPECT_EQ(dtype_of(flat.scalar_type()), dtype);
  }
}

TEST_F(Shards, AreNeededByWhoeverUsesThem) {
  mortise_param& p = declare(true);
  parameters.hold(p).fill_(3);
  parameters.drop(p);
  const at::Tensor value = parameters.use(p, 0);
  EXPECT_EQ(loop.needed, std::vector<std::string>{"w"});
  EXPECT_EQ(value.sizes(), at::IntArrayRef({5, 2}));
  parameters.drop(p);
  EXPECT_EQ(value[3][0].item<double>(), 6) << "who keeps it has it";
}

TEST_F(Shards, ThatAreFilledWereNotWrittenByTheModel) {
  mortise_param& p = declare(true);
  parameters.hold(p);
  parameters.hold(p).fill_(1);
  EXPECT_NO_THROW(parameters.check_versions());
  parameters.value(p).add_(1);
  EXPECT_THROW(parameters.check_versions(), PluginError);
}

TEST_F(Shards, AddUpTheGradientsOfMicroBatches) {
  mortise_param& p = declare(true);
  contribute(p, 1);
  contribute(p, 2);
  const at::Tensor first = parameters.take_gradient(p);
  EXPECT_EQ(first.sizes(), at::IntArrayRef({12}));
  EXPECT_EQ(first[9].item<double>(), 3);
  EXPECT_FALSE(parameters.state(p).grad.defined()) << "its memory is the caller's";
  parameters.add_gradient(p, at::full({6}, 5.0f));
  parameters.begin_micro(1, true);
  contribute(p, 4);
  EXPECT_EQ(parameters.take_gradient(p)[0].item<double>(), 4) << "begun anew";
  parameters.add_gradient(p, at::full({6}, 6.0f));
  EXPECT_EQ(parameters.state(p).own_grad.sizes(), at::IntArrayRef({4}));
  EXPECT_EQ(parameters.state(p).own_grad[3].item<double>(), 11);
  EXPECT_EQ(parameters.squares_of_parts()[0].item<double>(), 4 * 11 * 11);
  EXPECT_EQ(parameters.norm().item<double>(), 0) << "of whole ones";
  parameters.begin_step();
  EXPECT_FALSE(parameters.state(p).own_grad.defined());
}

TEST_F(Shards, WithoutAGradientGiveZeros) {
  mortise_param& p = declare(true);
  EXPECT_EQ(parameters.take_gradient(p).narrow(0, 0, 10).abs().sum().item<double>(), 0);
  EXPECT_FALSE(parameters.state(p).has_gradient);
}

TEST_F(Shards, ThatAreOwnedWholeKeepTheirShape) {
  mortise_param& p = declare(true, MORTISE_F32, {0, 10});
  EXPECT_EQ(parameters.state(p).master.sizes(), at::IntArrayRef({5, 2}));
  parameters.take_gradient(p);
  parameters.add_gradient(p, at::ones({12}));
  EXPECT_EQ(parameters.state(p).own_grad.sizes(), at::IntArrayRef({5, 2}));
}

TEST_F(Shards, OfWhomAnotherRankHasAllKeepNoMemory) {
  mortise_param& p = declare(true, MORTISE_F32, {10, 0});
  parameters.take_gradient(p);
  parameters.add_gradient(p, at::ones({12}));
  EXPECT_EQ(held(p), 0);
}

// Along an axis of two: of 4 x 2, which begins with 0 1 2 …, this rank has the second half of the columns.
TEST_F(Shards, WhatLiesAlongAnAxisIsAPartOfTheWhole) {
  mortise_param &cut = add("cut", 4), &here = add("here", 4), &there = add("there", 4);
  place(cut, {0, "tensor", 1, 2}, "out");
  place(here, {1, "experts", 0, 2}, int64_t{0});
  place(there, {1, "experts", 0, 2}, int64_t{1});
  here.counts = false;
  parameters.allocate(host.declaration(), at::kCPU, 1, [](const mortise_param&, at::Tensor& m) {
    EXPECT_EQ(m.numel(), 8) << "a whole one is drawn";
    m.view(-1).copy_(at::arange(8));
    return true;
  });
  EXPECT_TRUE(parameters.state(cut).master.equal(at::arange(1, 8, 2).to(at::kFloat).view({4, 1})));
  EXPECT_EQ(parameters.state(here).master.numel(), 8);
  PluginHost& plugin = host.add_plugin("test.noise", nullptr, nullptr);
  const auto part_drawn = [&](const char* name) {
    mortise_philox place{};
    EXPECT_EQ(kRandomApi.stream(&plugin, str(name), &place), MORTISE_OK);
    return place.micro;
  };
  EXPECT_EQ(part_drawn("cut"), 1u) << "other bits than those of the first part";
  EXPECT_EQ(part_drawn("here"), 0u);
  EXPECT_EQ(part_drawn("no parameter"), 0u);
  EXPECT_EQ(parameters.state(there).master.sizes(), at::IntArrayRef({0, 2}));
  EXPECT_THROW(parameters.value(there), PluginError) << "its value is on another rank";
  parameters.begin_step();
  for (mortise_param* p : {&cut, &here}) {
    parameters.state(*p).has_gradient = true;
    parameters.gradient(parameters.state(*p)).fill_(2);
  }
  EXPECT_EQ(parameters.norm().item<double>(), 0) << "nothing is whole on every rank";
  const at::Tensor squares = parameters.squares_of_parts();
  EXPECT_EQ(squares[0].item<double>(), 4 * 4);
  EXPECT_EQ(squares[1].item<double>(), 0) << "another rank that has it counts it";
  EXPECT_EQ(squares[2].item<double>(), 0);
}

// One running sum in fp32 of so many is some per cent too small. Of 2^16 the last of a sum's 24 bits is lost each time,
// of numbers that are alike always to the same side: 2^-24 of the sum so far, half of it on the average, 2^16 times, is
// at most 2^-9; LibTorch adds up in at least 32 lanes, so 2^-14.
TEST_F(Shards, HaveTheNormOfManyElementsAsExactlyAsWholeOnes) {
  mortise_param& cut = add("w", 1 << 23);
  place(cut, {0, "tensor", 1, 2}, "out");
  parameters.allocate(host.declaration(), at::kCPU, 1, [](const mortise_param&, at::Tensor&) { return true; });
  parameters.begin_step();
  parameters.state(cut).has_gradient = true;
  parameters.gradient(parameters.state(cut)).fill_(0.1f);
  const double expected = (1 << 23) * static_cast<double>(0.1f) * static_cast<double>(0.1f);
  EXPECT_NEAR(parameters.squares_of_parts()[0].item<double>(), expected, 0x1p-14 * expected);
}

// A sum over the ranks may be under way in the memory of a gradient that is whole.
TEST_F(Shards, RefuseASecondBackwardOfWhatOtherRanksAddUp) {
  for (const int32_t replicas : {1, 2}) {
    mortise_param& p = add(replicas == 1 ? "alone" : "shared", 5);
    p.info.replicas = replicas;
    parameters.allocate(host.declaration(), at::kCPU, 1, [](const mortise_param&, at::Tensor&) { return true; });
    parameters.begin_step();
    parameters.begin_micro(0, true);
    parameters.count_use(p, MORTISE_FIRST_PASS);
    contribute(p, 1);
    parameters.arrive(p);
    if (replicas == 1) contribute(p, 1);
    else EXPECT_THROW(contribute(p, 1), PluginError);
  }
}

TEST_F(Shards, RefuseAGradientThatComesTooLate) {
  mortise_param& p = declare(true);
  parameters.take_gradient(p);
  EXPECT_THROW(contribute(p, 1), PluginError) << "it would be on this rank alone";
  EXPECT_THROW(parameters.take_gradient(p), PluginError);
  EXPECT_THROW(parameters.add_gradient(p, at::ones({3})), PluginError) << "fewer than its own";
  EXPECT_THROW(parameters.place(p, at::empty({10}), 0), PluginError);
}

}  // namespace
}  // namespace mortise::testing
