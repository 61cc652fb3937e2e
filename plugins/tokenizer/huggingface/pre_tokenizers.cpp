#include "pre_tokenizers.hpp"

#include <algorithm>

#include "bytes.hpp"
#include "matcher.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {
namespace {

// A part of a piece, and whether it is what is looked for.
struct Part {
  Span span;
  bool is_match;
};
enum class Behavior { kRemoved, kIsolated, kWithPrevious, kWithNext, kContiguous };

Behavior behavior_of(const Fields& f, const char* otherwise = nullptr) {
  const std::string name = otherwise ? f.text("behavior", otherwise) : f.text("behavior");
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kWithPrevious;
  if (name == "MergedWithNext") return Behavior::kWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  f.refuse("behavior", " is `" + name + "`, which is not supported");
}

// Each part with the one before it where `joins(part, is_match of the one before)`.
template <class Joins>
void add_joined(const std::vector<Part>& parts, std::vector<Span>& out, Joins&& joins) {
  bool before = false;
  const size_t first = out.size();
  for (const Part& p : parts) {
    if (out.size() > first && joins(p, before)) out.back().end = p.span.end;
    else out.push_back(p.span);
    before = p.is_match;
  }
}

void add(const std::vector<Part>& parts, Behavior behavior, std::vector<Span>& out) {
  switch (behavior) {
    case Behavior::kIsolated:
      for (const Part& p : parts) out.push_back(p.span);
      break;
    case Behavior::kRemoved:
      for (const Part& p : parts)
        if (!p.is_match) out.push_back(p.span);
      break;
    case Behavior::kContiguous:
      add_joined(parts, out, [](const Part& p, bool before) { return p.is_match == before; });
      break;
    case Behavior::kWithPrevious:
      add_joined(parts, out, [](const Part& p, bool before) { return p.is_match && !before; });
      break;
    case Behavior::kWithNext: {
      // From the end: a match goes to what stands behind it, unless that is a match too.
      const size_t first = out.size();
      bool behind = false;
      for (size_t i = parts.size(); i-- > 0;) {
        if (parts[i].is_match && !behind && out.size() > first) out.back().begin = parts[i].span.begin;
        else out.push_back(parts[i].span);
        behind = parts[i].is_match;
      }
      std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
    }
  }
}

// Cuts each piece into parts: find(text, match) calls match(begin, end) for what is looked for.
template <class Find>
void cut(Pieces& pieces, Behavior behavior, bool inverted, Find&& find) {
  std::vector<Span> spans;
  spans.reserve(pieces.spans.size() * 2);
  std::vector<Part> parts;
  for (const Span s : pieces.spans) {
    parts.clear();
    size_t done = 0;
    find(pieces.view(s), [&](size_t begin, size_t end) {
      if (begin > done) parts.push_back({{s.begin + done, s.begin + begin}, inverted});
      parts.push_back({{s.begin + begin, s.begin + end}, !inverted});
      done = end;
    });
    if (s.begin + done < s.end) parts.push_back({{s.begin + done, s.end}, inverted});
    add(parts, behavior, spans);
  }
  pieces.spans = std::move(spans);
}

struct Split : PreTokenizer {
  Split(Pattern p, Behavior b, bool i) : pattern(std::move(p)), behavior(b), inverted(i) {}
  void apply(Pieces& pieces) const override {
    cut(pieces, behavior, inverted, [&](std::string_view text, auto&& match) { pattern.each(text, match); });
  }
  const Pattern pattern;
  const Behavior behavior;
  const bool inverted;
};

// At every character that has the flag.
struct SplitAt : PreTokenizer {
  SplitAt(uint16_t f, Behavior b) : flag(f), behavior(b) {}
  void apply(Pieces& pieces) const override {
    cut(pieces, behavior, false, [&](std::string_view text, auto&& match) {
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        if (unicode::is(unicode::next(text, at), flag)) match(begin, at);
      }
    });
  }
  const uint16_t flag;
  const Behavior behavior;
};

// Runs of letters and runs of what is neither letter nor white: \w+|[^\w\s]+
struct Whitespace : PreTokenizer {
  void apply(Pieces& pieces) const override {
    std::vector<Span> spans;
    for (const Span s : pieces.spans) {
      uint16_t before = unicode::kWhite;
      for (size_t at = s.begin; at < s.end;) {
        const size_t begin = at;
        const uint16_t own = unicode::flags(unicode::next(pieces.text, at)) & (unicode::kWhite | unicode::kWord);
        if (own == before && own != unicode::kWhite) spans.back().end = at;
        else if (own != unicode::kWhite) spans.push_back({begin, at});
        before = own;
      }
    }
    pieces.spans = std::move(spans);
  }
};

