#include "core/plan/points.hpp"

#include <algorithm>
#include <iterator>

#include "core/base/text.hpp"

namespace mortise {

std::vector<std::string> PointRow::writable() const {
  if (name == "record") return {kColumns};
  std::vector<std::string> found;
  if (kind == Kind::Filter || is_inside_step())
    for (const std::string& field : split(fields, ',')) found.push_back(field.substr(field.starts_with(' ')));
  return found;
}

PointTable::PointTable()
    : rows_{
#define POINT(symbol, name, stage, kind, thread, fields, doc) {name, Stage::stage, Kind::kind, thread, fields, doc, ""},
#include "core/plan/points.def"
#undef POINT
      } {
}

uint32_t PointTable::add_operator(std::string name, std::string fields, std::string doc, std::string from,
                                  std::vector<std::string> dtypes) {
  if (const int at = find(name); at >= 0) return static_cast<uint32_t>(at);
  rows_.push_back({std::move(name), Stage::Device, Kind::Operator, "R; A", std::move(fields), std::move(doc),
                   std::move(from), std::move(dtypes)});
  return size() - 1;
}

int PointTable::find(std::string_view name) const {
  const auto row = std::ranges::find(rows_, name, &PointRow::name);
  return row == rows_.end() ? -1 : static_cast<int>(std::distance(rows_.begin(), row));
}

std::vector<std::string> PointTable::names() const {
  std::vector<std::string> names;
  for (const PointRow& row : rows_) names.push_back(row.name);
  return names;
}

}  // namespace mortise
