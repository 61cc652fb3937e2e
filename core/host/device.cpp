// The run's device, and mortise.device/0, over what every device of LibTorch has: the core links none.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

struct mortise_stream {
  c10::Stream stream;
};
struct mortise_mark {
  c10::Event event;
};

namespace mortise {
namespace {

// On a GPU LibTorch's operators take the form that repeats its bits, if they have one, and throw if they have none
// (read_exception in host.cpp). The CPU's repeat without being told.
void repeat_bits() {
  // cuBLAS reads it when it is first used. Whoever chose the smaller of the two that repeat keeps it.
  constexpr const char* kWorkspace = "CUBLAS_WORKSPACE_CONFIG";
  const char* const chosen = std::getenv(kWorkspace);
  if (!chosen || std::string_view(chosen) != ":16:8") setenv(kWorkspace, ":4096:8", /*overwrite=*/1);
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicCuDNN(true);
  context.setDeterministicFillUninitializedMemory(false);  // which costs time; nobody reads what nobody wrote
}

c10::Stream stream_now(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

// An error that a GPU does not get over comes with every call from then on: of a query too, which waits for nothing.
std::string wrong_with(c10::Device device) {
  const mortise_status status = guarded([&] {
    const c10::impl::VirtualGuardImpl gpu(device.type());
    gpu.queryStream(gpu.getStream(device));
  });
  const std::string said = status == MORTISE_OK ? "" : take_error(status);
  return status == MORTISE_E_OPERATOR ? said : "";  // and not of a lack of memory
}

void device_stream(mortise_host* h, void** native) {
  if (!native) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  const c10::Device device = host_of(h).device();
  *native = device.is_cpu() ? nullptr : stream_now(device).native_handle();
}

void device_memory(mortise_host* h, int64_t* used, int64_t* peak, int64_t* total) {
  if (!used || !peak || !total) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  const c10::Device device = host_of(h).device();
  if (device.is_cpu()) throw PluginError(MORTISE_E_UNSUPPORTED, "nobody counts the bytes of tensors on the CPU");
  c10::DeviceAllocator* const allocator = at::getDeviceAllocator(device.type());
  const auto allocated = allocator->getDeviceStats(device.index()).allocated_bytes[0];  // of all kinds together
  *used = allocated.current;
  *peak = allocated.peak;
  *total = static_cast<int64_t>(allocator->getMemoryInfo(device.index()).second);
}

void device_trim(mortise_host* h, int64_t* freed) {
  if (!freed) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  *freed = 0;
  const c10::Device device = host_of(h).device();
  if (device.is_cpu()) return;
  c10::DeviceAllocator* const allocator = at::getDeviceAllocator(device.type());
  const auto reserved = [&] { return allocator->getDeviceStats(device.index()).reserved_bytes[0].current; };
  const int64_t before = reserved();
  allocator->emptyCache();
  *freed = before - reserved();
}

void device_fast_products(mortise_host* h, int on) {
  if (host_of(h).device().is_cpu())
    throw PluginError(MORTISE_E_UNSUPPORTED, "the CPU has no faster products of another precision");
  at::globalContext().setAllowTF32CuBLAS(on != 0);
}

// LibTorch's streams are never destroyed, and neither are their names here.
void device_new_stream(mortise_host* h, mortise_stream** out) {
  *out = nullptr;
  const c10::Device device = host_of(h).device();
  if (device.is_cpu()) return;
  static std::mutex mutex;
  static std::deque<mortise_stream> streams;
  const std::lock_guard lock(mutex);
  *out = &streams.emplace_back(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
}

void device_with_stream(mortise_host*, mortise_stream* stream, mortise_status (*body)(void*) noexcept, void* user) {
  if (!body) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for what is to be called");
  std::optional<c10::StreamGuard> guard;
  if (stream) guard.emplace(stream->stream);
  clear_error();
  if (const mortise_status status = body(user); status != MORTISE_OK) throw as_thrown(status);
}

void device_mark(mortise_host* h, mortise_mark** out) {
  *out = nullptr;
  const c10::Device device = host_of(h).device();
  if (device.is_cpu()) return;
  auto mark = std::make_unique<mortise_mark>(c10::Event(device.type()));
  mark->event.record(stream_now(device));
  *out = mark.release();
}

void device_wait_for(mortise_host* h, const mortise_mark* mark) {
  if (mark) mark->event.block(stream_now(host_of(h).device()));
}

void device_record_stream(mortise_host*, mortise_tensor* tensor) {
  const at::Tensor t = share(tensor);
  if (!t.defined()) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the tensor");
  if (t.is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(t.device().type());
  device.recordDataPtrOnStream(t.storage().data_ptr(), device.getStream(t.device()));
}

}  // namespace

void Host::device_opened(uint32_t kind, int32_t index, bool repeats) {
  const bool is_gpu = kind == MORTISE_CUDA;
  device_ = is_gpu ? c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index)) : c10::Device(c10::kCPU);
  lost_device = [device = device_] { return device.is_cpu() ? "" : wrong_with(device); };
  if (is_gpu && repeats) repeat_bits();
}

const mortise_device_api kDeviceApi = {
    sizeof(mortise_device_api),    at_edge<device_stream>,
    at_edge<device_memory>,        at_edge<device_trim>,
    at_edge<device_fast_products>, at_edge<device_new_stream>,
    at_edge<device_with_stream>,   at_edge<device_mark>,
    at_edge<device_wait_for>,      [](mortise_host*, mortise_mark* mark) noexcept { delete mark; },
    at_edge<device_record_stream>};

}  // namespace mortise
