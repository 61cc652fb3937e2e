#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

class Checks : public ::testing::Test {
 protected:
  World world = World::runnable();
};

TEST_F(Checks, FindNothingWrongWithARunnablePlan) { EXPECT_EQ(world.errors(), ""); }

TEST_F(Checks, SayWhatWouldFillAnEmptySlot) {
  world.drop("optimizer.adamw");
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `optimizer`\n"
            "  fix: [optimizer.adamw]\n");
  world.provider("optimizer.sgd", {"optimizer"});
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `optimizer`\n"
            "  fix: [optimizer.adamw] or [optimizer.sgd]\n"
            "  see: mortise plugin list optimizer\n");
  EXPECT_EQ(world.report.exit_code(), kExitUsage);
  world.manifest.refused = {{"optimizer.adamw", "--without optimizer.adamw"}};
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `optimizer`\n"
            "  fix: [optimizer.sgd] or [optimizer.adamw] in place of --without optimizer.adamw\n"
            "  see: mortise plugin list optimizer\n");
  world.provider("optimizer.fused", {"optimizer"}).devices = {"cuda"};
  world.can_start = [](const PluginInfo& info) { return info.schema.id == "optimizer.sgd" ? "no room" : ""; };
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `optimizer`\n"
            "  fix: [optimizer.adamw] in place of --without optimizer.adamw\n");
}

TEST_F(Checks, ProposeAStableProviderOfTheSlotsOwnFamily) {
  world.drop("optimizer.adamw");
  world.provider("optimizer.adamw", {"optimizer"}).status = "alpha";
  world.provider("offload.nvme", {"optimizer"});
  world.provider("optimizer.zeal", {"optimizer"});
  EXPECT_NE(world.errors().find("  fix: [optimizer.zeal] or [optimizer.adamw]\n"), std::string::npos) << world.text();
}

TEST_F(Checks, SayThatAShareIsNotHeldOutBesideFilesOfItsOwn) {
  Value key, share, files;
  key.data = "validation_path";
  share.data = 0.1;
  share.origin = {"run.toml", 3, 1, "data.validation"};
  files.data = std::vector<Value>();
  files.origin = {"run.toml", 6, 1, "data.text.validation_path"};
  world.catalogue["data.text"].facts["data"]["validation"] = key;
  world.manifest.tables["data"]["validation"] = share;
  EXPECT_EQ(world.errors(), "");
  PluginTable& table =
      *std::ranges::find(world.manifest.plugins, "data.text", [](const PluginTable& t) { return t.schema->id; });
  table.values["validation_path"] = files;
  EXPECT_EQ(world.errors(),
            "warning[validation_unused]: data.validation holds nothing out: data.text has files of its own in "
            "`validation_path`\n"
            "  --> run.toml:3:1 and run.toml:6:1\n"
            "  fix: leave one of them out\n");
  world.manifest.tables["data"]["validation"].data = 0.0;
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, RefuseToSampleFromAModelThatDoesNotSample) {
  const PluginTable model =
      *std::ranges::find_if(world.manifest.plugins, [](const PluginTable& t) { return t.schema->family == "model"; });
  PluginInfo& info = world.catalogue.at(model.schema->id);
  const auto serves = [&](const std::vector<std::string>& modes) {
    std::vector<Value> all;
    for (const std::string& mode : modes) all.push_back({mode, {}});
    info.facts["model"]["modes"] = {all, {}};
  };
  serves({"train", "eval"});
  EXPECT_EQ(world.errors(), "") << "nobody samples";
  world.provider("sample.text", {"sample"});
  world.table("sample.text", 9);
  EXPECT_EQ(world.errors().find("error[cannot_sample]: " + info.schema.id +
                                " gives no logits of a next token: "
                                "sample.text cannot go on with a text\n"),
            0u)
      << world.text();
  serves({"train", "eval", "sample"});
  EXPECT_EQ(world.errors(), "");
  info.facts["model"].erase("modes");
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, SayThatNoInstalledPluginFillsASlot) {
  world.drop("optimizer.adamw");
  world.catalogue.erase("optimizer.adamw");
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `optimizer`\n"
            "  fix: no installed plugin does; --plugin-path DIR names a further folder with plugins\n");
}

