// From tokens to the pieces of text that are emitted.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mortise/cpp/core.hpp"
#include "mortise/objects.h"

namespace sample {

std::vector<int64_t> encode(std::string_view text);
std::string decode(std::span<const int64_t> ids);

// Lets whole characters through; what can never become one is shown as U+FFFD, and half of one at the very end is
// dropped.
class Pieces {
 public:
  explicit Pieces(const mortise_sample_request& request) : request_(request) {}
  // False: whoever listens has enough.
  bool emit(std::string_view bytes);

 private:
  const mortise_sample_request& request_;
  std::string pending_;
};

// What new tokens add to the text. A token by itself may say less than behind others (the space before a word), and
// only with others what its bytes mean: U+FFFD until then.
class Tail {
 public:
  explicit Tail(size_t prompt) : begin_(prompt - std::min(prompt, kMostOfACharacter)), shown_(prompt) {}
  std::string take(std::span<const int64_t> ids);

 private:
  static constexpr size_t kMostOfACharacter = 4;  // tokens
  size_t begin_, shown_;
};

// Ends a text before the first of some texts, wherever tokens begin and end: what may still become one of them is held
// back.
class Stop {
 public:
  explicit Stop(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  // What may be shown of all that came so far. `is_reached`: the text ends here.
  std::string pass(std::string_view bytes);
  bool is_reached() const { return reached_; }
  // What was held back, once nothing more will come.
  std::string rest() { return reached_ ? std::string() : std::exchange(held_, {}); }

 private:
  std::vector<std::string> texts_;
  std::string held_;
  bool reached_ = false;
};

}  // namespace sample
