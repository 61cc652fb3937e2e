#include "formats/safetensors/safetensors.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

namespace mortise {
namespace {

using Json = nlohmann::json;
// Hundred thousand tensors fit; what a hostile header costs in memory stays small.
constexpr uint64_t kMaxHeader = uint64_t{16} << 20;
constexpr size_t kMaxRank = 64, kMaxName = 4096, kMaxMetadata = 65536, kMaxText = size_t{4} << 20, kMaxOther = 4096,
                 kMinEntry = 48;

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw FormatError("bad_safetensors", path, what);
}

size_t dtype_size(const std::string& dtype) {
  static const std::map<std::string, size_t> sizes = {
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4},  {"U32", 4},     {"F16", 2},    {"BF16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

// Takes a header apart while it is parsed and stops at the first thing that is not as the format has it: no tree is
// built, nothing is kept but what the entries hold, and duplicate keys, which a tree no longer shows, are seen.
class Header : public nlohmann::json_sax<Json> {
 public:
  Header(const std::string& path, const char* data, uint64_t room) : path_(path), data_(data), room_(room) {}

  bool start_object(size_t) override {
    if (at_ == At::kStart) return go(At::kHeader);
    if (at_ != At::kHeader) misplaced();
    if (name_ == kMetadata) return go(At::kMetadata);
    entry_ = {};
    entry_.name = name_;
    for (bool& seen : seen_) seen = false;
    sizes_.clear();
    offsets_.clear();
    return go(At::kEntry);
  }
  bool key(string_t& text) override {
    if (text.size() > kMaxName) refuse(path_, "has a name of more than " + std::to_string(kMaxName) + " bytes");
    if (at_ == At::kEntry) {
      key_ = std::ranges::find(kKeys, text) - std::begin(kKeys);
      if (key_ == std::size(kKeys)) refuse(path_, this_tensor() + " has more than dtype, shape and data_offsets");
      if (std::exchange(seen_[key_], true)) twice(text);
    } else {
      if (at_ == At::kHeader && text == kMetadata && std::exchange(has_metadata_, true)) twice(text);
      if (at_ == At::kHeader && text != kMetadata) check_name(text);
      name_ = std::move(text);
    }
    return true;
  }
  bool end_object() override {
    if (at_ == At::kEntry) take_entry();
    return go(at_ == At::kHeader ? At::kEnd : At::kHeader);
  }
  bool start_array(size_t) override {
    if (at_ != At::kEntry || key_ == kDtype) misplaced();
    return go(At::kArray);
  }
  bool end_array() override { return go(At::kEntry); }
  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      if (content.metadata.size() == kMaxMetadata)
        refuse(path_, "has metadata of more than " + std::to_string(kMaxMetadata) + " names");
      if (!content.metadata.emplace(name_, text).second) twice(name_);
    } else {
      if (at_ != At::kEntry || key_ != kDtype) misplaced();
      if (dtype_size(text) == 0)
        refuse(path_, this_tensor() + " has the dtype " + shown(text.substr(0, kMaxName)) + ", which is not known");
      entry_.dtype = text;
    }
    return true;
  }
  bool number_unsigned(number_unsigned_t n) override {
    if (at_ != At::kArray) misplaced();
    if (key_ == kOffsets) {
      if (offsets_.size() == 2) misplaced();
      offsets_.push_back(n);
    } else {
      if (sizes_.size() == kMaxRank)
        refuse(path_, "has a tensor of more than " + std::to_string(kMaxRank) + " dimensions");
      if (n > uint64_t{INT64_MAX}) refuse(path_, this_tensor() + " is larger than any file");
      sizes_.push_back(static_cast<int64_t>(n));
    }
    return true;
  }
  bool null() override { misplaced(); }
  bool boolean(bool) override { misplaced(); }
  bool number_integer(number_integer_t) override { misplaced(); }
  bool number_float(number_float_t, const string_t&) override { misplaced(); }
  bool binary(binary_t&) override { misplaced(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

  TensorFile content;

 private:
  enum class At { kStart, kHeader, kMetadata, kEntry, kArray, kEnd };
  static constexpr std::string_view kMetadata = "__metadata__", kKeys[] = {"dtype", "shape", "data_offsets"};
  enum : size_t { kDtype, kShape, kOffsets };

  bool go(At at) {
    at_ = at;
    return true;
  }
  std::string this_tensor() const { return "tensor " + shown(name_); }
  [[noreturn]] void twice(const std::string& text) const {
    refuse(path_, "its header names " + shown(text) + " twice");
  }
  // A value where it does not belong.
  [[noreturn]] void misplaced() const {
    if (at_ == At::kStart) refuse(path_, "has no JSON object for a header");
    if (at_ == At::kMetadata) refuse(path_, "has metadata that is no text");
    if (at_ == At::kHeader && name_ == kMetadata) refuse(path_, "has metadata that is no object");
    if (at_ == At::kHeader) refuse(path_, this_tensor() + " lacks dtype, shape or data_offsets");
    if (at_ == At::kArray && key_ == kShape)
      refuse(path_, "a dimension of " + this_tensor() + " is not a whole number");
    if (at_ == At::kArray && offsets_.size() < 2)
      refuse(path_, "an offset of " + this_tensor() + " is not a whole number");
    refuse(path_, this_tensor() + " has a dtype, shape or data_offsets of another kind");
  }
  // Any text is a name but what a terminal or a C string would take for something else: it never becomes a path.
  void check_name(const std::string& name) const {
    if (name.empty() || std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      refuse(path_, "tensor " + shown(name) + " has a control character in its name, or none at all");
  }
  void take_entry() {
    if (!seen_[kDtype] || !seen_[kShape] || !seen_[kOffsets])
      refuse(path_, this_tensor() + " lacks dtype, shape or data_offsets");
    if (offsets_.size() != 2) refuse(path_, this_tensor() + " has a dtype, shape or data_offsets of another kind");
    uint64_t bytes = dtype_size(entry_.dtype);
    for (const int64_t n : sizes_)
      if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes))
        refuse(path_, this_tensor() + " is larger than any file");
    const uint64_t begin = offsets_[0], end = offsets_[1];
    if (begin > end || end > room_) refuse(path_, this_tensor() + " lies outside the file");
    if (end - begin != bytes)
      refuse(path_, this_tensor() + " has " + std::to_string(end - begin) + " bytes, its shape needs " +
                        std::to_string(bytes));
    entry_.sizes = sizes_;  // no larger than it is
    entry_.data = data_ + begin;
    entry_.bytes = static_cast<size_t>(bytes);
    content.entries.push_back(std::move(entry_));
  }

  const std::string& path_;
  const char* data_;
  uint64_t room_;
  At at_ = At::kStart;
  std::string name_;  // of the header, or within the metadata
  size_t key_ = 0;    // of the entry that is open
  bool seen_[3] = {}, has_metadata_ = false;
  TensorView entry_;
  std::vector<int64_t> sizes_;
  std::vector<uint64_t> offsets_;
};

// What is known of a header before it is parsed: the parser copies a token, and the white space before it, several
// times to say what is wrong with it.
struct Outline {
  size_t objects = 0, longest_text = 0, longest_other = 0;  // other: numbers, words, spaces
};
Outline outline(std::string_view json) {
  Outline o;
  bool text = false;
  size_t run = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    ++run;
    if (text && c == '\\') {
      ++run, ++i;
    } else if (c == '"') {
      (text ? o.longest_text : o.longest_other) = std::max(text ? o.longest_text : o.longest_other, run);
      text = !text;
      run = 0;
    } else if (!text && std::string_view("{}[]:,").find(c) != std::string_view::npos) {
      o.objects += c == '{';
      o.longest_other = std::max(o.longest_other, run);
      run = 0;
    }
  }
  (text ? o.longest_text : o.longest_other) = std::max(text ? o.longest_text : o.longest_other, run);
  return o;
}

// Names that stand twice; a tree of them would cost more than the entries themselves.
void check_unique(const std::vector<TensorView>& entries, const std::string& path) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const auto& t : entries) names.push_back(t.name);
  std::ranges::sort(names);
  if (const auto at = std::ranges::adjacent_find(names); at != names.end())
    refuse(path, "its header names " + shown(*at) + " twice");
}

}  // namespace

