#include "core/store/files.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/base/diagnostic.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::path(testing::TempDir()) / ("mortise_files." + std::to_string(getpid()));
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }

  std::string read(const std::string& name) {
    std::ifstream in(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t entries() { return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {})); }

  fs::path folder;
};

TEST_F(Files, AppearWhenTheyAreCompleteAndNotBefore) {
  write_file(folder / "a", [&](const Sink& sink) {
    sink("one", 3);
    EXPECT_FALSE(fs::exists(folder / "a"));
    sink(" two", 4);
  });
  EXPECT_EQ(read("a"), "one two");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, KeepWhatWasThereUntilThen) {
  write_file(folder / "a", "old");
  const auto half = [&](const Sink& sink) {
    sink("new", 3);
    EXPECT_EQ(read("a"), "old");
    throw std::runtime_error("somebody's");
  };
  EXPECT_THROW(write_file(folder / "a", half), std::runtime_error);
  EXPECT_EQ(read("a"), "old");
  EXPECT_EQ(entries(), 1u);
  write_file(folder / "a", "new");
  EXPECT_EQ(read("a"), "new");
}

TEST_F(Files, LeaveNothingWhenTheFolderIsMissing) {
  try {
    write_file(folder / "none/a", "x");
    FAIL() << "written into a folder that does not exist";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "not_written");
    EXPECT_EQ(f.diagnostic.exit, kExitIo);
    EXPECT_EQ(f.diagnostic.message,
              (folder / "none/a").string() + " cannot be opened for writing: No such file or directory");
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, LeaveNothingWhenTheyCannotTakeTheirPlace) {
  fs::create_directories(folder / "a/inside");  // a folder that is not empty is not replaced by a file
  EXPECT_THROW(write_file(folder / "a", "x"), Failure);
  EXPECT_EQ(entries(), 1u);
  EXPECT_TRUE(fs::is_directory(folder / "a"));
}

TEST_F(Files, SayThatADiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  // A file beside a device cannot be made here, so the temporary name is a link to the device that is always full.
  const fs::path temporary = folder / ("a.tmp-" + std::to_string(getpid()));
  fs::create_symlink("/dev/full", temporary);
  try {
    write_file(folder / "a", "x");
    FAIL() << "written to a full disk";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.diagnostic.exit, kExitIo);
    EXPECT_EQ(failure.diagnostic.message, (folder / "a").string() + " cannot be written: No space left on device");
    EXPECT_EQ(failure.diagnostic.effect, "what was there before, if anything, is untouched");
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(Files, MayBeEmptyAndMayBeLarge) {
  write_file(folder / "empty", "");
  EXPECT_EQ(fs::file_size(folder / "empty"), 0u);
  const std::string large(3'000'001, 'x');
  write_file(folder / "large", large);
  EXPECT_EQ(read("large"), large);
}

}  // namespace
}  // namespace mortise
