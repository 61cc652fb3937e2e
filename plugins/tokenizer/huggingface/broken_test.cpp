// Files that are broken, hostile or beyond what is supported: an error that says where, in bounded time.
#include <random>

#include "testing.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

class Broken : public HuggingFaceTest {
 protected:
  static Json good() {
    Json f = file(bpe({"a", "b", "ab"}, {"a b"}));
    f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}};
    f["pre_tokenizer"] = split(R"(\p{L}+|\s)");
    f["decoder"] = {{"type", "Fuse"}};
    f["added_tokens"] = {added(3, "<s>")};
    return f;
  }
  std::string refused(const char* pointer, const Json& value) {
    Json f = good();
    f[Json::json_pointer(pointer)] = value;
    const std::string why = refusal(f), file = (folder_ / "tokenizer.json").string() + ": ";
    EXPECT_TRUE(why.starts_with(file)) << why;
    return why.substr(std::min(file.size(), why.size()));
  }
  std::string refused_pattern(const std::string& regex) {
    const std::string why = refused("/pre_tokenizer/pattern", {{"Regex", regex}});
    const std::string begin = "pre_tokenizer.pattern: the pattern " + regex + " is not supported: ";
    EXPECT_TRUE(why.starts_with(begin)) << why;
    return why.substr(std::min(begin.size(), why.size()));
  }
};

TEST_F(Broken, NamesAPartThatIsNotSupported) {
  EXPECT_EQ(refusal(good()), "");
  EXPECT_EQ(refused("/model/type", "WordLevel"), "model.type is `WordLevel`, a model that is not supported");
  EXPECT_EQ(refused("/normalizer/normalizers/1", {{"type", "Nmt"}}),
            "normalizer.normalizers[1].type is `Nmt`, a normalizer that is not supported");
  EXPECT_EQ(refused("/pre_tokenizer", {{"type", "UnicodeScripts"}}),
            "pre_tokenizer.type is `UnicodeScripts`, a pre-tokenizer that is not supported");
  EXPECT_EQ(refused("/decoder", {{"type", "CTC"}}), "decoder.type is `CTC`, a decoder that is not supported");
  EXPECT_EQ(refused("/model/dropout", 0.1), "model.dropout is not supported: ids would be another text's each time");
  EXPECT_EQ(refused("/model/new_option", true), "model.new_option is not supported");
  EXPECT_EQ(refused("/new_part", 1), "new_part is not supported");
  EXPECT_EQ(refused("/version", "2.0"), "version is `2.0`, not 1.0");
}

TEST_F(Broken, NamesWhatIsMissingOrOfAnotherType) {
  EXPECT_EQ(refused("/model/vocab", 3), "model.vocab is not an object");
  EXPECT_EQ(refused("/model/vocab", Json::object()), "model.vocab is empty");
  EXPECT_EQ(refused("/model/merges/0", "ab"), "model.merges[0] is not two tokens");
  EXPECT_EQ(refused("/model/merges/0", "a x"), "model.merges[0], `a x`, is not of the vocabulary");
  EXPECT_EQ(refused("/model/unk_token", "<unk>"), "model.unk_token is not in the vocabulary");
  EXPECT_EQ(refused("/model/vocab/a", -1), "the id of `a` in model.vocab is no whole number below 16,777,216");
  EXPECT_EQ(refused("/model/vocab/a", 4000000000), "the id of `a` in model.vocab is no whole number below 16,777,216");
  EXPECT_EQ(refused("/model/vocab/a", 1), "the tokens `a` and `b` have one id");
  EXPECT_EQ(refused("/pre_tokenizer/behavior", "Cut"), "pre_tokenizer.behavior is `Cut`, which is not supported");
  EXPECT_EQ(refused("/pre_tokenizer/pattern", Json::object()), "pre_tokenizer.pattern.Regex is missing");
  EXPECT_EQ(refused("/normalizer", Json::array()), "normalizer is not an object");
  EXPECT_EQ(refused("/added_tokens/0/id", 7),
            "added_tokens[0].id of `<s>` is 7, and the order of the tokens makes it 3");
  EXPECT_EQ(refused("/added_tokens/0/content", ""), "added_tokens[0].content is empty or longer than 4,096 bytes");
}

TEST_F(Broken, TwoAddedTokensThatNormalizeToOneAreRefused) {
  EXPECT_EQ(refused("/added_tokens",
                    Json::array({added(3, "Q", {{"normalized", true}}), added(4, "q", {{"normalized", true}})})),
            "added_tokens: `q` is the same as another one when it is normalized");
}

TEST_F(Broken, NamesWhatAPatternHasThatIsNotKnown) {
  EXPECT_EQ(refused_pattern("a*"), "it matches an empty text");
  EXPECT_EQ(refused_pattern("a|(?:b|)"), "it matches an empty text");
  EXPECT_EQ(refused_pattern("a."), "`.`");
  EXPECT_EQ(refused_pattern("^a"), "`^`");
  EXPECT_EQ(refused_pattern("(?<=a)b"), "`(?<`");
  EXPECT_EQ(refused_pattern("(?:ab)+"), "a group is repeated");
  EXPECT_EQ(refused_pattern("a{1,2}+"), "a repetition is repeated");
  EXPECT_EQ(refused_pattern("a{2,1}"), "the numbers in `{}`");
  EXPECT_EQ(refused_pattern("[a-z&&b]"), "`&&`");
  EXPECT_EQ(refused_pattern("[a[b]]"), "a class in a class");
  EXPECT_EQ(refused_pattern("[z-a]"), "a range that ends before it begins");
  EXPECT_EQ(refused_pattern("[a"), "`[` without `]`");
  EXPECT_EQ(refused_pattern("(a"), "`(` without `)`");
  EXPECT_EQ(refused_pattern("a)"), "`)` without `(`");
  EXPECT_EQ(refused_pattern("\\w+"), "`\\w`");
  EXPECT_EQ(refused_pattern("\\p{Han}"), "`\\p{Han}`");
  EXPECT_EQ(refused_pattern("(?i:ss)"), "`ss` with the case ignored");
  EXPECT_EQ(refused_pattern("(?i:é)"), "a letter beyond ASCII with the case ignored");
  EXPECT_EQ(refused_pattern("a\\"), "it ends too early");
}

