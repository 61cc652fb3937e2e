#include "unicode.hpp"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <vector>

#include "mortise/cpp/strings.hpp"
#include "unicode_data.hpp"

namespace mortise::unicode {
namespace {

// Hangul syllables are made by rule (Unicode, 3.12).
constexpr char32_t kS = 0xAC00, kL = 0x1100, kV = 0x1161, kT = 0x11A7;
constexpr char32_t kLs = 19, kVs = 21, kTs = 28, kSs = kLs * kVs * kTs;

// Reads the words of unicode_data.hpp: numbers with one letter between them.
class Words {
 public:
  explicit Words(const char* text) : at_(text) {}
  bool more() const { return *at_ != '\0'; }
  char32_t number() {
    unsigned long n = 0;
    for (int digit; (digit = digit_of(*at_)) >= 0; ++at_) n = n * 16 + static_cast<unsigned long>(digit);
    return static_cast<char32_t>(n);
  }
  bool take(char c) {
    if (*at_ != c) return false;
    ++at_;
    return true;
  }

 private:
  static int digit_of(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }
  const char* at_;
};

struct Tables {
  std::vector<uint16_t> flags = std::vector<uint16_t>(kEnd);
  std::vector<uint8_t> classes = std::vector<uint8_t>(kEnd);  // pages that hold only zeros take no memory
  std::unordered_map<char32_t, std::u32string> canonical, compatible;
  std::unordered_map<uint64_t, char32_t> composed;
  std::unordered_map<char32_t, char32_t> lower;
  std::vector<uint8_t> changes =
      std::vector<uint8_t>(kEnd);  // bit 0: has a canonical decomposition, 1: another, 2: lower

  Tables() {
    read_flags();
    char32_t c = 0;
    for (Words w(unicode_data::kClasses); w.more(); w.take(' ')) {
      c += w.number();
      w.take(':');
      classes[c] = static_cast<uint8_t>(w.number());
    }
    read_decompositions();
    for (Words w(unicode_data::kLower); w.more(); w.take(' ')) {
      char32_t from = w.number();
      w.take(':');
      const char32_t count = w.number();
      w.take('.');
      const char32_t step = w.number();
      w.take('.');
      const char32_t distance = w.number();
      for (char32_t i = 0; i < count; ++i, from += step) lower[from] = (from + distance) % kEnd, changes[from] |= 4;
    }
  }

 private:
  void read_flags() {
    char32_t from = 0;
    uint16_t value = 0;
    for (Words w(unicode_data::kFlags); w.more(); w.take(' ')) {
      const char32_t to = from + w.number();
      std::fill(flags.begin() + from, flags.begin() + to, value);
      from = to;
      w.take(':');
      value = static_cast<uint16_t>(w.number());
    }
    std::fill(flags.begin() + from, flags.end(), value);
  }

  static std::u32string parts(Words& w) {
    std::u32string all;
    do all.push_back(w.number());
    while (w.take('.'));
    return all;
  }

  void read_decompositions() {
    std::vector<char32_t> composites;
    char32_t c = 0;
    for (Words w(unicode_data::kCanonical); w.more(); w.take(' ')) {
      c += w.number();
      w.take(':');
      if (!w.take('!')) composites.push_back(c);
      canonical[c] = parts(w);
      changes[c] |= 1;
    }
    c = 0;
    for (Words w(unicode_data::kCompatible); w.more(); w.take(' ')) {
      c += w.number();
      w.take(':');
      compatible[c] = parts(w);
      changes[c] |= 2;
    }
    // A decomposition is that of a composite, or one character, and one more: the shorter ones first.
    std::ranges::stable_sort(composites, {}, [&](char32_t x) { return canonical[x].size(); });
    for (const char32_t composite : composites) {
      const std::u32string& all = canonical[composite];
      char32_t first = all[0];
      for (size_t i = 1; i + 1 < all.size(); ++i) first = composed.at(pair(first, all[i]));
      composed[pair(first, all.back())] = composite;
    }
  }