TEST_F(Checks, NeedADeviceDataAModelAndAnOptimizerForAnEmptyFile) {
  world.manifest.plugins.clear();
  world.errors();
  Ids messages;
  for (const Diagnostic& d : world.report.all()) messages.push_back(d.message);
  EXPECT_EQ(messages, (Ids{"nothing provides `device`", "nothing provides `comm`", "nothing provides `data`",
                           "nothing provides `model`", "nothing provides `optimizer`", "nothing provides `replicas`"}));
}

TEST_F(Checks, SayWhoNeedsAPointThatNobodyProvides) {
  world.catalogue["data.text"].requires_ = {"tokenizer"};
  world.provider("tokenizer.byte", {"tokenizer"});
  world.provider("tokenizer.huggingface", {"tokenizer"});
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `tokenizer`, which data.text needs\n"
            "  --> run.toml:2:1\n"
            "  fix: [tokenizer.byte] or [tokenizer.huggingface]\n"
            "  see: mortise plugin list tokenizer\n");
  world.table("tokenizer.byte", 20);
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, SayWhoNeedsACapabilityThatNobodyProvides) {
  world.listener("gradient.clip", "grad.transform", {}, {"multiplier"}).requires_ = {"grad.complete"};
  world.table("gradient.clip", 20);
  world.provider("parallel.ddp", {"replicas"}).capabilities = {"grad.complete"};
  EXPECT_EQ(world.errors(),
            "error[nothing_provides]: nothing provides `grad.complete`, which gradient.clip needs\n"
            "  --> run.toml:20:1\n"
            "  fix: [parallel.ddp]\n");
  world.catalogue["parallel.none"].capabilities = {"grad.complete"};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, TakeACallOfTheCoreAsMet) {
  world.catalogue["data.text"].requires_ = {"forward", "device.cpu"};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, RefuseTwoThatCannotBeOnTogetherOnce) {
  world.plugin("offload.optimizer").conflicts = {
      {"optimizer.adamw", "the update is on the CPU, and optimizer.adamw has no CPU implementation", ""}};
  world.catalogue["optimizer.adamw"].conflicts = {{"offload.optimizer", "it has no CPU implementation", ""}};
  world.table("offload.optimizer", 21);
  EXPECT_EQ(world.errors(),
            "error[conflict]: offload.optimizer and optimizer.adamw cannot be on together: the update is on the CPU, "
            "and optimizer.adamw has no CPU "
            "implementation\n"
            "  --> run.toml:21:1 and run.toml:5:1\n"
            "  fix: leave out [offload.optimizer] or [optimizer.adamw]\n");
}

TEST_F(Checks, RefuseACapabilityThatConflictsButNotOnesOwn) {
  PluginInfo& graph = world.plugin("compile.graph");
  graph.capabilities = {"graph.step"};
  graph.conflicts = {{"host.sync", "it cannot be captured", "without compile.graph"},
                     {"graph.step", "only one captures", ""}};
  world.table("compile.graph", 21);
  world.catalogue["optimizer.adamw"].capabilities = {"host.sync"};
  EXPECT_EQ(world.errors(),
            "error[conflict]: compile.graph and optimizer.adamw cannot be on together: it cannot be captured\n"
            "  --> run.toml:21:1 and run.toml:5:1\n"
            "  fix: without compile.graph\n");
}

TEST_F(Checks, RefuseModesWhereNothingIsCalledInAMode) {
  world.listener("log.jsonl", "record");
  PluginTable& table = world.table("log.jsonl", 21);
  table.modes = {1};
  EXPECT_EQ(world.errors(),
            "error[matches_nothing]: `modes` matches nothing: log.jsonl attaches at `record`, called in no mode\n"
            "  --> run.toml:21:1\n"
            "  fix: leave `modes` out\n");
  table.modes = {0, 1, 2};
  EXPECT_NE(world.errors(), "") << "also where all are named";
}