TEST_F(Broken, FirstIsRefusedWhereItIsNotKnownWhatTheTextBeganWith) {
  Json f = good();
  f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  EXPECT_EQ(refusal(f), "");
  f["normalizer"] = {{"type", "Prepend"}, {"prepend", "▁"}};
  EXPECT_NE(refusal(f).find("`prepend_scheme` \"first\" is not supported beside these other parts"), std::string::npos);
}

TEST_F(Broken, ACharsmapThatIsCutOrIsNoBase64) {
  const auto charsmap = [](const char* text) { return Json{{"type", "Precompiled"}, {"precompiled_charsmap", text}}; };
  EXPECT_EQ(refused("/normalizer", charsmap("AAAA")), "normalizer.precompiled_charsmap is cut short");
  EXPECT_EQ(refused("/normalizer", charsmap("AAgAAAAA")), "normalizer.precompiled_charsmap is cut short");
  EXPECT_EQ(refused("/normalizer", charsmap("a?b")), "normalizer.precompiled_charsmap is no base64");
}

TEST_F(Broken, EveryBeginningOfAFileIsRefused) {
  const std::string text = good().dump();
  for (size_t length = 0; length < text.size(); ++length)
    ASSERT_NE(refusal(text.substr(0, length)).find("it is no JSON object"), std::string::npos) << length;
}

TEST_F(Broken, AnyWrongByteIsAnErrorOrAnotherTokenizerButNoCrash) {
  const std::string text = good().dump();
  std::mt19937 draw(1);
  size_t loaded = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string other = text;
    for (unsigned n = draw() % 3 + 1; n > 0; --n) other[draw() % other.size()] = static_cast<char>(draw());
    if (!refusal(other).empty()) continue;
    ++loaded;
    if (try_encode("a ab <s> AB é") == MORTISE_OK) decode({0, 1, 2, 3, 4});
  }
  EXPECT_GT(loaded, 0u);
}

TEST_F(Broken, NestingThatIsTooDeep) {
  std::string text = R"({"normalizer":)";
  for (int i = 0; i < 100000; ++i) text += R"({"type":"Sequence","normalizers":[)";
  EXPECT_NE(refusal(text).find("nested too deeply"), std::string::npos);
}

TEST_F(Broken, ANameOfAnyLengthMakesAShortError) {
  const std::string why = refused(("/" + std::string(100000, 'x')).c_str(), 1);
  EXPECT_TRUE(why.ends_with("xxx…")) << why.size();
  EXPECT_LT(why.size(), 1100u);
}

TEST_F(Broken, ANormalizerThatGrowsWithoutEndIsStopped) {
  Json f = good();
  f["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 60; ++i)
    f["normalizer"]["normalizers"].push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  load(f);
  EXPECT_EQ(try_encode("a"), MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), (folder_ / "tokenizer.json").string() + ": the normalizer makes the text too long");
}

TEST_F(Broken, APreTokenizerThatGrowsWithoutEndIsStopped) {
  Json f = good();
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  f["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array()}};
  for (int i = 0; i < 30; ++i) f["pre_tokenizer"]["pretokenizers"].push_back(byte_level);
  load(f);
  EXPECT_EQ(try_encode("é é"), MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), (folder_ / "tokenizer.json").string() + ": the pre-tokenizer makes the text too long");
}

TEST_F(Broken, APatternThatTriesEverythingIsStopped) {
  Json f = good();
  f["pre_tokenizer"] = split("a*a*a*a*a*b");
  load(f);
  EXPECT_EQ(try_encode(std::string(5000, 'a')), MORTISE_E_DATA);
  EXPECT_EQ(host_.error(), (folder_ / "tokenizer.json").string() + ": the pattern tries too much on this text");
}

TEST_F(Broken, PathsThatLeadNowhere) {
  const auto why = [&](const std::string& path) {
    host_.set("path", path);
    host_.blamed.reset();
    EXPECT_THROW(Plugin(host_, MORTISE_PLUGIN_FILE), PluginError);
    return host_.blamed.value().why;
  };
  EXPECT_EQ(why(folder_ / "none.json"), (folder_ / "none.json").string() + ": No such file or directory");
  EXPECT_EQ(why(folder_), (folder_ / "tokenizer.json").string() + ": No such file or directory");
  host_.unset("path");
  host_.blamed.reset();
  EXPECT_THROW(Plugin(host_, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host_.blamed.value().why, "no tokenizer is named, and none lies beside [model] weights");
  write("tokenizer_config.json", "{");
  EXPECT_NE(refusal(good()).find("tokenizer_config.json is no JSON object"), std::string::npos);
}

}  // namespace
