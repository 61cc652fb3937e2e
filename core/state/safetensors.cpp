#include "core/state/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"
#include "core/state/files.hpp"

namespace mortise {
namespace {

using Json = nlohmann::ordered_json;
constexpr uint64_t kMaxHeader = 100'000'000;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  Diagnostic d;
  d.code = "bad_safetensors";
  d.message = what;
  d.at = path;
  d.effect = "nothing of it was used";
  d.exit = kExitData;
  throw Failure(d);
}

size_t dtype_size(const std::string& dtype) {
  static const std::map<std::string, size_t> sizes = {{"F64", 8},  {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4}, {"U32", 4}, {"F16", 2},
                                                      {"BF16", 2}, {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

// Depth and duplicate keys while parsing, since a parsed tree no longer shows them.
class Checks {
 public:
  std::string error;
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 8) error = "its header is nested deeper than 8";
    if (event == Json::parse_event_t::object_start) keys_.resize(static_cast<size_t>(depth) + 2), keys_[static_cast<size_t>(depth) + 1].clear();
    if (event == Json::parse_event_t::key && depth >= 1) {
      if (keys_.size() <= static_cast<size_t>(depth)) keys_.resize(static_cast<size_t>(depth) + 1);
      const std::string name = parsed.get<std::string>();
      if (!keys_[static_cast<size_t>(depth)].insert(name).second) error = "its header names `" + escape_control(name) + "` twice";
    }
    return error.empty();
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

uint64_t whole(const std::string& path, const Json& v, const std::string& what) {
  if (!v.is_number_unsigned()) refuse(path, what + " is not a whole number");
  return v.get<uint64_t>();
}

TensorView read_entry(const std::string& path, const std::string& name, const Json& j, const char* data, uint64_t room) {
  const std::string shown = "tensor `" + escape_control(name) + "`";
  if (name.empty() || std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse(path, shown + " has a control character in its name, or none at all");
  if (!j.is_object() || !j.contains("dtype") || !j.contains("shape") || !j.contains("data_offsets"))
    refuse(path, shown + " lacks dtype, shape or data_offsets");
  if (!j["dtype"].is_string() || !j["shape"].is_array() || !j["data_offsets"].is_array() || j["data_offsets"].size() != 2)
    refuse(path, shown + " has a dtype, shape or data_offsets of another kind");
  TensorView t;
  t.name = name;
  t.dtype = j["dtype"].get<std::string>();
  uint64_t bytes = dtype_size(t.dtype);
  if (bytes == 0) refuse(path, shown + " has the dtype `" + escape_control(t.dtype) + "`, which is not known");
  for (const auto& d : j["shape"]) {
    const uint64_t n = whole(path, d, "a dimension of " + shown);
    if (n > uint64_t{INT64_MAX} || __builtin_mul_overflow(bytes, n, &bytes)) refuse(path, shown + " is larger than any file");
    t.sizes.push_back(static_cast<int64_t>(n));
  }
  const uint64_t begin = whole(path, j["data_offsets"][0], "an offset of " + shown), end = whole(path, j["data_offsets"][1], "an offset of " + shown);
  if (begin > end || end > room) refuse(path, shown + " lies outside the file");
  if (end - begin != bytes) refuse(path, shown + " has " + std::to_string(end - begin) + " bytes, its shape needs " + std::to_string(bytes));
  t.data = data + begin;
  t.bytes = static_cast<size_t>(bytes);
  return t;
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const auto& t : tensors) {
    header[t.name] = {{"dtype", t.dtype}, {"shape", t.sizes}, {"data_offsets", {offset, offset + t.bytes}}};
    offset += t.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins at a multiple of eight
  const uint64_t length = text.size();
  std::string head(8, '\0');
  for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(length >> (8 * i));
  AtomicFile file(path);
  file.write(head.data(), head.size());
  file.write(text.data(), text.size());
  for (const auto& t : tensors) file.write(t.data, t.bytes);
  file.commit();
}

SafetensorsFile::SafetensorsFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    size_ = static_cast<size_t>(info.st_size);
    map_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map_ == MAP_FAILED) map_ = nullptr;
  }
  ::close(fd);
  try {
    if (!map_ || size_ < 8) refuse(path, "is too short to be safetensors");
    const auto* bytes = static_cast<const char*>(map_);
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    if (length > kMaxHeader || length > size_ - 8)
      refuse(path, "says that its header has " + std::to_string(length) + " bytes; the file has " + std::to_string(size_));
    Checks checks;
    const Json header = Json::parse(bytes + 8, bytes + 8 + length, std::ref(checks), /*allow_exceptions=*/false);
    if (!checks.error.empty()) refuse(path, checks.error);
    if (!header.is_object()) refuse(path, "has no JSON object for a header");
    const char* data = bytes + 8 + length;
    const uint64_t room = size_ - 8 - length;
    for (const auto& [name, j] : header.items()) {
      if (name != "__metadata__") {
        entries_.push_back(read_entry(path, name, j, data, room));
        continue;
      }
      if (!j.is_object()) refuse(path, "has metadata that is no object");
      for (const auto& [key, v] : j.items()) {
        if (!v.is_string()) refuse(path, "has metadata that is no text");
        metadata_[key] = v.get<std::string>();
      }
    }
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const TensorView& a, const TensorView& b) { return a.data < b.data || (a.data == b.data && a.bytes < b.bytes); });
    const char* at = data;
    for (const auto& t : entries_) {
      if (t.data != at) refuse(path, "has a hole or an overlap before tensor `" + escape_control(t.name) + "`");
      at += t.bytes;
    }
    if (at != data + room) refuse(path, "has " + std::to_string(data + room - at) + " bytes that belong to no tensor");
  } catch (...) {
    if (map_) ::munmap(map_, size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  if (map_) ::munmap(map_, size_);
}

}  // namespace mortise
