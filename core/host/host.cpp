#include "core/host/host.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/host/batch.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

constexpr std::string_view kGpuSays = "the GPU says: ";

// What stands behind `first` and before `last`; "" if they are not both there.
std::string between(const std::string& text, std::string_view first, std::string_view last) {
  const size_t begin = text.find(first), end = begin == text.npos ? begin : text.find(last, begin + first.size());
  return end == text.npos ? "" : text.substr(begin + first.size(), end - begin - first.size());
}

bool has(const std::string& text, std::string_view words) { return text.find(words) != text.npos; }

// The rest of the line that `words` begin; "" if none does.
std::string line_from(const std::string& text, std::string_view words) {
  const size_t at = text.find(words);
  return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
}

// From the status of one of CUDA's libraries to the end of its line: "CUBLAS_STATUS_ALLOC_FAILED when calling …".
std::string status_in(const std::string& text) {
  const size_t at = text.find("_STATUS_"), before = text.find_last_of(" \n", at);
  const size_t begin = at == text.npos || before == text.npos ? 0 : before + 1;
  const bool is_one = at != text.npos && text.compare(begin, 2, "CU") == 0;
  return is_one ? text.substr(begin, text.find('\n', at) - begin) : "";
}

// CUDA's libraries do not all say that it was memory: the handle of one is not made where a device that is well has
// none left. What a lost device says instead is found out by asking it.
bool is_of_memory(const std::string& text) {
  constexpr std::string_view kSays[] = {"CUDA out of memory. ", "DefaultCPUAllocator: can't allocate",
                                        "CUDA error: out of memory", "CUDA driver error: out of memory",
                                        "'out of memory'"};
  constexpr std::string_view kStatuses[] = {"ALLOC_FAILED", "ALLOCATION_FAILED", "STATUS_NOT_INITIALIZED"};
  const std::string status = status_in(text);
  return std::ranges::any_of(kSays, [&](std::string_view words) { return has(text, words); }) ||
         std::ranges::any_of(kStatuses, [&](std::string_view words) { return has(status, words); });
}

// LibTorch's paragraph, as one line; the allocator of the CPU throws no class of its own.
std::string memory_text(const std::string& text) {
  // "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which 208.06 MiB is
  // free. …"
  if (const std::string wanted = between(text, "CUDA out of memory. Tried to allocate ", ". GPU"); !wanted.empty())
    return "not enough memory on the GPU: " + wanted + " was wanted, of " +
           between(text, "total capacity of ", " of which") + " " + between(text, " of which ", " is free") +
           " is free";
  if (has(text, "error: out of memory")) return "not enough memory on the GPU, or to be pinned on the host";
  if (const std::string said = status_in(text); !said.empty()) return "not enough memory on the GPU: " + said;
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

// What LibTorch, CUDA or a library of CUDA's says, in a line or two, and whether it is of memory. Read already it stays
// as it is.
void read_text(mortise_status* status, std::string* text) {
  if (*status != MORTISE_E_OPERATOR && *status != MORTISE_E_PLUGIN && *status != MORTISE_E_INTERNAL) return;
  if (text->starts_with(kGpuSays)) return;
  if (const size_t backtrace = text->find("\nException raised from "); backtrace != text->npos) text->resize(backtrace);
  if (is_of_memory(*text)) {
    *status = MORTISE_E_MEMORY;
    *text = memory_text(*text);
    return;
  }
  // "CUDA error: device-side assert triggered", and a page of advice
  for (const std::string& said :
       {line_from(*text, "CUDA error: "), line_from(*text, "CUDA driver error: "), status_in(*text)})
    if (!said.empty()) {
      *text = std::string(kGpuSays) + said;
      return;
    }
  const std::string unrepeatable = unrepeatable_text(*text);
  *text = unrepeatable.empty() ? without_hint(*text) : unrepeatable;
}

bool read_exception(const std::exception& e, mortise_status* status, std::string* text) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  if (!error) return false;
  const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr;
  *text = memory ? memory_text(error->what_without_backtrace()) : error->what_without_backtrace();
  *status = memory ? MORTISE_E_MEMORY : MORTISE_E_OPERATOR;
  return true;
}

}  // namespace

Host::Host(const PointTable& points, uint64_t seed, c10::Device device)
    : Edge(points, seed), device_(device), parameters_(*this) {
  set_exception_reader(read_exception);
  set_text_reader(read_text);
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
