#include "core/manifest/schema.hpp"
#include "core/manifest/check.hpp"

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

TEST(CoreSchema, DescribesEveryKey) {
  const CoreSchema& core = core_schema();
  for (const auto& [name, table] : core.tables)
    for (const auto& [key, schema] : table.keys) {
      EXPECT_FALSE(schema.doc.empty()) << name << "." << key;
      EXPECT_FALSE(schema.type.empty()) << name << "." << key;
    }
  EXPECT_EQ(core.rule.keys.size(), 7u);
  EXPECT_EQ(core.reserved.keys.size(), 5u);
  EXPECT_TRUE(core.is_family("optimizer"));
  EXPECT_FALSE(core.is_family("run"));
  EXPECT_FALSE(core.is_family("gradient"));
}

TEST(CoreSchema, KnowsNoKeyTwice) {
  for (const std::string& later : core_schema().later) {
    const size_t dot = later.find('.');
    const auto table = core_schema().tables.find(later.substr(0, dot));
    if (dot == std::string::npos || table == core_schema().tables.end()) continue;
    EXPECT_FALSE(table->second.keys.contains(later.substr(dot + 1))) << later;
  }
}

TEST(PluginSchema, ReadsTheExampleOfTheDesign) {
  const PluginSchema schema = plugin_schema("optimizer.lion", {"optimizer"}, {}, R"(
[plugin]
id = "optimizer.lion"
[family_defaults]
lr = 1e-4
[config.beta1]
type    = "float"
default = 0.9
min     = 0.0
max     = 1.0
aka     = ["b1"]
change  = "numeric"
doc     = "Weight of the momentum in the update's sign."
[config.kind]
type    = "choice"
choices = ["a", "b"]
deprecated = { since = "0.2", use = "beta1" }
)");
  const KeySchema& beta1 = schema.config.keys.at("beta1");
  EXPECT_EQ(beta1.default_value.text(), "0.9");
  EXPECT_EQ(beta1.default_value.origin.text(), "plugin.toml of optimizer.lion");
  EXPECT_EQ(beta1.aka, std::vector<std::string>{"b1"});
  EXPECT_EQ(beta1.change, "numeric");
  EXPECT_EQ(schema.config.keys.at("kind").deprecated->use, "beta1");
  EXPECT_FALSE(schema.config.keys.at("kind").default_value.is_set());
  EXPECT_EQ(schema.family_defaults.at("lr").as_float(), 1e-4);
}

// What is wrong with a plugin.toml, without the level and the code, which are always the same.
std::string broken(const std::string& toml, const std::string& id = "optimizer.x",
                   std::vector<std::string> provides = {}) {
  PluginSchema schema;
  schema.id = id;
  schema.family = id.substr(0, id.find('.'));
  schema.provides = std::move(provides);
  Report report;
  const std::optional<TomlTable> root = parse_toml(toml, "plugin.toml", report);
  if (root) read_plugin_schema(*root, schema, report);
  std::string out;
  for (const Diagnostic& d : report.all()) {
    EXPECT_EQ(d.code, "schema_broken");
    EXPECT_EQ(d.exit, kExitPlugin);
    out += d.positions[0].text() + " " + d.message + "\n";
  }
  return out;
}

// `[optimizer] lr` would be passed over in silence.
TEST(PluginSchema, LeavesTheKeysOfItsFamilyToTheUser) {
  const std::string of_family =
      "` is a key of [optimizer], which the user sets for all of the family; what holds where nobody does stands in "
      "[family_defaults]\n";
  for (const std::string key : {"lr", "weight_decay"})
    EXPECT_EQ(broken("[config." + key + "]\ntype = \"float\"\ndefault = 0.5\n"), "plugin.toml:1:9 `" + key + of_family);
  EXPECT_EQ(broken("[config.warmup]\ntype = \"int\"\n"), "") << "of another family";
  EXPECT_EQ(broken("[config.lr]\ntype = \"float\"\n", "acme.x", {"optimizer"}), "plugin.toml:1:9 `lr" + of_family)
      << "of the point that it provides";
  EXPECT_EQ(broken("[config.lr]\ntype = \"float\"\n", "acme.x"), "");
}

TEST(PluginSchema, RefusesFieldsThatNoValueCouldMeet) {
  const std::string head = "[config.b]\ntype = \"int\"\n[config.a]\n", at = "plugin.toml:3:9 optimizer.x.a: ";
  const auto of_a = [&](const std::string& fields) { return broken(head + fields); };
  EXPECT_EQ(of_a("type = \"duration\"\nchoices = [\"steps\", \"fortnights\"]\n"),
            at + "`fortnights` is no unit of a duration\n");
  EXPECT_EQ(of_a("type = \"duration\"\nchoices = [\"steps\", \"epochs\", \"tokens\", \"samples\", "
                 "\"seconds\", \"percent\"]\n"),
            "");
  EXPECT_EQ(of_a("type = \"int\"\nchoices = [\"1\"]\n"), at + "`choices` are for a choice or a duration\n");
  EXPECT_EQ(of_a("type = \"list<choice>\"\nchoices = [\"1\"]\n"), "");
  for (const std::string bound : {"min", "max", "exclusive_min"})
    EXPECT_EQ(of_a("type = \"string\"\n" + bound + " = 1\n"), at + "bounds are for numbers, this is string\n");
  EXPECT_EQ(of_a("type = \"list<float>\"\nmin = 1\n"), "");
  EXPECT_EQ(of_a("type = \"int\"\nexclusive_min = 1\nmax = 1\n"), at + "exclusive_min leaves nothing below max\n");
}

