// One file of token ids, mapped into memory: what it is, how many it has, and some of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mortise {

// A whole file, read-only. Owns the mapping.
class Mapping {
 public:
  // Refuses the key whose file it is.
  Mapping(std::string_view key, std::string_view path);
  Mapping(Mapping&& o) noexcept : bytes_(std::exchange(o.bytes_, {})) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// What the manifest says of the files of a key.
struct Expected {
  std::string_view key, format, dtype;  // format may be "auto", dtype ""
};

class TokenFile {
 public:
  // Refuses a file that is none of the formats, or contradicts itself. Reads headers alone.
  TokenFile(std::string path, const Expected& expected);

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  int64_t documents() const { return documents_; }  // 0: it does not say
  // Tokens [first, first + out.size()), as they stand there: whoever takes them checks their range.
  void read(int64_t first, std::span<int64_t> out) const;

 private:
  enum class Dtype { kU8, kU16, kU32, kI32, kI64 };
  static Dtype dtype_of(std::string_view name);
  void read_llmc_header(const Expected&);
  void read_index(const Expected&, const std::string& path);
  void check_index(const Expected&, const std::string& path, const std::byte* lengths, int64_t sequences,
                   int64_t ends) const;
  void take_raw(const Expected&);
  void agree(const Expected&, std::string_view dtype);
  [[noreturn]] void refuse_header(const Expected&) const;
  int64_t width() const;

  std::string path_;
  Mapping mapping_;
  Dtype dtype_ = Dtype::kU16;
  const std::byte* first_ = nullptr;
  int64_t size_ = 0, documents_ = 0;
};

// How many ids there are by the header of a file, if it is llm.c's; else 0.
int64_t vocabulary_by_header(std::string_view path);

}  // namespace mortise
