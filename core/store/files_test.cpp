#include "core/store/files.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

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

// What lies at the place of a new file is not written to: a link, another name of somebody's file, a FIFO.
TEST_F(Files, AreNotWrittenThroughWhatLiesInTheirPlace) {
  std::ofstream(folder / "victim") << "somebody's";
  fs::create_symlink(folder / "victim", folder / "link");
  fs::create_hard_link(folder / "victim", folder / "name");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  for (const char* name : {"victim", "link", "name", "fifo"})
    EXPECT_THROW(OpenFile((folder / name).string(), name), Failure) << name;
  EXPECT_EQ(read("victim"), "somebody's");
}

// Whoever may write in the folder cannot be there first: of two writes of one process, no name is the same.
TEST_F(Files, AreWrittenUnderANameThatCannotBeGuessed) {
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i)
    write_file(folder / "a", [&](const Sink&) {
      for (const auto& entry : fs::directory_iterator(folder))
        if (entry.path().filename() != "a") names.insert(entry.path().filename());
    });
  EXPECT_EQ(names.size(), 3u);
}

TEST_F(Files, MustFitBeforeTheyAreWritten) {
  must_fit(folder, 1);
  must_fit(folder / "none", INT64_MAX / 2);  // writing will tell
  try {
    must_fit(folder, int64_t{1} << 60);
    FAIL() << "an exabyte fits";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.exit, kExitIo);
    EXPECT_EQ(f.diagnostic.code, "no_space");
    EXPECT_NE(f.diagnostic.message.find(" free at " + folder.string()), std::string::npos);
  }
}

// What is needed is what was asked for, with the room for manifest and folders: it is refused by what it says.
TEST_F(Files, MustFitWithWhatGoesBesideThem) {
  struct statvfs disk{};
  ASSERT_EQ(::statvfs(folder.c_str(), &disk), 0);
  const auto free = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  if (free > int64_t{1} << 50) GTEST_SKIP() << "a disk of no size";
  try {
    must_fit(folder, free - 1000);  // by itself it would fit
    FAIL() << "a disk filled to the brim";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.message.find("no space left, it needs " + byte_size(free + (1 << 20)) + ", "), 0u)
        << f.diagnostic.message;
  }
}

TEST_F(Files, MayBeEmptyAndMayBeLarge) {
  write_file(folder / "empty", "");
  EXPECT_EQ(fs::file_size(folder / "empty"), 0u);
  const std::string large(3'000'001, 'x');
  write_file(folder / "large", large);
  EXPECT_EQ(read("large"), large);
}

TEST_F(Files, WhatCouldNotBeReadBackIsRefused) {
  const std::string path = folder / "run.toml";
  EXPECT_NO_THROW(must_be_readable(path, std::string(1024, 'x'), 1024));
  write_file(path, std::string(1024, 'x'));
  EXPECT_EQ(read_run_file(folder, "run.toml", 1024).size(), 1024u);
  try {
    must_be_readable(path, std::string(1025, 'x'), 1024);
    FAIL();
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "too_large");
    EXPECT_EQ(f.diagnostic.message, path + " would have 1,025 bytes; it is read up to 1,024");
  }
}

TEST_F(Files, ALinkLeadsSomewhereAtAnyTime) {
  const std::string link = folder / "latest";
  point_link(link, "a");
  std::atomic<bool> done{false};
  std::thread pointing([&] {
    for (int i = 0; i < 2000; ++i) point_link(link, i % 2 ? "a" : "b");
    done = true;
  });
  while (!done) EXPECT_TRUE(fs::is_symlink(fs::symlink_status(link)));
  pointing.join();
  EXPECT_EQ(fs::read_symlink(link), "a");
  EXPECT_EQ(entries(), 1u);
}