// Makes the text anew: put(out, piece, is the first one).
template <class Put>
void rewrite(Pieces& pieces, Put&& put) {
  std::string out;
  out.reserve(pieces.text.size() + pieces.text.size() / 4);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t begin = out.size();
    put(out, pieces.view(pieces.spans[i]), i == 0 && pieces.spans[0].begin == 0);
    pieces.spans[i] = {begin, out.size()};
  }
  pieces.text = std::move(out);
}

struct MapBytes : PreTokenizer {
  void apply(Pieces& pieces) const override {
    rewrite(pieces, [](std::string& out, std::string_view piece, bool) { append_letters(out, piece); });
  }
  bool maps_bytes() const override { return true; }
};

struct PrefixSpace : PreTokenizer {
  void apply(Pieces& pieces) const override {
    rewrite(pieces, [](std::string& out, std::string_view piece, bool) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const Fields& f) : mark_(f.text("replacement")) {
    f.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    if (unicode::length(mark_) != 1) f.refuse("replacement", " is not one character");
    scheme_ = f.text("prepend_scheme", "always");
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
      f.refuse("prepend_scheme", " is `" + scheme_ + "`, which is not supported");
    if (!f.flag("add_prefix_space", true) && scheme_ != "never") {
      if (f.has("prepend_scheme")) f.refuse("add_prefix_space", " and prepend_scheme contradict each other");
      scheme_ = "never";
    }
    splits_ = f.flag("split", true);
  }
  void apply(Pieces& pieces) const override {
    const bool at_start = pieces.at_start;
    rewrite(pieces, [&](std::string& out, std::string_view piece, bool first) {
      const bool begins = piece.starts_with(mark_) || piece.starts_with(' ');
      if (!begins && (scheme_ == "always" || (scheme_ == "first" && first && at_start))) out += mark_;
      for (const char c : piece) {
        if (c == ' ') out += mark_;
        else out += c;
      }
    });
    if (!splits_) return;
    cut(pieces, Behavior::kWithNext, false, [&](std::string_view text, auto&& match) {
      for (size_t at = 0; (at = text.find(mark_, at)) != text.npos; at += mark_.size()) match(at, at + mark_.size());
    });
  }
  bool needs_start() const override { return scheme_ == "first"; }

 private:
  const std::string mark_;
  std::string scheme_;
  bool splits_ = true;
};

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void add_byte_level(const Fields& f, PreTokenizers& all) {
  f.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (f.flag("add_prefix_space")) all.push_back(std::make_unique<PrefixSpace>());
  if (f.flag("use_regex", true))
    all.push_back(std::make_unique<Split>(Pattern::regex(kGpt2), Behavior::kIsolated, false));
  all.push_back(std::make_unique<MapBytes>());
}

void add_split(const Fields& f, PreTokenizers& all) {
  f.only({"type", "pattern", "behavior", "invert"});
  all.push_back(std::make_unique<Split>(pattern_of(f), behavior_of(f), f.flag("invert")));
}

void add_sequence(const Fields& f, PreTokenizers& all) {
  f.only({"type", "pretokenizers"});
  for (const Fields& one : f.each("pretokenizers")) {
    add_pre_tokenizers(one, all);
    if (all.size() > 64) f.refuse("pretokenizers", " has more than 64 members");
  }
}

}  // namespace

void add_pre_tokenizers(const Fields& f, PreTokenizers& all) {
  const std::string type = f.type();
  const auto at = [&](uint16_t flag, Behavior behavior) { all.push_back(std::make_unique<SplitAt>(flag, behavior)); };
  if (type == "Sequence") return add_sequence(f, all);
  if (type == "ByteLevel") return add_byte_level(f, all);
  if (type == "Split") return add_split(f, all);
  if (type == "Metaspace") return all.push_back(std::make_unique<Metaspace>(f));
  if (type == "Digits") {
    f.only({"type", "individual_digits"});
    return at(unicode::kNumeric, f.flag("individual_digits") ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    f.only({"type", "behavior"});
    return at(unicode::kPunctuation, behavior_of(f, "Isolated"));
  }
  if (type != "BertPreTokenizer" && type != "Whitespace" && type != "WhitespaceSplit")
    f.refuse("type", " is `" + type + "`, a pre-tokenizer that is not supported");
  f.only({"type"});
  if (type == "Whitespace") return all.push_back(std::make_unique<Whitespace>());
  at(unicode::kWhite, Behavior::kRemoved);
  if (type == "BertPreTokenizer") at(unicode::kPunctuation, Behavior::kIsolated);
}

}  // namespace mortise::huggingface
