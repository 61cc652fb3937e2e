// One micro-batch from the data: the plugin's rows of its samples, cut, padded and counted. Pure in its number.
#pragma once
#include <atomic>
#include <mutex>
#include <string_view>

#include "core/declare/samples.hpp"
#include "core/host/batch.hpp"

namespace mortise {

struct FeedOptions {
  int64_t sequence_length = 0, pad_to_multiple = 8;
  bool truncate = true;
  bool one_thread = false;  // the plugin wants to be called by one thread at a time
};

class Feed {
 public:
  // Throws PluginError: the plugin's fields are none.
  Feed(Provided<mortise_data> data, Samples& samples, const FeedOptions& options)
      : data_(data), fields_(fields_of(data)), samples_(samples), options_(options) {}
  // Micro-batch `index` since the beginning. Owned by the caller. [data]
  mortise_batch* load(std::string_view split, int64_t index);

 private:
  void check_lengths(const mortise_rows& rows);
  void check_all_are_put(const mortise_rows& rows, const Samples::Micro& micro);

  Provided<mortise_data> data_;
  std::vector<Field> fields_;
  Samples& samples_;
  FeedOptions options_;
  std::mutex mutex_;
};

}  // namespace mortise
