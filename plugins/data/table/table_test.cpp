#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;
using Ids = std::vector<int64_t>;
using Paths = std::vector<std::string>;
using Names = std::vector<std::string>;

constexpr int64_t kCls = 1001, kSep = 1002, kEos = 1003, kBos = 1004, kPad = 1005;

Ids ids_of(std::string_view text) { return {text.begin(), text.end()}; }
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class TableData : public ::testing::Test {
 protected:
  TableData() {
    std::filesystem::create_directories(folder_);
    host_.set_tokenizer({});
    for (const char* key : {"validation_path", "text", "label", "classes", "prompt", "completion"}) host_.unset(key);
    host_.set("bos", false).set("masked", false).set("format", "auto").set("quotes", true);
  }
  ~TableData() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& contents) {
    std::ofstream(folder_ / name, std::ios::binary) << contents;
    return folder_ / name;
  }
  void special(std::map<std::string, int64_t, std::less<>> tokens) {
    FakeTokenizer tokenizer;
    tokenizer.special = std::move(tokens);
    host_.set_tokenizer(tokenizer);
  }
  mortise_status open(Plugin& plugin, int64_t length = 64) {
    const mortise_data_request request = {sizeof request, 0, length, 0};
    return plugin.object<mortise_data>("data").open(plugin.self(), &request);
  }
  // All samples of the training split, in its order.
  std::vector<FakeSample<int64_t>> all(const std::string& path, int64_t length = 64) {
    host_.set("path", Paths{path});
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_OK) << host_.error();
    Ids numbers(static_cast<size_t>(plugin.describe("train").samples));
    std::iota(numbers.begin(), numbers.end(), 0);
    return plugin.samples("train", numbers);
  }
  // The texts of a file's rows: a language model's inputs and the last label.
  Names texts(const std::string& path) {
    host_.set("text", Names{"text"});
    Names out;
    for (auto& sample : all(path)) {
      out.emplace_back(sample["input_ids"].begin(), sample["input_ids"].end());
      if (sample["labels"].back() >= 0) out.back().push_back(static_cast<char>(sample["labels"].back()));
    }
    return out;
  }
  FakeHost::Blame refusal(const Paths& paths, std::string_view split = "train") {
    host_.set("path", paths);
    host_.blamed.reset();
    try {
      Plugin plugin(host_, MORTISE_PLUGIN_FILE);
      EXPECT_EQ(open(plugin), MORTISE_OK);
      plugin.describe(split);
    } catch (const PluginError& e) {
      EXPECT_EQ(e.status, MORTISE_E_CONFIG) << e.what();
    }
    return host_.blamed.value_or(FakeHost::Blame{});
  }
  std::string why(const std::string& name, const std::string& contents) { return refusal({file(name, contents)}).why; }
  std::string fingerprint(const std::string& path, int64_t length = 64) {
    host_.set("path", Paths{path});
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), MORTISE_OK);
    return std::string(view(plugin.describe("train").fingerprint));
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_table_test_" + std::to_string(getpid()));
  FakeHost host_;
};

// ---- what a sample is ----

TEST_F(TableData, ClassifiesATextWithTheTokenizersSpecialTokens) {
  special({{"cls", kCls}, {"sep", kSep}, {"pad", kPad}, {"eos", kEos}});
  host_.set("text", Names{"review"}).set("label", "sentiment");
  const std::string path = file("a.csv", "review,sentiment\ngood,positive\nbad,negative\n");
  auto samples = all(path);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0]["input_ids"], Ids{kCls} + ids_of("good") + Ids{kSep});
  EXPECT_EQ(samples[0]["labels"], Ids{1}) << "negative, positive";
  EXPECT_EQ(samples[1]["labels"], Ids{0});
  EXPECT_FALSE(samples[0].contains("token_type_ids"));
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  plugin.describe("train");
  EXPECT_EQ(plugin.samples<uint8_t>("train", {1})[0]["attention_mask"], std::vector<uint8_t>(5, 1));
  EXPECT_THROW(plugin.samples("train", {1})[0]["attention_mask"], std::invalid_argument) << "not taken for empty";
  EXPECT_EQ(plugin.classes(), (Names{"negative", "positive"}));
  const mortise_data& data = plugin.object<mortise_data>("data");
  ASSERT_EQ(data.n_fields, 3u);
  EXPECT_EQ(data.fields[0].fill, kPad);
  EXPECT_EQ(data.fields[1].fill, 0);
  EXPECT_EQ(data.fields[2].n_sizes, 0u) << "a label of the whole sample";
}

