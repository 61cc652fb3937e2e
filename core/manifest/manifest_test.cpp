// Layers, what wins, and where every value came from.
#include "core/manifest/manifest.hpp"

#include "core/manifest/testing.hpp"

namespace mortise {
namespace {

TEST(PlainValue, IsANodeWithoutASchema) {
  Report report;
  const TomlTable root = parse_toml("a = [1, 2.5, \"x\", true]\nb = { c = 1 }\n", "x.toml", report).value();
  EXPECT_EQ(plain_value(*root.find("a"), "a")->text(), "[1, 2.5, \"x\", true]");
  EXPECT_EQ(plain_value(*root.find("a"), "a")->origin.text(), "x.toml:1:5");
  EXPECT_FALSE(plain_value(*root.find("b"), "b"));
}

TEST_F(ManifestTest, NeedsNothingButItsDefaults) {
  const Manifest manifest = read("");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.name, "run");
  EXPECT_EQ(manifest.layers, (std::vector<std::string>{"run.toml", "command line"}));
  EXPECT_EQ(manifest.get("run", "length").text(), "\"1 epoch\"");
  EXPECT_EQ(manifest.get("run", "length").origin.text(), "default of run.length");
  EXPECT_EQ(manifest.get("data", "micro_batch_size").as_int(), 8);
  EXPECT_EQ(manifest.get("eval", "micro_batch_size").as_int(), 8);
  EXPECT_EQ(manifest.get("schedule", "over").text(), "\"1 epoch\"");
  EXPECT_FALSE(manifest.get("optimizer", "lr").is_set());  // the plan takes it from who provides
  EXPECT_FALSE(manifest.get("run", "dir").is_set());
  EXPECT_TRUE(manifest.plugins.empty());
}

TEST_F(ManifestTest, MayComeFromTheCommandLineAlone) {
  request.use = {"model.bert"};
  request.set = {"model.bert.layers=3"};
  const Manifest manifest = read_again();
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.name, "run");
  EXPECT_EQ(plugin(manifest, "model.bert").values.at("layers").as_int(), 3);
}

TEST_F(ManifestTest, TakesTheLaterLayerKeyByKey) {
  file("lib/default.toml", "[schedule.constant]\n[log]\nevery = 5\n");
  request.default_file = "lib/default.toml";
  file("shipped/small.toml", "[optimizer]\nlr = 6e-4\nweight_decay = 0.1\n[optimizer.adamw]\nbetas = [0.9, 0.95]\n");
  file("base.toml", "include = [\"mortise:small\"]\n[optimizer]\nlr = 1e-3\n[log]\nevery = 7\n");
  file("more.toml", "[optimizer]\nlr = 2e-3\n[run]\nseed = 3\n");
  request.includes = {"more.toml"};
  request.set = {"run.seed=4", "optimizer.adamw.eps=1e-6"};
  const Manifest manifest = read("include = [\"base.toml\"]\n[optimizer.adamw]\n");
  ASSERT_EQ(errors, "");
  EXPECT_EQ(manifest.layers, (std::vector<std::string>{"default.toml", "mortise:small", "base.toml", "run.toml",
                                                       "more.toml", "command line"}));
  EXPECT_EQ(manifest.get("optimizer", "lr").as_float(), 2e-3);
  EXPECT_EQ(manifest.get("optimizer", "lr").origin.text(), "more.toml:2:6");
  EXPECT_EQ(manifest.get("optimizer", "weight_decay").origin.text(), "mortise:small:3:16");
  EXPECT_EQ(manifest.get("log", "every").text(), "7");
  EXPECT_EQ(manifest.get("run", "seed").origin.text(), "command line: --set run.seed=4");
  const PluginTable& adamw = plugin(manifest, "optimizer.adamw");
  EXPECT_EQ(adamw.layer, 3);  // run.toml names it again; --set does not raise it
  EXPECT_EQ(adamw.origin.text(), "run.toml:2:1");
  EXPECT_EQ(adamw.values.at("betas").text(), "[0.9, 0.95]");  // inherited
  EXPECT_EQ(adamw.values.at("eps").as_float(), 1e-6);
  EXPECT_EQ(plugin(manifest, "schedule.constant").layer, 0);
}

