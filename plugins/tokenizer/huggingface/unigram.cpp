// Unigram: of all ways to cut a piece into tokens the one whose scores have the largest sum (Viterbi).
#include <algorithm>
#include <cmath>
#include <limits>

#include "model.hpp"
#include "trie.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kNowhere = ~size_t{0};

class Unigram : public Model {
 public:
  explicit Unigram(const Fields& f) : falls_back_(f.flag("byte_fallback", false)) {
    f.only({"type", "unk_id", "vocab", "byte_fallback"});
    double least = std::numeric_limits<double>::infinity();
    for (const Json& one : f.list("vocab")) {
      const std::string place = "[" + std::to_string(scores_.size()) + "]";
      if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number())
        f.refuse("vocab", place + " is not a token and its score");
      const std::string token = one[0];
      const double score = one[1];
      if (token.empty() || !std::isfinite(score)) f.refuse("vocab", place + " is empty or has no finite score");
      vocabulary.add(token, static_cast<uint32_t>(scores_.size()));
      trie_.add(token, static_cast<uint32_t>(scores_.size()));
      scores_.push_back(score);
      least = std::min(least, score);
    }
    if (scores_.empty()) f.refuse("vocab", " is empty");
    unknown_score_ = least - 10;  // the library's penalty
    if (f.has("unk_id")) {
      unknown_ = f.number("unk_id");
      if (unknown_ >= scores_.size()) f.refuse("unk_id", " is not in the vocabulary");
    }
  }
  std::string unknown() const override { return unknown_ == kNone ? "" : *vocabulary.token(unknown_); }

  void encode(std::string_view piece, Work& work, Ids& ids) const override {
    search(piece, work);
    const auto& best = work.best;
    auto& ends = work.ends;
    ends.clear();
    for (size_t end = piece.size(); end > 0; end = best[end].begin) ends.push_back(end);
    // In the order of the text; neighbours that are not known are one.
    size_t begin = 0;
    for (size_t i = ends.size(); i-- > 0;) {
      const bool known = best[ends[i]].id != unknown_;
      if (!known && i > 0 && best[ends[i - 1]].id == unknown_) continue;
      if (known) ids.push_back(best[ends[i]].id);
      else add_unknown(piece.substr(begin, ends[i] - begin), ids);
      begin = ends[i];
    }
  }

 private:
  // The best way to each place: its sum, the last token and where that begins.
  void search(std::string_view piece, Work& work) const {
    auto& best = work.best;
    best.assign(piece.size() + 1, {0, kNowhere, kNone});
    for (size_t at = 0; at < piece.size();) {
      size_t behind = at;
      unicode::next(piece, behind);
      const double here = best[at].score;
      bool has_one = false;
      uint32_t node = Trie::kRoot;
      for (size_t end = at; end < piece.size();) {
        node = trie_.step(node, piece[end++]);
        if (node == Trie::kNone) break;
        const uint32_t id = trie_.value(node);
        if (id == Trie::kNone) continue;
        take(best[end], here + scores_[id], at, id);
        has_one = has_one || end == behind;
      }
      if (!has_one) {
        if (unknown_ == kNone)
          throw Fault("`" + std::string(piece.substr(at, behind - at)) +
                      "` is not in the vocabulary, and model.unk_id is not set");
        take(best[behind], here + unknown_score_, at, unknown_);
      }
      at = behind;
    }
  }
  static void take(Work::Best& to, double score, size_t begin, uint32_t id) {
    if (to.begin == kNowhere || score > to.score) to = {score, begin, id};
  }

  void add_unknown(std::string_view text, Ids& ids) const {
    if (const uint32_t* id = vocabulary.find(text)) return ids.push_back(*id);
    const size_t first = ids.size();
    for (size_t i = 0; falls_back_ && i < text.size(); ++i) {
      const uint32_t* id = vocabulary.find(byte_token(static_cast<unsigned char>(text[i])));
      if (!id) break;
      ids.push_back(*id);
    }
    if (ids.size() - first == text.size()) return;
    ids.resize(first);
    ids.push_back(unknown_);
  }

  const bool falls_back_;
  uint32_t unknown_ = kNone;
  double unknown_score_ = 0;
  std::vector<double> scores_;
  Trie trie_;
};

}  // namespace

std::unique_ptr<const Model> make_unigram(const Fields& f) { return std::make_unique<Unigram>(f); }

}  // namespace mortise::huggingface
