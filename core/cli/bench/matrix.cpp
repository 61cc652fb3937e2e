#include "core/cli/bench/matrix.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

constexpr int kMostBelow = 6;  // rows one on another: a manifest takes eight includes, one inside another

constexpr const char* kARow = "a table [[row]] with name = \"vanilla\"";

bool is_bare(const std::string& key) {
  return !key.empty() &&
         std::ranges::all_of(key, [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

std::string quoted_if_needed(const std::string& key) { return is_bare(key) ? key : json_string(key); }

// "+ 8-bit, all" -> "8-bit-all": what is easy to type, and no name of a hidden file.
std::string file_name(const std::string& name) {
  std::string file;
  for (const unsigned char c : name)
    if (std::isalnum(c) || c == '_' || c == '.') file += static_cast<char>(c);
    else if (!file.empty() && file.back() != '-') file += '-';
  while (!file.empty() && (file.back() == '-' || file.back() == '.')) file.pop_back();
  file.erase(0, file.find_first_not_of("-."));
  return file.empty() ? "row" : file.substr(0, 80);
}

class MatrixReader {
 public:
  MatrixReader(std::string folder, const IsPath& is_path, Report& report)
      : folder_(std::move(folder)), is_path_(is_path), report_(report) {}

  Matrix read(const TomlTable& root) {
    const TomlNode *rows = nullptr, *axis = nullptr;
    for (const TomlEntry& entry : root.entries) {
      if (entry.key == "base") base(entry.value);
      else if (entry.key == "warmup") warmup(entry.value);
      else if (entry.key == "row") rows = &entry.value;
      else if (entry.key == "axis") axis = &entry.value;
      else unknown(entry);
    }
    if (matrix_.base.empty() && !report_.has_errors())
      refuse("a matrix names the manifest that its rows lie on", {}, "base = \"run.toml\"");
    if (rows) read_rows(*rows);
    if (axis) read_axes(*axis);
    if (!rows && !axis && !report_.has_errors()) refuse("a matrix has rows or axes", {}, kARow);
    if (axis && !report_.has_errors()) multiply();
    return std::move(matrix_);
  }

 private:
  struct Axis {
    std::string key, shown;
    bool is_family;
    std::vector<const TomlNode*> values;
    TomlPlace at;
  };

  void refuse(const std::string& message, const TomlPlace& at, const std::string& fix) {
    report_.add(mistake("bad_matrix", message, at.line ? position(at) : Position{}, fix));
  }

  void unknown(const TomlEntry& entry) {
    const std::string near = nearest(entry.key, {"base", "warmup", "row", "axis"});
    report_.add(mistake("unknown_key", "a matrix has no key `" + entry.key + "`", position(entry.at),
                        near.empty()     ? "what is the same in every row stands in the base"
                        : near == "row"  ? "[[row]]"
                        : near == "axis" ? "[axis]"
                                         : near));
  }

  const std::string* text(const TomlNode& node, const std::string& key) {
    const std::string* found = node.text();
    if (found && !found->empty()) return found;
    report_.add(mistake("wrong_type", "`" + key + "` is a text, this is " + (found ? "empty" : node.kind()),
                        position(node.at), key + " = \"…\""));
    return nullptr;
  }

  void base(const TomlNode& node) {
    const std::string* written = text(node, "base");
    if (!written) return;
    matrix_.base = (fs::path(folder_) / *written).lexically_normal().string();
    matrix_.base_at = node.at;
    std::error_code error;
    if (fs::is_regular_file(matrix_.base, error)) return;
    Diagnostic d = mistake("file_missing", "no file `" + *written + "`", position(node.at),
                           "a path is relative to the matrix that states it");
    d.beside = "looked at " + matrix_.base;
    report_.add(std::move(d));
  }

  void warmup(const TomlNode& node) {
    const int64_t* steps = std::get_if<int64_t>(&node.data);
    if (!steps || *steps < 0 || *steps > kMostWarmup)
      return report_.add(mistake(steps ? "out_of_range" : "wrong_type",
                                 "`warmup` is a number of steps, 0 to " + with_commas(kMostWarmup), position(node.at),
                                 "warmup = 2"));
    matrix_.warmup = *steps;
  }

  // ---- rows ----

  void read_rows(const TomlNode& node) {
    const TomlList* list = node.list();
    if (!list || std::ranges::any_of(*list, [](const TomlNode& row) { return !row.is_table(); }))
      return refuse("rows are tables of their own", node.at, kARow);
    for (const TomlNode& row : *list) read_row(row);
    if (list->empty()) refuse("a matrix has at least one row", node.at, kARow);
  }

  void read_row(const TomlNode& node) {
    const TomlTable& table = *node.table();
    MatrixRow row;
    const TomlNode* name = table.find("name");
    if (!name) return refuse("a row has a `name`", node.at, "name = \"vanilla\"");
    if (const std::string* written = text(*name, "name")) row.name = *written;
    else return;
    if (find(row.name))
      return refuse("two rows are called `" + row.name + "`", name->at, "another name for one of them");
    for (const TomlEntry& entry : table.entries) {
      if (entry.key == "name") continue;
      if (entry.key == "from") from(entry.value, row);
      else if (entry.key == "program") program(entry.value, row);
      else if (entry.key == "include")
        refuse("a row has no `include`", entry.at, "`from` names a row that lies below it; or include it in the base");
      else flatten(entry, "", row.lines);
    }
    add(std::move(row));
  }

  MatrixRow* find(const std::string& name) {
    const auto found = std::ranges::find(matrix_.rows, name, &MatrixRow::name);
    return found == matrix_.rows.end() ? nullptr : &*found;
  }

  void from(const TomlNode& node, MatrixRow& row) {
    const std::string* name = text(node, "from");
    if (!name) return;
    const MatrixRow* below = find(*name);
    if (!below) {
      std::vector<std::string> names;
      for (const MatrixRow& each : matrix_.rows) names.push_back(each.name);
      const std::string near = nearest(*name, names);
      return refuse("no row further up is called `" + *name + "`", node.at,
                    near.empty() ? "rows lie on rows that stand above them" : "from = " + json_string(near));
    }
    row.below = below->file;
    row.program = row.program.empty() ? below->program : row.program;
    int depth = 1;
    for (const MatrixRow* each = below; !each->below.empty(); ++depth)
      each = &*std::ranges::find(matrix_.rows, each->below, &MatrixRow::file);
    if (depth > kMostBelow)
      refuse("more than " + std::to_string(kMostBelow) + " rows lie one on another", node.at,
             "from = \"…\"   of a row further below, with the keys of those between");
  }

  void program(const TomlNode& node, MatrixRow& row) {
    const std::string* written = text(node, "program");
    if (!written) return;
    row.program = written->find('/') == std::string::npos ? *written  // found beside mortise, or on PATH
                                                          : (fs::path(folder_) / *written).lexically_normal().string();
  }

  void add(MatrixRow row) {
    const std::string file = file_name(row.name);
    row.file = file;
    for (int n = 2; !files_.insert(row.file).second; ++n) row.file = file + "-" + std::to_string(n);
    if (matrix_.rows.size() == kMostRows) refuse("more than 1,000 rows", {}, "fewer rows, or fewer values of an axis");
    if (matrix_.rows.size() <= kMostRows) matrix_.rows.push_back(std::move(row));
  }

  // ---- a layer, a line a key ----

  void flatten(const TomlEntry& entry, const std::string& above, std::vector<RowLine>& lines) {
    const std::string key = above + quoted_if_needed(entry.key);
    const TomlTable* table = entry.value.table();
    if (!table) return line(key, entry.value, entry.at, lines);
    if (table->entries.empty()) lines.push_back({key + " = {}", entry.at, entry.at});
    for (const TomlEntry& inner : table->entries) flatten(inner, key + ".", lines);
  }

  void line(const std::string& key, const TomlNode& node, const TomlPlace& at, std::vector<RowLine>& lines) {
    std::optional<Value> value = plain_value(node, key);
    if (!value)
      return report_.add(mistake("wrong_type", "`" + key + "` is a list of tables", position(at),
                                 "put it into the base, or name its keys: " + key + ".KEY = …"));
    if (is_path_(key)) anchor(*value);
    lines.push_back({key + " = " + value->text(), at, node.at});
  }

  // The manifest of a row lies elsewhere than the matrix.
  void anchor(Value& value) {
    if (auto* list = std::get_if<std::vector<Value>>(&value.data))
      for (Value& each : *list) anchor(each);
    auto* path = std::get_if<std::string>(&value.data);
    if (path && !path->empty() && !path->starts_with("/") && !path->starts_with("~") && !path->starts_with("$"))
      *path = (fs::path(folder_) / *path).lexically_normal().string();
  }

  // ---- axes ----

  void read_axes(const TomlNode& node) {
    if (!node.is_table())
      return refuse("`axis` is one table", node.at, "a table [axis] with data.micro_batch_size = [4, 8]");
    for (const TomlEntry& entry : node.table()->entries) read_axis(entry, "", true);
    if (axes_.empty() && !report_.has_errors()) refuse("`axis` has no key", node.at, "data.micro_batch_size = [4, 8]");
  }

  void read_axis(const TomlEntry& entry, const std::string& above, bool is_family) {
    const std::string key = above + quoted_if_needed(entry.key);
    if (const TomlTable* table = entry.value.table()) {
      for (const TomlEntry& inner : table->entries) read_axis(inner, key + ".", false);
      return;
    }
    const TomlList* list = entry.value.list();
    if (!list || list->empty())
      return refuse("`" + key + "` of [axis] is a list of values to try", entry.value.at, key + " = [4, 8]");
    Axis axis{key, entry.key, is_family, {}, entry.at};
    for (const TomlNode& value : *list) {
      if (is_family && !value.text())
        return refuse("`" + key + "` of [axis] is a family: a list of its plugins", value.at, key + " = [\"NAME\"]");
      axis.values.push_back(&value);
    }
    axes_.push_back(std::move(axis));
  }

  // Every combination on every row; the last axis changes first.
  void multiply() {
    std::map<std::string, int> called;
    for (const Axis& axis : axes_) ++called[axis.shown];
    for (Axis& axis : axes_)
      if (called[axis.shown] > 1) axis.shown = axis.key;
    std::vector<MatrixRow> below = matrix_.rows;
    if (below.empty()) below.push_back({"", ""});
    for (MatrixRow& row : matrix_.rows) row.is_measured = false;
    size_t combinations = 1;
    for (const Axis& axis : axes_)
      if (combinations <= kMostRows) combinations *= axis.values.size();
    for (const MatrixRow& row : below)
      for (size_t i = 0; i < combinations && !report_.has_errors(); ++i) add(combination(row, i));
  }

  MatrixRow combination(const MatrixRow& row, size_t number) {
    std::vector<std::string> names = {row.name};
    if (row.name.empty()) names.clear();
    MatrixRow made{"", "", row.file, row.program};
    std::vector<size_t> picks(axes_.size());
    for (size_t a = axes_.size(); a-- > 0; number /= axes_[a].values.size()) picks[a] = number % axes_[a].values.size();
    for (size_t a = 0; a < axes_.size(); ++a) {
      const Axis& axis = axes_[a];
      const TomlNode& value = *axis.values[picks[a]];
      if (axis.is_family) {
        names.push_back(*value.text());
        made.lines.push_back({axis.key + "." + quoted_if_needed(*value.text()) + " = {}", axis.at, value.at});
      } else {
        if (const auto plain = plain_value(value, axis.key)) names.push_back(axis.shown + " " + plain->text());
        line(axis.key, value, axis.at, made.lines);
      }
    }
    made.name = join(names, ", ");
    return made;
  }

  std::string folder_;
  const IsPath& is_path_;
  Report& report_;
  Matrix matrix_;
  std::vector<Axis> axes_;
  std::set<std::string> files_ = {"latest"};  // a link that every run makes beside its directory
};

}  // namespace

bool is_matrix(const TomlTable& root) {
  return root.find("base") != nullptr || root.find("row") != nullptr || root.find("axis") != nullptr;
}

Matrix matrix_of(const TomlTable& root, const std::string& folder, const IsPath& is_path, Report& report) {
  return MatrixReader(folder, is_path, report).read(root);
}

std::string manifest_of_row(const Matrix& matrix, const MatrixRow& row) {
  std::string text =
      "# A row of a bench: " + escape_control(row.name) + ". `mortise train` of this file trains it alone.\n";
  text += "include = [" +
          (row.below.empty() ? json_string(matrix.base) + ", \"mortise:bench\"" : json_string(row.below + ".toml")) +
          "]\n";
  for (const RowLine& line : row.lines) text += line.text + "\n";
  return text;
}

}  // namespace mortise::cli
