// Formats  llm.c     256 int32 (magic, version, number of tokens), then the tokens: dev/data/data_common.py
//          Megatron  PREFIX.bin holds the tokens alone, PREFIX.idx says their type and where sequences and documents
//                    end: megatron/core/datasets/indexed_dataset.py
//          raw       the tokens alone, as nanoGPT's data/*/prepare.py writes them with numpy's tofile
// All little-endian, as this machine is.
#include "token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "mortise/cpp/files.hpp"

namespace mortise {
namespace {

struct LlmcFormat {
  int32_t magic, version;
  std::string_view dtype;
  int64_t vocabulary;  // of the tokenizer that the magic stands for
};
constexpr LlmcFormat kLlmc[] = {{20240520, 1, "uint16", 50257}, {20240801, 7, "uint32", 128256}};
constexpr size_t kLlmcHeader = 256 * sizeof(int32_t);

const LlmcFormat* llmc_format(int32_t magic) {
  const auto* found = std::ranges::find(kLlmc, magic, &LlmcFormat::magic);
  return found == std::end(kLlmc) ? nullptr : found;
}

// Megatron's numbers of element types; those that hold ids.
struct MegatronType {
  uint8_t code;
  std::string_view dtype;
};
constexpr MegatronType kMegatronTypes[] = {{1, "uint8"}, {4, "int32"}, {5, "int64"}, {8, "uint16"}};
constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr size_t kIndexHeader = 9 + 8 + 1 + 8 + 8;  // magic, version, type, sequences, documents

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
template <class T>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int64_t>(load<T>(from + i * sizeof(T)));
}

std::string bytes_text(size_t n) { return with_commas(static_cast<int64_t>(n)) + " bytes"; }

[[noreturn]] void refuse(const Expected& e, const std::string& why, const std::string& fix) {
  config::refuse({.code = "bad_token_file", .key = e.key, .why = why, .beside = "", .fix = fix});
}
constexpr const char* kCopyAgain = "copy the file again, or write it again with the program that made it";

}  // namespace

Mapping::Mapping(std::string_view key, std::string_view path) {
  const uint64_t size = files::size(key, path);
  if (size == 0) return;
  const int file = open(std::string(path).c_str(), O_RDONLY | O_CLOEXEC);
  void* at = file < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  if (file >= 0) close(file);
  if (at == MAP_FAILED)
    config::refuse(key, std::string(path) + " cannot be mapped into memory: " + std::strerror(error),
                   "check its permissions, and `ulimit -v`");
  bytes_ = {static_cast<const std::byte*>(at), size};
}

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

TokenFile::TokenFile(std::string path, const Expected& e) : path_(std::move(path)), mapping_(e.key, path_) {
  const auto bytes = mapping_.bytes();
  const std::string index = std::filesystem::path(path_).replace_extension(".idx");
  const bool is_llmc = bytes.size() >= sizeof(int32_t) && llmc_format(load<int32_t>(bytes.data()));
  std::error_code error;
  if (e.format == "raw") take_raw(e);
  else if (e.format != "megatron" && is_llmc) read_llmc_header(e);
  else if (e.format != "llmc" && std::filesystem::exists(index, error)) read_index(e, index);
  else if (e.format == "megatron")
    refuse(e, path_ + " has no index beside it, " + index, "copy the .idx file that Megatron wrote with it");
  else refuse_header(e);
}

void TokenFile::refuse_header(const Expected& e) const {
  const auto bytes = mapping_.bytes();
  const std::string first = bytes.size() < sizeof(int32_t)
                                ? "it has " + bytes_text(bytes.size())
                                : "first int32 is " + with_commas(load<int32_t>(bytes.data())) + ", expected " +
                                      std::to_string(kLlmc[0].magic) + " or " + std::to_string(kLlmc[1].magic);
  config::refuse({.code = "no_token_header",
                  .key = e.key,
                  .why = path_ + " does not begin with an llm.c header (" + first + ")",
                  .beside = "",
                  .fix = "if these are bare token ids (nanoGPT's train.bin): set data.tokens.format = \"raw\", "
                         "data.tokens.dtype = \"uint16\"; if they are Megatron's: the .idx file must lie beside the "
                         ".bin"});
}

TokenFile::Dtype TokenFile::dtype_of(std::string_view name) {
  constexpr std::string_view kNames[] = {"uint8", "uint16", "uint32", "int32", "int64"};
  return static_cast<Dtype>(std::ranges::find(kNames, name) - kNames);
}

int64_t TokenFile::width() const {
  constexpr int64_t kWidths[] = {1, 2, 4, 4, 8};
  return kWidths[static_cast<size_t>(dtype_)];
}

// Takes what the file says of its type, unless the manifest says another one.
void TokenFile::agree(const Expected& e, std::string_view dtype) {
  if (!e.dtype.empty() && e.dtype != dtype)
    config::refuse("dtype", path_ + " says that its ids are " + std::string(dtype), "leave `dtype` out");
  dtype_ = dtype_of(dtype);
}

void TokenFile::read_llmc_header(const Expected& e) {
  const auto bytes = mapping_.bytes();
  const auto field = [&](size_t i) { return load<int32_t>(bytes.data() + i * sizeof(int32_t)); };
  if (bytes.size() < kLlmcHeader)
    refuse(e, path_ + " ends inside its header of " + bytes_text(kLlmcHeader) + ": it has " + bytes_text(bytes.size()),
           kCopyAgain);
  const LlmcFormat& format = *llmc_format(field(0));
  if (field(1) != format.version)
    refuse(e,
           path_ + " is of version " + std::to_string(field(1)) + " of llm.c's format, known is " +
               std::to_string(format.version),
           "write it again with llm.c's dev/data scripts");
  agree(e, format.dtype);
  size_ = field(2);
  if (size_ < 0 || static_cast<size_t>(size_ * width()) + kLlmcHeader != bytes.size())
    refuse(e,
           path_ + " says that it has " + with_commas(size_) + " tokens, which are " +
               with_commas(static_cast<int64_t>(kLlmcHeader) + size_ * width()) + " bytes with its header; it has " +
               bytes_text(bytes.size()),
           kCopyAgain);
  first_ = bytes.data() + kLlmcHeader;
}

