#include <algorithm>

#include "core/base/text.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/json.hpp"
#include "core/cli/print.hpp"
#include "core/plan/plan_test.hpp"

namespace mortise::cli {
namespace {

using test::kDefault;
using test::where;

class Print : public ::testing::Test {
 protected:
  Print() {
    world.operators({"attention", "linear", "norm"});
    world.drop("operators.rows");
    world.provider("operators.aten", {"linear", "norm"}).operators = world.catalogue["operators.rows"].operators;
    for (const char* id : {"attention.auto", "attention.flash", "attention.math"}) world.provider(id, {"attention"});
    world.catalogue["attention.auto"].chooses = {"attention.flash", "attention.math"};
    world.provider("schedule.constant", {"schedule"});
    world.provider("schedule.cosine", {"schedule"});
    world.provider("optimizer.muon", {"optimizer"});
    world.wrapper("precision.bf16", "forward", "cast");
    world.wrapper("trace.watch", "forward", "watch").listens = {{"record", {}, {}, false, {}}};
    world.listener("step.accumulation", "step.window", {}, {"micros"});
    world.listener("gradient.clip", "grad.transform", {}, {"multiplier"});
    world.listener("gradient.log", "grad.transform", {"multiplier"});
    world.listener("guard.nonfinite", "step.verdict").schema.summary = "votes: skip on inf or nan";
    world.listener("log.console", "record");
    world.listener("log.jsonl", "record");
    int line = 7;
    for (const char* id :
         {"operators.aten", "attention.auto", "guard.nonfinite", "schedule.constant", "log.console", "log.jsonl"})
      world.table(id, line++, kDefault);
    for (const char* id :
         {"gradient.clip", "gradient.log", "precision.bf16", "schedule.cosine", "step.accumulation", "trace.watch"})
      world.table(id, line++);
    world.table("optimizer.muon", line).where = where({"role:matrix"}, {"tag:head"});
    set("gradient.clip", "norm", 1.0);
    set("step.accumulation", "count", int64_t{4});
    plan = world.plan();
  }
  template <class T>
  void set(const std::string& id, const std::string& key, T number) {
    Value& value =
        std::ranges::find(world.manifest.plugins, id, [](const PluginTable& t) { return t.schema->id; })->values[key];
    value.data = number;
    value.origin = {"run.toml", 16, 8, id + "." + key};
  }
  std::string structure(const std::map<std::string, std::string>& details = {}) {
    std::ostringstream out;
    print_structure(out, plan, details);
    return out.str();
  }
  std::string why(std::string_view point) {
    std::ostringstream out;
    EXPECT_TRUE(print_why(out, plan, point));
    return out.str();
  }
  test::World world = test::World::runnable();
  Plan plan;
};

TEST_F(Print, ShowsTheStructureInColumns) {
  ASSERT_EQ(world.text(), "");
  EXPECT_EQ(structure({{"device.cpu", "2 threads"}}),
            R"(who does what                                                             from
  device       device.cpu         2 threads                               run.toml:3
  comm         comm.local         the summary of comm.local               run.toml:1
  data         data.text          the summary of data.text                run.toml:2
  model        model.gpt          the summary of model.gpt                run.toml:4
  optimizer    optimizer.muon     at role:matrix except tag:head          run.toml:19
  optimizer    optimizer.adamw    the summary of optimizer.adamw          run.toml:5
  replicas     parallel.none      the summary of parallel.none            run.toml:6
  schedule     schedule.cosine    the summary of schedule.cosine          run.toml:16
  step.window  step.accumulation  count 4                                 run.toml:17
  attention    attention.auto     one of attention.flash, attention.math  default.toml:8
  operators    operators.aten     linear, norm                            default.toml:7
around, outermost first
  forward      trace.watch        the summary of trace.watch              run.toml:18
               precision.bf16     the summary of precision.bf16           run.toml:15
after backward, in order
  1            parallel.none
  2            guard.nonfinite    votes: skip on inf or nan               default.toml:9
  3            gradient.clip      norm 1.0                                run.toml:13
  4            gradient.log       the summary of gradient.log             run.toml:14
  5            optimizer.muon     at role:matrix except tag:head
  6            optimizer.adamw
listening      log.console log.jsonl
replaced       schedule.constant (default.toml:10) by schedule.cosine
)");
}

TEST_F(Print, NamesListenersInTheOrderInWhichARecordIsTold) {
  for (const char* id : {"log.console", "log.jsonl"})
    world.catalogue[id].listens = {{"run.begin", {}, {}, false, {}}, {"record", {"columns"}, {}, false, {}}};
  world.listener("metric.a", "record", {}, {"columns"});
  world.table("metric.a", 40);
  plan = world.plan();
  EXPECT_NE(structure().find("\nlistening      metric.a log.console log.jsonl\n"), std::string::npos) << structure();
}

TEST_F(Print, ExplainsTheOrderOfWrappers) {
  EXPECT_EQ(why("forward"), R"(forward   trace.watch (watch)    run.toml:18
  before  precision.bf16         because band cast is inside band watch
forward   precision.bf16 (cast)  run.toml:15
  after   trace.watch            because band cast is inside band watch
)");
}

TEST_F(Print, ExplainsTheOrderOfFiltersAndTheirPlaceInTheStep) {
  EXPECT_EQ(why("grad.transform"), R"(grad.transform  gradient.clip    run.toml:13
  before        gradient.log     because gradient.log reads `multiplier`, which gradient.clip writes
grad.transform  gradient.log     run.toml:14
  after         gradient.clip    because it reads `multiplier`, which gradient.clip writes
  after         parallel.none    because gradients are whole before anything reads them (core)
  after         guard.nonfinite  because the verdict is decided before anything is changed (core)
  before        optimizer.muon   because gradients are final before the optimizer reads them (core)
  before        optimizer.adamw  because gradients are final before the optimizer reads them (core)
)");
}

TEST_F(Print, ExplainsWhoProvides) {
  EXPECT_EQ(why("schedule"), "schedule  schedule.cosine  run.toml:16\n");
  EXPECT_EQ(why("tokenizer"), "tokenizer  nobody attached to it\n");
  std::ostringstream out;
  EXPECT_FALSE(print_why(out, plan, "shedule"));
}

TEST_F(Print, SaysWhyOneStandsIn) {
  world.provider("device.rare", {"device"});
  world.drop("device.cpu");
  world.table("device.rare", 4, kDefault).fallback = {"device.cpu"};
  world.can_start = [](const PluginInfo& i) {
    return std::string(i.schema.id == "device.rare" ? "there is none" : "");
  };
  plan = world.plan();
  ASSERT_EQ(world.text(), "");
  const auto first_row = [](const std::string& text) { return split(text, '\n')[1]; };
  EXPECT_EQ(first_row(structure()),
            "  device       device.cpu         device.rare cannot run here: there is none  fallback of default.toml:4");
  EXPECT_EQ(first_row(structure({{"device.cpu", "2 threads"}})),
            "  device       device.cpu         2 threads                               fallback of default.toml:4");
}

TEST_F(Print, SaysWhatAProviderCovers) {
  world.provider("layer.fused", {"attention"}).facts["attention"]["covers"].data =
      std::vector<Value>{{std::string("linear"), {}}};
  world.drop("attention.auto");
  world.table("layer.fused", 30);
  plan = world.plan();
  ASSERT_EQ(world.text(), "");
  EXPECT_NE(structure().find("  attention    layer.fused        covers linear  "), std::string::npos) << structure();
  EXPECT_NE(why("linear").find("  covered  layer.fused     inside its `attention`\n"), std::string::npos)
      << why("linear");
}

TEST_F(Print, HasOneRowForWhoWatchesEveryCall) {
  world.plugin("profile.all").wraps = {{"*", "watch", false, {}}};
  world.table("profile.all", 30);
  plan = world.plan();
  ASSERT_EQ(world.text(), "");
  const std::string text = structure();
  EXPECT_NE(text.find("  every call   profile.all "), std::string::npos) << text;
  EXPECT_NE(text.find("  forward      trace.watch "), std::string::npos) << text;
  EXPECT_EQ(text.find("  profile.all  "), text.rfind("  profile.all  ")) << text;
}

TEST_F(Print, CutsALongDetail) {
  const std::string text = structure({{"device.cpu", std::string(60, 'x') + "é"}});
  EXPECT_NE(text.find("  " + std::string(55, 'x') + "…  run.toml:3\n"), std::string::npos) << text;
}

TEST_F(Print, CutsNothingThatTheTerminalHasRoomFor) {
  const std::string detail(100, 'x');
  const auto wide = [&](size_t width) {
    std::ostringstream out;
    print_structure(out, plan, {{"device.cpu", detail}}, width);
    return out.str();
  };
  EXPECT_NE(wide(200).find(detail), std::string::npos);
  EXPECT_NE(wide(120).find(std::string(57, 'x')), std::string::npos);
  for (const std::string& line : split(wide(120), '\n')) EXPECT_LE(text_width(line), 120u) << line;
}

TEST_F(Print, WritesTheSameTreeAsJson) {
  const std::string text = plan_json(plan).dump();
  EXPECT_EQ(text.find("{\"hash\":\"" + plan.hash +
                      "\",\"members\":[{\"id\":\"attention.auto\",\"version\":\"0.1.0\",\"values\":{},\"from\":"
                      "\"default.toml:8\"}"),
            0U);
  EXPECT_NE(text.find(R"({"id":"attention.flash","version":"0.1.0","values":{},"from":null})"), std::string::npos);
  EXPECT_NE(text.find(R"({"id":"gradient.clip","version":"0.1.0","values":{"norm":1.0},"from":"run.toml:13"})"),
            std::string::npos);
  EXPECT_NE(
      text.find(R"({"id":"optimizer.muon","where":{"match":["role:matrix"],"except":["tag:head"],"every":1,"from":0},)"
                R"("modes":["train","eval","sample"],)"
                R"("choices":[],"covers":[],"why":"run.toml:19"})"),
      std::string::npos);
  EXPECT_NE(
      text.find(
          R"("after":[{"id":"gradient.clip","because":"gradient.log reads `multiplier`, which gradient.clip writes"}],)"
          R"("from":"run.toml:14"})"),
      std::string::npos);
  EXPECT_TRUE(text.ends_with(R"("replaced":["schedule.constant (default.toml:10) by schedule.cosine"]})"));
}

}  // namespace
}  // namespace mortise::cli
