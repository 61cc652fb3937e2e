// WordPiece: of each word the longest token that it begins with, then that of the rest.
#include "model.hpp"
#include "trie.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

class WordPiece : public Model {
 public:
  explicit WordPiece(const Fields& f) : unknown_(f.text("unk_token")), most_(f.number("max_input_chars_per_word")) {
    f.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    vocabulary = Vocabulary(f);
    const uint32_t* id = vocabulary.find(unknown_);
    if (!id) f.refuse("unk_token", " is not in the vocabulary");
    unknown_id_ = *id;
    for (const auto& [token, own] : vocabulary.all()) trie_.add(token, own);
    inside_ = trie_.walk(Trie::kRoot, f.text("continuing_subword_prefix"));
  }
  std::string unknown() const override { return unknown_; }

  void encode(std::string_view piece, Work&, Ids& ids) const override {
    const size_t first = ids.size();
    bool good = unicode::length(piece) <= most_;
    for (size_t at = 0; good && at < piece.size();) {
      size_t end = at;
      uint32_t best = 0, node = at == 0 ? Trie::kRoot : inside_;
      for (size_t i = at; node != Trie::kNone && i < piece.size();) {
        node = trie_.step(node, piece[i++]);
        if (node != Trie::kNone && trie_.value(node) != Trie::kNone) best = trie_.value(node), end = i;
      }
      good = end > at;
      ids.push_back(best);
      at = end;
    }
    if (good) return;
    ids.resize(first);
    ids.push_back(unknown_id_);
  }

 private:
  const std::string unknown_;
  const size_t most_;
  uint32_t unknown_id_ = 0, inside_ = Trie::kNone;
  Trie trie_;
};

}  // namespace

std::unique_ptr<const Model> make_word_piece(const Fields& f) { return std::make_unique<WordPiece>(f); }

}  // namespace mortise::huggingface
