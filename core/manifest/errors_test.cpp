// Each mistake and the words for it: what is the case, where, the fix.
#include <algorithm>

#include "core/base/text.hpp"
#include "core/manifest/testing.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise {
namespace {

class Errors : public ManifestTest {
 protected:
  void SetUp() override {
    ManifestTest::SetUp();
    file("shipped/foreign_names.toml", R"(
[keys]
batch_size = ["samples that one device handles at once are `micro_batch_size` in [data]",
              "samples of a whole step are `global_batch_size` in [step.accumulation]"]
learning_rate = "optimizer.lr"
save_steps = "checkpoint.every"
max_grad_norm = "gradient.clip.norm"
adam_beta2 = ["the second of `betas`, in [optimizer.adamw]: betas = [0.9, {0.999}]"]
trainer = ["its keys belong elsewhere"]
[tables]
optim = "optimizer.*"
bf16 = "precision.bf16"
)");
  }
  void expect(const std::string& text, const std::string& wanted) {
    read(text);
    EXPECT_EQ(errors, wanted);
  }
};

TEST_F(Errors, FirstRunOfANewcomer) {
  expect(R"([model.bert]
layers = 4

[data.text]
path = "run.toml"
batch_size = 16

[optimizer]
name = "adamw"
learning_rate = 1e-3
precision = "bf16"
)",
         "error[unknown_key]: [data.text] has no key `batch_size`\n"
         "  --> run.toml:6:1\n"
         "  fix: samples that one device handles at once are `micro_batch_size` in [data]\n"
         "       samples of a whole step are `global_batch_size` in [step.accumulation]\n"
         "\n"
         "error[unknown_key]: [optimizer] has no key `name`\n"
         "  --> run.toml:9:1\n"
         "  fix: a plugin is switched on by its table: [optimizer.adamw]\n"
         "\n"
         "error[unknown_key]: [optimizer] has no key `learning_rate`\n"
         "  --> run.toml:10:1\n"
         "  fix: it is called `lr` here\n"
         "\n"
         "error[unknown_key]: [optimizer] has no key `precision`\n"
         "  --> run.toml:11:1\n"
         "  fix: a plugin is switched on by its table: [precision.bf16]\n");
}

TEST_F(Errors, UnknownKeyNamesTheNearest) {
  expect("\n[optimizer.adamw]\nbeta1 = 0.9\n",
         "error[unknown_key]: [optimizer.adamw] has no key `beta1`\n"
         "  --> run.toml:3:1\n"
         "  fix: betas = [0.9, 0.999]\n"
         "  see: mortise plugin info optimizer.adamw\n");
  expect("[data]\nmicro_batchsize = 4\n",
         "error[unknown_key]: [data] has no key `micro_batchsize`\n"
         "  --> run.toml:2:1\n"
         "  fix: micro_batch_size = 4\n");
  expect("[optimizer]\nlearning_rte = 4\n",
         "error[unknown_key]: [optimizer] has no key `learning_rte`\n"
         "  --> run.toml:2:1\n"
         "  fix: it is called `lr` here\n");
}

TEST_F(Errors, UnknownKeyKnowsOtherNamesOfAKey) {
  expect("[optimizer.adamw]\nepsilon = 1e-6\n",
         "error[unknown_key]: [optimizer.adamw] has no key `epsilon`\n"
         "  --> run.toml:2:1\n"
         "  fix: it is called `eps` here\n");
  expect("learning_rate = 1\n",
         "error[unknown_key]: there is no key `learning_rate` outside the tables\n"
         "  --> run.toml:1:1\n"
         "  fix: it is called `lr`, in [optimizer]\n");
  expect("[run]\noptim = \"adam-w\"\nbf16 = true\n",
         "error[unknown_key]: [run] has no key `optim`\n"
         "  --> run.toml:2:1\n"
         "  fix: a plugin is switched on by its table: [optimizer.adamw]\n"
         "\n"
         "error[unknown_key]: [run] has no key `bf16`\n"
         "  --> run.toml:3:1\n"
         "  fix: a plugin is switched on by its table: [precision.bf16]\n");
}

TEST_F(Errors, UnknownKeyKeepsTheNumberThatWasWritten) {
  expect("[optimizer]\nadam_beta2 = 0.95\n",
         "error[unknown_key]: [optimizer] has no key `adam_beta2`\n"
         "  --> run.toml:2:1\n"
         "  fix: the second of `betas`, in [optimizer.adamw]: betas = [0.9, 0.95]\n");
  const Vocabulary words(request);
  EXPECT_EQ(words.said_of("adam_beta2").at(0), "the second of `betas`, in [optimizer.adamw]: betas = [0.9, 0.999]");
}

TEST_F(Errors, ATableFromElsewhereIsKnown) {
  expect("[trainer]\nmax_steps = 1\n",
         "error[unknown_table]: no table is called `trainer`\n"
         "  --> run.toml:1:1\n"
         "  fix: its keys belong elsewhere\n");
}

TEST_F(Errors, UnknownKeySaysWhereItBelongs) {
  expect("[optimizer.adamw]\nlr = 1\n[optimizer]\nbetas = [0, 0]\n[data]\nseed = 1\n",
         "error[unknown_key]: [optimizer.adamw] has no key `lr`\n"
         "  --> run.toml:2:1\n"
         "  fix: `lr` belongs in [optimizer]\n"
         "\n"
         "error[unknown_key]: [optimizer] has no key `betas`\n"
         "  --> run.toml:4:1\n"
         "  fix: `betas` belongs in [optimizer.adamw]\n"
         "\n"
         "error[unknown_key]: [data] has no key `seed`\n"
         "  --> run.toml:6:1\n"
         "  fix: `seed` belongs in [run]\n");
}

