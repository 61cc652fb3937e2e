// Batches: named tensors and counts, reference-counted; and the rows that a data plugin fills on its way to one.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/abi/fields.hpp"
#include "mortise/data.h"

struct mortise_batch {
  std::atomic<int> references{1};
  std::vector<std::pair<std::string, at::Tensor>> fields;
  std::vector<std::pair<std::string, int64_t>> counts;  // by unit: "tokens", "samples"
  int64_t count(std::string_view unit) const;
};

// rows[row][field] are the bytes of one sample; `is_put`, row by row, which of them a plugin has put: bytes, not bits,
// since a plugin may put from several threads.
struct mortise_rows {
  mortise_rows(const std::vector<mortise::Field>& of, size_t n)
      : fields(of), rows(n, std::vector<std::vector<std::byte>>(of.size())), is_put(n * of.size(), 0) {}
  // Of a sequence: its positions. 1, or 0 of a sample that has nothing of a field, of any other.
  int64_t length(size_t row, size_t field) const {
    return static_cast<int64_t>(rows[row][field].size() / fields[field].bytes);
  }
  const std::vector<mortise::Field>& fields;
  std::vector<std::vector<std::vector<std::byte>>> rows;
  std::vector<uint8_t> is_put;
};

namespace mortise {

void retain(mortise_batch* b);
void release(mortise_batch* b);

// Pads every sequence to its longest row, rounded up to a multiple of `pad_to_multiple`, cuts at `longest` if it is not
// 0, and counts. Owned by the caller.
mortise_batch* collate(const mortise_rows& rows, int64_t longest, int64_t pad_to_multiple);

extern const mortise_batch_api kBatchApi;

}  // namespace mortise
