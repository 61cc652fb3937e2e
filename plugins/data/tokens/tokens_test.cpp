#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;
using Paths = std::vector<std::string>;

template <class T>
std::string bytes(const std::vector<T>& elements) {
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(T)};
}
template <class T>
std::string as(const Ids& ids) {
  return bytes(std::vector<T>(ids.begin(), ids.end()));
}
Ids counting(int64_t n, int64_t first = 0) {
  Ids ids(static_cast<size_t>(n));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

// As llm.c's dev/data/data_common.py writes it.
std::string llmc_header(int32_t magic, int32_t version, size_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = static_cast<int32_t>(tokens);
  return bytes(header);
}
std::string llmc(const Ids& ids) { return llmc_header(20240520, 1, ids.size()) + as<uint16_t>(ids); }

// As Megatron's indexed_dataset.py writes it: one sequence a document, these long.
std::string megatron_index(uint8_t code, int64_t width, const std::vector<int32_t>& lengths) {
  std::vector<int64_t> begins, ends = {0};
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    begins.push_back(begin);
    begin += length * width;
    ends.push_back(static_cast<int64_t>(begins.size()));
  }
  return std::string("MMIDIDX\0\0", 9) + bytes<uint64_t>({1}) + static_cast<char>(code) +
         bytes<uint64_t>({lengths.size(), ends.size()}) + bytes(lengths) + bytes(begins) + bytes(ends);
}

class TokenData : public ::testing::Test {
 protected:
  TokenData() {
    std::filesystem::create_directories(folder_);
    host_.unset("validation_path").unset("dtype").unset("vocabulary").set("format", "auto");
  }
  ~TokenData() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& contents) {
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return folder_ / name;
  }
  mortise_status open(Plugin& plugin, int64_t length) {
    const mortise_data_request request = {sizeof request, 0, length, 0};
    return plugin.object<mortise_data>("data").open(plugin.self(), &request);
  }
  // All inputs of the training split, one after the other, and the last label.
  Ids all(const Paths& paths, int64_t length = 3) {
    host_.set("path", paths);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_OK);
    Ids ids;
    int64_t last = -1;
    for (auto& sample : plugin.samples("train", counting(plugin.describe("train").samples))) {
      ids.insert(ids.end(), sample["input_ids"].begin(), sample["input_ids"].end());
      last = sample["labels"].back();
    }
    ids.push_back(last);
    return ids;
  }
  std::string about(const Paths& paths) {
    host_.set("path", paths);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_OK);
    return std::string(view(plugin.describe("train").about));
  }
  // Why the key `path` is refused, and what to do.
  FakeHost::Blame refusal(const Paths& paths) {
    host_.set("path", paths);
    host_.blamed.reset();
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_OK);
    EXPECT_THROW(plugin.describe("train"), PluginError);
    return host_.blamed.value_or(FakeHost::Blame{});
  }
  std::string fingerprint(const Paths& paths, int64_t length = 8) {
    host_.set("path", paths);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_OK);
    return std::string(view(plugin.describe("train").fingerprint));
  }
  int64_t vocabulary(const Paths& paths) {
    host_.set("path", paths);
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_OK);
    int64_t n = -1;
    EXPECT_EQ(plugin.object<mortise_data>("data").vocabulary(plugin.self(), &n), MORTISE_OK);
    return n;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_tokens_test_" + std::to_string(getpid()));
  FakeHost host_;
};

TEST_F(TokenData, PredictsEachNextTokenAlsoAcrossFiles) {
  host_.set("path",
            Paths{file("a.bin", llmc({10, 11, 12, 13})), file("b.bin", llmc({14})), file("c.bin", llmc({15, 16, 17}))});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  ASSERT_EQ(plugin.describe("train").samples, 3);
  auto samples = plugin.samples("train", {2, 0, 1});
  EXPECT_EQ(samples[1]["input_ids"], (Ids{10, 11, 12}));
  EXPECT_EQ(samples[1]["labels"], (Ids{11, 12, 13}));
  EXPECT_EQ(samples[2]["input_ids"], (Ids{13, 14, 15}));
  EXPECT_EQ(samples[2]["labels"], (Ids{14, 15, 16}));
  EXPECT_EQ(samples[2]["positions"], (Ids{0, 1, 2}));
  // Two tokens are left: one has a next one.
  EXPECT_EQ(samples[0]["input_ids"], (Ids{16}));
  EXPECT_EQ(samples[0]["labels"], (Ids{17}));
  EXPECT_EQ(samples[0]["positions"], (Ids{0}));
}

