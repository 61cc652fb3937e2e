// What [huggingface] of a plugin.toml says, and what is said about one that is wrong.
#include "formats/huggingface/mapping.hpp"

#include <gtest/gtest.h>

namespace mortise::huggingface {
namespace {

using Texts = std::vector<std::string>;

// "line message | fix" of each mistake.
Texts mistakes(const std::string& text, Mapping* read = nullptr) {
  Texts all;
  const Mapping mapping = read_mapping(parse_toml(text, "plugin.toml"), {"layers", "width"},
                                       [&](const TomlPlace& at, const std::string& message, const std::string& fix) {
                                         all.push_back(std::to_string(at.line) + " " + message + " | " + fix);
                                       });
  if (read) *read = mapping;
  return all;
}

TEST(HuggingFaceMapping, NamesTensorsAsTheModelDoes) {
  Mapping m;
  EXPECT_EQ(mistakes(R"(renames = [["model.*.w", "*.weight"], ["model.*", "*"], ["a*", "b*"]]
ignores = "*.mask")",
                     &m),
            Texts());
  EXPECT_EQ(m.declared_name("model.h.0.w"), "h.0.weight");
  EXPECT_EQ(m.declared_name("model.h.0.b"), "h.0.b");
  EXPECT_EQ(m.declared_name("a"), "b");
  EXPECT_EQ(m.declared_name("model.w"), "w");  // shorter than both ends of the first
  EXPECT_EQ(m.declared_name("other"), "other");
  EXPECT_TRUE(m.ignores_tensor("h.0.mask"));
  EXPECT_FALSE(m.ignores_tensor("h.0.mask.x"));
}

TEST(HuggingFaceMapping, CountsWhatAnArchitectureIsMadeOf) {
  Mapping m;
  EXPECT_EQ(mistakes("[parameters]\n\"h.{layers}.w.{width}\" = [\"2*width*3\", 7]\n\"b\" = []\n", &m), Texts());
  const std::map<std::string, std::string> values = {{"layers", "2"}, {"width", "1"}};
  EXPECT_EQ(differences(m, values, {{"h.0.w.0", {6, 7}}, {"h.1.w.0", {6, 7}}, {"b", {}}}), Texts());
  EXPECT_EQ(differences(m, values, {{"h.0.w.0", {6}}, {"c", {}}}),
            (Texts{"c is added", "h.0.w.0 is [6], not [6, 7]", "b is missing", "h.1.w.0 is missing"}));
  EXPECT_EQ(differences(m, {}, {{"b", {}}}), Texts());  // no layers
}

TEST(HuggingFaceMapping, KnowsWhatFollowsFromTheModelsKeys) {
  Mapping m;
  EXPECT_EQ(mistakes("[sizes]\ninner = \"4*width\"", &m), Texts());
  EXPECT_TRUE(m.knows("inner"));
  EXPECT_EQ(sizes_of(m, {{"width", "3"}}), (std::map<std::string, int64_t>{{"inner", 12}}));
  EXPECT_TRUE(sizes_of(m, {}).empty());
  EXPECT_EQ(mistakes("[sizes]\ninner = 4"),
            Texts{"2 huggingface.sizes.inner is a product of keys | inner = \"4*width\""});
  EXPECT_EQ(mistakes("[sizes]\ninner = \"4*with\""),
            Texts{"2 [huggingface] speaks of `with`, which is no key of [config] | [config.with]"});
}

TEST(HuggingFaceMapping, RefusesWhatItDoesNotRead) {
  EXPECT_EQ(mistakes("harmles = []"),
            Texts{"1 [huggingface] has no key `harmles` | it has: architectures, classes, fixed, harmless, "
                  "ignores, keys, new, parameters, renames, sizes, tokens, where"});
  EXPECT_EQ(mistakes("classes = \"labels\""),
            Texts{"1 [huggingface] speaks of `labels`, which is no key of [config] | [config.labels]"});
  EXPECT_EQ(mistakes("[where.task.a]\nkeys = 3").back(),
            "2 [huggingface.where.task.a] has no key `keys` | it has: architectures, parameters");
  EXPECT_EQ(mistakes("harmless = [1]"), Texts{"1 huggingface.harmless is a list of texts | harmless = [\"…\"]"});
  EXPECT_EQ(mistakes("fixed = 3"), Texts{"1 huggingface.fixed is a table, this is a number | [huggingface.fixed]"});
  const std::string pairs =
      "1 huggingface.renames is a list of pairs of names, each with one `*` | renames = [[\"model.*\", \"*\"]]";
  for (const char* text : {"renames = 1", "renames = [[\"a.*\"]]", "renames = [[\"a\", \"*\"]]",
                           "renames = [[\"a*\", \"**\"]]", "renames = [[\"a*\", 1]]"})
    EXPECT_EQ(mistakes(text), Texts{pairs}) << text;
  EXPECT_EQ(mistakes("[keys]\nlayer = \"n_layer\""),
            Texts{"2 [huggingface] speaks of `layer`, which is no key of [config] | [config.layer]"});
  EXPECT_EQ(mistakes("[tokens]\neos = \"x\""), Texts{"2 huggingface.tokens.eos is the number of a token | eos = 0"});
  EXPECT_EQ(mistakes("[parameters]\na = \"width\""),
            Texts{"2 huggingface.parameters says sizes | \"a\" = [\"width\"]"});
  EXPECT_EQ(mistakes("[parameters]\na = [true]"),
            Texts{"2 a size of `a` is a number or a product of keys | \"3*width\""});
  EXPECT_EQ(mistakes("[parameters]\n\"a.{depth}\" = [\"2*height\"]"),
            (Texts{"2 [huggingface] speaks of `depth`, which is no key of [config] | [config.depth]",
                   "2 [huggingface] speaks of `height`, which is no key of [config] | [config.height]"}));
  EXPECT_EQ(mistakes("[parameters]\n\"}{layers\" = []").size(), 1u);  // no brace is closed
  EXPECT_EQ(mistakes("architectures = [\"A\"]"),
            Texts{"1 [huggingface] names an architecture and not what it is made of | [huggingface.parameters]"});
}

}  // namespace
}  // namespace mortise::huggingface
