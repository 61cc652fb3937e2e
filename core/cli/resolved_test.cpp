// The resolved manifest is a manifest: read again, it says the same.
#include <gtest/gtest.h>

#include "core/cli/run_directory.hpp"
#include "core/manifest/testing.hpp"

namespace mortise::cli {
namespace {

class Resolved : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    request.default_file = (folder / "default.toml").string();
    file("default.toml",
         "[schedule.constant]\n[device.cpu]\n[parameters.no_decay]\nwhere = [\"role:vector\", "
         "\"role:norm\"]\nweight_decay = 0.0\n");
    file("notes.txt", "text");
    for (const auto& [id, schema] : catalogue) infos[id].schema = schema;
  }

  struct Read {
    Manifest manifest;
    Plan plan;
    std::string toml;
  };
  // A file of this text, and what it resolves to.
  Read resolve(const std::string& name, const std::string& text) {
    Read r;
    file(name, text);
    request.file = name;
    r.manifest = read_again();
    EXPECT_EQ(errors, "");
    Report ignored;  // a run needs more than these tests do
    r.plan = make_plan(r.manifest, infos, [](const PluginInfo&) { return std::string(); }, ignored);
    r.toml = resolved_toml(r.manifest, r.plan);
    return r;
  }

  static std::string values(const Manifest& m) {
    std::string all;
    for (const auto& [table, keys] : m.tables)
      for (const auto& [key, v] : keys) all += table + "." + key + " = " + v.text() + "\n";
    return all;
  }

  std::map<std::string, PluginInfo> infos;
};

TEST_F(Resolved, SaysTheSameWhenReadAgain) {
  request.set = {"optimizer.lr=3e-4", "run.tags=[\"a\", \"b\"]"};
  const Read first = resolve(
      "first.toml",
      "[run]\nname = \"mine\"\nlength = \"2 epochs\"\nnotes = \"tab\\t, \\\"quotes\\\", \\u00fc and "
      "\\u001b\"\n[data]\nvalidation = "
      "0.1\n[data.text]\npath = \"notes.txt\"\n[schedule]\nwarmup = \"3%\"\n"
      "[optimizer.adamw]\nbetas = [0.5, 0.25]\neps = 1e-30\n[model.bert]\npreset = \"large\"\nlayers = "
      "3\n[compile.fused]\nonly = { every = 2 }\n"
      "[parameters.head]\nwhere = { match = \"head.*\", except = \"*.bias\", every = 3, from = 1 }\nlr_scale = 10.0\n");
  request.set.clear();
  const Read second = resolve("elsewhere/run.toml", first.toml);
  EXPECT_EQ(values(second.manifest), values(first.manifest));
  for (const char* id : {"optimizer.adamw", "model.bert", "data.text", "compile.fused"})
    for (const auto& [key, v] : plugin(first.manifest, id).values)
      EXPECT_EQ(plugin(second.manifest, id).values.at(key).text(), v.text()) << id << "." << key;
  ASSERT_EQ(second.manifest.rules.size(), 2u);
  EXPECT_EQ(second.manifest.rules[0].values.at("lr_scale").as_float(), 10.0);
  EXPECT_EQ(second.manifest.rules[0].where.except, std::vector<std::string>{"*.bias"});
  EXPECT_EQ(second.manifest.rules[0].where.every, 3);
  EXPECT_EQ(second.manifest.rules[0].where.from, 1);
  EXPECT_EQ(second.manifest.name, "mine");
  EXPECT_EQ(first.toml.substr(0, first.toml.find(" · plan")), "# mortise " MORTISE_VERSION);
  EXPECT_NE(first.toml.find("path = [\"" + (folder / "notes.txt").string() + "\"]"), std::string::npos) << first.toml;
}

TEST_F(Resolved, LeavesOutWhatALaterLayerReplaced) {
  file("base.toml", "[optimizer.adamw]\n[precision.bf16]\n[schedule.cosine]\n");
  const Read r = resolve(
      "run.toml", "include = [\"base.toml\"]\n[optimizer.sgd]\n[precision.fp32]\n[device.cpu]\nenabled = false\n");
  for (const char* gone : {"[optimizer.adamw]", "[precision.bf16]", "[schedule.constant]"})
    EXPECT_EQ(r.toml.find(gone), std::string::npos) << r.toml;
  for (const char* there :
       {"[optimizer.sgd]  # run.toml:2:1\n", "[precision.fp32]", "[schedule.cosine]  # base.toml:3:1\n",
        "[device.cpu]  # run.toml:4:1\nlayer = 2\nenabled = false\n"})
    EXPECT_NE(r.toml.find(there), std::string::npos) << there << "\n" << r.toml;
}

