// mortise init [--list] NAME [-o FILE]: a manifest that is shipped, to begin with. Nothing is overwritten.
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

constexpr std::string_view kYours = "# <--";  // on a line that is to be filled

std::map<std::string, std::string> shipped() {
  std::map<std::string, std::string> texts;
  std::error_code none;  // an installation that lacks them has nothing to list
  for (const auto& entry : fs::directory_iterator(fs::path(installation().share) / "init", none)) {
    std::ifstream in(entry.path());
    texts[entry.path().stem().string()] = std::string(std::istreambuf_iterator<char>(in), {});
  }
  return texts;
}

// The first line of each says what it is for.
int list(const std::map<std::string, std::string>& all) {
  std::vector<Json> rows;
  for (const auto& [name, text] : all) {
    const std::string about = text.substr(2, text.find('\n') - 2);
    if (globals().json) rows.push_back({{"name", name}, {"about", about}});
    else std::cout << fmt::format("{:<21} {}\n", name, about);
  }
  if (globals().json) std::cout << list_text("manifests", rows);
  return kExitOk;
}

[[noreturn]] void refuse_to_write(const std::string& file, int error) {
  throw Failure(error == EEXIST ? trouble(kExitExists, "out_exists", file + " exists; nothing is overwritten", "",
                                          "another file: -o " + shell_word(fs::path(file).stem().string() + "-2.toml"))
                                : trouble(kExitIo, "not_written", file + " cannot be written: " + std::strerror(error),
                                          "", "a folder that is there, and where you may write"));
}

void write_new(const std::string& file, const std::string& text) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) refuse_to_write(file, errno);
  const ssize_t written = ::write(fd, text.data(), text.size());
  const int error = written < 0 ? errno : ENOSPC;
  if (::close(fd) == 0 && written == static_cast<ssize_t>(text.size())) return;
  ::unlink(file.c_str());
  refuse_to_write(file, error);
}

}  // namespace

int init(const Arguments& args) {
  const std::map<std::string, std::string> all = shipped();
  if (args.has("--list") || args.positional.empty()) return list(all);
  const std::string& name = args.positional[0];
  const auto found = all.find(name);
  if (found == all.end()) {
    std::vector<std::string> names;
    for (const auto& [known, text] : all) names.push_back(known);
    const std::string near = nearest(name, names);
    throw Failure(mistake("unknown_manifest", "no manifest `" + name + "` is shipped", {},
                          near.empty() ? "mortise init --list" : "mortise init " + near));
  }
  const std::string& text = found->second;
  const std::string file = args.last("-o", name + ".toml");
  if (file == "-") {
    std::cout << text;
    return kExitOk;
  }
  write_new(file, text);
  int yours = 0;
  for (size_t at = text.find(kYours); at != text.npos; at = text.find(kYours, at + 1)) ++yours;
  if (globals().json) std::cout << text_of({{"file", file}, {"yours", yours}}) << "\n";
  else if (!globals().quiet)
    std::cout << fmt::format("wrote {}; {} marked <-- {} yours to fill: then mortise train {}\n", escape_control(file),
                             yours == 1 ? "one line" : std::to_string(yours) + " lines", yours == 1 ? "is" : "are",
                             shell_word(file));
  return kExitOk;
}

}  // namespace mortise::cli
