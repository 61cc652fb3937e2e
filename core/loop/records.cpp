#include "core/loop/records.hpp"

#include <algorithm>

#include "mortise/cpp/strings.hpp"

namespace mortise {

bool is_step_column(std::string_view name) {
  static constexpr std::string_view kColumns =
      " step of loss lr grad_norm samples tokens epoch micros due skipped skipped_parameter skipped_reason "
      "samples_per_s tokens_per_s flop_per_s mfu "
      "throughput_unit data_wait_share idle_share left_s memory_bytes memory_peak_bytes memory_total_bytes "
      "memory_rank slowest_rank slowest_lag_s slowest_lag_share slowest_host ";
  return name.find(' ') == name.npos && kColumns.find(" " + std::string(name) + " ") != kColumns.npos;
}

mortise_str RecordBuilder::keep(std::string_view s) {
  const std::string& kept = texts_.emplace_back(s);
  return {kept.data(), kept.size()};
}

mortise_column& RecordBuilder::add(std::string_view name, std::string_view unit) {
  columns_.push_back({keep(name), keep(unit), {MORTISE_NONE, 0, {.i = 0}}});
  return columns_.back();
}

RecordBuilder& RecordBuilder::number(std::string_view name, double v, std::string_view unit) {
  add(name, unit).value = {MORTISE_FLOAT, 0, {.f = v}};
  return *this;
}
RecordBuilder& RecordBuilder::integer(std::string_view name, int64_t v, std::string_view unit) {
  add(name, unit).value = {MORTISE_INT, 0, {.i = v}};
  return *this;
}
RecordBuilder& RecordBuilder::text(std::string_view name, std::string_view v) {
  const mortise_str kept = keep(v);
  add(name, "").value = {MORTISE_TEXT, 0, {.s = kept}};
  return *this;
}

RecordBuilder& RecordBuilder::value(std::string_view name, const mortise_value& v) {
  if (v.tag == MORTISE_TEXT) return text(name, {v.v.s.ptr, v.v.s.len});
  add(name, "").value = v;
  return *this;
}

bool RecordBuilder::has(std::string_view name) const {
  return std::ranges::any_of(columns_, [&](const mortise_column& c) { return view(c.name) == name; });
}

mortise_record RecordBuilder::record() const {
  return {
      sizeof(mortise_record), static_cast<uint32_t>(columns_.size()), {kind_.data(), kind_.size()}, columns_.data()};
}

}  // namespace mortise
