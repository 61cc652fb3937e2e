// The fuzzers' seeds, each with the verdict that its name begins with.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/properties.hpp"

namespace fs = std::filesystem;

namespace mortise::fuzz {
namespace {

// How many there are.
int check(const char* kind, bool (*taken)(std::string_view)) {
  int seeds = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(MORTISE_SOURCE_DIR) / "tests/fuzz/seeds" / kind)) {
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(taken(bytes), entry.path().filename().string().starts_with("taken-")) << entry.path();
    ++seeds;
  }
  return seeds;
}

TEST(Seeds, OfSafetensors) { EXPECT_GT(check("safetensors", try_safetensors), 40); }
TEST(Seeds, OfManifests) { EXPECT_GT(check("manifest", try_manifest_body), 20); }

TEST(Seeds, OfRunStates) { EXPECT_GT(check("state", try_run_state), 20); }
TEST(Seeds, OfPluginsStates) { EXPECT_GT(check("blobs", try_blobs), 15); }

}  // namespace
}  // namespace mortise::fuzz
