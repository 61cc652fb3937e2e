#include "core/plugin/elf.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/plugin/test_fixtures.hpp"

namespace mortise {
namespace {

const std::string& good() {
  static const std::string bytes = read_file(fixture("good").library);
  return bytes;
}

// The result does not matter, only that there is one.
void read_anything(std::string_view bytes) {
  try {
    read_elf(bytes);
  } catch (const ElfError&) {
  }
}

TEST(Elf, ReadsAPlugin) {
  const ElfFile file = read_elf(good());
  EXPECT_EQ(file.type, ET_DYN);
  EXPECT_EQ(file.exported, std::vector<std::string>{"mortise_plugin_v0"});
  EXPECT_EQ(std::count(file.needed.begin(), file.needed.end(), "libc.so.6"), 1);
}

TEST(Elf, ReadsTheCLibraryWithItsVersions) {
  const ElfFile file = read_elf(read_file(MORTISE_PROBE));
  const auto found =
      std::find_if(file.undefined.begin(), file.undefined.end(), [](const ElfSymbol& s) { return s.name == "printf" || s.name == "dlopen"; });
  ASSERT_NE(found, file.undefined.end());
  EXPECT_EQ(found->version.substr(0, 6), "GLIBC_");
}

TEST(Elf, LeavesWeakImportsOut) {
  for (const ElfSymbol& symbol : read_elf(good()).undefined) EXPECT_NE(symbol.name, "_ZN3c105ErrorC1Ev");
}

TEST(Elf, SaysWhatIsNoElf) {
  for (const std::string_view bytes : {"", "\x7f", ELFMAG, "#!/bin/sh\nexit 0\n"}) EXPECT_THROW(read_elf(bytes), ElfError) << bytes;
}

TEST(Elf, SurvivesEveryCut) {
  for (size_t size = 0; size < good().size(); size += 64) read_anything(std::string(good().data(), size));
}

// Each file is wrong in one to eight bits, half of them in its first 8 KiB, where its tables are.
TEST(Elf, SurvivesFlippedBits) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes = good();
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
  const uint64_t huge[] = {0, 1, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff, 0xfffffffffffffff8, 0x8000000000000000};
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes = good();
    const size_t reach = std::min<size_t>(bytes.size(), 8192) / 8;
    std::memcpy(bytes.data() + (8 + random() % (reach - 8)) * 8, &huge[random() % 8], 8);
    read_anything(bytes);
  }
}

}  // namespace
}  // namespace mortise
