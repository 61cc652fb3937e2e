// From the text of a regular expression to the nodes of a Pattern.
#include <algorithm>
#include <optional>
#include <utility>

#include "fault.hpp"
#include "pattern.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {

class PatternReader {
 public:
  PatternReader(std::string_view source, Pattern& out) : source_(source), out_(out) {
    if (source.size() > kMostBytes) fail("it is longer than 4,096 bytes");
    out_.nodes_.emplace_back();  // the end
    const Alternatives all = alternatives(0);
    if (at_ != source_.size()) fail("`)` without `(`");
    for (const Sequence& s : all) out_.starts_.push_back(emit(s, 0));
    for (const uint32_t start : out_.starts_)
      if (out_.nodes_[start].least == 0) fail("it matches an empty text");
    for (Set& s : out_.sets_) s.finish();
    // Those of sets that were not finished when the nodes were made.
    for (Pattern::Node& n : out_.nodes_) n.first = first_of(n);
  }

 private:
  struct Term;
  using Sequence = std::vector<Term>;
  using Alternatives = std::vector<Sequence>;
  struct Term {
    Pattern::Kind kind;
    uint32_t set = 0;
    size_t min = 1, max = 1;
    Pattern::Takes takes = Pattern::Takes::kMost;
    Alternatives inner = {};
  };
  static constexpr size_t kMostBytes = 4096, kMany = ~size_t{0};
  static constexpr int kMostNesting = 16;

  [[noreturn]] void fail(const std::string& why) const {
    throw Fault("the pattern " + std::string(source_) + " is not supported: " + why);
  }
  bool more() const { return at_ < source_.size(); }
  bool take(std::string_view mark) {
    if (!source_.substr(at_).starts_with(mark)) return false;
    at_ += mark.size();
    return true;
  }

  Alternatives alternatives(int depth) {
    if (depth > kMostNesting) fail("its groups are nested too deeply");
    Alternatives all(1);
    while (more() && source_[at_] != ')') {
      if (take("|")) all.emplace_back();
      else all.back().push_back(term(depth));
    }
    return all;
  }

  Term term(int depth) {
    Term t = atom(depth);
    if (take("?")) t.min = 0;
    else if (take("*")) t.min = 0, t.max = kMany;
    else if (take("+")) t.max = kMany;
    else if (take("{")) return braces(std::move(t));
    else return t;
    if (t.kind == Pattern::Kind::kOneOf) {
      // An optional group is one that may also be nothing.
      if (t.max != 1 || (more() && (source_[at_] == '+' || source_[at_] == '?'))) fail("a group is repeated");
      t.inner.emplace_back();
      t.min = 1;
    }
    if (t.kind == Pattern::Kind::kAhead || t.kind == Pattern::Kind::kNotAhead) fail("a look ahead is repeated");
    if (take("+")) t.takes = Pattern::Takes::kAllAtOnce;
    else if (take("?")) t.takes = Pattern::Takes::kFewest;
    refuse_another();
    return t;
  }

  Term braces(Term t) {
    if (t.kind != Pattern::Kind::kSet) fail("a group is repeated");
    t.min = count();
    t.max = t.min;
    if (take(",")) t.max = more() && source_[at_] == '}' ? kMany : count();
    if (!take("}") || t.max < t.min || t.max == 0) fail("the numbers in `{}`");
    refuse_another();
    return t;
  }
  void refuse_another() {
    if (more() && std::string_view("?*+{").find(source_[at_]) != std::string_view::npos)
      fail("a repetition is repeated");
  }

  size_t count() {
    size_t n = 0, digits = 0;
    for (; more() && source_[at_] >= '0' && source_[at_] <= '9'; ++digits)
      n = n * 10 + static_cast<size_t>(source_[at_++] - '0');
    if (digits == 0 || digits > 4) fail("the numbers in `{}`");
    return n;
  }

  Term atom(int depth) {
    if (take("(?!")) return ahead(Pattern::Kind::kNotAhead);
    if (take("(?=")) return ahead(Pattern::Kind::kAhead);
    if (take("(?i:")) return group(depth, true);
    if (take("(?:")) return group(depth, fold_);
    if (take("(?")) fail("`(?" + std::string(source_.substr(at_, 1)) + "`");
    if (take("(")) return group(depth, fold_);
    return {Pattern::Kind::kSet, keep(one())};
  }

  Term group(int depth, bool fold) {
    const bool outer = std::exchange(fold_, fold);
    const size_t begin = at_;
    Term t = {Pattern::Kind::kOneOf};
    t.inner = alternatives(depth + 1);
    if (fold) refuse_folds_of_several(source_.substr(begin, at_ - begin));
    if (!take(")")) fail("`(` without `)`");
    fold_ = outer;
    return t;
  }

  // Letters that one character stands for when the case is ignored, as ß for ss.
  void refuse_folds_of_several(std::string_view inside) const {
    std::string lower;
    for (const char c : inside) lower.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    for (const char* two : {"ss", "st", "ff", "fi", "fl"})
      if (lower.find(two) != lower.npos) fail("`" + std::string(two) + "` with the case ignored");
  }

  Term ahead(Pattern::Kind kind) {
    if (fold_) fail("a look ahead with the case ignored");
    Term t = {kind, keep(one())};
    if (!take(")")) fail("a look ahead at more than one character");
    return t;
  }

  uint32_t keep(Set set) {
    if (fold_) fold(set);
    out_.sets_.push_back(std::move(set));
    return static_cast<uint32_t>(out_.sets_.size() - 1);
  }