TEST_F(TableData, GivesWholeRowsToWhoeverMasksThem) {
  special({{"cls", kCls}, {"sep", kSep}, {"pad", kPad}, {"eos", kEos}});
  host_.set("masked", true).set("text", Names{"review"});
  const std::string path = file("a.csv", "review,y\ngood,1\nexcellent,1\n");
  auto samples = all(path);
  EXPECT_EQ(samples[0]["input_ids"], Ids{kCls} + ids_of("good") + Ids{kSep});
  EXPECT_FALSE(samples[0].contains("labels")) << "no next token, and no class";
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 8), MORTISE_OK);
  plugin.describe("train");
  EXPECT_EQ(plugin.samples("train", {1})[0]["input_ids"], Ids{kCls} + ids_of("excell") + Ids{kSep}) << "cut inside";
  EXPECT_EQ(plugin.samples<uint8_t>("train", {0})[0]["attention_mask"], std::vector<uint8_t>(6, 1));
  EXPECT_TRUE(plugin.classes().empty());
  host_.set("label", "y");
  EXPECT_EQ(refusal({path}).key, "masked");
}

TEST_F(TableData, ClassifiesAPairAsBertTakesIt) {
  special({{"cls", kCls}, {"sep", kSep}});
  host_.set("text", Names{"a", "b"}).set("label", "y");
  auto sample = all(file("a.jsonl", R"({"b": "uv", "a": "xyz", "y": "n"})"))[0];
  EXPECT_EQ(sample["input_ids"], Ids{kCls} + ids_of("xyz") + Ids{kSep} + ids_of("uv") + Ids{kSep});
  EXPECT_EQ(sample["token_type_ids"], (Ids{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(sample["labels"], Ids{0});
}

TEST_F(TableData, ClassifiesWithoutSpecialTokensWhereThereAreNone) {
  host_.set("text", Names{"a", "b"}).set("label", "y");
  auto sample = all(file("a.csv", "a,b,y\nxyz,uv,1\n"))[0];
  EXPECT_EQ(sample["input_ids"], ids_of("xyzuv"));
  EXPECT_EQ(sample["token_type_ids"], (Ids{0, 0, 0, 1, 1}));
}

TEST_F(TableData, TrainsOnTheCompletionAlone) {
  special({{"eos", kEos}, {"bos", kBos}});
  host_.set("prompt", "q").set("completion", "a");
  const std::string path = file("a.jsonl", "{\"q\": \"abc\", \"a\": \"xy\"}\n{\"q\": \"\", \"a\": \"z\"}\n");
  auto samples = all(path);
  EXPECT_EQ(samples[0]["input_ids"], ids_of("abcxy"));
  EXPECT_EQ(samples[0]["labels"], (Ids{-100, -100, 'x', 'y', kEos}));
  EXPECT_EQ(samples[0]["positions"], (Ids{0, 1, 2, 3, 4}));
  EXPECT_EQ(samples[1]["input_ids"], Ids{'z'}) << "no prompt";
  EXPECT_EQ(samples[1]["labels"], Ids{kEos});
  host_.set("bos", true);
  auto begun = all(path);
  EXPECT_EQ(begun[0]["input_ids"], Ids{kBos} + ids_of("abcxy"));
  EXPECT_EQ(begun[0]["labels"], (Ids{-100, -100, -100, 'x', 'y', kEos}));
  EXPECT_EQ(begun[1]["labels"], (Ids{'z', kEos}));
}

TEST_F(TableData, RowsAreOfTheirFiles) {
  host_.set("path", Paths{file("a.csv", "text\nx\ny\n"), file("b.csv", "text\nz\n")}).set("text", Names{"text"});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  EXPECT_EQ(plugin.describe("train").samples, 3);
  using Groups = std::vector<std::pair<std::string, int64_t>>;
  EXPECT_EQ(plugin.groups("train"), (Groups{{"a.csv", 2}, {"b.csv", 1}}));
}

TEST_F(TableData, LearnsEachRowOfATextAlone) {
  host_.set("text", Names{"text"});
  const std::string path = file("a.csv", "text\nabc\nx\n");
  auto samples = all(path);
  EXPECT_EQ(samples[0]["input_ids"], ids_of("ab"));
  EXPECT_EQ(samples[0]["labels"], ids_of("bc"));
  // One token has no next one.
  EXPECT_EQ(samples[1]["input_ids"], ids_of("x"));
  EXPECT_EQ(samples[1]["labels"], Ids{-100});
  special({{"eos", kEos}});
  EXPECT_EQ(all(path)[1]["labels"], Ids{kEos});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.classes(), Names{});
  EXPECT_EQ(view(plugin.object<mortise_data>("data").fields[1].unit), "tokens");
}

TEST_F(TableData, PadsARowWithoutAToken) {
  FakeTokenizer words;
  words.encode = [](std::string_view text) { return text == " " ? Ids() : ids_of(text); };
  words.special = {{"pad", kPad}};
  host_.set_tokenizer(words);
  host_.set("text", Names{"t"});
  const std::string path = file("a.csv", "t,y\nabc,1\n ,0\n");
  auto learned = all(path)[1];
  EXPECT_EQ(learned["input_ids"], Ids{kPad});
  EXPECT_EQ(learned["labels"], Ids{-100});
  EXPECT_EQ(learned["positions"], Ids{0});
  host_.set("label", "y");
  auto classified = all(path)[1];
  EXPECT_EQ(classified["input_ids"], Ids{kPad});
  EXPECT_EQ(classified["labels"], Ids{0});
}

TEST_F(TableData, CutsWhatIsLongerThanASample) {
  special({{"cls", kCls}, {"sep", kSep}, {"eos", kEos}});
  host_.set("text", Names{"text"});
  const std::string path = file("a.csv", "text,other,y\nabcdef,xyz,0\n");
  EXPECT_EQ(all(path, 4)[0]["labels"], ids_of("bcde"));
  EXPECT_EQ(all(path, 6)[0]["labels"], ids_of("bcdef") + Ids{kEos});
  host_.set("label", "y");
  EXPECT_EQ(all(path, 5)[0]["input_ids"], Ids{kCls} + ids_of("abc") + Ids{kSep});
  // The longer one of a pair first, then both to a half; the odd one is the longer one's, else the second one's.
  host_.set("text", Names{"text", "other"});
  EXPECT_EQ(all(path, 9)[0]["input_ids"], Ids{kCls} + ids_of("abc") + Ids{kSep} + ids_of("xyz") + Ids{kSep});
  EXPECT_EQ(all(path, 8)[0]["input_ids"], Ids{kCls} + ids_of("abc") + Ids{kSep} + ids_of("xy") + Ids{kSep});
  EXPECT_EQ(all(path, 8)[0]["token_type_ids"], (Ids{0, 0, 0, 0, 0, 1, 1, 1}));
  const std::string alike = file("b.csv", "text,other,y\nabc,xyz,0\n");
  EXPECT_EQ(all(alike, 8)[0]["input_ids"], Ids{kCls} + ids_of("ab") + Ids{kSep} + ids_of("xyz") + Ids{kSep});
}

TEST_F(TableData, GivesTheSameSamplesToSeveralThreads) {
  host_.set("text", Names{"text"});
  std::string contents = "text\n";
  for (int i = 0; i < 200; ++i) contents += "row " + std::to_string(i) + "\n";
  host_.set("path", Paths{file("a.csv", contents)});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  Ids numbers(static_cast<size_t>(plugin.describe("train").samples));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto expected = plugin.samples("train", numbers);
  std::vector<std::thread> threads;
  std::vector<int> equal(4);
  for (size_t t = 0; t < equal.size(); ++t)
    threads.emplace_back([&, t] { equal[t] = plugin.samples("train", numbers) == expected; });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(equal, std::vector<int>(4, 1));
}

// ---- reading ----

TEST_F(TableData, ReadsCsvAsRfc4180HasIt) {
  EXPECT_EQ(texts(file("a.csv", "id,text\n1,plain\n2,\"a, \"\"b\"\"\"\n3,\"two\nlines\"\n4, blanks \n")),
            (Names{"plain", "a, \"b\"", "two\nlines", " blanks "}));
  EXPECT_EQ(texts(file("a.csv", "\xEF\xBB\xBFtext,id\r\none,1\r\n\r\n\"t\r\nwo\",2")), (Names{"one", "t\r\nwo"}))
      << "a mark at the beginning, CRLF, an empty line, no end of the last";
  EXPECT_EQ(texts(file("a.csv", "text\rone\rtwo\r")), (Names{"one", "two"}));
  EXPECT_EQ(texts(file("a.tsv", "text\tid\na, b\t1\n\"x\ty\"\t2\n")), (Names{"a, b", "x\ty"}));
  host_.set("quotes", false);
  EXPECT_EQ(texts(file("a.tsv", "text\tid\n\"half\t1\na \"b\" c\t2\n")), (Names{"\"half", "a \"b\" c"}));
}

TEST_F(TableData, ReadsJsonlWhoseColumnsStandInAnyOrder) {
  EXPECT_EQ(texts(file("a.jsonl",
                       "{\"id\": 1, \"text\": \"one\"}\n\n{\"text\": \"tw\\u006f\\n\", \"id\": {}}\r\n"
                       "{\"text\": 12.50}\n{\"text\": true}")),
            (Names{"one", "two\n", "12.50", "true"}));
}

TEST_F(TableData, TakesNumbersOfJsonAsTheyAreWritten) {
  host_.set("label", "y");
  const Names written = {"1.50", "1.5", "-0", "0", "1e2", "123456789012345678901234", "123456789012345678901235"};
  std::string rows;
  for (const std::string& y : written) rows += "{\"text\": \"a\", \"y\": " + y + "}\n";
  host_.set("text", Names{"text"}).set("path", Paths{file("a.jsonl", rows)});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  Names classes = plugin.classes();
  std::ranges::sort(classes);
  Names expected = written;
  std::ranges::sort(expected);
  EXPECT_EQ(classes, expected);
}

TEST_F(TableData, TakesTheFormatThatTheManifestSays) {
  host_.set("format", "csv");
  EXPECT_EQ(texts(file("rows.dat", "text\none\n")), Names{"one"});
  host_.set("format", "auto");
  const FakeHost::Blame blame = refusal({folder_ / "rows.dat"});
  EXPECT_EQ(blame.key, "format");
  EXPECT_EQ(blame.why, "rows.dat does not say by its name what it is");
}

TEST_F(TableData, ReadsSeveralFilesWhoseColumnsStandInAnotherOrder) {
  host_.set("text", Names{"text"});
  host_.set("path", Paths{file("a.csv", "text,id\nab,1\n"), file("b.csv", "id,text\n2,cd\n")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  EXPECT_EQ(view(plugin.describe("train").about), "a.csv and 1 other, 2 rows");
  EXPECT_EQ(plugin.samples("train", {1})[0]["labels"], ids_of("d"));
}

// ---- classes ----

TEST_F(TableData, ClassesThatAreIntegersAreSortedByTheirSize) {
  host_.set("text", Names{"t"}).set("label", "y");
  host_.set("path", Paths{file("a.csv", "t,y\na,10\nb,9\nc,-1\nd,9\n")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  EXPECT_EQ(plugin.classes(), (Names{"-1", "9", "10"}));
  EXPECT_EQ(view(plugin.describe("train").about), "a.csv, 4 rows, 3 classes");
  EXPECT_EQ(plugin.samples("train", {0})[0]["labels"], Ids{2});
}

TEST_F(TableData, ClassesOfValidationAreThoseOfTraining) {
  host_.set("text", Names{"t"}).set("label", "y");
  host_.set("path", Paths{file("a.csv", "t,y\na,no\nb,yes\n")});
  host_.set("validation_path", Paths{file("v.csv", "t,y\nc,yes\n")});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin), MORTISE_OK);
    plugin.describe("validation");
    EXPECT_EQ(plugin.samples("validation", {0})[0]["labels"], Ids{1});
    EXPECT_EQ(plugin.classes(), (Names{"no", "yes"}));
  }
  file("v.csv", "t,y\nc,yes\nd,perhaps\n");
  const FakeHost::Blame blame = refusal({folder_ / "a.csv"}, "validation");
  EXPECT_EQ(blame.code, "unknown_label");
  EXPECT_EQ(blame.key, "validation_path");
  EXPECT_EQ(blame.why, "v.csv:3: the label `perhaps` is none of the training data");
  EXPECT_EQ(blame.beside, "which has: no, yes");
}

TEST_F(TableData, ClassesOfTheManifestNeedNoTrainingData) {
  host_.set("text", Names{"t"}).set("label", "y").set("classes", Names{"yes", "no"});
  host_.set("path", Paths{folder_ / "nowhere.csv"});
  host_.set("validation_path", Paths{file("v.csv", "t,y\nc,no\n")});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin), MORTISE_OK);
    plugin.describe("validation");
    EXPECT_EQ(plugin.samples("validation", {0})[0]["labels"], Ids{1});
    EXPECT_EQ(plugin.classes(), (Names{"yes", "no"}));
  }
  const FakeHost::Blame blame = refusal({file("a.csv", "t,y\na,maybe\n")});
  EXPECT_EQ(blame.why, "a.csv:2: the label `maybe` is none of `classes`");
  host_.set("classes", Names{"yes", "yes"});
  EXPECT_EQ(refusal({file("a.csv", "t,y\na,yes\n")}).why, "`yes` stands there twice");
}