// Who is on, with what is off or replaced left out, decides where a family's key may stand.
TEST_F(Errors, KeyOfAFamilyInTheTableOfItsOnlyProvider) {
  const std::string belongs =
      "error[unknown_key]: [optimizer.adamw] has no key `lr`\n"
      "  --> run.toml:2:1\n"
      "  fix: `lr` belongs in [optimizer]\n";
  expect("[optimizer.adamw]\nlr = \"x\"\n", belongs);
  expect("[optimizer.adamw]\nlr = 1\n[optimizer.sgd]\nenabled = false\nlr = 2\n", belongs);
  file("two.toml", "[optimizer.adamw]\nlr = 1\n[optimizer.sgd]\nwhere = \"role:norm\"\nlr = 2\n");
  add("optimizer.lion", {"optimizer"}, {}, "");
  expect("include = \"two.toml\"\n[optimizer.lion]\n", "");  // they are dropped with their keys
  expect(
      "[optimizer.adamw]\nlr = -1\nbetas = [0, 0]\n[optimizer.sgd]\nwhere = \"role:norm\"\nmodel = 1\nweight_decay = "
      "\"x\"\n",
      "error[out_of_range]: optimizer.adamw.lr is 0 to 1000000, this is -1\n"
      "  --> run.toml:2:6\n"
      "  fix: lr = 0.001\n"
      "\n"
      "error[unknown_key]: [optimizer.sgd] has no key `model`\n"
      "  --> run.toml:6:1\n"
      "  fix: a plugin is switched on by its table: [model.bert]\n"
      "\n"
      "error[wrong_type]: optimizer.sgd.weight_decay is a number, this is text\n"
      "  --> run.toml:7:16\n"
      "   7 | weight_decay = \"x\"\n"
      "  fix: weight_decay = 1.0\n");
  request.set = {"optimizer.adamw.lr=1", "optimizer.sgd.lr=1"};
  expect("[optimizer.adamw]\n",
         "error[set_not_on]: optimizer.sgd is not on, so `optimizer.sgd.lr` sets nothing\n"
         "  --> command line: --set optimizer.sgd.lr=1\n"
         "  fix: --use optimizer.sgd --set optimizer.sgd.lr=1\n"
         "\n"
         "error[unknown_key]: [optimizer.adamw] has no key `lr`\n"
         "  --> command line: --set optimizer.adamw.lr=1\n"
         "  fix: `lr` belongs in [optimizer]\n");
}

TEST_F(Errors, UnknownKeySaysWhatThisVersionDoesNotRead) {
  expect("[data]\npadding = \"batch\"\n[train]\nx = 1\n",
         "error[unknown_key]: [data] has no key `padding`\n"
         "  --> run.toml:2:1\n"
         "  fix: `data.padding` is not available in this version\n"
         "\n"
         "error[unknown_table]: no table is called `train`\n"
         "  --> run.toml:3:1\n"
         "  fix: a table is [run], [eval], [plugins], [parameters.NAME], a family or a plugin: mortise plugin list\n");
  expect("requires = \"0.2\"\n[log]\nsave_steps = 3\nmax_grad_norm = 1\n",
         "error[unknown_key]: there is no key `requires` outside the tables\n"
         "  --> run.toml:1:1\n"
         "  fix: `requires` is not available in this version\n"
         "\n"
         "error[unknown_key]: [log] has no key `save_steps`\n"
         "  --> run.toml:3:1\n"
         "  fix: it is called `every`, in [checkpoint]\n"
         "\n"
         "error[unknown_key]: [log] has no key `max_grad_norm`\n"
         "  --> run.toml:4:1\n"
         "  fix: it is called `norm`, in [gradient.clip], and not available in this version\n");
}

TEST_F(Errors, UnknownKeyListsTheKeysOfASmallTable) {
  expect("[schedule]\nquux = 1\n",
         "error[unknown_key]: [schedule] has no key `quux`\n"
         "  --> run.toml:2:1\n"
         "  fix: [schedule] has over, warmup\n");
}

TEST_F(Errors, UnknownTable) {
  expect("\n[optimizer.adam_w]\n",
         "error[unknown_table]: no plugin is called `optimizer.adam_w`\n"
         "  --> run.toml:2:1    looked in ./build, /opt/mortise/lib/mortise/plugins\n"
         "  fix: [optimizer.adamw]    others: mortise plugin list optimizer\n");
  request.searched.clear();
  expect("[optimzer.adamw]\n[optimzer]\n",
         "error[unknown_table]: no plugin is called `optimzer.adamw`\n"
         "  --> run.toml:1:1\n"
         "  fix: [optimizer.adamw]    others: mortise plugin list\n");
  expect("[optimzer]\nlr = 1\n",
         "error[unknown_table]: no table is called `optimzer`\n"
         "  --> run.toml:1:1\n"
         "  fix: [optimizer]\n");
}