TEST(PluginSchema, RefusesNamesThatLeadNowhere) {
  const std::string head = "[config.b]\ntype = \"int\"\n[config.a]\ntype = \"int\"\n",
                    at = "plugin.toml:3:9 optimizer.x.a: ";
  const auto of_a = [&](const std::string& fields) { return broken(head + fields); };
  EXPECT_EQ(of_a("aka = [\"b\"]\n"), at + "aka `b` is a key of its own\n");
  EXPECT_EQ(of_a("aka = [\"c\"]\n"), "");
  const std::string none = "`, which is no other key of optimizer.x\n";
  EXPECT_EQ(of_a("deprecated = { since = \"0.2\", use = \"c\" }\n"), at + "deprecated.use is `c" + none);
  EXPECT_EQ(of_a("deprecated = { since = \"0.2\", use = \"a\" }\n"), at + "deprecated.use is `a" + none);
  EXPECT_EQ(of_a("deprecated = { since = \"0.2\", use = \"b\" }\n"), "");
  EXPECT_EQ(of_a("deprecated = { since = \"0.2\", use = \"optimizer.lr\" }\n"), "") << "of another table";
}

TEST(PluginSchema, ProposesTheNearestType) {
  EXPECT_EQ(nearest_type("floats"), "type = \"float\"");
  EXPECT_EQ(nearest_type("list<strng>"), "type = \"list<string>\"");
  EXPECT_EQ(nearest_type("quaternion").substr(0, 12), "types: bool,");
}

TEST(PluginSchema, RefusesWhatItCannotCheckBy) {
  EXPECT_EQ(broken("[config.a]\ntype = \"real\"\n"), "plugin.toml:1:9 optimizer.x.a: there is no type `real`\n");
  EXPECT_EQ(broken("[config.a]\ntype = \"list<list<int>>\"\n"),
            "plugin.toml:1:9 optimizer.x.a: there is no type `list<list<int>>`\n");
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\ndefault = 1.5\n"),
            "plugin.toml:3:11 optimizer.x.a is a whole number, this is 1.5\n");
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\nmin = 3\nmax = 2\n"),
            "plugin.toml:1:9 optimizer.x.a: min is more than max\n");
  const std::string core_only = "same_as and per_provider are for tables of the core, here nobody reads them\n";
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\nsame_as = \"run.seed\"\n"),
            "plugin.toml:1:9 optimizer.x.a: " + core_only);
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\nper_provider = true\n"), "plugin.toml:1:9 optimizer.x.a: " + core_only);
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\nmaximum = 2\n"),
            "plugin.toml:3:1 optimizer.x.a has no field `maximum`: aka change choices default "
            "deprecated doc exclusive_min max min type\n");
  EXPECT_EQ(broken("[config.a]\ntype = \"choice\"\n"), "plugin.toml:1:9 optimizer.x.a: a choice needs `choices`\n");
  EXPECT_EQ(broken("[config.a]\ntype = \"int\"\nchange = \"often\"\n"),
            "plugin.toml:1:9 optimizer.x.a: change is free, numeric or fixed\n");
  EXPECT_EQ(broken("[config.A-b]\ntype = \"int\"\n"), "plugin.toml:1:9 a key is [a-z][a-z0-9_]*, this is `A-b`\n");
  EXPECT_EQ(broken("[config.where]\ntype = \"int\"\n"),
            "plugin.toml:1:9 `where` is read by the host in every plugin's table\n");
  EXPECT_EQ(broken("[config]\na = 1\n"),
            "plugin.toml:2:1 `optimizer.x.a` is described by a table: type, default, doc\n");
  EXPECT_EQ(broken("config = 1\n"), "plugin.toml:1:1 `config` is a table\n");
  EXPECT_EQ(broken("[preset.a]\nx = 1\n"),
            "plugin.toml:1:9 presets need a key `preset` of type choice\nplugin.toml:2:1 preset a names `x`, which is "
            "no key of optimizer.x\n");
  EXPECT_EQ(broken("[family_defaults]\nbetas = 1\nlr = \"x\"\n"),
            "plugin.toml:2:1 [family_defaults] names `betas`, which is no key of [optimizer]\nplugin.toml:3:6 "
            "optimizer.lr is a number, this is text\n");
}

}  // namespace
}  // namespace mortise