// The cut of data.text.
TEST_F(TokenData, GivesEveryTokenButTheFirstAsALabelOnce) {
  for (int64_t size = 2; size < 20; ++size)
    for (const int64_t length : {1, 2, 3, 7, 1000})
      EXPECT_EQ(all({file("a.bin", llmc(counting(size)))}, length), counting(size)) << size << ", length " << length;
}

TEST_F(TokenData, ASampleIsOfTheFileOfItsFirstToken) {
  host_.set("path", Paths{file("a.bin", llmc(counting(7))), file("b.bin", llmc(counting(1))),
                          file("c.bin", llmc(counting(5)))});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 4), MORTISE_OK);
  EXPECT_EQ(plugin.describe("train").samples, 3);
  using Groups = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(plugin.groups("train"), (Groups{{"a.bin", 2}, {"b.bin", 0}, {"c.bin", 1}}));
}

TEST_F(TokenData, ReadsEveryFormatAndElementType) {
  const Ids small = {0, 1, 255, 7}, words = {0, 50256, 65535, 7}, large = {0, 70000, 2147483647, 7};
  host_.set("vocabulary", 2147483647);
  EXPECT_EQ(all({file("a.bin", llmc(words))}), words);
  EXPECT_EQ(all({file("b.bin", llmc_header(20240801, 7, 3) + as<uint32_t>({0, 70000, 7}))}), (Ids{0, 70000, 7}));
  for (const auto& [code, contents] : std::map<uint8_t, std::string>{
           {1, as<uint8_t>(small)}, {4, as<int32_t>(small)}, {5, as<int64_t>(small)}, {8, as<uint16_t>(small)}}) {
    const std::string path = file("m.bin", contents);
    file("m.idx", megatron_index(code, static_cast<int64_t>(contents.size() / small.size()), {1, 3}));
    EXPECT_EQ(all({path}), small) << int{code};
  }
  host_.set("format", "raw").unset("vocabulary");
  for (const auto& [dtype, contents] : std::map<std::string, std::string>{{"uint8", as<uint8_t>(small)},
                                                                          {"uint16", as<uint16_t>(words)},
                                                                          {"uint32", as<uint32_t>(large)},
                                                                          {"int32", as<int32_t>(large)},
                                                                          {"int64", as<int64_t>(large)}}) {
    host_.set("dtype", dtype);
    EXPECT_EQ(all({file("r.bin", contents)}), dtype == "uint8" ? small : dtype == "uint16" ? words : large) << dtype;
  }
}

TEST_F(TokenData, SaysWhatItOpened) {
  const std::string a = file("a.bin", llmc(counting(1234))), b = file("b.bin", llmc({1}));
  EXPECT_EQ(about({a}), "a.bin, 1,234 tokens");
  EXPECT_EQ(about({a, b, b}), "a.bin and 2 others, 1,236 tokens");
  const std::string m = file("m.bin", as<uint16_t>(counting(6)));
  file("m.idx", megatron_index(8, 2, {1, 2, 3}));
  EXPECT_EQ(about({m}), "m.bin, 6 tokens in 3 documents");
  EXPECT_EQ(about({m, a}), "m.bin and 1 other, 1,240 tokens in 3 documents");
}

TEST_F(TokenData, HasAValidationSplitOnlyIfOneIsNamed) {
  host_.set("path", Paths{folder_ / "nowhere.bin"});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 4), MORTISE_OK);
    EXPECT_EQ(plugin.describe("validation").samples, 0);
    EXPECT_EQ(plugin.describe("validation").fingerprint.len, 0u);
  }
  host_.set("validation_path", Paths{file("v.bin", llmc({7, 8, 9}))});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 4), MORTISE_OK);
  EXPECT_EQ(plugin.describe("validation").samples, 1);
  EXPECT_EQ(plugin.samples("validation", {0})[0]["input_ids"], (Ids{7, 8}));
  EXPECT_THROW(plugin.samples("train", {0}), PluginError);
}

