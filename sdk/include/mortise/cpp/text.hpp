// The columns of a record by name, and whole numbers as blobs of a checkpoint. Small text for people (with_commas,
// utf8_length) comes with core.hpp, from strings.hpp.
#pragma once
#include <charconv>

#include "mortise/cpp/core.hpp"

namespace mortise {

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

inline void save_integer(const mortise_sink* sink, int64_t i) {
  const std::string text = std::to_string(i);
  check(sink->write(sink->user, text.data(), text.size()));
}
// What save_integer wrote. `what` it counts is said of a blob that is something else.
inline int64_t load_integer(mortise_str blob, std::string_view what) {
  const std::string_view text = view(blob);
  int64_t i = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), i);
  if (error != std::errc() || end != text.data() + text.size())
    throw Error(MORTISE_E_DATA, std::string(what) + " is no number");
  return i;
}

}  // namespace mortise
