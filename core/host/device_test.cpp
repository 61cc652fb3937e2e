// mortise.device/0 on the host's processor, where nothing is queued; on a GPU: tests/gpu.
#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"

namespace mortise::testing {
namespace {

struct Device : ::testing::Test {
  TestHost host;
  mortise_host* h = &host.window("test.device");
  static std::string refused(mortise_status status, mortise_status as) {
    EXPECT_EQ(status, as);
    return take_error(status);
  }
};

TEST_F(Device, OfTheHostsProcessorHasNoQueueAndNothingToGiveBack) {
  int there = 0;
  void* stream = &there;
  int64_t freed = 7;
  EXPECT_EQ(kDeviceApi.stream(h, &stream), MORTISE_OK);
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(kDeviceApi.trim(h, &freed), MORTISE_OK);
  EXPECT_EQ(freed, 0);
}

TEST_F(Device, OfTheHostsProcessorCountsNoBytesAndHasNoFasterProducts) {
  int64_t n = 0;
  EXPECT_EQ(refused(kDeviceApi.memory(h, &n, &n, &n), MORTISE_E_UNSUPPORTED),
            "nobody counts the bytes of tensors on the CPU");
  EXPECT_EQ(refused(kDeviceApi.fast_products(h, 1), MORTISE_E_UNSUPPORTED),
            "the CPU has no faster products of another precision");
}

// Who uses queues and marks works there too, and nothing waits for anything.
TEST_F(Device, OfTheHostsProcessorHasNoQueuesBesideAndEveryMarkIsPassed) {
  mortise_stream* stream = reinterpret_cast<mortise_stream*>(&host);
  mortise_mark* mark = reinterpret_cast<mortise_mark*>(&host);
  EXPECT_EQ(kDeviceApi.new_stream(h, &stream), MORTISE_OK);
  EXPECT_EQ(kDeviceApi.mark(h, &mark), MORTISE_OK);
  EXPECT_EQ(stream, nullptr);
  EXPECT_EQ(mark, nullptr);
  EXPECT_EQ(kDeviceApi.wait_for(h, mark), MORTISE_OK);
  kDeviceApi.drop_mark(h, mark);
  const at::Tensor t = at::zeros({2});
  EXPECT_EQ(kDeviceApi.record_stream(h, borrow(t)), MORTISE_OK);
  bool was_called = false;
  const auto body = [](void* was) noexcept -> mortise_status { return *static_cast<bool*>(was) = true, MORTISE_OK; };
  EXPECT_EQ(kDeviceApi.with_stream(h, stream, body, &was_called), MORTISE_OK);
  EXPECT_TRUE(was_called);
}

TEST_F(Device, GivesWhatFailsOnAStreamAndRefusesNothingToCall) {
  const auto fails = [](void* window) noexcept -> mortise_status {
    const auto own = static_cast<mortise_host*>(window);
    return own->fail(own, MORTISE_E_DATA, MORTISE_STR("the data are gone"));
  };
  EXPECT_EQ(refused(kDeviceApi.with_stream(h, nullptr, fails, h), MORTISE_E_DATA), "the data are gone");
  EXPECT_EQ(refused(kDeviceApi.with_stream(h, nullptr, nullptr, h), MORTISE_E_ARGUMENT),
            "called with NULL for what is to be called");
  EXPECT_EQ(refused(kDeviceApi.record_stream(h, nullptr), MORTISE_E_ARGUMENT), "called with NULL for the tensor");
}

TEST_F(Device, RefusesNowhereToPutAResult) {
  int64_t n = 0;
  const std::string said = "called with NULL where a result is to be put";
  EXPECT_EQ(refused(kDeviceApi.stream(h, nullptr), MORTISE_E_ARGUMENT), said);
  EXPECT_EQ(refused(kDeviceApi.memory(h, &n, nullptr, &n), MORTISE_E_ARGUMENT), said);
  EXPECT_EQ(refused(kDeviceApi.trim(h, nullptr), MORTISE_E_ARGUMENT), said);
  EXPECT_EQ(refused(kDeviceApi.new_stream(h, nullptr), MORTISE_E_ARGUMENT), said);
  EXPECT_EQ(refused(kDeviceApi.mark(h, nullptr), MORTISE_E_ARGUMENT), said);
}

// LibTorch's paragraph of advice for Python becomes one line.
TEST_F(Device, ThatIsOutOfMemorySaysHowMuchWasWantedAndHowMuchIsFree) {
  const mortise_status status = guarded([] {
    throw c10::OutOfMemoryError(
        {__func__, __FILE__, __LINE__},
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which 208.06 MiB "
        "is free. Process 1 has 78.90 GiB memory in use. Of the allocated memory 77 GiB is allocated by PyTorch.");
  });
  EXPECT_EQ(status, MORTISE_E_MEMORY);
  EXPECT_EQ(take_error(status), "not enough memory on the GPU: 512.00 MiB was wanted, of 79.19 GiB 208.06 MiB is free");
}

// What it asks of LibTorch, which needs no GPU to be asked.
TEST_F(Device, ThatIsAGpuTakesWhatRepeatsWhereTheRunAsksForIt) {
  const PointTable points;
  at::Context& context = at::globalContext();
  const auto open = [&](uint32_t kind, bool repeats) {
    unsetenv("CUBLAS_WORKSPACE_CONFIG");
    Host(points, 1).device_opened(kind, 0, repeats);
    const char* workspace = getenv("CUBLAS_WORKSPACE_CONFIG");
    return std::string(context.deterministicAlgorithms() ? "repeats " : "") + (workspace ? workspace : "");
  };
  EXPECT_EQ(open(MORTISE_CUDA, false), "");
  EXPECT_EQ(open(MORTISE_CPU, true), "");
  EXPECT_EQ(open(MORTISE_CUDA, true), "repeats :4096:8");
  EXPECT_TRUE(context.deterministicCuDNN());
  EXPECT_FALSE(context.deterministicFillUninitializedMemory());
  for (const auto& [was, is] : {std::pair(":16:8", ":16:8"), std::pair(":0:0", ":4096:8")}) {
    setenv("CUBLAS_WORKSPACE_CONFIG", was, 1);
    Host(points, 1).device_opened(MORTISE_CUDA, 0, true);
    EXPECT_STREQ(getenv("CUBLAS_WORKSPACE_CONFIG"), is);
  }
  const mortise_status status = guarded([] { at::Context::alertNotDeterministic("sum_kernel"); });
  EXPECT_EQ(status, MORTISE_E_OPERATOR);
  EXPECT_EQ(take_error(status),
            "`sum_kernel` of LibTorch does not give the same bits in every run\n"
            "  fix: leave out the plugin that calls it, or deterministic = false");
  context.setDeterministicAlgorithms(false, false);
  context.setDeterministicCuDNN(false);
  context.setDeterministicFillUninitializedMemory(true);
  unsetenv("CUBLAS_WORKSPACE_CONFIG");
}

// What a GPU's stream says when it is asked.
struct FakeGpu final : c10::impl::NoOpDeviceGuardImpl<c10::kCUDA> {
  static inline std::string says;
  bool queryStream(const c10::Stream&) const override {
    if (!says.empty()) throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710, says);
    return false;  // at work
  }
};

TEST_F(Device, ThatDoesNotGetOverAnErrorIsLostWhoeverHeardOfIt) {
  const c10::impl::DeviceGuardImplInterface* const none =
      c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].load();
  FakeGpu gpu;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(&gpu);
  const PointTable points;
  Host(points, 1).device_opened(MORTISE_CUDA, 0, false);
  EXPECT_EQ(lost_device(), "");
  FakeGpu::says = "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported";
  EXPECT_EQ(lost_device(), "the GPU says: CUDA error: device-side assert triggered");
  FakeGpu::says = "CUDA error: out of memory\n";
  EXPECT_EQ(lost_device(), "") << "a lack of memory passes";
  FakeGpu::says.clear();
  Host(points, 1).device_opened(MORTISE_CPU, 0, false);
  EXPECT_EQ(lost_device(), "");
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::kCUDA)].store(none);
}

