#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

using Numbers = std::vector<size_t>;

Element layer(std::string path, std::string slot = "") {
  return {.path = std::move(path), .role = "", .slot = std::move(slot), .tags = {}, .dims = {}};
}

std::vector<Element> blocks(int n) {
  std::vector<Element> elements;
  for (int i = 0; i < n; ++i) elements.push_back(layer("blocks." + std::to_string(i) + ".mlp", "mlp"));
  return elements;
}

const std::vector<Element> kParameters = {
    {"wte.weight", "embedding", "", {}, {"vocab", "width"}},
    {"h.0.attn.weight", "matrix", "", {}, {"out", "in"}},
    {"h.0.attn.bias", "vector", "", {}, {"out"}},
    {"h.0.norm.weight", "norm", "", {}, {"width"}},
    {"head.weight", "matrix", "", {"head"}, {"vocab", "width"}},
};

TEST(Select, TakesWhatAGlobMatchesAcrossDots) { EXPECT_EQ(select(where({"h.*"}), kParameters), (Numbers{1, 2, 3})); }

TEST(Select, TakesAnyOfAList) {
  EXPECT_EQ(select(where({"role:norm", "role:vector", "head.*"}), kParameters), (Numbers{2, 3, 4}));
}

TEST(Select, KnowsRolesTagsSlotsAndDims) {
  EXPECT_EQ(select(where({"role:matrix"}), kParameters), (Numbers{1, 4}));
  EXPECT_EQ(select(where({"tag:head"}), kParameters), (Numbers{4}));
  EXPECT_EQ(select(where({"dim:vocab"}), kParameters), (Numbers{0, 4}));
  EXPECT_EQ(select(where({"slot:mlp"}), blocks(2)), (Numbers{0, 1}));
}

TEST(Select, DoesNotTakeAnElementWithoutARoleForAnyRole) { EXPECT_EQ(select(where({"role:*"}), blocks(2)), Numbers{}); }

TEST(Select, LeavesOutWhatExceptNames) {
  EXPECT_EQ(select(where({"role:matrix"}, {"tag:head"}), kParameters), (Numbers{1}));
}

TEST(Select, CountsEveryAndFromAmongWhatMatches) {
  EXPECT_EQ(select(where({"blocks.*"}, {}, 2, 1), blocks(6)), (Numbers{1, 3, 5}));
  EXPECT_EQ(select(where({"blocks.*"}, {"blocks.0.*"}, 2, 0), blocks(6)), (Numbers{1, 3, 5}));
}

TEST(Select, CountsAmongAllWithoutAMatch) { EXPECT_EQ(select(where({}, {}, 3), blocks(6)), (Numbers{0, 3})); }

TEST(Select, LeavesAnAttachmentOnlyThePlacesThatOthersDoNotTake) {
  const Selector first = where({"blocks.0.*"}), all = where({"blocks.*"});
  Attached attached;
  attached.where = &all;
  attached.modes = 1;
  attached.except = {{&first, 7}};
  EXPECT_EQ(select(attached, blocks(3), 0), (Numbers{1, 2}));
  EXPECT_EQ(select(attached, blocks(3), 1), Numbers{});
}

// Two optimizers: adamw open, sgd with a `where` that the test sets.
class Assign : public ::testing::Test {
 protected:
  Assign() {
    world.provider("optimizer.sgd", {"optimizer"});
    sgd = &world.table("optimizer.sgd", 18);
  }
  // Ids of the providers in one mode.
  Ids assigned(const std::vector<Element>& elements = kParameters, int mode = 0) {
    const Plan plan = world.plan();
    Ids found;
    for (int c : assign(at(plan, "optimizer"), plan, elements, mode, "parameter", "optimizer", world.report))
      found.push_back(
          c < 0 ? "-"
                : plan.members[static_cast<size_t>(at(plan, "optimizer").providers[static_cast<size_t>(c)].member)]
                      .info->schema.name);
    return found;
  }
  World world = World::runnable();
  PluginTable* sgd = nullptr;
};