TEST_F(Resolved, SaysInWhichLayerItsTablesStood) {
  file("base.toml", "[optimizer.adamw]\nwhere = \"h.*\"\n[parameters.slow]\nwhere = \"h.*\"\nlr = 1.0\n");
  const Read first = resolve("run.toml",
                             "include = [\"base.toml\"]\n[optimizer.sgd]\nwhere = \"h.1.*\"\nmodes = "
                             "[\"train\"]\n[device.cpu]\nenabled = false\n[parameters.fast]\n"
                             "where = [\"h.2.*\", \"role:norm\"]\nlr = 2.0\n");
  for (const char* there : {"[optimizer.adamw]  # base.toml:1:1\nlayer = 1\nwhere = \"h.*\"\n",
                            "[optimizer.sgd]  # run.toml:2:1\nlayer = 2\nwhere = \"h.1.*\"\nmodes = [\"train\"]\n",
                            "[device.cpu]  # run.toml:5:1\nlayer = 2\nenabled = false\n",
                            "[parameters.no_decay]\nlayer = 0\nwhere = [\"role:vector\", \"role:norm\"]\n",
                            "[parameters.slow]\nlayer = 1\nwhere = \"h.*\"\n",
                            "[parameters.fast]\nlayer = 2\nwhere = [\"h.2.*\", \"role:norm\"]\n"})
    EXPECT_NE(first.toml.find(there), std::string::npos) << there << "\n" << first.toml;
  const auto layers = [](const Manifest& m) {
    std::map<std::string, int> all;
    for (const PluginTable& t : m.plugins) all[t.schema->id] = t.layer;
    for (const ParameterRule& r : m.rules) all["parameters." + r.name] = r.layer;
    return all;
  };
  request.recorded = true;
  request.use = {"compile.fused"};
  const Read second = resolve("elsewhere/run.toml", first.toml);
  std::map<std::string, int> expected = layers(first.manifest);
  expected["compile.fused"] = 3;  // the command line is above all of them
  EXPECT_EQ(layers(second.manifest), expected);
  // As any other file it stands above default.toml, with its layers; what says none is at its top.
  request.recorded = false;
  request.use = {};
  const Read third = resolve("third.toml", first.toml + "[compile.fused]\n");
  for (auto& [name, layer] : expected) layer += name != "compile.fused";
  EXPECT_EQ(layers(third.manifest), expected);
}

TEST_F(Resolved, KeepsTheOrderThatTheManifestSays) {
  const Read first = resolve("run.toml", "[order]\nblock = [\"a.b\", \"c.d\"]\n\"grad.transform\" = \"e.f\"\n");
  const Read second = resolve("again.toml", first.toml);
  EXPECT_EQ(second.manifest.get("order", "block").text(), "[\"a.b\", \"c.d\"]");
  EXPECT_EQ(second.manifest.get("order", "grad.transform").text(), "[\"e.f\"]");
}

TEST_F(Resolved, WritesAPatternAndNotItsFiles) {
  for (const char* name : {"text/a.txt", "text/b.txt", "text/deep/c.txt", "single.md"}) file(name, "text");
  const Read first = resolve("run.toml", "[data.text]\npath = [\"text/*.txt\", \"single.md\", \"text/**/c.txt\"]\n");
  ASSERT_EQ(plugin(first.manifest, "data.text").values.at("path").as_list().size(), 4u);
  const std::string here = folder.string();
  EXPECT_NE(first.toml.find("path = [\"" + here + "/text/*.txt\", \"" + here + "/single.md\", \"" + here +
                            "/text/**/c.txt\"]"),
            std::string::npos)
      << first.toml;
  const Read second = resolve("elsewhere/run.toml", first.toml);
  EXPECT_EQ(plugin(second.manifest, "data.text").values.at("path").text(),
            plugin(first.manifest, "data.text").values.at("path").text());
  EXPECT_NE(second.toml.find("text/*.txt"), std::string::npos) << "and again";
  std::filesystem::remove_all(folder / "text");  // who samples from a run needs none of its text
  request.recorded = true;
  EXPECT_NE(resolve("elsewhere/run.toml", first.toml).toml.find("text/*.txt"), std::string::npos);
}

TEST_F(Resolved, KeepsWhereItsValuesAreFrom) {
  const Read first = resolve("run.toml",
                             "[run]\nlength = 30\nseed = 3\n[optimizer.adamw]\neps = 1e-3\n"
                             "[parameters.head]\nwhere = \"head.*\"\nlr_scale = 10.0\n");
  const std::string origins = origins_json(first.manifest);
  const std::string changed = first.toml.substr(0, first.toml.find("seed = 3")) + "seed = 4" +
                              first.toml.substr(first.toml.find("seed = 3") + 8);
  Manifest again = resolve("runs/x/run.toml", changed).manifest;
  EXPECT_EQ(again.get("run", "length").origin.file, "runs/x/run.toml");
  restore_origins(again, origins);
  EXPECT_EQ(again.get("run", "length").origin.text(), "run.toml:2:10");
  EXPECT_EQ(again.get("run", "seed").origin.file, "runs/x/run.toml") << "somebody wrote another one there";
  EXPECT_EQ(plugin(again, "optimizer.adamw").origin.text(), "run.toml:4:1");
  EXPECT_EQ(plugin(again, "optimizer.adamw").values.at("eps").origin.text(), "run.toml:5:7");
  EXPECT_EQ(again.rules.front().values.at("lr_scale").origin.text(),
            first.manifest.rules.front().values.at("lr_scale").origin.text());
  EXPECT_EQ(layers_text(again), layers_text(first.manifest));
  for (const char* nonsense :
       {"", "[]", "{\"values\":[1]}", "{\"values\":{\"run.length\":[\"30\",1,2,3]},\"layers\":[7]}"}) {
    Manifest same = again;
    restore_origins(same, nonsense);
    EXPECT_EQ(origins_json(same), origins_json(again)) << nonsense;
  }
}

TEST_F(Resolved, FollowsAKeyThatAnotherFollows) {
  const Read r = resolve("run.toml", "[run]\nlength = 30\n[data]\nmicro_batch_size = 3\n");
  EXPECT_EQ(r.manifest.get("schedule", "over").text(), "30");
  EXPECT_EQ(r.toml.find("over ="), std::string::npos) << r.toml;
  request.set = {"run.length=50"};
  EXPECT_EQ(resolve("again.toml", r.toml).manifest.get("schedule", "over").text(), "50");
}

}  // namespace
}  // namespace mortise::cli
