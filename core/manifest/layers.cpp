#include "core/manifest/layers.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/path.hpp"

namespace mortise {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostIncludes = 8;  // one inside another
constexpr std::string_view kShipped = "mortise:";

// A file to read, as found and as people type it.
struct Source {
  std::string path;  // absolute
  std::string shown;
  Position from;                         // who asked for it
  std::optional<std::string> text = {};  // if it need not be read
};

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Of the TOML files in a folder, the one whose name without its ending is close to this; "" if none is.
std::string nearest_file(const std::string& stem, const std::string& folder) {
  std::vector<std::string> stems;
  for (const std::string& path : expand_glob(folder + "/*.toml")) stems.push_back(fs::path(path).stem());
  return nearest(stem, stems);
}

// The same path from one of the folders above, or the file's name alone here.
std::string look_around(const std::string& written, const fs::path& folder) {
  std::error_code error;
  std::vector<std::string> candidates = {absolute_path(fs::path(written).filename(), folder)};
  for (fs::path above = folder.parent_path(); candidates.size() < 4; above = above.parent_path())
    candidates.push_back(absolute_path(written, above));
  const auto found =
      std::ranges::find_if(candidates, [&](const std::string& path) { return fs::is_regular_file(path, error); });
  return found == candidates.end() ? "" : *found;
}

std::string written_as(const Value& written, const std::string& file) {
  return written.origin.line == 0 ? "--include " + file : "include = [" + json_string(file) + "]";
}

class LayerReader {
 public:
  LayerReader(const std::string& shipped_dir, Report& report) : shipped_dir_(shipped_dir), report_(report) {}

  // A file that the command line names.
  void read_named(const std::string& file, const std::string& shown, const std::optional<std::string>& known = {}) {
    if (file.empty()) return;
    const fs::path path = absolute_path(file, current_folder());
    if (known || is_there(path)) return read({path, shown, {}, known});
    std::error_code error;
    if (fs::is_symlink(fs::symlink_status(path, error)))
      return missing("file_missing", "`" + file + "` is a link that leads to no file", {"command line", 0, 0, ""},
                     "it leads to " + fs::read_symlink(path, error).string(), "ls -l " + shell_word(file));
    const std::string near = nearest_file(path.stem(), path.parent_path());
    const std::string first = "mortise init NAME -o " + shell_word(file) + "   (mortise init --list has the names)";
    missing("file_missing", "no file `" + file + "`", {"command line", 0, 0, ""}, "looked at " + path.string(),
            near.empty() ? first : "there is " + (fs::path(file).parent_path() / (near + ".toml")).string());
  }

  // The files that one `include` or --include means.
  void include(const Value& written, const std::string& folder, const std::string& asked_by) {
    const std::string& text = written.as_text();
    if (text.starts_with(kShipped)) return include_shipped(written, text.substr(kShipped.size()));
    if (text.empty())
      return missing("include_missing", "an `include` is empty", written.origin, "", written_as(written, "base.toml"));
    Value paths{std::vector<Value>{written}, written.origin};
    resolve_paths(paths, folder, report_);
    // Files beside an absolute one are shown absolute, the others as seen from here.
    const bool absolute = asked_by.starts_with("/") || text.starts_with("/");
    for (const std::string& path : paths.as_texts()) {
      if (is_there(path)) {
        read({path, absolute ? path : fs::path(path).lexically_proximate(current_folder()).string(), written.origin});
        continue;
      }
      const std::string found = look_around(text, folder);
      missing(
          "include_missing", "no file `" + text + "`", written.origin,
          "looked at " + path + (text.starts_with("/") || asked_by.empty() ? "" : " (relative to " + asked_by + ")"),
          found.empty() ? "a path is relative to the file that states it; shipped files are named mortise:NAME"
                        : "there is " + found + ": " + written_as(written, fs::path(found).lexically_relative(folder)));
    }
  }

  std::vector<Layer> layers;

 private:
  void include_shipped(const Value& written, const std::string& name) {
    const std::string path = shipped_dir_ + "/" + name + ".toml";
    if (is_name(name) && is_there(path))
      return read({absolute_path(path, current_folder()), written.as_text(), written.origin});
    const std::string near = nearest_file(name, shipped_dir_);
    missing("include_missing", "no shipped file `" + written.as_text() + "`", written.origin,
            "looked in " + shipped_dir_,
            near.empty() ? "ls " + shipped_dir_ + "   (NAME.toml is mortise:NAME)"
                         : written_as(written, std::string(kShipped) + near));
  }