TEST_F(TokenData, RefusesAFileWithoutAHeaderAndSaysWhatItMayBe) {
  const FakeHost::Blame why = refusal({file("a.bin", "HTTP and more")});
  EXPECT_EQ(why.code, "no_token_header");
  EXPECT_EQ(why.key, "path");
  EXPECT_EQ(why.why, (folder_ / "a.bin").string() +
                         " does not begin with an llm.c header (first int32 is "
                         "1,347,703,880, expected 20240520 or 20240801)");
  EXPECT_NE(why.fix.find("format = \"raw\""), std::string::npos) << why.fix;
  EXPECT_NE(refusal({file("a.bin", "")}).why.find("(it has 0 bytes)"), std::string::npos);
  file("a.idx", "");
  host_.set("format", "llmc");
  EXPECT_EQ(refusal({file("a.bin", "HTTP and more")}).code, "no_token_header") << "an index is not asked for";
}

TEST_F(TokenData, RefusesAFileOfLlmcThatIsNotWhole) {
  const auto why = [&](const std::string& contents) {
    const FakeHost::Blame blame = refusal({file("a.bin", contents)});
    EXPECT_EQ(blame.code, "bad_token_file");
    return blame.why.substr(blame.why.find(' ') + 1);
  };
  const std::string whole = llmc(counting(100));
  EXPECT_EQ(why(whole.substr(0, 1023)), "ends inside its header of 1,024 bytes: it has 1,023 bytes");
  EXPECT_EQ(why(whole.substr(0, whole.size() - 1)),
            "says that it has 100 tokens, which are 1,224 bytes with its header; it has 1,223 bytes");
  EXPECT_NE(why(whole + "xx").find("it has 1,226 bytes"), std::string::npos);
  EXPECT_NE(why(llmc_header(20240520, 1, static_cast<size_t>(-5))).find("-5 tokens"), std::string::npos);
  EXPECT_EQ(why(llmc_header(20240520, 2, 0)), "is of version 2 of llm.c's format, known is 1");
}

TEST_F(TokenData, RefusesAnIndexThatIsNotWholeOrOfAnotherFile) {
  const std::string bin = file("m.bin", as<uint16_t>(counting(6))), whole = megatron_index(8, 2, {1, 2, 3});
  const auto why = [&](const std::string& index) {
    file("m.idx", index);
    const FakeHost::Blame blame = refusal({bin});
    EXPECT_EQ(blame.code, "bad_token_file");
    return blame.why.substr(blame.why.find(' ') + 1);
  };
  EXPECT_EQ(why("MMIDIDX"), "is no index of Megatron's: it does not begin with MMIDIDX");
  EXPECT_EQ(why(std::string(40, 'x')), "is no index of Megatron's: it does not begin with MMIDIDX");
  EXPECT_EQ(why(std::string(whole).replace(9, 1, "\2")), "is of version 2, known is 1");
  EXPECT_NE(why(std::string(whole).replace(17, 1, "\7")).find("ids are of type 7;"), std::string::npos);
  EXPECT_EQ(why(whole.substr(0, whole.size() - 1)), "ends before its 3 sequences and 4 documents");
  // As many as would wrap around.
  EXPECT_NE(why(std::string(whole).replace(18, 8, std::string(8, '\xFF'))).find("ends before its 18446744"),
            std::string::npos);
  EXPECT_EQ(why(megatron_index(8, 2, {1, 2, 4})),
            "is not that of " + bin + ": by it the tokens end at byte 14, the file at 12");
  // Lengths 1, 2, 3; begins at bytes 0, 2, 6; documents begin at sequences 0, 1, 2 and end at 3.
  const size_t lengths = 34, begins = lengths + 3 * 4, documents = begins + 3 * 8;
  const auto with = [&](size_t at, int64_t number, size_t bytes_of_it = 8) {
    return why(std::string(whole).replace(at, bytes_of_it, bytes<int64_t>({number}).substr(0, bytes_of_it)));
  };
  EXPECT_EQ(with(lengths + 4, -2, 4), "says that sequence 1 has -2 tokens");
  EXPECT_EQ(with(lengths + 4, 3, 4), "says that sequence 2 begins at byte 6; the one before ends at 8");
  EXPECT_EQ(with(begins, 2), "says that sequence 0 begins at byte 2; the one before ends at 0");
  EXPECT_EQ(with(begins + 8, 3), "says that sequence 1 begins at byte 3; the one before ends at 2");
  EXPECT_NE(with(begins + 8, INT64_MIN).find("sequence 1 begins at byte -9,2"), std::string::npos);
  EXPECT_NE(with(begins + 16, INT64_MAX).find("sequence 2 begins at byte 9,2"), std::string::npos);
  EXPECT_EQ(with(documents, 1), "says that document 0 begins at sequence 1 of 3");
  EXPECT_EQ(with(documents + 8, 4), "says that document 1 begins at sequence 4 of 3");
  EXPECT_EQ(with(documents + 16, -1), "says that document 2 begins at sequence -1 of 3");
  std::filesystem::remove(folder_ / "m.idx");
  host_.set("format", "megatron");
  EXPECT_EQ(refusal({bin}).why, bin + " has no index beside it, " + (folder_ / "m.idx").string());
}

