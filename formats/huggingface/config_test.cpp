// config.json comes from anywhere: what it says is found with its line, and nothing of it is passed over.
#include "formats/huggingface/config.hpp"

#include <gtest/gtest.h>

#include "formats/file.hpp"

namespace mortise::huggingface {
namespace {

// As model.gpt has it, in small.
Mapping small() {
  const TomlTable table = parse_toml(R"(
architectures = ["SmallModel"]
harmless      = ["summary_*"]
[fixed]
model_type = "small"
eps        = 1e-5
scaled     = true
kinds      = ["full", "full"]
[keys]
layers     = "n_layer"
vocabulary = "vocab_size"
dropout    = ["a_drop", "b_drop"]
[tokens]
eos_token_id = 99
[parameters]
"wte"           = ["vocabulary", 8]
"h.{layers}.up" = [8, "4*layers"]
)",
                                     "plugin.toml");
  return read_mapping(table, {"layers", "vocabulary", "dropout"},
                      [](const TomlPlace&, const std::string& message, const std::string&) { FAIL() << message; });
}

using Values = std::map<std::string, std::string>;
using Parameters = std::map<std::string, Sizes>;
const Values kValues = {{"layers", "2"}, {"vocabulary", "100"}, {"dropout", "0.1"}, {"other", "\"x\""}};
const Parameters kParameters = {{"wte", {100, 8}}, {"h.0.up", {8, 8}}, {"h.1.up", {8, 8}}};

std::vector<std::string> unknown(const std::string& text, const Mapping& mapping = small()) {
  std::vector<std::string> all;
  for (const auto& s : Config("config.json", text).unknown(mapping))
    all.push_back(std::to_string(s.value.at.line) + " " + s.name + " = " + s.text);
  return all;
}

using Texts = std::vector<std::string>;

TEST(ConfigJson, IsWrittenAsTheMappingSays) {
  EXPECT_EQ(Json::parse(config_text(small(), kValues, kParameters)), Json::parse(R"({
    "architectures": ["SmallModel"], "model_type": "small", "eps": 1e-5, "scaled": true, "kinds": ["full", "full"],
    "n_layer": 2, "vocab_size": 100, "a_drop": 0.1, "b_drop": 0.1, "eos_token_id": 99})"));
  // A vocabulary that ends before a token has no such token.
  const Values few = {{"layers", "0"}, {"vocabulary", "99"}};
  const Json written = Json::parse(config_text(small(), few, {{"wte", {99, 8}}}));
  EXPECT_TRUE(written.at("eos_token_id").is_null());
  EXPECT_FALSE(written.contains("a_drop"));
}

TEST(ConfigJson, KnowsAllThatIsWritten) {
  const std::string text = config_text(small(), kValues, kParameters);
  EXPECT_EQ(unknown(text), Texts());
  const Config config("config.json", text);
  EXPECT_TRUE(config.contradictions(small()).empty());
  EXPECT_EQ(config.architecture(), "SmallModel");
  EXPECT_TRUE(config.differences().empty());
  EXPECT_EQ(unknown(config.text_for("BF16")), Texts());
  EXPECT_EQ(Json::parse(config.text_for("BF16")).at("torch_dtype"), "bfloat16");
}

TEST(ConfigJson, ClaimsNoArchitectureThatItIsNot) {
  Parameters changed = kParameters;
  changed["wte"] = {101, 8};
  changed["h.0.router"] = {8};
  changed.erase("h.1.up");
  const std::string text = config_text(small(), kValues, changed);
  const Config config("config.json", text);
  EXPECT_EQ(config.architecture(), "");
  EXPECT_FALSE(config.find("model_type"));
  EXPECT_EQ(config.differences(), (Texts{"h.0.router is added", "wte is [101, 8], not [100, 8]", "h.1.up is missing"}));
  EXPECT_EQ(unknown(text), Texts());
  for (int i = 0; i < 10; ++i) changed["added." + std::to_string(i)] = {1};
  EXPECT_EQ(Config("config.json", config_text(small(), kValues, changed)).differences().size(), 9u);
  EXPECT_EQ(Config("config.json", config_text(small(), kValues, changed)).differences().back(), "5 more differ");
}

// Two heads of one architecture, a key within an object, names of classes, sizes that divide or that nobody states.
Mapping headed() {
  const TomlTable table = parse_toml(R"(
classes = "classes"
new     = ["head.*"]
[fixed]
model_type      = "headed"
"rope.rope_type" = "default"
[keys]
theta = ["theta", "rope.theta"]
[parameters]
body = ["width/heads", "?"]
[where.task.classify]
architectures = ["HeadedForClasses"]
[where.task.classify.parameters]
"head.classes" = ["classes", "width"]
[where.task.guess]
architectures = ["HeadedForWords"]
[where.task.guess.parameters]
"head.words" = [7]
)",
                                     "plugin.toml");
  return read_mapping(table, {"task", "classes", "theta", "width", "heads"},
                      [](const TomlPlace&, const std::string& message, const std::string&) { FAIL() << message; });
}

