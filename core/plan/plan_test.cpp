#include "core/plan/plan_test.hpp"

#include <algorithm>
#include <random>

namespace mortise::test {
namespace {

// A run with something of everything: layers, fallbacks, choices, several orders.
World rich() {
  World world = World::runnable();
  world.can_start = [](const PluginInfo& info) {
    return info.schema.name == "cuda" ? std::string("no NVIDIA driver") : std::string();
  };
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
  for (const char* id : {"operators.aten", "attention.auto", "schedule.constant", "log.console", "log.jsonl",
                         "guard.nonfinite", "precision.bf16"})
    world.table(id, line++, kDefault);
  world.table("sample.cuda", line++, kDefault).fallback = {"sample.cpu"};
  for (const char* id : {"compile.fused", "schedule.cosine", "adapter.lora", "adapter.dora", "parallel.tensor",
                         "gradient.clip", "a.watcher"})
    world.table(id, line++);
  world.table("optimizer.muon", line++).where = where({"role:matrix"});
  world.table("attention.math", line++).modes = {1};
  world.table("precision.fp32", line++).modes = {1};
  return world;
}

// Everything that a plan says.
std::string all_of(const Plan& plan) {
  std::ostringstream out;
  out << plan.hash << "\n";
  for (const Member& member : plan.members)
    out << member.info->schema.id << " " << (member.table ? member.table->origin.text() : "-") << "\n";
  const auto place = [](const Place& p) {
    return " " + std::to_string(p.modes) + " " + (p.where ? p.where->match[0] : "-");
  };
  for (const PointPlan& here : plan.at) {
    out << "--\n";
    for (const Claim& claim : here.providers) {
      out << claim.member << place(claim) << " " << claim.layer << claim.open << " " << claim.why;
      for (int choice : claim.choices) out << " " << choice;
      out << "\n";
    }
    for (const auto* list : {&here.wrappers, &here.listeners})
      for (const Attached& attached : *list) {
        out << attached.member << place(attached) << " " << attached.band << " " << attached.why;
        for (const Place& other : attached.except) out << " not" << place(other);
        for (const Reason& reason : attached.reasons) out << "; " << reason.after << " " << reason.because;
        out << "\n";
      }
  }
  for (const std::string& replaced : plan.replaced) out << replaced << "\n";
  return out.str();
}

TEST(Plan, NeverDependsOnTheOrderOfTables) {
  World world = rich();
  const std::string first = all_of(world.plan());
  ASSERT_EQ(world.text(), "");
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::ranges::shuffle(world.manifest.plugins, random);
    ASSERT_EQ(all_of(world.plan()), first);
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

// Worlds that nobody wrote: whatever the mistakes, they and the plan are the same for every order of tables.
TEST(Plan, NeverDependsOnTheOrderOfTablesInARandomWorld) {
  std::mt19937 random(9);
  const auto below = [&](size_t n) { return random() % n; };
  const auto chance = [&](size_t n) { return below(n) == 0; };
  const Ids slots = {"device", "optimizer", "schedule", "linear", "no.such"},
            points = {"forward", "block", "linear", "record", "grad.transform"};
  for (int round = 0; round < 300; ++round) {
    World world = World::runnable();
    world.operators({"linear"});
    Ids all;
    for (char c = 'a'; c < 'a' + 8; ++c) all.push_back(std::string("x.") + c);
    world.can_start = [](const PluginInfo& info) {
      return info.schema.name == "c" ? std::string("no") : std::string();
    };
    for (const std::string& id : all) {
      PluginInfo& info = world.plugin(id);
      if (chance(2)) info.schema.provides = {slots[below(slots.size())], "linear"};
      if (chance(3)) info.schema.exclusive = {"g"};
      if (chance(2)) info.wraps = {{points[below(points.size())], std::string(kBands[below(7)]), false, {}}};
      if (chance(2)) info.listens = {{points[below(points.size())], {"f"}, chance(2) ? Ids{"f"} : Ids{}, false, {}}};
      if (chance(2)) info.after = {all[below(8)]};
      if (chance(3)) info.before = {all[below(8)]};
      if (chance(4)) info.requires_ = {slots[below(slots.size())]};
      if (chance(4)) info.conflicts = {{all[below(8)], "they conflict", "", {}}};
      if (chance(5)) info.chooses = {all[below(8)], all[below(8)]};
      PluginTable& table = world.table(id, static_cast<int>(10 + all.size()), static_cast<int>(below(3)));
      table.enabled = !chance(6);
      if (chance(3)) table.where = where({chance(2) ? "h.*" : "h." + std::to_string(below(3))});
      if (chance(3)) table.modes = {static_cast<int>(below(3))};
      if (chance(4)) table.fallback = {all[below(8)]};
    }
    const std::string plan = all_of(world.plan()), errors = world.text();
    std::ranges::shuffle(world.manifest.plugins, random);
    ASSERT_EQ(all_of(world.plan()), plan);
    ASSERT_EQ(world.text(), errors);
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
  adamw.schema.config.keys["cache"].type = "list<path>";
  PluginTable& table = *std::ranges::find(world.manifest.plugins, &adamw.schema, &PluginTable::schema);
  table.values["note"].data = std::string("hello");
  table.values["cache"].data = std::string("/home/you");
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
  std::ranges::find(world.manifest.plugins, &world.catalogue["optimizer.muon"].schema, &PluginTable::schema)
      ->where->every = 2;
  EXPECT_NE(world.plan().hash, first);
}

// Rates, batches, lengths: what the core's own tables and the families' say.
class HashOfCoreTables : public ::testing::Test {
 protected:
  HashOfCoreTables() {
    set("optimizer", "lr", 1e-3);
    set("data", "micro_batch_size", int64_t{8});
    set("run", "length", Amount{100, Unit::kSteps});
    set("run", "notes", std::string("first try"));
    set("eval", "every", Amount{10, Unit::kSteps});
    set("order", "block", std::vector<Value>{{std::string("a.one"), {}}});
    first = hash();
  }
  void set(const std::string& table, const std::string& key, decltype(Value::data) data) {
    world.manifest.tables[table][key] = {std::move(data), {"run.toml", 1, 1, table + "." + key}};
  }
  std::string hash() { return world.plan().hash; }
  World world = World::runnable();
  std::string first;
};

TEST_F(HashOfCoreTables, ChangesWithEachNumberThatMatters) {
  set("optimizer", "lr", 5.0);
  EXPECT_NE(hash(), first);
  set("optimizer", "lr", 1e-3);
  EXPECT_EQ(hash(), first);
  set("data", "micro_batch_size", int64_t{4});
  EXPECT_NE(hash(), first);
  set("data", "micro_batch_size", int64_t{8});
  set("run", "length", Amount{101, Unit::kSteps});
  EXPECT_NE(hash(), first);
  set("run", "length", Amount{100, Unit::kEpochs});
  EXPECT_NE(hash(), first);
  set("run", "length", Amount{100, Unit::kSteps});
  set("order", "block", std::vector<Value>{{std::string("a.two"), {}}});
  EXPECT_NE(hash(), first);
}

TEST_F(HashOfCoreTables, StaysWithWhatIsFreeAndWithPaths) {
  set("run", "notes", std::string("second try"));
  set("run", "dir", std::string("/elsewhere"));
  set("eval", "every", Amount{20, Unit::kSteps});
  set("checkpoint", "keep", int64_t{7});
  set("model", "weights", std::string("/elsewhere"));
  EXPECT_EQ(hash(), first);
}

TEST_F(HashOfCoreTables, ChangesWithModesAndPlacesOfATable) {
  world.plugin("a.quiet");  // attaches nowhere: its modes and places are the plugin's own affair
  PluginTable& table = world.table("a.quiet", 20);
  const std::string all = hash();
  table.modes = {1};
  const std::string eval = hash();
  EXPECT_NE(eval, all);
  table.modes = {};
  table.where = where({"role:norm"});
  EXPECT_NE(hash(), all);
}

TEST_F(HashOfCoreTables, ChangesWithTheRulesOfParameters) {
  ParameterRule rule{"no_decay", where({"role:norm"}), 1, {}, {}};
  rule.values["weight_decay"].data = 0.0;
  world.manifest.rules = {rule};
  const std::string with = hash();
  EXPECT_NE(with, first);
  world.manifest.rules[0].values["weight_decay"].data = 0.1;
  EXPECT_NE(hash(), with);
  world.manifest.rules = {rule};
  world.manifest.rules[0].where.match = {"role:vector"};
  EXPECT_NE(hash(), with);
  world.manifest.rules = {rule};
  world.manifest.rules[0].layer = 3;  // alone, in whatever file
  EXPECT_EQ(hash(), with);
}

}  // namespace
}  // namespace mortise::test
