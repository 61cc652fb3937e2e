// Entries on their way through a plugin that writes and reads them: what comes back is checked, what fails is kept.
#include "core/assemble/format.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "core/abi/error.hpp"
#include "core/base/diagnostic.hpp"

namespace mortise {
namespace {

struct FakeFormat {
  std::vector<std::string> written;  // "NAME DTYPE sizes offset whole bytes"
  std::function<void(mortise_entry&)> lie;
  mortise_status status = MORTISE_OK;

  FakeFormat() {
    info.schema.id = "format.fake";
    instance.member = &member;
    instance.self = this;
    object.struct_size = sizeof object;
    object.write = [](void* self, const mortise_entry* entries, uint32_t n, const mortise_sink* sink) noexcept {
      auto& f = *static_cast<FakeFormat*>(self);
      for (uint32_t i = 0; i < n; ++i) {
        const mortise_entry& e = entries[i];
        std::string line = std::string(view(e.name)) + " " + std::to_string(e.dtype);
        for (const int64_t* numbers : {e.sizes, e.offset, e.whole}) {
          line += " ";
          for (uint32_t d = 0; numbers && d < e.n_dims; ++d) line += "," + std::to_string(numbers[d]);
        }
        f.written.push_back(line);
        if (const mortise_status s = sink->write(sink->user, e.data, e.bytes)) return s;
      }
      return f.status;
    };
    object.read = [](void* self, const void* data, uint64_t bytes, const mortise_entry_visitor* visitor) noexcept {
      auto& f = *static_cast<FakeFormat*>(self);
      const int64_t sizes[] = {2, static_cast<int64_t>(bytes) / 8};
      mortise_entry e{};
      e.struct_size = sizeof e;
      e.dtype = MORTISE_F32;
      e.name = MORTISE_STR("w");
      e.n_dims = 2;
      e.sizes = sizes;
      e.data = data;
      e.bytes = bytes;
      if (f.lie) f.lie(e);
      if (const mortise_status s = visitor->entry(visitor->user, &e)) return s;
      return f.status;
    };
  }
  FakeFormat(const FakeFormat&) = delete;
  Format format() { return {&object, &instance}; }

 private:
  PluginInfo info;
  Member member{&info, nullptr};
  Instance instance;
  mortise_format object{};
};

StoredEntry entry(const std::string& name, const std::string& bytes) {
  StoredEntry e;
  e.name = name;
  e.dtype = MORTISE_U8;
  e.sizes = {static_cast<int64_t>(bytes.size())};
  e.data = bytes.data();
  e.bytes = bytes.size();
  return e;
}

TEST(Entries, AreWrittenWithTheirPlace) {
  FakeFormat fake;
  const std::string a = "abc", b = "de";
  std::vector<StoredEntry> entries = {entry("a", a), entry("b", b)};
  entries[1].offset = {4};
  entries[1].whole = {6};
  std::string out;
  write_entries(fake.format(), entries,
                [&](const void* data, uint64_t n) { out.append(static_cast<const char*>(data), n); });
  EXPECT_EQ(out, "abcde");
  const std::string u8 = std::to_string(MORTISE_U8);
  EXPECT_EQ(fake.written, (std::vector<std::string>{"a " + u8 + " ,3  ", "b " + u8 + " ,2 ,4 ,6"}));
}

// The plugin between sees a status; what the disk said is what a person reads.
TEST(Entries, PassOnWhatTheSinkThrew) {
  FakeFormat fake;
  const std::string bytes = "abc";
  const auto full = [](const void*, uint64_t) { throw Failure(trouble(kExitIo, "io_failed", "the disk is full", "")); };
  try {
    write_entries(fake.format(), {entry("a", bytes)}, full);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.message, "the disk is full");
  }
}

TEST(Entries, OfAPluginThatFailsNameIt) {
  FakeFormat fake;
  fake.status = MORTISE_E_PLUGIN;
  const std::string bytes(8, 'x');
  EXPECT_THROW(write_entries(fake.format(), {}, [](const void*, uint64_t) {}), PluginError);
  try {
    read_entries(fake.format(), bytes);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const PluginError& e) {
    EXPECT_NE(e.text().find("format.fake"), std::string::npos) << e.text();
  }
}

TEST(Entries, AreReadWithoutACopy) {
  FakeFormat fake;
  const std::string bytes(24, 'x');
  const std::vector<StoredEntry> entries = read_entries(fake.format(), bytes);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "w");
  EXPECT_EQ(entries[0].dtype, uint32_t{MORTISE_F32});
  EXPECT_EQ(entries[0].sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(entries[0].data, bytes.data());
  EXPECT_EQ(entries[0].bytes, 24u);
  EXPECT_TRUE(entries[0].whole.empty());
}

TEST(Entries, ThatContradictThemselvesAreRefused) {
  static const int64_t negative[] = {-2, -3}, huge[] = {INT64_MAX, 4};
  const std::vector<std::function<void(mortise_entry&)>> lies = {
      [](mortise_entry& e) { e.bytes -= 4; },
      [](mortise_entry& e) { e.dtype = MORTISE_F64; },
      [](mortise_entry& e) { e.dtype = MORTISE_NO_DTYPE; },
      [](mortise_entry& e) { e.dtype = MORTISE_BOOL + 1; },
      [](mortise_entry& e) { e.n_dims = 65; },
      [](mortise_entry& e) { e.n_dims = 1; },
      [](mortise_entry& e) { e.sizes = nullptr; },
      [](mortise_entry& e) { e.sizes = negative; },
      [](mortise_entry& e) { e.sizes = huge; },
      [](mortise_entry& e) { e.data = nullptr; },
      [](mortise_entry& e) { e.whole = e.sizes; },
      [](mortise_entry& e) { e.offset = e.sizes; },
  };
  const std::string bytes(24, 'x');
  for (size_t i = 0; i < lies.size(); ++i) {
    FakeFormat fake;
    fake.lie = lies[i];
    try {
      read_entries(fake.format(), bytes);
      ADD_FAILURE() << "lie " << i << " was believed";
    } catch (const PluginError& e) {
      EXPECT_EQ(e.status(), MORTISE_E_DATA) << i << ": " << e.text();
    }
  }
}

}  // namespace
}  // namespace mortise