TEST(ConfigJson, IsOfTheHeadThatAKeyChooses) {
  const Values classify = {
      {"task", "\"classify\""}, {"classes", "2"}, {"theta", "500.0"}, {"width", "8"}, {"heads", "4"}};
  const Json written =
      Json::parse(config_text(headed(), classify, {{"body", {2, 99}}, {"head.classes", {2, 8}}}, {"no"}));
  EXPECT_EQ(written, Json::parse(R"({"architectures": ["HeadedForClasses"], "model_type": "headed", "theta": 500.0,
    "rope": {"rope_type": "default", "theta": 500.0}, "id2label": {"0": "no", "1": "LABEL_1"},
    "label2id": {"no": 0, "LABEL_1": 1}})"));
  Values guess = classify;
  guess["task"] = "\"guess\"";
  EXPECT_EQ(Config("c", config_text(headed(), guess, {{"body", {2, 1}}, {"head.words", {7}}})).architecture(),
            "HeadedForWords");
  EXPECT_EQ(Config("c", config_text(headed(), guess, {{"body", {2, 1}}, {"head.classes", {2, 8}}})).differences(),
            (Texts{"head.classes is added", "head.words is missing"}));
  EXPECT_TRUE(headed().may_lack("head.words"));
  EXPECT_FALSE(headed().may_lack("body"));
}

TEST(ConfigJson, ReadsKeysWithinObjectsAndNamesThoseThatNobodyKnows) {
  const std::string text = R"({"theta": null, "id2label": {"0": "a"},
    "rope": {"rope_type": "default", "theta": 7, "factor": 8, "off": false},
    "rope.theta": 3, "other": {"theta": 1}})";
  const Config config("c.json", text);
  EXPECT_EQ(std::get<int64_t>(config.find("rope.theta")->value.data), 7);
  EXPECT_FALSE(config.find("rope.theta.more"));
  EXPECT_EQ(unknown(text, headed()), (Texts{R"(3 other = {"theta":1})", "2 rope.factor = 8", "3 rope.theta = 3"}));
  EXPECT_EQ(Config("c", R"({"rope": {"rope_type": "llama3"}})").contradictions(headed()).size(), 1u);
}

TEST(ConfigJson, SaysWhatIsMergedAndWhatTheFolderIsThen) {
  Parameters added = kParameters;
  added["wte.left"] = {100, 2};
  added["wte.right"] = {2, 8};
  const std::string text =
      config_text(small(), kValues, added, {}, {.products = {{"wte", "wte.left", "wte.right", 0.1, true}}});
  const Config config("config.json", text);
  EXPECT_EQ(config.architecture(), "");
  EXPECT_EQ(config.differences(), (Texts{"wte.left is added", "wte.right is added"}));
  EXPECT_EQ(unknown(text), Texts());
  ASSERT_EQ(config.products().size(), 1u);
  const Product p = config.products()[0];
  EXPECT_EQ((Texts{p.into, p.left, p.right}), (Texts{"wte", "wte.left", "wte.right"}));
  EXPECT_EQ(p.scale, 0.1);
  EXPECT_TRUE(p.transposed);
  const std::string merged = config.merged().text_for("F32");
  EXPECT_EQ(merged, Config("config.json", config_text(small(), kValues, kParameters)).text_for("F32"));
  // What else was added keeps it from being the architecture.
  added["router"] = {8};
  const Config other("config.json", config_text(small(), kValues, added, {}, config.added()));
  EXPECT_EQ(other.merged().differences(), Texts{"router is added"});
}

TEST(ConfigJson, SaysWhatElseAFolderOfTheAddedNeeds) {
  const Added added{
      {{"wte", "wte.left", "wte.right", 0.1, true}}, {"h.0.up"}, "small.", {{{"r", "2"}, {"kind", "\"X\""}}}};
  const Added read = Config("config.json", config_text(small(), kValues, kParameters, {}, added)).added();
  EXPECT_EQ(read.products.size(), 1u);
  EXPECT_EQ(read.learned, Texts{"h.0.up"});
  EXPECT_EQ(read.prefix, "small.");
  EXPECT_EQ(read.settings, added.settings);
  EXPECT_TRUE(Config("config.json", "{}").added().products.empty());
  const std::string other = R"("into": "a", "left": "b", "right": "c", "scale": 1, "transposed": false)";
  EXPECT_THROW(Config("config.json", R"({"parameters_merge": {"products": [{)" + other + "}]}}").added(), FormatError);
}

