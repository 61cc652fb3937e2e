// States of a part of a parameter, as one of several ranks has them. With real ranks: tests/e2e/joint_batch_test.py.
#include "core/loop/states.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "core/host/handle.hpp"
#include "core/host/test_host.hpp"

namespace mortise::testing {
namespace {

class Parts : public ::testing::Test {
 protected:
  Parts() {
    mortise_builder b{host.declaration(), {}};
    add_segment(b, "h.0", MORTISE_BLOCK);
    const int64_t sizes[] = {5, 2};
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.name = MORTISE_STR("w");
    spec.role = MORTISE_STR("matrix");
    spec.init = MORTISE_STR("ones");
    spec.sizes = sizes;
    spec.rank = 2;
    param = add_param(b, spec);
    mortise_param_info& info = param->info;
    info.replica = 1;
    info.replicas = 2;
    info.value_dtype = info.master_dtype = info.grad_dtype = MORTISE_F64;
    host.parameters().allocate(host.declaration(), host.device(), 1, [](const mortise_param&, at::Tensor& m) {
      m.view(-1).copy_(at::arange(10));
      return true;
    });
  }
  ParamStates beside(std::vector<Piece> pieces) const {
    return {param,
            {{"m", {5, 2}, MORTISE_F64, 0.5, false, 1},
             {"scales", {3}, MORTISE_F32, 0, false, 4},
             {"first", {5, 2}, MORTISE_F64, 0, true, 1}},
            std::move(pieces)};
  }
  PointTable points;
  Host host{points, 1};
  mortise_param* param = nullptr;
};

// A device has its memory for activations, once a step is over.
TEST_F(Parts, HoldNoGradientThatIsWhole) {
  States states({beside({})}, host);
  ParameterState& p = host.parameters().state(*param);
  p.grad = at::empty({5, 2}, at::kDouble);
  p.has_gradient = true;
  EXPECT_EQ(states.slices(States::Which::kWithGradients)[0].grad, borrow(p.grad));
  EXPECT_EQ(p.grad.use_count(), 1);
}

TEST_F(Parts, AreFlatAndLieInTheMaster) {
  States states({beside({{0, 4}, {4, 6}})}, host);
  states.copy_masters();
  const auto& slices = states.slices(States::Which::kAll);
  ASSERT_EQ(slices.size(), 1U);
  EXPECT_EQ(slices[0].offset, 4);
  EXPECT_EQ(slices[0].length, 6);
  const at::Tensor master = share(slices[0].master);
  EXPECT_EQ(master.sizes(), at::IntArrayRef({6}));
  master.fill_(7);
  EXPECT_EQ(host.parameters().state(*param).master.view(-1)[3].item<double>(), 3);
  EXPECT_EQ(host.parameters().state(*param).master.view(-1)[4].item<double>(), 7);

  const std::vector<NamedState> named = states.named();
  EXPECT_EQ(named[0].tensor.sizes(), at::IntArrayRef({6}));
  EXPECT_EQ(named[0].tensor[0].item<double>(), 0.5);
  EXPECT_EQ(named[0].whole, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(named[0].offset, 4);
  EXPECT_EQ(named[1].tensor.sizes(), at::IntArrayRef({2})) << "of four elements, and of two";
  EXPECT_EQ(named[1].offset, 1);
  EXPECT_EQ(named[2].tensor[0].item<double>(), 4) << "a copy of its part of the master";
}

// What is large is updated in parts, each with its own numbers of the states.
TEST_F(Parts, OfAPartBeginWhereItDoes) {
  ParamStates declared = beside({{0, 4}, {4, 6}});
  declared.states.erase(declared.states.begin() + 1);
  declared.at_most = 4;
  States states({declared}, host);
  states.copy_masters();
  const auto& slices = states.slices(States::Which::kAll);
  ASSERT_EQ(slices.size(), 2U);
  for (const auto& [i, offset, length] : {std::tuple(0, 4, 4), std::tuple(1, 8, 2)}) {
    const mortise_slice& slice = slices[static_cast<size_t>(i)];
    EXPECT_EQ(std::pair(slice.offset, slice.length), std::pair(int64_t{offset}, int64_t{length}));
    EXPECT_EQ(share(slice.master)[0].item<double>(), offset);
    EXPECT_EQ(share(slice.states[1]).numel(), length);
    EXPECT_EQ(share(slice.states[1])[0].item<double>(), offset) << "a copy of the master's";
  }
}

TEST_F(Parts, OfWhomAnotherRankHasAllThereIsNoSlice) {
  States states({beside({{0, 10}, {0, 0}})}, host);
  EXPECT_TRUE(states.slices(States::Which::kAll).empty());
  for (const NamedState& named : states.named()) {
    EXPECT_TRUE(named.is_part) << named.name;
    EXPECT_EQ(named.tensor.numel(), 0) << named.name;
  }
}

TEST_F(Parts, OfASharedOutParameterAreItsMaster) {
  param->shards = {{{0, 4}, {4, 6}}, {4, 6}, 12, true};
  host.parameters().allocate(host.declaration(), host.device(), 1, [](const mortise_param&, at::Tensor& m) {
    m.view(-1).copy_(at::arange(10));
    return true;
  });
  States states({beside(param->shards.pieces)}, host);
  states.copy_masters();
  EXPECT_EQ(states.named()[2].tensor[0].item<double>(), 4);
  host.parameters().state(*param).has_gradient = true;
  host.parameters().state(*param).own_grad = at::arange(6);
  const mortise_slice& slice = states.slices(States::Which::kWithGradients).at(0);
  EXPECT_EQ(slice.offset, 4);
  EXPECT_EQ(share(slice.master).data_ptr(), host.parameters().state(*param).master.data_ptr());
  EXPECT_EQ(share(slice.grad)[5].item<double>(), 5);
  EXPECT_EQ(slice.value, nullptr);
}

TEST_F(Parts, OfASharedOutParameterAreShownToWhoDoesNotUpdateThoughTheyAreNothing) {
  param->shards = {{{0, 10}, {10, 0}}, {10, 0}, 10, true};
  host.parameters().allocate(host.declaration(), host.device(), 1, [](auto&, at::Tensor&) { return true; });
  host.parameters().state(*param).has_gradient = true;
  host.parameters().state(*param).own_grad = at::empty({0});
  States states({beside(param->shards.pieces)}, host);
  EXPECT_EQ(states.slices(States::Which::kWithGradients).size(), 1U);
  EXPECT_TRUE(states.slices(States::Which::kWhereGradients).empty());
}

TEST_F(Parts, OfWhatLiesAlongAnAxisSayTheirPlace) {
  param->dims = {"out", "in"};
  place(*param, {0, "tensor", 1, 5}, "out");
  host.parameters().allocate(host.declaration(), host.device(), 1, [](const mortise_param&, at::Tensor& m) {
    m.view(-1).copy_(at::arange(10));
    return true;
  });
  ParamStates own{param, {{"m", {1, 2}, MORTISE_F64, 0, true, 1, {5, 2}}}};
  States states({own}, host);
  states.copy_masters();
  const NamedState m = states.named().at(0);
  EXPECT_TRUE(m.is_part);
  EXPECT_EQ(m.whole, (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(m.placement, &param->placement);
  EXPECT_TRUE(m.tensor.equal(at::arange(2, 4).to(at::kDouble).view({1, 2})));
}

TEST_F(Parts, ThatAreTheWholeKeepItsShape) {
  States states({beside({{0, 0}, {0, 10}})}, host);
  EXPECT_EQ(share(states.slices(States::Which::kAll).at(0).master).sizes(), at::IntArrayRef({5, 2}));
  EXPECT_FALSE(states.named()[0].is_part);
  EXPECT_EQ(states.named()[0].tensor.sizes(), at::IntArrayRef({5, 2}));
}

}  // namespace
}  // namespace mortise::testing