// As of data whose labels are numbers, and of weights that call the classes by words.
TEST_F(TableData, ALabelMayBeTheNumberOfAClassThatIsAWord) {
  host_.set("text", Names{"t"}).set("label", "y").set("classes", Names{"yes", "no"});
  host_.set("path", Paths{file("a.csv", "t,y\na,1\nb,yes\nc,0\n")});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin), MORTISE_OK);
    plugin.describe("train");
    auto rows = plugin.samples("train", {0, 1, 2});
    EXPECT_EQ((std::vector<Ids>{rows[0]["labels"], rows[1]["labels"], rows[2]["labels"]}),
              (std::vector<Ids>{{1}, {0}, {0}}));
  }
  EXPECT_EQ(refusal({file("a.csv", "t,y\na,2\n")}).code, "unknown_label");
  host_.set("classes", Names{"7", "0"});
  EXPECT_EQ(refusal({file("a.csv", "t,y\na,1\n")}).code, "unknown_label") << "numbers are names there";
}

// ---- refusals ----

TEST_F(TableData, SaysWhatSeparatesTheNamesOfAFileWithOneColumn) {
  host_.set("text", Names{"review"}).set("label", "stars");
  const FakeHost::Blame blame = refusal({file("a.csv", "review;stars\nx;y\n")});
  EXPECT_EQ(blame.code, "bad_table");
  EXPECT_EQ(blame.why, "a.csv:1 has one column; what stands between its names seems to be `;`");
}