TEST(ConfigJson, ThatNamesNoProductsIsRefused) {
  const Config broken("config.json", R"({"parameters_merge": {"products": [{"into": "wte"}]}})");
  EXPECT_THROW(broken.products(), FormatError);
  EXPECT_TRUE(Config("config.json", "{}").products().empty());
  EXPECT_EQ(Config("config.json", R"({"a": 1})").merged().text_for("F32"),
            Config("config.json", R"({"a": 1})").text_for("F32"));
}

TEST(ConfigJson, NamesEveryKeyThatNobodyKnows) {
  EXPECT_EQ(unknown(R"({
  "n_layer": 2, "summary_type": "x", "torch_dtype": "float32", "pad_token_id": 7, "not_set": null, "off": false,
  "zero": 0,
  "rope_parameters": {
    "eps": 1, "text": "}\"{", "rope_type": "llama3"
  },
  "list": [], "sliding_window": 4096, "name\n": "tab\tand \u009b"
})"),
            (Texts{"7 list = []",
                   R"(7 name)"
                   "\n"
                   R"( = tab\tand \u009b)",
                   R"(4 rope_parameters = {"eps":1,"rope_type":"llama3","text":"}\"{"})", "7 sliding_window = 4096",
                   "3 zero = 0"}));
  const std::vector<std::string> one = unknown("{\"long\": \"" + std::string(1000, 'x') + "\"}");
  EXPECT_EQ(one.at(0), "1 long = " + std::string(80, 'x') + "…");
  EXPECT_EQ(unknown("{\"n_layer\": 2}", Mapping()), Texts{"1 n_layer = 2"});  // a model that has no names there
}

TEST(ConfigJson, SaysWhatIsOfAnotherModel) {
  const Config config("c.json",
                      "{\"eps\": 1e-6,\n\"scaled\": 1,\n\"model_type\": null,\"kinds\": [\"full\", \"full\"]}");
  Mapping mapping = small();
  mapping.fixed["off"].data = false;
  const auto all = config.contradictions(mapping);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].stated.text + " " + all[0].fixed, "1e-06 1e-05");
  EXPECT_EQ(all[1].stated.text + " " + all[1].fixed, "null small");
  EXPECT_EQ(all[2].stated.text + " " + all[2].fixed, "1 true");  // a number is no truth
  EXPECT_EQ(all[2].stated.value.at.line, 2);
  EXPECT_EQ(Config("c", R"({"off": null})").contradictions(mapping).size(), 0u);
}

TEST(ConfigJson, GivesValuesAsTheyAre) {
  const Config config("c.json", R"({"t": "x", "i": -3, "f": 0.5, "b": true, "l": [1], "n": null,
                                    "u": 9223372036854775808})");
  EXPECT_EQ(std::get<std::string>(config.find("t")->value.data), "x");
  EXPECT_EQ(std::get<int64_t>(config.find("i")->value.data), -3);
  EXPECT_EQ(std::get<double>(config.find("f")->value.data), 0.5);
  EXPECT_EQ(std::get<bool>(config.find("b")->value.data), true);
  EXPECT_EQ(std::get<std::string>(config.find("l")->value.data), "[1]");
  EXPECT_EQ(std::get<double>(config.find("u")->value.data), 0x1p63);  // never a negative number
  EXPECT_FALSE(config.find("n"));
  EXPECT_FALSE(config.find("nowhere"));
}

// Readers take the first, or the last.
TEST(ConfigJson, HasNoKeyTwice) {
  for (const char* text : {R"({"a": 1, "b": {}, "a": 1})", R"({"b": {"x": {"a": 1}}, "c": {"a": 1, "a": 2}})",
                           R"({"b": [{"a": 1}, {"a": 1, "a": 2}]})"}) {
    try {
      Config("c.json", text);
      ADD_FAILURE() << text;
    } catch (const FormatError& e) {
      EXPECT_EQ(e.code + " " + e.message, "bad_config_json has `a` twice");
    }
  }
  Config("c.json", R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 1}], "c": {"a": {"a": 1}, "b": 1}})");
}

TEST(ConfigJson, IsAnObjectThatCanBePrinted) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"), std::string("\xff"), std::string("{\"a\":\"\xff\"}"),
        std::string("{\"a\":NaN}"), "{\"a\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}",
        "{\"a\":\"" + std::string(16 << 20, 'x') + "\"}"}) {
    try {
      Config("c.json", text);
      ADD_FAILURE() << text.substr(0, 20);
    } catch (const FormatError& e) {
      EXPECT_EQ(e.code + " " + e.path + " " + e.message, "bad_config_json c.json is no JSON object");
    }
  }
  for (const char* text : {R"({"architectures": 3})", R"({"architectures": [3]})", R"({"architectures": []})"})
    EXPECT_EQ(Config("c.json", text).architecture(), "");
}

}  // namespace
}  // namespace mortise::huggingface
