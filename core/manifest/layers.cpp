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
  Position from;  // who asked for it
};

std::vector<std::string> toml_files(const std::string& folder) {
  std::vector<std::string> stems;
  for (const std::string& path : expand_glob(folder + "/*.toml")) stems.push_back(fs::path(path).stem());
  return stems;
}

class LayerReader {
 public:
  LayerReader(const std::string& shipped_dir, LayerFiles& out, Report& report) : shipped_dir_(shipped_dir), out_(out), report_(report) {}

  void read_root(const Source& source) {
    seen_.clear();
    read(source);
  }

  // The files that an `include` or --include means.
  std::vector<Source> find(const Value& written, const std::string& folder, const std::string& asked_by) {
    const std::string& text = written.as_text();
    if (text.starts_with(kShipped)) return find_shipped(written, text.substr(kShipped.size()));
    Value paths{std::vector<Value>{written}, written.origin};
    resolve_paths(paths, folder, report_);
    std::vector<Source> sources;
    for (const Value& path : paths.as_list()) {
      // Files beside an absolute one are shown absolute, the others as seen from here.
      const bool absolute = asked_by.starts_with("/") || text.starts_with("/");
      const std::string shown = absolute ? path.as_text() : fs::path(path.as_text()).lexically_proximate(current_folder()).string();
      std::error_code error;
      if (fs::exists(path.as_text(), error))
        sources.push_back({path.as_text(), shown, written.origin});
      else
        add_missing(written, path.as_text(), folder, asked_by);
    }
    return sources;
  }

 private:
  void read(const Source& source) {
    if (const auto again = std::ranges::find(open_, source.path, &Source::path); again != open_.end()) {
      std::vector<std::string> names;
      for (auto it = again; it != open_.end(); ++it) names.push_back(it->shown);
      return report_.add(mistake("include_cycle", "`" + source.shown + "` includes itself: " + join(names, " -> ") + " -> " + source.shown,
                                 source.from, "remove this include"));
    }
    if (open_.size() > kMostIncludes)
      return report_.add(
          mistake("include_too_deep", "includes are nested deeper than 8", source.from, "include `" + source.shown + "` from a file further up"));
    if (!seen_.insert(source.path).second) return;

    std::string text;
    std::optional<TomlTable> root = read_toml(source.path, source.shown, report_, &text);
    out_.lines[source.shown] = split(text, '\n');
    if (!root) root.emplace();  // keeps its place among the layers, for the order of what is said
    const std::string folder = fs::path(source.path).parent_path();
    open_.push_back(source);
    if (const TomlNode* include = root->find("include")) read_includes(*include, source.shown, folder);
    open_.pop_back();
    out_.layers.push_back({source.shown, folder, std::move(*root)});
  }

  void read_includes(const TomlNode& node, const std::string& shown, const std::string& folder) {
    KeySchema schema;
    schema.type = "list<path>";
    const std::optional<Value> files = check_value(schema, node, {shown, "include"}, report_);
    if (!files) return;
    for (const Value& file : files->as_list())
      for (const Source& source : find(file, folder, shown)) read(source);
  }

  std::vector<Source> find_shipped(const Value& written, const std::string& name) {
    const std::string path = shipped_dir_ + "/" + name + ".toml";
    std::error_code error;
    if (is_name(name) && fs::exists(path, error)) return {{absolute_path(path, current_folder()), written.as_text(), written.origin}};
    const std::string near = nearest(name, toml_files(shipped_dir_));
    Diagnostic d = mistake("include_missing", "no shipped file `" + written.as_text() + "`", written.origin,
                           near.empty() ? "mortise init --list" : written_as(written, std::string(kShipped) + near));
    d.beside = "looked in " + shipped_dir_;
    report_.add(std::move(d));
    return {};
  }

  void add_missing(const Value& written, const std::string& path, const std::string& folder, const std::string& asked_by) {
    const std::string found = look_around(written.as_text(), folder);
    Diagnostic d = mistake("include_missing", "no file `" + written.as_text() + "`", written.origin,
                           found.empty() ? "a path is relative to the file that states it; shipped files are named mortise:NAME"
                                         : "there is " + found + ": " + written_as(written, fs::path(found).lexically_relative(folder)));
    d.beside = "looked at " + path + (written.as_text().starts_with("/") || asked_by.empty() ? "" : " (relative to " + asked_by + ")");
    report_.add(std::move(d));
  }

