// Normalizers, pre-tokenizers, patterns, added tokens and decoders, one at a time.
#include "testing.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

class Parts : public HuggingFaceTest {
 protected:
  std::string decoded(const Json& decoder, const Texts& tokens) {
    Texts all = tokens;
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    Json f = file(bpe(all, {}));
    f["decoder"] = decoder;
    load(f);
    Ids ids;
    for (const std::string& t : tokens) ids.push_back(std::lower_bound(all.begin(), all.end(), t) - all.begin());
    return decode(ids);
  }
};

TEST_F(Parts, NormalFormsOfUnicode) {
  const auto form = [](const char* type) { return Json{{"type", type}}; };
  expect_normal(form("NFC"), "e\u0301 q\u0307\u0323 \u1112\u1161\u11ab", "\u00e9 q\u0323\u0307 \ud55c");
  expect_normal(form("NFC"), "a\u0308\u0301\u0344\u0958", "\u00e4\u0301\u0308\u0301\u0915\u093c");
  expect_normal(form("NFC"), "a\u0305\u0301", "a\u0305\u0301");  // what stands between is of the same class
  expect_normal(form("NFD"), "\u1e69\ud55c\uac00", "s\u0323\u0307\u1112\u1161\u11ab\u1100\u1161");
  expect_normal(form("NFKC"), "\ufb01\u00bd\u2126e\u0301", "fi1\u20442\u03a9\u00e9");
  expect_normal(form("NFKD"), "\u1e9b\u0323", "s\u0323\u0307");
}

TEST_F(Parts, LowerCaseAndAccents) {
  expect_normal({{"type", "Lowercase"}}, "ABC ÀΣ\u0130\u01c4\U00010400", "abc àσi\u0307\u01c6\U00010428");
  expect_normal({{"type", "StripAccents"}}, "e\u0301\u00e9", "e\u00e9");
}

