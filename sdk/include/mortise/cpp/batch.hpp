// Micro-batches as a wrapper of `load` sees them: sequences [B, T, …] on the host, padded behind.
#pragma once
#include <algorithm>

#include "mortise/cpp/core.hpp"
#include "mortise/dtype.h"

namespace mortise {

// The batch that the rest of `load` gives; the call has no result then.
inline Batch load_next(mortise_call* call, mortise_next* next) {
  check(api.call->next(api.host, next, call));
  const mortise_value loaded = std::exchange(call->results[0], none());
  if (loaded.tag != MORTISE_BATCH) throw Error(MORTISE_E_DATA, "no batch was loaded");
  return Batch::own(loaded.v.b);
}

// How many positions of each row are the sample's, at least one: to the last that `attention_mask` has, else to the
// last whose `positions` is not 0.
inline std::vector<int64_t> sample_lengths(const mortise_batch* batch) {
  Tensor by = field(batch, "attention_mask");
  if (!by) by = field(batch, "positions");
  if (!by)
    throw Error(MORTISE_E_DATA, "samples have neither `attention_mask` nor `positions`: nobody says where they end");
  const Info info(by);
  if (info.rank != 2) throw Error(MORTISE_E_DATA, "`attention_mask` or `positions` has not one number a position");
  const auto bytes = static_cast<int64_t>(mortise_dtype_of(info.dtype)->bytes);
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < info.size(0); ++row) {
    const auto begin = info.as<const char>() + row * info.size(1) * bytes, end = begin + info.size(1) * bytes;
    const auto last = std::find_if(std::reverse_iterator(end), std::reverse_iterator(begin), [](char c) { return c; });
    lengths.push_back(std::max<int64_t>((last.base() - begin + bytes - 1) / bytes, 1));
  }
  return lengths;
}

}  // namespace mortise
