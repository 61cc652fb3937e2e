#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

class LocalComm : public ::testing::Test {
 protected:
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_comm& comm_ = plugin_.object<mortise_comm>("comm");
};

TEST_F(LocalComm, IsRankZeroOfOne) {
  int32_t rank = -1, size = -1;
  EXPECT_EQ(comm_.world(plugin_.self(), &rank, &size), MORTISE_OK);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(size, 1);
}

TEST_F(LocalComm, LeavesWhatItReducesAsItIs) {
  const mortise::Tensor t = host_.tensor<float>({3}, {1, 2, 3});
  mortise_tensor* list[] = {t.get()};
  int64_t counts[] = {5, -6};
  for (const uint32_t op : {MORTISE_SUM, MORTISE_MAX, MORTISE_MIN}) {
    EXPECT_EQ(comm_.all_reduce(plugin_.self(), list, 1, op), MORTISE_OK);
    EXPECT_EQ(comm_.host_all_reduce(plugin_.self(), counts, 2, op), MORTISE_OK);
  }
  EXPECT_EQ(host_.values<float>(t), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(counts[0], 5);
  EXPECT_EQ(counts[1], -6);
}

TEST_F(LocalComm, TakesEmptyLists) {
  EXPECT_EQ(comm_.all_reduce(plugin_.self(), nullptr, 0, MORTISE_SUM), MORTISE_OK);
  EXPECT_EQ(comm_.host_all_reduce(plugin_.self(), nullptr, 0, MORTISE_SUM), MORTISE_OK);
}

TEST_F(LocalComm, RefusesAReductionThatDoesNotExist) {
  int64_t counts[] = {1};
  EXPECT_EQ(comm_.host_all_reduce(plugin_.self(), counts, 1, 17), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host_.error(), "no reduction has the number 17");
}
}  // namespace
