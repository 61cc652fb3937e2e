// Who is asked, when, and what its failures become. With a real program: tests/e2e/own_loop_test.py.
#include <gtest/gtest.h>

#include "mortise/program.h"
#include "mortise/testing/fake_build.hpp"
#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;

namespace {

struct HostModel : testing::Test {
  HostModel() {
    program.struct_size = sizeof program;
    program.self = this;
    program.declare = [](void* self, mortise_host*, mortise_builder*) noexcept { return of(self).asked("declare"); };
    program.forward = [](void* self, mortise_host*, mortise_call*) noexcept { return of(self).asked("forward"); };
    program.gradients = [](void* self, mortise_host*) noexcept { return of(self).asked("gradients"); };
    program.step_end = [](void* self, mortise_host*) noexcept { return of(self).asked("step_end"); };
  }
  static HostModel& of(void* self) { return *static_cast<HostModel*>(self); }
  mortise_status asked(const std::string& what) {
    all += what + " ";
    return what == fails ? host.fail(&host, MORTISE_E_DATA, MORTISE_STR("of the program")) : MORTISE_OK;
  }
  std::string all, fails;
  mortise_program program{};
  FakeHost host;
};

TEST_F(HostModel, AsksTheProgramInTheOrderOfAStep) {
  host.offer("mortise.program/0", &program);
  FakeBuild build(host);
  FakeChain chain(host, [this](mortise_call&) { return all += "next ", mortise_status{MORTISE_OK}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  build.model(plugin);
  FakeCall call({}, 2);
  ASSERT_EQ(plugin.object<mortise_model>("model").segment(plugin.self(), &call, 0), MORTISE_OK);
  ASSERT_EQ(chain.wrap(plugin, "gradients", call), MORTISE_OK);
  mortise_event event{};
  ASSERT_EQ(plugin.notify("step.end", event), MORTISE_OK);
  EXPECT_EQ(all, "declare forward next gradients step_end ");
}

TEST_F(HostModel, PassesOnWhatFails) {
  host.offer("mortise.program/0", &program);
  FakeChain chain(host, [](mortise_call&) { return mortise_status{MORTISE_E_OPERATOR}; });
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({}, 2);
  fails = "forward";
  EXPECT_EQ(plugin.object<mortise_model>("model").segment(plugin.self(), &call, 0), MORTISE_E_DATA);
  EXPECT_EQ(host.error(), "of the program");
  EXPECT_EQ(chain.wrap(plugin, "gradients", call), MORTISE_E_OPERATOR);
  EXPECT_EQ(all, "forward ") << "there are no gradients";
}

TEST_F(HostModel, NeedsAProgram) {
  EXPECT_THROW(Plugin(host, MORTISE_PLUGIN_FILE), PluginError);
  EXPECT_EQ(host.blamed.value_or(FakeHost::Blame{}).code, "host_missing");
}

}  // namespace