  // The same path from one of the folders above, or the file's name alone here.
  static std::string look_around(const std::string& written, const fs::path& folder) {
    std::error_code error;
    std::vector<std::string> candidates = {absolute_path(fs::path(written).filename(), folder)};
    for (fs::path above = folder.parent_path(); candidates.size() < 4; above = above.parent_path())
      candidates.push_back(absolute_path(written, above));
    const auto found = std::ranges::find_if(candidates, [&](const std::string& path) { return fs::is_regular_file(path, error); });
    return found == candidates.end() ? "" : *found;
  }

  static std::string written_as(const Value& written, const std::string& file) {
    return written.origin.line == 0 ? "--include " + file : "include = [" + json_string(file) + "]";
  }

  const std::string& shipped_dir_;
  LayerFiles& out_;
  Report& report_;
  std::vector<Source> open_;  // from the root to the file being read
  std::set<std::string> seen_;
};

// A file that the command line names.
void read_named(const std::string& file, const std::string& shown, LayerReader& reader, Report& report) {
  if (file.empty()) return;
  const std::string path = absolute_path(file, current_folder());
  std::error_code error;
  if (fs::exists(path, error)) return reader.read_root({path, shown, {}});
  const std::string near = nearest(fs::path(path).stem().string(), toml_files(fs::path(path).parent_path()));
  Diagnostic d =
      mistake("file_missing", "no file `" + file + "`", {"command line", 0, 0, ""},
              near.empty() ? "mortise init writes a first manifest" : "there is " + (fs::path(file).parent_path() / (near + ".toml")).string());
  d.beside = "looked at " + path;
  report.add(std::move(d));
}

}  // namespace

LayerFiles read_layers(const ManifestRequest& request, Report& report) {
  LayerFiles out;
  LayerReader reader(request.shipped_dir, out, report);
  read_named(request.default_file, fs::path(request.default_file).filename(), reader, report);
  read_named(request.file, request.file, reader, report);
  for (const std::string& include : request.includes) {
    const Value written{include, {"command line: --include " + include, 0, 0, "include"}};
    for (const Source& source : reader.find(written, current_folder(), "")) reader.read_root(source);
  }
  return out;
}

namespace {

// TOML if it is TOML; what is none is text without its quotes, unless it begins like a list or a table.
std::optional<TomlNode> typed_value(const std::string& value, const Position& at, Report& report) {
  const bool bracketed = value.starts_with("[") || value.starts_with("{"), quoted = value.starts_with("\"") || value.starts_with("'");
  const bool commented = value.find('#') != std::string::npos && !bracketed && !quoted;
  Report inner;
  std::optional<TomlTable> parsed = parse_toml("v = " + value, at.file, inner);
  TomlNode node;
  if (parsed && parsed->entries.size() == 1 && !commented)
    node = std::move(parsed->entries[0].value);
  else if (parsed || !bracketed)
    node.data = value;
  else {
    Diagnostic d = inner.all().front();
    d.positions = {at};
    d.fixes = {"lists and tables are TOML: --set '" + at.key + "=[\"a\", \"b\"]'"};
    report.add(std::move(d));
    return std::nullopt;
  }
  if (!bracketed && !quoted) node.typed = value;
  return node;
}

}  // namespace

std::vector<Setting> read_settings(const std::vector<std::string>& set, Report& report) {
  std::vector<Setting> settings;
  for (const std::string& written : set) {
    const size_t equals = written.find('=');
    const std::string key = written.substr(0, equals), value = equals == std::string::npos ? "" : written.substr(equals + 1);
    Setting setting{split(key, '.'), {}, value == "default", "command line: --set " + written};
    const Position at{setting.file, 0, 0, key};
    if (equals == std::string::npos || std::ranges::find(setting.path, "") != setting.path.end()) {
      report.add(mistake("set_syntax", "`" + written + "` is not KEY=VALUE", at, "--set optimizer.lr=3e-4"));
    } else if (std::optional<TomlNode> node = typed_value(value, at, report)) {
      setting.value = std::move(*node);
      settings.push_back(std::move(setting));
    }
  }
  return settings;
}

}  // namespace mortise
