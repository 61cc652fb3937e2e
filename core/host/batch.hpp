// Batches: named tensors and counts, reference-counted; and the rows that a data plugin fills on its way to one.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mortise/data.h"

struct mortise_batch {
  std::atomic<int> references{1};
  std::vector<std::pair<std::string, at::Tensor>> fields;
  std::vector<std::pair<std::string, int64_t>> counts;  // by unit: "tokens", "samples"
  int64_t count(std::string_view unit) const;
};

// rows[row][field] are the elements of one sample; `is_put`, row by row, which of them a plugin has put.
struct mortise_rows {
  std::vector<std::vector<std::vector<int64_t>>> rows;
  std::vector<bool> is_put;
};

namespace mortise {

void retain(mortise_batch* b);
void release(mortise_batch* b);

// Pads every field to its longest row, rounded up to a multiple of `pad_to_multiple` if that has more than one element,
// cuts at `longest` if it is not 0, and counts.
// Owned by the caller.
mortise_batch* collate(const mortise_rows& rows, const mortise_field* fields, uint32_t n_fields, int64_t longest,
                       int64_t pad_to_multiple);

extern const mortise_batch_api kBatchApi;

}  // namespace mortise
