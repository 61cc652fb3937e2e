#include "core/state/safetensors.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;
// Hundred thousand tensors fit; what a hostile header costs in memory stays small.
constexpr uint64_t kMaxHeader = uint64_t{16} << 20;
constexpr size_t kMaxRank = 64;

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
  if (j.size() != 3) refuse(path, shown + " has more than dtype, shape and data_offsets");
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

// Takes a header apart while it is parsed: an entry is read and dropped as soon as it is complete, so that no tree of the whole header is ever built,
// and duplicate keys, which a tree no longer shows, are seen.
class Header {
 public:
  Header(const std::string& path, const char* data, uint64_t room) : path_(path), data_(data), room_(room) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    using E = Json::parse_event_t;
    if (depth > 8) refuse(path_, "its header is nested deeper than 8");
    if (event == E::object_start && depth > 1) refuse(path_, "tensor `" + escape_control(name_) + "` has a dtype, shape or data_offsets of another kind");
    if (depth == 0 && event != E::object_start && event != E::object_end && event != E::key) refuse(path_, "has no JSON object for a header");
    if (event == E::array_start) elements_ = 0;
    if (event == E::value && depth > 2 && ++elements_ > kMaxRank) refuse(path_, "has a tensor of more than " + std::to_string(kMaxRank) + " dimensions");
    if (event == E::key) {
      std::string key = parsed.get<std::string>();
      if (!(depth == 1 ? names_ : keys_).insert(key).second) refuse(path_, "its header names `" + escape_control(key) + "` twice");
      if (depth == 1) name_ = std::move(key);
    }
    if (depth != 1 || event == E::key || event == E::object_start || event == E::array_start) return true;
    keys_.clear();
    if (name_ == "__metadata__") read_metadata(parsed);
    else content.entries.push_back(read_entry(path_, name_, parsed, data_, room_));
    return false;
  }
  TensorFile content;

 private:
  void read_metadata(const Json& j) {
    if (!j.is_object()) refuse(path_, "has metadata that is no object");
    for (const auto& [key, v] : j.items()) {
      if (!v.is_string()) refuse(path_, "has metadata that is no text");
      content.metadata[key] = v.get<std::string>();
    }
  }

  const std::string& path_;
  const char* data_;
  uint64_t room_;
  std::string name_;
  std::set<std::string> names_, keys_;  // of the header; of the object that is open
  size_t elements_ = 0;
};

}  // namespace

void write_safetensors(const Sink& sink, std::span<const TensorView> tensors, const Metadata& metadata, const std::function<void(size_t)>& body) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
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
  sink(head.data(), head.size());
  sink(text.data(), text.size());
  for (size_t i = 0; i < tensors.size(); ++i) body ? body(i) : sink(tensors[i].data, tensors[i].bytes);
}

TensorFile parse_safetensors(std::string_view bytes, const std::string& path) {
  if (bytes.size() < 8) refuse(path, "is too short to be safetensors");
  uint64_t length = 0;
  for (size_t i = 0; i < 8; ++i) length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (length > bytes.size() - 8)
    refuse(path, "says that its header has " + std::to_string(length) + " bytes; the file has " + std::to_string(bytes.size()));
  if (length > kMaxHeader) refuse(path, "has a header of " + std::to_string(length) + " bytes; at most " + std::to_string(kMaxHeader) + " are read");
  const char *header = bytes.data() + 8, *data = header + length, *end = bytes.data() + bytes.size();
  Header reader(path, data, static_cast<uint64_t>(end - data));
  const Json rest = Json::parse(header, data, std::ref(reader), /*allow_exceptions=*/false);
  if (!rest.is_object()) refuse(path, "has no JSON object for a header");
  std::ranges::stable_sort(reader.content.entries, {}, [](const TensorView& t) { return std::pair(t.data, t.bytes); });
  const char* at = data;
  for (const auto& t : reader.content.entries) {
    if (t.data != at) refuse(path, "has a hole or an overlap before tensor `" + escape_control(t.name) + "`");
    at += t.bytes;
  }
  if (at != end) refuse(path, "has " + std::to_string(end - at) + " bytes that belong to no tensor");
  return std::move(reader.content);
}

}  // namespace mortise
