// Byte pair encoding: the pair of neighbours that was learned first is joined first.
#include <algorithm>
#include <utility>

#include "bytes.hpp"
#include "flat_map.hpp"
#include "model.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr std::string_view kMark = "\u2581";  // SentencePiece's space

struct Merge {
  uint32_t rank = 0, id = 0;
};
uint64_t pair_of(uint32_t a, uint32_t b) { return (static_cast<uint64_t>(a) << 32) | b; }

class Bpe : public Model {
 public:
  Bpe(const Fields& f, bool bytes) : bytes_(bytes) {
    f.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
            "byte_fallback", "ignore_merges", "vocab", "merges"});
    if (f.has("dropout") && f.real("dropout") != 0)
      f.refuse("dropout", " is not supported: ids would be another text's each time");
    vocabulary = Vocabulary(f);
    unknown_ = f.text("unk_token", "");
    prefix_ = f.text("continuing_subword_prefix", "");
    suffix_ = f.text("end_of_word_suffix", "");
    fuses_ = f.flag("fuse_unk", false);
    falls_back_ = f.flag("byte_fallback", false);
    ignores_merges_ = f.flag("ignore_merges", false);
    if (!unknown_.empty()) {
      const uint32_t* id = vocabulary.find(unknown_);
      if (!id) f.refuse("unk_token", " is not in the vocabulary");
      unknown_id_ = *id;
    }
    read_merges(f);
    find_ids_of_bytes();
  }
  std::string unknown() const override { return unknown_; }

  void encode(std::string_view piece, Work& work, Ids& ids) const override {
    if (ignores_merges_) {
      work.text.clear();
      if (bytes_) append_letters(work.text, piece);
      if (const uint32_t* whole = vocabulary.find(bytes_ ? work.text : piece)) return ids.push_back(*whole);
    }
    if (!may_cut_ || piece.size() <= Work::kLongest) return encode_word(piece, work, ids);
    // A text without spaces is one long piece: nothing is ever joined across these places, so each part is its own.
    for (size_t begin = 0; begin < piece.size();) {
      const size_t end = std::min(cut_after(piece, begin), piece.size());
      const std::string_view part = piece.substr(begin, end - begin);
      size_t n = 0;
      if (const uint32_t* known = part.size() <= Work::kLongest ? work.find(part, n) : nullptr) {
        ids.insert(ids.end(), known, known + n);
      } else {
        const size_t first = ids.size();
        encode_word(part, work, ids);
        if (part.size() <= Work::kLongest) work.remember(part, ids.data() + first, ids.size() - first);
      }
      begin = end;
    }
  }

 private:
  void read_merges(const Fields& f) {
    const Json& all = f.list("merges");
    std::vector<char32_t> ends;  // what stands before a joined space
    may_cut_ = !bytes_ && prefix_.empty() && suffix_.empty() && !ignores_merges_ && vocabulary.find(kMark) != nullptr;
    for (uint32_t rank = 0; rank < all.size(); ++rank) {
      const auto [a, b] = merge_of(f, all[rank], rank);
      const uint32_t* first = vocabulary.find(a);
      const uint32_t* second = vocabulary.find(b);
      const uint32_t* both = b.size() < prefix_.size() ? nullptr : vocabulary.find(a + b.substr(prefix_.size()));
      if (!first || !second || !both)
        f.refuse("merges",
                 "[" + std::to_string(rank) + "], `" + (a + " " + b).substr(0, 64) + "`, is not of the vocabulary");
      merges_[pair_of(*first, *second)] = {rank, *both};
      if (!b.starts_with(kMark)) continue;
      if (a == unknown_ || byte_of_token(a) >= 0) may_cut_ = false;
      else ends.push_back(unicode::last(a));
    }
    std::ranges::sort(ends);
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    joined_before_mark_ = std::move(ends);
  }

  static std::pair<std::string, std::string> merge_of(const Fields& f, const Json& one, uint32_t rank) {
    std::string a, b;
    if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
      a = one[0], b = one[1];
    } else if (one.is_string()) {
      const std::string text = one;
      const size_t space = text.find(' ');
      if (space != text.npos && text.find(' ', space + 1) == text.npos)
        a = text.substr(0, space), b = text.substr(space + 1);
    }
    if (a.empty() || b.empty()) f.refuse("merges", "[" + std::to_string(rank) + "] is not two tokens");
    return {a, b};
  }

  void find_ids_of_bytes() {
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string letter;
      unicode::append(letter, kLetterOfByte[byte]);
      const uint32_t* id = vocabulary.find(letter);
      letters_[byte] = id ? *id : kNone;
      const uint32_t* token = vocabulary.find(byte_token(static_cast<unsigned char>(byte)));
      byte_tokens_[byte] = token ? *token : kNone;
    }
  }

  // Where the part that begins at `begin` ends: at the next space that nothing before it can be joined with.
  size_t cut_after(std::string_view text, size_t begin) const {
    for (size_t at = begin; (at = text.find(kMark, at + 1)) != text.npos;)
      if (!std::ranges::binary_search(joined_before_mark_, unicode::last(text.substr(0, at)))) return at;
    return text.npos;
  }

  void encode_word(std::string_view word, Work& work, Ids& ids) const {
    auto& symbols = work.symbols;
    symbols.clear();
    if (bytes_ && prefix_.empty() && suffix_.empty() && unknown_.empty() && !falls_back_) {
      for (const char byte : word)
        if (const uint32_t id = letters_[static_cast<unsigned char>(byte)]; id != kNone) add(symbols, id);
    } else if (bytes_) {
      std::string letters;
      append_letters(letters, word);
      add_characters(letters, work);
    } else {
      add_characters(word, work);
    }
    if (!symbols.empty()) symbols.back().next = -1;
    join(work);
    for (const Work::Symbol& s : symbols)
      if (!s.gone) ids.push_back(s.id);
  }

  static void add(std::vector<Work::Symbol>& symbols, uint32_t id) {
    const auto at = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1, false});
  }

  void add_characters(std::string_view word, Work& work) const {
    bool pending = false;  // a character that is not known, whose neighbours may be neither
    std::string decorated;
    for (size_t at = 0; at < word.size();) {
      const size_t begin = at;
      unicode::next(word, at);
      std::string_view c = word.substr(begin, at - begin);
      if (!prefix_.empty() || !suffix_.empty()) {
        decorated = (begin > 0 ? prefix_ : "") + std::string(c) + (at == word.size() ? suffix_ : "");
        c = decorated;
      }
      if (const uint32_t* id = vocabulary.find(c)) {
        if (std::exchange(pending, false)) add(work.symbols, unknown_id_);
        add(work.symbols, *id);
        continue;
      }
      if (falls_back_ && std::ranges::all_of(c, [&](char b) { return byte_token_id(b) != kNone; })) {
        for (const char b : c) add(work.symbols, byte_token_id(b));
        continue;
      }
      if (unknown_.empty()) continue;  // as the library does: it has no id at all
      if (pending && !fuses_) add(work.symbols, unknown_id_);
      pending = true;
    }
    if (pending) add(work.symbols, unknown_id_);
  }
  uint32_t byte_token_id(char b) const { return byte_tokens_[static_cast<unsigned char>(b)]; }

  void join(Work& work) const {
    auto& symbols = work.symbols;
    auto& heap = work.heap;
    // The smallest rank comes first, and of one rank what stands first.
    const auto later = [](const Work::Candidate& a, const Work::Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
    };
    const auto merge = [&](size_t at) {
      const int32_t next = symbols[at].next;
      return next < 0 ? nullptr : merges_.find(pair_of(symbols[at].id, symbols[static_cast<size_t>(next)].id));
    };
    heap.clear();
    for (uint32_t i = 0; i + 1 < symbols.size(); ++i)
      if (const Merge* m = merge(i)) heap.push_back({m->rank, i, m->id});
    std::make_heap(heap.begin(), heap.end(), later);
    const auto push = [&](size_t at) {
      const Merge* m = merge(at);
      if (!m) return;
      heap.push_back({m->rank, static_cast<uint32_t>(at), m->id});
      std::push_heap(heap.begin(), heap.end(), later);
    };
    while (!heap.empty()) {
      const Work::Candidate top = heap.front();
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
      Work::Symbol& left = symbols[top.at];
      if (left.gone) continue;
      const Merge* still = merge(top.at);
      if (!still || still->id != top.id) continue;
      Work::Symbol& right = symbols[static_cast<size_t>(left.next)];
      left.id = top.id;
      left.next = right.next;
      right.gone = true;
      if (right.next >= 0) symbols[static_cast<size_t>(right.next)].before = static_cast<int32_t>(top.at);
      if (left.before >= 0) push(static_cast<size_t>(left.before));
      push(top.at);
    }
  }

  const bool bytes_;
  bool fuses_ = false, falls_back_ = false, ignores_merges_ = false, may_cut_ = false;
  std::string unknown_, prefix_, suffix_;
  uint32_t unknown_id_ = kNone;
  uint32_t letters_[256], byte_tokens_[256];
  FlatMap<Merge> merges_;
  std::vector<char32_t> joined_before_mark_;
};

}  // namespace

std::unique_ptr<const Model> make_bpe(const Fields& f, bool bytes) { return std::make_unique<Bpe>(f, bytes); }

}  // namespace mortise::huggingface
