// From a piece of text to ids: `model` of tokenizer.json.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "fields.hpp"

namespace mortise::huggingface {

using Ids = std::vector<uint32_t>;

// What encoding needs besides the model, one a thread: memory that is kept, and the pieces that were seen lately.
class Work {
 public:
  static constexpr size_t kLongest = 64;  // bytes of a piece that is worth remembering

  // The ids of a piece that was remembered; `n` is how many. NULL: none.
  const uint32_t* find(std::string_view piece, size_t& n) const;
  void remember(std::string_view piece, const uint32_t* ids, size_t n);

  struct Symbol {
    uint32_t id;
    int32_t before, next;  // -1: none
    bool gone;
  };
  struct Candidate {
    uint32_t rank, at, id;
  };
  struct Best {
    double score;
    size_t begin;
    uint32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::vector<Best> best;
  std::vector<size_t> ends;
  std::string text;

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t at = 0, length = 0, ids = 0, count = 0;
  };
  static constexpr size_t kSlots = size_t{1} << 16;
  std::vector<Slot> slots_ = std::vector<Slot>(kSlots);
  size_t used_ = 0;
  std::string keys_;
  Ids ids_;
};

// Throws Fault if two tokens have one id, or an id is too large.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(const Fields& model);  // its `vocab`, an object
  void add(std::string token, uint32_t id);
  const uint32_t* find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? nullptr : &found->second;
  }
  // NULL: no token has it.
  const std::string* token(uint32_t id) const { return id < tokens_.size() ? tokens_[id] : nullptr; }
  size_t count() const { return count_; }
  size_t end() const { return tokens_.size(); }  // one more than the largest id
  const auto& all() const { return ids_; }

  static constexpr uint32_t kMostIds = 1u << 24;
  static constexpr size_t kLongest = 4096;  // bytes of a token

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;
  size_t count_ = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  // Adds the ids of a piece that is not empty. Throws Fault for a character that has none.
  virtual void encode(std::string_view piece, Work&, Ids&) const = 0;
  virtual std::string unknown() const { return {}; }  // the token for what is not known

  Vocabulary vocabulary;
};

// `bytes`: pieces are bytes, their letters are the model's own affair.
std::unique_ptr<const Model> make_bpe(const Fields&, bool bytes);
std::unique_ptr<const Model> make_word_piece(const Fields&);
std::unique_ptr<const Model> make_unigram(const Fields&);

// A piece through what is remembered.
inline void encode_piece(const Model& model, std::string_view piece, Work& work, Ids& ids) {
  size_t n = 0;
  if (const uint32_t* known = piece.size() <= Work::kLongest ? work.find(piece, n) : nullptr) {
    ids.insert(ids.end(), known, known + n);
    return;
  }
  const size_t first = ids.size();
  model.encode(piece, work, ids);
  if (piece.size() <= Work::kLongest) work.remember(piece, ids.data() + first, ids.size() - first);
}

// "<0x0A>"
std::string byte_token(unsigned char byte);
// The byte that a token of this form stands for, -1: none.
int byte_of_token(std::string_view token);

}  // namespace mortise::huggingface
