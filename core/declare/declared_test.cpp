// A run as it is declared: who provides each layer, which optimizer has which parameter, lengths in steps. The plugins
// are those of this build, started over an edge without tensors.
#include "core/declare/declared.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/declare/summary.hpp"
#include "core/declare/test_planned.hpp"

namespace mortise::testing {
namespace {

struct Ready {
  PlannedRun planned;
  Declared d;
  explicit Ready(const std::string& more = "", const std::vector<std::string>& set = {},
                 const std::vector<std::string>& without = {})
      : planned(more, set, without), d(declare(planned.request(), std::make_unique<Edge>(planned.plan.points, 1))) {}
  explicit Ready(PlannedRun of)
      : planned(std::move(of)), d(declare(planned.request(), std::make_unique<Edge>(planned.plan.points, 1))) {}
  Declaration& declaration() { return d.edge->declaration(); }
  std::string provider(const std::string& path, uint32_t mode = MORTISE_TRAIN) {
    for (const mortise_layer& l : declaration().layers)
      if (l.path == path) return planned.plan.members[static_cast<size_t>(d.layers->member(l, mode))].info->schema.id;
    return "no layer " + path;
  }
};

Diagnostic refused(const std::string& more, const std::vector<std::string>& set = {}) {
  try {
    const Ready ready(more, set);
  } catch (const Failure& f) {
    return f.diagnostic;
  }
  ADD_FAILURE() << "not refused";
  return {};
}

// ---- parameters ----

TEST(Parameters, AreAsTheyWillBeWhereListenersReadThem) {
  Ready run(
      "[adapter.lora]\nwhere = \"h.*.mlp.*\"\nalso = [\"tag:mine\"]\n[ema.weights]\n"
      "[parameters.head]\nwhere = \"ln_f.*\"\nfreeze = false\n"
      "[parameters.mine]\nwhere = \"wpe.*\"\ntags = [\"mine\"]\n"
      "[parameters.none]\nwhere = \"h.0.*.lora_A.*\"\nfreeze = true\n");
  EXPECT_TRUE(run.declaration().find("wpe.weight")->info.trainable) << "by a tag of a rule";
  std::set<std::string> learn, averaged;
  for (const mortise_param& p : run.declaration().params)
    if (p.info.trainable) learn.insert(p.name);
  ASSERT_EQ(run.d.edge->services.kept.size(), 1u);
  for (const ParamStates& p : run.d.edge->services.kept[0].beside) averaged.insert(p.param->name);
  EXPECT_TRUE(learn.contains("ln_f.weight")) << "the manifest's word is the last";
  EXPECT_EQ(averaged, learn);
}

// ---- layers ----

TEST(Layers, TheMoreParticularClaimTakesItsPlacesAndModes) {
  Ready run("[attention.flash]\n[attention.math]\nwhere = \"h.1.*\"\nmodes = [\"eval\", \"sample\"]\n");
  EXPECT_EQ(run.provider("h.0.attn.attention"), "attention.flash");
  EXPECT_EQ(run.provider("h.0.attn.attention", MORTISE_EVAL), "attention.flash");
  EXPECT_EQ(run.provider("h.1.attn.attention"), "attention.flash");
  EXPECT_EQ(run.provider("h.1.attn.attention", MORTISE_EVAL), "attention.math");
  EXPECT_EQ(run.provider("h.1.attn.attention", MORTISE_SAMPLE), "attention.math");
}

TEST(Layers, AreCountedWithinTheirOwnPoint) {
  Ready run("[attention.flash]\n[attention.math]\nwhere = { every = 2, from = 1 }\n");
  EXPECT_EQ(run.provider("h.0.attn.attention"), "attention.flash");
  EXPECT_EQ(run.provider("h.1.attn.attention"), "attention.math");
  std::vector<uint32_t> index_of;
  const int point = run.planned.plan.points.find("attention");
  const auto elements = elements_at(run.declaration(), static_cast<uint32_t>(point), &index_of);
  ASSERT_EQ(elements.size(), 2u);
  EXPECT_EQ(elements[1].path, "h.1.attn.attention");
  EXPECT_EQ(run.declaration().layers[index_of[1]].path, "h.1.attn.attention");
}

// Flash has no dropout: a chooser passes on to the next that can run there, in training only.
TEST(Layers, AChooserTakesTheFirstThatSupportsThePlace) {
  Ready plain;
  EXPECT_EQ(plain.provider("h.0.attn.attention"), "attention.flash");
  Ready drops("", {"model.gpt.dropout=0.1"});
  EXPECT_EQ(drops.provider("h.0.attn.attention"), "attention.math");
  EXPECT_EQ(drops.provider("h.0.attn.attention", MORTISE_EVAL), "attention.flash");
  EXPECT_EQ(drops.d.layers->chosen().at("attention.auto"),
            (std::vector<std::string>{"attention.math", "attention.flash"}));
}

TEST(Layers, AChooserTakesWhoIsMadeForOtherModesLast) {
  PlannedRun planned;
  planned.catalogue.at("attention.flash").facts["attention"]["best_in"] = {
      std::vector<Value>{{std::string("train"), {}}}, {}};
  Ready run(std::move(planned));
  EXPECT_EQ(run.provider("h.0.attn.attention"), "attention.flash");
  EXPECT_EQ(run.provider("h.0.attn.attention", MORTISE_EVAL), "attention.math");
  EXPECT_EQ(run.provider("h.0.attn.attention", MORTISE_SAMPLE), "attention.math");
}

TEST(Layers, WhatCannotRunThereIsRefusedWithItsPlace) {
  const Diagnostic d = refused("[attention.flash]\n", {"model.gpt.dropout=0.1"});
  EXPECT_EQ(d.code, "cannot_run_here");
  EXPECT_NE(d.message.find("attention.flash cannot run at h.0.attn.attention: "), std::string::npos) << d.message;
  // A fallback is for machines that lack something.
  const Diagnostic fallback =
      refused("[attention.flash]\nfallback = [\"attention.math\"]\n", {"model.gpt.dropout=0.1"});
  EXPECT_EQ(fallback.fixes.size(), d.fixes.size() + 1);
  EXPECT_EQ(
      fallback.fixes.back(),
      "write [attention.math] itself: `fallback` is for a machine that lacks what attention.flash needs, or for bits "
      "that must repeat");
}

TEST(Layers, AProviderHearsWhetherTheStepIsRecorded) {
  const auto planned = [](const std::string& more) {
    PlannedRun run("[layer.moe]\nwhere = \"h.1.mlp\"\nexperts = 2\n" + more);
    run.catalogue.at("device.cpu").wraps.push_back({.point = "step", .band = "capture"});
    return run;
  };
  EXPECT_EQ(Ready(planned("capacity_factor = 1.25\n")).provider("h.1.mlp"), "layer.moe");
  EXPECT_EQ(Ready(planned("modes = [\"eval\", \"sample\"]\n")).provider("h.1.mlp", MORTISE_EVAL), "layer.moe")
      << "who evaluates is not";
  try {
    const Ready waits(planned(""));
    ADD_FAILURE() << "not refused";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "cannot_run_here");
    EXPECT_EQ(f.diagnostic.message,
              "layer.moe cannot run at h.1.mlp: the step is recorded, and the host waits in it for the number of "
              "tokens of each expert");
    EXPECT_EQ(f.diagnostic.fixes.at(0),
              "capacity_factor = 1.25 or so, products = \"grouped\" in bf16, or leave out what records the step");
  }
}

// The members that provide a place in a mode, outermost first.
std::vector<std::string> nested_providers(Ready& run, const std::string& path, uint32_t mode = MORTISE_TRAIN) {
  std::vector<std::string> ids;
  for (const mortise_layer& l : run.declaration().layers)
    if (const int member = run.d.layers->member(l, mode); l.path == path && member >= 0)
      ids.push_back(run.planned.plan.members[static_cast<size_t>(member)].info->schema.id);
  return ids;
}
using Ids = std::vector<std::string>;

TEST(Layers, AProviderThatAsksForItsOwnPlaceGetsTheNextClaim) {
  Ready run("[adapter.lora]\nwhere = \"h.1.attn.c_attn\"\nrank = 2\n");
  EXPECT_EQ(nested_providers(run, "h.0.attn.c_attn"), Ids{"operators.aten"});
  for (const uint32_t mode : {MORTISE_TRAIN, MORTISE_EVAL, MORTISE_SAMPLE})
    EXPECT_EQ(nested_providers(run, "h.1.attn.c_attn", mode), (Ids{"adapter.lora", "operators.aten"}));
  EXPECT_NE(run.declaration().find("h.1.attn.c_attn.weight"), nullptr) << "under the name that it has without";
  EXPECT_NE(run.declaration().find("h.1.attn.c_attn.lora_A.weight"), nullptr);
  const int point = run.planned.plan.points.find("linear");
  size_t here = 0;
  for (const Element& e : elements_at(run.declaration(), static_cast<uint32_t>(point)))
    here += e.path == "h.1.attn.c_attn";
  EXPECT_EQ(here, 1u) << "`every` counts places";
  EXPECT_EQ(run.d.layers->inside().at("adapter.lora"), Ids{"operators.aten"});
  EXPECT_EQ(summary_of(run.d, "").details.at("adapter.lora"), "around operators.aten");
}

// In the other modes nobody asks for the layer inside, and both share their parameters.
TEST(Layers, AProviderThatWrapsInOneModeLeavesTheOthersAlone) {
  Ready run("[adapter.lora]\nwhere = \"h.1.attn.c_attn\"\nmodes = [\"train\"]\nrank = 2\n");
  EXPECT_EQ(nested_providers(run, "h.1.attn.c_attn"), (Ids{"adapter.lora", "operators.aten"}));
  EXPECT_EQ(nested_providers(run, "h.1.attn.c_attn", MORTISE_EVAL), Ids{"operators.aten"});
  EXPECT_EQ(Ready().declaration().params.size() + 2, run.declaration().params.size());
}

// Also where its own `where` takes them.
TEST(Layers, AProviderProvidesNothingOfItsSlotInsideItself) {
  Ready run("[layer.moe]\nwhere = \"h.*\"\nexperts = 2\n");
  EXPECT_EQ(nested_providers(run, "h.1.mlp"), Ids{"layer.moe"});
  EXPECT_EQ(nested_providers(run, "h.1.mlp.experts.1"), Ids{"operators.aten"});
  EXPECT_EQ(refused("[layer.moe]\n").message, "nothing provides `mlp` at h.0.mlp.experts.0 inside layer.moe");
}

TEST(Layers, AProviderThatWrapsWithoutAnotherInsideIsRefused) {
  const Diagnostic d = refused("[adapter.lora]\nrank = 2\n");
  EXPECT_EQ(d.code, "nothing_provides");
  EXPECT_EQ(d.message.find("nothing provides `linear` at h.0.attn.c_attn inside adapter.lora"), 0u) << d.message;
  EXPECT_EQ(d.fixes.at(0),
            "[adapter.lora] where = \"*.c_attn\", or others: inside its own layers it needs what another table "
            "provides");
  const Diagnostic high = refused("[adapter.lora]\nwhere = \"h.0.attn.c_attn\"\nrank = 9\n");
  EXPECT_EQ(high.code, "cannot_run_here");
  EXPECT_EQ(high.fixes.at(0), "[adapter.lora] rank = 8, or a `where` without this layer");
}

TEST(Layers, AClaimThatTakesNothingIsRefused) {
  const Diagnostic d = refused("[attention.math]\nwhere = \"h.9.*\"\n");
  EXPECT_EQ(d.code, "matches_nothing");
  // Of the model, but nowhere where the plugin attaches: checkpointing repeats blocks.
  EXPECT_EQ(refused("[activation.checkpointing]\nwhere = \"h.1.attn\"\n").code, "matches_nothing");
  EXPECT_EQ(refused("[optimizer.adamw]\n[precision.bf16]\nwhere = \"slot:linear\"\n").code, "matches_nothing");
}

TEST(Data, MustHaveSomethingToEvaluateOnForTheBestToBeKept) {
  const std::vector<std::string> none = {"checkpoint.best=eval.loss", "data.random.validation_samples=0"};
  const Diagnostic d = refused("", none);
  EXPECT_EQ(d.code, "no_validation_data");
  EXPECT_EQ(d.positions.at(0).text(), "command line: --set checkpoint.best=eval.loss");
  EXPECT_EQ(d.fixes.size(), 1u);
  const Ready held_out("", {none[0], none[1], "data.validation=0.5"}), own("", {none[0]});
}

TEST(Data, MustHaveSomethingToEvaluateOnForEvaluations) {
  const std::vector<std::string> none = {"data.random.validation_samples=0", "eval.every=2", "eval.at_start=true"};
  const Ready run("", none);
  ASSERT_EQ(run.d.warnings.size(), 2u);
  EXPECT_EQ(run.d.warnings[0].code, "no_validation_data");
  EXPECT_EQ(run.d.warnings[0].positions.at(0).text(), "command line: --set eval.every=2");
  EXPECT_EQ(run.d.warnings[1].positions.at(0).text(), "command line: --set eval.at_start=true");
  EXPECT_EQ(Ready("", {none[0]}).d.warnings.size(), 0u) << "who did not ask for them";
  EXPECT_EQ(Ready("", {none[0], none[1], "data.validation=0.5"}).d.warnings.size(), 0u);
}

TEST(Data, MustHaveSomethingToEvaluateOnForMetrics) {
  const std::vector<std::string> none = {"data.random.validation_samples=0"};
  const Ready run("[metric.accuracy]\n", none);
  ASSERT_EQ(run.d.warnings.size(), 1u);
  EXPECT_EQ(run.d.warnings[0].message,
            "metric.accuracy measures eval.accuracy, and the run has nothing to evaluate on");
  EXPECT_EQ(run.d.warnings[0].positions.at(0).text(), "run.toml:14:1");
  EXPECT_EQ(Ready("[metric.accuracy]\nin_training = true\n", none).d.warnings.size(), 0u);
  EXPECT_EQ(Ready("[metric.accuracy]\n").d.warnings.size(), 0u) << "it has";
}

// Their names are the data's; how many there are, the model asks for.
TEST(Data, SaysHowManyClassesThereAre) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("mortise_declared_test_" + std::to_string(getpid()) + ".csv");
  std::ofstream(file) << "t,y\na,no\nb,yes\nc,maybe\n";
  Ready run("[tokenizer.byte]\n[data.table]\npath = \"" + file.string() + "\"\ntext = \"t\"\nlabel = \"y\"\n", {},
            {"data.random"});
  EXPECT_EQ(run.declaration().facts.at("classes"), 3);
  EXPECT_FALSE(Ready().declaration().facts.contains("classes"));
  EXPECT_TRUE(run.declaration().facts.contains("field.attention_mask"));
  // A wrapper of `load` that takes one away and adds others.
  Ready packed(
      "[tokenizer.byte]\n[data.pack]\n[data.table]\npath = \"" + file.string() + "\"\ntext = \"t\"\nlabel = \"y\"\n",
      {}, {"data.random"});
  EXPECT_FALSE(packed.declaration().facts.contains("field.attention_mask"));
  EXPECT_EQ(packed.declaration().facts.at("field.segments"), 1);
  EXPECT_FALSE(run.declaration().facts.contains("field.segments"));
  std::filesystem::remove(file);
}

