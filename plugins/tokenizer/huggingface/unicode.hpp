// Characters as Hugging Face's tokenizers takes them: categories, normal forms, lower case. The tables are those of
// unicode_data.hpp, the same on every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mortise::unicode {

// clang-format off
enum Category : uint8_t {
  Cn, Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Co,
  kCategories
};
// clang-format on
enum Flag : uint16_t {
  kWord = 1 << 5,         // \w of `Whitespace`
  kNumeric = 1 << 6,      // of `Digits`
  kPunctuation = 1 << 7,  // of `Punctuation` and BERT
  kCleaned = 1 << 8,      // left out by BERT's clean_text
  kMark = 1 << 9,         // left out by `StripAccents`
  kNonspacing = 1 << 10,  // left out by BERT's strip_accents
  kJoins = 1 << 11,       // one grapheme with what stands before it
  kPrepend = 1 << 12,     // one grapheme with what comes after it
  kAlone = 1 << 13,       // a grapheme of its own
  kPictograph = 1 << 14,  // one grapheme with another one behind a joiner
  kWhite = 1 << 15,
};
constexpr uint16_t kCategoryBits = 31;
constexpr char32_t kEnd = 0x110000;  // one more than the last character

uint16_t flags(char32_t c);  // the category and the flags
inline bool is(char32_t c, uint16_t flag) { return (flags(c) & flag) != 0; }

// The character at `at`, which then stands behind it. The text is UTF-8.
inline char32_t next(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const char32_t first = byte(at++);
  if (first < 0x80) return first;
  const int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t c = first & (0x3F >> more);
  for (int i = 0; i < more; ++i) c = (c << 6) | (byte(at++) & 0x3F);
  return c;
}
// Where the character that ends before `at` begins.
inline size_t before(std::string_view text, size_t at) {
  do --at;
  while ((text[at] & 0xC0) == 0x80);
  return at;
}
inline char32_t last(std::string_view text) {
  size_t at = before(text, text.size());
  return next(text, at);
}
void append(std::string& text, char32_t c);
size_t length(std::string_view text);  // in characters

// Of every character that is not UTF-8 U+FFFD instead, as Rust's from_utf8_lossy.
std::string lossy(std::string_view bytes);

enum class Form { kNfc, kNfd, kNfkc, kNfkd };
std::string normalized(std::string_view text, Form form);
void append_lower(std::string& text, char32_t c);

}  // namespace mortise::unicode