void write_safetensors(const Sink& sink, std::span<const TensorView> tensors, const Metadata& metadata,
                       const std::function<void(size_t)>& body) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump() + ",";
  uint64_t offset = 0;
  for (const auto& t : tensors) {
    text += Json(t.name).dump() + ":{\"dtype\":" + Json(t.dtype).dump() + ",\"shape\":" + Json(t.sizes).dump() +
            ",\"data_offsets\":[" + std::to_string(offset) + "," + std::to_string(offset + t.bytes) + "]},";
    offset += t.bytes;
  }
  if (text.back() == ',') text.pop_back();
  text += "}";
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
    refuse(path, "says that its header has " + std::to_string(length) + " bytes; the file has " +
                     std::to_string(bytes.size()));
  if (length > kMaxHeader)
    refuse(path,
           "has a header of " + std::to_string(length) + " bytes; at most " + std::to_string(kMaxHeader) + " are read");
  const char *header = bytes.data() + 8, *data = header + length, *end = bytes.data() + bytes.size();
  Header reader(path, data, static_cast<uint64_t>(end - data));
  std::string_view json(header, length);
  json = json.substr(0, json.find_last_not_of(' ') + 1);  // padding, as the format has it
  const Outline o = outline(json);
  if (o.longest_text > kMaxText)
    refuse(path, "has a text of more than " + std::to_string(kMaxText) + " bytes in its header");
  reader.content.entries.reserve(
      std::min(o.objects, json.size() / kMinEntry));  // what grows has its old place beside its new one for a while
  const bool ends = json.find('\0') != json.npos;     // to the parser; another reader might go on
  if (!json.starts_with('{') || ends || o.longest_other > kMaxOther ||
      !Json::sax_parse(json.begin(), json.end(), &reader))
    refuse(path, "has no JSON object for a header");
  check_unique(reader.content.entries, path);
  std::ranges::sort(reader.content.entries, {},
                    [](const TensorView& t) { return std::tuple(t.data, t.bytes, std::string_view(t.name)); });
  const char* at = data;
  for (const auto& t : reader.content.entries) {
    if (t.data != at) refuse(path, "has a hole or an overlap before tensor " + shown(t.name) + "");
    at += t.bytes;
  }
  if (at != end) refuse(path, "has " + std::to_string(end - at) + " bytes that belong to no tensor");
  return std::move(reader.content);
}

}  // namespace mortise
