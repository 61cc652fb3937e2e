#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBlock = MORTISE_STORE_BLOCK;
using Extents = std::vector<mortise_extent>;
using Bytes = std::vector<unsigned char>;

struct Nvme : testing::Test {
  Nvme() {
    fs::create_directory(folder);
    host.set("path", folder.string());
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
  }
  ~Nvme() override {
    plugin.reset();
    fs::remove_all(folder);
  }
  const mortise_state_store& store() { return plugin->object<mortise_state_store>("states.store"); }
  mortise_status open(int64_t blocks) {
    void* memory = nullptr;
    const mortise_status status = store().open(plugin->self(), blocks * kBlock, &memory);
    all = {static_cast<unsigned char*>(memory), memory ? static_cast<size_t>(blocks * kBlock) : 0};
    return status;
  }
  mortise_status fetch(const Extents& extents) {
    return store().fetch(plugin->self(), extents.data(), static_cast<uint32_t>(extents.size()));
  }
  unsigned char* take() {
    void* piece = nullptr;
    EXPECT_EQ(store().take(plugin->self(), &piece), MORTISE_OK) << host.error();
    return static_cast<unsigned char*>(piece);
  }
  mortise_status put() { return store().put(plugin->self(), 0); }
  mortise_status finish() { return store().finish(plugin->self(), 0); }
  Bytes bytes(int64_t block) const {
    const auto of = all.subspan(static_cast<size_t>(block * kBlock), kBlock);
    return {of.begin(), of.end()};
  }

  const fs::path folder = fs::path(testing::TempDir()) / ("mortise_nvme." + std::to_string(::getpid()));
  FakeHost host;
  std::optional<Plugin> plugin;
  std::span<unsigned char> all;
};

TEST_F(Nvme, HasTheStatesOfEveryParameterInItsStoreAndTouchesNoOtherField) {
  mortise_param* p = host.add_param("w", "matrix", {4, 4});
  mortise_event event{};
  event.param = p;
  ASSERT_EQ(plugin->notify("params.declared", event), MORTISE_OK) << host.error();
  EXPECT_EQ(mortise::info_of(p).states_in_store, 1);
  EXPECT_EQ(mortise::info_of(p).update_on_host, 0);
  EXPECT_EQ(mortise::info_of(p).trainable, 1);
}

TEST_F(Nvme, BeginsWithZeros) {
  ASSERT_EQ(open(3), MORTISE_OK) << host.error();
  EXPECT_EQ(bytes(2), Bytes(kBlock, 0));
  ASSERT_EQ(fetch({{kBlock, 2 * kBlock}}), MORTISE_OK);
  const unsigned char* piece = take();
  EXPECT_EQ(Bytes(piece, piece + 2 * kBlock), Bytes(2 * kBlock, 0));
}

// Extents may lie anywhere, and what lies between them stays.
TEST_F(Nvme, StoresThePieceThatWasPutWhereItCameFrom) {
  ASSERT_EQ(open(5), MORTISE_OK) << host.error();
  ASSERT_EQ(fetch({{3 * kBlock, kBlock}, {0, kBlock}, {kBlock, kBlock}}), MORTISE_OK);
  unsigned char* piece = take();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % kBlock, 0U);
  for (int i = 0; i < 3; ++i) std::fill_n(piece + i * kBlock, kBlock, static_cast<unsigned char>(i + 1));
  ASSERT_EQ(put(), MORTISE_OK);
  ASSERT_EQ(finish(), MORTISE_OK) << host.error();
  for (const auto& [block, byte] : {std::pair(0, 2), {1, 3}, {2, 0}, {3, 1}, {4, 0}})
    EXPECT_EQ(bytes(block), Bytes(kBlock, static_cast<unsigned char>(byte))) << block;
}

// A run that goes on from a checkpoint has its states written there as memory.
TEST_F(Nvme, FetchesWhatWasWrittenAsMemory) {
  ASSERT_EQ(open(2), MORTISE_OK) << host.error();
  for (const unsigned char byte : {7, 8}) {
    std::fill(all.begin(), all.end(), byte);
    ASSERT_EQ(fetch({{0, 2 * kBlock}}), MORTISE_OK);
    unsigned char* piece = take();
    EXPECT_EQ(Bytes(piece, piece + 2 * kBlock), Bytes(2 * kBlock, byte));
    piece[5] = 1;
    ASSERT_EQ(put(), MORTISE_OK);
    ASSERT_EQ(finish(), MORTISE_OK);
    EXPECT_EQ(all[5], 1);
  }
}

// As the core does it, for some steps, with pieces of unlike sizes: two are under way at a time, in both buffers.
TEST_F(Nvme, LosesNothingWhilePiecesComeAndGo) {
  constexpr int64_t kBlocks = 64;
  ASSERT_EQ(open(kBlocks), MORTISE_OK) << host.error();
  std::mt19937 random(1);
  for (int step = 1; step <= 20; ++step) {
    std::vector<mortise_extent> pieces;
    for (int64_t at = 0; at < kBlocks;) {
      const int64_t n = std::min<int64_t>(1 + random() % 9, kBlocks - at);
      pieces.push_back({at * kBlock, n * kBlock});
      at += n;
    }
    ASSERT_EQ(fetch({pieces[0]}), MORTISE_OK);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i + 1 < pieces.size()) {
        ASSERT_EQ(fetch({pieces[i + 1]}), MORTISE_OK);
      }
      unsigned char* piece = take();
      for (int64_t b = 0; b < pieces[i].bytes; ++b) {
        ASSERT_EQ(piece[b], static_cast<unsigned char>((step - 1) * ((pieces[i].offset + b) % 251)));
        piece[b] = static_cast<unsigned char>(piece[b] + (pieces[i].offset + b) % 251);
      }
      ASSERT_EQ(put(), MORTISE_OK);
    }
    ASSERT_EQ(finish(), MORTISE_OK) << host.error();
  }
}

