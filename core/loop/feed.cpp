#include "core/loop/feed.hpp"

#include <algorithm>

#include "core/abi/error.hpp"

namespace mortise {

void Feed::check_lengths(const mortise_rows& rows) {
  if (options_.sequence_length <= 0 || options_.truncate) return;
  for (size_t row = 0; row < rows.rows.size(); ++row)
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int64_t length = rows.length(row, field);
      if (!fields_[field].is_sequence || length <= options_.sequence_length) continue;
      throw PluginError(MORTISE_E_DATA, "a sample is " + std::to_string(length) + " long, data.sequence_length is " +
                                            std::to_string(options_.sequence_length) + " and data.truncate is off");
    }
}

// What nobody put would be trained on as padding.
void Feed::check_all_are_put(const mortise_rows& rows, const Samples::Micro& micro) {
  const auto left = static_cast<size_t>(std::ranges::find(rows.is_put, 0) - rows.is_put.begin());
  if (left == rows.is_put.size()) return;
  const std::string& id = data_.by->id();
  throw PluginError(MORTISE_E_PLUGIN,
                    id + " put no `" + fields_[left % fields_.size()].name + "` of sample " +
                        std::to_string(micro.numbers()[left / fields_.size()]) + " of `" + std::string(micro.split) +
                        "`",
                    id);
}

mortise_batch* Feed::load(std::string_view split, int64_t index) {
  const Samples::Micro micro = samples_.micro(split, index);
  mortise_rows rows(fields_, micro.n);
  const std::vector<int64_t> epochs = micro.epochs();
  {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (options_.one_thread) lock.lock();
    data_.call(&mortise_data::get, "get", str(micro.split), micro.numbers(), epochs.data(), micro.n, &rows);
  }
  check_all_are_put(rows, micro);
  check_lengths(rows);
  const auto is_empty = [](const auto& row) { return std::ranges::all_of(row, &std::vector<std::byte>::empty); };
  if (micro.n > 0 && std::ranges::all_of(rows.rows, is_empty))
    throw PluginError(MORTISE_E_PLUGIN,
                      data_.by->id() + " gave " + std::to_string(micro.n) + " samples of `" + std::string(micro.split) +
                          "` without an element",
                      data_.by->id());
  return collate(rows, options_.sequence_length, options_.pad_to_multiple);
}

}  // namespace mortise