  // Both cases of ASCII letters; K and S have a third form each.
  void fold(Set& set) const {
    if (set.categories || set.white || set.not_white || set.negated) fail("a class with the case ignored");
    for (const auto& [from, to] : std::vector(set.ranges)) {
      if (to >= 128) fail("a letter beyond ASCII with the case ignored");
      for (char32_t c = from; c <= to; ++c) {
        const char32_t lower = c | 32;
        if (lower < 'a' || lower > 'z') continue;
        set.add(lower);
        set.add(lower - 32);
        if (lower == 'k') set.add(0x212A);
        if (lower == 's') set.add(0x17F);
      }
    }
  }

  // One character: a letter, an escape or a class.
  Set one() {
    if (!more()) fail("it ends too early");
    Set set;
    if (take("[")) return klass();
    if (take("\\")) {
      escape(set);
      return set;
    }
    if (std::string_view(".^$*+?{}[]|)").find(source_[at_]) != std::string_view::npos)
      fail("`" + std::string(source_.substr(at_, 1)) + "`");
    set.add(unicode::next(source_, at_));
    return set;
  }

  // Adds what an escape means; the character, if it means one.
  std::optional<char32_t> escape(Set& set) {
    if (!more()) fail("it ends too early");
    const char c = source_[at_];
    if (static_cast<unsigned char>(c) >= 128) fail("an escape");
    ++at_;
    char32_t one = static_cast<unsigned char>(c);
    switch (c) {
      case 's': set.white = true; return {};
      case 'S': set.not_white = true; return {};
      case 'd': set.categories |= 1u << unicode::Nd; return {};
      case 'p': set.categories |= property(); return {};
      case 'P': set.categories |= ~property(); return {};
      case 'n': one = '\n'; break;
      case 'r': one = '\r'; break;
      case 't': one = '\t'; break;
      default:
        if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) fail(std::string("`\\") + c + "`");
    }
    set.add(one);
    return one;
  }

  uint32_t property() {
    const size_t end = source_.find('}', at_);
    if (!take("{") || end == source_.npos) fail("`\\p` without `{}`");
    const std::string_view name = source_.substr(at_, end - at_);
    at_ = end + 1;
    static constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                  "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                  "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
    static_assert(std::size(kNames) == unicode::kCategories);
    uint32_t found = 0;
    for (uint32_t i = 0; i < std::size(kNames); ++i)
      if (name == kNames[i] || (name.size() == 1 && name[0] == kNames[i][0])) found |= 1u << i;
    if (!found) fail("`\\p{" + std::string(name) + "}`");
    return found;
  }

  Set klass() {
    Set set;
    set.negated = take("^");
    for (bool first = true;; first = false) {
      if (!more()) fail("`[` without `]`");
      if (take("]")) {
        if (first) fail("an empty class");
        return set;
      }
      if (take("[")) fail("a class in a class");
      if (take("&&")) fail("`&&`");
      std::optional<char32_t> from;
      if (take("\\")) from = escape(set);
      else set.add(*(from = unicode::next(source_, at_)));
      if (source_.substr(at_, 1) != "-" || source_.substr(at_, 2) == "-]") continue;
      if (!from) fail("a range that begins with a class");
      if (from == U'-') fail("`--`");
      take("-");
      if (!more() || take("[")) fail("a range without an end");
      Set other;
      std::optional<char32_t> to;
      if (take("\\")) to = escape(other);
      else to = unicode::next(source_, at_);
      if (!to || *to < *from) fail("a range that ends before it begins");
      set.ranges.push_back({*from, *to});
    }
  }

  // The nodes of a sequence, the last one first, so that each knows what comes after it.
  uint32_t emit(const Sequence& sequence, uint32_t next) {
    for (size_t i = sequence.size(); i-- > 0;) next = emit(sequence[i], next);
    return next;
  }
  uint32_t emit(const Term& t, uint32_t next) {
    Pattern::Node n;
    n.kind = t.kind, n.takes = t.takes, n.set = t.set, n.next = next, n.min = t.min, n.max = t.max;
    const size_t after = out_.nodes_[next].least;
    n.least = t.kind == Pattern::Kind::kSet ? t.min + after : after;
    if (t.kind == Pattern::Kind::kOneOf) {
      n.least = kMany;
      for (const Sequence& s : t.inner) {
        n.starts.push_back(emit(s, next));
        n.least = std::min(n.least, out_.nodes_[n.starts.back()].least);
      }
    }
    out_.nodes_.push_back(std::move(n));
    return static_cast<uint32_t>(out_.nodes_.size() - 1);
  }

  std::bitset<128> first_of(const Pattern::Node& n) const {
    std::bitset<128> first;
    if (n.kind == Pattern::Kind::kEnd) return first.set();
    if (n.kind == Pattern::Kind::kOneOf) {
      for (const uint32_t start : n.starts) first |= out_.nodes_[start].first;
      return first;
    }
    first = out_.nodes_[n.next].first;
    if (n.kind != Pattern::Kind::kSet) return first;
    return n.min == 0 ? first | out_.sets_[n.set].ascii : out_.sets_[n.set].ascii;
  }

  std::string_view source_;
  Pattern& out_;
  size_t at_ = 0;
  bool fold_ = false;
};

Pattern Pattern::regex(std::string_view source) {
  Pattern p;
  PatternReader(source, p);
  return p;
}

}  // namespace mortise::huggingface
