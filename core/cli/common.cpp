#include "core/cli/common.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>


#include "core/base/text.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {

const std::vector<Flag> kLayerFlags = {{"--set", "K=V", "set a key of something that is on; `default` as value returns to the default"},
                                       {"--use", "ID", "switch a plugin on"},
                                       {"--without", "ID", "switch a plugin off"},
                                       {"--include", "FILE", "a further layer above the file"},
                                       {"--plugin-path", "DIR", "a further folder with plugins"}};

std::string Arguments::last(const std::string& name, const std::string& otherwise) const {
  const auto found = flags.find(name);
  return found == flags.end() || found->second.empty() ? otherwise : found->second.back();
}

const std::vector<std::string>& Arguments::all(const std::string& name) const {
  static const std::vector<std::string> none;
  const auto found = flags.find(name);
  return found == flags.end() ? none : found->second;
}

Globals& globals() {
  static Globals g;
  return g;
}

Installation installation() {
  const fs::path prefix = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  Installation i;
  i.prefix = prefix.string();
  if (fs::exists(prefix / "lib/mortise/plugins")) {  // installed
    i.plugins = (prefix / "lib/mortise/plugins").string();
    i.share = (prefix / "share/mortise").string();
  } else {  // the build tree lies in the source tree
    i.plugins = (prefix / "plugins").string();
    i.share = MORTISE_SOURCE_CONFIGS;
  }
  i.probe = (prefix / "bin/mortise-probe").string();
  return i;
}

ManifestRequest manifest_request(const Arguments& args, const std::string& file) {
  const Installation here = installation();
  ManifestRequest r;
  r.file = file;
  r.default_file = here.share + "/default.toml";
  r.shipped_dir = here.share;
  r.includes = args.all("--include");
  r.set = args.all("--set");
  r.use = args.all("--use");
  r.without = args.all("--without");
  return r;
}

std::map<std::string, PluginInfo> catalogue(const Arguments& args, const ManifestRequest* request, std::vector<std::string>& searched, Report& report) {
  std::vector<std::string> folders;
  if (request) folders = plugin_paths_of(*request);
  for (const auto& dir : args.all("--plugin-path")) folders.push_back(fs::absolute(dir).string());
  if (const char* path = std::getenv("MORTISE_PLUGIN_PATH"))
    for (const auto& dir : split(path, ':'))
      if (!dir.empty()) folders.push_back(dir);
  if (const char* home = std::getenv("HOME")) folders.push_back(std::string(home) + "/.local/share/mortise/plugins");
  folders.push_back(installation().plugins);
  searched = folders;
  return scan_plugins(folders, report);
}

namespace {

// A fact of plugin.toml says what a plugin cannot start without: [needs] file = "/dev/…".
std::string can_start(const PluginInfo& info) {
  const auto needs = info.facts.find("needs");
  if (needs == info.facts.end()) return "";
  const auto file = needs->second.find("file");
  if (file == needs->second.end() || fs::exists(file->second.as_text())) return "";
  const auto why = needs->second.find("why");
  return why == needs->second.end() ? "no " + file->second.as_text() : why->second.as_text();
}

}  // namespace

std::unique_ptr<Planned> make_planned(const Arguments& args, const std::string& file) {
  auto p = std::make_unique<Planned>();
  Report report;
  p->request = manifest_request(args, file);
  p->catalogue = catalogue(args, &p->request, p->request.searched, report);
  for (const auto& [id, info] : p->catalogue) p->schemas[id] = info.schema;
  p->request.catalogue = &p->schemas;
  p->manifest = read_manifest(p->request, report);
  // The plan's own mistakes are worth showing with the manifest's: a missing model beside a mistyped key.
  p->plan = make_plan(p->manifest, p->catalogue, can_start, report);
  if (report.has_errors() || (globals().strict && !report.all().empty())) {
    say(report, "nothing was started.");
    throw Failed{report.has_errors() ? report.exit_code() : kExitUsage};
  }
  if (!globals().quiet) say(report, "");
  return p;
}

void say(const Report& report, std::string_view closing) {
  if (globals().json) report.print_json(std::cerr);
  else report.print(std::cerr, globals().colour, closing);
}

void say(const Diagnostic& d) {
  if (globals().json) print_json(std::cerr, d);
  else print(std::cerr, d, globals().colour);
}

}  // namespace mortise::cli
