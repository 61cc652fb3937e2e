#include <algorithm>

#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

class Order : public ::testing::Test {
 protected:
  PluginInfo& wrapper(const std::string& id, const std::string& band, int line = 20) {
    PluginInfo& info = world.wrapper(id, "forward", band);
    world.table(id, line);
    return info;
  }
  PluginInfo& listener(const std::string& id, std::vector<std::string> reads, std::vector<std::string> writes,
                       int line = 20) {
    PluginInfo& info = world.listener(id, "grad.transform", std::move(reads), std::move(writes));
    world.table(id, line);
    return info;
  }
  // [order] at run.toml:30; each id stands at a column of its own.
  void order(const std::string& point, const Ids& names) {
    std::vector<Value> list;
    int column = 10;
    for (const std::string& id : names) list.push_back({id, {"run.toml", 30, column += 10, "order." + point}});
    world.manifest.tables["order"][point] = {std::move(list), {"run.toml", 30, 10, "order." + point}};
  }
  // "b.outer: a.inner says after b.outer": after whom, and why.
  std::string why(const Plan& plan, size_t wrapper) { return why(plan, at(plan, "forward").wrappers[wrapper]); }
  std::string why(const Plan& plan, const Attached& attached) {
    std::string text;
    for (const Reason& reason : attached.reasons)
      text += plan.members[static_cast<size_t>(reason.after)].info->schema.id + ": " + reason.because;
    return text;
  }
  World world = World::runnable();
};

TEST_F(Order, OfWrappersIsByBandOutermostFirst) {
  wrapper("a.cast", "cast", 21);
  wrapper("b.place", "place", 22);
  wrapper("c.watch", "watch", 23);
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(wrappers(plan, "forward"), (Ids{"c.watch", "b.place", "a.cast"}));
  EXPECT_EQ(why(plan, 0), "");
  EXPECT_EQ(why(plan, 1), "c.watch: band place is inside band watch");
}

TEST_F(Order, OfWrappersInOneBandIsByAfterAnId) {
  wrapper("a.inner", "adapt").after = {"b.outer"};
  wrapper("b.outer", "adapt");
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(wrappers(plan, "forward"), (Ids{"b.outer", "a.inner"}));
  EXPECT_EQ(why(plan, 1), "b.outer: a.inner says after b.outer");
}

TEST_F(Order, OfWrappersInOneBandIsByBeforeACapability) {
  wrapper("a.inner", "adapt").capabilities = {"low.rank"};
  wrapper("b.outer", "adapt").before = {"low.rank"};
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(wrappers(plan, "forward"), (Ids{"b.outer", "a.inner"}));
  EXPECT_EQ(why(plan, 1), "b.outer: b.outer says before `low.rank`, which a.inner provides");
}