TEST_F(Errors, ValueForTable) {
  expect("\n\nprecision = \"bf16\"\n",
         "error[value_for_table]: `precision` is a family, not a key\n"
         "  --> run.toml:3:1\n"
         "   3 | precision = \"bf16\"\n"
         "  fix: [precision.bf16]\n");
  expect("precision = \"bf16-mixed\"\ncompile = true\ndevice = \"gpu\"\n",
         "error[value_for_table]: `precision` is a family, not a key\n"
         "  --> run.toml:1:1\n"
         "   1 | precision = \"bf16-mixed\"\n"
         "  fix: [precision.bf16]\n"
         "\n"
         "error[value_for_table]: `compile` is a family, not a key\n"
         "  --> run.toml:2:1\n"
         "   2 | compile = true\n"
         "  fix: [compile.fused]\n"
         "\n"
         "error[value_for_table]: `device` is a family, not a key\n"
         "  --> run.toml:3:1\n"
         "   3 | device = \"gpu\"\n"
         "  fix: [device.cpu]\n");
  expect("[optimizer]\nadamw = true\n",
         "error[value_for_table]: `adamw` is a plugin of [optimizer], not a key\n"
         "  --> run.toml:2:1\n"
         "   2 | adamw = true\n"
         "  fix: [optimizer.adamw]\n");
}

TEST_F(Errors, WrongType) {
  expect("\n\n\n\n\n\n\n\n\n[optimizer]\nlr = \"3e-4\"\n",
         "error[wrong_type]: optimizer.lr is a number, this is text\n"
         "  --> run.toml:11:6\n"
         "  11 | lr = \"3e-4\"\n"
         "  fix: lr = 3e-4\n");
  request.set = {"optimizer.adamw.betas=[0.9, true]"};
  expect("[optimizer.adamw]\n",
         "error[wrong_type]: optimizer.adamw.betas is a list of numbers, this is true or false\n"
         "  --> command line: --set optimizer.adamw.betas=[0.9, true]\n"
         "  fix: --set 'optimizer.adamw.betas=[0.9, 0.999]'\n");
  request.set = {"optimizer.lr=fast", "optimizer.adamw.betas=0.9", "run.length=30"};
  expect("[optimizer.adamw]\n",
         "error[wrong_type]: optimizer.lr is a number, this is text\n"
         "  --> command line: --set optimizer.lr=fast\n"
         "  fix: --set optimizer.lr=0.001\n"
         "\n"
         "error[wrong_type]: optimizer.adamw.betas is a list of numbers, this is 0.9\n"
         "  --> command line: --set optimizer.adamw.betas=0.9\n"
         "  fix: --set 'optimizer.adamw.betas=[0.9, 0.999]'\n");
  request.set.clear();
  expect("run = 3\n[[optimizer.adamw]]\n",
         "error[wrong_type]: run is a table, this is a number\n"
         "  --> run.toml:1:1\n"
         "   1 | run = 3\n"
         "  fix: [run]\n"
         "\n"
         "error[wrong_type]: optimizer.adamw is a table, this is a list\n"
         "  --> run.toml:2:1\n"
         "   2 | [[optimizer.adamw]]\n"
         "  fix: [optimizer.adamw]\n");
}

TEST_F(Errors, OutOfRange) {
  expect("[model.bert]\ndropout = 10\nlayers = 0\n[log]\nevery = 0\n",
         "error[out_of_range]: model.bert.dropout is 0 to 1, this is 10\n"
         "  --> run.toml:2:11\n"
         "  fix: dropout = 0.1   for 10 per cent\n"
         "\n"
         "error[out_of_range]: model.bert.layers is 1 or more, this is 0\n"
         "  --> run.toml:3:10\n"
         "  fix: layers = 2\n"
         "\n"
         "error[out_of_range]: log.every is more than 0, this is 0\n"
         "  --> run.toml:5:9\n"
         "  fix: every = 10\n");
}

TEST_F(Errors, NotAChoice) {
  expect("[log]\nlevel = \"inf\"\n[run]\nlength = \"30 min\"\n",
         "error[not_a_choice]: log.level is error, warning, info or debug, this is `inf`\n"
         "  --> run.toml:2:9\n"
         "  fix: level = \"info\"\n"
         "\n"
         "error[wrong_unit]: run.length is in steps, epochs, samples or tokens; a time is run.time_limit\n"
         "  --> run.toml:4:10\n"
         "  fix: time_limit = \"30 min\"\n");
}

TEST_F(Errors, IncludePlacement) {
  expect("[precision.bf16]\ninclude = [\"base.toml\"]\n",
         "error[include_placement]: `include` stands inside [precision.bf16]\n"
         "  --> run.toml:2:1\n"
         "  fix: move it to the top of the file, before the first table (a key belongs to the table above it)\n");
}

TEST_F(Errors, IncludeMissing) {
  file("nlp/run.toml", "include = [\"common/base.toml\"]\n");
  request.file = "nlp/run.toml";
  file("common/base.toml", "");
  read_again();
  EXPECT_EQ(errors,
            "error[include_missing]: no file `common/base.toml`\n"
            "  --> nlp/run.toml:1:12    looked at " +
                (folder / "nlp/common/base.toml").string() +
                " (relative to nlp/run.toml)\n"
                "  fix: there is " +
                (folder / "common/base.toml").string() + ": include = [\"../common/base.toml\"]\n");
  expect("include = \"nowhere/else.toml\"\n",
         "error[include_missing]: no file `nowhere/else.toml`\n"
         "  --> run.toml:1:11    looked at " +
             (folder / "nowhere/else.toml").string() +
             " (relative to run.toml)\n"
             "  fix: a path is relative to the file that states it; shipped files are named mortise:NAME\n");
  file("shipped/gpt2_124m.toml", "");
  expect("include = \"mortise:gpt2_124\"\n",
         "error[include_missing]: no shipped file `mortise:gpt2_124`\n"
         "  --> run.toml:1:11    looked in " +
             (folder / "shipped").string() +
             "\n"
             "  fix: include = [\"mortise:gpt2_124m\"]\n");
  request.includes = {"mortise:../run"};
  expect("",
         "error[include_missing]: no shipped file `mortise:../run`\n"
         "  --> command line: --include mortise:../run    looked in " +
             (folder / "shipped").string() +
             "\n"
             "  fix: ls " +
             (folder / "shipped").string() + "   (NAME.toml is mortise:NAME)\n");
}

