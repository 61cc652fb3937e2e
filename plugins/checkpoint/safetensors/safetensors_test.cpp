#include <gtest/gtest.h>

#include <map>

#include "formats/safetensors/safetensors.hpp"
#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

mortise_str text(const std::string& s) { return {s.data(), s.size()}; }

struct Safetensors : testing::Test {
  FakeHost host;
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
  const mortise_format& format = plugin.object<mortise_format>("checkpoint.format");

  std::string written(const std::vector<mortise_entry>& entries, mortise_status sinks = MORTISE_OK,
                      mortise_status expected = MORTISE_OK) {
    std::pair<std::string, mortise_status> user{"", sinks};
    const mortise_sink sink = {sizeof sink, 0, &user,
                               [](void* u, const void* data, uint64_t bytes) noexcept -> mortise_status {
                                 auto& [all, status] = *static_cast<std::pair<std::string, mortise_status>*>(u);
                                 all.append(static_cast<const char*>(data), bytes);
                                 return status;
                               }};
    EXPECT_EQ(format.write(plugin.self(), entries.data(), static_cast<uint32_t>(entries.size()), &sink), expected);
    return user.first;
  }
  // "dtype sizes @offset of whole: bytes" by name.
  std::map<std::string, std::string> read(const std::string& bytes, mortise_status expected = MORTISE_OK) {
    std::map<std::string, std::string> all;
    const mortise_entry_visitor give = {
        sizeof give, 0, &all, [](void* u, const mortise_entry* e) noexcept -> mortise_status {
          std::string line = std::to_string(e->dtype);
          const auto add = [&](const char* before, const int64_t* numbers) {
            line += before;
            for (uint32_t i = 0; numbers && i < e->n_dims; ++i) line += std::to_string(numbers[i]) + ",";
          };
          add(" ", e->sizes);
          add(" @", e->offset);
          add(" of ", e->whole);
          line += ": " + std::string(static_cast<const char*>(e->data), e->bytes);
          (*static_cast<std::map<std::string, std::string>*>(u))[std::string(e->name.ptr, e->name.len)] = line;
          return MORTISE_OK;
        }};
    EXPECT_EQ(format.read(plugin.self(), bytes.data(), bytes.size(), &give), expected);
    return all;
  }
  mortise_entry entry(const std::string& name, uint32_t dtype, const std::vector<int64_t>& sizes,
                      const std::string& bytes) {
    return {sizeof(mortise_entry),
            dtype,
            text(name),
            static_cast<uint32_t>(sizes.size()),
            0,
            sizes.data(),
            nullptr,
            nullptr,
            bytes.data(),
            bytes.size()};
  }
};

TEST_F(Safetensors, ComeBackWithTheirPlaces) {
  const std::string a = "a", b = "b/exp_avg", eight = "12345678", four = "abcd";
  const std::vector<int64_t> two = {2}, by = {1, 4}, offset = {3, 0}, whole = {9, 4}, none;
  std::vector<mortise_entry> entries = {entry(a, MORTISE_F32, two, eight), entry(b, MORTISE_U8, by, four),
                                        entry("c", MORTISE_BOOL, none, "x")};
  const std::string c = "c", x = "x";
  entries[2] = entry(c, MORTISE_BOOL, none, x);
  entries[1].offset = offset.data();
  entries[1].whole = whole.data();
  const std::string file = written(entries);
  EXPECT_EQ(read(file),
            (std::map<std::string, std::string>{
                {"a", "1 2, @ of : 12345678"}, {"b/exp_avg", "7 1,4, @3,0, of 9,4,: abcd"}, {"c", "8  @ of : x"}}));
  EXPECT_EQ(mortise::parse_safetensors(file, "").metadata.at("b/exp_avg"), "3,0 of 9,4");
  EXPECT_EQ(mortise::parse_safetensors(file, "").metadata.at("format"), "pt");
}

TEST_F(Safetensors, OfEveryElementTypeComeBack) {
  const std::vector<int64_t> one = {1};
  std::vector<std::string> names, bytes;
  for (uint32_t dtype = 1; dtype < MORTISE_DTYPES; ++dtype) {
    names.push_back(mortise_dtypes[dtype].safetensors);
    bytes.emplace_back(mortise_dtypes[dtype].bytes, static_cast<char>('a' + dtype));
  }
  std::vector<mortise_entry> entries;
  for (uint32_t dtype = 1; dtype < MORTISE_DTYPES; ++dtype)
    entries.push_back(entry(names[dtype - 1], dtype, one, bytes[dtype - 1]));
  const auto all = read(written(entries));
  ASSERT_EQ(all.size(), names.size());
  for (uint32_t dtype = 1; dtype < MORTISE_DTYPES; ++dtype)
    EXPECT_EQ(all.at(names[dtype - 1]), std::to_string(dtype) + " 1, @ of : " + bytes[dtype - 1]);
}

TEST_F(Safetensors, MayBeCalledAsTheMetadataIs) {
  const std::string name = "format", bytes = "1234";
  const std::vector<int64_t> one = {1}, offset = {3}, whole = {9};
  mortise_entry e = entry(name, MORTISE_F32, one, bytes);
  EXPECT_EQ(read(written({e})).at("format"), "1 1, @ of : 1234");
  e.offset = offset.data();
  e.whole = whole.data();
  EXPECT_EQ(read(written({e})).at("format"), "1 1, @3, of 9,: 1234");
}

TEST_F(Safetensors, HandOnWhatTheSinkReturns) {
  const std::string a = "a", bytes = "1234";
  const std::vector<int64_t> one = {1};
  written({entry(a, MORTISE_F32, one, bytes)}, MORTISE_E_IO, MORTISE_E_IO);
}

TEST_F(Safetensors, RefuseWhatIsNone) {
  read("{}", MORTISE_E_DATA);
  EXPECT_EQ(host.error(), "is too short to be safetensors");
  for (const char* place : {"", "0", "0 of", "0 of ", "0,0 of 1", "0 of 1,2", "x of 1", "0 of 1x", " of 1", "0,of 1"}) {
    std::string file;
    const int64_t n = 1;
    mortise::write_safetensors(
        [&](const void* data, size_t bytes) { file.append(static_cast<const char*>(data), bytes); },
        std::vector<mortise::TensorView>{{"a", "U8", {n}, "x", 1}}, {{"a", place}});
    read(file, MORTISE_E_DATA);
    EXPECT_EQ(host.error(), "the place of `a` does not fit it") << place;
  }
}
}  // namespace
