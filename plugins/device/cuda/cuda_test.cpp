// What device.cuda says where there is no GPU. With one: tests/gpu.
#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

struct CudaDevice : ::testing::Test {
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_device& device_ = plugin_.object<mortise_device>("device");
};

TEST_F(CudaDevice, IsAGpu) { EXPECT_EQ(device_.kind, static_cast<uint32_t>(MORTISE_CUDA)); }

// This test has no LibTorch beside it.
TEST_F(CudaDevice, SaysWhatIsMissingAndWhatToWriteInstead) {
  if (getenv("LD_LIBRARY_PATH")) GTEST_SKIP() << "LibTorch may be found by LD_LIBRARY_PATH";
  EXPECT_EQ(device_.open(plugin_.self(), 0), MORTISE_E_UNSUPPORTED);
  EXPECT_NE(host_.error().find("device.cuda cannot run: the CUDA half of LibTorch does not load: libtorch_cuda.so"),
            std::string::npos)
      << host_.error();
  EXPECT_NE(host_.error().find("--use device.cpu"), std::string::npos);
}

TEST_F(CudaDevice, TakesItsMemoryFromTheHost) {
  host_.memory = {5, 7, 11};
  int64_t used = 0, peak = 0, total = 0;
  ASSERT_EQ(device_.memory(plugin_.self(), &used, &peak, &total), MORTISE_OK);
  EXPECT_EQ(used, 5);
  EXPECT_EQ(peak, 7);
  EXPECT_EQ(total, 11);
}
}  // namespace
