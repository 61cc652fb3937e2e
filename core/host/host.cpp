#include "core/host/host.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/base/text.hpp"
#include "core/host/batch.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

// What stands behind `first` and before `last`; "" if they are not both there.
std::string between(const std::string& text, std::string_view first, std::string_view last) {
  const size_t begin = text.find(first), end = begin == text.npos ? begin : text.find(last, begin + first.size());
  return end == text.npos ? "" : text.substr(begin + first.size(), end - begin - first.size());
}

// LibTorch's paragraph, as one line; the allocator of the CPU throws no class of its own.
std::string memory_text(const std::string& text) {
  // "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which 208.06 MiB is
  // free. …"
  if (const std::string wanted = between(text, "CUDA out of memory. Tried to allocate ", ". GPU"); !wanted.empty())
    return "not enough memory on the GPU: " + wanted + " was wanted, of " +
           between(text, "total capacity of ", " of which") + " " + between(text, " of which ", " is free") +
           " is free";
  constexpr std::string_view kWanted = "you tried to allocate ";
  const size_t at = text.find(kWanted);
  const long long bytes = at == std::string::npos ? 0 : std::atoll(text.c_str() + at + kWanted.size());
  return bytes > 0 ? "not enough memory: a tensor of " + byte_size(bytes) + " was wanted" : "not enough memory";
}

// PyTorch's hint is a call of Python. What it is about here: a tensor that somebody lent was written.
std::string without_hint(std::string text) {
  if (const size_t hint = text.find(" Hint: "); hint != std::string::npos && text.find("anomaly", hint) != text.npos)
    text.replace(hint, text.npos,
                 "\n  fix: a plugin wrote into a tensor that it did not make: let it write into a copy");
  return text;
}

// Where LibTorch was told to repeat its bits (device.cpp): "cumsum_cuda_kernel does not have a deterministic
// implementation, but you set …", and what to call in Python. "" of any other text.
std::string unrepeatable_text(const std::string& text) {
  const size_t end = text.find(" does not have a deterministic implementation");
  if (end == text.npos) return "";
  return "`" + text.substr(0, end) + "` of LibTorch" + std::string(kNotRepeatable) +
         "\n  fix: leave out the plugin that calls it, or deterministic = false";
}

bool read_exception(const std::exception& e, mortise_status* status, std::string* text) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  if (!error) return false;
  *text = error->what_without_backtrace();
  const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&e) || text->find("DefaultCPUAllocator") != text->npos;
  *status = memory ? MORTISE_E_MEMORY : MORTISE_E_OPERATOR;
  // "CUDA error: device-side assert triggered", and a page of advice
  if (const size_t device = text->find("CUDA error: "); device != text->npos && !memory) {
    device_is_lost = true;
    *text = "the GPU says: " + text->substr(device, text->find('\n', device) - device);
    return true;
  }
  const std::string unrepeatable = unrepeatable_text(*text);
  *text = !unrepeatable.empty() ? unrepeatable : memory ? memory_text(*text) : without_hint(*text);
  return true;
}

}  // namespace

Host::Host(const PointTable& points, uint64_t seed, c10::Device device)
    : Edge(points, seed), device_(device), parameters_(*this) {
  set_exception_reader(read_exception);
  register_table("mortise.call/0", &kCallApi);
  register_table("mortise.tensor/0", &kTensorApi);
  register_table("mortise.ops/0", &kOpsApi);
  register_table("mortise.autograd/0", &kAutogradApi);
  register_table("mortise.params/0", &kParamsApi);
  register_table("mortise.grads/0", &kGradsApi);
  register_table("mortise.batch/0", &kBatchApi);
  register_table("mortise.parallel/0", &kParallelApi);
  register_table("mortise.random/0", &kRandomApi);
  register_table("mortise.device/0", &kDeviceApi);
  register_table("mortise.replicas/0", &kReplicasApi);
}

void Host::set_layer_chain(const mortise_layer& l, uint32_t mode, const mortise_next* chain) {
  if (layer_chains_.size() <= l.index) layer_chains_.resize(l.index + 1);
  layer_chains_[l.index][mode] = chain;
}

}  // namespace mortise
