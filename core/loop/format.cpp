#include "core/loop/format.hpp"

#include <ATen/ops/from_blob.h>

#include <charconv>
#include <exception>

#include "core/base/text.hpp"
#include "core/host/handle.hpp"

namespace mortise {
namespace {

constexpr std::pair<at::ScalarType, const char*> kNames[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
                                                             {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kByte, "U8"},       {at::kBool, "BOOL"}};

std::string numbers_text(const int64_t* numbers, uint32_t n) {
  std::string text;
  for (uint32_t i = 0; i < n; ++i) text += (i ? "," : "") + std::to_string(numbers[i]);
  return text;
}

std::vector<int64_t> numbers_of(std::string_view text) {
  std::vector<int64_t> numbers;
  for (const std::string& word : split(text, ',')) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), n);
    if (error != std::errc() || end != word.data() + word.size()) throw PluginError(MORTISE_E_DATA, "`" + escape_control(text) + "` is no place of a slice");
    numbers.push_back(n);
  }
  return numbers;
}

constexpr std::string_view kOf = " of ";  // in the metadata, by the name of a slice: "0,0 of 768,2304"

mortise_status write(mortise_host*, const mortise_entry* entries, uint32_t n, const mortise_sink* sink) noexcept {
  return guarded([&] {
    std::vector<TensorView> views;
    Metadata metadata = {{"format", "pt"}};
    for (uint32_t i = 0; i < n; ++i) {
      const mortise_entry& e = entries[i];
      views.push_back({std::string(view(e.name)), safetensors_name(scalar_type(e.dtype)), {e.sizes, e.sizes + e.n_dims}, e.data, e.bytes});
      if (e.offset) metadata[views.back().name] = numbers_text(e.offset, e.n_dims) + std::string(kOf) + numbers_text(e.whole, e.n_dims);
    }
    const auto checked = [&](const void* data, size_t bytes) {
      if (const mortise_status s = sink->write(sink->user, data, bytes)) throw PluginError(s, "the bytes could not be written");
    };
    write_safetensors(checked, views, metadata);
  });
}

mortise_status read(mortise_host*, const void* data, uint64_t bytes, const mortise_give* give) noexcept {
  return guarded([&] {
    TensorFile file;
    try {
      file = parse_safetensors({static_cast<const char*>(data), bytes}, "");
    } catch (const Failure& f) {
      throw PluginError(MORTISE_E_DATA, f.diagnostic.message);
    }
    for (const TensorView& t : file.entries) {
      std::vector<int64_t> offset, whole;
      if (const auto place = file.metadata.find(t.name); place != file.metadata.end()) {
        const size_t of = place->second.find(kOf);
        offset = numbers_of(place->second.substr(0, of));
        if (of != std::string::npos) whole = numbers_of(place->second.substr(of + kOf.size()));
        if (offset.size() != t.sizes.size() || whole.size() != t.sizes.size()) throw PluginError(MORTISE_E_DATA, "the place of `" + t.name + "` does not fit it");
      }
      const mortise_entry e = {sizeof e, dtype_of(type_named(t.dtype)), str(t.name), static_cast<uint32_t>(t.sizes.size()), 0, t.sizes.data(),
                               whole.empty() ? nullptr : offset.data(), whole.empty() ? nullptr : whole.data(), t.data, t.bytes};
      if (const mortise_status s = give->entry(give->user, &e)) throw PluginError(s, "`" + t.name + "` was not taken");
    }
  });
}

// What a callback threw waits here until the plugin between has returned.
struct Waiting {
  std::exception_ptr thrown;
  template <class Body>
  mortise_status run(Body&& body) noexcept {
    try {
      body();
      return MORTISE_OK;
    } catch (...) {
      thrown = std::current_exception();
      return MORTISE_E_IO;
    }
  }
};

template <class Call>
void call_through(const Waiting& waiting, Call&& call) {
  try {
    call();
  } catch (const PluginError&) {
    if (waiting.thrown) std::rethrow_exception(waiting.thrown);
    throw;
  }
}

}  // namespace

at::ScalarType type_named(std::string_view safetensors) {
  for (const auto& [type, name] : kNames)
    if (safetensors == name) return type;
  return at::ScalarType::Undefined;
}

std::string safetensors_name(at::ScalarType wanted) {
  for (const auto& [type, name] : kNames)
    if (type == wanted) return name;
  return "";
}

void write_tensors(const Format& format, const std::vector<StoredTensor>& tensors, const Sink& sink) {
  std::vector<mortise_entry> entries;
  for (const StoredTensor& t : tensors) {
    mortise_entry e{};
    e.struct_size = sizeof e;
    e.dtype = dtype_of(t.tensor.scalar_type());
    e.name = str(t.name);
    e.n_dims = static_cast<uint32_t>(t.tensor.dim());
    e.sizes = t.tensor.sizes().data();
    e.offset = t.whole.empty() ? nullptr : t.offset.data();
    e.whole = t.whole.empty() ? nullptr : t.whole.data();
    e.data = t.tensor.const_data_ptr();
    e.bytes = t.tensor.nbytes();
    entries.push_back(e);
  }
  struct User : Waiting {
    const Sink& sink;
  } user{{}, sink};
  const mortise_sink c_sink = {sizeof c_sink, 0, &user, [](void* u, const void* data, uint64_t bytes) noexcept -> mortise_status {
                                 return static_cast<User*>(u)->run([&] { static_cast<User*>(u)->sink(data, bytes); });
                               }};
  call_through(user, [&] { format.call(&mortise_format::write, "write", static_cast<const mortise_entry*>(entries.data()), static_cast<uint32_t>(entries.size()), &c_sink); });
}

std::vector<StoredTensor> read_tensors(const Format& format, std::string_view bytes) {
  struct User : Waiting {
    std::vector<StoredTensor> tensors;
  } user;
  const auto take_one = [](void* u, const mortise_entry* e) noexcept -> mortise_status {
    return static_cast<User*>(u)->run([&] {
      const at::ScalarType type = scalar_type(e->dtype);
      if (type == at::ScalarType::Undefined) throw PluginError(MORTISE_E_DATA, "`" + std::string(view(e->name)) + "` is of a dtype that is not known");
      StoredTensor t;
      t.name = view(e->name);
      t.tensor = at::from_blob(const_cast<void*>(e->data), at::IntArrayRef(e->sizes, e->n_dims), at::TensorOptions().dtype(type));
      if (e->whole) {
        t.offset.assign(e->offset, e->offset + e->n_dims);
        t.whole.assign(e->whole, e->whole + e->n_dims);
      }
      static_cast<User*>(u)->tensors.push_back(std::move(t));
    });
  };
  const mortise_give give = {sizeof give, 0, &user, take_one};
  call_through(user, [&] { format.call(&mortise_format::read, "read", static_cast<const void*>(bytes.data()), uint64_t{bytes.size()}, &give); });
  return std::move(user.tensors);
}

const mortise_safetensors_api kSafetensorsApi = {sizeof(mortise_safetensors_api), write, read};

}  // namespace mortise