// ---- optimizers ----

TEST(Optimizers, HaveEachTrainableParameterOnce) {
  Ready run(
      "[optimizer.adamw]\n[optimizer.sgd]\nwhere = \"role:embedding\"\nmomentum = 0.9\n"
      "[parameters.still]\nwhere = \"h.0.*\"\nfreeze = true\n");
  std::map<std::string, std::string> of;
  for (const DeclaredOptimizer& o : run.d.optimizers)
    for (const auto& slot : o.states) {
      EXPECT_TRUE(of.emplace(slot.param->name, o.by->id()).second) << slot.param->name << " twice";
      EXPECT_EQ(slot.states.size(), o.by->id() == "optimizer.sgd" ? 1u : 2u);
      for (const StateSpec& s : slot.states) EXPECT_EQ(s.sizes, slot.param->sizes);
    }
  for (const mortise_param& p : run.declaration().params) {
    const bool still = p.name.starts_with("h.0.");
    EXPECT_EQ(static_cast<bool>(p.info.trainable), !still) << p.name;
    EXPECT_EQ(of[p.name], still ? "" : p.role == "embedding" ? "optimizer.sgd" : "optimizer.adamw") << p.name;
  }
}

TEST(Optimizers, NeedSomethingThatIsNotFrozen) {
  const Diagnostic d = refused("[parameters.f]\nwhere = [\"*\"]\nfreeze = true\n");
  EXPECT_EQ(d.code, "nothing_to_train");
  EXPECT_EQ(d.message.substr(0, 4), "all ");
  ASSERT_EQ(d.positions.size(), 1u);
  EXPECT_EQ(d.positions[0].text(), "run.toml:16:10");
  const Ready rest("[parameters.f]\nwhere = [\"*.weight\"]\nfreeze = true\n");
}