TEST_F(ManifestTest, SwitchesTablesOffAndOnAgain) {
  file("base.toml", "[optimizer.adamw]\neps = 1e-6\n[log.wandb]\n");
  Manifest manifest = read("include = \"base.toml\"\n[optimizer.adamw]\nenabled = false\n");
  EXPECT_FALSE(plugin(manifest, "optimizer.adamw").enabled);
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").layer, 1);

  file("off.toml", "include = [\"base.toml\"]\n[optimizer.adamw]\nenabled = false\n");
  manifest = read("include = [\"off.toml\"]\n[optimizer.adamw]\n");
  EXPECT_TRUE(plugin(manifest, "optimizer.adamw").enabled);
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").values.at("eps").as_float(), 1e-6);  // keeps what it inherited

  request.use = {"optimizer.adamw"};
  request.without = {"log.wandb"};
  manifest = read("include = [\"off.toml\"]\n");
  EXPECT_EQ(errors, "");
  EXPECT_TRUE(plugin(manifest, "optimizer.adamw").enabled);
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").layer, 3);
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").origin.text(), "command line: --use optimizer.adamw");
  EXPECT_FALSE(plugin(manifest, "log.wandb").enabled);
}

TEST_F(ManifestTest, ReturnsAKeyToItsDefault) {
  request.set = {"data.micro_batch_size=default", "optimizer.adamw.eps=default"};
  const Manifest manifest = read("[data]\nmicro_batch_size = 3\n[optimizer.adamw]\neps = 1e-3\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.get("data", "micro_batch_size").as_int(), 8);
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").values.at("eps").origin.text(), "plugin.toml of optimizer.adamw");
}

TEST_F(ManifestTest, PutsAPresetBelowWhatIsWritten) {
  Manifest manifest = read("[model.bert]\npreset = \"large\"\nwidth = 512\n");
  EXPECT_EQ(errors, "");
  const PluginTable& bert = plugin(manifest, "model.bert");
  EXPECT_EQ(bert.values.at("layers").as_int(), 24);
  EXPECT_EQ(bert.values.at("layers").origin.text(), "preset large");
  EXPECT_EQ(bert.values.at("width").as_int(), 512);
  EXPECT_EQ(bert.values.at("dropout").origin.text(), "plugin.toml of model.bert");
  read("[model.bert]\npreset = \"larg\"\n");
  EXPECT_EQ(errors,
            "error[not_a_choice]: model.bert.preset is base or large, this is `larg`\n"
            "  --> run.toml:2:10\n"
            "  fix: preset = \"large\"\n");
}

TEST_F(ManifestTest, ReadsWhatTheHostOwnsInEveryTable) {
  const Manifest manifest = read(R"(
[device.cuda]
fallback = ["device.cpu"]
[optimizer.sgd]
where = { match = ["role:norm", "head.*"], except = "head.bias", every = 2, from = 1 }
modes = ["train", "sample"]
)");
  ASSERT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "device.cuda").fallback, std::vector<std::string>{"device.cpu"});
  const PluginTable& sgd = plugin(manifest, "optimizer.sgd");
  EXPECT_EQ(sgd.where->match, (std::vector<std::string>{"role:norm", "head.*"}));
  EXPECT_EQ(sgd.where->except, std::vector<std::string>{"head.bias"});
  EXPECT_EQ(sgd.where->every, 2);
  EXPECT_EQ(sgd.where->from, 1);
  EXPECT_EQ(sgd.where->origin.text(), "run.toml:5:9");
  EXPECT_EQ(sgd.modes, (std::vector<int>{0, 2}));
}

