#include "core/manifest/toml.hpp"

#include <algorithm>
#include <random>

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

std::string mistake(const std::string& text) {
  Report report;
  EXPECT_FALSE(parse_toml(text, "x.toml", report));
  return printed(report);
}

TomlTable parsed(const std::string& text) {
  Report report;
  std::optional<TomlTable> table = parse_toml(text, "x.toml", report);
  EXPECT_EQ(printed(report), "");
  return table ? std::move(*table) : TomlTable();
}

TEST(Toml, KeepsTheOrderAndTheKinds) {
  const TomlTable root = parsed("z = true\na = 1\nm = 1.5\nb = \"x\"\nl = [1, \"y\"]\n[t.u]\nk = { n = 1 }\n");
  std::vector<std::string> keys;
  for (const TomlEntry& entry : root.entries) keys.push_back(entry.key);
  EXPECT_EQ(keys, (std::vector<std::string>{"z", "a", "m", "b", "l", "t"}));
  EXPECT_TRUE(std::get<bool>(root.find("z")->data));
  EXPECT_EQ(std::get<int64_t>(root.find("a")->data), 1);
  EXPECT_EQ(std::get<double>(root.find("m")->data), 1.5);
  EXPECT_EQ(*root.find("b")->text(), "x");
  EXPECT_EQ(root.find("l")->list()->size(), 2u);
  EXPECT_EQ(std::get<int64_t>(root.find("t", "u")->table()->find("k", "n")->data), 1);
  EXPECT_EQ(root.find("none"), nullptr);
  EXPECT_EQ(root.find("a", "b"), nullptr);
}

TEST(Toml, GivesATableThePlaceOfItsHeader) {
  const TomlTable root = parsed("\n  [ optimizer.adamw ]\n  lr = 1\n");
  const TomlNode& table = *root.find("optimizer", "adamw");
  EXPECT_EQ(table.at.text(), "x.toml:2:3");
  const TomlEntry& entry = table.table()->entries[0];
  EXPECT_EQ(entry.at.text(), "x.toml:3:3");
  EXPECT_EQ(entry.value.at.text(), "x.toml:3:8");
}

// Whatever spaces, comments and empty lines stand around them, keys and values are found where they were put.
TEST(Toml, FindsKeysAndValuesWhereTheyStand) {
  std::mt19937 random(1);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const char* const values[] = {"1",       "-2.5",   "true",      "\"text # no comment\"",
                                "'it''s'", "[1, 2]", "{ a = 1 }", "\"\"\"two\nlines\"\"\"",
                                "\"é\""};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    struct Expected {
      std::string key;
      int line, key_column, value_column;
    };
    std::vector<Expected> expected;
    int line = 1;
    for (int i = 0; i < 8; ++i) {
      for (int empty = pick(3); empty > 0; --empty, ++line) text += pick(2) ? "\n" : "# [a] comment = \"\n";
      const std::string key = "k" + std::to_string(i), indent(static_cast<size_t>(pick(4)), ' '),
                        before(static_cast<size_t>(pick(3)), ' '), after(static_cast<size_t>(pick(3)), ' ');
      std::string value = values[pick(static_cast<int>(std::size(values)))];
      if (value == "'it''s'") value = "'it s'";
      const std::string head = indent + key + before + "=" + after;
      expected.push_back({key, line, static_cast<int>(indent.size()) + 1, static_cast<int>(head.size()) + 1});
      text += head + value + (pick(2) ? "\n" : " # end\n");
      line += 1 + static_cast<int>(std::count(value.begin(), value.end(), '\n'));
    }
    const TomlTable root = parsed(text);
    ASSERT_EQ(root.entries.size(), expected.size()) << text;
    for (size_t i = 0; i < expected.size(); ++i) {
      const TomlEntry& entry = root.entries[i];
      EXPECT_EQ(entry.key, expected[i].key);
      EXPECT_EQ(entry.at.line, expected[i].line) << text;
      EXPECT_EQ(entry.at.column, expected[i].key_column) << text;
      EXPECT_EQ(entry.value.at.line, expected[i].line) << text;
      EXPECT_EQ(entry.value.at.column, expected[i].value_column) << text;
    }
  }
}

TEST(Toml, RefusesDates) {
  EXPECT_EQ(mistake("a = 1\nb = [2026-11-21]\n"),
            "error[toml_syntax]: dates and times are no values here\n"
            "  --> x.toml:2:6\n"
            "  fix: write it as text, in quotes\n");
}

