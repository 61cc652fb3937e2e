// A run answers plugins as the fake host does: sdk/tests/uses/uses.def, which sdk/tests/uses_test.cpp asks of that one.
#include "core/abi/instances.hpp"
#include "core/loop/test_trainings.hpp"

namespace mortise::testing {
namespace {

struct Answered {
  PluginInfo info;
  PluginTable table;
  Plan plan;
  TestRun run;
  FakeDevice device;

  Answered(const std::string& library, const std::string& id, const std::string& toml, const std::string& use) {
    Report report;
    info = read_plugin_info(toml, id, report).value();
    info.library = library;
    table.schema = &info.schema;
    table.values["use"].data = use;
    plan.members = {{&info, &table}};
  }
  // One step of a training in which the plugin listens wherever it says.
  int64_t train() {
    Instances instances(run.host, plan, "");
    Instance& plugin = instances.start(0);
    for (const mortise_attachment* a : plugin.attachments)
      run.listeners.add(static_cast<uint32_t>(run.points.find(view(a->point))), a->listen, plugin);
    run.build();
    mortise_param& buffer = run.host.declaration().params.emplace_back();
    buffer.name = "b";
    buffer.role = "buffer";
    const mortise_param_info declared = run.param->info;
    run.host.declaring_parameters = true;
    run.listeners.notify(kParamsDeclared, {});
    run.host.declaring_parameters = false;
    run.param->info = declared;  // what it changed comes too late for this run
    run.host.declaration().params.pop_back();
    TrainOptions options;
    options.length = 1;
    Saver saver{SaverOptions{}};
    Training({run.host,
              run.listeners,
              instances,
              *run.samples,
              *run.passes,
              *run.step,
              saver,
              *run.ledger,
              {&device.object, &device.instance},
              {},
              {}},
             options)
        .run([](auto) { return Interrupt::kNone; });
    return *static_cast<const int64_t*>(plugin.self);
  }
};

TEST(Uses, AreAnsweredAsByTheFakeHost) {
#define USE(name, point, answer, unsaid, ...)                                                         \
  EXPECT_EQ(Answered(USES, "test.uses", USES_TOML, name).train(), int64_t{MORTISE_##answer}) << name; \
  EXPECT_EQ(Answered(UNSAID, "test.unsaid", UNSAID_TOML, name).train(), int64_t{MORTISE_##unsaid})    \
      << name << ", unsaid";
#include "sdk/tests/uses/uses.def"
#undef USE
}

}  // namespace
}  // namespace mortise::testing
