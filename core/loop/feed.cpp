#include "core/loop/feed.hpp"

#include <algorithm>

#include "core/abi/error.hpp"

namespace mortise {

void Feed::check_lengths(const mortise_rows& rows) {
  if (options_.sequence_length <= 0 || options_.truncate) return;
  for (const auto& row : rows.rows)
    for (const auto& field : row) {
      if (static_cast<int64_t>(field.size()) <= options_.sequence_length) continue;
      throw PluginError(MORTISE_E_DATA, "a sample is " + std::to_string(field.size()) +
                                            " long, data.sequence_length is " +
                                            std::to_string(options_.sequence_length) + " and data.truncate is off");
    }
}

// What nobody put would be trained on as padding.
void Feed::check_all_are_put(const mortise_rows& rows, const Samples::Micro& micro) {
  const size_t fields = data_.object->n_fields;
  const auto left = static_cast<size_t>(std::ranges::find(rows.is_put, 0) - rows.is_put.begin());
  if (left == rows.is_put.size()) return;
  const std::string& id = data_.by->id();
  throw PluginError(MORTISE_E_PLUGIN,
                    id + " put no `" + std::string(view(data_.object->fields[left % fields].name)) + "` of sample " +
                        std::to_string(micro.numbers()[left / fields]) + " of `" + std::string(micro.split) + "`",
                    id);
}

mortise_batch* Feed::load(std::string_view split, int64_t index) {
  const Samples::Micro micro = samples_.micro(split, index);
  mortise_rows rows;
  rows.rows.assign(micro.n, std::vector<std::vector<int64_t>>(data_.object->n_fields));
  rows.is_put.assign(size_t{micro.n} * data_.object->n_fields, 0);
  {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (options_.one_thread) lock.lock();
    data_.call(&mortise_data::get, "get", str(micro.split), micro.numbers(), micro.n, &rows);
  }
  check_all_are_put(rows, micro);
  check_lengths(rows);
  const auto is_empty = [](const auto& row) { return std::ranges::all_of(row, &std::vector<int64_t>::empty); };
  if (micro.n > 0 && std::ranges::all_of(rows.rows, is_empty))
    throw PluginError(MORTISE_E_PLUGIN,
                      data_.by->id() + " gave " + std::to_string(micro.n) + " samples of `" + std::string(micro.split) +
                          "` without an element",
                      data_.by->id());
  return collate(rows, data_.object->fields, data_.object->n_fields, options_.sequence_length,
                 options_.pad_to_multiple);
}

}  // namespace mortise