TEST_F(Checks, RefuseModesInWhichAPointIsNeverCalled) {
  world.wrapper("compile.graph", "step", "capture");
  PluginTable& table = world.table("compile.graph", 21);
  table.modes = {1, 2};
  EXPECT_EQ(world.errors(),
            "error[matches_nothing]: `modes` matches nothing: compile.graph attaches at `step`, called in train alone\n"
            "  --> run.toml:21:1\n"
            "  fix: leave `modes` out\n");
  table.modes = {0};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, LetAWrapperBeCalledInSomeModesAlone) {
  world.operators({"attention"});
  world.wrapper("sample.text", "attention", "adapt").wraps[0].modes = {"sample"};
  PluginTable& table = world.table("sample.text", 21);
  const Plan plan = world.plan();
  ASSERT_EQ(plan.at[plan.points.find("attention")].wrappers.size(), 1u);
  EXPECT_EQ(plan.at[plan.points.find("attention")].wrappers[0].modes, 1u << 2);
  table.modes = {0, 2};
  EXPECT_EQ(world.errors(), "");
  table.modes = {0};
  EXPECT_EQ(world.errors(),
            "error[matches_nothing]: `modes` matches nothing: sample.text attaches at `attention`, called in sample "
            "alone\n  --> run.toml:21:1\n  fix: leave `modes` out\n");
}

TEST_F(Checks, LetAWrapperDoWithoutAnOperatorThatIsNotThere) {
  PluginInfo& info = world.wrapper("sample.text", "attention", "adapt");
  world.table("sample.text", 21);
  EXPECT_NE(world.errors(), "");
  info.wraps[0].optional = true;
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, TakeModesOfAPluginThatAlsoActsElsewhere) {
  world.listener("precision.half", "grad.transform", {}, {"multiplier"}).wraps = {{"forward", "cast", false, ""}};
  world.table("precision.half", 21).modes = {1};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, LetTwoThatNeverMeetBeOnTogether) {
  world.plugin("a.eval").conflicts = {{"b.train", "no", ""}};
  world.plugin("b.train");
  world.table("a.eval", 21).modes = {1};
  world.table("b.train", 22).modes = {0};
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, NameTheNearestPointForATypo) {
  world.operators({"linear"});
  world.wrapper("adapter.lora", "linaer", "adapt").wraps[0].origin = {"plugins/adapter.lora.toml", 11, 10, ""};
  world.table("adapter.lora", 21);
  EXPECT_EQ(world.errors(),
            "error[unknown_point]: adapter.lora wraps `linaer`, which is no point\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/adapter.lora.toml:11:10\n"
            "  fix: it is called `linear`\n");
  EXPECT_EQ(world.report.exit_code(), kExitPlugin);
}

TEST_F(Checks, SayWhoBringsAnOperatorThatIsMissing) {
  world.operators({"linear"});
  world.drop("operators.rows");
  world.wrapper("adapter.lora", "linear", "adapt");
  world.table("adapter.lora", 21);
  EXPECT_NE(world.errors().find("  fix: [operators.rows] brings it\n"), std::string::npos) << world.text();
  EXPECT_EQ(world.report.exit_code(), kExitUsage);
}

// A point of the core that is no operator is no name of one.
TEST_F(Checks, TakeOnlyOperatorsWhereOperatorsAreNamed) {
  world.operators({"linear"});
  PluginInfo& info = world.plugin("activation.keep");
  info.facts["names"]["operators"].data = std::string("keep");
  world.table("activation.keep", 21);
  const auto keep = [&](const char* name) {
    PluginTable& table = *std::ranges::find(world.manifest.plugins, "activation.keep",
                                            [](const PluginTable& t) { return t.schema->id; });
    table.values["keep"] = {std::vector<Value>{{std::string(name), {"run.toml", 22, 9, "activation.keep.keep"}}},
                            {"run.toml", 22, 8, "activation.keep.keep"}};
    return world.errors();
  };
  EXPECT_EQ(keep("linear"), "");
  EXPECT_NE(keep("forward").find("and `forward` is none of this run"), std::string::npos) << world.text();
}

