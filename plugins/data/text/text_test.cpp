#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;

class TextData : public ::testing::Test {
 protected:
  TextData() {
    std::filesystem::create_directories(folder_);
    host_.set_tokenizer({});
    host_.unset("validation_path").set("prose", false);
  }
  ~TextData() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  mortise_status open(Plugin& plugin, int64_t length) {
    const mortise_data_request request = {sizeof request, 0, length, 0};
    return plugin.object<mortise_data>("data").open(plugin.self(), &request);
  }
  mortise_split describe(Plugin& plugin, std::string_view split = "train") { return plugin.describe(split); }
  mortise_status status_of_describe(Plugin& plugin, std::string_view split) {
    mortise_split s{};
    s.struct_size = sizeof s;
    return plugin.object<mortise_data>("data").describe(plugin.self(), str(split), &s);
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_text_test_" + std::to_string(getpid()));
  FakeHost host_;
};

TEST_F(TextData, PredictsEachNextTokenAlsoAcrossSamples) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abcdefgh")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  ASSERT_EQ(describe(plugin).samples, 3);
  auto samples = plugin.samples("train", {2, 0, 1});
  EXPECT_EQ(samples[1]["input_ids"], (Ids{'a', 'b', 'c'}));
  EXPECT_EQ(samples[1]["labels"], (Ids{'b', 'c', 'd'}));
  EXPECT_EQ(samples[1]["positions"], (Ids{0, 1, 2}));
  EXPECT_EQ(samples[2]["labels"], (Ids{'e', 'f', 'g'}));
  // Two tokens are left: one has a next one.
  EXPECT_EQ(samples[0]["input_ids"], (Ids{'g'}));
  EXPECT_EQ(samples[0]["labels"], (Ids{'h'}));
  EXPECT_EQ(samples[0]["positions"], (Ids{0}));
}

// "abcde", a line's end, "fgh": samples of 3 begin at a, d, f.
TEST_F(TextData, ASampleIsOfThePatternOfItsFirstToken) {
  std::filesystem::create_directories(folder_ / "web");
  const std::string a = file("a.txt", "abcd\n"), b = file("web/b.txt", "fg\n"), c = file("web/c.txt", "ijklm");
  host_.set("path", std::vector<std::string>{a, b, c});
  host_.patterns["path"] = {a, folder_ / "web/*.txt", folder_ / "web/*.txt"};
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  EXPECT_EQ(describe(plugin).samples, 4);
  using Groups = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(plugin.groups("train"), (Groups{{"a.txt", 2}, {"web/*.txt", 2}}));
  EXPECT_EQ(describe(plugin, "validation").samples, 0);
  EXPECT_EQ(plugin.groups("validation"), Groups());
}

TEST_F(TextData, LeavesOutALastTokenWithoutANextOne) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abcdefg")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  EXPECT_EQ(describe(plugin).samples, 2);
}

TEST_F(TextData, GivesEveryTokenButTheFirstAsALabelOnce) {
  for (int size = 2; size < 40; ++size)
    for (const int64_t length : {1, 2, 3, 7, 1000}) {
      std::string text;
      for (int i = 0; i < size; ++i) text.push_back(static_cast<char>('A' + i));
      host_.set("path", std::vector<std::string>{file("a.txt", text)});
      Plugin plugin(host_, MORTISE_PLUGIN_FILE);
      ASSERT_EQ(open(plugin, length), MORTISE_OK);
      Ids numbers(static_cast<size_t>(describe(plugin).samples)), labels;
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
      for (auto& sample : plugin.samples("train", numbers))
        labels.insert(labels.end(), sample["labels"].begin(), sample["labels"].end());
      EXPECT_EQ(labels, Ids(text.begin() + 1, text.end())) << size << " tokens, length " << length;
    }
}

