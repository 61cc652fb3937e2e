#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

class LocalComm : public ::testing::Test {
 protected:
  mortise_status open(int32_t size) {
    mortise_world world{};
    world.struct_size = sizeof world;
    world.size = world.local_size = size;
    return comm_.open(plugin_.self(), &world);
  }
  mortise_status run(uint32_t kind, mortise_tensor* in, mortise_tensor* out, uint32_t op = MORTISE_SUM) {
    mortise_collective c{};
    c.struct_size = sizeof c;
    c.kind = kind, c.op = op, c.in = in, c.out = out;
    mortise_work* work = nullptr;
    const mortise_status s = comm_.start(plugin_.self(), &c, &work);
    return s == MORTISE_OK ? comm_.wait(plugin_.self(), work) : s;
  }
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_comm& comm_ = plugin_.object<mortise_comm>("comm");
};

TEST_F(LocalComm, IsOfOneRank) {
  EXPECT_EQ(open(1), MORTISE_OK);
  EXPECT_EQ(open(2), MORTISE_E_UNSUPPORTED);
  EXPECT_EQ(host_.error(), "comm.local joins no ranks, and there are 2");
}

TEST_F(LocalComm, LeavesWhatItReducesAsItIs) {
  const mortise::Tensor t = host_.tensor<float>({3}, {1, 2, 3});
  int64_t counts[] = {5, -6};
  for (const uint32_t op : {MORTISE_SUM, MORTISE_MAX, MORTISE_MIN}) {
    EXPECT_EQ(run(MORTISE_ALL_REDUCE, nullptr, t.get(), op), MORTISE_OK);
    EXPECT_EQ(comm_.host_all_reduce(plugin_.self(), counts, 2, op), MORTISE_OK);
  }
  for (const uint32_t kind : {MORTISE_BROADCAST, MORTISE_REDUCE}) EXPECT_EQ(run(kind, nullptr, t.get()), MORTISE_OK);
  EXPECT_EQ(run(MORTISE_BROADCAST, nullptr, t.get(), 17), MORTISE_OK) << "no reduction";
  EXPECT_EQ(host_.values<float>(t), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(counts[0], 5);
  EXPECT_EQ(counts[1], -6);
}

TEST_F(LocalComm, CopiesWhatGoesFromOneTensorToAnother) {
  std::vector<int64_t> as;
  host_.op("aten::view", [&](std::span<const mortise_value> args) {
    as.assign(args[1].v.is, args[1].v.is + args[1].count);
    return mortise::Tensor::share(args[0].v.t);
  });
  for (const uint32_t kind : {MORTISE_REDUCE_SCATTER, MORTISE_ALL_GATHER, MORTISE_ALL_TO_ALL}) {
    const mortise::Tensor in = host_.tensor<float>({2}, {1, 2}), out = host_.tensor<float>({2}, {0, 0});
    EXPECT_EQ(run(kind, in.get(), out.get()), MORTISE_OK);
    EXPECT_EQ(host_.values<float>(out), (std::vector<float>{1, 2}));
  }
  const mortise::Tensor in = host_.tensor<float>({1, 2}, {1, 2}), out = host_.tensor<float>({2}, {0, 0});
  EXPECT_EQ(run(MORTISE_REDUCE_SCATTER, in.get(), out.get()), MORTISE_OK);
  EXPECT_EQ(as, (std::vector<int64_t>{2})) << "as `out` has it";
}

TEST_F(LocalComm, KeepsWhatItShares) {
  mortise_str text{};
  EXPECT_EQ(comm_.share(plugin_.self(), MORTISE_STR("plan"), MORTISE_STR("abc")), MORTISE_OK);
  EXPECT_EQ(comm_.fetch(plugin_.self(), MORTISE_STR("plan"), &text), MORTISE_OK);
  EXPECT_EQ(mortise::view(text), "abc");
  EXPECT_EQ(comm_.fetch(plugin_.self(), MORTISE_STR("other"), &text), MORTISE_E_NOT_FOUND);
}

TEST_F(LocalComm, IsAGroupByItself) {
  mortise_rank_group* group = nullptr;
  const int32_t ranks[] = {0, 1};
  EXPECT_EQ(comm_.group(plugin_.self(), ranks, 1, &group), MORTISE_OK);
  EXPECT_NE(group, nullptr);
  EXPECT_EQ(comm_.group(plugin_.self(), ranks, 2, &group), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host_.error(), "there is no rank but 0 to make a group of");
}

TEST_F(LocalComm, RefusesWhatDoesNotExist) {
  int64_t counts[] = {1};
  EXPECT_EQ(comm_.host_all_reduce(plugin_.self(), counts, 1, 17), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host_.error(), "no reduction has the number 17");
  const mortise::Tensor t = host_.tensor<float>({1}, {1});
  EXPECT_EQ(run(MORTISE_ALL_REDUCE, nullptr, t.get(), 17), MORTISE_E_ARGUMENT);
  EXPECT_EQ(run(9, nullptr, nullptr), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host_.error(), "no collective has the number 9");
}
}  // namespace
