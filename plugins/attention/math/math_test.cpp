// Where attention by hand refuses to run. Numbers against ATen: tests/operators.
#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"

using namespace mortise::testing;
using mortise::attr;

TEST(Math, RefusesDropoutOnAnotherDeviceInTrainingOnly) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  mortise_place place{};
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), "");
  place.device = MORTISE_CUDA;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}),
            "dropout of attention.math runs on the CPU only\n  fix: dropout = 0");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.0)}), "");
  place.mode = MORTISE_EVAL;
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", place, {attr("dropout", 0.1)}), "");
}

TEST(Math, TakesAMaskOfKeysAndRefusesOneThatItDoesNotKnow) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", {}, {attr("mask", "keys")}), "");
  EXPECT_EQ(FakeBuild::refusal(plugin, "attention", {}, {attr("mask", "segments")}),
            "attention.math knows a mask of keys, [B, T], and no other (segments)\n  fix: another attention");
}