TEST(Optimizers, TakeTheirOwnNumbersTheFamilysOrTheirDefaults) {
  const auto rates = [](const std::string& more) {
    Ready run("[optimizer.adamw]\n" + more);
    std::map<std::string, std::pair<double, double>> all;
    for (const mortise_param& p : run.declaration().params) {
      const Group& g = run.d.groups[static_cast<size_t>(p.info.group)];
      all[p.name] = {g.lr, g.weight_decay};
    }
    return all;
  };
  using Pair = std::pair<double, double>;
  const auto defaults = rates("");
  EXPECT_EQ(defaults.at("wte.weight"), (Pair{1e-3, 0.01})) << "of the plugin";
  EXPECT_EQ(defaults.at("h.0.ln_1.weight"), (Pair{1e-3, 0.0})) << "default.toml does not decay norms";
  EXPECT_EQ(rates("[optimizer]\nlr = 0.5\n").at("wte.weight").first, 0.5);
  EXPECT_EQ(rates("[parameters.slow]\nwhere = \"wte.*\"\nlr_scale = 0.5\n").at("wte.weight").first, 5e-4);
  EXPECT_EQ(rates("[parameters.own]\nwhere = \"wte.*\"\nlr = 2.0\nweight_decay = 0.5\n").at("wte.weight"),
            (Pair{2.0, 0.5}));
}

