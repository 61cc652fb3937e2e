#include "core/loop/format.hpp"

#include <ATen/ops/from_blob.h>

#include <exception>

#include "core/host/handle.hpp"

namespace mortise {
namespace {

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

// What a plugin found in a file is as long as it says.
void check_entry(const mortise_entry& e, at::ScalarType type) {
  constexpr uint32_t kMostDimensions = 64;
  const std::string name(text_of(e.name));
  uint64_t bytes = c10::elementSize(type);
  bool fits = e.n_dims <= kMostDimensions && (e.n_dims == 0 || e.sizes) && (e.bytes == 0 || e.data);
  fits = fits && !e.whole == !e.offset;
  for (uint32_t i = 0; fits && i < e.n_dims; ++i)
    fits = e.sizes[i] >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(e.sizes[i]), &bytes);
  if (!fits || bytes != e.bytes)
    throw PluginError(MORTISE_E_DATA, "`" + name + "` does not have the sizes or the bytes that are said of it");
}

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
  const mortise_sink c_sink = {sizeof c_sink, 0, &user,
                               [](void* u, const void* data, uint64_t bytes) noexcept -> mortise_status {
                                 return static_cast<User*>(u)->run([&] { static_cast<User*>(u)->sink(data, bytes); });
                               }};
  call_through(user, [&] {
    format.call(&mortise_format::write, "write", static_cast<const mortise_entry*>(entries.data()),
                static_cast<uint32_t>(entries.size()), &c_sink);
  });
}

std::vector<StoredTensor> read_tensors(const Format& format, std::string_view bytes) {
  struct User : Waiting {
    std::vector<StoredTensor> tensors;
  } user;
  const auto take_one = [](void* u, const mortise_entry* e) noexcept -> mortise_status {
    return static_cast<User*>(u)->run([&] {
      const at::ScalarType type = scalar_type(e->dtype);
      if (type == at::ScalarType::Undefined)
        throw PluginError(MORTISE_E_DATA, "`" + std::string(view(e->name)) + "` is of a dtype that is not known");
      check_entry(*e, type);
      StoredTensor t;
      t.name = view(e->name);
      t.tensor = at::from_blob(const_cast<void*>(e->data), at::IntArrayRef(e->sizes, e->n_dims),
                               at::TensorOptions().dtype(type));
      if (e->whole) {
        t.offset.assign(e->offset, e->offset + e->n_dims);
        t.whole.assign(e->whole, e->whole + e->n_dims);
      }
      static_cast<User*>(u)->tensors.push_back(std::move(t));
    });
  };
  const mortise_entry_visitor give = {sizeof give, 0, &user, take_one};
  call_through(user, [&] {
    format.call(&mortise_format::read, "read", static_cast<const void*>(bytes.data()), uint64_t{bytes.size()}, &give);
  });
  return std::move(user.tensors);
}

}  // namespace mortise
