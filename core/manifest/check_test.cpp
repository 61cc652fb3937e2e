// Every type of a key: what it takes, in which form, and what it says otherwise.
#include "core/manifest/check.hpp"

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

KeySchema of_type(const std::string& type) {
  KeySchema schema;
  schema.name = "key";
  schema.type = type;
  return schema;
}

// The value as text, or the message.
std::string check(const KeySchema& schema, const std::string& toml) {
  Report report;
  const std::optional<TomlTable> root = parse_toml("key = " + toml, "x.toml", report);
  if (!root) return printed(report);
  const std::optional<Value> value = check_value(schema, *root->find("key"), "table.key", report);
  if (!value)
    return report.all().at(0).code + ": " + report.all().at(0).message + " | " +
           (report.all().at(0).fixes.empty() ? "" : report.all().at(0).fixes[0]);
  EXPECT_EQ(value->origin.text(), "x.toml:1:7");
  EXPECT_EQ(value->origin.key, "table.key");
  return value->text();
}
std::string check(const std::string& type, const std::string& toml) { return check(of_type(type), toml); }

TEST(Check, Bool) {
  EXPECT_EQ(check("bool", "true"), "true");
  EXPECT_EQ(check("bool", "1"), "wrong_type: table.key is true or false, this is 1 | key = true");
  EXPECT_EQ(check("bool", "0"), "wrong_type: table.key is true or false, this is 0 | key = false");
  EXPECT_EQ(check("bool", "\"false\""), "wrong_type: table.key is true or false, this is text | key = false");
}

TEST(Check, Int) {
  EXPECT_EQ(check("int", "1_000"), "1000");
  EXPECT_EQ(check("int", "1e6"), "1000000");
  EXPECT_EQ(check("int", "1.5"), "wrong_type: table.key is a whole number, this is 1.5 | key = 1");
  EXPECT_EQ(check("int", "1e300"), "wrong_type: table.key is a whole number, this is 1e300 | key = 1");
  EXPECT_EQ(check("int", "inf"), "wrong_type: table.key is a whole number, this is inf | key = 1");
  EXPECT_EQ(check("int", "true"), "wrong_type: table.key is a whole number, this is true or false | key = 1");
}

TEST(Check, IntThatIsTooLarge) {
  EXPECT_EQ(check("int", "\"9223372036854775808\""),
            "out_of_range: table.key is a whole number, and 9223372036854775808 is too large for one | key = 1");
}

// What a count of thousands, millions or more is mostly of.
TEST(Check, ACountWithoutItsUnit) {
  KeySchema schema = of_type("duration");
  schema.choices = {"steps", "tokens"};
  schema.default_value = {std::string("1 epoch"), {}};
  EXPECT_EQ(check(schema, "\"10M\""), "wrong_type: table.key is a duration, this is \"10M\" | key = \"10 M tokens\"");
  EXPECT_EQ(check(schema, "\"2 K\""), "wrong_type: table.key is a duration, this is \"2 K\" | key = \"2 K steps\"");
  EXPECT_EQ(check("amount", "\"1K\""),
            "wrong_type: table.key is a size of batch, this is \"1K\" | key = \"1 K samples\"");
}

TEST(Check, Float) {
  EXPECT_EQ(check("float", "3"), "3.0");
  EXPECT_EQ(check("float", "3e-4"), "3e-4");
  EXPECT_EQ(check("float", "nan"), "wrong_type: table.key is a number, this is nan | key = 1.0");
  EXPECT_EQ(check("float", "-inf"), "wrong_type: table.key is a number, this is -inf | key = 1.0");
  EXPECT_EQ(check("float", "[1]"), "wrong_type: table.key is a number, this is a list | key = 1.0");
}

