#include "formats/elf/elf.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

namespace mortise {
namespace {

// fixtures/sample.c, as a library.
const std::string& sample() {
  static const std::string bytes = [] {
    std::ostringstream text;
    text << std::ifstream(MORTISE_ELF_SAMPLE, std::ios::binary).rdbuf();
    return text.str();
  }();
  return bytes;
}

// The result does not matter, only that there is one.
void read_anything(std::string_view bytes) {
  try {
    read_elf(bytes);
  } catch (const ElfError&) {
  }
}

TEST(Elf, ReadsALibrary) {
  const ElfFile file = read_elf(sample());
  EXPECT_EQ(file.type, ET_DYN);
  EXPECT_EQ(file.exported, std::vector<std::string>{"sample_shown"});
  EXPECT_EQ(std::count(file.needed.begin(), file.needed.end(), "libc.so.6"), 1);
}

TEST(Elf, ReadsTheCLibrarySymbolsWithTheirVersions) {
  const ElfFile file = read_elf(sample());
  const auto found =
      std::find_if(file.undefined.begin(), file.undefined.end(), [](const ElfSymbol& s) { return s.name == "getenv"; });
  ASSERT_NE(found, file.undefined.end());
  EXPECT_EQ(found->version.substr(0, 6), "GLIBC_");
}

TEST(Elf, NamesEveryVersionThatTheLoaderLooksFor) {
  const ElfFile file = read_elf(sample());
  for (const ElfSymbol& symbol : file.undefined)
    EXPECT_EQ(std::count(file.versions.begin(), file.versions.end(), symbol.version), !symbol.version.empty())
        << symbol.name;
  EXPECT_TRUE(std::any_of(file.versions.begin(), file.versions.end(),
                          [](const std::string& v) { return v.starts_with("GLIBC_2."); }));
}

TEST(Elf, LeavesWeakImportsOut) {
  for (const ElfSymbol& symbol : read_elf(sample()).undefined) EXPECT_NE(symbol.name, "sample_weak");
}

TEST(Elf, SaysWhatIsNoElf) {
  for (const std::string_view bytes : {"", "\x7f", ELFMAG, "#!/bin/sh\nexit 0\n"})
    EXPECT_THROW(read_elf(bytes), ElfError) << bytes;
}

TEST(Elf, SurvivesEveryCut) {
  for (size_t size = 0; size < sample().size(); size += 64) read_anything(std::string(sample().data(), size));
}

// Each file is wrong in one to eight bits, half of them in its first 8 KiB, where its tables are.
TEST(Elf, SurvivesFlippedBits) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes = sample();
    for (int flips = 1 << (i % 4); flips > 0; --flips) {
      const size_t reach = i % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 8192);
      bytes[random() % reach] ^= static_cast<char>(1 << (random() % 8));
    }
    read_anything(bytes);
  }
}

// Tables of offsets and counts, filled with the numbers that overflow.
TEST(Elf, SurvivesHugeNumbersInItsHeaders) {
  std::mt19937 random(2);
  const uint64_t huge[] = {
      0, 1, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0xfffffffffffffff8, 0x8000000000000000};
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes = sample();
    const size_t reach = std::min<size_t>(bytes.size(), 8192) / 8;
    std::memcpy(bytes.data() + (8 + random() % (reach - 8)) * 8, &huge[random() % 8], 8);
    read_anything(bytes);
  }
}

}  // namespace
}  // namespace mortise
