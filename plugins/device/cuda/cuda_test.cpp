// What device.cuda says where there is no GPU. With one: tests/gpu.
#include <gtest/gtest.h>

#include "chips.hpp"
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

TEST_F(CudaDevice, KnowsOfNoProductsBeforeItIsOpen) {
  double flop_per_s = 1;
  ASSERT_EQ(device_.products(plugin_.self(), str("bf16"), &flop_per_s), MORTISE_OK);
  EXPECT_EQ(flop_per_s, 0);
}

// By the names that drivers give.
TEST(Chips, AreFoundByTheLongestName) {
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H100 80GB HBM3, sm_90", "bf16"), 989.4e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H100 80GB HBM3, sm_90", "tf32"), 494.7e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H100 80GB HBM3, sm_90", "fp32"), 66.9e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H100 PCIe, sm_90", "fp16"), 756e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H200 NVL, sm_90", "fp16"), 835.5e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA L40S, sm_89", "fp16"), 362e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA L4, sm_89", "fp16"), 121e12);
  EXPECT_DOUBLE_EQ(products_of("NVIDIA A100-SXM4-80GB, sm_80", "fp16"), 312e12);
  for (const char* other : {"NVIDIA Something, sm_99", "NVIDIA RTX A1000, sm_86", "NVIDIA L40, sm_89",
                            "NVIDIA GB200, sm_100", "NVIDIA GeForce RTX 4090 Laptop GPU, sm_89"})
    EXPECT_EQ(products_of(other, "fp16"), 0) << other;
  EXPECT_DOUBLE_EQ(products_of("NVIDIA H100 80GB HBM3, sm_90", "fp8"), 0) << "not known";
}
}  // namespace