TEST_F(TableData, SaysWhatToDoWithARowThatIsTooShort) {
  host_.set("text", Names{"t"}).set("label", "y");
  EXPECT_EQ(refusal({file("a.csv", "t,y\na,1\nb\n")}).fix, "fill in what is missing, or leave the row out");
  EXPECT_EQ(refusal({file("a.csv", "t,y\na,1\nb,c,2\n")}).fix,
            "put a field that holds the separator into quotation marks");
}

TEST_F(TableData, RefusesAColumnThatIsMissingAndSaysWhichThereAre) {
  host_.set("text", Names{"review"}).set("label", "stars");
  const FakeHost::Blame blame = refusal({file("reviews.csv", "review,sentiment\nx,y\n")});
  EXPECT_EQ(blame.code, "no_column");
  EXPECT_EQ(blame.key, "label");
  EXPECT_EQ(blame.why, "reviews.csv has no column `stars`");
  EXPECT_EQ(blame.beside, "reviews.csv:1 has: review, sentiment");
  EXPECT_EQ(blame.fix, "label = \"sentiment\"");
  host_.set("text", Names{"reviw"});
  EXPECT_EQ(refusal({file("a.jsonl", R"({"id": 1, "review": "x", "stars": 5})")}).fix, "text = \"review\"");
  EXPECT_EQ(refusal({file("a.jsonl", R"({"id": 1, "body": "x", "stars": 5})")}).fix, "name one of these");
  host_.set("text", Names{"x"}).set("label", "y");
  EXPECT_EQ(why("a.csv", "x,y,x\n1,2,3\n"), "a.csv:1 has two columns `x`");
}

