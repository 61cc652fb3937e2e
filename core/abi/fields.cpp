#include "core/abi/fields.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/abi/error.hpp"
#include "core/base/dtype.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

constexpr uint32_t kMostFields = 64;
constexpr int64_t kMostBytes = int64_t{1} << 31;  // of one sample, or of one position

template <class Integer>
bool put_integer(double x, std::byte* to) {
  // The highest of 64 bits is no double; the next number is.
  if (x != std::trunc(x) || x < static_cast<double>(std::numeric_limits<Integer>::min()) ||
      x >= std::ldexp(1.0, std::numeric_limits<Integer>::digits))
    return false;
  const auto i = static_cast<Integer>(x);
  std::memcpy(to, &i, sizeof i);
  return true;
}

class Reader {
 public:
  explicit Reader(const std::string& plugin) : plugin_(plugin) {}

  Field read(const mortise_field& f) const {
    Field field;
    field.name = text_of(f.name, plugin_);
    field.unit = text_of(f.unit, plugin_);
    if (field.name.empty()) refuse("has a field without a name");
    if (field.unit == "samples" || field.unit == "one")
      refuse("counts `" + field.name + "` as " + field.unit + ", which the core counts");
    field.dtype = f.dtype;
    field.element = static_cast<size_t>(dtype_bytes(f.dtype));
    if (field.element == 0)
      refuse("gives `" + field.name + "` in the element type " + std::to_string(f.dtype) + ", which is none");
    if (!put_element(f.dtype, f.fill, field.fill.data()))
      refuse("fills `" + field.name + "` with " + formatted("%g", f.fill) + ", which its element type cannot hold");
    read_sizes(f, field);
    return field;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw PluginError(MORTISE_E_PLUGIN, plugin_ + " " + what, plugin_);
  }

 private:
  void read_sizes(const mortise_field& f, Field& field) const {
    if (f.n_sizes > MORTISE_MAX_FIELD_SIZES || (f.n_sizes > 0 && !f.sizes))
      refuse("gives `" + field.name + "` " + std::to_string(f.n_sizes) + (f.sizes ? " sizes" : " sizes, at NULL"));
    field.is_sequence = f.n_sizes > 0 && f.sizes[0] == -1;
    field.sizes.assign(f.sizes + field.is_sequence, f.sizes + f.n_sizes);
    auto bytes = static_cast<int64_t>(field.element);
    for (const int64_t size : field.sizes) {
      if (size < 1)
        refuse("gives `" + field.name + "` a size of " + std::to_string(size) +
               "; sizes are 1 or more, and -1 is for the first alone");
      if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMostBytes)
        refuse("gives `" + field.name + "` sizes of more than " + std::to_string(kMostBytes) + " bytes a sample");
    }
    field.bytes = static_cast<size_t>(bytes);
  }

  const std::string& plugin_;
};

}  // namespace

bool put_element(uint32_t dtype, double x, std::byte* to) {
  switch (dtype) {
    case MORTISE_I64: return put_integer<int64_t>(x, to);
    case MORTISE_I32: return put_integer<int32_t>(x, to);
    case MORTISE_U8: return put_integer<uint8_t>(x, to);
    case MORTISE_BOOL: return (x == 0 || x == 1) && put_integer<uint8_t>(x, to);
    default: return mortise_element_set(dtype, to, x), true;
  }
}

std::vector<Field> fields_of(const Provided<mortise_data>& data) {
  const mortise_data& object = *data.object;
  const Reader reader(data.by->id());
  if (object.n_fields == 0 || object.n_fields > kMostFields || !object.fields)
    reader.refuse("says that a sample has " + std::to_string(object.n_fields) +
                  (object.fields ? " fields" : " fields, at NULL"));
  const uint32_t stride = object.fields->struct_size;
  if (stride < sizeof(mortise_field) || stride > 4096)
    reader.refuse("gives fields of " + std::to_string(stride) + " bytes; in this interface they have " +
                  std::to_string(sizeof(mortise_field)));
  std::vector<Field> all;
  for (uint32_t i = 0; i < object.n_fields; ++i) {
    const char* at = reinterpret_cast<const char*>(object.fields) + size_t{i} * stride;
    Field field = reader.read(*reinterpret_cast<const mortise_field*>(at));
    for (const Field& other : all) {
      if (other.name == field.name) reader.refuse("has two fields `" + field.name + "`");
      if (!field.unit.empty() && other.unit == field.unit)
        reader.refuse("counts both `" + other.name + "` and `" + field.name + "` as " + field.unit);
    }
    all.push_back(std::move(field));
  }
  return all;
}

std::vector<std::string> classes_of(const Provided<mortise_data>& data) {
  if (!data.has(&mortise_data::classes)) return {};
  const mortise_str* names = nullptr;
  uint32_t n = 0;
  data.call(&mortise_data::classes, "classes", &names, &n);
  if (n > 0 && !names) Reader(data.by->id()).refuse("says that it has " + std::to_string(n) + " classes, at NULL");
  std::vector<std::string> all;
  for (uint32_t i = 0; i < n; ++i) {
    all.emplace_back(text_of(names[i], data.by->id()));
    if (all.back().empty()) Reader(data.by->id()).refuse("has a class without a name");
  }
  return all;
}

std::vector<mortise_group> groups_of(const Provided<mortise_data>& data, std::string_view split) {
  const mortise_group* groups = nullptr;
  uint32_t n = 0;
  if (data.has(&mortise_data::groups)) data.call(&mortise_data::groups, "groups", str(split), &groups, &n);
  const Reader reader(data.by->id());
  if (n > 0 && !groups) reader.refuse("says that it has " + std::to_string(n) + " groups, at NULL");
  const uint32_t stride = n > 0 ? groups->struct_size : sizeof(mortise_group);
  if (stride < sizeof(mortise_group) || stride > 4096)
    reader.refuse("gives groups of " + std::to_string(stride) + " bytes; in this interface they have " +
                  std::to_string(sizeof(mortise_group)));
  std::vector<mortise_group> all;
  int64_t together = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const char* at = reinterpret_cast<const char*>(groups) + size_t{i} * stride;
    const mortise_group& group = *reinterpret_cast<const mortise_group*>(at);
    if (text_of(group.name, data.by->id()).empty()) reader.refuse("has a group without a name");
    if (group.samples < 0 || __builtin_add_overflow(together, group.samples, &together))
      reader.refuse("has a group of " + std::to_string(group.samples) + " samples");
    all.push_back(group);
  }
  if (n == 0) all.push_back({sizeof(mortise_group), 0, MORTISE_STR("all"), std::numeric_limits<int64_t>::max()});
  return all;
}

}  // namespace mortise