TEST_F(TextData, JoinsFilesByANewlineWhereOneIsMissing) {
  host_.set("path", std::vector<std::string>{file("a.txt", "a"), file("b.txt", "b\n"), file("c.txt", "c")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 16), MORTISE_OK);
  ASSERT_EQ(describe(plugin).samples, 1);
  EXPECT_EQ(plugin.samples("train", {0})[0]["input_ids"], (Ids{'a', '\n', 'b', '\n'}));
  EXPECT_EQ(plugin.samples("train", {0})[0]["labels"].back(), 'c');
}

TEST_F(TextData, JoinsAFileThatStandsThereTwice) {
  const std::string a = file("a.txt", "a"), b = file("b.txt", "b");
  host_.set("path", std::vector<std::string>{a, b, a});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 16), MORTISE_OK);
  EXPECT_EQ(describe(plugin).samples, 1);
  EXPECT_EQ(plugin.samples("train", {0})[0]["labels"], (Ids{'\n', 'b', '\n', 'a'}));
}

TEST_F(TextData, SaysWhatItRead) {
  const std::string readme = file("README.md", std::string(61204, 'x'));
  host_.set("path", std::vector<std::string>{readme});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 128), MORTISE_OK);
    EXPECT_EQ(view(describe(plugin).about), "README.md, 61,204 tokens");
  }
  host_.set("path", std::vector<std::string>{readme, file("b", "b"), file("c", "c")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 128), MORTISE_OK);
  EXPECT_EQ(view(describe(plugin).about), "README.md and 2 others, 61,208 tokens");
  int64_t vocabulary = -1;
  EXPECT_EQ(plugin.object<mortise_data>("data").vocabulary(plugin.self(), &vocabulary), MORTISE_OK);
  EXPECT_EQ(vocabulary, 0);
}

TEST_F(TextData, HasAValidationSplitOnlyIfOneIsNamed) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abcdefgh")});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 4), MORTISE_OK);
    EXPECT_EQ(describe(plugin, "validation").samples, 0);
  }
  host_.set("validation_path", std::vector<std::string>{file("v.txt", "xyz")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 4), MORTISE_OK);
  EXPECT_EQ(describe(plugin, "validation").samples, 1);
  EXPECT_EQ(view(describe(plugin, "validation").about), "v.txt, 3 tokens");
  EXPECT_EQ(plugin.samples("validation", {0})[0]["input_ids"], (Ids{'x', 'y'}));
}

TEST_F(TextData, DeclaresWhatPaddingHoldsAndThatLabelsAreCounted) {
  host_.set("path", std::vector<std::string>{file("a.txt", "ab")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  const mortise_data& data = plugin.object<mortise_data>("data");
  ASSERT_EQ(data.n_fields, 3U);
  EXPECT_EQ(data.fields[0].fill, 0);
  EXPECT_EQ(data.fields[1].fill, -100);
  EXPECT_EQ(view(data.fields[1].unit), "tokens");
  EXPECT_EQ(view(data.fields[0].unit), "");
  EXPECT_EQ(data.fields[2].fill, 0);
}

TEST_F(TextData, TakesATokenizerWithMoreTokensThanBytes) {
  FakeTokenizer doubling;
  doubling.encode = [](std::string_view text) { return Ids(text.size() * 2, 70000); };
  host_.set_tokenizer(doubling);
  host_.set("path", std::vector<std::string>{file("a.txt", "abc")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 8), MORTISE_OK);
  ASSERT_EQ(describe(plugin).samples, 1);
  EXPECT_EQ(plugin.samples("train", {0})[0]["labels"], Ids(5, 70000));
}

TEST_F(TextData, RefusesAMissingFileAFolderAndAnEmptyOne) {
  const auto refusal = [&](const std::vector<std::string>& paths) {
    host_.set("path", paths);
    host_.blamed.reset();
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_OK);
    EXPECT_EQ(status_of_describe(plugin, "train"), MORTISE_E_CONFIG);
    EXPECT_EQ(host_.blamed.value().key, "path");
    return host_.blamed->why;
  };
  EXPECT_EQ(refusal({folder_ / "nowhere.txt"}), (folder_ / "nowhere.txt").string() + ": No such file or directory");
  EXPECT_EQ(refusal({folder_}), folder_.string() + " is a folder");
  EXPECT_EQ(refusal({file("empty.txt", "")}), "there is too little text to learn from: empty.txt, 0 tokens");
  EXPECT_EQ(refusal({file("one.txt", "x")}), "there is too little text to learn from: one.txt, 1 token");
  EXPECT_EQ(refusal({}), "no file is named");
  const std::filesystem::path pipe = folder_ / "pipe.txt", nowhere = folder_ / "link.txt";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal({pipe}), pipe.string() + " is a pipe, a socket or a device: it is read more than once");
  std::filesystem::create_symlink("nothing", nowhere);
  EXPECT_EQ(refusal({nowhere}), nowhere.string() + ": No such file or directory");
  EXPECT_EQ(host_.blamed->fix.find(nowhere.string()), std::string::npos) << "itself: " << host_.blamed->fix;
}