TEST_F(Checks, RefuseWhoDoesNotRepeatItsBitsWhereTheyMustRepeat) {
  world.wrapper("precision.tf32", "forward", "cast").facts["repeat"]["differs"].data = std::string("sums by atomics");
  world.table("precision.tf32", 21);
  EXPECT_EQ(world.errors(), "");
  Value& asked = world.manifest.tables["run"]["deterministic"];
  asked = {true, {"run.toml", 2, 17, "run.deterministic"}};
  EXPECT_EQ(world.errors(),
            "error[not_repeatable]: precision.tf32 does not give the same bits in every run: sums by atomics\n"
            "  --> run.toml:2:17 and run.toml:21:1\n"
            "  fix: --without precision.tf32\n"
            "       deterministic = false\n");
  asked.data = false;
  EXPECT_EQ(world.errors(), "");
}

TEST_F(Checks, RefuseToWrapAnObject) {
  world.wrapper("offload.nvme", "optimizer", "place");
  world.table("offload.nvme", 21);
  EXPECT_EQ(world.errors(),
            "error[wrong_kind]: offload.nvme wraps `optimizer`, which is an object\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/offload.nvme.toml\n"
            "  fix: only calls and operators can be wrapped\n");
}

TEST_F(Checks, RefuseToListenToACallOrToProvideAnEvent) {
  world.listener("log.steps", "step");
  world.table("log.steps", 21);
  EXPECT_NE(world.errors().find("log.steps listens to `step`, which is a call\n"), std::string::npos) << world.text();
  world.provider("log.steps", {"step.end"}).listens.clear();
  EXPECT_NE(world.errors().find("log.steps provides `step.end`, which is an event\n"), std::string::npos)
      << world.text();
}

TEST_F(Checks, RefuseABandThatDoesNotExist) {
  world.wrapper("a.wrapper", "forward", "middle");
  world.table("a.wrapper", 21);
  EXPECT_EQ(world.errors(),
            "error[unknown_band]: a.wrapper wraps `forward` in `middle`, which is no band\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/a.wrapper.toml\n"
            "  fix: one of watch, capture, retain, repeat, place, adapt, cast\n");
}

TEST_F(Checks, RefuseToWriteAFieldThatThePointHasNot) {
  world.listener("gradient.clip", "grad.transform", {}, {"multiplier", "gradients"}).listens[0].origin = {
      "plugins/gradient.clip.toml", 11, 12, ""};
  world.table("gradient.clip", 21);
  EXPECT_EQ(world.errors(),
            "error[unknown_field]: gradient.clip writes `gradients` at `grad.transform`, which has no such field\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/gradient.clip.toml:11:12\n"
            "  fix: its fields: multiplier\n");
  EXPECT_EQ(world.report.exit_code(), kExitPlugin);
  world.listener("gradient.clip", "params.declared", {"role"}, {"trainable", "grad_dtype"});
  EXPECT_EQ(world.errors(), "");
  world.listener("gradient.clip", "record", {}, {"loss"});
  EXPECT_NE(world.errors().find("  fix: its fields: columns\n"), std::string::npos) << world.text();
  world.listener("gradient.clip", "step.end", {}, {"loss"});
  EXPECT_NE(world.errors().find("  fix: nothing is written there: leave `writes` out\n"), std::string::npos)
      << world.text();
}

TEST_F(Checks, RefuseEverywhereWhereNoWhereNarrows) {
  world.listener("gradient.clip", "step.end").listens[0].everywhere = true;
  world.table("gradient.clip", 21);
  EXPECT_EQ(world.errors(),
            "error[needless_everywhere]: gradient.clip says `everywhere` at `step.end`, where no `where` narrows what "
            "a listener is told\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/gradient.clip.toml\n"
            "  fix: leave `everywhere` out there\n");
  EXPECT_EQ(world.report.exit_code(), kExitPlugin);
}

TEST_F(Checks, RefuseCaptureOutsideTheStep) {
  world.listener("gradient.clip", "step.end").listens[0].capture = true;
  world.table("gradient.clip", 21);
  EXPECT_EQ(world.errors(),
            "error[capture_outside_step]: gradient.clip says `capture` at `step.end`, which is not inside `step`\n"
            "  --> run.toml:21:1\n"
            "  at: plugins/gradient.clip.toml\n"
            "  fix: leave `capture` out there\n");
  EXPECT_EQ(world.report.exit_code(), kExitPlugin);
  world.catalogue["gradient.clip"].listens[0].point = "step.commit";
  world.catalogue["gradient.clip"].wraps = {{"block", "watch", true, {}}};
  EXPECT_EQ(world.errors(), "");
  world.catalogue["gradient.clip"].wraps[0].point = "load";
  EXPECT_NE(world.errors().find("says `capture` at `load`"), std::string::npos) << world.text();
}

