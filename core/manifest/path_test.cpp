#include "core/manifest/path.hpp"

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

class Paths : public ManifestTest {
 protected:
  // Found by a glob, relative to the test's folder.
  std::vector<std::string> found(const std::string& pattern) {
    std::vector<std::string> names;
    for (const std::string& path : expand_glob(folder / pattern))
      names.push_back(std::filesystem::path(path).lexically_relative(folder));
    return names;
  }
};

TEST_F(Paths, ExpandGlobsSortedByName) {
  for (const char* name :
       {"b.bin", "a.bin", "c.txt", ".hidden.bin", "x/d.bin", "x/y/e.bin", "x/y/z/f.bin", "odd[1].bin", "star*.bin"})
    file(name, "");
  using Names = std::vector<std::string>;
  EXPECT_EQ(found("?.bin"), (Names{"a.bin", "b.bin"}));
  EXPECT_EQ(found("x/**/*.bin"), (Names{"x/d.bin", "x/y/e.bin", "x/y/z/f.bin"}));
  EXPECT_EQ(found("x/**"), (Names{"x/d.bin", "x/y/e.bin", "x/y/z/f.bin"}));
  EXPECT_EQ(found("*/y/*.bin"), (Names{"x/y/e.bin"}));
  EXPECT_EQ(found(".*.bin"), (Names{".hidden.bin"}));
  EXPECT_EQ(found("star*.bin"), (Names{"star*.bin"}));  // a file of that very name
  EXPECT_EQ(found("none*"), Names{});
  EXPECT_EQ(found("none/**/x"), Names{});
  EXPECT_EQ(found("not a glob"), (Names{"not a glob"}));  // whether it exists is asked by who reads it
}

TEST_F(Paths, DoNotFollowLinksThatLeadBack) {
  file("x/d.bin", "");
  std::filesystem::create_directory_symlink(folder / "x", folder / "x/again");
  EXPECT_EQ(found("x/**/*.bin"), (std::vector<std::string>{"x/d.bin"}));
}

TEST_F(Paths, EnterNoRunDirectoryAndFindNoDeadLink) {
  for (const char* name : {"x/d.bin", "x/run/d.bin", "x/run/run.toml", "x/run/sources/origins.json"}) file(name, "");
  std::filesystem::create_directory_symlink(folder / "x/run", folder / "x/again");
  std::filesystem::create_symlink(folder / "x/d.bin", folder / "x/link.bin");
  std::filesystem::create_symlink(folder / "nowhere", folder / "x/dead.bin");
  using Names = std::vector<std::string>;
  EXPECT_EQ(found("x/*.bin"), (Names{"x/d.bin", "x/link.bin"}));
  EXPECT_EQ(found("x/**/*.bin"), (Names{"x/d.bin", "x/link.bin"}));
  EXPECT_EQ(found("x/*/d.bin"), Names{});
  EXPECT_EQ(found("x/**/*"), (Names{"x/d.bin", "x/link.bin"}));
  EXPECT_EQ(found("x/run/*.bin"), (Names{"x/run/d.bin"}));  // named, not found
}

TEST_F(Paths, AreAbsoluteAndShort) {
  EXPECT_EQ(absolute_path("a/../b/", "/x"), "/x/b");
  EXPECT_EQ(absolute_path("/a", "/x"), "/a");
  EXPECT_EQ(absolute_path("..", "/x/y"), "/x");
  EXPECT_EQ(absolute_path("/", "/x"), "/");
}

TEST_F(Paths, ExpandHomeAndVariables) {
  setenv("HOME", "/home/you", 1);
  setenv("MORTISE_TEST_EMPTY", "", 1);
  Report report;
  const auto resolved = [&](const std::string& text) {
    Value value{text, {"x.toml", 1, 1, ""}};
    resolve_paths(value, "/x", report);
    return value.as_text();
  };
  EXPECT_EQ(resolved("~/data"), "/home/you/data");
  EXPECT_EQ(resolved("~"), "/home/you");
  EXPECT_EQ(resolved("~you"), "/x/~you");
  EXPECT_EQ(resolved("a/~/b"), "/x/a/~/b");
  EXPECT_EQ(resolved("${MORTISE_TEST_EMPTY:-/d}/e"), "/d/e");
  EXPECT_EQ(resolved("a${MORTISE_TEST_EMPTY}b$c"), "/x/ab$c");
  EXPECT_EQ(printed(report), "");
  unsetenv("HOME");
  resolved("~/data");
  EXPECT_EQ(printed(report),
            "error[unset_variable]: ${HOME} is not set in the environment\n"
            "  --> x.toml:1:1\n"
            "  fix: export HOME=/path/to/it   or write ${HOME:-/path/to/it}\n");
}

TEST_F(Paths, SayWhatAFolderHoldsWhenAGlobMatchesNothing) {
  for (const char* name : {"d/1", "d/2", "d/3", "d/4"}) file(name, "");
  Report report;
  Value value{std::vector<Value>{{std::string("d/*.bin"), {"x.toml", 1, 1, ""}}}, {}};
  resolve_paths(value, folder, report);
  EXPECT_TRUE(value.as_list().empty());
  EXPECT_EQ(printed(report),
            "error[matches_no_file]: `d/*.bin` matches no file\n"
            "  --> x.toml:1:1    looked for " +
                (folder / "d/*.bin").string() +
                "\n"
                "  fix: " +
                (folder / "d").string() + " holds 1, 2, 3, …\n");
}

}  // namespace
}  // namespace mortise
