// A checkpoint is complete or absent, and a damaged one is found before it is used.
#include "core/store/checkpoint.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "core/base/diagnostic.hpp"
#include "core/store/hash.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

class Checkpoints : public testing::Test {
 protected:
  void SetUp() override {
    run = fs::path(testing::TempDir()) / ("mortise_checkpoint." + std::to_string(getpid()));
    fs::remove_all(run);
    fs::create_directories(run);
    root = run / "checkpoints";
  }
  void TearDown() override { fs::remove_all(run); }

  CheckpointManifest save(int64_t step, char fill = 'w') {
    CheckpointWriter writer(root, step);
    writer.file("model/model.safetensors", std::string(9000, fill));
    writer.file("optimizer/rank-0.safetensors", std::string(5000, 'o'));
    writer.file("state.json", "{\"step\":" + std::to_string(step) + "}");
    return writer.commit({{"optimizer.x", {"0.1.0", std::string(64, '0')}}});
  }
  Found step(int64_t n) const { return {(root / ("step-" + std::to_string(n))).string(), n}; }
  std::string damage(const Found& found) {
    try {
      verify_checkpoint(found);
      return "";
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "checkpoint_damaged");
      EXPECT_EQ(f.diagnostic.exit, kExitData);
      return f.diagnostic.at + ": " + f.diagnostic.message;
    }
  }
  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // In place: a file that is cut and written anew is synced by some file systems each time.
  static void flip(const fs::path& path, size_t bit) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto at = static_cast<std::streamoff>(bit / 8);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1 << bit % 8);
    file.seekp(at);
    file.put(byte);
  }
  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  fs::path run, root;
};

TEST_F(Checkpoints, SayWhatTheyHold) {
  const CheckpointManifest saved = save(1200), read = verify_checkpoint(step(1200)).manifest;
  EXPECT_EQ(read.step, 1200);
  EXPECT_EQ(read.sha256, saved.sha256);
  EXPECT_EQ(read.files.size(), 3u);
  EXPECT_EQ(read.files.at("model/model.safetensors").bytes, 9000u);
  EXPECT_EQ(read.files.at("state.json").sha256, sha256_of("{\"step\":1200}", 13));
  EXPECT_EQ(read.plugins.at("optimizer.x").version, "0.1.0");
  EXPECT_EQ(read.bytes(), 9000u + 5000u + 13u);
}

TEST_F(Checkpoints, HaveAHashThatFollowsFromTheirContentAlone) {
  const std::string first = save(7).sha256;
  fs::remove_all(root);
  EXPECT_EQ(save(7).sha256, first);
  fs::remove_all(root);
  EXPECT_NE(save(7, 'x').sha256, first);
}

TEST_F(Checkpoints, AreNotThereUntilTheyAreCommitted) {
  {
    CheckpointWriter writer(root, 5);
    writer.file("state.json", "{}");
    EXPECT_TRUE(checkpoints_in(root).empty());
  }
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(Checkpoints, AreListedNewestFirst) {
  for (const int64_t n : {9, 1000, 20}) save(n);
  for (const char* name : {".tmp-step-3", "step-", "step-x", "step-007", "step--1", "best"})
    fs::create_directories(root / name);
  std::vector<int64_t> steps;
  for (const Found& f : checkpoints_in(root)) steps.push_back(f.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1000, 20, 9}));
  EXPECT_TRUE(checkpoints_in(run / "nothing").empty());
  write(run / "file", "");
  EXPECT_THROW(checkpoints_in(run / "file"), Failure);
}

TEST_F(Checkpoints, TakeThePlaceOfADamagedOne) {
  save(5);
  fs::remove(root / "step-5/state.json");
  EXPECT_NE(damage(step(5)), "");
  save(5);
  EXPECT_EQ(damage(step(5)), "");
}

TEST_F(Checkpoints, TakeThePlaceOfAnotherOne) {
  const std::string old = save(5, 'o').sha256;
  const std::string fresh = save(5, 'n').sha256;
  EXPECT_NE(old, fresh);
  EXPECT_EQ(verify_checkpoint(step(5)).manifest.sha256, fresh);
  EXPECT_EQ(std::distance(fs::directory_iterator(root), {}), 1);
}

