#include "core/manifest/path.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/base/text.hpp"

namespace mortise {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?") != std::string_view::npos; }

// Of a folder, in no order; nothing if it cannot be read. A wildcard does not mean hidden files unless it says so.
std::vector<fs::path> matching_entries(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename();
    if ((name[0] != '.' || pattern[0] == '.') && glob_match(pattern, name)) found.push_back(it->path());
  }
  return found;
}

void expand(const fs::path& folder, const std::vector<std::string>& parts, size_t at, std::vector<std::string>& found) {
  std::error_code error;
  if (at == parts.size()) {
    if (fs::exists(folder, error)) found.push_back(folder);
  } else if (parts[at] == "**") {
    if (at + 1 < parts.size()) expand(folder, parts, at + 1, found);
    // Links are not followed: they may lead back here.
    for (const fs::path& entry : matching_entries(folder, "*")) {
      if (fs::is_directory(fs::symlink_status(entry, error))) expand(entry, parts, at, found);
      else if (at + 1 == parts.size()) found.push_back(entry);
    }
  } else if (has_wildcard(parts[at])) {
    for (const fs::path& entry : matching_entries(folder, parts[at])) expand(entry, parts, at + 1, found);
  } else {
    expand(folder / parts[at], parts, at + 1, found);
  }
}

void add_unset(const Value& at, const std::string& message, std::vector<std::string> fixes, Report& report) {
  Diagnostic d;
  d.code = "unset_variable";
  d.message = message;
  d.positions = {at.origin};
  d.fixes = std::move(fixes);
  report.add(std::move(d));
}

// ${NAME} and ${NAME:-default}; nothing and a diagnostic if one is not set.
std::optional<std::string> expand_variables(std::string_view text, const Value& at, Report& report) {
  std::string out;
  for (size_t begin; (begin = text.find("${")) != std::string_view::npos;) {
    out += text.substr(0, begin);
    const size_t end = text.find('}', begin);
    if (end == std::string_view::npos) {
      add_unset(at, "`" + std::string(text.substr(begin)) + "` is not closed", {"${NAME} or ${NAME:-default}"}, report);
      return std::nullopt;
    }
    const std::string_view inside = text.substr(begin + 2, end - begin - 2);
    const size_t colon = inside.find(":-");
    const std::string name(inside.substr(0, colon));
    if (const char* value = std::getenv(name.c_str()); value != nullptr && (*value != '\0' || colon == std::string_view::npos)) {
      out += value;
    } else if (colon != std::string_view::npos) {
      out += inside.substr(colon + 2);
    } else {
      add_unset(at, "${" + name + "} is not set in the environment", {"export " + name + "=/path/to/it   or write ${" + name + ":-/path/to/it}"}, report);
      return std::nullopt;
    }
    text.remove_prefix(end + 1);
  }
  return out.append(text);
}

std::optional<std::string> expanded(const Value& value, const std::string& folder, Report& report) {
  std::optional<std::string> path = expand_variables(value.as_text(), value, report);
  if (!path) return std::nullopt;
  if (*path == "~" || path->starts_with("~/")) {
    const char* home = std::getenv("HOME");
    if (home == nullptr) {
      add_unset(value, "${HOME} is not set in the environment, which ~/ needs", {"export HOME=/path/to/it"}, report);
      return std::nullopt;
    }
    path->replace(0, 1, home);
  }
  return absolute_path(*path, folder);
}

void add_no_match(const Value& value, const std::string& pattern, Report& report) {
  fs::path folder = pattern;
  while (has_wildcard(folder.string())) folder = folder.parent_path();
  std::error_code error;
  const bool there = fs::is_directory(folder, error);
  Diagnostic d;
  d.code = "matches_no_file";
  d.message = "`" + value.as_text() + "` matches no file";
  d.positions = {value.origin};
  d.beside = "looked for " + pattern;
  if (!there) {
    d.fixes = {"there is no folder " + folder.string()};
  } else {
    std::vector<std::string> names;
    for (const fs::path& entry : matching_entries(folder, "*")) names.push_back(entry.filename());
    std::ranges::sort(names);
    if (names.size() > 3) names.resize(3), names.push_back("…");
    d.fixes = {folder.string() + (names.empty() ? " is empty" : " holds " + join(names, ", "))};
  }
  report.add(std::move(d));
}

}  // namespace

std::string current_folder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  return error ? "/" : folder.string();
}

std::string absolute_path(const std::string& path, const std::string& folder) {
  std::string normal = (fs::path(folder) / path).lexically_normal();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

std::vector<std::string> expand_glob(const std::string& pattern) {
  std::error_code error;
  if (!has_wildcard(pattern) || fs::exists(pattern, error)) return {pattern};
  const bool absolute = pattern[0] == '/';
  std::vector<std::string> found;
  expand(absolute ? "/" : "", split(std::string_view(pattern).substr(absolute ? 1 : 0), '/'), 0, found);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void resolve_paths(Value& value, const std::string& folder, Report& report) {
  if (std::holds_alternative<std::string>(value.data)) {
    if (std::optional<std::string> path = expanded(value, folder, report)) value.data = std::move(*path);
    return;
  }
  if (!std::holds_alternative<std::vector<Value>>(value.data)) return;
  std::vector<Value> all;
  for (const Value& element : value.as_list()) {
    const std::optional<std::string> path = expanded(element, folder, report);
    if (!path) continue;
    const std::vector<std::string> found = expand_glob(*path);
    if (found.empty()) add_no_match(element, *path, report);
    for (const std::string& name : found) all.push_back({name, element.origin});
  }
  value.data = std::move(all);
}

}  // namespace mortise
