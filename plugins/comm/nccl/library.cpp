#include "library.hpp"

#include <dlfcn.h>

#include "mortise/cpp/core.hpp"

namespace mortise::comm {
namespace {

template <class Function>
bool take(void* library, const char* name, Function*& function) {
  function = library ? reinterpret_cast<Function*>(dlsym(library, name)) : nullptr;
  return function;
}

}  // namespace

Library::Library() {
  void* const nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  const bool has_all = take(nccl, "ncclGetUniqueId", get_unique_id) && take(nccl, "ncclCommInitRank", init_rank) &&
                       take(nccl, "ncclCommAbort", abort) && take(nccl, "ncclCommGetAsyncError", async_error) &&
                       take(nccl, "ncclGetErrorString", error_string) && take(nccl, "ncclGetLastError", last_error) &&
                       take(nccl, "ncclAllReduce", all_reduce) && take(nccl, "ncclReduceScatter", reduce_scatter) &&
                       take(nccl, "ncclAllGather", all_gather) && take(nccl, "ncclBroadcast", broadcast) &&
                       take(nccl, "ncclGroupStart", group_start) && take(nccl, "ncclGroupEnd", group_end) &&
                       take(nccl, "ncclSend", send) && take(nccl, "ncclRecv", receive) &&
                       take(nccl, "ncclReduce", reduce);
  if (!has_all)
    throw Error(MORTISE_E_UNSUPPORTED, "open: LibTorch has loaded no libnccl.so.2",
                "a LibTorch for CUDA with NCCL: make setup CUDA=1; or --use device.cpu");
}

std::string Library::text(Result result, Communicator* communicator) const {
  const std::string more = last_error(communicator);
  return error_string(result) + (more.empty() ? "" : ": " + more);
}

std::string name_of_gpu(int index) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*get)(int*, int) = nullptr;
  int (*uuid_of)(unsigned char*, int) = nullptr;
  int device = 0;
  std::array<unsigned char, 16> uuid{};
  if (!take(driver, "cuDeviceGet", get) || !take(driver, "cuDeviceGetUuid_v2", uuid_of) || get(&device, index) != 0 ||
      uuid_of(uuid.data(), device) != 0)
    return "";
  std::string text = "GPU";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += "-";
    for (const int half : {uuid[i] >> 4, uuid[i] & 15}) text += "0123456789abcdef"[half];
  }
  return text;
}

}  // namespace mortise::comm