TEST_F(Checkpoints, HoldNothingOfASaveThatWasCutShort) {
  fs::create_directories(root / ".tmp-step-5/model");
  write(root / ".tmp-step-5/model/left.safetensors", "left");
  save(5);
  EXPECT_FALSE(fs::exists(root / "step-5/model/left.safetensors"));
  EXPECT_EQ(damage(step(5)), "");
}

// A damaged disk gives folders for files, and errors for bytes.
TEST_F(Checkpoints, ShowAManifestThatCannotBeRead) {
  save(5);
  fs::remove(root / "step-5/MANIFEST.json");
  EXPECT_EQ(damage(step(5)), step(5).path + "/MANIFEST.json: it cannot be read: No such file or directory");
  fs::create_directory(root / "step-5/MANIFEST.json");
  EXPECT_EQ(damage(step(5)), step(5).path + "/MANIFEST.json: it is not a regular file");
  fs::remove(root / "step-5/MANIFEST.json");
  write(root / "step-5/MANIFEST.json", std::string(3'000'000, ' '));
  EXPECT_EQ(damage(step(5)), step(5).path + "/MANIFEST.json: it is larger than 2 MiB");
}

TEST_F(Checkpoints, LeaveNothingBehindWhenTheyAreRemoved) {
  save(5);
  remove_checkpoint(step(5));
  EXPECT_TRUE(fs::is_empty(root));
  fs::create_directories(root / ".tmp-step-9/model");
  fs::create_directories(root / ".tmp-old-step-8");
  remove_leftovers(root);
  EXPECT_TRUE(fs::is_empty(root));
}

TEST_F(Checkpoints, AreLinkedByName) {
  save(5);
  save(6);
  for (const int64_t n : {5, 6}) {
    point_at(root, "latest", n);
    EXPECT_EQ(fs::read_symlink(root / "latest"), "step-" + std::to_string(n));
  }
  EXPECT_EQ(checkpoints_in(root).size(), 2u);
}

TEST_F(Checkpoints, ShowAFileThatIsCutShortOrGone) {
  save(5);
  const fs::path file = root / "step-5/model/model.safetensors";
  fs::resize_file(file, 4096);
  EXPECT_EQ(damage(step(5)), file.string() + ": 4,096 bytes, 9,000 recorded");
  fs::remove(file);
  EXPECT_EQ(damage(step(5)), file.string() + ": it cannot be read: No such file or directory");
}

// The same bytes, but another file's: what is verified and what is read later need not be the same.
TEST_F(Checkpoints, HoldNoLinks) {
  save(5);
  const fs::path model = root / "step-5/model";
  fs::rename(model / "model.safetensors", run / "elsewhere");
  fs::create_symlink(run / "elsewhere", model / "model.safetensors");
  EXPECT_EQ(damage(step(5)), (model / "model.safetensors").string() + ": it is a link, which is not followed");
  save(5);
  fs::rename(model, run / "model");
  fs::create_directory_symlink(run / "model", model);
  EXPECT_EQ(damage(step(5)),
            (model / "model.safetensors").string() + ": it lies behind a link, or in what is no folder");
  save(6);
  fs::create_directory_symlink("step-6", root / "step-7");
  EXPECT_EQ(damage(step(7)), step(7).path + "/MANIFEST.json: it lies behind a link, or in what is no folder");
}

// Whoever waited for a writer of the FIFO would wait for ever.
TEST_F(Checkpoints, HoldNoFifos) {
  for (const char* name : {"state.json", "MANIFEST.json"}) {
    save(5);
    const std::string path = step(5).path + "/" + name;
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    EXPECT_EQ(damage(step(5)), path + ": it is not a regular file");
  }
}