// A native plugin, a program, or a kernel of ours passes on what CUDA and LibTorch say to it.
TEST_F(Device, IsHeardInALineWhoeverPassesItOn) {
  const auto heard = [](const std::string& text, mortise_status as, mortise_status status = MORTISE_E_PLUGIN) {
    return refused(set_error(status, text), as);
  };
  const std::string advice = "\nCUDA kernel errors might be asynchronously reported at some other API call";
  EXPECT_EQ(heard("CUDA error: unspecified launch failure" + advice, MORTISE_E_PLUGIN),
            "the GPU says: CUDA error: unspecified launch failure");
  EXPECT_EQ(heard("a kernel was not launched: CUDA error: an illegal memory access was encountered", MORTISE_E_OPERATOR,
                  MORTISE_E_OPERATOR),
            "the GPU says: CUDA error: an illegal memory access was encountered");
  EXPECT_EQ(heard("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\nYou can try to repro this", MORTISE_E_PLUGIN),
            "the GPU says: CUDNN_STATUS_EXECUTION_FAILED");
  EXPECT_EQ(heard("the GPU says: CUDA error: x\nin plugin test.a, step", MORTISE_E_OPERATOR, MORTISE_E_OPERATOR),
            "the GPU says: CUDA error: x\nin plugin test.a, step")
      << "who was around it stays";
  EXPECT_EQ(heard("mat1 and mat2\nException raised from meta at a.cpp:1 (most recent call first):\nframe #0: f",
                  MORTISE_E_PLUGIN),
            "mat1 and mat2");
  EXPECT_EQ(heard("the server says HTTP_STATUS_404", MORTISE_E_PLUGIN), "the server says HTTP_STATUS_404");
  EXPECT_EQ(heard("CUDA error: of a table's cell", MORTISE_E_DATA, MORTISE_E_DATA), "CUDA error: of a table's cell");
}

TEST_F(Device, OfWhoseMemoryALibraryOfCudaIsOutIsToldAsOneOfMemory) {
  const auto heard = [](const std::string& text) {
    const mortise_status thrown = guarded([&] { throw c10::Error({__func__, __FILE__, __LINE__}, text); });
    const std::string said = refused(thrown, MORTISE_E_MEMORY);
    EXPECT_EQ(refused(set_error(MORTISE_E_PLUGIN, text), MORTISE_E_MEMORY), said) << "of a native plugin";
    return said;
  };
  EXPECT_EQ(heard("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com"),
            "not enough memory on the GPU, or to be pinned on the host");
  EXPECT_EQ(heard("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            "not enough memory on the GPU: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
  EXPECT_EQ(heard("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
            "not enough memory on the GPU: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`");
  EXPECT_EQ(heard("CUDA driver error: out of memory"), "not enough memory on the GPU, or to be pinned on the host");
  EXPECT_EQ(heard("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
            "not enough memory on the GPU: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED");
  EXPECT_EQ(heard("NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'"), "not enough memory");
  EXPECT_EQ(heard("a kernel was not launched: CUDA error: out of memory"),
            "not enough memory on the GPU, or to be pinned on the host");
}

}  // namespace
}  // namespace mortise::testing