TEST(Optimizers, CountTheBytesOfTheirStates) {
  Ready run;
  int64_t elements = run.declaration().count();
  ASSERT_EQ(run.d.optimizers.size(), 1u);
  EXPECT_EQ(bytes_of(run.d.optimizers[0].states), elements * 2 * 4) << "two states in fp32";
}

// ---- lengths ----

// 12 samples in micro-batches of 2: six an epoch, so four, then the two that are left.
TEST(LengthsOfARun, AStepIsAWindow) {
  Ready run("[step.accumulation]\ncount = 4\n", {"run.length=\"3 epochs\""});
  EXPECT_EQ(run.d.window(), 4);
  EXPECT_EQ(run.d.lengths.steps_per_epoch, 2);
  EXPECT_EQ(run.d.lengths.samples_per_step, 8);
  EXPECT_EQ(run.d.lengths.tokens_per_step, 64);
  EXPECT_EQ(run.d.lengths.run, 6);
  EXPECT_EQ(run.d.edge->services.clock.length, 6);
  EXPECT_EQ(run.d.edge->services.clock.micros, 4);
}

// 12 samples: a step ends where the epoch does.
TEST(LengthsOfARun, AStepHasNoMoreSamplesThanThereAre) {
  Ready run("[step.accumulation]\ncount = 100\n", {"run.length=\"960 tokens\""});
  EXPECT_EQ(run.d.lengths.samples_per_step, 12);
  EXPECT_EQ(run.d.lengths.tokens_per_step, 96);
  EXPECT_EQ(run.d.lengths.run, 10) << "of 96 tokens that are there, not of 1,600";
  ASSERT_EQ(run.d.warnings.size(), 1u);
  EXPECT_EQ(run.d.warnings[0].code, "batch_exceeds_data");
  EXPECT_EQ(run.d.warnings[0].message,
            "a step has 12 samples, not the 200 that the manifest asks for: that is all the data");
  EXPECT_EQ(run.d.warnings[0].positions.at(0).text(), "run.toml:14:1");
  EXPECT_EQ(summary_of(run.d, "").batch, "12 samples × 8 tokens (all the data, of 200 asked for) · 10 steps");
  Ready one("", {"data.micro_batch_size=50"});
  ASSERT_EQ(one.d.warnings.size(), 1u);
  EXPECT_EQ(one.d.warnings[0].positions.at(0).text(), "command line: --set data.micro_batch_size=50");
  EXPECT_EQ(Ready("", {"data.micro_batch_size=12"}).d.warnings.size(), 0u);
}

