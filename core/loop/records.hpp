// Records: complete rows of named columns that listeners of `record` get.
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "mortise/abi.h"

namespace mortise {

// Columns of the core's own in a record of a step; a plugin gives it no other by that name.
bool is_step_column(std::string_view name);

class RecordBuilder {
 public:
  explicit RecordBuilder(std::string kind) : kind_(std::move(kind)) {}
  RecordBuilder& number(std::string_view name, double v, std::string_view unit = "");
  RecordBuilder& integer(std::string_view name, int64_t v, std::string_view unit = "");
  RecordBuilder& value(std::string_view name, const mortise_value& v);
  RecordBuilder& text(std::string_view name, std::string_view v);
  bool has(std::string_view name) const;
  // Valid until the next column is added.
  mortise_record record() const;

 private:
  mortise_column& add(std::string_view name, std::string_view unit);
  mortise_str keep(std::string_view s);
  std::string kind_;
  std::deque<std::string> texts_;
  std::vector<mortise_column> columns_;
};

}  // namespace mortise
