// mortise.device/0, over what every device of LibTorch has: the core links none.
#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "core/abi/error.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

void device_stream(mortise_host* h, void** native) {
  if (!native) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  const c10::Device device = host_of(h).device();
  *native = device.is_cpu() ? nullptr : c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
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

}  // namespace

const mortise_device_api kDeviceApi = {sizeof(mortise_device_api), at_edge<device_stream>, at_edge<device_memory>,
                                       at_edge<device_trim>, at_edge<device_fast_products>};

}  // namespace mortise
