// Fields of a sample, and putting them.
#pragma once
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

}  // namespace mortise
