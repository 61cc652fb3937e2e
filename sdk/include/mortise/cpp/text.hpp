// Small text that plugins show to people, and the columns of a record by name.
#pragma once
#include "mortise/cpp/core.hpp"

namespace mortise {

// 61,204
inline std::string with_commas(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(s.size()) - 3; at > (n < 0); at -= 3) s.insert(static_cast<size_t>(at), ",");
  return s;
}

// The character that `text` begins with, in bytes; 0: it is not UTF-8 (also: too long a form, half of a pair, beyond U+10FFFF).
// `missing`: set to true if the bytes are a good beginning and only end too early.
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

// A record's columns by name. A column that is missing or of another kind gives `otherwise`.
class Columns {
 public:
  explicit Columns(const mortise_record& r) : record_(r) {}
  std::string_view kind() const { return view(record_.kind); }
  std::span<const mortise_column> all() const { return {record_.columns, record_.n_columns}; }
  const mortise_value* find(std::string_view name) const {
    for (const mortise_column& c : all())
      if (view(c.name) == name) return &c.value;
    return nullptr;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  std::string_view text(std::string_view name, std::string_view otherwise = {}) const {
    const mortise_value* v = find(name);
    return v && v->tag == MORTISE_TEXT ? view(v->v.s) : otherwise;
  }
  int64_t integer(std::string_view name, int64_t otherwise = 0) const {
    const mortise_value* v = find(name);
    return v && (v->tag == MORTISE_INT || v->tag == MORTISE_LOGICAL) ? v->v.i : otherwise;
  }
  double number(std::string_view name, double otherwise = 0) const {
    const mortise_value* v = find(name);
    if (v && v->tag == MORTISE_FLOAT) return v->v.f;
    return v && v->tag == MORTISE_INT ? static_cast<double>(v->v.i) : otherwise;
  }

 private:
  const mortise_record& record_;
};

}  // namespace mortise
