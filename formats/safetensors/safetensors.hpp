// Safetensors: a header of JSON and the bytes of named tensors, nothing that runs. Written so that a reader finds the
// old file or the new one, never a part; read with every check before any byte is used. Format:
// https://github.com/huggingface/safetensors (8 bytes of header length, little-endian; JSON; data without holes or
// overlaps).
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file.hpp"

namespace mortise {

struct TensorView {
  std::string name, dtype;  // dtype as the format writes it: "F32", "BF16", "F64", "I64" …
  std::vector<int64_t> sizes;
  const void* data = nullptr;  // borrowed
  size_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

// `body` writes the bytes of one of them where they are not at its `data`.
void write_safetensors(const Sink& sink, std::span<const TensorView> tensors, const Metadata& metadata,
                       const std::function<void(size_t index)>& body = {});

struct TensorFile {
  std::vector<TensorView> entries;  // in the order of their bytes, pointing into them
  Metadata metadata;
};
// The bytes of a whole file. Throws FormatError. Takes a few hundred bytes of memory a tensor.
TensorFile parse_safetensors(std::string_view bytes, const std::string& path);

// A file mapped for reading; the entries point into it. Throws as above.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path) : file_(path), content_(parse_safetensors(file_.bytes(), path)) {}
  const std::vector<TensorView>& entries() const { return content_.entries; }
  const Metadata& metadata() const { return content_.metadata; }

 private:
  MappedFile file_;
  TensorFile content_;
};

}  // namespace mortise