TEST_F(TokenData, RefusesBareIdsOfAnUnknownOrAnotherType) {
  host_.set("format", "raw");
  EXPECT_EQ(refusal({file("a.bin", "abcd")}).why, "bare ids do not say how they are stored");
  host_.set("dtype", "uint32");
  EXPECT_EQ(refusal({file("a.bin", "abcdef")}).why,
            (folder_ / "a.bin").string() + " has 6 bytes, no whole number of uint32");
  EXPECT_EQ(refusal({file("a.bin", llmc(counting(10)))}).key, "format") << "its header is no token";
}

TEST_F(TokenData, RefusesATypeThatTheFileContradicts) {
  host_.set("dtype", "uint32");
  const FakeHost::Blame why = refusal({file("a.bin", llmc(counting(10)))});
  EXPECT_EQ(why.key, "dtype");
  EXPECT_EQ(why.why, (folder_ / "a.bin").string() + " says that its ids are uint16");
  host_.set("dtype", "uint16");
  EXPECT_EQ(all({file("a.bin", llmc(counting(10)))}), counting(10));
}

TEST_F(TokenData, RefusesAMissingFileAFolderAndTooFewTokens) {
  EXPECT_EQ(refusal({folder_ / "nowhere.bin"}).why, (folder_ / "nowhere.bin").string() + ": No such file or directory");
  EXPECT_EQ(refusal({folder_}).why, folder_.string() + " is a folder");
  EXPECT_EQ(refusal({}).why, "no file is named");
  EXPECT_EQ(refusal({file("a.bin", llmc({1}))}).why, "there are too few tokens to learn from: a.bin, 1 token");
  host_.set("format", "raw").set("dtype", "uint16");
  EXPECT_EQ(refusal({file("a.bin", "")}).why, "there are too few tokens to learn from: a.bin, 0 tokens");
}

TEST_F(TokenData, TheVocabularyIsStatedTheTokenizersOrThatOfTheHeader) {
  const std::string gpt2 = file("a.bin", llmc({1, 2})),
                    llama = file("b.bin", llmc_header(20240801, 7, 2) + as<uint32_t>({1, 2})),
                    raw = file("c.bin", as<uint16_t>({1, 2}));
  EXPECT_EQ(vocabulary({gpt2}), 50257);
  EXPECT_EQ(vocabulary({llama}), 128256);
  EXPECT_EQ(vocabulary({raw}), 0);
  EXPECT_EQ(vocabulary({folder_ / "gone.bin"}), 0) << "a run that is exported needs no data";
  host_.set("vocabulary", 99);
  EXPECT_EQ(vocabulary({gpt2}), 99);
  host_.unset("vocabulary").set_tokenizer({});
  EXPECT_EQ(vocabulary({gpt2}), 0) << "the tokenizer knows";
}

TEST_F(TokenData, RefusesAnIdAboveTheVocabulary) {
  const auto refused = [&](const std::string& path) {
    host_.set("path", Paths{path});
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, 8), MORTISE_OK);
    try {
      plugin.describe("train");
    } catch (const PluginError& e) {
      EXPECT_EQ(e.status, MORTISE_E_DATA);
      return std::string(e.what());
    }
    return std::string();
  };
  const std::string gpt2 = file("a.bin", llmc({1, 2, 50257, 3}));
  EXPECT_EQ(refused(gpt2), gpt2 +
                               ": token 2 is the id 50,257, the vocabulary has 50,257\n"
                               "  fix: data.tokens.vocabulary, if the tokenizer has more; else the file is damaged");
  host_.set("vocabulary", 50258);
  EXPECT_EQ(refused(gpt2), "");
  host_.unset("vocabulary").set_tokenizer({});
  EXPECT_NE(refused(gpt2).find("the vocabulary has 256"), std::string::npos);
}

