// GPT-2's letters for bytes: what is printable in Latin-1 stands for itself, the rest are letters from U+0100 on.
#pragma once
#include <array>
#include <string>
#include <string_view>

#include "unicode.hpp"

namespace mortise::huggingface {

inline constexpr auto kLetterOfByte = [] {
  std::array<char32_t, 256> all{};
  char32_t n = 256;
  for (char32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    all[b] = itself ? b : n++;
  }
  return all;
}();

// -1: the character stands for no byte.
inline constexpr auto kByteOfLetter = [] {
  std::array<int16_t, 324> all{};
  all.fill(-1);
  for (int b = 0; b < 256; ++b) all[kLetterOfByte[static_cast<size_t>(b)]] = static_cast<int16_t>(b);
  return all;
}();

inline void append_letters(std::string& out, std::string_view bytes) {
  for (const char b : bytes) unicode::append(out, kLetterOfByte[static_cast<unsigned char>(b)]);
}

}  // namespace mortise::huggingface
