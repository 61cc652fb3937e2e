// The fake host answers as a run does: uses.def, which core/loop/uses_test.cpp asks of a run.
#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

int64_t answer_of_fake_host(const std::string& library, const std::string& use, const std::string& point) {
  FakeHost host;
  host.set("use", use);
  host.add_param("w", "matrix", {2});
  host.add_param("b", "buffer", {2});
  host.model = [](auto...) { return mortise_status{MORTISE_OK}; };
  Plugin plugin(host, library);
  if (point == "record") plugin.notify(point, FakeRecord("step").add("loss", 1.0));
  else plugin.notify(point);
  return *static_cast<const int64_t*>(plugin.self());
}

TEST(Uses, AreAnsweredAsInARun) {
#define USE(name, point, answer, unsaid, ...)                                           \
  EXPECT_EQ(answer_of_fake_host(USES, name, point), int64_t{MORTISE_##answer}) << name; \
  EXPECT_EQ(answer_of_fake_host(UNSAID, name, point), int64_t{MORTISE_##unsaid}) << name << ", unsaid";
#include "uses/uses.def"
#undef USE
}
}  // namespace