TEST_F(Errors, IncludeCycle) {
  file("a.toml", "include = [\"b.toml\"]\n");
  file("b.toml", "\ninclude = [\"a.toml\"]\n");
  expect("include = [\"a.toml\"]\n",
         "error[include_cycle]: `a.toml` includes itself: a.toml -> b.toml -> a.toml\n"
         "  --> b.toml:2:12\n"
         "  fix: remove this include\n");
  expect("include = [\"run.toml\"]\n",
         "error[include_cycle]: `run.toml` includes itself: run.toml -> run.toml\n"
         "  --> run.toml:1:12\n"
         "  fix: remove this include\n");
}

TEST_F(Errors, IncludeTooDeep) {
  for (int i = 1; i < 9; ++i) file(std::to_string(i) + ".toml", "include = [\"" + std::to_string(i + 1) + ".toml\"]\n");
  file("9.toml", "");
  file("8.toml", "");
  expect("include = [\"1.toml\"]\n", "");
  file("8.toml", "include = [\"9.toml\"]\n");
  expect("include = [\"1.toml\"]\n",
         "error[include_too_deep]: includes are nested deeper than 8\n"
         "  --> 8.toml:1:12\n"
         "  fix: include `9.toml` from a file further up\n");
}

TEST_F(Errors, FileMissing) {
  file("runs.toml", "");
  request.file = "rums.toml";
  read_again();
  EXPECT_EQ(errors,
            "error[file_missing]: no file `rums.toml`\n"
            "  --> command line    looked at " +
                (folder / "rums.toml").string() +
                "\n"
                "  fix: there is runs.toml\n");
}

TEST_F(Errors, CannotRead) {
  request.file = "shipped";
  read_again();
  EXPECT_EQ(errors,
            "error[cannot_read]: `shipped` cannot be read\n"
            "  --> shipped\n"
            "  fix: name a TOML file that can be read\n");
}

TEST_F(Errors, TomlSyntax) {
  expect("[run]\nname = gpt\n",
         "error[toml_syntax]: not valid TOML: this is no value; text needs quotes\n"
         "  --> run.toml:2:8\n"
         "   2 | name = gpt\n"
         "  fix: name = \"gpt\"\n");
  expect("[data]\nshuffle = true\n\n[run]\n\n[data]\nmicro_batch_size = 4\n",
         "error[toml_syntax]: [data] stands here again\n"
         "  --> run.toml:6:1 and run.toml:1:1\n"
         "   6 | [data]\n"
         "  fix: keep one: the first is in line 1\n");
  // Without the file nobody knows what is on, so nothing is said about it.
  request.set = {"optimizer.sgd.momentum=0.9", "run.tags=[a"};
  expect("[run\n",
         "error[toml_syntax]: not valid TOML (table header): expected ']', saw '\\n'\n"
         "  --> run.toml:1:5\n"
         "   1 | [run\n"
         "  fix: text stands in quotes, a list in [ ], and each key and table once\n"
         "\n"
         "error[toml_syntax]: not valid TOML: this is no value; text needs quotes\n"
         "  --> command line: --set run.tags=[a\n"
         "  fix: lists and tables are TOML: --set 'run.tags=[\"a\", \"b\"]'\n");
}

TEST_F(Errors, SecretInManifest) {
  expect("[log.wandb]\nkey_env = \"0f3a7c9be1d24586a7b3c9d8e0f1a2b3c4d5e6f7\"\n",
         "error[secret_in_manifest]: log.wandb.key_env is the name of an environment variable; this looks like a key\n"
         "  --> run.toml:2:11\n"
         "  fix: key_env = \"WANDB_API_KEY\", exported where the run starts; revoke this key if the file was shared\n");
  expect("[log.wandb]\nkey_env = \"WANDB_API_KEY_2\"\n", "");
}

