// Strings as host and plugins both have them: across the C tables, by the character, and numbers for people. Needs no
// host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mortise/abi.h"

namespace mortise {

inline mortise_str str(std::string_view s) { return {s.data(), s.size()}; }
inline std::string_view view(mortise_str s) { return {s.ptr, s.len}; }

// 61,204
inline std::string with_commas(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(s.size()) - 3; at > (n < 0); at -= 3) s.insert(static_cast<size_t>(at), ",");
  return s;
}

// The character that `text` begins with, in bytes; 0: it is not UTF-8 (also: too long a form, half of a pair, beyond
// U+10FFFF). `missing`: set to true if the bytes are a good beginning and only end too early.
inline size_t utf8_length(std::string_view text, bool* missing = nullptr) {
  if (missing) *missing = false;
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) {
      if (missing) *missing = true;
      return 0;
    }
    const unsigned low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return 0;
  }
  return length;
}

}  // namespace mortise