TEST_F(TokenData, FindsIdsThatCannotBeOneBeforeASampleOfThemIsPut) {
  host_.set("format", "raw").set("dtype", "int32");
  Ids ids = counting(200'000);
  ids[77'777] = -1;  // where no window of the fingerprint looks
  host_.set("path", Paths{file("a.bin", as<int32_t>(ids))});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 1000), MORTISE_OK);
  EXPECT_EQ(plugin.describe("train").samples, 200);
  EXPECT_NO_THROW(plugin.samples("train", {76}));
  EXPECT_THROW(plugin.samples("train", {77}), PluginError);
  EXPECT_NE(
      host_.error().find("token 77,777 is the id -1, the vocabulary has 2,147,483,648\n  fix: another data.tokens."
                         "dtype than \"int32\""),
      std::string::npos)
      << host_.error();
}

TEST_F(TokenData, ItsFingerprintIsThatOfTheTokensAndTheirCut) {
  const std::string one = fingerprint({file("a.bin", llmc(counting(20)))});
  EXPECT_TRUE(one.starts_with("20 tokens, 8 a sample, ")) << one;
  EXPECT_EQ(fingerprint({file("b.bin", llmc(counting(20)))}), one) << "names are nothing to it";
  const std::string m = file("m.bin", as<int32_t>(counting(20)));
  file("m.idx", megatron_index(4, 4, {20}));
  EXPECT_EQ(fingerprint({m}), one) << "nor is how they are stored";
  std::set<std::string> all = {one, fingerprint({file("a.bin", llmc(counting(20)))}, 9),
                               fingerprint({file("a.bin", llmc(counting(20, 1)))}),
                               fingerprint({file("a.bin", llmc(counting(21)))})};
  Ids swapped = counting(20);
  std::swap(swapped[4], swapped[5]);
  all.insert(fingerprint({file("a.bin", llmc(swapped))}));
  EXPECT_EQ(all.size(), 5u);
}

// A file of many tokens is not read whole for it: 64 windows of 1,024 tokens, the first and the last among them.
TEST_F(TokenData, ItsFingerprintSeesTheEndsAndWindowsBetweenThemOfALargeFile) {
  const int64_t n = 1'000'000, each = (n - 1024) / 63;
  const auto changed = [&](int64_t at) {
    Ids ids(static_cast<size_t>(n), 7);
    if (at >= 0) ids[static_cast<size_t>(at)] = 8;
    return fingerprint({file("a.bin", llmc(ids))});
  };
  const std::string one = changed(-1);
  for (const int64_t at : {int64_t{0}, int64_t{1023}, each, each + 1023, n - 1024, n - 1})
    EXPECT_NE(changed(at), one) << at;
  EXPECT_EQ(changed(1024), one) << "between the windows it does not look";
}

TEST_F(TokenData, ItsFingerprintSeesEachOfManyFiles) {
  Paths paths;
  for (int i = 0; i < 100; ++i) paths.push_back(file(std::to_string(i) + ".bin", llmc(Ids(5000, 7))));
  const std::string one = fingerprint(paths);
  for (const int i : {0, 37, 99}) {
    file(std::to_string(i) + ".bin", llmc(Ids(5000, 8)));
    EXPECT_NE(fingerprint(paths), one) << i;
    file(std::to_string(i) + ".bin", llmc(Ids(5000, 7)));
  }
  EXPECT_EQ(fingerprint(paths), one);
}

TEST_F(TokenData, WarnsOfTokensThatAreLessThanOneSample) {
  host_.set("path", Paths{file("a.bin", llmc(counting(6)))});
  for (const int64_t length : {5, 6}) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, length), MORTISE_OK);
    plugin.describe("train");
  }
  ASSERT_EQ(host_.log.size(), 1u);  // five tokens and each one's next are a whole sample
  EXPECT_EQ(host_.log[0].text,
            "a.bin, 6 tokens, is less than one sample of 6 (data.sequence_length): too little to learn from");
}

TEST_F(TokenData, RefusesALengthThatItCannotCut) {
  host_.set("path", Paths{file("a.bin", llmc(counting(6)))});
  for (const int64_t length : {int64_t{0}, int64_t{16'777'217}, INT64_MAX}) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_E_CONFIG) << length;
  }
}

TEST_F(TokenData, RefusesASampleThatItDoesNotHave) {
  host_.set("path", Paths{file("a.bin", llmc(counting(6)))});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 3), MORTISE_OK);
  EXPECT_EQ(plugin.describe("train").samples, 2);
  EXPECT_THROW(plugin.samples("train", {2}), PluginError);
  EXPECT_THROW(plugin.samples("train", {-1}), PluginError);
}

}  // namespace