TEST_F(Errors, SetNotOn) {
  request.set = {"optimizer.sgd.momentum=0.9"};
  expect("[optimizer.adamw]\n",
         "error[set_not_on]: optimizer.sgd is not on, so `optimizer.sgd.momentum` sets nothing\n"
         "  --> command line: --set optimizer.sgd.momentum=0.9\n"
         "  fix: --use optimizer.sgd --set optimizer.sgd.momentum=0.9\n");
  file("base.toml", "[precision.bf16]\n");
  request.set = {"precision.bf16.enabled=true"};
  expect("include = [\"base.toml\"]\n\n[precision.fp32]\n",
         "error[set_not_on]: precision.bf16 is not on: precision.fp32 (run.toml:3) replaced it\n"
         "  --> command line: --set precision.bf16.enabled=true\n"
         "  fix: leave it out, or --use precision.bf16\n");
  request.use = {"precision.fp32"};
  expect(
      "include = [\"base.toml\"]\n",
      "error[set_not_on]: precision.bf16 is not on: precision.fp32 (command line: --use precision.fp32) replaced it\n"
      "  --> command line: --set precision.bf16.enabled=true\n"
      "  fix: leave it out, or --use precision.bf16 in place of --use precision.fp32\n");
  request.use = {};
  request.set = {"precision.bf16.enabled=true", "optimizer.adamw=true", "optimizer=3", "parameters.x.lr=1"};
  expect("[precision.bf16]\nenabled = false\n",
         "error[set_not_on]: precision.bf16 is not on, so `precision.bf16.enabled` sets nothing\n"
         "  --> command line: --set precision.bf16.enabled=true\n"
         "  fix: --use precision.bf16\n"
         "\n"
         "error[set_not_on]: `optimizer.adamw` is a plugin, and --set sets keys\n"
         "  --> command line: --set optimizer.adamw=true\n"
         "  fix: --use optimizer.adamw\n"
         "\n"
         "error[set_not_on]: `optimizer` is a table, and --set sets keys\n"
         "  --> command line: --set optimizer=3\n"
         "  fix: --use optimizer.NAME, or --set optimizer.KEY=VALUE\n"
         "\n"
         "error[set_not_on]: parameters.x is not on, so `parameters.x.lr` sets nothing\n"
         "  --> command line: --set parameters.x.lr=1\n"
         "  fix: [parameters.x] in a file\n");
}

TEST_F(Errors, SetOfUnknownThings) {
  request.searched.clear();
  request.set = {"optimizer.learning_rate=1",
                 "optimizer.adam.eps=1",
                 "lr=1",
                 "nobody.knows=1",
                 "data.micro_batchsize=4",
                 "run.a.b=1"};
  expect("",
         "error[unknown_key]: [optimizer] has no key `learning_rate`\n"
         "  --> command line: --set optimizer.learning_rate=1\n"
         "  fix: it is called `lr` here\n"
         "\n"
         "error[unknown_plugin]: no plugin is called `optimizer.adam`\n"
         "  --> command line: --set optimizer.adam.eps=1\n"
         "  fix: --use optimizer.adamw    others: mortise plugin list optimizer\n"
         "\n"
         "error[unknown_key]: there is no key `lr` outside the tables\n"
         "  --> command line: --set lr=1\n"
         "  fix: --set optimizer.lr=1\n"
         "\n"
         "error[unknown_table]: no table is called `nobody`\n"
         "  --> command line: --set nobody.knows=1\n"
         "  fix: a table is [run], [eval], [plugins], [parameters.NAME], a family or a plugin: mortise plugin list\n"
         "\n"
         "error[unknown_key]: [data] has no key `micro_batchsize`\n"
         "  --> command line: --set data.micro_batchsize=4\n"
         "  fix: --set data.micro_batch_size=4\n"
         "\n"
         "error[unknown_key]: [run] has no key `a`\n"
         "  --> command line: --set run.a.b=1\n"
         "  fix: [run] has call_timeout, deterministic, dir, length, name, notes, seed, tags, time_limit\n");
}

TEST_F(Errors, SetSyntax) {
  request.set = {"optimizer.lr"};
  expect("",
         "error[set_syntax]: `optimizer.lr` is not KEY=VALUE\n"
         "  --> command line: --set optimizer.lr\n"
         "  fix: --set optimizer.lr=3e-4\n");
}

TEST_F(Errors, SetTwice) {
  request.set = {"run.seed=1", "run.seed=2"};
  EXPECT_EQ(read("").get("run", "seed").as_int(), 2);
  EXPECT_EQ(errors,
            "warning[set_twice]: run.seed is set twice; the last one counts\n"
            "  --> command line: --set run.seed=2\n");
}

TEST_F(Errors, UnknownPlugin) {
  request.use = {"optimizer.adam"};
  request.without = {"nobody.knows"};
  expect("",
         "error[unknown_plugin]: no plugin is called `optimizer.adam`\n"
         "  --> command line: --use optimizer.adam    looked in ./build, /opt/mortise/lib/mortise/plugins\n"
         "  fix: --use optimizer.adamw    others: mortise plugin list optimizer\n"
         "\n"
         "error[unknown_plugin]: no plugin is called `nobody.knows`\n"
         "  --> command line: --without nobody.knows    looked in ./build, /opt/mortise/lib/mortise/plugins\n"
         "  fix: mortise plugin list\n");
}

TEST_F(Errors, UseAndWithout) {
  request.use = request.without = {"optimizer.adamw"};
  expect("",
         "error[use_and_without]: optimizer.adamw is asked for and refused\n"
         "  --> command line: --without optimizer.adamw\n"
         "  fix: leave out --use optimizer.adamw or --without optimizer.adamw\n");
  request.without = {};
  request.set = {"optimizer.adamw.enabled=false"};
  expect("",
         "error[use_and_without]: optimizer.adamw is asked for and refused\n"
         "  --> command line: --set optimizer.adamw.enabled=false\n"
         "  fix: leave out --use optimizer.adamw or --set optimizer.adamw.enabled=false\n");
}

TEST_F(Errors, WithoutWhatIsSet) {
  request.without = {"optimizer.adamw"};
  request.set = {"optimizer.adamw.lr=1"};
  expect("[optimizer.adamw]\n",
         "error[set_not_on]: optimizer.adamw is not on, so `optimizer.adamw.lr` sets nothing\n"
         "  --> command line: --set optimizer.adamw.lr=1\n"
         "  fix: --use optimizer.adamw --set optimizer.adamw.lr=1 in place of --without optimizer.adamw\n");
}