TEST(LengthsOfARun, SequencesAreAsLongAsTheModelTakes) {
  Ready whole("", {"model.gpt.context=32"});
  EXPECT_EQ(whole.d.sequence_length, 8);
  EXPECT_EQ(refused("", {"model.gpt.context=4"}).code, "sequence_too_long");
}

// ---- several ranks ----

constexpr const char* kSharded =
    "[ema.weights]\n[parallel.zero]\nstage = 3\nwhole_below = 65\nbucket_mib = 1\n"
    "[parameters.fixed]\nwhere = \"wpe.*\"\nfreeze = true\n";

Declared declare_second_of_two(const PlannedRun& planned) {
  DeclareRequest request = planned.request();
  request.world.rank = 1;
  request.world.size = 2;
  return declare(request, std::make_unique<Edge>(planned.plan.points, 1));
}

TEST(Shards, AreOfLargeParametersAndWhatIsKeptBesideThem) {
  const PlannedRun planned(kSharded);
  const Declared d = declare_second_of_two(planned);
  Declaration& declaration = d.edge->declaration();
  const mortise_param& sharded = *declaration.find("h.0.attn.c_attn.weight");
  EXPECT_EQ(sharded.info.numel, 192);
  EXPECT_EQ(sharded.shards.own.offset, 128);
  EXPECT_EQ(sharded.shards.own.length, 64);
  EXPECT_EQ(sharded.shards.room, 256) << "parts of 64 elements and of one length";
  EXPECT_TRUE(sharded.shards.comes_and_goes);
  EXPECT_FALSE(declaration.find("ln_f.weight")->is_sharded());
  for (const ParamStates& beside : d.edge->services.kept.at(0).beside)
    EXPECT_EQ(beside.pieces.size(), beside.param->shards.pieces.size()) << beside.param->name;
}

