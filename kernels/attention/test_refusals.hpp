// For tests of plugins: where an attention of a GPU refuses to train, by the layer's attributes and the compute dtype.
#pragma once
#include <gtest/gtest.h>

#include "mortise/testing/fake_build.hpp"

namespace mortise::testing {

template <uint32_t kDtype>
struct AttentionOfAGpu : ::testing::Test {
  std::string refusal(std::initializer_list<mortise_attr> attrs, uint32_t dtype = kDtype) {
    mortise_place place{};
    place.mode = MORTISE_TRAIN;
    place.device = MORTISE_CUDA;
    place.compute_dtype = dtype;
    return FakeBuild::refusal(plugin, "attention", place, attrs);
  }
  FakeHost host;
  FakeBuild build{host};
  Plugin plugin{host, MORTISE_PLUGIN_FILE};
  const std::string fix = "\n  fix: [attention.math], or let it choose: [attention.auto]";
};

}  // namespace mortise::testing
