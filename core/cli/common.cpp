#include "core/cli/common.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <iostream>
#include <sstream>

namespace fs = std::filesystem;

namespace mortise::cli {

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

// Where the file that this code is in lies: the program, or libmortise.so whichever program opened it.
static fs::path own_prefix() {
  Dl_info here{};
  ::dladdr(reinterpret_cast<void*>(&installation), &here);
  const fs::path file = here.dli_fname ? here.dli_fname : "";
  if (file.filename() != "libmortise.so") return fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const fs::path folder = fs::canonical(file).parent_path();  // lib/mortise of an installation, lib of a build tree
  return folder.filename() == "mortise" ? folder.parent_path().parent_path() : folder.parent_path();
}

Installation installation() {
  const fs::path prefix = own_prefix();
  Installation i;
  i.prefix = prefix.string();
  if (fs::exists(prefix / "lib/mortise/plugins")) {  // installed
    i.plugins = (prefix / "lib/mortise/plugins").string();
    i.share = (prefix / "share/mortise").string();
    i.library = (prefix / "lib/mortise/libmortise.so").string();
  } else {  // the build tree lies in the source tree
    i.plugins = (prefix / "plugins").string();
    i.share = MORTISE_SOURCE_CONFIGS;
    i.library = (prefix / "lib/libmortise.so").string();
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

// At once: the ranks of a launcher have one terminal.
template <class Print>
static void write(const Print& print) {
  std::ostringstream text;
  print(text);
  std::cerr << text.str();
}

void say(const Report& report, std::string_view closing) {
  if (globals().json) report.print_json(std::cerr);
  else write([&](std::ostream& out) { report.print(out, globals().colour, closing); });
}

void say_warnings(std::vector<Diagnostic> warnings) {
  if (globals().strict)
    for (Diagnostic& d : warnings) d.level = Level::kError;
  Report report;
  for (Diagnostic& d : warnings) report.add(std::move(d));
  const bool first = world().rank == 0;  // of several ranks, which would all warn
  if (globals().strict || (!globals().quiet && first)) say(report, report.has_errors() ? "nothing was started." : "");
  if (report.has_errors()) throw Failed{report.exit_code()};
}

void say(const Diagnostic& d) {
  if (globals().json) print_json(std::cerr, d);
  else write([&](std::ostream& out) { print(out, d, globals().colour); });
}

}  // namespace mortise::cli