TEST(Shards, AreWhatThePlanCounts) {
  const PlannedRun planned(kSharded), whole;
  const Declared d = declare_second_of_two(planned);
  int64_t own = 0, gradients = 0;
  for (const mortise_param& p : d.edge->declaration().params) {
    const int64_t length = p.is_sharded() ? p.shards.own.length : p.info.numel;
    own += length;
    if (p.info.trainable) gradients += length;
  }
  const Summary s = summary_of(d, "");
  EXPECT_EQ(s.weights_bytes, own * 4);
  EXPECT_EQ(s.gradients_bytes, gradients * 4);
  EXPECT_LT(s.weights_bytes, d.edge->declaration().count() * 4);
  EXPECT_GT(s.transient_bytes, 0);
  const auto& params = d.edge->declaration().params;
  const auto sharded = std::ranges::count_if(params, [](const mortise_param& p) { return p.is_sharded(); });
  EXPECT_EQ(s.parts, "gradients, masters and values of " + std::to_string(sharded) + " of " +
                         std::to_string(params.size()) +
                         " tensors lie in parts on the ranks, of the others states alone");
  EXPECT_EQ(summary_of(declare(whole.request(), std::make_unique<Edge>(whole.plan.points, 1)), "").parts, "");
  const PlannedRun all(
      "[parallel.zero]\nstage = 2\nwhole_below = 0\n[parameters.fixed]\nwhere = \"wpe.*\"\nfreeze = true\n");
  const std::string n = std::to_string(params.size() - 1);
  EXPECT_EQ(summary_of(declare_second_of_two(all), "").parts,
            "gradients of " + n + " of " + n + " tensors lie in parts on the ranks");
  const PlannedRun small("[parallel.zero]\nstage = 2\n");
  EXPECT_EQ(summary_of(declare_second_of_two(small), "").parts,
            "no tensor lies in parts on the ranks, but for its states");
}

