#include "core/base/log.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <thread>
#include <vector>

namespace mortise {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Log, KeepsLinesWholeFromManyThreads) {
  const std::string path = testing::TempDir() + "mortise_log_test." + std::to_string(getpid());
  testing::internal::CaptureStderr();
  ASSERT_TRUE(set_log_file(path));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log(LogLevel::kInfo, "a line {} with braces");
    });
  for (std::thread& thread : threads) thread.join();
  log(LogLevel::kDebug, "not wanted");
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "wanted");
  set_log_level(LogLevel::kInfo);
  EXPECT_TRUE(set_log_file(""));
  log(LogLevel::kError, "on the screen only");
  const std::string screen = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(screen.ends_with("\nwanted\non the screen only\n")) << screen;

  const std::vector<std::string> lines = lines_of(path);
  ASSERT_EQ(lines.size(), 401u);
  for (int i = 0; i < 400; ++i) EXPECT_TRUE(lines[i].ends_with(" info a line {} with braces")) << lines[i];
  EXPECT_TRUE(lines[400].ends_with(" debug wanted"));
  std::remove(path.c_str());
}

TEST(Log, SaysWhenTheFileCannotBeOpened) { EXPECT_FALSE(set_log_file("/proc/nowhere/log.txt")); }

}  // namespace
}  // namespace mortise
