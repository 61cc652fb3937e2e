// Tokens that are found in the text before the model sees it: `added_tokens` of tokenizer.json.
#pragma once
#include <bitset>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model.hpp"
#include "normalizers.hpp"
#include "trie.hpp"

namespace mortise::huggingface {

struct AddedToken {
  uint32_t id = 0;
  std::string content, found_as;  // the latter as the normalizer makes it, if it does
  bool single_word = false, lstrip = false, rstrip = false, normalized = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(const Fields& file, const Vocabulary&, const Normalizer*);

  // Calls body(part, its place, the token or NULL) for each part of a text that is not empty. `normalized`: those that
  // are looked for in normalized text, else the others.
  using Body = std::function<void(std::string_view part, size_t begin, const AddedToken*)>;
  void cut(std::string_view text, bool normalized, const Body& body) const;

  const AddedToken* find(uint32_t id) const;
  const AddedToken* find(std::string_view content) const;
  bool any_normalized() const { return normalized_.any; }
  uint32_t end() const { return end_; }  // one more than the largest id, 0 without any

 private:
  // Those of one kind, by their texts.
  struct Finder {
    Trie trie;
    std::bitset<256> first;
    bool any = false;
    // The longest that begins at `at`, and where it ends.
    const AddedToken* at(std::string_view text, size_t at, size_t& end, const std::vector<AddedToken>& all) const;
  };
  void add(const Fields& f, const Vocabulary&, const Normalizer*, uint32_t& next_id);

  std::vector<AddedToken> all_;
  std::unordered_map<uint32_t, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  Finder raw_, normalized_;
  uint32_t end_ = 0;
};

}  // namespace mortise::huggingface
