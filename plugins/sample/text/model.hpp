// What the model thinks comes next, with a cache where that is right.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache.hpp"

namespace sample {

class Model {
 public:
  explicit Model(bool cached) : cached_(cached) {}
  Cache& cache() { return cache_; }

  // A text begins, or has ended: nothing is kept.
  void forget() {
    cache_.clear();
    is_compared_ = false;
  }
  // One number for each token that the tokenizer knows, behind the last `window` of `ids`. Between two calls of one
  // text, one token was added.
  std::vector<float> next_logits(std::span<const int64_t> ids, size_t window);

 private:
  std::vector<float> first(std::span<const int64_t> ids);
  std::vector<float> behind_kept(std::span<const int64_t> ids);
  std::vector<float> compared(std::vector<float> alone, std::span<const int64_t> ids);
  void give_up(const std::string& why);

  Cache cache_;
  bool cached_, is_compared_ = false;
};

}  // namespace sample
