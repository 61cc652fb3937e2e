// A provider of a larger unit: its bits and its gradients, what it covers, and what the first step says of its types.
#include <gtest/gtest.h>

#include "core/assemble/test_assembled.hpp"
#include "core/base/diagnostic.hpp"
#include "core/declare/summary.hpp"

namespace mortise::testing {
namespace {

const std::vector<std::string> kFixtures = {MORTISE_BINARY_DIR "/fixtures/assemble"};
const std::string kFused = "[layer.fused]\n";

Allocated allocated(const PlannedRun& planned) {
  return allocate(declare(planned.request(), std::make_unique<Host>(planned.plan.points, 1)), true);
}
std::string refusal_of(const std::string& more) {
  const PlannedRun planned(more, {}, {}, kFixtures);
  try {
    allocated(planned);
  } catch (const Failure& f) {
    return f.diagnostic.code + ": " + f.diagnostic.message;
  }
  return "";
}

// Masters after some steps.
std::map<std::string, at::Tensor> trained(const std::string& more) {
  Assembled run(more, {}, kFixtures);
  for (int i = 0; i < 3; ++i) run.step();
  std::map<std::string, at::Tensor> masters;
  for (const ParameterState& s : run.host().parameters().all()) masters[s.declared->name] = s.master.clone();
  return masters;
}

void expect_same_bits(const std::string& more) {
  const auto composite = trained(more), fused = trained(more + kFused);
  ASSERT_EQ(composite.size(), fused.size());
  for (const auto& [name, master] : composite) EXPECT_TRUE(master.equal(fused.at(name))) << name << "\n" << more;
}

TEST(Targets, HaveTheBitsOfTheCompositeInOneMicroBatch) { expect_same_bits(""); }

TEST(Targets, AreAddedToFromTheSecondMicroBatchOn) { expect_same_bits("[step.accumulation]\ncount = 3\n"); }

TEST(Targets, AreWrittenOnceWhereBlocksAreComputedAgain) {
  expect_same_bits("[activation.checkpointing]\n[step.accumulation]\ncount = 2\n");
}

TEST(Targets, OfAnotherTypeThanTheGradientAreNone) { expect_same_bits("[precision.bf16]\n"); }

TEST(Covers, RefuseBothByName) {
  EXPECT_EQ(refusal_of(kFused + "[adapter.lora]\nwhere = \"h.*.mlp.c_fc\"\n"),
            "covered: layer.fused computes `mlp` at h.0.mlp as one, and adapter.lora attaches to `linear` inside it");
  EXPECT_EQ(refusal_of("[layer.fused]\nwhere = \"h.1.mlp\"\n[adapter.lora]\nwhere = { match = \"*\", except = "
                       "[\"h.1.mlp*\", \"lm_head\"] }\n"),
            "")
      << "elsewhere they do not meet";
}

TEST(Covers, GiveWayWhereSomebodyChooses) {
  const PlannedRun planned("[layer.either]\n[adapter.lora]\nwhere = \"h.1.mlp.*\"\n", {}, {}, kFixtures);
  const Allocated run = allocated(planned);
  const auto provider = [&](const std::string& path) {
    for (const mortise_layer& layer : run.host().declaration().layers)
      if (layer.path == path)
        return planned.plan.members[static_cast<size_t>(run.declared.layers->member(layer, MORTISE_TRAIN))]
            .info->schema.id;
    return std::string();
  };
  EXPECT_EQ(provider("h.0.mlp"), "layer.fused");
  EXPECT_EQ(provider("h.1.mlp"), "operators.aten");
  EXPECT_EQ(summary_of(run.declared, "").details.at("layer.fused"), "kept apart at h.1.mlp, for adapter.lora");
}

// Whoever only watches every call sees the larger one.
TEST(Covers, AreNotKeptApartForWhoWatchesEveryCall) { EXPECT_EQ(refusal_of(kFused + "[profile.calls]\n"), ""); }

TEST(Dtypes, OtherThanPlannedNameTheProvider) {
  Assembled run("[layer.fused]\nwide = true\n[precision.bf16]\n", {}, kFixtures);
  try {
    run.step();
    FAIL() << "nobody noticed";
  } catch (const PluginError& e) {
    EXPECT_NE(e.text().find("layer.fused gave result 0 of mlp at h.0.mlp in fp64; the plan has it in bf16"),
              std::string::npos)
        << e.text();
    EXPECT_EQ(e.plugin(), "layer.fused");
  }
}

TEST(Dtypes, AreSaidBeforeTheFirstStep) {
  const auto text = [](const std::string& more) {
    Assembled run(more);
    return summary_of(run.r.declared(), "").dtypes;
  };
  EXPECT_EQ(text(""), "values fp32 · masters fp32 · gradients fp32 · states fp32 · computes as stored");
  EXPECT_TRUE(text("[precision.bf16]\n").ends_with(" · computes in bf16")) << text("[precision.bf16]\n");
}

// Each precision of this build, and what changes results inside: none is refused in its first step.
TEST(Dtypes, OfThisBuildAreAsPlanned) {
  for (const char* more : {"[precision.bf16]\n", "[precision.half]\n[optimizer.adafactor]\n",
                           "[precision.bf16]\n[adapter.lora]\nwhere = \"h.*.attn.c_attn\"\n",
                           "[precision.bf16]\n[layer.moe]\nwhere = \"h.1.mlp\"\n", "[attention.math]\n"}) {
    Assembled run(more);
    EXPECT_NO_THROW(run.step()) << more;
  }
}

}  // namespace
}  // namespace mortise::testing