TEST_F(TableData, RefusesARowThatCannotBeUsedWithItsLine) {
  host_.set("text", Names{"t"}).set("label", "y");
  EXPECT_EQ(why("a.csv", "t,y\na,b\n\n\"c\nd\",e,f\n"), "a.csv:4 has 3 fields, the first line 2");
  EXPECT_EQ(why("a.csv", "t,y\na,b\na"), "a.csv:3 has 1 field, the first line 2");
  EXPECT_EQ(why("a.csv", "t,y\na,b\n,c\n"), "a.csv:3 has no text: `t` is empty");
  EXPECT_EQ(why("a.csv", "t,y\r\na,\r\n"), "a.csv:2 has no label: `y` is empty");
  EXPECT_EQ(why("a.csv", "t,y\na,b\n\"x\ny\",c\n\"d \"e\" f\",g\n"),
            "a.csv:5 has a quotation mark inside a field that does not begin with one, or text behind a closing one");
  EXPECT_EQ(why("a.csv", "t,y\na,b\n\"c,d\ne,f\n"), "a.csv:3 opens a quotation mark that is never closed");
  EXPECT_EQ(why("a.jsonl", "{\"t\": \"a\", \"y\": 1}\n{\"t\": nope}\n"), "a.jsonl:2:8 is no JSON");
  EXPECT_EQ(why("a.jsonl", "[1, 2]\n"), "a.jsonl:1 is no JSON object");
  EXPECT_EQ(why("a.jsonl", "{\"t\": 1e999, \"y\": 1}\n"), "a.jsonl:1 has a number that is too large");
  EXPECT_EQ(why("a.jsonl", "{\"t\": \"\xFF\", \"y\": 1}\n"), "a.jsonl:1:8 is no JSON");
  EXPECT_EQ(why("a.jsonl", "{\"t\": \"a\", \"y\": 1}\n{\"t\": \"b\"}\n"), "a.jsonl:2 has no `y`");
  EXPECT_EQ(why("a.jsonl", "{\"t\": \"a\", \"y\": 1, \"t\": \"a\"}\n"), "a.jsonl:1 has `t` twice");
  EXPECT_EQ(why("a.jsonl", "{\"t\": \"a\", \"y\": 1, \"z\": {\"t\": 1, \"t\": 2}, \"z\": 1}\n[]"),
            "a.jsonl:2 is no JSON object")
      << "of a column that nobody reads";
  EXPECT_EQ(why("a.jsonl", "{\"t\": null, \"y\": 1}\n"), "a.jsonl:1 has no text: `t` is empty");
  EXPECT_EQ(why("a.jsonl", "{\"t\": [1], \"y\": 1}\n"), "a.jsonl:1: `t` is a list or an object, no text");
}

