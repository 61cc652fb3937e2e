#include "core/host/batch.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstring>

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

void batch_put(mortise_host*, mortise_rows* rows, uint32_t row, uint32_t field, const void* elements, size_t bytes) {
  if (!rows || (bytes > 0 && !elements)) throw PluginError(MORTISE_E_ARGUMENT, "put of no elements, or into no rows");
  if (row >= rows->rows.size() || field >= rows->fields.size())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "row " + std::to_string(row) + ", field " + std::to_string(field) + " was not asked for");
  const Field& f = rows->fields[field];
  const bool is_whole = f.is_sequence ? bytes % f.bytes == 0 : bytes == 0 || bytes == f.bytes;
  if (bytes > size_t{INT32_MAX} || !is_whole)
    throw PluginError(MORTISE_E_ARGUMENT, "put of " + std::to_string(bytes) + " bytes as `" + f.name + "`, which has " +
                                              std::to_string(f.bytes) +
                                              (f.is_sequence ? " a position, and 2 GiB at most" : " a sample"));
  const auto* from = static_cast<const std::byte*>(elements);
  rows->rows[row][field].assign(from, from + bytes);
  rows->is_put[row * rows->fields.size() + field] = 1;
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

// Through memory that the device reads by itself, so that nobody waits; LibTorch keeps it until the copy is over.
void batch_to_device(mortise_host* h, mortise_tensor* tensor, mortise_tensor** out) {
  at::Tensor t = share(tensor);
  const c10::Device device = host_of(h).device();
  if (t.is_cpu() && !device.is_cpu()) t = at::empty_like(t, at::TensorOptions().pinned_memory(true)).copy_(t);
  *out = give(t.to(device, /*non_blocking=*/true));
}

void batch_count(mortise_host*, const mortise_batch* batch, mortise_str unit, int64_t* out) {
  must_be_there(batch);
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  *out = batch->count(view(unit));
}

void batch_set_count(mortise_host*, mortise_batch* batch, mortise_str unit, int64_t n) {
  must_be_there(batch);
  constexpr int64_t kMost = int64_t{1} << 40;  // sums over a whole run are counted, and read back
  if (n < 0 || n > kMost)
    throw PluginError(MORTISE_E_ARGUMENT, "a batch has " + std::to_string(n) + " of `" + std::string(view(unit)) +
                                              "`; 0 to " + std::to_string(kMost) + " can be counted");
  for (auto& [name, count] : batch->counts)
    if (name == view(unit)) {
      count = n;
      return;
    }
  batch->counts.emplace_back(view(unit), n);
}

// Of all sequences with as many positions a row the same, so they fit one another.
int64_t padded_length(const mortise_rows& rows, size_t field, int64_t longest, int64_t multiple) {
  int64_t length = 0;
  for (size_t row = 0; row < rows.rows.size(); ++row) length = std::max(length, rows.length(row, field));
  if (longest > 0) length = std::min(length, longest);
  length = (length + multiple - 1) / multiple * multiple;
  return longest > 0 ? std::min(length, longest) : length;
}

int64_t count_other_than_fill(const std::byte* at, size_t bytes, const Field& f) {
  int64_t n = 0;
  for (size_t i = 0; i < bytes; i += f.element) n += std::memcmp(at + i, f.fill.data(), f.element) != 0;
  return n;
}

// One field of all rows as a tensor, and how many of its elements are not `fill`.
std::pair<at::Tensor, int64_t> collate_field(const mortise_rows& rows, size_t f, int64_t longest, int64_t multiple) {
  const Field& field = rows.fields[f];
  std::vector<int64_t> sizes = {static_cast<int64_t>(rows.rows.size())};
  const int64_t length = field.is_sequence ? padded_length(rows, f, longest, multiple) : 1;
  if (field.is_sequence) sizes.push_back(length);
  sizes.insert(sizes.end(), field.sizes.begin(), field.sizes.end());
  at::Tensor t = at::empty(sizes, scalar_type(field.dtype));
  const size_t row_bytes = static_cast<size_t>(length) * field.bytes;
  auto* to = static_cast<std::byte*>(t.mutable_data_ptr());
  int64_t counted = 0;
  for (const auto& row : rows.rows) {
    const size_t used = std::min(row[f].size(), row_bytes);
    std::copy_n(row[f].data(), used, to);
    if (!field.unit.empty()) counted += count_other_than_fill(to, used, field);
    for (size_t i = used; i < row_bytes; i += field.element) std::copy_n(field.fill.data(), field.element, to + i);
    to += row_bytes;
  }
  return {std::move(t), counted};
}

}  // namespace

void retain(mortise_batch* b) {
  if (b) b->references.fetch_add(1, std::memory_order_relaxed);
}
void release(mortise_batch* b) {
  if (b && b->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete b;
}

mortise_batch* collate(const mortise_rows& rows, int64_t longest, int64_t pad_to_multiple) {
  auto batch = std::make_unique<mortise_batch>();
  batch->counts.emplace_back("samples", static_cast<int64_t>(rows.rows.size()));
  batch->counts.emplace_back("one", 1);
  for (size_t f = 0; f < rows.fields.size(); ++f) {
    auto [tensor, counted] = collate_field(rows, f, longest, pad_to_multiple);
    if (!rows.fields[f].unit.empty()) batch->counts.emplace_back(rows.fields[f].unit, counted);
    batch->fields.emplace_back(rows.fields[f].name, std::move(tensor));
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
                                     at_edge<batch_to_device>,
                                     at_edge<batch_count>,
                                     at_edge<batch_set_count>};

}  // namespace mortise