TEST_F(Checks, RefuseAnOperatorWithTheNameOfAPointOfTheCore) {
  world.operators({"step"});
  EXPECT_EQ(world.errors(),
            "error[point_taken]: operators.rows brings an operator `step`, which is a point of the core\n"
            "  --> run.toml:90:1\n"
            "  fix: another name in plugins/operators.rows.toml\n");
}

TEST_F(Checks, RefuseAnOptimizerThatCannotWorkOnTheDevice) {
  world.provider("device.cuda", {"device"});
  Value& devices = world.catalogue["optimizer.adamw"].facts["optimizer"]["devices"];
  devices.data = std::vector<Value>{{std::string("cpu"), {}}, {std::string("cuda"), {}}};
  EXPECT_EQ(world.errors(), "");
  devices.data = std::vector<Value>{{std::string("cuda"), {}}};
  EXPECT_EQ(world.errors(),
            "error[wrong_device]: optimizer.adamw works on cuda, this run on device.cpu\n"
            "  --> run.toml:5:1 and run.toml:3:1\n"
            "  fix: --use device.cuda, or another plugin: mortise plugin list optimizer\n");
  EXPECT_EQ(world.report.exit_code(), kExitUnavailable);
}

TEST_F(Checks, CountWhatLibrariesKeepInMebibytes) {
  Value& kept = world.catalogue["optimizer.adamw"].facts["memory"]["workspaces"];
  kept.data = std::string("64 MiB");
  EXPECT_EQ(world.errors(), "");
  kept.data = std::string("64");
  EXPECT_TRUE(
      world.errors().starts_with("error[not_a_choice]: memory.workspaces of optimizer.adamw is no number of MiB"));
}

TEST_F(Checks, KnowTheWaysToCutATensor) {
  Value& cut = world.catalogue["optimizer.adamw"].facts["optimizer"]["cut"];
  for (const char* how : {"element", "rows", "tensor", "block:256"}) {
    cut.data = std::string(how);
    EXPECT_EQ(world.errors(), "") << how;
  }
  for (const char* how :
       {"", "elements", "block:", "block:x", "block:-1", "block:0", "block:01", "block:99999999999999"}) {
    cut.data = std::string(how);
    EXPECT_TRUE(world.errors().starts_with("error[not_a_choice]: optimizer.cut of optimizer.adamw is no way")) << how;
  }
  cut.data = int64_t{3};
  EXPECT_EQ(world.report.exit_code(), kExitPlugin);
  EXPECT_NE(world.errors(), "");
}

TEST_F(Checks, RefuseToWaitForWhatIsNoPoint) {
  world.catalogue["optimizer.adamw"].syncs = {"verdict", "step.verdict"};
  EXPECT_EQ(world.errors(), "");
  world.catalogue["optimizer.adamw"].syncs = {"the verdict"};
  EXPECT_EQ(world.errors(),
            "error[unknown_point]: optimizer.adamw waits for `the verdict`, which is no point\n"
            "  --> run.toml:5:1\n"
            "  at: plugins/optimizer.adamw.toml\n"
            "  fix: syncs = [\"verdict\"], or the point at which it waits\n");
}

TEST_F(Checks, RefuseAListenerOfAFilterThatSaysNotWhatItWrites) {
  world.listener("step.accumulation", "step.window");
  world.table("step.accumulation", 20);
  EXPECT_EQ(world.errors(),
            "error[writes_missing]: step.accumulation listens to the filter `step.window` and writes nothing\n"
            "  --> run.toml:20:1\n"
            "  at: plugins/step.accumulation.toml\n"
            "  fix: writes = [\"micros\"], or reads, if it only looks\n");
  world.listener("step.accumulation", "step.window", {}, {"micros"});
  EXPECT_EQ(world.errors(), "");
  world.listener("step.accumulation", "step.window", {"micros"});
  EXPECT_EQ(world.errors(), "");
}

}  // namespace
}  // namespace mortise::test