TEST_F(TableData, RefusesFilesThatAreNoTable) {
  host_.set("text", Names{"t"});
  EXPECT_EQ(why("a.csv", ""), "a.csv is empty");
  EXPECT_EQ(why("a.csv", "\n\n"), "a.csv is empty");
  EXPECT_EQ(why("a.csv", "t,y\n"), "a.csv has no rows");
  EXPECT_EQ(why("a.jsonl", "\n"), "a.jsonl has no rows");
  EXPECT_EQ(why("a.csv", "\xFF\xFEt\0"), "a.csv is UTF-16");
  EXPECT_NE(why("a.csv", "\x1F\x8B\x08").find("it is compressed (gzip)"), std::string::npos);
  EXPECT_EQ(refusal({folder_ / "gone.csv"}).why, (folder_ / "gone.csv").string() + ": No such file or directory");
  EXPECT_EQ(refusal({}).why, "no file is named");
}

TEST_F(TableData, RefusesKeysThatDoNotGoTogether) {
  const std::string path = file("a.csv", "a,b,y\n1,2,3\n");
  const auto blamed = [&](const std::function<void()>& set) {
    for (const char* key : {"text", "label", "classes", "prompt", "completion"}) host_.unset(key);
    host_.set("bos", false);
    set();
    return refusal({path}).key;
  };
  EXPECT_EQ(blamed([] {}), "text");
  EXPECT_EQ(blamed([&] { host_.set("label", "y"); }), "text");
  EXPECT_EQ(blamed([&] { host_.set("text", Names{"a", "b"}); }), "text");
  EXPECT_EQ(blamed([&] { host_.set("text", Names{"a", "b", "y"}).set("label", "y"); }), "text");
  EXPECT_EQ(blamed([&] { host_.set("prompt", "a"); }), "prompt");
  EXPECT_EQ(blamed([&] { host_.set("completion", "a"); }), "completion");
  EXPECT_EQ(blamed([&] { host_.set("prompt", "a").set("completion", "b").set("label", "y"); }), "prompt");
  EXPECT_EQ(blamed([&] { host_.set("prompt", "a").set("completion", "b").set("text", Names{"y"}); }), "prompt");
  EXPECT_EQ(blamed([&] { host_.set("text", Names{"a"}).set("classes", Names{"x"}); }), "classes");
  EXPECT_EQ(blamed([&] { host_.set("text", Names{"a"}).set("label", "y").set("bos", true); }), "bos");
  host_.unset("label").set("path", Paths{path});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin), MORTISE_E_CONFIG);
  EXPECT_EQ(host_.blamed->why, "the tokenizer has no such token");
}

