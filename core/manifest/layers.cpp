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
  std::string path;    // absolute
  std::string shown;
  Position from;       // who asked for it
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
      if (fs::exists(path.as_text(), error)) sources.push_back({path.as_text(), shown, written.origin});
      else add_missing(written, path.as_text(), folder, asked_by);
    }
    return sources;
  }

 private:
  void read(const Source& source) {
    if (const auto again = std::ranges::find(open_, source.path, &Source::path); again != open_.end()) {
      std::vector<std::string> names;
      for (auto it = again; it != open_.end(); ++it) names.push_back(it->shown);
      return refuse("include_cycle", "`" + source.shown + "` includes itself: " + join(names, " -> ") + " -> " + source.shown, source.from, {"remove this include"});
    }
    if (open_.size() > kMostIncludes)
      return refuse("include_too_deep", "includes are nested deeper than 8", source.from, {"include `" + source.shown + "` from a file further up"});
    if (!seen_.insert(source.path).second) return;

    std::string text;
    std::optional<TomlTable> root = read_toml(source.path, source.shown, report_, &text);
    out_.texts[source.shown] = std::move(text);
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
    const std::vector<std::string> there = toml_files(shipped_dir_);
    const std::string near = nearest(name, there);
    Diagnostic d = made("include_missing", "no shipped file `" + written.as_text() + "`", written.origin);
    d.beside = "looked in " + shipped_dir_;
    d.fixes = {near.empty() ? "mortise init --list" : written_as(written, std::string(kShipped) + near)};
    report_.add(std::move(d));
    return {};
  }

  void add_missing(const Value& written, const std::string& path, const std::string& folder, const std::string& asked_by) {
    Diagnostic d = made("include_missing", "no file `" + written.as_text() + "`", written.origin);
    d.beside = "looked at " + path + (written.as_text().starts_with("/") || asked_by.empty() ? "" : " (relative to " + asked_by + ")");
    const std::string found = look_around(written.as_text(), folder);
    if (found.empty()) d.fixes = {"a path is relative to the file that states it; shipped files are named mortise:NAME"};
    else d.fixes = {"there is " + found + ": " + written_as(written, fs::path(found).lexically_relative(folder))};
    report_.add(std::move(d));
  }

  // The same path from one of the folders above, or the file's name alone here.
  static std::string look_around(const std::string& written, const std::string& folder) {
    std::error_code error;
    const std::string name = fs::path(written).filename();
    if (const std::string here = absolute_path(name, folder); fs::is_regular_file(here, error)) return here;
    fs::path above = folder;
    for (int i = 0; i < 3 && above != above.parent_path(); ++i) {
      above = above.parent_path();
      if (const std::string there = absolute_path(written, above); fs::is_regular_file(there, error)) return there;
    }
    return "";
  }

  static std::string written_as(const Value& written, const std::string& file) {
    return written.origin.line == 0 ? "--include " + file : "include = [" + json_string(file) + "]";
  }

  static Diagnostic made(const char* code, const std::string& message, const Position& at) {
    Diagnostic d;
    d.code = code;
    d.message = message;
    d.positions = {at};
    return d;
  }

  void refuse(const char* code, const std::string& message, const Position& at, std::vector<std::string> fixes) {
    Diagnostic d = made(code, message, at);
    d.fixes = std::move(fixes);
    report_.add(std::move(d));
  }

  const std::string& shipped_dir_;
  LayerFiles& out_;
  Report& report_;
  std::vector<Source> open_;   // from the root to the file being read
  std::set<std::string> seen_;
};

bool exists_or_say(const std::string& file, const std::string& path, Report& report) {
  std::error_code error;
  if (fs::exists(path, error)) return true;
  const std::string folder = fs::path(path).parent_path();
  const std::string near = nearest(fs::path(path).stem().string(), toml_files(folder));
  Diagnostic d;
  d.code = "file_missing";
  d.message = "no file `" + file + "`";
  d.beside = "looked at " + path;
  d.positions = {{"command line", 0, 0, ""}};
  d.fixes = {near.empty() ? "mortise init writes a first manifest" : "there is " + (fs::path(file).parent_path() / (near + ".toml")).string()};
  report.add(std::move(d));
  return false;
}

}  // namespace

LayerFiles read_layers(const ManifestRequest& request, Report& report) {
  LayerFiles out;
  LayerReader reader(request.shipped_dir, out, report);
  const std::string here = current_folder();
  if (!request.default_file.empty()) {
    const std::string path = absolute_path(request.default_file, here);
    if (exists_or_say(request.default_file, path, report)) reader.read_root({path, fs::path(path).filename(), {}});
  }
  if (!request.file.empty()) {
    const std::string path = absolute_path(request.file, here);
    if (exists_or_say(request.file, path, report)) reader.read_root({path, request.file, {}});
  }
  for (const std::string& include : request.includes) {
    const Value written{include, {"command line: --include " + include, 0, 0, "include"}};
    if (include.empty()) continue;
    for (const Source& source : reader.find(written, here, "")) reader.read_root(source);
  }
  return out;
}

std::vector<Setting> read_settings(const std::vector<std::string>& set, Report& report) {
  std::vector<Setting> settings;
  for (const std::string& written : set) {
    Setting setting;
    setting.file = "command line: --set " + written;
    const size_t equals = written.find('=');
    setting.path = split(std::string_view(written).substr(0, equals), '.');
    const bool whole = equals != std::string::npos && std::ranges::none_of(setting.path, [](const std::string& part) { return part.empty(); });
    if (!whole) {
      Diagnostic d;
      d.code = "set_syntax";
      d.message = "`" + written + "` is not KEY=VALUE";
      d.positions = {{setting.file, 0, 0, ""}};
      d.fixes = {"--set optimizer.lr=3e-4"};
      report.add(std::move(d));
      continue;
    }
    const std::string value = written.substr(equals + 1);
    setting.to_default = value == "default";
    // TOML if it is TOML; what is none is text without its quotes, unless it begins like a list or a table.
    const bool bracketed = value.starts_with("[") || value.starts_with("{"), quoted = value.starts_with("\"") || value.starts_with("'");
    Report inner;
    std::optional<TomlTable> parsed = parse_toml("v = " + value, setting.file, inner);
    if (parsed && parsed->entries.size() == 1 && (bracketed || quoted || value.find('#') == std::string::npos)) setting.value = std::move(parsed->entries[0].value);
    else if (!parsed && bracketed) {
      Diagnostic d = inner.all().front();
      d.positions = {{setting.file, 0, 0, join(setting.path, ".")}};
      d.fixes = {"lists and tables are TOML: --set '" + join(setting.path, ".") + "=[\"a\", \"b\"]'"};
      report.add(std::move(d));
      continue;
    } else {
      setting.value.data = value;
    }
    setting.value.line = setting.value.column = 0;
    if (!bracketed && !quoted) setting.value.typed = value;
    settings.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace mortise