TEST_F(Checkpoints, ShowEveryTruncation) {
  save(5);
  for (const auto& entry : fs::recursive_directory_iterator(root / "step-5")) {
    if (!entry.is_regular_file()) continue;
    const std::string whole = read(entry.path());
    for (size_t n = 0; n < whole.size(); n += whole.size() > 4096 ? 1024 : 1) {
      write(entry.path(), whole.substr(0, n));
      ASSERT_NE(damage(step(5)), "") << entry.path() << " cut to " << n;
    }
    write(entry.path(), whole + '\n');
    ASSERT_NE(damage(step(5)), "") << entry.path() << " with one byte more";
    write(entry.path(), whole);
  }
  EXPECT_EQ(damage(step(5)), "");
}

TEST_F(Checkpoints, ShowTenThousandFlippedBits) {
  save(5);
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(root / "step-5"))
    if (entry.is_regular_file()) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 4u);
  std::ranges::sort(files);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const fs::path& file = files[static_cast<size_t>(i) % files.size()];
    const size_t bit = random() % (fs::file_size(file) * 8);
    flip(file, bit);
    ASSERT_NE(damage(step(5)), "") << file << ", bit " << bit;
    flip(file, bit);
  }
  EXPECT_EQ(damage(step(5)), "");
}

TEST_F(Checkpoints, ShowFilesThatChangedPlaces) {
  {
    CheckpointWriter writer(root, 5);
    writer.file("model/model-00001-of-00002.safetensors", "aaaa");
    writer.file("model/model-00002-of-00002.safetensors", "bbbb");
    writer.commit({});
  }
  const fs::path model = root / "step-5/model";
  fs::rename(model / "model-00001-of-00002.safetensors", model / "x");
  fs::rename(model / "model-00002-of-00002.safetensors", model / "model-00001-of-00002.safetensors");
  fs::rename(model / "x", model / "model-00002-of-00002.safetensors");
  EXPECT_NE(damage(step(5)), "");
}

TEST_F(Checkpoints, ShowAFolderUnderAnotherStep) {
  save(5);
  fs::rename(root / "step-5", root / "step-6");
  EXPECT_EQ(damage(step(6)), step(6).path + "/MANIFEST.json: it is that of step 5");
}

// A hand that edits a manifest and its hash: what it says is checked all the same.
TEST_F(Checkpoints, RefuseAManifestThatLeavesTheFolder) {
  CheckpointManifest m;
  m.step = 5;
  for (const char* name : {"../secret", "/etc/passwd", "a//b", "a/./b", "", "a\nb", "a/", "..", "a\\b"}) {
    m.files = {{name, {1, std::string(64, 'a')}}};
    EXPECT_THROW(parse_checkpoint_manifest(manifest_text(m), "MANIFEST.json"), Failure) << name;
  }
  m.files.clear();
  m.step = INT64_MAX;
  std::string text = manifest_text(m);
  EXPECT_EQ(parse_checkpoint_manifest(text, "MANIFEST.json").step, INT64_MAX);
  // One more, with the hash that belongs to it.
  text.replace(text.find("9223372036854775807"), 19, "9223372036854775808");
  const size_t tail = text.find(",\n \"sha256\"");
  text = text.substr(0, tail) + ",\n \"sha256\": \"" + sha256_of(text.data(), tail) + "\"\n}\n";
  EXPECT_THROW(parse_checkpoint_manifest(text, "MANIFEST.json"), Failure);
  m.step = 5;
  m.files = {{"a/b", {1, std::string(63, 'a') + "g"}}};
  EXPECT_THROW(parse_checkpoint_manifest(manifest_text(m), "MANIFEST.json"), Failure);
  m.files = {{"a/b", {1, std::string(64, 'a')}}};
  EXPECT_EQ(parse_checkpoint_manifest(manifest_text(m), "MANIFEST.json").files.size(), 1u);
}

TEST_F(Checkpoints, SayWhatCouldNotBeWritten) {
  fs::create_directories(run);
  std::ofstream(root) << "a file where the folder should be";
  try {
    save(5);
    FAIL();
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.exit, kExitIo);
    EXPECT_EQ(f.diagnostic.code, "not_written");
  }
}

}  // namespace
}  // namespace mortise