TEST(Check, Ranges) {
  KeySchema schema = of_type("float");
  schema.max = 0;
  EXPECT_EQ(check(schema, "-0.8"), "-0.8");
  EXPECT_EQ(check(schema, "1.5"), "out_of_range: table.key is at most 0, this is 1.5 | key = 0");
  schema.max = 2;
  schema.exclusive_min = 0;
  EXPECT_EQ(check(schema, "0"), "out_of_range: table.key is more than 0, this is 0 | key = 1.0");
  EXPECT_EQ(check(schema, "3"), "out_of_range: table.key is at most 2, this is 3 | key = 2");
  schema.min = 1;
  schema.default_value.data = 1.5;
  EXPECT_EQ(check(schema, "7"), "out_of_range: table.key is 1 to 2, this is 7 | key = 1.5");

  KeySchema stage = of_type("int");
  stage.min = 1, stage.max = 3;
  stage.default_value.data = int64_t{2};
  EXPECT_EQ(check(stage, "4"), "out_of_range: table.key is 1 to 3, this is 4 | key = 3");
  EXPECT_EQ(check(stage, "0"), "out_of_range: table.key is 1 to 3, this is 0 | key = 2");
  stage.max = 9;
  EXPECT_EQ(check(stage, "10"), "out_of_range: table.key is 1 to 9, this is 10 | key = 2");
}

TEST(Check, StringAndChoice) {
  EXPECT_EQ(check("string", "\"a\\\"b\""), "\"a\\\"b\"");
  EXPECT_EQ(check("string", "3"), "wrong_type: table.key is text, this is 3 | key = \"3\"");
  KeySchema schema = of_type("choice");
  schema.choices = {"auto", "csv", "tsv"};
  EXPECT_EQ(check(schema, "\"csv\""), "\"csv\"");
  EXPECT_EQ(check(schema, "\"csw\""), "not_a_choice: table.key is auto, csv or tsv, this is `csw` | key = \"csv\"");
  schema.default_value.data = std::string("auto");
  EXPECT_EQ(check(schema, "\"xml\""), "not_a_choice: table.key is auto, csv or tsv, this is `xml` | key = \"auto\"");
}

TEST(Check, PathIdMetricDtype) {
  EXPECT_EQ(check("path", "\"../x\""), "\"../x\"");  // what it means is found later
  EXPECT_EQ(check("path", "\"\""), "wrong_type: table.key is a path, this is \"\" | key = \"path/to/it\"");
  EXPECT_EQ(check("id", "\"device.cpu\""), "\"device.cpu\"");
  EXPECT_EQ(check("id", "\"cpu\""),
            "wrong_type: table.key is the id of a plugin, this is \"cpu\" | key = \"family.name\"");
  EXPECT_EQ(check("metric", "\"eval.f1\""), "\"eval.f1\"");
  EXPECT_EQ(check("metric", "\"eval f1\""),
            "wrong_type: table.key is the name of a metric, this is \"eval f1\" | key = \"eval.loss\"");
  for (const char* dtype : {"\"fp32\"", "\"bf16\"", "\"fp16\"", "\"fp64\""}) EXPECT_EQ(check("dtype", dtype), dtype);
  EXPECT_EQ(check("dtype", "\"float32\""), "not_a_choice: table.key is fp32, fp64, bf16 or fp16, this is `float32` | ");
}

TEST(Check, DurationAmountBytes) {
  EXPECT_EQ(check("duration", "500"), "500");
  EXPECT_EQ(check("duration", "1e3"), "1000");
  EXPECT_EQ(check("duration", "\"3%\""), "\"3%\"");
  EXPECT_EQ(check("duration", "\"3 foo\""),
            "wrong_type: table.key is a duration, this is \"3 foo\" | key = \"500 steps\"");
  EXPECT_EQ(check("duration", "\"500\""), "wrong_type: table.key is a duration, this is \"500\" | key = 500");
  EXPECT_EQ(check("duration", "2.5"), "wrong_type: table.key is a duration, this is 2.5 | key = \"500 steps\"");
  EXPECT_EQ(check("duration", "-1"), "out_of_range: table.key is 0 or more, this is -1 | key = \"500 steps\"");
  KeySchema wait = of_type("duration");
  wait.choices = {"seconds"};
  wait.max = 600;
  EXPECT_EQ(check(wait, "\"1 h\""),
            "out_of_range: table.key is 0 to 600 seconds, this is \"1 h\" | key = \"500 seconds\"");
  EXPECT_EQ(check(wait, "20"), "wrong_unit: table.key is a time, and 20 has no unit | key = \"20 s\"");
  wait.min = 1;
  EXPECT_EQ(check(wait, "0"), "out_of_range: table.key is 1 to 600 seconds, this is 0 | key = \"500 seconds\"")
      << "\"0 s\" would be refused too";
  KeySchema share = of_type("duration");
  share.choices = {"steps", "percent"};
  EXPECT_EQ(check(share, "\"600%\""),
            "out_of_range: table.key is a share of the run, at most 100%, this is \"600%\" | key = \"6%\"");
  EXPECT_EQ(check(share, "0.07"), "wrong_type: table.key is a duration, this is 0.07 | key = \"7%\"");
  EXPECT_EQ(check(share, "1.5"), "wrong_type: table.key is a duration, this is 1.5 | key = \"500 steps\"");
  share = of_type("float");
  share.min = 0;
  share.max = 1;
  EXPECT_EQ(check(share, "\"10%\""), "wrong_type: table.key is a number, this is text | key = 0.1");
  EXPECT_EQ(check(share, "2"), "out_of_range: table.key is 0 to 1, this is 2 | key = 0.02   for 2 per cent");
  EXPECT_EQ(check("float", "\"10%\""), "wrong_type: table.key is a number, this is text | key = 1.0");
  EXPECT_EQ(check("amount", "512"), "\"512 samples\"");
  EXPECT_EQ(check("amount", "\"524288 tokens\""), "\"524288 tokens\"");
  EXPECT_EQ(check("amount", "\"2 epochs\""), "not_a_choice: table.key is in samples or tokens, this is in epochs | ");
  EXPECT_EQ(check("bytes", "\"16 KiB\""), "16384");
  EXPECT_EQ(check("bytes", "1000"), "1000");
  EXPECT_EQ(check("bytes", "-1"), "out_of_range: table.key is 0 or more, this is -1 | key = \"16 GiB\"");
  EXPECT_EQ(check("bytes", "\"16 gigs\""),
            "wrong_type: table.key is a size of memory, this is \"16 gigs\" | key = \"16 GiB\"");
}

