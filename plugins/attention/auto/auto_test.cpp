// It has no code of its own to test; it loads, and attaches nothing.
#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

using namespace mortise::testing;

TEST(Auto, AttachesNothingBecauseTheCoreChooses) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_TRUE(plugin.attachments().empty());
}
