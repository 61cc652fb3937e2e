// The table of points, and the bands that order wrappers, as data.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mortise {

enum class Stage : uint8_t { Build, Step, Device, Update, Host, Often, End };
enum class Kind : uint8_t { Object, Call, Event, Filter, Operator };

enum Point : uint32_t {
#define POINT(symbol, name, stage, kind, thread, fields, doc) symbol,
#include "core/plan/points.def"
#undef POINT
  kFirstOperator
};

struct PointRow {
  std::string name;
  Stage stage;
  Kind kind;
  std::string thread, fields, doc;
  std::string from;                      // the plugin that brought the row; empty: the core
  std::vector<std::string> dtypes = {};  // of an operator's results, as plugin.toml has them

  // What a device can run alone, so that it can be recorded and replayed.
  bool is_inside_step() const { return stage == Stage::Device || stage == Stage::Update; }
  // The fields that listeners may write: all of a filter's, what they give to the core inside the step, and columns of
  // a record.
  std::vector<std::string> writable() const;
};

// The core's rows, then one for each operator that the plugins in use bring.
class PointTable {
 public:
  PointTable();
  // A name that is there already keeps its first row.
  uint32_t add_operator(std::string name, std::string fields, std::string doc, std::string from,
                        std::vector<std::string> dtypes = {});
  // -1 if there is none.
  int find(std::string_view name) const;
  std::vector<std::string> names() const;
  const PointRow& operator[](uint32_t index) const { return rows_[index]; }
  uint32_t size() const { return static_cast<uint32_t>(rows_.size()); }

 private:
  std::vector<PointRow> rows_;
};

// Listeners there hear of training only; `record` and `run.end` are of every verb and every mode.
inline bool is_heard_in_training(const PointTable& points, uint32_t point) {
  const Stage stage = points[point].stage;
  return point == kParamsDeclared || point == kRunBegin || stage == Stage::Step || stage == Stage::Device ||
         stage == Stage::Update || stage == Stage::Host;
}

// Of a record: who adds some comes before who reads them, and several may add.
inline constexpr const char* kColumns = "columns";

// Outside to inside.
inline constexpr std::string_view kBands[] = {"watch", "capture", "retain", "repeat", "place", "adapt", "cast"};

}  // namespace mortise