TEST_F(TextData, ReadsNoFileOfASplitThatNobodyAsksFor) {
  host_.set("path", std::vector<std::string>{folder_ / "nowhere.txt"});
  host_.set("validation_path", std::vector<std::string>{file("v.txt", "xyz")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 4), MORTISE_OK);
  EXPECT_EQ(describe(plugin, "validation").samples, 1);
  EXPECT_EQ(plugin.samples("validation", {0})[0]["positions"], (Ids{0, 1}));
}

TEST_F(TextData, BlamesTheKeyWhoseTextTheTokenizerRefuses) {
  FakeTokenizer ascii;
  ascii.encode = [](std::string_view text) {
    for (const char c : text)
      if (c < 0) throw std::runtime_error("byte beyond ASCII");
    return Ids(text.begin(), text.end());
  };
  host_.set_tokenizer(ascii);
  host_.set("path", std::vector<std::string>{file("a.txt", "plain")});
  host_.set("validation_path", std::vector<std::string>{file("v.txt", "\xC3\xA9")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin, 8), MORTISE_OK);
  EXPECT_EQ(describe(plugin).samples, 1);
  EXPECT_EQ(status_of_describe(plugin, "validation"), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.blamed.value().key, "validation_path");
}

TEST_F(TextData, RefusesASampleThatItDoesNotHave) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abc")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 8), MORTISE_OK);
  EXPECT_THROW(plugin.samples("train", {1}), PluginError);
  EXPECT_THROW(plugin.samples("train", {-1}), PluginError);
  EXPECT_THROW(plugin.samples("validation", {0}), PluginError);
}

TEST_F(TextData, RefusesARunWithoutASequenceLengthOrWithoutATokenizer) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abc")});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 0), MORTISE_E_CONFIG);
  }
  host_.withhold("mortise.tokenizer/0");
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin, 8), MORTISE_E_NOT_FOUND);
}

TEST_F(TextData, ItsFingerprintIsThatOfTheTokensAndTheirCut) {
  const auto fingerprint = [&](const std::vector<std::string>& texts, int64_t length) {
    std::vector<std::string> files;
    for (const std::string& text : texts) files.push_back(file(std::to_string(files.size()) + ".txt", text));
    host_.set("path", files);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_OK);
    return std::string(view(describe(plugin).fingerprint));
  };
  const std::string one = fingerprint({"abcdefgh"}, 3);
  EXPECT_TRUE(one.starts_with("8 tokens, 3 a sample, ")) << one;
  EXPECT_EQ(one.size(), std::string("8 tokens, 3 a sample, ").size() + 32) << one;
  EXPECT_EQ(fingerprint({"abcdefgh"}, 3), one);
  EXPECT_EQ(fingerprint({"abcd\n", "efgh"}, 3), fingerprint({"abcd\nefgh"}, 3));  // names of files are nothing to it
  // Reversed, one letter, two swapped, cut, doubled, other samples.
  std::set<std::string> all = {one};
  for (const char* other : {"hgfedcba", "abcdefgi", "abcdefhg", "bacdefgh", "abcdefg", "abcdefghabcdefgh"})
    all.insert(fingerprint({other}, 3));
  all.insert(fingerprint({"abcdefgh"}, 4));
  EXPECT_EQ(all.size(), 8u);
}