TEST(Toml, RefusesWhatIsNotUtf8) {
  EXPECT_EQ(mistake("a = 1\nb = \"é\xff\"\n"),
            "error[not_utf8]: the bytes here are not UTF-8\n"
            "  --> x.toml:2:7\n"
            "  fix: save the file as UTF-8\n");
  EXPECT_EQ(mistake("\xff\xfe"),
            "error[not_utf8]: this file is UTF-16; TOML is UTF-8\n"
            "  --> x.toml:1:1\n"
            "  fix: iconv -f UTF-16 -t UTF-8 x.toml\n");
  EXPECT_EQ(mistake(std::string("a = 1\n\0", 7)),
            "error[toml_syntax]: a zero byte: this is no text file\n"
            "  --> x.toml:2:1\n"
            "  fix: name a TOML file\n");
}

TEST(Toml, PassesOverAByteOrderMark) {
  const TomlTable root = parsed("\xef\xbb\xbfx = 1\r\ny = 2\r\n");
  EXPECT_EQ(root.entries[0].at.column, 1);
  EXPECT_EQ(root.entries[1].at.line, 2);
}

TEST(Toml, OutlivesAParserThatGivesUp) {
  for (const char* text : {"[=]", "a = 1\n  [[ & ]]\n", "[\xc3\xa9]", "[#]", "[\n]"})
    EXPECT_TRUE(mistake(text).starts_with("error[toml_syntax]: this is no TOML: ")) << mistake(text);
  EXPECT_EQ(mistake("a = 1\n [=]\n"),
            "error[toml_syntax]: this is no TOML: a table's header is [NAME] or [NAME.NAME]\n"
            "  --> x.toml:2:2\n"
            "  fix: text stands in quotes, a list in [ ], and each key and table once\n");
}

// toml++ 3.3 does not survive them.
TEST(Toml, RefusesCharactersBeyondAsciiOutsideOfQuotes) {
  EXPECT_EQ(mistake("a = 1\n  \u00a0b = 2\n"),
            "error[toml_syntax]: this is no TOML: a character beyond a-z A-Z 0-9 _ - outside of quotes\n"
            "  --> x.toml:2:3\n"
            "  fix: put it in quotes, or look for a space that is none\n");
  parsed("\"é\" = 'é' # é\n");
}

TEST(Toml, RefusesLargeFiles) {
  EXPECT_EQ(mistake("#" + std::string(kMostFileBytes, 'x')),
            "error[file_too_large]: a TOML file has at most 1 MiB here, this has more\n"
            "  --> x.toml\n"
            "  fix: name a manifest\n");
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Toml, RefusesDepthBeforeTheParserSeesIt) {
  const std::string wanted = "error[nested_too_deep]: nested deeper than 16\n";
  const std::string fix = "  fix: 16 levels of tables, lists and dotted keys are allowed\n";
  EXPECT_EQ(mistake("a = " + repeated("[", 17) + repeated("]", 17)), wanted + "  --> x.toml:1:21\n" + fix);
  EXPECT_EQ(mistake("a" + repeated(".a", 16) + " = 1\n"), wanted + "  --> x.toml:1:32\n" + fix);
  for (const std::string& text :
       {"a = " + repeated("[", 100'000), "a" + repeated(".a", 200'000) + " = 1", "[a" + repeated(".a", 200'000) + "]",
        "a = " + repeated("{a=", 100'000), "x = \"\"\"\n'\"\"\"\n a = " + repeated("[", 100'000),
        "[" + repeated("\"a\" . ", 100'000) + "a]"})
    EXPECT_TRUE(mistake(text).starts_with(wanted)) << mistake(text).substr(0, 300);
  // Neither alone, but together.
  EXPECT_TRUE(mistake("[a.b.c.d.e.f.g.h]\ni.j.k.l.m.n.o.p.q = 1\n").starts_with(wanted));
}

TEST(Toml, SeesNoDepthInTextAndComments) {
  const std::string deep = repeated("[{.", 50);
  parsed("# " + deep + "\na = \"" + deep + " \\\" " + deep + "\"\nb = '" + deep + "'\nc = \"\"\"\n" + deep + "\"\" " +
         deep + "\"\"\"\"\"\nd = '''\n" + deep + "'''\ne = \"\"\n");
  parsed("a = " + repeated("[", 15) + repeated("]", 15) + "\n" + "b" + repeated(".b", 15) +
         " = 1\nc = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5]\n");
}

TEST(Toml, TurnsIntoPlainValues) {
  const TomlTable root = parsed("a = [1, 2.5, \"x\", true]\nb = { c = 1 }\n");
  EXPECT_EQ(plain_value(*root.find("a"), "a")->text(), "[1, 2.5, \"x\", true]");
  EXPECT_EQ(plain_value(*root.find("a"), "a")->origin.text(), "x.toml:1:5");
  EXPECT_FALSE(plain_value(*root.find("b"), "b"));
}

}  // namespace
}  // namespace mortise
