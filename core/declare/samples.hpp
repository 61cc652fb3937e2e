// Which samples make up which micro-batch: the split that is held out, and the order of an epoch. Numbers only; nothing
// is read here but how many samples there are.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/abi/provided.hpp"
#include "mortise/data.h"

namespace mortise {

struct SampleOptions {
  int64_t micro_batch_size = 8, eval_micro_batch_size = 8;
  int64_t eval_samples = 0;  // at most so many are evaluated on, drawn by the seed; 0: all
  bool shuffle = true, drop_last = false;
  bool train = true;  // else the samples to train on are asked for only if a share of them is what is evaluated on
  std::string split = "validation";  // what is evaluated on, as the plugin calls it; "": nothing is
  double validation = 0;             // share held out when the data has no validation split of its own
  uint64_t seed = 0;
  int rank = 0, ranks = 1;
};

class Samples {
 public:
  // Throws PluginError: too few samples for one micro-batch, or more than can be numbered.
  Samples(const Provided<mortise_data>& data, const SampleOptions& options);

  // `split` is "train" or "validation" from here on, whatever the plugin calls them.
  int64_t count(std::string_view split) const;
  // Micro-batches that one rank handles in an epoch of a split; the last may be short.
  int64_t micros_per_epoch(std::string_view split) const;
  const std::string& about(std::string_view name) const { return split(name).about; }
  // What the samples are, by the plugin; "": it does not say.
  const std::string& fingerprint(std::string_view name) const { return split(name).fingerprint; }

  // From here on the provider says which samples are trained on, and when. `per_step`: how many make a step. Throws
  // PluginError.
  void order_by(const Provided<mortise_data>& data, const Provided<mortise_order>& order, int64_t per_step);

  // The samples of one micro-batch of this rank: of what all ranks take together, in one order, its part; of a rest
  // that is short, as many as the others or one less. `index` counts since the beginning: epoch index /
  // micros_per_epoch.
  struct Micro {
    std::string_view split;  // as the plugin calls it
    std::shared_ptr<const std::vector<int64_t>> order;
    std::shared_ptr<const std::vector<int64_t>> before;  // how often each was trained on; NULL: once an epoch
    int64_t first = 0, epoch = 0;
    uint32_t n = 0;
    bool is_fill = false;  // nothing is left for this rank: a sample that counts nothing, so that it makes every call
    const int64_t* numbers() const { return order->data() + first; }
    std::vector<int64_t> epochs() const;  // of each sample, how often it was trained on
  };
  Micro micro(std::string_view split, int64_t index);  // [any-thread]

 private:
  using Numbers = std::shared_ptr<const std::vector<int64_t>>;
  struct Split {
    std::string name;  // as the plugin calls it
    Numbers numbers;
    int64_t micro_batch_size = 1;
    bool shuffle = false, drop_last = false;
    std::string about, fingerprint;
  };
  const Split& split(std::string_view name) const { return name == "train" ? train_ : validation_; }
  // One epoch in its order.
  struct Ordered {
    int64_t epoch = -1;
    Numbers numbers, before;
  };
  Ordered order(const Split& s, int64_t epoch);
  Ordered provided_order(const Split& s, int64_t epoch) const;

  SampleOptions options_;
  Split train_, validation_;
  Provided<mortise_order> order_;  // empty: each sample once an epoch
  int64_t per_epoch_ = 0;          // samples that it gives
  std::mutex mutex_;
  // Where one epoch ends and the next begins, loaders ask for both in turn.
  std::array<Ordered, 2> ordered_;
};

}  // namespace mortise
