// Texts by their beginnings, a byte at a time.
#pragma once
#include <string_view>

#include "fault.hpp"
#include "flat_map.hpp"

namespace mortise::huggingface {

class Trie {
 public:
  static constexpr uint32_t kRoot = 0, kNone = ~uint32_t{0};

  void add(std::string_view text, uint32_t value) {
    uint32_t node = kRoot;
    for (const char c : text) {
      uint32_t& to = edges_[edge(node, c)];
      if (to == 0) {
        if (values_.size() >= kMostNodes) throw Fault("the vocabulary is too large: its tokens have too many letters");
        to = static_cast<uint32_t>(values_.size());
        values_.push_back(kNone);
      }
      node = to;
    }
    values_[node] = value;
  }
  // kNone: nothing goes on like this.
  uint32_t step(uint32_t node, char c) const {
    const uint32_t* to = edges_.find(edge(node, c));
    return to ? *to : kNone;
  }
  uint32_t walk(uint32_t node, std::string_view text) const {
    for (size_t i = 0; i < text.size() && node != kNone; ++i) node = step(node, text[i]);
    return node;
  }
  // Of the text that ends here; kNone: none does.
  uint32_t value(uint32_t node) const { return values_[node]; }

 private:
  static constexpr size_t kMostNodes = size_t{1} << 24;
  static uint64_t edge(uint32_t node, char c) {
    return (static_cast<uint64_t>(node) << 8) | static_cast<unsigned char>(c);
  }
  FlatMap<uint32_t> edges_;
  std::vector<uint32_t> values_ = {kNone};
};

}  // namespace mortise::huggingface