TEST(Shards, OfWhatIsKeptOfWholeParametersAreRefused) {
  mortise_param p;
  p.name = "w";
  p.shards.pieces = {{0, 5}, {5, 5}};
  std::vector<ParamStates> kept = {{&p, {{"rows", {2}, MORTISE_F32, 0, false, 0}}}};
  try {
    shard_kept(kept, "mean.rows");
    FAIL() << "not refused";
  } catch (const PluginError& e) {
    EXPECT_EQ(e.text(), "mean.rows keeps `rows` of the whole of w, of which each rank has a part");
  }
  p.shards = {};
  EXPECT_NO_THROW(shard_kept(kept, "mean.rows"));
}

// Of two ranks that share the experts the second has the last two.
TEST(Axes, PutExpertsOnTheirRanks) {
  const PlannedRun planned("[layer.moe]\nexperts = 4\nexpert_parallel = 2\nwhere = \"h.0.mlp\"\n[parallel.ddp]\n"),
      whole;
  const Declared d = declare_second_of_two(planned);
  Declaration& declaration = d.edge->declaration();
  const mortise_param& other = *declaration.find("h.0.mlp.experts.1.c_fc.weight");
  const mortise_param& own = *declaration.find("h.0.mlp.experts.2.c_fc.weight");
  const mortise_param& common = *declaration.find("h.0.attn.c_attn.weight");
  EXPECT_EQ(view(own.info.axis), "experts");
  EXPECT_EQ(own.info.numel, own.whole_numel());
  EXPECT_EQ(own.info.replicas, 1);
  EXPECT_EQ(other.info.numel, 0);
  EXPECT_EQ(other.whole_numel(), own.info.numel);
  EXPECT_EQ(other.info.rank, 2U);
  EXPECT_EQ(common.info.replicas, 2);
  EXPECT_EQ(common.info.replica, 1);
  EXPECT_TRUE(own.counts);
  EXPECT_EQ(d.edge->services.clock.ranks, 2);

  int64_t elements = 0;
  for (const mortise_param& p : declaration.params) elements += p.info.numel;
  EXPECT_LT(elements, declaration.count());
  const Summary s = summary_of(d, "");
  EXPECT_EQ(s.weights_bytes, elements * 4);
  EXPECT_EQ(s.states_bytes, elements * 8);
  EXPECT_EQ(s.parameters, declaration.count());
  EXPECT_EQ(s.axes, (std::vector<std::string>{"experts: along 2 ranks (layer.moe.expert_parallel) lie 16 of " +
                                              std::to_string(declaration.params.size()) +
                                              " tensors, which no other rank has"}));
  ASSERT_EQ(s.proof.size(), 4U);
  EXPECT_EQ(s.proof[1],
            "gradients of 16 tensors: whole along `experts` by layer.moe, not summed: no other rank has a part of it");
  EXPECT_EQ(summary_of(declare(whole.request(), std::make_unique<Edge>(whole.plan.points, 1)), "").proof,
            std::vector<std::string>());
}