// A process that was killed between the two leaves the link beside; what it led to is not where the next one leads.
TEST_F(Files, ALinkDoesNotFollowWhatAnotherProcessLeft) {
  point_link(folder / "latest", "a");
  fs::create_directory_symlink("older", folder / (std::string(kTemporary) + "latest"));
  point_link(folder / "latest", "b");
  EXPECT_EQ(fs::read_symlink(folder / "latest"), "b");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, ALinkThatCannotBePointedStaysAsItWas) {
  fs::create_directories(folder / "latest/mine");
  point_link(folder / "latest", "a");
  EXPECT_TRUE(fs::exists(folder / "latest/mine"));
  EXPECT_EQ(entries(), 1u);
}

class RunFiles : public Files {
 protected:
  void SetUp() override {
    Files::SetUp();
    fs::create_directories(folder / "run/model");
    std::ofstream(folder / "run/model/config.json") << "{}";
    std::ofstream(folder / "secret") << "of another folder";
  }
  std::string refusal(const std::string& path, size_t most = 100) {
    try {
      read_run_file(folder / "run", path, most);
      return "";
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.exit, kExitData);
      EXPECT_EQ(f.diagnostic.code, "not_read");
      EXPECT_EQ(f.diagnostic.at, (folder / "run").string() + "/" + path);
      return f.diagnostic.message;
    }
  }
};

TEST_F(RunFiles, AreReadWholeUpToABound) {
  EXPECT_EQ(read_run_file(folder / "run", "model/config.json", 2), "{}");
  EXPECT_EQ(refusal("model/config.json", 1), "it is larger than 1 byte");
  std::ofstream(folder / "run/empty");
  EXPECT_EQ(read_run_file(folder / "run", "empty", 0), "");
}

TEST_F(RunFiles, AreNeverLinks) {
  fs::create_symlink("../secret", folder / "run/state.json");
  fs::create_symlink("model/config.json", folder / "run/inside.json");
  fs::create_directory_symlink("model", folder / "run/linked");
  EXPECT_EQ(refusal("state.json"), "it is a link, which is not followed");
  EXPECT_EQ(refusal("inside.json"), "it is a link, which is not followed");
  EXPECT_EQ(refusal("linked/config.json"), "it lies behind a link, or in what is no folder");
}

TEST_F(RunFiles, MayLieInAFolderThatALinkLeadsTo) {
  fs::create_directory_symlink("run", folder / "latest");
  EXPECT_EQ(read_run_file(folder / "latest", "model/config.json", 100), "{}");
}

TEST_F(RunFiles, DoNotLeaveTheirFolder) {
  for (const char* path : {"../secret", "model/../../secret", "/etc/passwd", "", "model//config.json"})
    EXPECT_EQ(refusal(path), "it is not inside " + (folder / "run").string()) << path;
}

// A reader that waited for a writer of the FIFO would hang here.
TEST_F(RunFiles, AreRegularFiles) {
  ASSERT_EQ(::mkfifo((folder / "run/status.json").c_str(), 0600), 0);
  EXPECT_EQ(refusal("status.json"), "it is not a regular file");
  EXPECT_EQ(refusal("model"), "it is not a regular file");
}

TEST_F(RunFiles, MayBeMissing) {
  EXPECT_EQ(refusal("status.json"), "it cannot be read: No such file or directory");
  EXPECT_EQ(read_run_file_if_any(folder / "run", "status.json", 100), std::nullopt);
  EXPECT_EQ(read_run_file_if_any(folder / "none", "status.json", 100), std::nullopt);
  EXPECT_EQ(read_run_file_if_any(folder / "run", "model/config.json", 100), "{}");
  // What nobody can look for is not missing.
  EXPECT_THROW(read_run_file_if_any(folder / "run", "model/config.json/status.json", 100), Failure);
  fs::create_symlink("nowhere", folder / "run/status.json");
  EXPECT_THROW(read_run_file_if_any(folder / "run", "status.json", 100), Failure);
}

}  // namespace
}  // namespace mortise