TEST_F(Errors, WithoutWhatIsNotOn) {
  request.without = {"optimizer.adamw"};
  expect("",
         "warning[not_on]: optimizer.adamw is not on\n"
         "  --> command line: --without optimizer.adamw\n"
         "  fix: leave out --without optimizer.adamw\n");
}

TEST_F(Errors, FallbackOfWhatIsNotThere) {
  request.searched.clear();
  expect("[device.cuda]\nfallback = [\"device.cpi\"]\n[precision.bf16]\nfallback = [\"precision.fp32\"]\n",
         "error[unknown_table]: no plugin is called `device.cpi`\n"
         "  --> run.toml:2:13\n"
         "  fix: [device.cpu]    others: mortise plugin list device\n"
         "\n"
         "error[fallback_without_place]: precision.bf16 provides nothing, so nobody can take its place\n"
         "  --> run.toml:4:12\n"
         "  fix: leave `fallback` out\n");
}

TEST_F(Errors, RulesForParameters) {
  expect(
      "[parameters.a]\nlr = 1\n[parameters.b]\nwhere = \"x\"\nlr = 1\nlr_scale = 2\n[parameters.\"c "
      "d\"]\n[parameters.e]\nwhere = []\n",
      "error[missing_key]: [parameters.a] has no `where`\n"
      "  --> run.toml:1:1\n"
      "  fix: where = \"role:norm\"   (which parameters: globs, role: tag: dim:)\n"
      "\n"
      "error[two_rates]: [parameters.b] has both `lr` and `lr_scale`\n"
      "  --> run.toml:6:12\n"
      "  fix: leave one out\n"
      "\n"
      "error[bad_name]: a name is small letters, digits and _, this is `c d`\n"
      "  --> run.toml:7:13\n"
      "  fix: [parameters.no_decay]\n"
      "\n"
      "error[wrong_type]: parameters.e.where is a selector, this is a list\n"
      "  --> run.toml:9:9\n"
      "   9 | where = []\n"
      "  fix: where = \"blocks.*\"\n");
}

TEST_F(Errors, BadRunName) {
  expect("[run]\nname = \"../x\"\n",
         "error[bad_name]: a run's name is letters, digits, `.`, `_` and `-`, this is `../x`\n"
         "  --> run.toml:2:8\n"
         "  fix: name = \"..-x\"\n");
  request.set = {"run.name=my run"};
  read("");
  EXPECT_TRUE(errors.ends_with("  fix: --set run.name=my-run\n")) << errors;
  request.set.clear();
}

TEST_F(Errors, UnsetVariable) {
  unsetenv("FINEWEB");
  expect("[data.text]\npath            = \"${FINEWEB}/fineweb_train_*.bin\"\n",
         "error[unset_variable]: ${FINEWEB} is not set in the environment\n"
         "  --> run.toml:2:19\n"
         "  fix: export FINEWEB=/path/to/it   or write ${FINEWEB:-/path/to/it}\n");
  expect("[data.text]\npath = [\"a\", \"${FINEWEB\"]\n",
         "error[unset_variable]: `${FINEWEB` is not closed\n"
         "  --> run.toml:2:14\n"
         "  fix: ${NAME} or ${NAME:-default}\n");
}

TEST_F(Errors, DeprecatedKey) {
  expect("[compile.fused]\nold = 1\n",
         "warning[deprecated_key]: compile.fused.old is deprecated since 0.2\n"
         "  --> run.toml:2:1\n"
         "  effect: it will be gone in 0.4\n"
         "  fix: use only\n");
}

// What people who come from elsewhere write, against the tables and names that are shipped.
class Shipped : public Errors {
 protected:
  void SetUp() override {
    Errors::SetUp();
    request.searched.clear();
    const std::filesystem::path tree = MORTISE_SOURCE_DIR;
    request.shipped_dir = tree / "configs";
    catalogue.clear();
    for (const auto& file : std::filesystem::recursive_directory_iterator(tree / "plugins"))
      if (file.path().filename() == "plugin.toml") add_file(file.path());
  }
  void add_file(const std::filesystem::path& path) {
    const std::string name = path.parent_path().filename(), family = path.parent_path().parent_path().filename();
    Report report;
    const std::optional<TomlTable> root = read_toml(path, "plugin.toml", report);
    ASSERT_TRUE(root) << path;
    PluginSchema& schema = catalogue[family + "." + name];
    schema.id = family + "." + name;
    schema.family = family;
    schema.name = name;
    if (const TomlNode* provides = root->find("points", "provides"))
      for (const TomlNode& point : *provides->list()) schema.provides.push_back(*point.text());
    read_plugin_schema(*root, schema, report);
    ASSERT_EQ(printed(report), "") << path;
  }
  // The first fix of the only mistake, and nothing when what it says is typed.
  std::string fix_of(const std::string& text) {
    file("run.toml", text);
    request.file = "run.toml";
    Report report;
    read_manifest(request, report);
    return report.errors() == 1 && !report.all()[0].fixes.empty() ? report.all()[0].fixes[0] : printed(report);
  }
};

TEST_F(Shipped, StepsOfAccumulationAreItsCount) {
  EXPECT_EQ(fix_of("[step.accumulation]\nsteps = 4\n"), "it is called `count` here");
  EXPECT_EQ(fix_of("[step.accumulation]\ncount = 4\n"), "");
  EXPECT_EQ(fix_of("[run]\nsteps = 4\n"), "it is called `length` here");
}

