// Tensors as safetensors, which `model.weights` and every other tool of the field read. A slice has its place in the
// metadata, by its name: "0,0 of 768,2304".
#include <algorithm>
#include <charconv>

#include "formats/safetensors/safetensors.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/dtype.h"

namespace {
using namespace mortise;

constexpr std::string_view kOf = " of ";
constexpr const char *kFormat = "format", *kPt = "pt";  // transformers asks for it

const char* name_of(uint32_t dtype) {
  const char* name = mortise_dtype_of(dtype)->safetensors;
  if (!*name) throw Error(MORTISE_E_ARGUMENT, "there is no dtype " + std::to_string(dtype));
  return name;
}
uint32_t dtype_of(std::string_view name) {
  for (const mortise_dtype_row& row : mortise_dtypes)
    if (name == row.safetensors) return row.dtype;
  return MORTISE_NO_DTYPE;
}

std::string text_of(const int64_t* numbers, uint32_t n) {
  std::string text;
  for (uint32_t i = 0; i < n; ++i) text += (i ? "," : "") + std::to_string(numbers[i]);
  return text;
}

// As many numbers as a tensor has dimensions; anything else is no place of it.
std::vector<int64_t> numbers_of(std::string_view text, size_t n, const std::string& tensor) {
  std::vector<int64_t> numbers(n);
  const char *at = text.data(), *const end = at + text.size();
  for (size_t i = 0; i < n; ++i) {
    if (i > 0 && (at == end || *at++ != ',')) at = end + 1;
    const auto read =
        at <= end ? std::from_chars(at, end, numbers[i]) : std::from_chars_result{at, std::errc::invalid_argument};
    if (read.ec != std::errc()) throw Error(MORTISE_E_DATA, "the place of " + shown(tensor) + " does not fit it");
    at = read.ptr;
  }
  if (at != end) throw Error(MORTISE_E_DATA, "the place of " + shown(tensor) + " does not fit it");
  return numbers;
}

struct Safetensors {
  void write(const mortise_entry* entries, uint32_t n, const mortise_sink* sink) {
    std::vector<TensorView> views;
    Metadata metadata = {{kFormat, kPt}};
    for (const mortise_entry& e : std::span(entries, n)) {
      views.push_back({std::string(view(e.name)), name_of(e.dtype), {e.sizes, e.sizes + e.n_dims}, e.data, e.bytes});
      if (e.offset)
        metadata[views.back().name] = text_of(e.offset, e.n_dims) + std::string(kOf) + text_of(e.whole, e.n_dims);
    }
    write_safetensors([&](const void* data, size_t bytes) { check(sink->write(sink->user, data, bytes)); }, views,
                      metadata);
  }

  void read(const void* data, uint64_t bytes, const mortise_entry_visitor* give) {
    const TensorFile file = parse({static_cast<const char*>(data), bytes});
    for (const TensorView& t : file.entries) {
      mortise_entry e{sizeof e,    dtype_of(t.dtype),
                      str(t.name), static_cast<uint32_t>(t.sizes.size()),
                      0,           t.sizes.data(),
                      nullptr,     nullptr,
                      t.data,      t.bytes};
      std::vector<int64_t> offset, whole;
      const auto place = file.metadata.find(t.name);
      if (place != file.metadata.end() && !(t.name == kFormat && place->second == kPt)) {
        const std::string_view text = place->second;
        const size_t of = std::min(text.find(kOf), text.size());
        offset = numbers_of(text.substr(0, of), t.sizes.size(), t.name);
        whole = numbers_of(text.substr(std::min(of + kOf.size(), text.size())), t.sizes.size(), t.name);
        e.offset = offset.data();
        e.whole = whole.data();
      }
      check(give->entry(give->user, &e));
    }
  }

 private:
  static TensorFile parse(std::string_view bytes) {
    try {
      return parse_safetensors(bytes, "");
    } catch (const FormatError& e) {
      throw Error(MORTISE_E_DATA, e.message);
    }
  }
};

const mortise_format kObject = {sizeof(mortise_format), 0, MORTISE_STR(".safetensors"), thunk<&Safetensors::write>,
                                thunk<&Safetensors::read>};
}  // namespace

MORTISE_PLUGIN(Safetensors, mortise::provide("checkpoint.format", &kObject))