TEST_F(TableData, RefusesALengthThatItsSpecialTokensFill) {
  special({{"cls", kCls}, {"sep", kSep}});
  host_.set("text", Names{"a", "b"}).set("label", "y").set("path", Paths{file("a.csv", "a,b,y\n1,2,3\n")});
  for (const auto& [length, status] : std::map<int64_t, mortise_status>{
           {0, MORTISE_E_CONFIG}, {3, MORTISE_E_CONFIG}, {4, MORTISE_OK}, {INT64_MAX, MORTISE_OK}}) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(open(plugin, length), status) << length;
  }
}

TEST_F(TableData, NamesTheLineThatTheTokenizerRefuses) {
  FakeTokenizer ascii;
  ascii.encode = [](std::string_view text) {
    for (const char c : text)
      if (c < 0) throw std::runtime_error("byte beyond ASCII");
    return ids_of(text);
  };
  host_.set_tokenizer(ascii);
  host_.set("text", Names{"t"});
  std::string contents = "t\n";
  for (int i = 0; i < 600; ++i) contents += i == 301 ? "\xC3\xA9\n" : "plain\n";
  host_.set("path", Paths{file("a.csv", contents)});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  EXPECT_EQ(plugin.describe("train").samples, 600) << "not one of those that are encoded at the start";
  try {
    plugin.samples("train", {301});
    ADD_FAILURE() << "not refused";
  } catch (const PluginError& e) {
    EXPECT_EQ(e.status, MORTISE_E_DATA);
    EXPECT_EQ(std::string(e.what()),
              "a.csv:303: the tokenizer cannot read `t`\n"
              "  fix: another tokenizer, or text that this one can read: UTF-8 mostly");
  }
}

