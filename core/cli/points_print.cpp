// The table of points for people, for programs, and for the guide.
#include <ostream>
#include <sstream>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/json.hpp"
#include "core/cli/print.hpp"

namespace mortise::cli {
namespace {

constexpr Stage kStages[] = {Stage::Build, Stage::Step,  Stage::Device, Stage::Update,
                             Stage::Host,  Stage::Often, Stage::End};

std::string_view name_of(Stage stage) {
  constexpr std::string_view kNames[] = {"build", "step", "device", "update", "host", "often", "end"};
  return kNames[static_cast<int>(stage)];
}

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"object", "call", "event", "filter", "operator"};
  return kNames[static_cast<int>(kind)];
}

template <class Visit>
void each_of(const PointTable& table, Stage stage, Visit visit) {
  for (uint32_t i = 0; i < table.size(); ++i)
    if (table[i].stage == stage) visit(table[i]);
}

std::string from_of(const PointRow& row) { return row.from.empty() ? "core" : row.from; }

void print_points_json(std::ostream& out, const PointTable& table) {
  std::vector<std::string> rows;
  for (Stage stage : kStages)
    each_of(table, stage, [&](const PointRow& row) {
      rows.push_back(text_of({{"name", row.name},
                              {"stage", name_of(row.stage)},
                              {"kind", name_of(row.kind)},
                              {"thread", row.thread},
                              {"fields", row.fields},
                              {"doc", row.doc},
                              {"from", from_of(row)}}));
    });
  out << "[" << join(rows, ",\n ") << "]\n";
}

}  // namespace

std::string markdown_cell(std::string_view text) {
  std::string escaped;
  for (char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

void print_points(std::ostream& out, const PointTable& table, bool json) {
  if (json) return print_points_json(out, table);
  Rows rows = {{"point", "kind", "thread", "arguments -> results, or fields", "what it is for", "from"}};
  for (Stage stage : kStages) {
    rows.push_back({std::string(name_of(stage))});
    each_of(table, stage, [&](const PointRow& row) {
      rows.push_back({"  " + row.name, std::string(name_of(row.kind)), row.thread, row.fields, row.doc, from_of(row)});
    });
  }
  print_columns(out, rows);
}

std::string points_markdown(const PointTable& table) {
  std::ostringstream out;
  out << "# The points\n\n"
         "Where a plugin can attach. Generated from `core/plan/points.def` by `mortise points`; operators are rows "
         "that plugins bring.\n\n"
         "An *object* has one provider. A *call* or an *operator* has one provider and can be wrapped. An *event* is "
         "listened to; the listeners of "
         "a\n"
         "*filter* may write its fields. Threads: L the loop's, A autograd's, D a data thread, R any.\n"
         "What stands under *device* and *update* is inside `step`, which a device can run alone: only there can an "
         "attachment say `capture = "
         "true`.\n";
  for (Stage stage : kStages) {
    out << "\n## " << name_of(stage)
        << "\n\n| point | kind | thread | arguments → results, or fields | what it is for | from "
           "|\n|---|---|---|---|---|---|\n";
    each_of(table, stage, [&](const PointRow& row) {
      out << "| `" << row.name << "` | " << name_of(row.kind) << " | " << markdown_cell(row.thread) << " | "
          << markdown_cell(row.fields) << " | " << markdown_cell(row.doc) << " | " << markdown_cell(from_of(row))
          << " |\n";
    });
  }
  out << "\n## bands\n\nWrappers of one point stand in bands, outermost first:";
  for (std::string_view band : kBands) out << " `" << band << "`";
  out << ".\n";
  return out.str();
}

}  // namespace mortise::cli