TEST_F(ManifestTest, LetsEachOfSeveralProvidersSayAKeyOfTheFamily) {
  file("base.toml",
       "[optimizer]\nlr = 1e-3\n[optimizer.adamw]\nweight_decay = 0.1\n[optimizer.sgd]\nwhere = \"role:norm\"\nlr = "
       "0.5\n");
  Manifest manifest = read("include = [\"base.toml\"]\n[optimizer.sgd]\nlr = 1\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.get("optimizer", "lr").as_float(), 1e-3);
  EXPECT_EQ(plugin(manifest, "optimizer.sgd").values.at("lr").as_float(), 1.0);  // as the family's schema has it
  EXPECT_EQ(plugin(manifest, "optimizer.sgd").values.at("lr").origin.text(), "run.toml:3:6");
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").values.at("weight_decay").as_float(), 0.1);
  EXPECT_FALSE(plugin(manifest, "optimizer.adamw").values.contains("lr"));

  request.set = {"optimizer.adamw.lr=3", "optimizer.sgd.lr=default"};
  manifest = read("include = [\"base.toml\"]\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "optimizer.adamw").values.at("lr").as_float(), 3.0);
  EXPECT_FALSE(plugin(manifest, "optimizer.sgd").values.contains("lr"));
}

TEST_F(ManifestTest, DoesNotInheritAFallback) {
  file("base.toml", "[device.cuda]\nfallback = [\"device.cpu\"]\n");
  const Manifest manifest = read("include = [\"base.toml\"]\n[device.cuda]\n");
  EXPECT_TRUE(plugin(manifest, "device.cuda").fallback.empty());
}

TEST_F(ManifestTest, ALayerThatIsSetIsWhereATableStands) {
  request.set = {"schedule.constant.layer=0"};
  const Manifest manifest = read("[optimizer.adamw]\nlayer = 1\n[schedule.constant]\nlayer = 2\n");
  EXPECT_EQ(errors, "");
  EXPECT_LT(plugin(manifest, "schedule.constant").layer, plugin(manifest, "optimizer.adamw").layer);
}

// As its table would, and so takes the place.
TEST_F(ManifestTest, SettingAKeyOfAFallbackNamesIt) {
  add("device.spare", {"device"}, {},
      "[config.threads]\ntype = \"int\"\nchange = \"free\"\ndoc = \"How many.\"\n"
      "[config.wait]\ntype = \"bool\"\nchange = \"free\"\ndoc = \"Whether.\"\n");
  request.set = {"device.spare.threads=2", "device.spare.wait=true"};
  const Manifest manifest = read("[device.cuda]\nfallback = [\"device.spare\"]\n");
  EXPECT_EQ(errors, "");
  const PluginTable& spare = plugin(manifest, "device.spare");
  EXPECT_TRUE(spare.enabled);
  EXPECT_GT(spare.layer, plugin(manifest, "device.cuda").layer);
  EXPECT_EQ(spare.values.at("threads").as_int(), 2);
  EXPECT_TRUE(spare.values.at("wait").as_bool());
  // Of one that is off, or in nobody's list, nothing is set.
  read("[device.cuda]\nfallback = [\"device.spare\"]\n[device.spare]\nenabled = false\n");
  EXPECT_NE(errors.find("error[set_not_on]: device.spare is not on"), std::string::npos) << errors;
  read("[device.cuda]\n");
  EXPECT_NE(errors.find("error[set_not_on]: device.spare is not on"), std::string::npos) << errors;
}

TEST_F(ManifestTest, WithoutAFallbackTakesItFromWhoeverNamesIt) {
  add("device.spare", {"device"}, {}, "");
  add("device.other", {"device"}, {}, "");
  request.without = {"device.spare"};
  const Manifest manifest = read("[device.cuda]\nfallback = [\"device.spare\", \"device.other\"]\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "device.cuda").fallback, (std::vector<std::string>{"device.other"}));
  EXPECT_EQ(plugin(manifest, "device.cuda").off, (std::vector<std::string>{"device.spare"}));
  EXPECT_EQ(manifest.refused.at("device.spare"), "--without device.spare");
}

// Its `fallback` counts for as little as the table that another has replaced.
TEST_F(ManifestTest, WithoutAFallbackOfWhatTakesNoPartSaysThatItIsNotOn) {
  add("device.spare", {"device"}, {}, "");
  file("base.toml", "[device.cuda]\nfallback = [\"device.spare\"]\n");
  request.without = {"device.spare"};
  read("include = [\"base.toml\"]\n[device.cpu]\n");
  EXPECT_TRUE(errors.starts_with("warning[not_on]: device.spare is not on\n")) << errors;
}

TEST_F(ManifestTest, WhatIsOffTakesNobodysPlace) {
  add("device.spare", {"device"}, {}, "");
  add("device.other", {"device"}, {}, "");
  const std::string cuda = "[device.cuda]\nfallback = [\"device.spare\", \"device.other\"]\n";
  Manifest manifest = read(cuda + "[device.spare]\nenabled = false\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "device.cuda").fallback, (std::vector<std::string>{"device.other"}));
  EXPECT_EQ(plugin(manifest, "device.cuda").off, (std::vector<std::string>{"device.spare"}));
  EXPECT_TRUE(manifest.refused.empty());
  request.set = {"device.spare.enabled=false"};
  EXPECT_EQ(read(cuda).refused.at("device.spare"), "--set device.spare.enabled=false");
  request.set.clear();
  request.without = {"device.spare"};
  manifest = read(cuda + "[device.spare]\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "device.cuda").fallback, (std::vector<std::string>{"device.other"}));
}

TEST_F(ManifestTest, CollectsRulesForParameters) {
  file("base.toml",
       "[parameters.no_decay]\nwhere = [\"role:vector\", \"role:norm\"]\nweight_decay = 0.0\n[parameters.gone]\nwhere "
       "= \"x\"\n");
  const Manifest manifest =
      read("include = [\"base.toml\"]\n[parameters.no_decay]\nlr_scale = 2\n[parameters.gone]\nenabled = false\n");
  ASSERT_EQ(errors, "");
  ASSERT_EQ(manifest.rules.size(), 1u);
  const ParameterRule& rule = manifest.rules[0];
  EXPECT_EQ(rule.name, "no_decay");
  EXPECT_EQ(rule.layer, 1);
  EXPECT_EQ(rule.where.match.size(), 2u);
  EXPECT_EQ(rule.values.size(), 2u);  // only what was written
  EXPECT_EQ(rule.values.at("weight_decay").as_float(), 0.0);
  EXPECT_EQ(rule.values.at("lr_scale").as_float(), 2.0);
}

TEST_F(ManifestTest, FindsPathsBesideTheFileThatStatesThem) {
  file("data/a.txt", "");
  file("data/b.txt", "");
  file("data/deep/c.txt", "");
  file("data/base.toml", "[data.text]\npath = [\"?.txt\", \"**/c.txt\"]\ncache = \"cache/\"\n");
  setenv("MORTISE_TEST_DIR", "/somewhere", 1);
  const Manifest manifest = read(
      "include = [\"data/base.toml\"]\n[data.text]\n[model]\nweights = "
      "\"${MORTISE_TEST_DIR}/x/../${MORTISE_TEST_NONE:-y}\"\n");
  ASSERT_EQ(errors, "");
  EXPECT_EQ(plugin(manifest, "data.text").values.at("path").as_texts(),
            (std::vector<std::string>{folder / "data/a.txt", folder / "data/b.txt", folder / "data/deep/c.txt"}));
  EXPECT_EQ(plugin(manifest, "data.text").values.at("cache").as_text(), folder / "data/cache");
  EXPECT_EQ(manifest.get("model", "weights").as_text(), "/somewhere/y");
}

TEST_F(ManifestTest, AsksNothingOfTheMachineForWhatIsReplaced) {
  file("base.toml", "[data.text]\npath = \"${MORTISE_TEST_NONE}/*.txt\"\n");
  read("include = [\"base.toml\"]\n[data.random]\n");
  EXPECT_EQ(errors, "");
  request.set = {"data.text.path=nothing/*.txt"};
  read("include = [\"base.toml\"]\n");
  EXPECT_EQ(errors,
            "error[matches_no_file]: `nothing/*.txt` matches no file\n"
            "  --> command line: --set data.text.path=nothing/*.txt    looked for " +
                (folder / "nothing/*.txt").string() +
                "\n"
                "  fix: there is no folder " +
                (folder / "nothing").string() + "\n");
}

TEST_F(ManifestTest, TakesTextWithoutQuotesOnTheCommandLine) {
  request.set = {"run.notes=a # b", "run.name=12", "run.tags=[\"a\", \"b\"]", "run.length=10 B tokens",
                 "data.text.path=" + (folder / "x.txt").string()};
  const Manifest manifest = read("[data.text]\npath = \"y.txt\"\n");
  ASSERT_EQ(errors, "");
  EXPECT_EQ(manifest.get("run", "notes").as_text(), "a # b");
  EXPECT_EQ(manifest.name, "12");
  EXPECT_EQ(manifest.get("run", "tags").as_texts(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(manifest.get("run", "length").as_amount().unit, Unit::kTokens);
}

TEST_F(ManifestTest, ReadsAFileOnceHoweverOftenItIsIncluded) {
  file("base.toml", "[run]\nseed = 1\n");
  file("a.toml", "include = [\"base.toml\"]\n");
  file("b.toml", "include = [\"base.toml\"]\n");
  const Manifest manifest = read("include = [\"a.toml\", \"b.toml\"]\n");
  EXPECT_EQ(manifest.layers, (std::vector<std::string>{"base.toml", "a.toml", "b.toml", "run.toml", "command line"}));
}

TEST_F(ManifestTest, KnowsThePluginFoldersBeforeItKnowsPlugins) {
  request.catalogue = nullptr;
  request.file = "conf/run.toml";
  file("conf/run.toml", "[plugins]\npath = [\"build\", \"/opt/x\"]\n[nobody.knows]\n");
  EXPECT_EQ(plugin_paths_of(request), (std::vector<std::string>{folder / "conf/build", "/opt/x"}));
  request.set = {"plugins.path=other"};
  EXPECT_EQ(plugin_paths_of(request), (std::vector<std::string>{folder / "other"}));
}

TEST_F(ManifestTest, NamesARunByItsFileWhateverTheFileIsCalled) {
  file("my run!.toml", "");
  request.file = "my run!.toml";
  EXPECT_EQ(read_again().name, "my-run-");
}

TEST_F(ManifestTest, OrdersWhoeverAttachesToAPoint) {
  EXPECT_EQ(read("").tables.count("order"), 0u);
  file("base.toml", "[order]\nblock = [\"a.one\", \"b.two\"]\nlinear = \"a.one\"\n");
  request.set = {"order.linear=[\"b.two\"]"};
  const Manifest manifest =
      read("include = [\"base.toml\"]\n[order]\n\"grad.transform\" = [\"c.three\"]\nblock = [\"b.two\", \"a.one\"]\n");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.tables.at("order").size(), 3u);
  EXPECT_EQ(manifest.get("order", "block").as_texts(), (std::vector<std::string>{"b.two", "a.one"}));
  EXPECT_EQ(manifest.get("order", "block").as_list()[1].origin.text(), "run.toml:4:19");
  EXPECT_EQ(manifest.get("order", "linear").as_texts(), std::vector<std::string>{"b.two"});
  EXPECT_EQ(manifest.get("order", "grad.transform").as_texts(), std::vector<std::string>{"c.three"});
  request.set.clear();
  read("[order]\nblock = [\"lora\"]\n");
  EXPECT_NE(errors.find("order.block is a list of ids of plugins"), std::string::npos) << errors;
}

// The default manifest and the foreign names that are shipped are read with a catalogue that has every plugin they
// name.
TEST_F(ManifestTest, ShippedFilesAreToml) {
  for (const char* name : {"default.toml", "foreign_names.toml"}) {
    Report report;
    EXPECT_TRUE(read_toml(std::string(MORTISE_SOURCE_DIR) + "/configs/" + name, name, report)) << printed(report);
  }
  for (const char* id : {"device.cuda", "comm.local", "parallel.none", "operators.aten", "attention.auto",
                         "transfer.sync", "loader.prefetch", "schedule.constant", "guard.nonfinite",
                         "checkpoint.safetensors", "log.console", "log.jsonl"})
    add(id, {id}, {}, "");
  request.default_file = std::string(MORTISE_SOURCE_DIR) + "/configs/default.toml";
  const Manifest manifest = read("");
  EXPECT_EQ(errors, "");
  EXPECT_EQ(manifest.rules.at(0).where.match, (std::vector<std::string>{"role:vector", "role:norm"}));
}

}  // namespace
}  // namespace mortise