TEST_F(Order, MayFollowFromAThird) {
  wrapper("a.first", "adapt");
  wrapper("b.third", "adapt").after = {"c.second"};
  wrapper("c.second", "adapt").after = {"a.first"};
  EXPECT_EQ(wrappers(world.plan(), "forward"), (Ids{"a.first", "c.second", "b.third"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfBandsIsStrongerThanAfter) {
  wrapper("a.outer", "place").after = {"b.inner"};
  wrapper("b.inner", "cast");
  EXPECT_EQ(wrappers(world.plan(), "forward"), (Ids{"a.outer", "b.inner"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, MustBeSaidWhereTwoWrappersOfOneBandMayMeet) {
  wrapper("adapter.dora", "adapt", 21);
  wrapper("adapter.lora", "adapt", 25);
  EXPECT_EQ(world.errors(),
            "error[unordered_wrappers]: adapter.dora and adapter.lora both wrap in band `adapt` at `forward`, and "
            "nothing orders them\n"
            "  --> run.toml:21:1 and run.toml:25:1\n"
            "  fix: [order] forward = [\"adapter.dora\", \"adapter.lora\"]   (the outermost first)\n"
            "       or give one of them another `where` or `modes`, so that they never meet\n"
            "       or say in the plugin.toml of adapter.lora: [capabilities] after = [\"adapter.dora\"]\n");
}

TEST_F(Order, NeedNotBeSaidOfThoseWhoWatch) {
  wrapper("metric.f1", "watch");
  wrapper("metric.accuracy", "watch");
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(wrappers(plan, "forward"), (Ids{"metric.accuracy", "metric.f1"}));
}

TEST_F(Order, NeedNotBeSaidWhereModesKeepWrappersApart) {
  wrapper("adapter.dora", "adapt");
  wrapper("adapter.lora", "adapt");
  for (PluginTable& table : world.manifest.plugins) {
    if (table.schema->name == "dora") table.modes = {0};
    if (table.schema->name == "lora") table.modes = {1, 2};
  }
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(why(plan, 1), "adapter.dora: they never meet");
}

TEST_F(Order, NeedNotBeSaidWherePathsKeepWrappersApart) {
  wrapper("adapter.dora", "adapt");
  wrapper("adapter.lora", "adapt");
  const auto select = [&](const std::string& name, Selector selector) {
    std::ranges::find(world.manifest.plugins, name, [](const PluginTable& t) { return t.schema->name; })->where =
        std::move(selector);
  };
  select("dora", where({"h.0", "h.1"}));
  select("lora", where({"h.2"}));
  EXPECT_EQ(world.errors(), "");
  select("lora", where({"h.1"}));
  EXPECT_NE(world.errors(), "");
  const std::pair<const char*, const char*> kApart[] = {
      {"h.0.*", "h.1.*"}, {"*.attn", "*.mlp"}, {"h.?.attn", "wte*"}, {"h.*.attn", "h.0"}, {"*.a.*.b", "*.c"}};
  for (const auto& [a, b] : kApart) {
    select("dora", where({a, "x"}));
    select("lora", where({b}));
    EXPECT_EQ(world.errors(), "") << a << " and " << b;
  }
  const std::pair<const char*, const char*> kMeet[] = {
      {"h.0.*", "h.*"}, {"h.*", "*.attn"}, {"h.?", "h.1"}, {"*", "?"}, {"h.0.attn", "slot:attention"}, {"a*b*", "*ba"}};
  for (const auto& [a, b] : kMeet) {
    select("dora", where({"x", a}));
    select("lora", where({b}));
    EXPECT_NE(world.errors(), "") << a << " and " << b;
  }
}

TEST_F(Order, ThatGoesInACircleIsNamed) {
  wrapper("a.one", "adapt", 21).after = {"a.three"};
  wrapper("a.three", "adapt", 23).after = {"a.two"};
  wrapper("a.two", "adapt", 22).after = {"a.one"};
  EXPECT_EQ(world.errors(),
            "error[cycle]: the order at `forward` goes in a circle: a.one after a.three after a.two after a.one\n"
            "  --> run.toml:21:1 and run.toml:23:1 and run.toml:22:1\n"
            "  at: a.one says after a.three; a.three says after a.two; a.two says after a.one\n"
            "  fix: change `after` or `before` in the plugin.toml of one of them\n"
            "       or name them all: [order] forward = [\"a.one\", \"a.three\", \"a.two\"]   (the outermost first)\n");
  order("forward", {"a.one", "a.three", "a.two"});
  EXPECT_EQ(wrappers(world.plan(), "forward"), (Ids{"a.one", "a.three", "a.two"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfTheManifestHasTheLastWord) {
  wrapper("a.inner", "adapt").before = {"b.outer"};
  wrapper("b.outer", "adapt");
  wrapper("c.watch", "watch");
  order("forward", {"c.watch", "b.outer", "a.inner"});
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(wrappers(plan, "forward"), (Ids{"c.watch", "b.outer", "a.inner"}));
  EXPECT_EQ(why(plan, 2), "b.outer: a.inner stands after b.outer in [order]");
}

TEST_F(Order, OfTheManifestSettlesWritersToo) {
  listener("gradient.clip", {"multiplier"}, {"multiplier"});
  listener("gradient.noise", {"multiplier"}, {"multiplier"});
  order("grad.transform", {"gradient.noise", "gradient.clip"});
  EXPECT_EQ(listeners(world.plan(), "grad.transform"), (Ids{"gradient.noise", "gradient.clip"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfTheManifestThatLeavesOneOutIsNotEnough) {
  for (const char* id : {"a.one", "a.two", "a.three"}) wrapper(id, "adapt");
  order("forward", {"a.two", "a.one"});
  const std::string text = world.errors();
  EXPECT_EQ(world.report.errors(), 2) << text;
  EXPECT_EQ(text.find("a.one and a.two"), std::string::npos) << text;
}

TEST_F(Order, OfTheManifestNamesOnlyWhoIsThere) {
  wrapper("a.outer", "watch");
  wrapper("b.inner", "adapt");
  world.wrapper("c.elsewhere", "block", "adapt");
  world.table("c.elsewhere", 22);
  order("forward", {"b.inner", "a.outer", "c.elsewhere", "d.off", "b.inner"});
  EXPECT_EQ(world.errors(),
            "error[wrong_order]: [order] names a.outer at `forward`, but band watch is outside band adapt\n"
            "  --> run.toml:30:30\n"
            "  fix: name it before those further in\n"
            "\n"
            "error[wrong_order]: [order] names c.elsewhere at `forward`, which does not attach there, or not twice\n"
            "  --> run.toml:30:40\n"
            "  fix: leave it out\n"
            "\n"
            "error[wrong_order]: [order] names d.off at `forward`, which is not on\n"
            "  --> run.toml:30:50\n"
            "  fix: [d.off] switches it on; or leave it out\n"
            "\n"
            "error[wrong_order]: [order] names b.inner at `forward`, which does not attach there, or not twice\n"
            "  --> run.toml:30:60\n"
            "  fix: leave it out\n");
}

TEST_F(Order, OfTheManifestNamesOnlyPoints) {
  order("foward", {});
  EXPECT_EQ(world.errors(),
            "error[unknown_point]: [order] names `foward`, which is no point\n"
            "  --> run.toml:30:10\n"
            "  fix: it is called `forward`\n");
}

TEST_F(Order, OfListenersPutsAWriterBeforeItsReaders) {
  listener("a.reader", {"multiplier"}, {}, 21);
  listener("gradient.clip", {}, {"multiplier"}, 22);
  const Plan plan = world.plan();
  EXPECT_EQ(world.text(), "");
  EXPECT_EQ(listeners(plan, "grad.transform"), (Ids{"gradient.clip", "a.reader"}));
  EXPECT_EQ(why(plan, at(plan, "grad.transform").listeners[1]),
            "gradient.clip: a.reader reads `multiplier`, which gradient.clip writes");
}

TEST_F(Order, OfListenersIsByTheirOwnWordBeforeTheirFields) {
  listener("a.reader", {"multiplier"}, {}).before = {"gradient.clip"};
  listener("gradient.clip", {}, {"multiplier"});
  EXPECT_EQ(listeners(world.plan(), "grad.transform"), (Ids{"a.reader", "gradient.clip"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfTwoWritersOfOneFieldMustBeSaid) {
  listener("gradient.clip", {"multiplier"}, {"multiplier"}, 21);
  listener("gradient.noise", {"multiplier"}, {"multiplier"}, 25);
  EXPECT_EQ(world.errors(),
            "error[unordered_writers]: gradient.clip and gradient.noise both write `multiplier` at `grad.transform`, "
            "and nothing orders them\n"
            "  --> run.toml:21:1 and run.toml:25:1\n"
            "  fix: [order] \"grad.transform\" = [\"gradient.clip\", \"gradient.noise\"]   (in this order)\n"
            "       or say in the plugin.toml of gradient.noise: [capabilities] after = [\"gradient.clip\"]\n");
  world.catalogue["gradient.clip"].after = {"gradient.noise"};
  EXPECT_EQ(listeners(world.plan(), "grad.transform"), (Ids{"gradient.noise", "gradient.clip"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfVotersNeedNotBeSaid) {
  for (const char* id : {"guard.nonfinite", "precision.fp16"}) {
    world.listener(id, "step.verdict", {}, {"votes"});
    world.table(id, 30);
  }
  EXPECT_EQ(listeners(world.plan(), "step.verdict"), (Ids{"guard.nonfinite", "precision.fp16"}));
  EXPECT_EQ(world.text(), "");
}

TEST_F(Order, OfListenersWithoutFieldsIsByName) {
  for (const char* id : {"log.jsonl", "log.console"}) {
    world.listener(id, "record");
    world.table(id, 30);
  }
  EXPECT_EQ(listeners(world.plan(), "record"), (Ids{"log.console", "log.jsonl"}));
  // Columns of a record are for those who read them; several may add some.
  world.catalogue["log.console"].listens[0].reads = world.catalogue["log.jsonl"].listens[0].reads = {"columns"};
  for (const char* id : {"metric.a", "metric.b"}) {
    world.listener(id, "record", {}, {"columns"});
    world.table(id, 30);
  }
  EXPECT_EQ(listeners(world.plan(), "record"), (Ids{"metric.a", "metric.b", "log.console", "log.jsonl"}));
}

}  // namespace
}  // namespace mortise::test