  void missing(const char* code, const std::string& message, const Position& at, const std::string& looked,
               const std::string& fix) {
    Diagnostic d = mistake(code, message, at, fix);
    d.beside = looked;
    report_.add(std::move(d));
  }

  void read(const Source& source) {
    if (open_.empty()) seen_.clear();
    if (const auto again = std::ranges::find(open_, source.path, &Source::path); again != open_.end()) {
      std::string names;
      for (auto it = again; it != open_.end(); ++it) names += it->shown + " -> ";
      return report_.add(mistake("include_cycle", "`" + source.shown + "` includes itself: " + names + source.shown,
                                 source.from, "remove this include"));
    }
    if (open_.size() > kMostIncludes)
      return report_.add(mistake("include_too_deep", "includes are nested deeper than 8", source.from,
                                 "include `" + source.shown + "` from a file further up"));
    if (!seen_.insert(source.path).second) return;

    std::string text;
    Layer layer{source.shown, fs::path(source.path).parent_path(), {}, {}};
    if (source.text) text = *source.text;
    Report found;
    if (std::optional<TomlTable> root =
            source.text ? parse_toml(text, source.shown, found) : read_toml(source.path, source.shown, found, &text))
      layer.root = std::move(*root);
    for (Diagnostic d : found.all()) {
      if (d.code == "cannot_read" && source.from) d.positions = {source.from};  // what has to be mended is the include
      report_.add(std::move(d));
    }
    layer.lines = split(text, '\n');
    open_.push_back(source);
    KeySchema schema;
    schema.type = "list<path>";
    const TomlNode* files = layer.root.find("include");
    if (const std::optional<Value> checked =
            files != nullptr ? check_value(schema, *files, "include", report_) : std::nullopt)
      for (const Value& file : checked->as_list()) include(file, layer.folder, source.shown);
    open_.pop_back();
    layers.push_back(std::move(layer));
  }

  const std::string& shipped_dir_;
  Report& report_;
  std::vector<Source> open_;  // from the root to the file being read
  std::set<std::string> seen_;
};

// TOML if it is TOML; what is none is text without its quotes, unless it begins like a list or a table.
std::optional<TomlNode> typed_value(const std::string& value, const Position& at, Report& report) {
  const bool bracketed = value.starts_with("[") || value.starts_with("{"),
             quoted = value.starts_with("\"") || value.starts_with("'");
  const bool commented = value.find('#') != std::string::npos && !bracketed && !quoted;
  Report inner;
  const std::optional<TomlTable> parsed = parse_toml("v = " + value, at.file, inner);
  if (!parsed && bracketed) {
    report.add(mistake(inner.all()[0].code, inner.all()[0].message, at,
                       "lists and tables are TOML: --set '" + at.key + "=[\"a\", \"b\"]'"));
    return std::nullopt;
  }
  TomlNode node{value, {}, ""};
  if (parsed && parsed->entries.size() == 1 && !commented) node = parsed->entries[0].value;
  node.at = {at.file, 0, 0};
  if (!bracketed && !quoted) node.typed = value;
  return node;
}

}  // namespace

std::vector<Layer> read_layers(const ManifestRequest& request, Report& report) {
  LayerReader reader(request.shipped_dir, report);
  if (!request.recorded) reader.read_named(request.default_file, fs::path(request.default_file).filename());
  reader.read_named(request.file, request.file, request.text);
  for (const std::string& include : request.includes)
    reader.include({include, {"command line: --include " + include, 0, 0, "include"}}, current_folder(), "");
  return std::move(reader.layers);
}

std::vector<Setting> read_settings(const std::vector<std::string>& set, Report& report) {
  std::vector<Setting> settings;
  for (const std::string& written : set) {
    const size_t equals = written.find('=');
    const Position at{"command line: --set " + written, 0, 0, written.substr(0, equals)};
    const std::string value = equals == std::string::npos ? "" : written.substr(equals + 1);
    if (equals == std::string::npos || std::ranges::count(split(at.key, '.'), "") > 0)
      report.add(mistake("set_syntax", "`" + written + "` is not KEY=VALUE", at, "--set optimizer.lr=3e-4"));
    else if (std::optional<TomlNode> node = typed_value(value, at, report))
      settings.push_back({at, std::move(*node), value == "default"});
  }
  return settings;
}

}  // namespace mortise
