// The plan as links: who is called at each place, from the outside to the inside.
#include "core/assemble/links.hpp"

#include <gtest/gtest.h>

#include "core/assemble/test_assembled.hpp"

namespace mortise::testing {
namespace {

using Ids = std::vector<std::string>;

Ids chain(const mortise_next* link) {
  Ids ids;
  for (; link; link = link->next) ids.push_back(link->plugin ? link->plugin->id : "core");
  return ids;
}
const mortise_layer& layer(Host& host, const std::string& path) {
  for (const mortise_layer& l : host.declaration().layers)
    if (l.path == path) return l;
  throw std::out_of_range(path);
}
Ids with(const std::string& wrapper, const std::string& provider, bool wrapped) {
  return wrapped ? Ids{wrapper, provider} : Ids{provider};
}

TEST(Links, OfCallPointsRunThroughTheWrappersToTheCoreOrAPlugin) {
  Assembled run("[precision.bf16]\n");
  const Chains& chains = *run.r.allocated.chains;
  EXPECT_EQ(chain(chains.at(kStep, MORTISE_TRAIN)), Ids{"core"});
  EXPECT_EQ(chain(chains.at(kBatch, MORTISE_TRAIN)), (Ids{"loader.prefetch", "transfer.sync"}));
  EXPECT_EQ(chain(chains.at(kLoad, MORTISE_TRAIN)), (Ids{"loader.prefetch", "core"}));
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode)
    EXPECT_EQ(chain(chains.at(kForward, mode)), (Ids{"precision.bf16", "core"})) << mode;
}

// Wrappers stand in the order of the plan, at the points, modes and blocks that it says.
TEST(Links, AreThoseOfThePlan) {
  Assembled run("[precision.bf16]\nmodes = [\"train\"]\n[activation.checkpointing]\n");
  const Plan& plan = run.planned.plan;
  for (uint32_t point = 0; point < kFirstOperator; ++point) {
    if (plan.points[point].kind != Kind::Call || point == kBlock) continue;
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
      Ids expected;
      for (const Attached& a : plan.at[point].wrappers)
        if (a.modes >> mode & 1) expected.push_back(plan.members[static_cast<size_t>(a.member)].info->schema.id);
      Ids found = chain(run.r.allocated.chains->at(static_cast<Point>(point), mode));
      ASSERT_FALSE(found.empty()) << plan.points[point].name;
      found.pop_back();
      EXPECT_EQ(found, expected) << plan.points[point].name << " in mode " << mode;
    }
  }
  const Chains& chains = *run.r.allocated.chains;
  EXPECT_EQ(chain(chains.at(kForward, MORTISE_TRAIN)).size(), 2u);
  EXPECT_EQ(chain(chains.at(kForward, MORTISE_EVAL)), Ids{"core"});
}

// Two at one point, which this build's plugins have in different modes only: the first of the plan is the outermost.
TEST(Links, StandInTheOrderOfThePlan) {
  PlannedRun planned("[precision.bf16]\nmodes = [\"train\"]\n[precision.fp32]\nmodes = [\"eval\", \"sample\"]\n");
  auto& wrappers = planned.plan.at[kForward].wrappers;
  ASSERT_EQ(wrappers.size(), 2u);
  Ids expected;
  for (Attached& a : wrappers) {
    a.modes = 7;
    a.except.clear();
    expected.push_back(planned.plan.members[static_cast<size_t>(a.member)].info->schema.id);
  }
  expected.push_back("core");
  const Allocated run = allocate(declare(planned.request(), std::make_unique<Host>(planned.plan.points, 1)), true);
  EXPECT_EQ(chain(run.chains->at(kForward, MORTISE_TRAIN)), expected);
}

TEST(Links, OfBlocksAreWrappedWhereAndWhenThePlanSays) {
  Assembled run("[activation.checkpointing]\nwhere = \"h.1\"\nmodes = [\"train\"]\n");
  const auto& segments = run.host().declaration().segments;
  for (size_t s = 0; s < segments.size(); ++s)
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode)
      EXPECT_EQ(chain(run.r.allocated.chains->segment(s, mode)),
                with("activation.checkpointing", "model.gpt", segments[s].path == "h.1" && mode == MORTISE_TRAIN))
          << segments[s].path << " in mode " << mode;
}

// Segments that are no blocks (the embedding, the head) are never wrapped at `block`.
TEST(Links, OfOtherSegmentsHaveNoWrapper) {
  Assembled run("[activation.checkpointing]\n");
  const auto& segments = run.host().declaration().segments;
  for (size_t s = 0; s < segments.size(); ++s)
    EXPECT_EQ(chain(run.r.allocated.chains->segment(s, MORTISE_TRAIN)),
              with("activation.checkpointing", "model.gpt", (segments[s].flags & MORTISE_BLOCK) != 0))
        << segments[s].path;
}

// Whoever watches every call stands outermost at each; where it is off there is no link of it.
TEST(Links, OfWhoWatchesEveryCallAreEverywhere) {
  for (const bool on : {true, false}) {
    Assembled run(on ? "[profile.calls]\n[precision.bf16]\n" : "[precision.bf16]\n");
    const Chains& chains = *run.r.allocated.chains;
    size_t watched = 0, all = 0;
    const auto count = [&](const mortise_next* link) {
      ++all;
      watched += chain(link).front() == "profile.calls";
    };
    for (const Point p : {kLoad, kBatch, kStep, kGradients, kMicro, kForward, kBackward, kEval})
      count(chains.at(p, MORTISE_TRAIN));
    for (const mortise_layer& l : run.host().declaration().layers) count(run.host().layer_chain(l, MORTISE_TRAIN));
    EXPECT_EQ(watched, on ? all : 0);
  }
}

// What a crash inside of them is laid to.
TEST(Links, OfLayersHaveTheNameOfTheirOperator) {
  Assembled run;
  for (const mortise_layer& l : run.host().declaration().layers)
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode)
      EXPECT_EQ(run.host().layer_chain(l, mode)->point, run.planned.plan.points[static_cast<size_t>(l.point)].name)
          << l.path << " in mode " << mode;
}

TEST(Links, OfLayersEndAtTheirProviderInEachMode) {
  Assembled run("[attention.flash]\n[attention.math]\nwhere = \"h.1.*\"\nmodes = [\"eval\"]\n");
  const auto provider = [&](const std::string& path, uint32_t mode) {
    return chain(run.host().layer_chain(layer(run.host(), path), mode));
  };
  EXPECT_EQ(provider("h.1.attn.attention", MORTISE_TRAIN), Ids{"attention.flash"});
  EXPECT_EQ(provider("h.1.attn.attention", MORTISE_EVAL), Ids{"attention.math"});
  EXPECT_EQ(provider("h.0.attn.attention", MORTISE_EVAL), Ids{"attention.flash"});
  EXPECT_EQ(provider("h.0.mlp", MORTISE_TRAIN), Ids{"operators.aten"});
}

}  // namespace
}  // namespace mortise::testing
