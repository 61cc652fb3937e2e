// Which plugins the folders hold. Nothing of a library is opened here.
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/text.hpp"
#include "core/manifest/check.hpp"
#include "core/manifest/toml.hpp"
#include "core/plugin/plugin_info.hpp"
#include "core/plugin/refuse.hpp"

namespace mortise {
namespace {

namespace fs = std::filesystem;

struct Found {
  std::string id;
  fs::path toml;
};

void warn_of_lone_library(const fs::path& library, Report& report) {
  const std::string id = library.stem();
  report.add(as_warning(plugin_error(id, "plugin_without_toml", id + ".so has no plugin.toml beside it", library,
                                     {"copy its " + id + ".toml there too"}),
                        "it is not seen as a plugin"));
}

// Many systems give each user a group of the same name, and let it write whatever they make.
bool is_group_of_its_owner(const struct stat& status) {
  const passwd* const owner = getpwuid(status.st_uid);
  const std::string name = owner ? owner->pw_name : "";
  const group* const of = getgrgid(status.st_gid);
  return of ? name == of->gr_name : status.st_gid == status.st_uid;
}

// Who else may change what is at `path`; "" if nobody. Links are followed.
std::string other_writers(const fs::path& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) != 0) return "";
  if (status.st_mode & S_IWOTH) return "everybody";
  if (!(status.st_mode & S_IWGRP) || is_group_of_its_owner(status)) return "";
  const group* const of = getgrgid(status.st_gid);
  return "the group " + (of ? std::string(of->gr_name) : std::to_string(status.st_gid));
}

// Once a process: the folders are read more than once.
void warn_if_writable(const fs::path& path, const std::string& what, Report& report) {
  static std::set<fs::path> warned;
  const std::string who = other_writers(path);
  std::error_code ignored;
  if (who.empty() || !warned.insert(fs::canonical(path, ignored)).second) return;
  Diagnostic d = mistake("plugin_writable", what + " may be changed by " + who, {},
                         std::string(who == "everybody" ? "chmod o-w " : "chmod g-w ") + shell_word(path.string()));
  d.at = path;
  report.add(as_warning(std::move(d), "whoever changes it runs code in your trainings"));
}

// A manifest may have such a name too.
bool is_plugin_toml(const fs::path& path) {
  Report quiet;
  const std::optional<TomlTable> root = read_toml(path, path, quiet);
  return root && root->find("plugin");
}

// One entry of a folder, if it is a plugin (files whose name is no id are none of ours): a library with its .toml
// beside it, or a folder of the same name that holds them.
std::optional<Found> plugin_at(const fs::path& path, Report& report) {
  std::error_code ignored;
  const std::string name = path.filename();
  if (fs::is_directory(path, ignored) && is_id(name)) {
    for (const fs::path& toml : {path / (name + ".toml"), path / "plugin.toml"})
      if (fs::exists(toml, ignored)) return Found{name, toml};
    if (const fs::path library = path / (name + ".so"); fs::exists(library, ignored))
      warn_of_lone_library(library, report);
  } else if (path.extension() == ".so" && is_id(path.stem().string())) {
    const fs::path toml = fs::path(path).replace_extension(".toml");
    if (fs::exists(toml, ignored)) return Found{path.stem(), toml};
    warn_of_lone_library(path, report);
  } else if (path.extension() == ".toml" && is_id(path.stem().string()) &&
             !fs::exists(fs::path(path).replace_extension(".so"), ignored) && is_plugin_toml(path)) {
    return Found{path.stem(), path};  // who asks for it is told that its library is missing
  }
  return std::nullopt;
}

// In the order of their names, so that reports do not depend on the file system's.
std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code error;  // a folder of the search path need not exist
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

std::map<std::string, PluginInfo> scan_plugins(const std::vector<std::string>& folders, Report& report) {
  std::map<std::string, PluginInfo> plugins;
  std::map<std::string, fs::path> seen;  // by id, also of those that could not be read
  for (const std::string& folder : folders)
    for (const fs::path& path : entries_of(folder)) {
      const auto found = plugin_at(path, report);
      if (!found) continue;
      const fs::path own = found->toml.parent_path();
      warn_if_writable(folder, "the plugin folder " + folder, report);
      warn_if_writable(own, "the plugin folder " + own.string(), report);
      warn_if_writable(own / (found->id + ".so"), "the library of " + found->id, report);
      const auto [first, is_new] = seen.emplace(found->id, found->toml);
      if (is_new) {
        if (auto info = read_plugin_info(found->toml, found->id, report)) plugins.emplace(found->id, std::move(*info));
      } else if (std::error_code ignored;
                 !fs::equivalent(first->second, found->toml, ignored)) {  // one folder may be named twice
        report.add(plugin_error(found->id, "plugin_twice", "there are two plugins called `" + found->id + "`",
                                first->second.string() + " and " + found->toml.string(),
                                {"remove one of them, or leave its folder out of the plugin path"}));
      }
    }
  return plugins;
}

}  // namespace mortise
