#include "core/manifest/path.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/base/text.hpp"

namespace mortise {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(std::string_view text) { return text.find_first_of("*?") != std::string_view::npos; }

// What a run writes is not what it reads: it could not be resumed, and the next one would read it too.
bool is_run_directory(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "sources/origins.json", error) && fs::exists(folder / "run.toml", error);
}

// Of a folder, in no order; nothing if it cannot be read.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::vector<fs::directory_entry> all;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) all.push_back(*it);
  return all;
}

// A wildcard does not mean hidden files unless it says so, and never a run directory. What an entry is, most file
// systems have said with its name: a folder of thousands of files is read without a call for each.
bool matches(const std::string& pattern, const fs::directory_entry& entry) {
  const std::string_view path = entry.path().native();
  const std::string_view name = path.substr(path.rfind('/') + 1);
  std::error_code error;
  return (name[0] != '.' || pattern[0] == '.') && glob_match(pattern, name) &&
         !(entry.is_directory(error) && is_run_directory(entry.path()));
}

void expand(const fs::path& folder, const std::vector<std::string>& parts, size_t at, std::vector<std::string>& found);

void expand_entries(const std::vector<fs::directory_entry>& entries, const std::vector<std::string>& parts, size_t at,
                    std::vector<std::string>& found) {
  std::error_code error;
  for (const fs::directory_entry& entry : entries) {
    if (!matches(parts[at], entry)) continue;
    if (at + 1 == parts.size() && !entry.is_symlink(error)) found.push_back(entry.path());
    else expand(entry.path(), parts, at + 1, found);
  }
}

void expand(const fs::path& folder, const std::vector<std::string>& parts, size_t at, std::vector<std::string>& found) {
  std::error_code error;
  if (at == parts.size()) {
    if (fs::exists(folder, error)) found.push_back(folder);
  } else if (parts[at] == "**") {
    const bool last = at + 1 == parts.size();
    const auto entries = entries_of(folder);
    if (!last && has_wildcard(parts[at + 1]) && parts[at + 1] != "**") expand_entries(entries, parts, at + 1, found);
    else if (!last) expand(folder, parts, at + 1, found);
    for (const fs::directory_entry& entry : entries) {
      // Links are not followed: they may lead back here.
      const bool is_folder = !entry.is_symlink(error) && entry.is_directory(error);
      if ((!is_folder && !last) || !matches("*", entry)) continue;
      if (is_folder) expand(entry, parts, at, found);
      else found.push_back(entry.path());
    }
  } else if (has_wildcard(parts[at])) {
    expand_entries(entries_of(folder), parts, at, found);
  } else {
    expand(folder / parts[at], parts, at + 1, found);
  }
}

// Throws Failure if a variable is not set.
std::string expand_variables(std::string_view text, const Position& at) {
  std::string out;
  for (size_t begin; (begin = text.find("${")) != std::string_view::npos;) {
    out += text.substr(0, begin);
    const size_t end = text.find('}', begin);
    if (end == std::string_view::npos)
      throw Failure(mistake("unset_variable", "`" + std::string(text.substr(begin)) + "` is not closed", at,
                            "${NAME} or ${NAME:-default}"));
    const std::string_view inside = text.substr(begin + 2, end - begin - 2);
    const size_t colon = inside.find(":-");
    const bool has_default = colon != std::string_view::npos;
    const std::string name(inside.substr(0, colon));
    const char* value = std::getenv(name.c_str());
    if (value == nullptr && !has_default)
      throw Failure(mistake("unset_variable", "${" + name + "} is not set in the environment", at,
                            "export " + name + "=/path/to/it   or write ${" + name + ":-/path/to/it}"));
    out += value == nullptr || (*value == '\0' && has_default) ? inside.substr(colon + 2) : std::string_view(value);
    text.remove_prefix(end + 1);
  }
  return out.append(text);
}

std::string expanded(const Value& value, const std::string& folder) {
  std::string path = value.as_text();
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, "${HOME}");
  return absolute_path(expand_variables(path, value.origin), folder);
}

Diagnostic no_match(const Value& value, const std::string& pattern) {
  fs::path folder = pattern;
  while (has_wildcard(folder.string())) folder = folder.parent_path();
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : entries_of(folder))
    if (matches("*", entry)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  if (names.size() > 3) names.resize(3), names.push_back("…");
  std::error_code error;
  const std::string holds = names.empty() ? " is empty" : " holds " + join(names, ", ");
  Diagnostic d =
      mistake("matches_no_file", "`" + value.as_text() + "` matches no file", value.origin,
              fs::is_directory(folder, error) ? folder.string() + holds : "there is no folder " + folder.string());
  d.beside = "looked for " + pattern;
  return d;
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

void resolve_paths(Value& value, const std::string& folder, Report& report, bool keep_unmatched) {
  const bool list = std::holds_alternative<std::vector<Value>>(value.data);
  std::vector<Value> all;
  for (const Value& element : list ? value.as_list() : std::vector<Value>{value}) try {
      const std::string path = expanded(element, folder);
      std::vector<std::string> found = list ? expand_glob(path) : std::vector<std::string>{path};
      const bool is_glob = found != std::vector<std::string>{path};
      if (found.empty() && keep_unmatched) found = {path};
      if (found.empty()) report.add(no_match(element, path));
      for (const std::string& name : found)
        if (!is_utf8(name))
          throw Failure(mistake("not_utf8", "the path " + escape_control(name) + " is not UTF-8", element.origin,
                                "rename it: a run could not record it, and would not be resumed"));
      for (const std::string& name : found) all.push_back({name, element.origin, is_glob ? path : ""});
    } catch (const Failure& failure) {
      report.add(failure.diagnostic);
    }
  if (list) value.data = std::move(all);
  else if (!all.empty()) value = std::move(all[0]);
}

}  // namespace mortise