// Why the second of two ranks is refused.
Diagnostic refusal_of_two(const PlannedRun& planned) {
  try {
    declare_second_of_two(planned);
  } catch (const Failure& f) {
    return f.diagnostic;
  }
  ADD_FAILURE() << "not refused";
  return {};
}

TEST(Axes, WhoDoesNotSayWhatIsSummedIsRefused) {
  const PlannedRun planned;  // parallel.none, which has nothing to say: it is of one rank
  EXPECT_EQ(refusal_of_two(planned).code, "not_proven");
}

TEST(Axes, OfTwoNamesWantAsManyRanksAsTheyMultiplyTo) {
  PlannedRun planned("[layer.moe]\nexperts = 4\nexpert_parallel = 2\nwhere = \"h.0.mlp\"\n", {"data.random.samples=2"});
  auto& facts = planned.catalogue.at("data.random").facts["ranks"];
  facts["axis"] = {std::string("tensor"), {}};
  facts["size"] = {std::string("samples"), {}};
  const Diagnostic d = refusal_of_two(planned);
  EXPECT_EQ(d.code, "axes_do_not_fit");
  EXPECT_NE(d.message.find(" want a number of ranks that 4 divides; there are 2"), std::string::npos) << d.message;
}

// Work is counted of all ranks, and so is what devices reach.
TEST(Ranks, ReachTogetherWhatTheirDevicesDo) {
  const PlannedRun planned(kSharded);
  Declared d = declare_second_of_two(planned);
  mortise_device device = *d.device.object;
  device.products = [](void*, mortise_str, double* flop_per_s) noexcept {
    *flop_per_s = 1e12;
    return mortise_status{MORTISE_OK};
  };
  d.device.object = &device;
  EXPECT_EQ(summary_of(d, "").flop_per_s_at_most, 2e12);
}

TEST(Axes, OfOneNameAreOne) {
  PlannedRun planned("[layer.moe]\nexperts = 4\nexpert_parallel = 2\nwhere = \"h.0.mlp\"\n");
  auto& facts = planned.catalogue.at("data.random").facts["ranks"];
  facts["axis"] = {std::string("experts"), {}};
  facts["size"] = {std::string("samples"), {}};
  const Diagnostic d = refusal_of_two(planned);
  EXPECT_EQ(d.code, "axes_do_not_fit");
  EXPECT_NE(d.message.find("data.random.samples = 12"), std::string::npos);
}

TEST(Axes, OfOneNameSeeTheSameOrNeitherDoes) {
  PlannedRun planned(
      "[layer.moe]\nexperts = 4\nexpert_parallel = 2\nwhere = \"h.0.mlp\"\n"
      "[adapter.lora]\nrank = 2\nwhere = \"h.0.attn.c_attn\"\n");
  auto& facts = planned.catalogue.at("adapter.lora").facts["ranks"];
  facts["axis"] = {std::string("experts"), {}};
  facts["size"] = {std::string("rank"), {}};
  facts["sees"] = {std::string("same"), {}};
  const Diagnostic d = refusal_of_two(planned);
  EXPECT_EQ(d.code, "axes_do_not_fit") << d.message;
}

TEST(Axes, OfOneProcessThatDoesNotTrainHaveOneRank) {
  const PlannedRun planned("[layer.moe]\nexperts = 4\nexpert_parallel = 2\nwhere = \"h.0.mlp\"\n");
  DeclareRequest request = planned.request();
  request.train_samples = false;
  const Declared d = declare(request, std::make_unique<Edge>(planned.plan.points, 1));
  for (const mortise_param& p : d.edge->declaration().params) EXPECT_FALSE(p.is_placed()) << p.name;
  request.train_samples = true;
  try {
    declare(request, std::make_unique<Edge>(planned.plan.points, 1));
    FAIL() << "not refused";
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.code, "axes_do_not_fit");
  }
}

}  // namespace
}  // namespace mortise::testing