TEST_F(Shipped, ALowestRateIsAShareOfThePeak) {
  const std::string fix = "the rate at the end is a share of the peak: [schedule.cosine] final = 0.1";
  for (const char* table : {"schedule", "schedule.cosine", "optimizer", "optimizer.adamw"})
    EXPECT_EQ(fix_of("[" + std::string(table) + "]\nmin_lr = 1e-5\n"), fix) << table;
  EXPECT_EQ(fix_of("[schedule.cosine]\nfinal = 0.1\n"), "");
}

TEST_F(Shipped, AFamilyHasNoNameOrDtypeOfItsPlugin) {
  const std::string fix = "a plugin is switched on by its table: [precision.bf16]";
  EXPECT_EQ(fix_of("[precision]\ndtype = \"bf16\"\n"), fix);
  EXPECT_EQ(fix_of("[precision]\ncompute_dtype = \"bfloat16\"\n"), fix);
  EXPECT_EQ(fix_of("[optimizer]\ntype = \"sgd\"\n"), "a plugin is switched on by its table: [optimizer.sgd]");
}

TEST_F(Shipped, SamplesHaveNoInterval) {
  EXPECT_EQ(fix_of("[sample.text]\nevery = 100\n"),
            "a run ends with a sample; before that, from what it has saved: mortise sample DIR");
}

TEST_F(Shipped, TheNameBehindTheDotIsEnough) {
  EXPECT_EQ(fix_of("[checkpointing]\n"), "[activation.checkpointing]");
  EXPECT_EQ(fix_of("[training.checkpointing]\n"), "[activation.checkpointing]    others: mortise plugin list");
  EXPECT_EQ(fix_of("[text]\n"), "[data.text] or [sample.text]");
  request.use = {"clip"};
  EXPECT_EQ(fix_of(""), "--use gradient.clip    others: mortise plugin list");
  request.use = {"gradient.clp"};
  EXPECT_EQ(fix_of(""), "--use gradient.clip    others: mortise plugin list gradient");
}

TEST_F(Shipped, ARateThatIsNegativeGetsTheDefaultOfThePlugin) {
  EXPECT_EQ(fix_of("[optimizer]\nlr = -1\n[optimizer.adamw]\n"), "lr = 0.001");
  EXPECT_EQ(fix_of("[optimizer]\nlr = -1\n[optimizer.sgd]\n"), "lr = 0.01");
  request.set = {"optimizer.lr=-1"};
  EXPECT_EQ(fix_of("[optimizer.sgd]\n"), "--set optimizer.lr=0.01");
}

TEST_F(Shipped, NothingIsTrainedForNoSteps) {
  for (const char* length : {"0", "\"0 tokens\"", "\"0 epochs\""})
    EXPECT_EQ(fix_of("[run]\nlength = " + std::string(length) + "\n"), "length = \"1 epoch\"");
}

TEST_F(Shipped, TakesATimeInWords) {
  EXPECT_EQ(fix_of("[checkpoint]\nevery = \"5 minutes\"\n[run]\ntime_limit = \"2 hours\"\n"), "");
}

// What --lr means on the command line.
TEST_F(Shipped, FindsTheKeyOfAName) {
  request.file = "";
  const Vocabulary words(request);
  EXPECT_EQ(words.keys_called("lr"), std::vector<std::string>{"optimizer.lr"});
  EXPECT_EQ(words.keys_called("learning_rate"), std::vector<std::string>{"optimizer.lr"});
  EXPECT_EQ(words.keys_called("steps"), std::vector<std::string>{"run.length"});
  EXPECT_EQ(words.keys_called("gradient_accumulation_steps"), std::vector<std::string>{"step.accumulation.count"});
  EXPECT_EQ(words.keys_called("fit"), std::vector<std::string>());
}

// What a flag of another program, or --set NAME=VALUE, means on the command line.
TEST_F(Shipped, SaysWhatToTypeForAForeignFlag) {
  request.file = "";
  request.catalogue = &catalogue;
  const Vocabulary words(request);
  const auto typed = [&](const std::string& name, const std::string& value) {
    return join(words.typed_for(name, value), " | ");
  };
  EXPECT_EQ(typed("learning_rate", "1e-3"), "--set optimizer.lr=1e-3");
  EXPECT_EQ(typed("learning_rate", ""), "--set optimizer.lr=VALUE");
  EXPECT_EQ(typed("max_grad_norm", "1"), "--use gradient.clip --set gradient.clip.norm=1");
  EXPECT_EQ(typed("max_new_tokens", "5"), "--use sample.text --set sample.text.tokens=5");
  EXPECT_EQ(typed("bf16", ""), "--use precision.bf16");
  EXPECT_EQ(typed("bf16", "true"), "--use precision.bf16");
  EXPECT_EQ(typed("precision", "bf16"), "--use precision.bf16");
  EXPECT_EQ(typed("optim", "adamw_torch"), "--use optimizer.adamw");
  EXPECT_EQ(typed("optim", ""), "a plugin is switched on by its table: mortise plugin list optimizer");
  EXPECT_EQ(typed("tf32", ""), "--use precision.tf32");
  EXPECT_EQ(typed("device", "cuda"), "--use device.cuda");
  EXPECT_EQ(typed("zero_stage", "2"), "--use parallel.zero --set parallel.zero.stage=2");
  EXPECT_EQ(typed("batch_size", "4"),
            "samples that one device handles at once are `micro_batch_size` in [data] | "
            "samples of a whole step are `global_batch_size` in [step.accumulation]");
  EXPECT_EQ(typed("nonsense", "4"), "");
  catalogue.erase("precision.tf32");
  EXPECT_EQ(Vocabulary(request).typed_for("tf32", ""),
            std::vector<std::string>{"a plugin is switched on by its table: [precision.tf32], which is not installed"});
  request.set = {"bf16=true"};
  EXPECT_EQ(fix_of(""), "--use precision.bf16");
  request.set = {"max_steps=30"};
  EXPECT_EQ(fix_of(""), "--set run.length=30");
}

