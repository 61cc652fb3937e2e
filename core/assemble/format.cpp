#include "core/assemble/format.hpp"

#include <exception>

#include "core/abi/error.hpp"
#include "core/base/dtype.hpp"
#include "core/plugin/calls.hpp"

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

template <class Call>
void call_through(const Waiting& waiting, Call&& call) {
  try {
    call();
  } catch (const PluginError&) {
    if (waiting.thrown) std::rethrow_exception(waiting.thrown);
    throw;
  }
}

mortise_entry to_c(const StoredEntry& e) {
  mortise_entry c{};
  c.struct_size = sizeof c;
  c.dtype = e.dtype;
  c.name = str(e.name);
  c.n_dims = static_cast<uint32_t>(e.sizes.size());
  c.sizes = e.sizes.data();
  c.offset = e.whole.empty() ? nullptr : e.offset.data();
  c.whole = e.whole.empty() ? nullptr : e.whole.data();
  c.data = e.data;
  c.bytes = e.bytes;
  return c;
}

// What a plugin found in a file is as long as it says.
void check_entry(const mortise_entry& e) {
  constexpr uint32_t kMostDimensions = 64;
  const std::string name(text_of(e.name));
  auto bytes = static_cast<uint64_t>(dtype_bytes(e.dtype));
  if (bytes == 0) throw PluginError(MORTISE_E_DATA, "`" + name + "` is of a dtype that is not known");
  bool fits = e.n_dims <= kMostDimensions && (e.n_dims == 0 || e.sizes) && (e.bytes == 0 || e.data);
  fits = fits && !e.whole == !e.offset;
  for (uint32_t i = 0; fits && i < e.n_dims; ++i)
    fits = e.sizes[i] >= 0 && !__builtin_mul_overflow(bytes, static_cast<uint64_t>(e.sizes[i]), &bytes);
  if (!fits || bytes != e.bytes)
    throw PluginError(MORTISE_E_DATA, "`" + name + "` does not have the sizes or the bytes that are said of it");
}

StoredEntry from_c(const mortise_entry& c) {
  check_entry(c);
  StoredEntry e;
  e.name = view(c.name);
  e.dtype = c.dtype;
  e.sizes.assign(c.sizes, c.sizes + c.n_dims);
  if (c.whole) {
    e.offset.assign(c.offset, c.offset + c.n_dims);
    e.whole.assign(c.whole, c.whole + c.n_dims);
  }
  e.data = c.data;
  e.bytes = c.bytes;
  return e;
}

}  // namespace

void write_entries(const Format& format, const std::vector<StoredEntry>& entries, const Sink& sink) {
  std::vector<mortise_entry> c_entries;
  for (const StoredEntry& e : entries) c_entries.push_back(to_c(e));
  struct User : Waiting {
    const Sink& sink;
  } user{{}, sink};
  mortise_sink c_sink{};
  c_sink.struct_size = sizeof c_sink;
  c_sink.user = &user;
  c_sink.write = [](void* u, const void* data, uint64_t bytes) noexcept -> mortise_status {
    const PluginScope of_the_core({}, "sink");  // hashing and the disk are not the plugin's time
    return static_cast<User*>(u)->run([&] { static_cast<User*>(u)->sink(data, bytes); });
  };
  call_through(user, [&] {
    format.call(&mortise_format::write, "write", static_cast<const mortise_entry*>(c_entries.data()),
                static_cast<uint32_t>(c_entries.size()), static_cast<const mortise_sink*>(&c_sink));
  });
}

std::vector<StoredEntry> read_entries(const Format& format, std::string_view bytes) {
  struct User : Waiting {
    std::vector<StoredEntry> entries;
  } user;
  mortise_entry_visitor visitor{};
  visitor.struct_size = sizeof visitor;
  visitor.user = &user;
  visitor.entry = [](void* u, const mortise_entry* e) noexcept -> mortise_status {
    return static_cast<User*>(u)->run([&] { static_cast<User*>(u)->entries.push_back(from_c(*e)); });
  };
  call_through(user, [&] {
    format.call(&mortise_format::read, "read", static_cast<const void*>(bytes.data()), uint64_t{bytes.size()},
                static_cast<const mortise_entry_visitor*>(&visitor));
  });
  return std::move(user.entries);
}

}  // namespace mortise
