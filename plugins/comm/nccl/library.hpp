// NCCL as LibTorch's CUDA half has loaded it: that version, whichever it is, and no header of NCCL or CUDA has to be
// here. Declared is what is called; its numbers are those of nccl.h, the same in all of NCCL 2.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "mortise/ranks.h"

namespace mortise::comm {

struct Communicator;  // ncclComm
struct UniqueId {     // ncclUniqueId: by value, as C passes it
  std::array<char, 128> bytes;
};
enum Result : int {
  kSuccess = 0,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7
};  // ncclResult_t
enum DataType : int { kUint8 = 1, kInt32 = 2, kInt64 = 4, kHalf = 6, kFloat = 7, kDouble = 8, kBfloat16 = 9 };
enum RedOp : int { kSum = 0, kMax = 2, kMin = 3 };

// Throws Error if LibTorch has loaded none.
class Library {
 public:
  Library();
  Result (*get_unique_id)(UniqueId*);
  Result (*init_rank)(Communicator**, int size, UniqueId, int rank);
  Result (*abort)(Communicator*);
  Result (*async_error)(Communicator*, Result*);
  const char* (*error_string)(Result);
  const char* (*last_error)(Communicator*);
  Result (*all_reduce)(const void*, void*, size_t, DataType, RedOp, Communicator*, void* stream);
  Result (*reduce_scatter)(const void*, void*, size_t of_one, DataType, RedOp, Communicator*, void* stream);
  Result (*all_gather)(const void*, void*, size_t of_one, DataType, Communicator*, void* stream);
  Result (*reduce)(const void*, void*, size_t, DataType, RedOp, int root, Communicator*, void* stream);
  Result (*broadcast)(const void*, void*, size_t, DataType, int root, Communicator*, void* stream);
  Result (*group_start)();  // what is called until group_end is one call
  Result (*group_end)();
  Result (*send)(const void*, size_t, DataType, int to, Communicator*, void* stream);
  Result (*receive)(void*, size_t, DataType, int from, Communicator*, void* stream);
  // "unhandled system error: Error while creating shared memory segment"
  std::string text(Result, Communicator*) const;
};

// The name of GPU `index`, another for every one in the world: "GPU-1f0c…". "" if the driver does not say.
std::string name_of_gpu(int index);

}  // namespace mortise::comm