TEST_F(Parts, StripPrependReplace) {
  expect_normal({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, "\u3000\t a b\u00a0", "a b");
  expect_normal({{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}}, " a ", " a");
  expect_normal({{"type", "Prepend"}, {"prepend", "▁"}}, "a", "▁a");
  expect_normal({{"type", "Prepend"}, {"prepend", "▁"}}, "", "");
  expect_normal({{"type", "Replace"}, {"pattern", {{"String", "aa"}}}, {"content", "b"}}, "aaaax", "bbx");
  expect_normal({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", "▁"}}, "a   b c", "a▁b c");
}

TEST_F(Parts, BertCleansCutsChineseAndLowers) {
  const auto bert = [](bool clean, bool chinese, const Json& accents, bool lower) {
    return Json{{"type", "BertNormalizer"},
                {"clean_text", clean},
                {"handle_chinese_chars", chinese},
                {"strip_accents", accents},
                {"lowercase", lower}};
  };
  expect_normal(bert(true, false, false, false), "a\x01\t\u200b\ufffd\u00a0b", "a  b");
  expect_normal(bert(false, true, false, false), "a世b", "a 世 b");
  expect_normal(bert(false, false, nullptr, true), "ÀÉ", "ae");  // accents follow the case
  expect_normal(bert(false, false, nullptr, false), "ÀÉ", "ÀÉ");
  expect_normal(bert(false, false, true, false), "ÀÉ", "AE");
}

// "a" becomes "bb", "\r" and U+2122 " ": a double array by hand.
Json charsmap() {
  std::string units(4 * 512, '\0'), texts("bb\0 \0", 5);
  const auto put = [&](size_t at, uint32_t unit) {
    for (size_t i = 0; i < 4; ++i) units[4 * at + i] = static_cast<char>(unit >> 8 * i);
  };
  const auto offset = [](uint32_t n) { return n << 10; };
  put(0, offset(256));
  put(256 ^ 'a', offset((256 ^ 'a') ^ 1) | 256 | 'a');
  put(1, 1u << 31 | 0);
  put(256 ^ '\r', offset((256 ^ '\r') ^ 2) | 256 | '\r');
  put(2, 1u << 31 | 3);
  std::string bytes = std::string("\0\x08\0\0", 4) + units + texts, text;
  while (bytes.size() % 3) bytes.push_back('\0');
  const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto b = [&](size_t n) { return static_cast<unsigned char>(bytes[i + n]); };
    const unsigned all = b(0) << 16 | b(1) << 8 | b(2);
    for (int shift = 18; shift >= 0; shift -= 6) text.push_back(digits[all >> shift & 63]);
  }
  return {{"type", "Precompiled"}, {"precompiled_charsmap", text}};
}

TEST_F(Parts, ACharsmapReplacesAShortGraphemeWhole) {
  expect_normal(charsmap(), "xay", "xbby");
  expect_normal(charsmap(), "a\u0301y", "bby");                                // the mark goes with its letter
  expect_normal(charsmap(), "a\u0301\u0301\u0301y", "bb\u0301\u0301\u0301y");  // six bytes and more: each for itself
  expect_normal(charsmap(), "x\r\ny", "x y");
  expect_normal(charsmap(), "\u0600a\u0301", "\u0600bb\u0301");
}

TEST_F(Parts, CutsAtClassesOfCharacters) {
  expect_pieces(nullptr, {{"type", "Whitespace"}}, "Hey, you_2 --é\u0301!",
                {"Hey", ",", "you_2", "--", "é\u0301", "!"});
  expect_pieces(nullptr, {{"type", "WhitespaceSplit"}}, " a,b\u3000\tc ", {"a,b", "c"});
  expect_pieces(nullptr, {{"type", "BertPreTokenizer"}}, "a+b--c d", {"a", "+", "b", "-", "-", "c", "d"});
  expect_pieces(nullptr, {{"type", "Digits"}, {"individual_digits", true}}, "a12½", {"a", "1", "2", "½"});
  expect_pieces(nullptr, {{"type", "Digits"}, {"individual_digits", false}}, "a12½b", {"a", "12½", "b"});
  expect_pieces(nullptr, {{"type", "Punctuation"}}, "a..b", {"a", ".", ".", "b"});
}

TEST_F(Parts, CutsByEachBehavior) {
  const std::string text = "the-final--countdown";
  expect_pieces(nullptr, split("-", "Removed"), text, {"the", "final", "countdown"});
  expect_pieces(nullptr, split("-", "Isolated"), text, {"the", "-", "final", "-", "-", "countdown"});
  expect_pieces(nullptr, split("-", "MergedWithPrevious"), text, {"the-", "final-", "-", "countdown"});
  expect_pieces(nullptr, split("-", "MergedWithNext"), text, {"the", "-final", "-", "-countdown"});
  expect_pieces(nullptr, split("-", "Contiguous"), text, {"the", "-", "final", "--", "countdown"});
  expect_pieces(nullptr, split("[a-z]+", "Removed", true), text, {"the", "final", "countdown"});
  const Json literal = {
      {"type", "Split"}, {"pattern", {{"String", "-f"}}}, {"behavior", "Isolated"}, {"invert", false}};
  expect_pieces(nullptr, literal, text, {"the", "-f", "inal--countdown"});
}

TEST_F(Parts, MetaspacePutsItsMarkAtEveryWord) {
  const auto metaspace = [](const char* scheme, bool splits) {
    return Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", splits}};
  };
  expect_pieces(nullptr, metaspace("always", true), "a  b", {"▁a", "▁", "▁b"});
  expect_pieces(nullptr, metaspace("always", true), " a", {"▁a"});
  expect_pieces(nullptr, metaspace("never", false), "a b", {"a▁b"});
  Json f = file(word_piece({"[UNK]", "▁a", "a", "<s>"}));
  f["pre_tokenizer"] = metaspace("first", true);
  f["added_tokens"] = {added(3, "<s>")};
  load(f);
  EXPECT_EQ(encode("a<s>a"), (Ids{1, 3, 2}));
  EXPECT_EQ(encode("<s>a"), (Ids{3, 2}));
}

TEST_F(Parts, CutsAsGpt2Llama3AndO200k) {
  const Json gpt2 = split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  expect_pieces(nullptr, gpt2, "I'll  do 12x!!\n\n ", {"I", "'ll", " ", " do", " 12", "x", "!!", "\n\n "});
  const Json llama3 = split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                            R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  expect_pieces(nullptr, llama3, "It'S 12345 (ok)!\r\n  x \n",
                {"It", "'S", " ", "123", "45", " (", "ok", ")!\r\n", " ", " x", " \n"});
  expect_pieces(nullptr, llama3, "a'\u017f", {"a", "'\u017f"});  // a long s is an S where the case is ignored
  const Json o200k =
      split(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|\s)");
  expect_pieces(nullptr, o200k, "HELLOworld'S HelloWorld", {"HELLOworld'S", " Hello", "World"});
}

TEST_F(Parts, PatternsTakeMostFewestOrAllAtOnce) {
  expect_pieces(nullptr, split("a+ab"), "aaab", {"aaab"});
  expect_pieces(nullptr, split("a++ab|a"), "aaab", {"a", "a", "a", "b"});
  expect_pieces(nullptr, split("a+?"), "aa", {"a", "a"});
  expect_pieces(nullptr, split("a{2}|b{1,2}"), "aaabbb", {"aa", "a", "bb", "b"});
  expect_pieces(nullptr, split("x(?=y)|y(?!y)"), "xyyx", {"x", "y", "y", "x"});
  expect_pieces(nullptr, split("(?:a|ab)c"), "abcac", {"abc", "ac"});
  expect_pieces(nullptr, split(R"([\]\-^a]+)"), "b]-^a", {"b", "]-^a"});
  expect_pieces(nullptr, split(R"(\P{L}+)", "Removed"), "ab12é", {"ab", "é"});
}

TEST_F(Parts, AddedTokensAreFoundBeforeTheModelSeesTheText) {
  Json f = file(word_piece({"[UNK]", "a", "##a", "x"}));
  f["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  f["normalizer"] = {{"type", "Lowercase"}};
  f["added_tokens"] = {added(4, "<m>", {{"lstrip", true}}), added(5, "<mm>", {{"rstrip", true}}),
                       added(6, "aa", {{"single_word", true}}), added(7, "Yes", {{"normalized", true}})};
  load(f);
  EXPECT_EQ(encode("a <m> x"), (Ids{1, 4, 3}));
  EXPECT_EQ(encode("a<mm>  x"), (Ids{1, 5, 3}));
  EXPECT_EQ(encode("aa aaaa"), (Ids{6, 1, 2, 2, 2}));
  EXPECT_EQ(encode("aaa aa"), (Ids{1, 2, 2, 6}));
  EXPECT_EQ(encode("YES"), (Ids{7}));
  EXPECT_EQ(encode("<M>"), (Ids{0}));  // those that are not normalized are looked for before
  EXPECT_EQ(decode({4, 7}), "<m> yes");
}

TEST_F(Parts, DecodersPutTokensTogether) {
  const Json llama = {{"type", "Sequence"},
                      {"decoders",
                       {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                        {{"type", "ByteFallback"}},
                        {{"type", "Fuse"}},
                        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  EXPECT_EQ(decoded(llama, {"▁a", "▁b", "<0xC3>", "<0xA9>", "c"}), "a béc");
  EXPECT_EQ(decoded(llama, {"▁a", "<0xC3>", "<0xC3>"}), "a\uFFFD\uFFFD");
  const Json word_piece = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  EXPECT_EQ(decoded(word_piece, {"un", "##able", "to", "."}), "unable to.");
  const auto metaspace = [](const char* scheme) {
    return Json{{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", true}};
  };
  EXPECT_EQ(decoded(metaspace("always"), {"▁a", "▁b"}), "a b");
  EXPECT_EQ(decoded(metaspace("never"), {"▁a", "▁b"}), " a b");
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"Ã©", "Ġx", "世"}), "é x世");
  EXPECT_EQ(decoded(nullptr, {"a", "b"}), "a b");
}

}  // namespace
