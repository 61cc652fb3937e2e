// What a token costs, of declarations that are counted by hand.
#include "core/declare/work.hpp"

#include <gtest/gtest.h>

#include "core/declare/test_planned.hpp"

namespace mortise::testing {
namespace {

struct Ready {
  PlannedRun planned;
  Declared d;
  explicit Ready(const std::string& more = "")
      : planned(more), d(declare(planned.request(), std::make_unique<Edge>(planned.plan.points, 1))) {}
  double flop() { return flop_per_token(d.edge->declaration(), d.sequence_length); }
  std::string factors() { return factors_of_products(planned.plan, d.edge->declaration()); }
};

// Two blocks of width 8: 3 + 1 matrices of 8 × 8 in attention, two of 8 × 32; 11 words of 8 that are the head, too.
// Queries and keys of 8 positions, and what they weigh: twice 8 × 8.
constexpr double kAttention = 4 * 64, kMlp = 2 * 256, kHead = 11 * 8, kPairs = 2 * 8 * 8;

TEST(Work, IsSixForAParameterAndAttention) {
  EXPECT_EQ(Ready().flop(), 6 * (2 * (kAttention + kMlp) + kHead + 2 * kPairs));
}

TEST(Work, GoesBackNoFurtherThanWhatIsTrained) {
  const double below = 2 * (kAttention + kMlp + kPairs), block = 4 * (kAttention + kMlp) + 6 * kPairs,
               adapter = 6 * (2 * 8 + 2 * 24), head = 4 * kHead;
  EXPECT_EQ(Ready("[adapter.lora]\nwhere = \"h.1.attn.c_attn\"\nrank = 2\n").flop(), below + block + adapter + head);
}

TEST(Work, OfALayerIsThatOfTheTokensItSees) {
  Ready run;
  for (mortise_layer& layer : run.d.edge->declaration().layers)
    if (layer.path.starts_with("h.0.mlp")) layer.share = 0.25;
  EXPECT_EQ(run.flop(), 6 * (2 * kAttention + 1.25 * kMlp + kHead + 2 * kPairs));
}

// Attention as layers of other plugins declare it: over a window of keys, and around the layer that computes it.
TEST(Work, OfAttentionIsThatOfTheKeysItSeesAndOfItsInnermostLayer) {
  const auto flop_with = [](int64_t window, bool around) {
    Ready run;
    auto& layers = run.d.edge->declaration().layers;
    for (mortise_layer& layer : layers) {
      const auto has = [&](std::string_view key) {
        return std::ranges::any_of(layer.attrs, [&](const mortise_attr& a) { return view(a.key) == key; });
      };
      if (!layer.path.starts_with("h.0.") || !has("heads") || !has("head_dim")) continue;
      if (window > 0) layer.attrs.insert(layer.attrs.begin(), {MORTISE_STR("window"), {MORTISE_INT, 0, {.i = window}}});
      if (around) const_cast<mortise_layer*>(layer.declarer.layer)->attrs = layer.attrs;
    }
    return run.flop();
  };
  const double as_it_is = 6 * (2 * (kAttention + kMlp) + kHead + 2 * kPairs);
  EXPECT_EQ(flop_with(2, false), as_it_is - 6 * kPairs * 3 / 4) << "two keys of eight";
  EXPECT_EQ(flop_with(100, false), as_it_is) << "there are eight";
  EXPECT_EQ(flop_with(0, true), as_it_is) << "counted once";
}

// What other ranks multiply is work of a token, too.
TEST(Work, IsThatOfTheModelWhateverThisRankHasOfIt) {
  Ready run;
  place(*run.d.edge->declaration().find("h.0.mlp.c_fc.weight"), {0, "experts", 0, 2}, int64_t{1});
  EXPECT_EQ(run.d.edge->declaration().find("h.0.mlp.c_fc.weight")->info.numel, 0);
  EXPECT_EQ(run.flop(), Ready().flop());
}

TEST(Work, IsInTheElementTypeOfMostProducts) {
  EXPECT_EQ(Ready().factors(), "fp32");
  EXPECT_EQ(Ready("[precision.bf16]\n").factors(), "bf16");
  Ready rounds("[precision.fp32]\n");
  rounds.planned.catalogue.at("precision.fp32").facts["frame"]["products"] = {std::string("rounded"), {}};
  EXPECT_EQ(rounds.factors(), "rounded") << "as a plugin says of factors in fp32";
  rounds.planned.catalogue.at("precision.fp32").facts["frame"]["compute_dtype"] = {std::string("bf16"), {}};
  EXPECT_EQ(rounds.factors(), "bf16") << "which are not in fp32";
}

}  // namespace
}  // namespace mortise::testing
