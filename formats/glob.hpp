// Globs over names: of tensors, of keys, of paths of a model.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string_view>

#include "formats/utf8.hpp"

namespace mortise {

// `*` matches any run of characters, dots too; `?` one; everything else itself.
inline bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    const size_t width = std::max<size_t>(utf8_size(text.substr(t)), 1);
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      t += width;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace mortise
