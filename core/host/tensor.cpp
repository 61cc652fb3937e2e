// mortise.tensor/0
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

void info(mortise_host*, const mortise_tensor* h, mortise_tensor_info* out) {
  if (!h || !out) throw PluginError(MORTISE_E_ARGUMENT, "info of no tensor, or into NULL");
  const at::Tensor t = share(h);
  mortise_tensor_info info{};
  info.rank = static_cast<uint32_t>(t.dim());
  info.sizes = t.sizes().data();
  info.strides = t.strides().data();
  info.numel = t.numel();
  info.data = t.has_storage() ? t.unsafeGetTensorImpl()->mutable_data() : nullptr;
  info.dtype = dtype_of(t.scalar_type());
  info.device = t.device().is_cuda() ? MORTISE_CUDA : MORTISE_CPU;
  info.device_index = t.device().has_index() ? static_cast<uint32_t>(t.device().index()) : 0;
  info.flags = (t.is_contiguous() ? MORTISE_CONTIGUOUS : 0) | (t.requires_grad() ? MORTISE_REQUIRES_GRAD : 0);
  fill_struct(out, info);
}

void retain(mortise_host*, mortise_tensor* h) noexcept {
  if (h) c10::raw::intrusive_ptr::incref(reinterpret_cast<c10::TensorImpl*>(h));
}
void release(mortise_host*, mortise_tensor* h) noexcept {
  if (h) c10::raw::intrusive_ptr::decref(reinterpret_cast<c10::TensorImpl*>(h));
}

void empty(mortise_host* h, uint32_t dtype, const int64_t* sizes, uint32_t rank, int on_cpu, mortise_tensor** out) {
  const auto type = scalar_type(dtype);
  if (type == at::ScalarType::Undefined)
    throw PluginError(MORTISE_E_ARGUMENT, "there is no dtype " + std::to_string(dtype));
  constexpr uint32_t kMostDimensions = 64;
  if (rank > kMostDimensions || (rank > 0 && !sizes))
    throw PluginError(MORTISE_E_ARGUMENT, "empty of " + std::to_string(rank) + " dimensions" +
                                              (sizes ? "; there are at most 64" : " without their sizes"));
  for (uint32_t i = 0; i < rank; ++i)
    if (sizes[i] < 0)
      throw PluginError(MORTISE_E_ARGUMENT,
                        "empty of the size " + std::to_string(sizes[i]) + " in dimension " + std::to_string(i));
  const auto device = on_cpu ? c10::Device(c10::kCPU) : host_of(h).device();
  *out = give(at::empty(at::IntArrayRef(sizes, rank), at::TensorOptions().dtype(type).device(device)));
}

void written(mortise_host*, mortise_tensor* h) noexcept {
  if (h) reinterpret_cast<c10::TensorImpl*>(h)->bump_version();
}

void read(mortise_host*, const mortise_tensor* h, void* to, size_t bytes) {
  if (!h || !to) throw PluginError(MORTISE_E_ARGUMENT, "read of no tensor, or into NULL");
  const at::Tensor t = share(h).cpu().contiguous();
  if (bytes != t.nbytes())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "read of " + std::to_string(bytes) + " bytes from a tensor of " + std::to_string(t.nbytes()));
  std::memcpy(to, t.const_data_ptr(), bytes);
}

}  // namespace

const mortise_tensor_api kTensorApi = {
    sizeof(mortise_tensor_api), at_edge<info>, retain, release, at_edge<empty>, written, at_edge<read>};

}  // namespace mortise
