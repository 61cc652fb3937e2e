// Regular expressions as tokenizers are written with: sets of characters, repeated, one after another or one or
// another, and a look at the character ahead. They mean what they mean to Oniguruma, which Hugging Face's tokenizers
// uses; what is not known here is refused, never guessed.
#pragma once
#include <bitset>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mortise::huggingface {

// A set of characters.
struct Set {
  uint32_t categories = 0;  // bits of unicode::Category
  bool white = false, not_white = false, negated = false;
  std::vector<std::pair<char32_t, char32_t>> ranges;
  std::bitset<128> ascii;  // made of the others by `finish`

  void add(char32_t c) { ranges.push_back({c, c}); }
  void finish();
  bool has(char32_t c) const { return c < 128 ? ascii[c] : evaluate(c); }

 private:
  bool evaluate(char32_t c) const;
};

class Pattern {
 public:
  // Throws Fault for what it does not know, and for what can match an empty text.
  static Pattern regex(std::string_view source);
  static Pattern literal(std::string_view text);

  // Every match in order; none overlap. Throws Fault where that takes too long.
  void each(std::string_view text, const std::function<void(size_t begin, size_t end)>& body) const;

 private:
  friend class PatternReader;
  enum class Kind : uint8_t { kSet, kOneOf, kAhead, kNotAhead, kEnd };
  enum class Takes : uint8_t { kMost, kFewest, kAllAtOnce };
  struct Node {
    Kind kind = Kind::kEnd;
    Takes takes = Takes::kMost;
    uint32_t set = 0, next = 0;
    size_t min = 1, max = 1;
    std::vector<uint32_t> starts;  // kOneOf
    size_t least = 0;              // characters from here to the end
    std::bitset<128> first;        // ASCII characters that what matches from here can begin with
  };
  struct Walk {
    std::string_view text;
    size_t steps;  // that are left
  };
  static constexpr size_t kNo = ~size_t{0};
  static constexpr uint32_t kDone = ~uint32_t{0};
  size_t match(uint32_t node, size_t at, Walk& walk) const;
  size_t match_set(const Node& x, size_t at, Walk& walk, uint32_t& next) const;
  size_t match_here(size_t at, Walk& walk) const;

  std::string literal_;
  std::vector<Set> sets_;
  std::vector<Node> nodes_;       // the first is the end
  std::vector<uint32_t> starts_;  // of the outermost alternatives
};

}  // namespace mortise::huggingface
