#include "core/plan/plan_test.hpp"

#include <random>

namespace mortise::test {
namespace {

// A run with something of everything: layers, fallbacks, choices, several orders.
World rich() {
  World world = World::runnable();
  world.can_start = [](const PluginInfo& info) { return info.schema.name == "cuda" ? std::string("no NVIDIA driver") : std::string(); };
  world.operators({"attention", "linear", "mlp"});
  world.provider("operators.aten", {"linear", "mlp"});
  world.provider("compile.fused", {"mlp"});
  for (const char* id : {"attention.auto", "attention.flash", "attention.math"}) world.provider(id, {"attention"});
  world.catalogue["attention.auto"].chooses = {"attention.flash", "attention.math"};
  world.provider("schedule.constant", {"schedule"});
  world.provider("schedule.cosine", {"schedule"});
  world.provider("optimizer.muon", {"optimizer"});
  world.provider("sample.cuda", {"sample"});
  world.provider("sample.cpu", {"sample"});
  world.wrapper("adapter.lora", "linear", "adapt").after = {"low.rank"};
  world.wrapper("adapter.dora", "linear", "adapt").capabilities = {"low.rank"};
  world.wrapper("parallel.tensor", "linear", "place");
  world.wrapper("precision.bf16", "forward", "cast").schema.exclusive = {"precision"};
  world.wrapper("precision.fp32", "forward", "cast").schema.exclusive = {"precision"};
  world.listener("gradient.clip", "grad.transform", {}, {"multiplier"});
  world.listener("a.watcher", "grad.transform", {"multiplier"});
  world.listener("guard.nonfinite", "step.verdict");
  world.listener("log.console", "record");
  world.listener("log.jsonl", "record");
  int line = 30;
  for (const char* id : {"operators.aten", "attention.auto", "schedule.constant", "log.console", "log.jsonl", "guard.nonfinite", "precision.bf16"})
    world.table(id, line++, kDefault);
  world.table("sample.cuda", line++, kDefault).fallback = {"sample.cpu"};
  for (const char* id : {"compile.fused", "schedule.cosine", "adapter.lora", "adapter.dora", "parallel.tensor", "gradient.clip", "a.watcher"})
    world.table(id, line++);
  world.table("optimizer.muon", line++).where = where({"role:matrix"});
  world.table("attention.math", line++).modes = {1};
  world.table("precision.fp32", line++).modes = {1};
  return world;
}

TEST(Plan, NeverDependsOnTheOrderOfTables) {
  World world = rich();
  const std::string first = plan_json(world.plan());
  ASSERT_EQ(world.text(), "");
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(world.manifest.plugins, random);
    ASSERT_EQ(plan_json(world.plan()), first);
  }
}

TEST(Plan, SaysItsMistakesInOneOrderWhateverTheOrderOfTables) {
  World world = rich();
  world.provider("data.table", {"data"});
  world.table("data.table", 90);
  world.catalogue["adapter.lora"].after.clear();
  world.catalogue["a.watcher"].listens[0].writes = {"multiplier"};
  world.catalogue["log.jsonl"].conflicts = {{"log.console", "one of them is enough", ""}};
  world.catalogue["model.gpt"].requires_ = {"tokenizer"};
  const std::string first = world.errors();
  EXPECT_EQ(world.report.errors(), 5) << first;
  std::mt19937 random(8);
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(world.manifest.plugins, random);
    EXPECT_EQ(world.errors(), first);
  }
}

TEST(Plan, HasMembersInTheOrderOfTheirIdsEachOnce) {
  World world = rich();
  const Plan plan = world.plan();
  Ids names;
  for (const Member& member : plan.members) names.push_back(member.info->schema.id);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_EQ(std::ranges::count(names, "schedule.constant"), 0) << "it was replaced";
}

class Hash : public ::testing::Test {
 protected:
  Hash() : first(world.plan().hash) {}
  World world = rich();
  std::string first;
};

TEST_F(Hash, IsSixHexadecimalDigits) {
  EXPECT_EQ(first.size(), 6U);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST_F(Hash, StaysWhenTablesMoveInTheirFile) {
  for (PluginTable& table : world.manifest.plugins) table.origin.line += 100;
  EXPECT_EQ(world.plan().hash, first);
}

TEST_F(Hash, ChangesWithAVersion) {
  world.catalogue["optimizer.adamw"].version = "0.2.0";
  EXPECT_NE(world.plan().hash, first);
}

TEST_F(Hash, ChangesWithAValueUnlessItHasNoEffect) {
  PluginInfo& adamw = world.catalogue["optimizer.adamw"];
  adamw.schema.config.keys["eps"].change = "numeric";
  adamw.schema.config.keys["note"].change = "free";
  PluginTable& table = *std::ranges::find(world.manifest.plugins, &adamw.schema, &PluginTable::schema);
  table.values["note"].data = std::string("hello");
  EXPECT_EQ(world.plan().hash, first);
  table.values["eps"].data = 1e-6;
  EXPECT_NE(world.plan().hash, first);
}

TEST_F(Hash, ChangesWithAnOrder) {
  world.catalogue["adapter.lora"].after.clear();
  world.catalogue["adapter.lora"].before = {"low.rank"};
  EXPECT_NE(world.plan().hash, first);
}

TEST_F(Hash, ChangesWithAPlace) {
  std::ranges::find(world.manifest.plugins, &world.catalogue["optimizer.muon"].schema, &PluginTable::schema)->where->every = 2;
  EXPECT_NE(world.plan().hash, first);
}

}  // namespace
}  // namespace mortise::test
