#include "core/base/text.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace mortise {
namespace {

TEST(Text, PutsCommasBetweenThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1200), "1,200");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-100), "-100");
  EXPECT_EQ(with_commas(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Text, ShortensCounts) {
  EXPECT_EQ(short_count(412), "412");
  EXPECT_EQ(short_count(36.42), "36.4");
  EXPECT_EQ(short_count(9800), "9.8k");
  EXPECT_EQ(short_count(412031), "412k");
  EXPECT_EQ(short_count(3.194e6), "3.19M");
  EXPECT_EQ(short_count(999'999), "1M");
  EXPECT_EQ(short_count(10e9), "10B");
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(std::numeric_limits<double>::infinity()), "?");
}

TEST(Text, ReadsMebibytes) {
  EXPECT_EQ(mebibytes_in("64 MiB"), int64_t{64} << 20);
  for (const char* wrong :
       {"", "64", "64 GiB", "MiB", "-1 MiB", "0 MiB", "1.5 MiB", "99999999999999999999 MiB", "1 MiB "})
    EXPECT_EQ(mebibytes_in(wrong), 0) << wrong;
}

TEST(Text, WritesBytesAsPeopleReadThem) {
  EXPECT_EQ(byte_size(1), "1 byte");
  EXPECT_EQ(byte_size(412), "412 bytes");
  EXPECT_EQ(byte_size(21 * 1024), "21 KiB");
  EXPECT_EQ(byte_size(1'493'172'224), "1.4 GiB");
  EXPECT_EQ(byte_size(16LL << 30), "16 GiB");
  EXPECT_EQ(byte_size((1LL << 30) - 1), "1 GiB");
}

TEST(Text, ShowsControlCharacters) {
  EXPECT_EQ(escape_control("plain"), "plain");
  EXPECT_EQ(escape_control("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(escape_control("é → 12"), "é → 12");
  EXPECT_EQ(escape_control("\xff!"), "\\xff!");
  EXPECT_EQ(escape_control("a\u202eb"), "a\\xe2\\x80\\xaeb");
  EXPECT_EQ(escape_control(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(escape_control("a\nb\tc\rd\x7f"), "a\\x0ab\\x09c\\x0dd\\x7f");
  EXPECT_EQ(escape_control("a\u2028b\u00a0c"), "a\\xe2\\x80\\xa8b\u00a0c");
  // Every one of C1: U+009B begins what a terminal obeys.
  for (int c = 0x80; c < 0xa0; ++c) {
    const std::string character = std::string("\xc2") + static_cast<char>(c);
    char shown[16];
    std::snprintf(shown, sizeof shown, "[\\xc2\\x%02x]", c);
    EXPECT_EQ(escape_control("[" + character + "]"), shown);
    std::snprintf(shown, sizeof shown, "\"\\u%04x\"", c);
    EXPECT_EQ(json_string(character), shown);
  }
  EXPECT_EQ(escape_lines("a\n\u009b1m\n"), "a\n\\xc2\\x9b1m\n");
}

TEST(Text, KnowsWhatUtf8Is) {
  EXPECT_EQ(utf8_length(""), 0u);
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("é"), 2u);
  EXPECT_EQ(utf8_length("→"), 3u);
  EXPECT_EQ(utf8_length("😀"), 4u);
  EXPECT_EQ(utf8_length("\xc3"), 0u);
  EXPECT_EQ(utf8_length("\xc0\x80"), 0u);      // overlong
  EXPECT_EQ(utf8_length("\xed\xa0\x80"), 0u);  // a surrogate
  EXPECT_EQ(utf8_length("\xf4\x90\x80\x80"), 0u);
}

TEST(Text, SplitsAndJoins) {
  EXPECT_EQ(split("a.b.c", '.'), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(split("", '.'), (std::vector<std::string>{""}));
  EXPECT_EQ(split("a.", '.'), (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(join({"a", "b"}, ", "), "a, b");
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(either({"a", "b", "c"}), "a, b or c");
  EXPECT_EQ(either({"a"}), "a");
  EXPECT_EQ(either({}), "");
}

TEST(Text, WritesAWordAsAShellTakesIt) {
  EXPECT_EQ(shell_word("--set=optimizer.lr=3e-4"), "--set=optimizer.lr=3e-4");
  EXPECT_EQ(shell_word("my runs/it's"), "'my runs/it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Text, FindsTheNearestName) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(nearest("trian", {"resume", "train", "eval"}), "train");
  EXPECT_EQ(nearest("beta1", {"eps", "betas"}), "betas");
  EXPECT_EQ(nearest("x", {"lr", "at"}), "");
  EXPECT_EQ(nearest("lt", {"lr"}), "lr");
  EXPECT_EQ(nearest("something", {"else"}), "");
  EXPECT_EQ(nearest("optim", {"model", "optimizer"}), "optimizer");
  EXPECT_EQ(nearest("quitting", {"quit", "go_on"}), "quit");
  EXPECT_EQ(nearest("optim", {"optimizer", "optimism"}), "") << "which of the two, nobody knows";
  EXPECT_EQ(nearest(std::string(1 << 20, 'a'), {"lr"}), "");
}

TEST(Text, MatchesGlobs) {
  EXPECT_TRUE(glob_match("blocks.*.mlp", "blocks.0.mlp"));
  EXPECT_TRUE(glob_match("*.weight", "h.0.attn.weight"));  // dots too
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("a*b*c", "a__b_b__c"));
  EXPECT_TRUE(glob_match("?b", "éb"));
  EXPECT_FALSE(glob_match("?", ""));
  EXPECT_FALSE(glob_match("blocks.?", "blocks.10"));
  EXPECT_FALSE(glob_match("head", "head.weight"));
  // Does not take exponential time.
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*b", std::string(2000, 'a')));
}

TEST(Text, WritesJsonStrings) {
  EXPECT_EQ(json_string("a\"b\\c\n\x01\x7fé"), "\"a\\\"b\\\\c\\n\\u0001\\u007fé\"");
  EXPECT_EQ(json_string("\xff"), "\"\\ufffd\"");
}

}  // namespace
}  // namespace mortise
