// Safetensors: a header of JSON and the bytes of named tensors, nothing that runs. Written so that a reader finds the old file or the new one, never
// a part; read with every check before any byte is used.
// Format: https://github.com/huggingface/safetensors (8 bytes of header length, little-endian; JSON; data without holes or overlaps).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace mortise {

struct TensorView {
  std::string name, dtype;  // dtype as the format writes it: "F32", "BF16", "F64", "I64" …
  std::vector<int64_t> sizes;
  const void* data = nullptr;  // borrowed
  size_t bytes = 0;
};

// Into a file beside `path`, synced and renamed. Throws Failure (exit 74).
void write_safetensors(const std::string& path, std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata);

// A file mapped for reading; the entries point into it. Throws Failure (exit 65) naming the file and what is wrong.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;
  const std::vector<TensorView>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void* map_ = nullptr;
  size_t size_ = 0;
  std::vector<TensorView> entries_;  // in the order of their bytes
  std::map<std::string, std::string> metadata_;
};

}  // namespace mortise