TEST_F(TextData, HasNoFingerprintWithoutASplitNorForAnOlderHost) {
  host_.set("path", std::vector<std::string>{file("a.txt", "abcdefgh")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  EXPECT_EQ(describe(plugin, "validation").fingerprint.len, 0u);
  mortise_split older{};
  older.struct_size = offsetof(mortise_split, fingerprint);
  ASSERT_EQ(plugin.object<mortise_data>("data").describe(plugin.self(), MORTISE_STR("train"), &older), MORTISE_OK);
  EXPECT_EQ(older.samples, 3);
  EXPECT_EQ(older.fingerprint.ptr, nullptr);
}

TEST_F(TextData, RefusesWhatIsCompressed) {
  for (const auto& [bytes, name] : std::map<std::string, std::string>{{"\x1F\x8B\x08 and more", "gzip"},
                                                                      {"\x28\xB5\x2F\xFD and more", "Zstandard"},
                                                                      {"BZh91AY", "bzip2"},
                                                                      {"PK\3\4 and more", "zip"}}) {
    host_.set("path", std::vector<std::string>{file("a.txt", "abc"), file("b.gz", bytes)});
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 3), MORTISE_OK);
    EXPECT_EQ(status_of_describe(plugin, "train"), MORTISE_E_CONFIG);
    EXPECT_NE(host_.blamed.value().why.find("b.gz is no text: it is compressed (" + name + ")"), std::string::npos)
        << host_.blamed->why;
  }
}

TEST_F(TextData, WarnsOfATextThatIsShorterThanOneSample) {
  for (const int64_t length : {5, 6, 128}) {
    host_.set("path", std::vector<std::string>{file("a.txt", "abcdef")});
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, length), MORTISE_OK);
    describe(plugin);
  }
  ASSERT_EQ(host_.log.size(), 2u);  // five tokens and each one's next are a whole sample
  EXPECT_EQ(host_.log[1].text,
            "a.txt, 6 tokens, is less than one sample of 128 (data.sequence_length): too little to learn from");
}

TEST_F(TextData, TakesOnlyProseIfAsked) {
  const auto text_of = [&](const std::string& name, const std::string& text) {
    host_.set("path", std::vector<std::string>{file(name, text)}).set("prose", true);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 1000), MORTISE_OK);
    describe(plugin);
    std::string all;
    auto sample = plugin.samples("train", {0})[0];
    for (const int64_t id : sample["input_ids"]) all.push_back(static_cast<char>(id));
    return all + static_cast<char>(sample["labels"].back());
  };
  EXPECT_EQ(text_of("a.cpp",
                    "#include <x>\n// Why it is so,\n// and not otherwise.\n//   int example = 1;\nint a;  // no\n"
                    "  /// The second.\n\tint b;\n/** A block\n *  of    lines.\n */\nint c; /* one */\n/* short */\n"),
            "Why it is so,\nand not otherwise.\n\nThe second.\n\nA block\nof lines.\n\nshort\n");
  EXPECT_EQ(text_of("a.py", "#!/bin/python\n# A comment.\nx = 1  # no\n"), "A comment.\n\n");
  EXPECT_EQ(
      text_of("a.md",
              "# Title\n\n\n\nSome words.\n```sh\nls\n```\n    indented code\n| a | table |\n* An item\n  of two\n"),
      "# Title\n\nSome words.\n\n* An item\nof two\n");
  EXPECT_EQ(text_of("a.txt", "// as it is  |\n"), "// as it is  |\n");
}

}  // namespace
