#include "core/manifest/check.hpp"
#include "core/plugin/test_fixtures.hpp"

namespace mortise {
namespace {

constexpr std::string_view kHead = R"([plugin]
id      = "optimizer.acme"
version = "0.1.0"
summary = "An optimizer"
status  = "alpha"
abi     = "0.1"
)";

struct Read {
  std::optional<PluginInfo> info;
  std::vector<std::string> errors;  // "code line:column message | fix"
};

Read read(const std::string& text, const std::string& id = "optimizer.acme") {
  const TemporaryFolder folder;
  const std::string path = folder / (id + ".toml");
  write_file(path, text);
  Report report;
  Read result{read_plugin_info(path, id, report), {}};
  for (const Diagnostic& d : report.all()) {
    EXPECT_EQ(d.at, path);
    EXPECT_EQ(d.plugin, id);
    EXPECT_EQ(d.exit, kExitPlugin);
    EXPECT_EQ(d.positions.at(0).file, "plugin.toml of " + id);
    const Position& at = d.positions.at(0);
    result.errors.push_back(d.code + " " + std::to_string(at.line) + ":" + std::to_string(at.column) + " " + d.message +
                            (d.fixes.empty() ? "" : " | " + d.fixes[0]));
  }
  EXPECT_EQ(result.info.has_value(), result.errors.empty());
  return result;
}

Read read_after_head(const std::string& text) { return read(std::string(kHead) + text); }  // begins in line 7

using Errors = std::vector<std::string>;

TEST(PluginToml, IsReadWhole) {
  const Read read = read_after_head(R"(
source = "somebody 2020"
tier   = "native"
change = "free"

[points]
provides = ["optimizer", "schedule"]
wraps    = [{ point = "block", band = "repeat", capture = true }]
listens  = [{ point = "params.declared", reads = ["role"], writes = ["trainable"] }]
chooses  = ["attention.one", "attention.two"]

[operator.swirl]
arguments = "x [N]"
results   = "y [N]"
doc       = "Turns it round"

[capabilities]
provides  = ["activation.recompute"]
requires  = ["grad.complete"]
exclusive = ["precision.compute"]
conflicts = [{ with = "offload.optimizer", why = "it has no CPU implementation", fix = "leave it out" }]
syncs     = ["verdict"]
after     = ["a.b"]
before    = ["c.d"]

[links]
allow = ["libacme.so.*"]

[optimizer]
cut     = "tensor"
devices = ["cpu", "cuda"]

[family_defaults]
lr = 1e-3

[config.decay]
type    = "float"
default = -0.8
doc     = "The decay."
)");
  ASSERT_EQ(read.errors, Errors{});
  const PluginInfo& info = *read.info;
  EXPECT_EQ(info.schema.id, "optimizer.acme");
  EXPECT_EQ(info.schema.family, "optimizer");
  EXPECT_EQ(info.schema.name, "acme");
  EXPECT_EQ(info.schema.summary, "An optimizer");
  EXPECT_EQ(info.version + info.status + info.source + info.tier + info.abi, "0.1.0alphasomebody 2020native0.1");
  EXPECT_EQ(info.change, "free");
  EXPECT_EQ(info.schema.provides, (std::vector<std::string>{"optimizer", "schedule"}));
  ASSERT_EQ(info.wraps.size(), 1u);
  EXPECT_EQ(info.wraps[0].point + " " + info.wraps[0].band, "block repeat");
  EXPECT_TRUE(info.wraps[0].capture);
  EXPECT_EQ(info.wraps[0].origin.text(), "plugin.toml of optimizer.acme:14:13");
  ASSERT_EQ(info.listens.size(), 1u);
  EXPECT_EQ(info.listens[0].reads, std::vector<std::string>{"role"});
  EXPECT_EQ(info.listens[0].writes, std::vector<std::string>{"trainable"});
  EXPECT_FALSE(info.listens[0].capture);
  EXPECT_EQ(info.chooses.size(), 2u);
  ASSERT_EQ(info.operators.size(), 1u);
  EXPECT_EQ(info.operators[0].name + ": " + info.operators[0].arguments + " -> " + info.operators[0].results,
            "swirl: x [N] -> y [N]");
  EXPECT_EQ(info.capabilities, std::vector<std::string>{"activation.recompute"});
  EXPECT_EQ(info.requires_, std::vector<std::string>{"grad.complete"});
  EXPECT_EQ(info.schema.exclusive, std::vector<std::string>{"precision.compute"});
  ASSERT_EQ(info.conflicts.size(), 1u);
  EXPECT_EQ(info.conflicts[0].with, "offload.optimizer");
  EXPECT_EQ(info.conflicts[0].fix, "leave it out");
  EXPECT_EQ(info.syncs, std::vector<std::string>{"verdict"});
  EXPECT_EQ(info.after, std::vector<std::string>{"a.b"});
  EXPECT_EQ(info.before, std::vector<std::string>{"c.d"});
  EXPECT_EQ(info.links, std::vector<std::string>{"libacme.so.*"});
  EXPECT_EQ(info.facts.at("optimizer").at("cut").as_text(), "tensor");
  EXPECT_EQ(info.facts.at("optimizer").at("devices").as_list().size(), 2u);
  EXPECT_EQ(info.schema.family_defaults.at("lr").as_float(), 1e-3);
  EXPECT_EQ(info.schema.config.keys.at("decay").default_value.as_float(), -0.8);
  EXPECT_EQ(info.toml_text.substr(0, 8), "[plugin]");
  EXPECT_EQ(std::filesystem::path(info.library).filename(), "optimizer.acme.so");
}

TEST(PluginToml, SaysWhereBitsDiffer) {
  const auto read = read_after_head("[repeat]\ndiffers = \"sums\"\nunasked = \"sums\"\ndevices = [\"cuda\"]\n");
  EXPECT_EQ(read.errors, Errors{});
  EXPECT_EQ(read_after_head("[repeat]\ndevices = [\"gpu\"]\nasked = \"sums\"\n").errors,
            (Errors{"not_a_choice 8:12 repeat.devices is cpu or cuda, this is `gpu`",
                    "unknown_key 9:1 [repeat] has no key `asked` | it is called `unasked` here"}));
  EXPECT_EQ(read_after_head("[repeat]\ndiffers = \"\"\ndevices = []\n").errors,
            (Errors{"schema_broken 8:11 repeat.differs is empty | leave it out",
                    "schema_broken 9:11 repeat.devices is empty | leave it out"}));
}

TEST(PluginToml, SaysWhatAReduceScatterSends) {
  const std::string comm = "[points]\nprovides = [\"comm\"]\n[comm]\nreduce_scatter = ";
  EXPECT_EQ(read_after_head(comm + "\"whole\"\n").errors, Errors{});
  EXPECT_EQ(read_after_head(comm + "\"ring\"\n").errors,
            Errors{"not_a_choice 10:18 comm.reduce_scatter is whole, this is `ring`"});
}

TEST(PluginToml, SaysAllOfAnAxis) {
  const std::string whole =
      "[ranks]\naxis = \"rows\"\nsize = \"n\"\nsees = \"same\"\ngives = \"same\"\ngives_back = \"same\"\n"
      "gradient = \"whole\"\n[config.n]\ntype = \"int\"\ndefault = 1\nchange = \"free\"\ndoc = \"Ranks.\"\n";
  EXPECT_EQ(read_after_head(whole + "min = 1\n").errors, Errors{});
  const Errors may_be_none = {
      "schema_broken 9:8 [config.n] is the size of an axis, and may be below 1 | "
      "type = \"int\" and min = 1"};
  EXPECT_EQ(read_after_head(whole).errors, may_be_none);
  EXPECT_EQ(read_after_head(whole + "min = 0\n").errors, may_be_none);
  EXPECT_EQ(read_after_head("[ranks]\naxis = \"rows\"\n").errors,
            (Errors{"schema_broken 8:8 [ranks] has an axis, and no `gives` | gives = \"cut\"",
                    "schema_broken 8:8 [ranks] has an axis, and no `gives_back` | gives_back = \"cut\"",
                    "schema_broken 8:8 [ranks] has an axis, and no `gradient` | gradient = \"whole\"",
                    "schema_broken 8:8 [ranks] has an axis, and no `size` | size = \"ranks\", a key of [config]"}));
  EXPECT_EQ(read_after_head("[ranks]\ngives = \"whole\"\ngives_back = \"sum\"\ngradient = \"same\"\n"
                            "sums = \"group\"\naverages = \"none\"\nnorms = \"replicas\"\n")
                .errors,
            (Errors{"not_a_choice 8:9 ranks.gives is same, cut or partial, this is `whole`",
                    "not_a_choice 9:14 ranks.gives_back is same, cut or partial, this is `sum`",
                    "not_a_choice 10:12 ranks.gradient is whole or partial, this is `same`",
                    "not_a_choice 11:8 ranks.sums is replicas, all or none, this is `group`",
                    "not_a_choice 12:12 ranks.averages is replicas or all, this is `none`",
                    "not_a_choice 13:9 ranks.norms is parts, all or none, this is `replicas`"}));
}

TEST(PluginToml, NeedsLittle) { EXPECT_EQ(read(std::string(kHead)).errors, Errors{}); }

TEST(PluginToml, KnowsTheFactsThatTheCoreReads) {
  EXPECT_EQ(read_after_head("[points]\nprovides = [\"optimizer\", \"data\", \"model\", \"scan\"]\n"
                            "[optimizer]\ncutt = \"rows\"\ndevices = [\"cpu\"]\n"
                            "[model]\nfoo = 1\n"
                            "[data]\nthreads = \"one\"\ntest = \"files\"\nvalidation = \"file\"\n"
                            "[scan]\ndevices = \"cpu\"\nspeed = 3\n"
                            "[frame]\ncompute_dtype = 16\n"
                            "[optimiser]\ncut = \"rows\"\n"
                            "[speed]\nhigh = true\n"
                            "[[listens]]\npoint = \"record\"\n"
                            "[links]\nalow = []\n"
                            "[operator.scan]\narguments = \"x\"\nresults = \"y\"\ndoc = \"s\"\nnote = \"\"\n"
                            "[config.files]\ntype = \"path\"\ndoc = \"Files.\"\n")
                .errors,
            (Errors{"unknown_key 10:1 [optimizer] has no key `cutt` | it is called `cut` here",
                    "unknown_key 13:1 [model] has no key `foo` | it has: context, modes, vocabulary, devices",
                    "unknown_key 17:1 [data] has no key `validation` | it has: threads, devices",
                    "unknown_key 20:1 [scan] has no key `speed` | it has: devices, attributes, covers, best_in",
                    "wrong_type 22:17 frame.compute_dtype is a string, this is a number",
                    "unknown_table 23:1 there is no table [optimiser] | it is called [optimizer] here",
                    "unknown_table 25:1 there is no table [speed] | what it says of a point that it provides stands in "
                    "[POINT]",
                    "unknown_table 27:1 there is no table [listens] | what it says of a point that it provides stands "
                    "in [POINT]",
                    "unknown_key 30:1 [links] has no key `alow` | it is called `allow` here",
                    "unknown_key 35:1 [operator.scan] has no key `note` | it has: arguments, results, doc, dtypes"}));
}

TEST(PluginToml, SaysWhatItCoversWhereItRunsAndTheTypesOfResults) {
  const auto [info, errors] = read_after_head(
      "[points]\nprovides = [\"mlp\"]\n[capabilities]\ndevices = [\"cuda\"]\n"
      "[mlp]\ncovers = [\"linear\", \"gated\"]\n"
      "[operator.mlp]\narguments = \"x\"\nresults = \"y\"\ndoc = \"s\"\ndtypes = [\"compute\"]\n");
  ASSERT_EQ(errors, Errors{});
  EXPECT_EQ(info->devices, std::vector<std::string>{"cuda"});
  EXPECT_EQ(info->facts.at("mlp").at("covers").as_list().size(), 2u);
  EXPECT_EQ(info->operators.at(0).dtypes, std::vector<std::string>{"compute"});
}

TEST(PluginToml, RefusesCoversDevicesAndTypesThatAreNone) {
  EXPECT_EQ(read_after_head("[points]\nprovides = [\"mlp\"]\n[capabilities]\ndevices = [\"tpu\"]\n"
                            "[mlp]\ncovers = \"linear\"\nbest_in = [\"training\"]\n"
                            "[operator.mlp]\narguments = \"x\"\nresults = \"y\"\ndoc = \"s\"\ndtypes = [\"wide\"]\n")
                .errors,
            (Errors{"not_a_choice 10:12 capabilities.devices is cpu or cuda, this is `tpu`",
                    "wrong_type 12:10 mlp.covers is a list of names of operators, this is `linear` | covers = "
                    "[\"linear\"]",
                    "not_a_choice 13:12 mlp.best_in is train, eval or sample, this is `training`",
                    "not_a_choice 18:11 operator.mlp.dtypes is compute, weight, arguments, statistics or any, this is "
                    "`wide`"}));
}

TEST(PluginToml, SaysWhatARunWithItEquals) {
  const std::string head = "[capabilities]\nequals = ";
  for (const char* right : {"\"exact\"", "\"other\"", "\"1e-4\""})
    EXPECT_EQ(read_after_head(head + right + "\n").errors, Errors{}) << right;
  EXPECT_EQ(
      read_after_head(head + "\"about\"\n").errors,
      (Errors{"not_a_choice 8:10 capabilities.equals is exact, other or how far losses are apart, this is `about` "
              "| equals = \"exact\", or \"1e-4\""}));
  EXPECT_EQ(read_after_head(head + "\"-1\"\n").errors.size(), 1u);
}

TEST(PluginToml, NamesTheNearestKey) {
  EXPECT_EQ(read_after_head("sumary = 1\n[points]\nprovide = []\n[capabilities]\nthings = []\n").errors,
            (Errors{
                "unknown_key 7:1 [plugin] has no key `sumary` | it is called `summary` here",
                "unknown_key 9:1 [points] has no key `provide` | it is called `provides` here",
                "unknown_key 11:1 [capabilities] has no key `things` | it has: provides, requires, exclusive, "
                "conflicts, syncs, devices, equals, after, before",
            }));
}

TEST(PluginToml, ProvidesEachPointOnceByItsName) {
  EXPECT_EQ(
      read_after_head("[points]\nprovides = [\"schedule\", \"optimiser\"]\n[optimizer]\ndevices = [\"cpu\"]\n").errors,
      Errors{"unknown_point 8:25 there is no point `optimiser` | it is called `optimizer`"});
  const std::string missing =
      "[optimizer] speaks of a point that the plugin does not provide | [points] provides = [\"optimizer\"]";
  EXPECT_EQ(read_after_head("[optimizer]\ncut = \"rows\"\n").errors, Errors{"schema_broken 7:1 " + missing});
  EXPECT_EQ(read_after_head("[points]\nprovides = [\"schedule\"]\n[optimizer]\ndevices = [\"cpu\"]\n").errors[0],
            "schema_broken 9:1 " + missing);
  EXPECT_EQ(read_after_head("[points]\nprovides = [\"optimizer\", \"optimizer\"]\n").errors,
            Errors{"schema_broken 8:26 points.provides names `optimizer` twice"});
}

TEST(PluginToml, NeitherPrecedesNorExcludesItself) {
  EXPECT_EQ(read_after_head("[capabilities]\nafter = [\"a.b\", \"optimizer.acme\"]\nbefore = [\"optimizer.acme\"]\n"
                            "conflicts = [{ with = \"optimizer.acme\", why = \"w\", fix = \"f\" }]\n")
                .errors,
            (Errors{"schema_broken 8:17 capabilities.after names `optimizer.acme` itself",
                    "schema_broken 9:11 capabilities.before names `optimizer.acme` itself",
                    "schema_broken 10:14 capabilities.conflicts names `optimizer.acme` itself"}));
}

TEST(PluginToml, NamesDevicesThatThereAreAndKeysOfItsOwn) {
  const std::string head = "[points]\nprovides = [\"optimizer\", \"device\", \"model\"]\n";
  EXPECT_EQ(read_after_head(head + "[optimizer]\ndevices = [\"cpu\", \"cpuu\", 1]\n[device]\nkind = \"gpu\"\n").errors,
            (Errors{"not_a_choice 10:19 optimizer.devices is cpu or cuda, this is `cpuu`",
                    "not_a_choice 10:27 optimizer.devices is cpu or cuda, this is a number",
                    "not_a_choice 12:8 device.kind is cpu or cuda, this is `gpu`"}));
  EXPECT_EQ(read_after_head("[labels]\nare = \"next\"\n").errors,
            Errors{"not_a_choice 8:7 labels.are is in_place, this is `next`"});
  EXPECT_EQ(
      read_after_head(head + "[names]\noperators = \"keep\"\n[model]\ncontext = \"length\"\n[device]\nwait = \"idle\"\n"
                             "[config.kept]\ntype = \"int\"\n")
          .errors,
      (Errors{"schema_broken 10:13 names.operators names `keep`, which is no key of [config]",
              "schema_broken 12:11 model.context names `length`, which is no key of [config]",
              "schema_broken 14:8 device.wait names `idle`, which is no key of [config]"}));
}

TEST(PluginToml, ListsTheAttributesOfAnOperator) {
  const std::string head = "[points]\nprovides = [\"optimizer\", \"scan\"]\n";
  EXPECT_EQ(read_after_head(head + "[scan]\nattributes = [\"width\", \"init\"]\n").errors, Errors{});
  EXPECT_EQ(read_after_head(head + "[scan]\nattributes = [\"width\", 1]\n").errors,
            (Errors{"wrong_type 10:24 scan.attributes is a list of names of attributes, this is a number | "
                    "attributes = [\"width\", \"init\"]"}));
  EXPECT_EQ(read_after_head(head + "[scan]\nattributes = \"width\"\n").errors.size(), 1u);
  EXPECT_EQ(read_after_head(head + "[load]\nadds = [\"segments\"]\nremoves = []\n").errors, Errors{});
  EXPECT_EQ(read_after_head(head + "[load]\nremoves = \"segments\"\n").errors,
            (Errors{"wrong_type 10:11 load.removes is a list of names of fields of a batch, this is `segments` | "
                    "removes = [\"segments\"]"}));
  const std::string model = "[points]\nprovides = [\"model\"]\n[model]\nmodes = ";
  EXPECT_EQ(read_after_head(model + "[\"train\", \"eval\"]\n").errors, Errors{});
  for (const char* wrong : {"\"train\"", "[\"trains\"]", "[1]"})
    EXPECT_EQ(read_after_head(model + wrong + "\n").errors.size(), 1u) << wrong;
  EXPECT_EQ(read_after_head("[metric]\nin_training = \"nothing\"\n").errors.size(), 1u) << "no key of [config]";
  EXPECT_EQ(read_after_head(head + "[optimizer]\nattributes = [\"width\"]\n").errors,
            (Errors{"unknown_key 10:1 [optimizer] has no key `attributes` | it has: cut, devices"}));
  EXPECT_EQ(read_after_head("[points]\nprovides = [\"schedule\"]\n[schedule]\nattributes = [\"width\"]\ncovers = []\n")
                .errors,
            (Errors{"unknown_key 10:1 [schedule] has no key `attributes` | it has: devices",
                    "unknown_key 11:1 [schedule] has no key `covers` | it has: devices"}));
  EXPECT_EQ(read_after_head("[load]\nattributes = [\"width\"]\n").errors,
            (Errors{"unknown_key 8:1 [load] has no key `attributes` | it has: adds, removes"}))
      << "a fact for the core";
}

TEST(PluginToml, SaysInWhichModesAWrapperIsCalled) {
  const std::string wraps = "[points]\nwraps = [{ point = \"attention\", band = \"adapt\", optional = true, modes = ";
  const Read read = read_after_head(wraps + "[\"eval\", \"sample\"] }]\n");
  EXPECT_EQ(read.errors, Errors{});
  EXPECT_EQ(read.info.value().wraps.at(0).modes, (std::vector<std::string>{"eval", "sample"}));
  EXPECT_TRUE(read.info.value().wraps.at(0).optional);
  EXPECT_EQ(read_after_head(wraps + "[\"smple\"] }]\n").errors.size(), 1u);
}

TEST(PluginToml, NamesTheNearestKeyInsideAList) {
  EXPECT_EQ(read_after_head("[points]\nwraps = [{ point = \"block\", bant = \"adapt\" }]\n").errors,
            (Errors{
                "missing_key 8:10 points.wraps has no `band` | band = \"adapt\"",
                "unknown_key 8:29 points.wraps has no key `bant` | it is called `band` here",
            }));
}

TEST(PluginToml, SaysAllThatIsMissing) {
  EXPECT_EQ(read("[plugin]\nid = \"optimizer.acme\"\n").errors,
            (Errors{
                "missing_key 1:1 [plugin] has no `version` | version = \"0.1.0\"",
                "missing_key 1:1 [plugin] has no `summary` | summary = \"…\"",
                "missing_key 1:1 [plugin] has no `status` | status = \"alpha\"",
                "missing_key 1:1 [plugin] has no `abi` | abi = \"0.1\"",
            }));
  EXPECT_EQ(read("").errors, Errors{"missing_key 1:1 there is no [plugin] | [plugin]"});
}

TEST(PluginToml, SaysWhatIsOfAnotherType) {
  EXPECT_EQ(read_after_head("[points]\nprovides = [1]\nlistens = [3]\n[capabilities]\nsyncs = true\n").errors,
            (Errors{
                "wrong_type 8:13 points.provides is a list of texts, this is 1 | provides = [\"1\"]",
                "wrong_type 9:11 points.listens is a list of tables | listens = [{ … }]",
                "wrong_type 11:9 capabilities.syncs is a list of texts, this is true or false | syncs = [\"…\"]",
            }));
  EXPECT_EQ(read_after_head("[operator]\nswirl = 1\n").errors,
            Errors{"wrong_type 8:9 `operator.swirl` is a table, this is a number | [operator.swirl]"});
}

TEST(PluginToml, KeepsToTheFormOfEachText) {
  EXPECT_EQ(read("[plugin]\nid = \"Optimizer\"\nversion = \"1\"\nsummary = \"\"\nstatus = \"done\"\ntier = "
                 "\"nativ\"\nabi = \"0.x\"\n")
                .errors,
            (Errors{
                "wrong_type 2:6 plugin.id is the id of a plugin, this is \"Optimizer\" | id = \"family.name\"",
                "out_of_range 3:11 plugin.version is 3 numbers, this is `1` | version = \"0.1.0\"",
                "not_a_choice 5:10 plugin.status is alpha or stable, this is `done`",
                "not_a_choice 6:8 plugin.tier is portable or native, this is `nativ` | tier = \"native\"",
                "out_of_range 7:7 plugin.abi is 2 numbers, this is `0.x` | abi = \"0.1\"",
            }));
}

TEST(PluginToml, HasNoEmptyVersion) {
  std::string text(kHead);
  text.replace(text.find("\"0.1\""), 5, "\"\"");
  EXPECT_EQ(read(text).errors, Errors{"out_of_range 6:11 plugin.abi is 2 numbers, this is `` | abi = \"0.1\""});
}

TEST(PluginToml, HasOneNameWithItsFile) {
  EXPECT_EQ(read(std::string(kHead), "optimizer.acne").errors,
            Errors{"id_differs 2:11 [plugin] says `optimizer.acme`, its file is called `optimizer.acne` | one name for "
                   "id, folder and library: id = "
                   "\"optimizer.acne\""});
}

TEST(PluginToml, DoesNotTakeATypoForASlot) {
  EXPECT_EQ(read_after_head("[capabilites]\nsyncs = []\n").errors,
            Errors{"unknown_table 7:1 there is no table [capabilites] | it is called [capabilities] here"});
}

TEST(PluginToml, SaysWhereItIsNoToml) {
  const Read read = read_after_head("[points\n");
  ASSERT_EQ(read.errors.size(), 1u);
  EXPECT_EQ(read.errors[0].substr(0, 14), "toml_syntax 7:");
}

TEST(PluginId, IsFamilyAndName) {
  for (const char* good : {"a.b", "optimizer.adamw_8bit", "x1.y2"}) EXPECT_TRUE(is_id(good)) << good;
  for (const char* bad : {"", ".", "a", "a.", ".b", "a.b.c", "A.b", "a.B", "1.b", "a.1", "a-b.c", "_a.b", "a. b"})
    EXPECT_FALSE(is_id(bad)) << bad;
}

// ---- folders ----

void place(const std::filesystem::path& toml, const std::string& id) {
  std::string text(kHead);
  write_file(toml, text.replace(text.find("optimizer.acme"), 14, id));
}

TEST(Scan, FindsLibrariesAndFoldersAndNothingElse) {
  const TemporaryFolder folder;
  place(folder / "a.flat.toml", "a.flat");
  write_file(folder / "a.flat.so", "");
  place(folder / "b.own/b.own.toml", "b.own");
  place(folder / "c.plain/plugin.toml", "c.plain");
  place(folder / "d.alone.toml", "d.alone");  // its library is missing
  write_file(folder / "run.toml", "[run]\n");
  write_file(folder / "libacme.so", "");
  write_file(folder / "README.md", "");
  Report report;
  const auto plugins = scan_plugins({folder.text(), folder.text() + "/nowhere", folder.text() + "/"}, report);
  EXPECT_TRUE(report.all().empty()) << report.all()[0].message;
  ASSERT_EQ(plugins.size(), 4u);
  EXPECT_EQ(plugins.at("a.flat").library, folder / "a.flat.so");
  EXPECT_EQ(plugins.at("b.own").library, folder / "b.own/b.own.so");
  EXPECT_EQ(plugins.at("c.plain").library, folder / "c.plain/c.plain.so");
  EXPECT_EQ(plugins.at("c.plain").toml_path, folder / "c.plain/plugin.toml");
}

TEST(Scan, NamesBothOfTwo) {
  const TemporaryFolder folder;
  place(folder / "one/a.b/plugin.toml", "a.b");
  place(folder / "two/a.b/plugin.toml", "a.b");
  Report report;
  scan_plugins({folder / "one", folder / "two"}, report);
  ASSERT_EQ(report.all().size(), 1u);
  const Diagnostic& d = report.all()[0];
  EXPECT_EQ(d.code, "plugin_twice");
  EXPECT_EQ(d.message, "there are two plugins called `a.b`");
  EXPECT_EQ(d.at, (folder / "one/a.b/plugin.toml").string() + " and " + (folder / "two/a.b/plugin.toml").string());
}

TEST(Scan, GoesOnAfterAMistake) {
  const TemporaryFolder folder;
  write_file(folder / "a.bad/plugin.toml", "[plugin]\nid = 3\n");
  place(folder / "b.good/plugin.toml", "b.good");
  Report report;
  const auto plugins = scan_plugins({folder.text()}, report);
  EXPECT_EQ(plugins.size(), 1u);
  EXPECT_EQ(report.all()[0].plugin, "a.bad");
}

TEST(Scan, KnowsAPluginWhoseLibraryIsMissing) {
  const TemporaryFolder folder;
  write_file(folder / "a.b.toml",
             "[plugin]\nid = \"a.b\"\nversion = \"0.1.0\"\nsummary = \"x\"\nstatus = \"alpha\"\nabi = \"0.1\"\n");
  write_file(folder / "my.run.toml", "[run]\nlength = 3\n");  // a manifest
  Report report;
  const auto plugins = scan_plugins({folder.text()}, report);
  EXPECT_TRUE(report.all().empty());
  ASSERT_EQ(plugins.size(), 1u);
  EXPECT_EQ(plugins.at("a.b").library, folder / "a.b.so");
}

TEST(Scan, WarnsOfALibraryWithoutItsToml) {
  const TemporaryFolder folder;
  write_file(folder / "a.b.so", "");
  Report report;
  EXPECT_TRUE(scan_plugins({folder.text()}, report).empty());
  ASSERT_EQ(report.all().size(), 1u);
  EXPECT_FALSE(report.has_errors());
  EXPECT_EQ(report.all()[0].code, "plugin_without_toml");
  EXPECT_EQ(report.all()[0].message, "a.b.so has no plugin.toml beside it");
}

TEST(Scan, WarnsOnceOfEachPlaceThatOthersMayChange) {
  using fs = std::filesystem::perms;
  const TemporaryFolder folder;
  for (const char* name : {"a.flat", "b.flat"}) {
    place(folder / ("open/" + std::string(name) + ".toml"), name);
    write_file(folder / ("open/" + std::string(name) + ".so"), "");
  }
  place(folder / "closed/c.own/plugin.toml", "c.own");
  write_file(folder / "closed/c.own/c.own.so", "");
  std::filesystem::permissions(folder / "open", fs::others_write, std::filesystem::perm_options::add);
  std::filesystem::permissions(folder / "closed/c.own/c.own.so", fs::others_write, std::filesystem::perm_options::add);
  Report report;
  const std::string open = folder / "open";
  EXPECT_EQ(scan_plugins({open, folder / "closed"}, report).size(), 3u);
  EXPECT_EQ(scan_plugins({open + "/"}, report).size(), 2u);
  ASSERT_EQ(report.all().size(), 2u);
  EXPECT_FALSE(report.has_errors());
  EXPECT_EQ(report.all()[0].message, "the plugin folder " + open + " may be changed by everybody");
  EXPECT_EQ(report.all()[0].fixes.at(0), "chmod o-w " + open);
  EXPECT_EQ(report.all()[1].message, "the library of c.own may be changed by everybody");
}

TEST(PluginToml, SaysAModelsNamesInOtherPeoplesFiles) {
  const Read read = read_after_head(R"([huggingface]
harmless = ["summary_*"]
[huggingface.keys]
decay = "n_decay"
[config.decay]
type = "int"
)");
  ASSERT_TRUE(read.info) << read.errors[0];
  EXPECT_TRUE(read.info->huggingface.knows("n_decay"));
  EXPECT_FALSE(read.info->facts.contains("huggingface"));
  EXPECT_EQ(read_after_head("[huggingface]\nharmles = []\n[huggingface.keys]\ndecay = \"n_decay\"\n").errors,
            (Errors{"schema_broken 8:1 [huggingface] has no key `harmles` | it has: architectures, classes, fixed, "
                    "harmless, ignores, keys, new, parameters, renames, sizes, tokens, where",
                    "schema_broken 10:1 [huggingface] speaks of `decay`, which is no key of [config] | "
                    "[config.decay]"}));
  EXPECT_EQ(read_after_head("huggingfase = 1\n").errors.size(), 1u);
}

TEST(Scan, TrustsTheGroupThatIsItsOwnersAlone) {
  const TemporaryFolder folder;
  place(folder / "a.flat.toml", "a.flat");
  write_file(folder / "a.flat.so", "");
  std::filesystem::permissions(folder.text(), std::filesystem::perms::group_write, std::filesystem::perm_options::add);
  const gid_t other = 65534;  // nogroup
  Report own, others;
  scan_plugins({folder.text()}, own);
  if (chown(folder.text().c_str(), uid_t(-1), other) != 0) GTEST_SKIP() << "only root may give files away";
  EXPECT_TRUE(own.all().empty()) << own.all()[0].message;
  scan_plugins({folder.text()}, others);
  ASSERT_EQ(others.all().size(), 1u);
  EXPECT_EQ(others.all()[0].code, "plugin_writable");
}

TEST(Scan, FindsTheFixtures) {
  Report report;
  const auto plugins = scan_plugins({MORTISE_FIXTURES}, report);
  EXPECT_TRUE(report.all().empty());
  EXPECT_EQ(plugins.at("fixture.good").toml_text, fixture("good").toml_text);
}

}  // namespace
}  // namespace mortise
