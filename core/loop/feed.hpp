// Which samples make up which micro-batch: the split that is held out, the order of an epoch, and the `load` of one
// micro-batch, pure in its number.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/host/batch.hpp"
#include "core/loop/plugins.hpp"

namespace mortise {

struct FeedOptions {
  int64_t micro_batch_size = 8, eval_micro_batch_size = 8, sequence_length = 0, pad_to_multiple = 8, eval_samples = 0;
  bool shuffle = true, drop_last = false, truncate = true;
  bool train = true;  // else the samples to train on are asked for only if a share of them is what is evaluated on
  std::string split = "validation";  // what is evaluated on, as the plugin calls it; "": nothing is
  double validation = 0;             // share held out when the data has no validation split of its own
  uint64_t seed = 0;
  int rank = 0, ranks = 1;
};

class Feed {
 public:
  Feed(Provided<mortise_data> data, const FeedOptions& options);

  int64_t samples(std::string_view split) const;
  // Micro-batches that one rank handles in an epoch of a split; the last may be short.
  int64_t micros_per_epoch(std::string_view split) const;
  // Micro-batch `index` since the beginning: epoch index / micros_per_epoch. Owned by the caller. [data]
  mortise_batch* load(std::string_view split, int64_t index);
  const std::string& about(std::string_view name) const { return split(name).about; }
  int64_t cut() const { return cut_; }  // rows that were longer than sequence_length

 private:
  struct Split {
    std::string name;  // as the plugin calls it
    std::shared_ptr<const std::vector<int64_t>> numbers;
    int64_t micro_batch_size = 1;
    bool shuffle = false, drop_last = false;
    std::string about;
  };
  const Split& split(std::string_view name) const { return name == "train" ? train_ : validation_; }
  using Numbers = std::shared_ptr<const std::vector<int64_t>>;
  Numbers order(const Split& s, int64_t epoch);

  Provided<mortise_data> data_;
  FeedOptions options_;
  Split train_, validation_;
  bool one_thread_ = false;
  std::mutex mutex_;  // a data plugin that wants one thread
  std::mutex order_mutex_;
  int64_t ordered_epoch_ = -1;  // the order of this epoch is kept
  Numbers ordered_;
  std::atomic<int64_t> cut_{0};
};

}  // namespace mortise