TEST_F(Nvme, LeavesNoNameInItsFolder) {
  ASSERT_EQ(open(1), MORTISE_OK) << host.error();
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(Nvme, ReservesItsRoomOrSaysWhatIsMissing) {
  struct statfs before{}, after{};
  ASSERT_EQ(::statfs(folder.c_str(), &before), 0);
  ASSERT_EQ(open(4096), MORTISE_OK) << host.error();
  ASSERT_EQ(::statfs(folder.c_str(), &after), 0);
  EXPECT_LT(after.f_bfree, before.f_bfree) << "16 MiB, unless somebody frees as much at the same time";

  plugin.reset();
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(int64_t{1} << 40), MORTISE_E_IO);
  EXPECT_TRUE(host.error().starts_with("optimizer states take 4194304.0 GiB in " + folder.string() + ", which has "))
      << host.error();
  EXPECT_NE(host.error().find(" free: No space left on device\n  fix: [offload.nvme] path = "), std::string::npos)
      << host.error();
}

TEST_F(Nvme, LeavesNoFileOpenWhenItsRoomCannotBeReserved) {
  const auto open_files = [] {
    const fs::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  rlimit was{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &was), 0);
  const rlimit small = {kBlock, was.rlim_max};
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_EQ(open(4), MORTISE_E_IO);
  ::setrlimit(RLIMIT_FSIZE, &was);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(host.error().find("File too large\n  fix: [offload.nvme] path = "), std::string::npos) << host.error();
  EXPECT_EQ(open_files(), before);
}

TEST_F(Nvme, RefusesAFolderThatIsNotThere) {
  fs::remove_all(folder);
  mortise_str about{};
  ASSERT_EQ(store().describe(plugin->self(), &about), MORTISE_OK);
  EXPECT_EQ(mortise::view(about), "states in " + folder.string() + ", which is not there");
  EXPECT_EQ(open(1), MORTISE_E_IO);
  EXPECT_TRUE(host.error().starts_with("no file can be made in " + folder.string() + ": No such file or directory"))
      << host.error();
}

// A disk that fails does so in the middle: here no byte beyond the first block may be written any more.
TEST_F(Nvme, TellsWhatFailedWhenItIsWaitedFor) {
  ASSERT_EQ(open(4), MORTISE_OK) << host.error();
  ASSERT_EQ(fetch({{kBlock, kBlock}}), MORTISE_OK);
  ASSERT_NE(take(), nullptr);
  const auto earlier = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit little{kBlock, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  EXPECT_EQ(put(), MORTISE_OK);
  EXPECT_EQ(finish(), MORTISE_E_IO);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, earlier);
  const std::string text = "states cannot be written to the file in " + folder.string() + ": File too large";
  EXPECT_TRUE(host.error().starts_with(text)) << host.error();
  // And for ever: what is in the store is not what was put.
  EXPECT_EQ(fetch({{0, kBlock}}), MORTISE_OK);
  void* piece = nullptr;
  EXPECT_EQ(store().take(plugin->self(), &piece), MORTISE_E_IO);
}

TEST_F(Nvme, RefusesCallsOutOfOrder) {
  void* piece = nullptr;
  ASSERT_EQ(open(4), MORTISE_OK) << host.error();
  EXPECT_EQ(store().take(plugin->self(), &piece), MORTISE_E_ARGUMENT);
  EXPECT_EQ(put(), MORTISE_E_ARGUMENT);
  ASSERT_EQ(fetch({{0, kBlock}}), MORTISE_OK);
  ASSERT_EQ(fetch({{kBlock, kBlock}}), MORTISE_OK);
  EXPECT_EQ(fetch({{2 * kBlock, kBlock}}), MORTISE_E_ARGUMENT);
  take();
  EXPECT_EQ(store().take(plugin->self(), &piece), MORTISE_E_ARGUMENT);
}

TEST_F(Nvme, SaysWhereStatesLieAndWhatAnUpdateTakes) {
  mortise_str about{};
  ASSERT_EQ(store().describe(plugin->self(), &about), MORTISE_OK);
  EXPECT_TRUE(mortise::view(about).starts_with("states in " + folder.string() + ", ")) << mortise::view(about);
  int64_t bytes = 0;
  ASSERT_EQ(store().memory(plugin->self(), 100, &bytes), MORTISE_OK);
  EXPECT_EQ(bytes, 200);
}

TEST_F(Nvme, TakesTheTemporaryFolderWhereNoneIsNamed) {
  plugin.reset();
  host.unset("path");
  const char* earlier = std::getenv("TMPDIR");
  const std::string kept = earlier ? earlier : "";
  for (const auto& [variable, expected] : {std::pair(folder.string(), folder.string()), {"", "/var/tmp"}}) {
    ::setenv("TMPDIR", variable.c_str(), 1);
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    mortise_str about{};
    ASSERT_EQ(store().describe(plugin->self(), &about), MORTISE_OK);
    EXPECT_TRUE(mortise::view(about).starts_with("states in " + expected + ", ")) << mortise::view(about);
    plugin.reset();
  }
  earlier ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

}  // namespace
