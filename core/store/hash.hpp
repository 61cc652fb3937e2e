// SHA-256, as `sha256sum` writes it.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "core/base/progress.hpp"
#include "core/store/files.hpp"

namespace mortise {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void add(const void* data, size_t bytes);
  std::string hex();  // 64 digits; nothing is added afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_of(const void* data, size_t bytes);
// Of a whole file, or "" if it cannot be read. What is read is added to the progress.
std::string sha256_of_file(const std::string& path, ProgressLine* progress = nullptr);
// The rest of one that is open. Throws Failure (exit 65).
std::string sha256_of_file(RunFile& file, ProgressLine* progress = nullptr);

}  // namespace mortise
