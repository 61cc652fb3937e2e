// Files that a key of the configuration names: refused with what to do instead, read, and told of in a line of the
// plan.
#pragma once
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "mortise/cpp/core.hpp"

namespace mortise::files {

// How many letters have to be put in, taken out or replaced to make one text of the other.
inline size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j)
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])}));
  }
  return row[b.size()];
}

// The file in the same folder whose name is this one but for a letter or two; "".
inline std::string name_beside(std::string_view file) {
  const std::filesystem::path wanted(file);
  std::error_code error;
  std::string near;
  size_t least = 3;
  for (std::filesystem::directory_iterator it(wanted.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (const size_t edits = edits_between(wanted.filename().string(), name);
        edits > 0 && edits < least && edits * 3 <= wanted.stem().string().size())
      least = edits, near = it->path().string();
  }
  return near;
}

// Those that `key` names; at least one.
inline std::vector<std::string_view> of(std::string_view key, std::string_view example) {
  std::vector<std::string_view> all = config::texts(key);
  if (all.empty()) config::refuse(key, "no file is named", std::string(key) + " = \"" + std::string(example) + "\"");
  return all;
}

// The groups of a split: one a pattern of `key`, or a file that was named alone, called by what of its path differs.
class Groups {
 public:
  // `ends`: of each file, the number of samples up to its end.
  void set(std::string_view key, std::span<const int64_t> ends) {
    names_.clear(), groups_.clear();
    const std::vector<std::string_view> texts = config::texts(key);
    int64_t end = 0;
    for (uint32_t i = 0; i < ends.size(); ++i) {
      mortise_str pattern = str(texts[i]);
      if (MORTISE_HAS(api.config, pattern)) check(api.config->pattern(api.host, str(key), i, &pattern));
      if (names_.empty() || names_.back() != view(pattern)) {
        names_.emplace_back(view(pattern));
        groups_.push_back({sizeof(mortise_group), 0, {}, 0});
      }
      groups_.back().samples += ends[i] - std::exchange(end, ends[i]);
    }
    if (names_.empty()) return;
    std::string_view same = names_[0];
    for (const std::string& name : names_) same = {same.begin(), std::ranges::mismatch(same, name).in1};
    const size_t folder = same.rfind('/') + 1;
    for (size_t g = 0; g < names_.size(); ++g) groups_[g].name = str(names_[g].erase(0, folder));
  }
  void give(const mortise_group** groups, uint32_t* n) const {
    *groups = groups_.data();
    *n = static_cast<uint32_t>(groups_.size());
  }

 private:
  std::vector<std::string> names_;
  std::vector<mortise_group> groups_;
};

// Bytes of a file that is there.
inline uint64_t size(std::string_view key, std::string_view file) {
  std::error_code error, ignored;
  const auto bytes = std::filesystem::file_size(file, error);
  if (!error) return bytes;
  if (std::filesystem::is_directory(file, ignored))
    config::refuse(key, std::string(file) + " is a folder",
                   "name its files: " + std::string(key) + " = \"" + std::string(file) + "/*\"");
  if (std::filesystem::exists(file, ignored))
    config::refuse(key, std::string(file) + " is a pipe, a socket or a device: it is read more than once",
                   "write what comes from there into a file, and name that");
  const std::string near = name_beside(file);
  config::refuse(key, std::string(file) + ": " + error.message(),
                 near.empty() ? "a path in a file is relative to that file, one that is typed to the current folder"
                              : "there is " + near);
}

// What a file begins with that has to be decompressed before it is text.
struct Compressed {
  std::string_view begins_with, name, with;
};
inline constexpr Compressed kCompressed[] = {{{"\x1F\x8B", 2}, "gzip", "gunzip"},
                                             {{"\x28\xB5\x2F\xFD", 4}, "Zstandard", "unzstd"},
                                             {{"\xFD\x37zXZ\0", 6}, "xz", "unxz"},
                                             {{"BZh", 3}, "bzip2", "bunzip2"},
                                             {{"PK\3\4", 4}, "zip", "unzip"}};

// A whole file of text, into the memory of the one before.
inline void read(std::string_view key, std::string_view file, std::string& text) {
  text.resize(size(key, file));
  std::ifstream in(std::string(file), std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size())))
    config::refuse(key, std::string(file) + " cannot be read", "check its permissions");
  for (const Compressed& c : kCompressed)
    if (text.starts_with(c.begins_with))
      config::refuse(key, std::string(file) + " is no text: it is compressed (" + std::string(c.name) + ")",
                     "decompress it (" + std::string(c.with) + ") and name the text");
}

inline std::string contents(std::string_view key, std::string_view file) {
  std::string text;
  read(key, file, text);
  return text;
}

// "README.md and 41 others"
inline std::string names(std::span<const std::string_view> all) {
  const auto others = static_cast<int64_t>(all.size()) - 1;
  return std::filesystem::path(all[0]).filename().string() +
         (others == 0 ? "" : " and " + with_commas(others) + (others == 1 ? " other" : " others"));
}

}  // namespace mortise::files