TEST_F(Shipped, NamesThatLookLikeAnotherThing) {
  for (const char* eps : {"eps = 1e-8\n", "[optimizer]\neps = 1e-8\n"})
    EXPECT_EQ(fix_of(eps), "it is called `eps`, in [optimizer.adamw]");
  EXPECT_EQ(fix_of("max_position_embeddings = 8\n"), "it is called `context`, in [model.gpt]");
  EXPECT_EQ(fix_of("accelerator_config = 8\n"), "leave it out: nothing of it is here");
  EXPECT_EQ(fix_of("config_name = \"x\"\n"), "sizes are keys of the model's table: mortise plugin info model.gpt");
  EXPECT_EQ(fix_of("[tokenizer]\npretrained = \"x\"\n"),
            "a tokenizer is a plugin: [tokenizer.huggingface], whose `path` is a tokenizer.json");
  EXPECT_EQ(fix_of("[lora]\nr = 8\n"), "[adapter.lora]");
  EXPECT_EQ(fix_of("[schedule.warmup]\nsteps = 8\n"), "`warmup` is a key of [schedule]: warmup = 0");
}

TEST_F(Shipped, SaysWhatANameMeansHere) {
  request.file = "";
  const Vocabulary words(request);
  const std::string on = "a plugin is switched on by its table: ";
  EXPECT_EQ(words.said_of("bf16"), std::vector<std::string>{on + "[precision.bf16]"});
  EXPECT_EQ(words.said_of("gradient_checkpointing"), std::vector<std::string>{on + "[activation.checkpointing]"});
  EXPECT_EQ(words.said_of("patience"), std::vector<std::string>{on + "[guard.patience]"});
  EXPECT_EQ(words.said_of("optim").size(), 1u);
  EXPECT_EQ(words.said_of("nonsense"), std::vector<std::string>());
}

// Each was answered with the key whose name looks most like it, which is another thing.
TEST_F(Shipped, WhatIsNotNeededHereIsSaidToBe) {
  for (const char* name : {"eval_accumulation_steps", "overwrite_output_dir", "do_train", "strategy"})
    for (const char* table : {"run", "optimizer", "eval"}) {
      const std::string fix = fix_of("[" + std::string(table) + "]\n" + name + " = \"x\"\n");
      EXPECT_NE(fix.find("leave it out"), std::string::npos) << table << "." << name << ": " << fix;
    }
  EXPECT_EQ(fix_of("[run]\nlength_column_name = \"n\"\n"), "there is no grouping by length yet; leave it out");
}

// No number that a manifest can hold goes through a key of the core without a bound; a seed may be any.
TEST_F(Shipped, EveryNumberHasABound) {
  for (const auto& [table, schema] : core_schema().tables)
    for (const auto& [key, k] : schema.keys) {
      const bool is_number = k.type == "int" || k.type == "float" || k.type == "duration" || k.type == "amount";
      if (!is_number || table + "." + key == "run.seed") continue;
      EXPECT_TRUE(k.max) << table << "." << key;
      EXPECT_TRUE(k.min || k.exclusive_min || k.type == "duration") << table << "." << key;
      for (const char* number : {"9223372036854775807", "1e308", "inf", "nan", "-1"})
        EXPECT_NE(fix_of("[" + table + "]\n" + key + " = " + number + "\n"), "") << table << "." << key << number;
    }
}

// A plugin whose plugin.toml was refused is known; that its table cannot be checked is no second mistake.
TEST_F(Shipped, SaysNothingOfATableWhosePluginWasRefused) {
  catalogue.erase("gradient.clip");
  EXPECT_EQ(fix_of("[gradient.clip]\nnorm = 1\n"), "mortise plugin list gradient");
  request.refused = {"gradient.clip"};
  request.use = {"gradient.clip"};
  request.set = {"gradient.clip.norm=2"};
  EXPECT_EQ(fix_of("[gradient.clip]\nnorm = 1\n"), "");
  EXPECT_EQ(read_again().unread, std::set<std::string>{"gradient.clip"});
  request.without = {"gradient.clip"};
  EXPECT_EQ(fix_of("[gradient.clip]\nnorm = 1\n"), "");
  EXPECT_EQ(read_again().unread, std::set<std::string>());
}

TEST_F(Errors, AllAtOnceInTheOrderOfTheFiles) {
  file("base.toml", "[optimizer]\nlr = true\n");
  request.set = {"run.seed=x"};
  read("include = [\"base.toml\"]\n[data.text]\npath = \"*.none\"\n[log]\nlevel = 3\nnothing = 1\n");
  std::vector<size_t> places;
  for (const char* at : {"base.toml:2", "run.toml:3", "run.toml:5", "run.toml:6", "command line"})
    places.push_back(errors.find(at));
  EXPECT_TRUE(std::is_sorted(places.begin(), places.end())) << errors;
  EXPECT_EQ(std::count(places.begin(), places.end(), std::string::npos), 0) << errors;
}

}  // namespace
}  // namespace mortise