void TokenFile::take_raw(const Expected& e) {
  const auto bytes = mapping_.bytes();
  if (e.dtype.empty())
    config::refuse("format", "bare ids do not say how they are stored", "dtype = \"uint16\", as nanoGPT writes them");
  if (bytes.size() >= kLlmcHeader && llmc_format(load<int32_t>(bytes.data())))
    config::refuse("format", path_ + " begins with an llm.c header, which would be read as tokens",
                   "format = \"auto\"");
  dtype_ = dtype_of(e.dtype);
  if (bytes.size() % static_cast<size_t>(width()) != 0)
    refuse(e, path_ + " has " + bytes_text(bytes.size()) + ", no whole number of " + std::string(e.dtype),
           "another dtype; or it is cut short: copy the file again");
  first_ = bytes.data();
  size_ = static_cast<int64_t>(bytes.size()) / width();
}

// The sequences lie one behind the other and fill the file; the documents end at sequences, each behind the one before.
// 12 bytes a sequence and 8 a document are read, once.
void TokenFile::check_index(const Expected& e, const std::string& path, const std::byte* at, int64_t sequences,
                            int64_t ends) const {
  const auto says = [&](int64_t i, const char* of, const std::string& what) {
    refuse(e, path + " says that " + of + " " + with_commas(i) + " " + what, kCopyAgain);
  };
  const std::byte *begins = at + sequences * 4, *documents = begins + sequences * 8;
  const auto bytes = static_cast<int64_t>(mapping_.bytes().size());
  int64_t end = 0;
  for (int64_t i = 0; i < sequences; ++i) {
    const auto length = load<int32_t>(at + i * 4);
    const auto begin = load<int64_t>(begins + i * 8);
    if (length < 0) says(i, "sequence", "has " + with_commas(length) + " tokens");
    if (begin != end)
      says(i, "sequence", "begins at byte " + with_commas(begin) + "; the one before ends at " + with_commas(end));
    end += length * width();
    if (end > bytes) break;  // so it never overflows
  }
  if (end != bytes || bytes % width() != 0)
    refuse(e,
           path + " is not that of " + path_ + ": by it the tokens end at byte " + with_commas(end) + ", the file at " +
               with_commas(bytes),
           kCopyAgain);
  for (int64_t i = 0, before = 0; i < ends; ++i) {
    const auto document = load<int64_t>(documents + i * 8);
    if (document < before || document > sequences || (i == 0 && document != 0))
      says(i, "document", "begins at sequence " + with_commas(document) + " of " + with_commas(sequences));
    before = document;
  }
}

void TokenFile::read_index(const Expected& e, const std::string& path) {
  const Mapping mapping(e.key, path);
  const auto index = mapping.bytes();
  const auto says = [&](const std::string& what) { refuse(e, path + " " + what, kCopyAgain); };
  if (index.size() < kIndexHeader || std::memcmp(index.data(), kIndexMagic.data(), kIndexMagic.size()) != 0)
    says("is no index of Megatron's: it does not begin with MMIDIDX");
  if (const auto version = load<uint64_t>(index.data() + 9); version != 1)
    says("is of version " + std::to_string(version) + ", known is 1");
  const auto code = load<uint8_t>(index.data() + 17);
  const auto* type = std::ranges::find(kMegatronTypes, code, &MegatronType::code);
  if (type == std::end(kMegatronTypes))
    says("says that ids are of type " + std::to_string(code) +
         "; known are 1 (uint8), 4 (int32), 5 (int64), 8 (uint16)");
  agree(e, type->dtype);

  // The lengths of sequences, int32; where they begin, int64; the sequences that end documents, int64, a 0 before them.
  const auto sequences = load<uint64_t>(index.data() + 18), ends = load<uint64_t>(index.data() + 26);
  if (sequences > index.size() / 12 || ends > index.size() / 8 ||
      index.size() < kIndexHeader + sequences * 12 + ends * 8)
    says("ends before its " + std::to_string(sequences) + " sequences and " + std::to_string(ends) + " documents");
  check_index(e, path, index.data() + kIndexHeader, static_cast<int64_t>(sequences), static_cast<int64_t>(ends));
  first_ = mapping_.bytes().data();
  size_ = static_cast<int64_t>(mapping_.bytes().size()) / width();
  documents_ = static_cast<int64_t>(std::max<uint64_t>(ends, 1)) - 1;
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  const std::byte* from = first_ + first * width();
  switch (dtype_) {
    case Dtype::kU8: return widen<uint8_t>(from, out);
    case Dtype::kU16: return widen<uint16_t>(from, out);
    case Dtype::kU32: return widen<uint32_t>(from, out);
    case Dtype::kI32: return widen<int32_t>(from, out);
    case Dtype::kI64: return widen<int64_t>(from, out);
  }
}

int64_t vocabulary_by_header(std::string_view path) {
  std::array<int32_t, 2> header = {};
  std::ifstream in(std::string(path), std::ios::binary);
  in.read(reinterpret_cast<char*>(header.data()), sizeof header);
  const LlmcFormat* format = in ? llmc_format(header[0]) : nullptr;
  return format && format->version == header[1] ? format->vocabulary : 0;
}

}  // namespace mortise