TEST(Check, Lists) {
  EXPECT_EQ(check("list<float>", "[1, 2.5]"), "[1.0, 2.5]");
  EXPECT_EQ(check("list<int>", "[]"), "[]");
  EXPECT_EQ(check("list<string>", "\"one\""), "[\"one\"]");
  EXPECT_EQ(check("list<string>", "5"), "wrong_type: table.key is a list of texts, this is 5 | key = [\"5\"]");
  EXPECT_EQ(check("list<float>", "1"), "wrong_type: table.key is a list of numbers, this is 1 | key = [1.0]");
  EXPECT_EQ(check("list<float>", "[1, \"2\"]"),
            "wrong_type: table.key is a list of numbers, this is text | key = [1.0]");
  KeySchema schema = of_type("list<float>");
  schema.min = 0;
  schema.max = 1;
  EXPECT_EQ(check(schema, "[0.9, 9]"), "out_of_range: table.key is 0 to 1, this is 9 | 0.09   for 9 per cent");
}

TEST(Check, Selectors) {
  EXPECT_EQ(check("where", "\"blocks.*\""), "\"blocks.*\"");
  EXPECT_EQ(check("where", "[\"role:norm\", \"head.*\"]"), "[\"role:norm\", \"head.*\"]");
  EXPECT_EQ(check("where", "{ match = \"blocks.*\", except = \"blocks.0\", every = 2, from = 1 }"),
            "{ match = \"blocks.*\", except = \"blocks.0\", every = 2, from = 1 }");
  EXPECT_EQ(check("where", "{ every = 2 }"), "{ match = \"*\", every = 2 }");
  EXPECT_EQ(check("where", "[]"), "wrong_type: table.key is a selector, this is a list | key = \"blocks.*\"");
  EXPECT_EQ(check("where", "[1]"), "wrong_type: table.key is a selector, this is 1 | key = \"blocks.*\"");
  EXPECT_EQ(
      check("where", "{ every = 0 }"),
      "out_of_range: table.key.every is a whole number from 1 to 1000000, this is 0 | key = { every = 2, from = 1 }");
  EXPECT_EQ(check("where", "{ matches = \"x\" }"),
            "unknown_key: table.key has no key `matches` | a selector has match, except, every and from");
}

TEST(Check, NamesOfVariablesAreNoSecrets) {
  EXPECT_EQ(check("env", "\"WANDB_API_KEY\""), "\"WANDB_API_KEY\"");
  for (const char* key :
       {"\"hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ012345\"", "\"sk-proj-1\"", "\"0123456789\"", "3", "\"a key\""})
    EXPECT_EQ(check("env", key).substr(0, 20), "secret_in_manifest: ") << key;
}

}  // namespace
}  // namespace mortise
