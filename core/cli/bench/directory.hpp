// The directory of a bench: results.json, table.md, report.html, and in rows/ of each row its manifest FILE.toml, its
// run directory FILE/ and what it said, FILE.txt.
#pragma once
#include <optional>
#include <string>

#include "core/cli/bench/report.hpp"
#include "core/store/folder_lock.hpp"

namespace mortise::cli {

// Held by one process at a time. Destroyed before keep(), a folder that was made does not stay.
class BenchDirectory {
 public:
  explicit BenchDirectory(std::string path);  // throws Failure: it cannot be made, is in use, or holds anything else
  ~BenchDirectory();
  BenchDirectory(const BenchDirectory&) = delete;
  BenchDirectory& operator=(const BenchDirectory&) = delete;
  void keep() { kept_ = true; }
  const std::string& path() const { return path_; }
  std::string manifest(const std::string& file) const { return path_ + "/rows/" + file + ".toml"; }
  std::string run(const std::string& file) const { return path_ + "/rows/" + file; }
  std::string output(const std::string& file) const { return path_ + "/rows/" + file + ".txt"; }
  const Json& results() const { return results_; }  // of before; null: there are none
  void write(const Bench& bench) const;

 private:
  std::string path_;
  bool made_ = false, kept_ = false;
  std::optional<FolderLock> lock_;
  Json results_;
};

}  // namespace mortise::cli
