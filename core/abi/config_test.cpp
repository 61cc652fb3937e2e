// mortise.config/0: values as C, and refusals with their places.
#include <gtest/gtest.h>

#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"

namespace mortise {
namespace {

struct ConfigTest : ::testing::Test {
  PluginSchema schema;
  PluginTable table;
  PointTable points;
  Edge edge{points, 1};
  PluginHost& window = edge.add_plugin("test.x", &schema, &table);
  const mortise_config_api& config = *static_cast<const mortise_config_api*>(mortise_get(&window, "mortise.config/0"));

  template <class T>
  mortise_value get(const std::string& key, const char* type, T data) {
    schema.config.keys[key].type = type;
    table.values[key].data = std::move(data);
    mortise_value v{};
    EXPECT_EQ(config.get(&window, str(key), &v), MORTISE_OK) << key;
    return v;
  }
  const Diagnostic& refuse(const char* code, const char* key) {
    EXPECT_EQ(config.refuse(&window, str(std::string_view(code)), str(std::string_view(key)), MORTISE_STR("too high"),
                            MORTISE_STR("the length"), MORTISE_STR("rate = 1")),
              MORTISE_E_CONFIG);
    return window.blame;
  }
};

TEST_F(ConfigTest, ValuesKeepTheirTypes) {
  const std::vector<Value> whole = {{int64_t{3}, {}}, {int64_t{4}, {}}}, parts = {{0.5, {}}, {2.0, {}}};
  const mortise_value ints = get("ints", "list<int>", whole), floats = get("floats", "list<float>", parts);
  EXPECT_EQ(ints.tag, uint32_t{MORTISE_INTS});
  EXPECT_EQ(ints.v.is[1], 4);
  EXPECT_EQ(floats.tag, uint32_t{MORTISE_FLOATS});
  EXPECT_EQ(floats.v.fs[1], 2.0);
  const mortise_value dtype = get("dtype", "dtype", std::string("bf16")),
                      text = get("text", "string", std::string("bf16"));
  EXPECT_EQ(dtype.tag, uint32_t{MORTISE_DTYPE});
  EXPECT_EQ(dtype.v.i, MORTISE_BF16);
  EXPECT_EQ(text.tag, uint32_t{MORTISE_TEXT});
  const Amount epochs = {2, static_cast<Unit>(1)};
  const mortise_value amount = get("amount", "amount", epochs);
  EXPECT_EQ(amount.tag, uint32_t{MORTISE_AMOUNT});
  EXPECT_EQ(amount.count, 1u);
  EXPECT_EQ(amount.v.f, 2);
}

TEST_F(ConfigTest, AValueIsTheTablesElseTheDefault) {
  schema.config.keys["rate"].default_value.data = 0.5;
  schema.config.keys["other"].default_value.data = 0.5;
  EXPECT_EQ(get("rate", "float", 0.25).v.f, 0.25);
  mortise_value v{};
  EXPECT_EQ(config.get(&window, MORTISE_STR("other"), &v), MORTISE_OK);
  EXPECT_EQ(v.v.f, 0.5);
}

// Where a person wrote the value; of a default, the plugin's table.
TEST_F(ConfigTest, ARefusalHasThePlaceOfTheValue) {
  table.origin = {"run.toml", 3, 1, "test.x"};
  table.values["rate"] = {0.5, {"run.toml", 7, 8, ""}};
  table.values["other"] = {0.5, {"default of test.x", 0, 0, ""}};
  EXPECT_EQ(refuse("too_fast", "rate").positions.at(0).line, 7);
  EXPECT_EQ(window.blame.positions.at(0).key, "test.x.rate");
  EXPECT_EQ(window.blame.code, "too_fast");
  EXPECT_EQ(window.blame.beside, "the length");
  EXPECT_EQ(window.blame.fixes.at(0), "rate = 1");
  EXPECT_EQ(refuse("too_fast", "other").positions.at(0).line, 3);
  EXPECT_EQ(refuse("Too fast!", "rate").code, "refused_value") << "no word of a code";
}

// In C nothing else says that the configuration was misread: the first failure is what went wrong.
TEST_F(ConfigTest, TheFirstFailureIsKept) {
  window.fail(&window, MORTISE_E_PLUGIN, MORTISE_STR("first"));
  window.fail(&window, MORTISE_E_PLUGIN, MORTISE_STR("second"));
  EXPECT_EQ(window.failure, "first");
}

TEST_F(ConfigTest, APathSaysByWhichPatternItWasFound) {
  get("path", "list<path>", std::vector<Value>{{std::string("/d/a.txt"), {}, "/d/*.txt"}, {std::string("/b.txt"), {}}});
  mortise_str pattern{};
  ASSERT_EQ(config.pattern(&window, MORTISE_STR("path"), 0, &pattern), MORTISE_OK);
  EXPECT_EQ(view(pattern), "/d/*.txt");
  ASSERT_EQ(config.pattern(&window, MORTISE_STR("path"), 1, &pattern), MORTISE_OK);
  EXPECT_EQ(view(pattern), "/b.txt") << "which was named alone";
  EXPECT_EQ(config.pattern(&window, MORTISE_STR("path"), 2, &pattern), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(config.pattern(&window, MORTISE_STR("other"), 0, &pattern), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(config.pattern(&window, MORTISE_STR("path"), 0, nullptr), MORTISE_E_ARGUMENT);
}

}  // namespace
}  // namespace mortise
