#include "pattern.hpp"

#include <algorithm>

#include "fault.hpp"
#include "unicode.hpp"

namespace mortise::huggingface {

bool Set::evaluate(char32_t c) const {
  const uint16_t flags = unicode::flags(c);
  const bool is_white = (flags & unicode::kWhite) != 0;
  bool in = (categories >> (flags & unicode::kCategoryBits) & 1) || (white && is_white) || (not_white && !is_white);
  for (size_t i = 0; i < ranges.size() && !in; ++i) in = ranges[i].first <= c && c <= ranges[i].second;
  return in != negated;
}

void Set::finish() {
  for (char32_t c = 0; c < 128; ++c) ascii[c] = evaluate(c);
}

Pattern Pattern::literal(std::string_view text) {
  if (text.empty()) throw Fault("an empty text to look for");
  Pattern p;
  p.literal_ = text;
  return p;
}

void Pattern::each(std::string_view text, const std::function<void(size_t, size_t)>& body) const {
  if (!literal_.empty()) {
    for (size_t at = 0; (at = text.find(literal_, at)) != text.npos; at += literal_.size())
      body(at, at + literal_.size());
    return;
  }
  // Patterns in use take about ten steps a character; one that tries everything would never come to an end.
  Walk walk = {text, (size_t{1} << 20) + 512 * text.size()};
  for (size_t at = 0; at < text.size();) {
    const size_t end = match_here(at, walk);
    if (end == kNo) {
      unicode::next(text, at);
      continue;
    }
    body(at, end);
    at = end;
  }
}

size_t Pattern::match_here(size_t at, Walk& walk) const {
  const auto first = static_cast<unsigned char>(walk.text[at]);
  for (const uint32_t start : starts_) {
    if (first < 128 && !nodes_[start].first[first]) continue;
    if (const size_t end = match(start, at, walk); end != kNo) return end;
  }
  return kNo;
}

size_t Pattern::match(uint32_t node, size_t at, Walk& walk) const {
  for (;;) {
    if (walk.steps == 0) throw Fault("the pattern tries too much on this text");
    --walk.steps;
    const Node& x = nodes_[node];
    switch (x.kind) {
      case Kind::kEnd: return at;
      case Kind::kAhead:
      case Kind::kNotAhead: {
        size_t behind = at;
        const bool is = at < walk.text.size() && sets_[x.set].has(unicode::next(walk.text, behind));
        if (is != (x.kind == Kind::kAhead)) return kNo;
        node = x.next;
        break;
      }
      case Kind::kOneOf:
        for (const uint32_t start : x.starts)
          if (const size_t end = match(start, at, walk); end != kNo) return end;
        return kNo;
      case Kind::kSet:
        at = match_set(x, at, walk, node);
        if (at == kNo || node == kDone) return at;
    }
  }
}

// Either where the rest begins, with `next` as its node, or where all ends, with kDone; or kNo.
size_t Pattern::match_set(const Node& x, size_t at, Walk& walk, uint32_t& next) const {
  const Set& set = sets_[x.set];
  size_t end = at, least = at, count = 0;
  const size_t enough = x.takes == Takes::kFewest ? x.min : x.max;
  const auto take = [&] {
    size_t behind = end;
    if (end == walk.text.size() || !set.has(unicode::next(walk.text, behind))) return false;
    end = behind;
    return true;
  };
  while (count < enough && take())
    if (++count == x.min) least = end;
  walk.steps -= std::min(walk.steps, count);
  if (count < x.min) return kNo;
  next = x.next;
  if (x.takes == Takes::kAllAtOnce || x.min == x.max) return end;
  if (x.takes == Takes::kFewest) {
    for (;;) {
      if (const size_t all = match(x.next, end, walk); all != kNo) return next = kDone, all;
      if (count++ == x.max || !take()) return kNo;
    }
  }
  if (nodes_[x.next].kind == Kind::kEnd || end == least) return end;
  for (;; end = unicode::before(walk.text, end)) {
    if (const size_t all = match(x.next, end, walk); all != kNo) return next = kDone, all;
    if (end == least) return kNo;
  }
}

}  // namespace mortise::huggingface
