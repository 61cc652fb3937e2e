// What a folder of PEFT says. That PEFT takes it: tests/parity/adapters.py.
#include "formats/huggingface/peft.hpp"

#include <gtest/gtest.h>

#include "formats/file.hpp"

namespace mortise::huggingface {
namespace {

using Texts = std::vector<std::string>;

struct Peft : testing::Test {
  Peft() {
    for (const char* module : {"h.0.up", "h.1.up"})
      added.products.push_back(
          {module + std::string(".weight"), module + std::string(".left"), module + std::string(".right"), 2, false});
  }
  AdapterFolder folder() const {
    Mapping mapping;
    if (!architecture.empty()) mapping.architectures = {architecture};
    std::map<std::string, Sizes> parameters;
    for (const std::string& name : names) parameters[name] = {1};
    for (const Product& p : added.products) parameters.erase(p.left), parameters.erase(p.right);
    for (const auto& [name, sizes] : parameters) mapping.parameters[name] = {"1"};
    return adapter_folder(Config("c", config_text(mapping, {}, parameters, {}, added)), names, "/base");
  }
  std::string refusal() const {
    try {
      folder();
    } catch (const FormatError& e) {
      return e.code + ": " + e.message;
    }
    return "";
  }
  std::string architecture = "SmallForSequenceClassification";
  Added added{{}, {}, "small.", {{{"peft_type", "\"THIN\""}, {"r", "4"}}}};
  Texts names = {"h.0.up.weight", "h.0.up.left",   "h.0.up.right",  "h.1.up.weight", "h.1.up.left",
                 "h.1.up.right",  "head.a.weight", "head.a.b.bias", "header.weight"};
};

TEST_F(Peft, HasTheFactorsUnderItsOwnNames) {
  const AdapterFolder f = folder();
  const std::map<std::string, std::string> expected = {{"h.0.up.left", "base_model.model.small.h.0.up.left"},
                                                       {"h.0.up.right", "base_model.model.small.h.0.up.right"},
                                                       {"h.1.up.left", "base_model.model.small.h.1.up.left"},
                                                       {"h.1.up.right", "base_model.model.small.h.1.up.right"}};
  EXPECT_EQ(f.names, expected);
  EXPECT_EQ(Json::parse(f.config), Json::parse(R"({
    "base_model_name_or_path": "/base", "bias": "none", "fan_in_fan_out": false, "inference_mode": true,
    "modules_to_save": null, "target_modules": ["small.h.0.up", "small.h.1.up"], "task_type": "SEQ_CLS",
    "peft_type": "THIN", "r": 4})"));
}

TEST_F(Peft, SavesAModuleOfWhichAParameterLearnedWhole) {
  added.learned = {"head.a.weight", "head.a.b.bias"};
  const AdapterFolder f = folder();
  EXPECT_EQ(Json::parse(f.config).at("modules_to_save"), Json::parse(R"(["small.head.a"])"));
  EXPECT_EQ(f.names.at("head.a.b.bias"), "base_model.model.small.head.a.b.bias");
  EXPECT_EQ(f.names.size(), 6u) << "and nothing of `header`";
}

TEST_F(Peft, SaysWhichWayRoundAndForWhat) {
  added.products[1].transposed = true;
  architecture = "SmallLMHeadModel";
  EXPECT_EQ(Json::parse(folder().config).at("fan_in_fan_out"), true);
  EXPECT_EQ(Json::parse(folder().config).at("task_type"), "CAUSAL_LM");
  architecture = "SmallForMaskedLM";
  EXPECT_TRUE(Json::parse(folder().config).at("task_type").is_null());
}

TEST_F(Peft, SavesTheHeadThatItsTaskWants) {
  names.push_back("score.weight");
  EXPECT_EQ(folder().names.at("score.weight"), "base_model.model.small.score.weight");
  EXPECT_EQ(Json::parse(folder().config).at("modules_to_save"), Json::parse(R"(["small.score"])"));
  added.products[0] = {"score.weight", "score.left", "score.right", 2, false};
  EXPECT_TRUE(Json::parse(folder().config).at("modules_to_save").is_null()) << "it has an adapter";
  EXPECT_TRUE(Json::parse(folder().config).at("task_type").is_null());
}

TEST_F(Peft, RefusesWhatItsFoldersDoNotHave) {
  added.learned = {"h.1.up.bias"};
  EXPECT_EQ(refusal(), "no_adapter: of `h.1.up` both the adapter and what it is added to learned");
  added.learned = {"h.1.other"};
  EXPECT_EQ(refusal(), "no_adapter: of `h.1.up` both the adapter and what it is added to learned");
  added.learned = {"token"};
  EXPECT_EQ(refusal(), "no_adapter: `token` learned, which is no parameter of a part of the model");
  added.learned = {};
  added.products[0].left = "elsewhere.left";
  EXPECT_EQ(refusal(), "no_adapter: `elsewhere.left` does not stand beside `h.0.up.weight`");
  added.learned = added.tied = {"embedding.weight"};
  EXPECT_EQ(refusal(),
            "no_adapter: `embedding.weight` learned, and stands in two places of the model: PEFT would bring it to one "
            "of them");
  added.tied.clear();
  added.prefix.reset();
  EXPECT_EQ(refusal(), "no_adapter: plugin.toml of its model does not say, [peft], what PEFT calls the parts of it");
  architecture = "";
  EXPECT_EQ(refusal(), "no_adapter: its model is of no architecture of transformers");
  added.settings.push_back(added.settings[0]);
  EXPECT_EQ(refusal(), "no_adapter: several plugins added something to the model; such a folder is of one");
  added.settings.clear();
  EXPECT_EQ(refusal(), "no_adapter: no plugin of the run says in plugin.toml, [peft], how PEFT calls what it added");
  added.products.clear();
  EXPECT_EQ(refusal(), "no_adapter: the run added nothing to its model");
}

}  // namespace
}  // namespace mortise::huggingface
