#include "core/host/batch.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"

int64_t mortise_batch::count(std::string_view unit) const {
  for (const auto& [name, n] : counts)
    if (name == unit) return n;
  return 0;
}

namespace mortise {
namespace {

void batch_put(mortise_host*, mortise_rows* rows, uint32_t row, uint32_t field, const int64_t* elements,
               size_t length) {
  if (!rows || (length > 0 && !elements)) throw PluginError(MORTISE_E_ARGUMENT, "put of no elements, or into no rows");
  if (length > size_t{INT32_MAX})
    throw PluginError(MORTISE_E_ARGUMENT, "put of " + std::to_string(length) + " elements");
  if (row >= rows->rows.size() || field >= rows->rows[row].size())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "row " + std::to_string(row) + ", field " + std::to_string(field) + " was not asked for");
  const size_t width = rows->rows[row].size();
  rows->rows[row][field].assign(elements, elements + length);
  rows->is_put.resize(rows->rows.size() * width);
  rows->is_put[row * width + field] = true;
}

void must_be_there(const mortise_batch* batch) {
  if (!batch) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the batch");
}

void batch_get(mortise_host*, const mortise_batch* batch, mortise_str field, mortise_tensor** out) {
  must_be_there(batch);
  for (const auto& [name, tensor] : batch->fields)
    if (name == view(field)) {
      *out = borrow(tensor);
      return;
    }
  throw PluginError(MORTISE_E_NOT_FOUND, "the batch has no field `" + std::string(view(field)) + "`");
}

void batch_name(mortise_host*, const mortise_batch* batch, uint32_t index, mortise_str* out) {
  must_be_there(batch);
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  if (index >= batch->fields.size())
    throw PluginError(MORTISE_E_NOT_FOUND, "the batch has " + std::to_string(batch->fields.size()) + " fields");
  *out = str(batch->fields[index].first);
}

void batch_create(mortise_host*, const mortise_batch* like, mortise_batch** out) {
  auto b = std::make_unique<mortise_batch>();
  if (like) b->counts = like->counts;
  *out = b.release();
}

void batch_set(mortise_host*, mortise_batch* batch, mortise_str field, mortise_tensor* tensor) {
  must_be_there(batch);
  for (auto& [name, old] : batch->fields)
    if (name == view(field)) {
      old = share(tensor);
      return;
    }
  batch->fields.emplace_back(view(field), share(tensor));
}

void batch_to_device(mortise_host* h, mortise_tensor* tensor, mortise_tensor** out) {
  *out = give(share(tensor).to(host_of(h).device()));
}

// Of all fields with as many elements a row the same, so they fit one another. One element a sample, a label, is no
// sequence; a batch of sequences of one token loses nothing.
int64_t padded_length(const mortise_rows& rows, uint32_t field, int64_t longest, int64_t multiple) {
  int64_t length = 0;
  for (const auto& row : rows.rows) length = std::max(length, static_cast<int64_t>(row[field].size()));
  if (longest > 0) length = std::min(length, longest);
  if (length > 1) length = (length + multiple - 1) / multiple * multiple;
  return longest > 0 ? std::min(length, longest) : length;
}

}  // namespace

void retain(mortise_batch* b) {
  if (b) b->references.fetch_add(1, std::memory_order_relaxed);
}
void release(mortise_batch* b) {
  if (b && b->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete b;
}

mortise_batch* collate(const mortise_rows& rows, const mortise_field* fields, uint32_t n_fields, int64_t longest,
                       int64_t pad_to_multiple) {
  auto batch = std::make_unique<mortise_batch>();
  const auto n = static_cast<int64_t>(rows.rows.size());
  batch->counts.emplace_back("samples", n);
  batch->counts.emplace_back("one", 1);
  for (uint32_t f = 0; f < n_fields; ++f) {
    const int64_t length = padded_length(rows, f, longest, pad_to_multiple);
    at::Tensor t = at::empty({n, length}, at::kLong);
    int64_t counted = 0;
    auto* to = t.mutable_data_ptr<int64_t>();
    for (const auto& row : rows.rows) {
      const auto used = std::min<int64_t>(static_cast<int64_t>(row[f].size()), length);
      std::copy_n(row[f].data(), used, to);
      std::fill(to + used, to + length, fields[f].fill);
      counted += used - std::count(to, to + used, fields[f].fill);
      to += length;
    }
    if (fields[f].unit.len) batch->counts.emplace_back(view(fields[f].unit), counted);
    batch->fields.emplace_back(view(fields[f].name), std::move(t));
  }
  return batch.release();
}

const mortise_batch_api kBatchApi = {sizeof(mortise_batch_api),
                                     at_edge<batch_put>,
                                     at_edge<batch_get>,
                                     at_edge<batch_name>,
                                     at_edge<batch_create>,
                                     at_edge<batch_set>,
                                     [](mortise_host*, mortise_batch* b) noexcept { retain(b); },
                                     [](mortise_host*, mortise_batch* b) noexcept { release(b); },
                                     at_edge<batch_to_device>};

}  // namespace mortise
