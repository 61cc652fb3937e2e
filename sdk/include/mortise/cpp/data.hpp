// Fields of a sample and putting them, fingerprints, the tokenizer.
#pragma once
#include <cstdio>
#include <optional>
#include <span>

#include "mortise/cpp/core.hpp"
#include "mortise/data.h"

namespace mortise {

inline constexpr int64_t kSequence[] = {-1};

// One id a position, as of a language model: int64.
constexpr mortise_field sequence_of_ids(mortise_str name, mortise_str unit, double fill) {
  return {sizeof(mortise_field), MORTISE_I64, name, unit, fill, kSequence, 1, 0};
}

// Those of a language model, in this order; labels of -100 are no token to guess.
inline constexpr mortise_field kLanguageModelFields[] = {
    sequence_of_ids(MORTISE_STR("input_ids"), {}, 0),
    sequence_of_ids(MORTISE_STR("labels"), MORTISE_STR("tokens"), -100),
    sequence_of_ids(MORTISE_STR("positions"), {}, 0)};

// One sample's elements of a field. T is the field's element type.
template <class T>
void put(mortise_rows* rows, uint32_t row, uint32_t field, std::span<const T> elements) {
  check(api.batch->put(api.host, rows, row, field, elements.data(), elements.size_bytes()));
}

// 128 bits of a row of tokens, for telling one row from another. Each step is invertible in the token, so rows of one
// length that differ in one token always differ here; otherwise they agree by chance alone.
class TokenHash {
 public:
  void add(int64_t token) {
    for (size_t i = 0; i < 2; ++i) {
      lanes_[i] = (lanes_[i] ^ static_cast<uint64_t>(token)) * kFactors[i];
      lanes_[i] ^= lanes_[i] >> 32;
    }
  }
  std::string text() const {
    char hex[33];
    std::snprintf(hex, sizeof hex, "%016llx%016llx", static_cast<unsigned long long>(lanes_[0]),
                  static_cast<unsigned long long>(lanes_[1]));
    return hex;
  }

 private:
  // The odd numbers nearest to 2^64 / golden ratio and 2^64 / sqrt(3).
  static constexpr uint64_t kFactors[2] = {0x9E3779B97F4A7C15u, 0x93CD3A2C8198E269u};
  uint64_t lanes_[2] = {0, 0};
};

// The ids of a text, without special tokens, in the memory of `ids`, which stays as large as it ever was. Nothing: the
// tokenizer refuses the text.
inline std::optional<std::span<const int64_t>> encode(std::string_view text, std::vector<int64_t>& ids) {
  // Room for a token a byte is nearly always enough, so that text is encoded once.
  if (ids.size() < text.size()) ids.resize(text.size());
  size_t needed = 0;
  mortise_status status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
  if (status == MORTISE_OK && needed > ids.size()) {
    ids.resize(needed);
    status = api.tokenizer->encode(api.host, str(text), ids.data(), ids.size(), &needed);
  }
  if (status != MORTISE_OK) return std::nullopt;
  for (const int64_t id : std::span(ids).first(needed))
    if (id < 0 || id > INT32_MAX) throw Error(MORTISE_E_DATA, "the tokenizer gave the id " + std::to_string(id));
  return std::span<const int64_t>(ids).first(needed);
}
inline std::optional<std::vector<int64_t>> encode(std::string_view text) {
  std::vector<int64_t> ids;
  const auto known = encode(text, ids);
  if (!known) return std::nullopt;
  ids.resize(known->size());
  return ids;
}

// The tokenizer's special token of a role ("eos"), if it has one.
inline std::optional<int64_t> special_token(std::string_view role) {
  int64_t id = -1;
  if (!MORTISE_HAS(api.tokenizer, special)) return std::nullopt;
  const mortise_status status = api.tokenizer->special(api.host, str(role), &id);
  if (status == MORTISE_E_NOT_FOUND) return std::nullopt;
  check(status);
  if (id < 0 || id > INT32_MAX)
    throw Error(MORTISE_E_DATA, "the tokenizer gave the id " + std::to_string(id) + " of " + std::string(role));
  return id;
}

}  // namespace mortise