 public:
  static uint64_t pair(char32_t a, char32_t b) { return (static_cast<uint64_t>(a) << 32) | b; }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

void decompose(char32_t c, bool compatible, std::u32string& out) {
  const Tables& t = tables();
  if (c - kS < kSs) {
    const char32_t s = c - kS;
    out += {kL + s / (kVs * kTs), kV + s % (kVs * kTs) / kTs};
    if (s % kTs) out.push_back(kT + s % kTs);
    return;
  }
  const uint8_t changes = t.changes[c];
  if (compatible && (changes & 2)) out += t.compatible.at(c);
  else if (changes & 1) out += t.canonical.at(c);
  else out.push_back(c);
}

void reorder(std::u32string& text) {
  const auto& classes = tables().classes;
  for (size_t i = 0; i < text.size();) {
    if (classes[text[i]] == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && classes[text[end]] != 0) ++end;
    std::stable_sort(text.begin() + static_cast<ptrdiff_t>(i), text.begin() + static_cast<ptrdiff_t>(end),
                     [&](char32_t a, char32_t b) { return classes[a] < classes[b]; });
    i = end;
  }
}

// 0: these two stay two.
char32_t compose_two(char32_t a, char32_t b) {
  if (a - kL < kLs && b - kV < kVs) return kS + ((a - kL) * kVs + (b - kV)) * kTs;
  if (a - kS < kSs && (a - kS) % kTs == 0 && b > kT && b - kT < kTs) return a + (b - kT);
  const auto& composed = tables().composed;
  const auto found = composed.find(Tables::pair(a, b));
  return found == composed.end() ? 0 : found->second;
}

void compose(std::u32string& text) {
  const auto& classes = tables().classes;
  constexpr size_t kNone = ~size_t{0};
  size_t starter = kNone, n = 0;
  for (const char32_t c : text) {
    const int own = classes[c];
    // Blocked: something stands between that is of the same class, of a higher one, or a starter.
    const bool free =
        starter != kNone && (n - 1 == starter || (classes[text[n - 1]] < own && classes[text[n - 1]] != 0));
    const char32_t one = free ? compose_two(text[starter], c) : 0;
    if (one) {
      text[starter] = one;
      continue;
    }
    if (own == 0) starter = n;
    text[n++] = c;
  }
  text.resize(n);
}

}  // namespace

uint16_t flags(char32_t c) {
  static const uint16_t* const all = tables().flags.data();
  return all[c];
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

size_t length(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string lossy(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    size_t size = utf8_length(bytes);
    if (size) text += bytes.substr(0, size);
    else {
      // The longest beginning of a character counts as one.
      text += "\uFFFD";
      bool missing = false;
      for (size = 1; size < std::min<size_t>(bytes.size(), 3); ++size)
        if (utf8_length(bytes.substr(0, size + 1), &missing); !missing) break;
    }
    bytes.remove_prefix(size);
  }
  return text;
}

std::string normalized(std::string_view text, Form form) {
  const bool composes = form == Form::kNfc || form == Form::kNfkc;
  const bool compatible = form == Form::kNfkc || form == Form::kNfkd;
  std::string out;
  out.reserve(text.size());
  std::u32string part;
  for (size_t at = 0; at < text.size();) {
    // An ASCII character is the second of no pair, so what stands before it is whole.
    if (static_cast<unsigned char>(text[at]) < 0x80 &&
        (at + 1 == text.size() || static_cast<unsigned char>(text[at + 1]) < 0x80)) {
      out.push_back(text[at++]);
      continue;
    }
    part.clear();
    do decompose(next(text, at), compatible, part);
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80);
    reorder(part);
    if (composes) compose(part);
    for (const char32_t c : part) append(out, c);
  }
  return out;
}

void append_lower(std::string& text, char32_t c) {
  if (c < 0x80) return text.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  const Tables& t = tables();
  if (c == 0x130) text += "i\u0307";  // the one that becomes two
  else append(text, t.changes[c] & 4 ? t.lower.at(c) : c);
}

}  // namespace mortise::unicode