TEST_F(Assign, GivesTheOpenTableTheRest) {
  sgd->where = where({"role:matrix"}, {"tag:head"});
  EXPECT_EQ(assigned(), (Ids{"adamw", "sgd", "adamw", "adamw", "adamw"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Assign, LetsALaterLayerTakeItsPlacesFromAnEarlierOne) {
  sgd->where = where({"role:matrix"});
  world.provider("optimizer.lion", {"optimizer"});
  PluginTable& lion = world.table("optimizer.lion", 0, 2);
  lion.where = where({"head.*"});
  EXPECT_EQ(assigned(), (Ids{"adamw", "sgd", "adamw", "adamw", "lion"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Assign, RefusesTwoClaimsOfOneLayerOnOneElement) {
  sgd->where = where({"role:matrix"});
  world.provider("optimizer.lion", {"optimizer"});
  world.table("optimizer.lion", 21).where = where({"h.*", "head.*"});
  assigned();
  EXPECT_EQ(world.text(),
            "error[two_claims]: optimizer.lion and optimizer.sgd both claim `optimizer` at the parameter "
            "`h.0.attn.weight` and 1 more\n"
            "  --> run.toml:21:1 and run.toml:18:1\n"
            "  fix: give one of them another `where` or `modes`\n");
}

TEST_F(Assign, SaysWhatIsNearASelectorThatMatchesNothing) {
  sgd->where = where({"encoder.layers.*"});
  std::vector<Element> bert;
  for (int i = 0; i < 12; ++i)
    for (const char* name : {"query.weight", "query.bias"})
      bert.push_back({.path = "bert.encoder.layer." + std::to_string(i) + "." + name,
                      .role = "",
                      .slot = "",
                      .tags = {},
                      .dims = {}});
  bert.push_back({.path = "bert.pooler.weight", .role = "", .slot = "", .tags = {}, .dims = {}});
  const Plan plan = world.plan();
  for (int mode : {0, 1, 2})
    assign(at(plan, "optimizer"), plan, bert, mode, "parameter", "optimizer", world.report);  // said once for all modes
  EXPECT_EQ(world.text(),
            "error[matches_nothing]: `encoder.layers.*` matches no parameter of model.gpt\n"
            "  --> run.toml:7:9\n"
            "  fix: bert.encoder.layer.* matches 24      all names: mortise plan --weights\n");
}

TEST_F(Assign, SaysWhichRoleWasMeant) {
  sgd->where = where({"role:matrices"});
  assigned();
  EXPECT_NE(world.text().find("  fix: role:matrix matches 2      all names"), std::string::npos) << world.text();
}

TEST_F(Assign, SaysThatExceptLeavesNothing) {
  sgd->where = where({"role:norm"}, {"h.*"});
  assigned();
  EXPECT_EQ(
      world.text(),
      "error[matches_nothing]: `role:norm` matches 1 parameter of model.gpt, and `except`, `every`, `from` leave none\n"
      "  --> run.toml:7:9\n"
      "  fix: take less away; `from` counts from 0\n");
}

TEST_F(Assign, NamesTheFirstElementWithoutAProvider) {
  sgd->where = where({"role:matrix"});
  world.drop("optimizer.adamw");
  EXPECT_EQ(assigned(), (Ids{"-", "sgd", "-", "-", "sgd"}));
  EXPECT_EQ(world.text(),
            "error[no_provider]: nothing provides `optimizer` at the parameter `wte.weight` and 2 more in train\n"
            "  --> run.toml:18:1\n"
            "  fix: [optimizer.sgd] without `where` and `modes` takes the rest; or add a table that does\n");
}

TEST_F(Assign, FindsNoProviderWhereNobodyClaimed) {
  const Plan plan = world.plan();
  world.report = Report();
  for (int mode : {0, 1, 2}) assign(at(plan, "tokenizer"), plan, blocks(2), mode, "layer", "tokenizer", world.report);
  EXPECT_EQ(world.text(),
            "error[no_provider]: nothing provides `tokenizer` at the layer `blocks.0.mlp` and 1 more\n"
            "  fix: mortise plugin list names what is installed\n");
}

TEST_F(Assign, IsByMode) {
  sgd->modes = {1, 2};
  EXPECT_EQ(assigned(kParameters, 0)[0], "adamw");
  EXPECT_EQ(assigned(kParameters, 1)[0], "sgd");
  EXPECT_EQ(world.report.all().size(), 1U) << "optimizers are called in train alone";
}

TEST_F(Assign, LeavesASelectorOfSeveralPointsToTheCheckOverEverything) {
  world.operators({"mlp", "norm"});
  world.provider("compile.fused", {"mlp", "norm"});
  world.table("compile.fused", 30).where = where({"blocks.*.norm"});
  const Plan plan = world.plan();
  world.report = Report();
  assign(at(plan, "mlp"), plan, {}, 0, "layer", "mlp", world.report);
  EXPECT_EQ(world.text(), "");
  check_where(plan, blocks(2), "layer", world.report);
  EXPECT_EQ(world.text(),
            "error[matches_nothing]: `blocks.*.norm` matches no layer of model.gpt where compile.fused attaches\n"
            "  --> run.toml:7:9\n"
            "  fix: blocks.*.mlp matches 2      all names: mortise plan --weights\n");
}

// A `where` may match what the model has, and nothing where its plugin attaches.
TEST_F(Assign, RefusesASelectorThatMatchesNothingWhereItsPluginAttaches) {
  world.operators({"mlp", "norm"});
  std::vector<Element> all = kParameters;
  all.push_back(layer("h.0", "block"));
  all.push_back(layer("h.0.mlp", "mlp"));
  all.push_back(layer("h.0.norm", "norm"));
  world.provider("norm.both", {"norm"}).listens = {{.point = "params.declared", .reads = {"role"}, .everywhere = true}};
  world.wrapper("adapter.scale", "mlp", "adapt");
  world.wrapper("compile.block", "block", "repeat");
  world.provider("log.csv", {}).listens = {{.point = "record"}};
  const auto checked = [&](const std::string& id, const char* pattern) {
    world.table(id, 30).where = where({pattern});
    const Plan plan = world.plan();
    world.report = Report();
    check_where(plan, all, "layer or parameter", world.report);
    world.drop(id);
    return world.text();
  };
  for (const auto& [id, pattern] : {std::pair{"norm.both", "*.norm"},
                                    {"adapter.scale", "slot:mlp"},
                                    {"compile.block", "h.*"},
                                    {"optimizer.sgd", "role:norm"}})
    EXPECT_EQ(checked(id, pattern), "") << id;
  EXPECT_EQ(checked("norm.both", "role:norm"),
            "error[matches_nothing]: `role:norm` matches no layer or parameter of model.gpt where norm.both attaches\n"
            "  --> run.toml:7:9\n"
            "  fix: slot:norm matches 1      all names: mortise plan --weights\n");
  for (const auto& [id, pattern] : {std::pair{"norm.both", "h.0.mlp"},
                                    {"adapter.scale", "*.norm"},
                                    {"compile.block", "*.mlp"},
                                    {"optimizer.sgd", "slot:mlp"}})
    EXPECT_NE(checked(id, pattern).find(std::string(" where ") + id + " attaches\n"), std::string::npos) << id;
  EXPECT_NE(checked("log.csv", "h.*").find("  fix: leave `where` out\n"), std::string::npos);
  // What one attachment takes does not make up for another of the same plugin that would do nothing.
  world.provider("adapter.thin", {"mlp", "norm"}).listens = {{.point = "params.declared", .writes = {"trainable"}}};
  EXPECT_EQ(checked("adapter.thin", "*"), "");
  EXPECT_EQ(checked("adapter.thin", "slot:mlp"),
            "error[matches_nothing]: `slot:mlp` matches no parameter of model.gpt, and adapter.thin listens to "
            "`params.declared` without `everywhere`\n"
            "  --> run.toml:7:9\n"
            "  fix: dim:in matches 1      all names: mortise plan --weights\n");
}

TEST_F(Assign, RefusesTwoOfAnExclusiveGroupOnOneElement) {
  world.operators({"mlp"});
  for (const char* id : {"precision.bf16", "precision.fp32"})
    world.wrapper(id, "mlp", "cast").schema.exclusive = {"precision.compute"};
  world.table("precision.bf16", 31).where = where({"blocks.0.*", "blocks.1.*"});
  world.table("precision.fp32", 33).where = where({"blocks.1.*", "blocks.2.*"});
  const Plan plan = world.plan();
  world.report = Report();
  check_where(plan, blocks(4), "layer", world.report);
  EXPECT_EQ(world.text(),
            "error[two_claims]: precision.bf16 and precision.fp32 both claim `precision.compute` at the layer "
            "`blocks.1.mlp`\n"
            "  --> run.toml:31:1 and run.toml:33:1\n"
            "  fix: give one of them another `where` or `modes`\n");
}

}  // namespace
}  // namespace mortise::test
