#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

TEST(NoReplicas, HaveNothingToJoin) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const mortise_replicas& replicas = plugin.object<mortise_replicas>("replicas");
  mortise_param* weight = host.add_param("weight", "matrix", {2, 3});
  for (const int micro : {0, 1}) EXPECT_EQ(replicas.ready(plugin.self(), weight, micro, micro == 1), MORTISE_OK);
  EXPECT_EQ(replicas.finish(plugin.self(), 0), MORTISE_OK);
  EXPECT_EQ(host.live_tensors(), 0U);
}
}  // namespace