TEST_F(TableData, RefusesASampleThatItDoesNotHave) {
  host_.set("text", Names{"t"}).set("path", Paths{file("a.csv", "t\nab\n")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  plugin.describe("train");
  EXPECT_THROW(plugin.samples("train", {1}), PluginError);
  EXPECT_THROW(plugin.samples("train", {-1}), PluginError);
  EXPECT_THROW(plugin.samples("validation", {0}), PluginError);
}

// ---- what is said ----

TEST_F(TableData, SaysHowManyRowsAreCut) {
  host_.set("text", Names{"t"});
  std::string contents = "t\n";
  for (int i = 0; i < 8; ++i) contents += i < 3 ? "abcdefgh\n" : "abc\n";
  host_.set("path", Paths{file("a.csv", contents)});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 4), MORTISE_OK);
    EXPECT_EQ(view(plugin.describe("train").about), "a.csv, 8 rows, 37 % longer than 4 tokens and cut");
  }
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, 7), MORTISE_OK);
    EXPECT_EQ(view(plugin.describe("train").about), "a.csv, 8 rows") << "the eighth is a label";
  }
  for (int i = 0; i < 3; ++i) contents += contents.substr(2);
  for (int i = 0; i < 1000; ++i) contents += "abc\n";
  host_.set("path", Paths{file("a.csv", contents)});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin, 4), MORTISE_OK);
  const std::string about(view(plugin.describe("train").about));
  EXPECT_TRUE(about.starts_with("a.csv, 1,064 rows, about ")) << about;
}

TEST_F(TableData, WarnsOfPromptsThatLeaveNothingToLearn) {
  host_.set("prompt", "q").set("completion", "a");
  host_.set("path", Paths{file("a.csv", "q,a\nabcdef,x\nabcde,x\n")});
  for (const int64_t length : {5, 6}) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin, length), MORTISE_OK);
    plugin.describe("train");
  }
  ASSERT_EQ(host_.log.size(), 1u);
  EXPECT_EQ(host_.log[0].text,
            "a.csv, 2 rows, 50 % longer than 5 tokens and cut: of 1 of 2 rows nothing is learned, their prompts fill "
            "data.sequence_length");
}

TEST_F(TableData, ItsFingerprintIsThatOfTheCellsThatAreUsed) {
  host_.set("text", Names{"t"});
  const std::string one = fingerprint(file("a.csv", "t,u\nab,x\ncd,y\n"));
  EXPECT_TRUE(one.starts_with("2 rows of at most 64 tokens, ")) << one;
  EXPECT_EQ(fingerprint(file("b.jsonl", "{\"t\": \"ab\"}\n{\"t\": \"cd\"}\n")), one);
  std::set<std::string> all = {one, fingerprint(file("a.csv", "t\nab\ncd\n"), 65),
                               fingerprint(file("a.csv", "t\ncd\nab\n")), fingerprint(file("a.csv", "t\nabc\nd\n")),
                               fingerprint(file("a.csv", "t\nab\ncd\nef\n"))};
  host_.set("label", "u");
  all.insert(fingerprint(file("a.csv", "t,u\nab,x\ncd,y\n")));
  all.insert(fingerprint(file("a.csv", "t,u\nab,y\ncd,x\n")));
  special({{"cls", kCls}});
  all.insert(fingerprint(file("a.csv", "t,u\nab,x\ncd,y\n")));
  EXPECT_EQ(all.size(), 8u);
}

TEST_F(TableData, HasAValidationSplitOnlyIfOneIsNamed) {
  host_.set("text", Names{"t"}).set("path", Paths{folder_ / "nowhere.csv"});
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    ASSERT_EQ(open(plugin), MORTISE_OK);
    EXPECT_EQ(plugin.describe("validation").samples, 0);
    EXPECT_EQ(plugin.describe("validation").fingerprint.len, 0u);
  }
  host_.set("validation_path", Paths{file("v.csv", "t\nab\n")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(open(plugin), MORTISE_OK);
  EXPECT_EQ(plugin.describe("validation").samples, 1);
  EXPECT_EQ(view(plugin.describe("validation").about), "v.csv, 1 row");
}

TEST_F(TableData, NeedsATokenizer) {
  host_.withhold("mortise.tokenizer/0");
  host_.set("text", Names{"t"}).set("path", Paths{file("a.csv", "t\nab\n")});
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(open(plugin), MORTISE_E_NOT_FOUND);
}

}  // namespace
