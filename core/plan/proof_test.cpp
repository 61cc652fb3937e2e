// A small world: a linear that is cut along `tensor`, whose ranks see the same samples, experts along an axis of other
// samples, and who sums gradients. What is wrong in it is one word of a plugin.toml.
#include "core/plan/proof.hpp"

#include "core/plan/plan_test.hpp"

namespace mortise::test {
namespace {

using Lines = std::vector<std::string>;

struct RankProof : testing::Test {
  World world = World::runnable();
  Plan plan;

  RankProof() {
    says("parallel.none", {{"sums", "replicas"}});
    world.operators({"linear", "mlp"});
    world.provider("layer.tensor", {"linear"});
    says("layer.tensor", {{"axis", "tensor"}, {"gives", "same"}, {"gives_back", "same"}, {"gradient", "whole"}});
    world.provider("layer.experts", {"mlp"});
    says("layer.experts", {{"axis", "experts"}, {"gives", "cut"}, {"gives_back", "cut"}, {"gradient", "whole"}});
    world.table("layer.tensor", 20);
    world.table("layer.experts", 21);
  }
  void says(const std::string& id, const std::map<std::string, std::string>& facts) {
    for (const auto& [name, word] : facts) world.catalogue[id].facts["ranks"][name] = {word, {}};
  }
  void listener(const std::string& id, const std::string& fact, const std::string& word) {
    world.listener(id, "run.end");
    says(id, {{fact, word}});
    world.table(id, 30);
  }

  // `tensor` by `experts` ranks along the axes.
  Lines lines(int ranks, int tensor, int experts, bool sharded = false) {
    plan = world.plan();
    EXPECT_EQ(world.text(), "");
    const Mesh mesh(0, ranks,
                    {{.name = "experts", .by = "", .size = experts},
                     {.name = "tensor", .by = "", .size = tensor, .shares_data = true}});
    const RankedLayer linear = {"h.0.proj", &world.catalogue["layer.tensor"]},
                      mlp = {"h.0.mlp", &world.catalogue["layer.experts"]}, model = {"", &world.catalogue["model.gpt"]};
    return proof_of(plan, mesh, {linear, mlp},
                    {{"wte.weight", -1, sharded, {model}},
                     {"h.0.proj.weight", mesh.find("tensor"), sharded, {linear, model}},
                     {"h.0.mlp.0.up", mesh.find("experts"), sharded, {mlp, model}},
                     {"h.0.mlp.1.up", mesh.find("experts"), sharded, {mlp, model}}});
  }
  std::string error(int ranks, int tensor, int experts, bool sharded = false) {
    try {
      lines(ranks, tensor, experts, sharded);
    } catch (const Failure& f) {
      EXPECT_EQ(f.diagnostic.code, "not_proven");
      EXPECT_EQ(f.diagnostic.exit, kExitUsage);
      std::string text = f.diagnostic.message;
      for (const std::string& line : f.diagnostic.lines) text += "\n" + line;
      return text;
    }
    return "";
  }
};

TEST_F(RankProof, SaysOverHowManyRanksEachGradientIsSummed) {
  EXPECT_EQ(lines(2, 1, 1),
            (Lines{"gradients of 4 tensors: summed once over 2 ranks by parallel.none",
                   "norm: each element counts once", "terms: each is divided once, by what 2 ranks have counted"}));
  EXPECT_EQ(lines(8, 2, 2),
            (Lines{"gradients of 1 tensor: summed once over 4 ranks by parallel.none",
                   "gradients of 2 tensors: whole along `experts` by layer.experts, summed once over 2 ranks by "
                   "parallel.none",
                   "gradients of 1 tensor: whole along `tensor` by layer.tensor, summed once over 4 ranks by "
                   "parallel.none",
                   "norm: each element counts once",
                   "terms: each is divided once, by what 4 ranks have counted, the others see the same samples"}));
  EXPECT_EQ(lines(2, 1, 2)[1],
            "gradients of 2 tensors: whole along `experts` by layer.experts, not summed: no other rank has a part of "
            "it");
}

TEST_F(RankProof, FindsASumThatIsMissing) {
  says("parallel.none", {{"sums", "none"}});
  EXPECT_EQ(error(4, 1, 2),
            "the gradient of wte.weight is summed by nobody along `experts`\n"
            "each rank has that of the samples which it sees\n"
            "parallel.none sums it over no other rank");
  EXPECT_EQ(error(4, 2, 1),
            "the gradient of wte.weight is summed by nobody over the 2 ranks that see other samples\n"
            "each rank has that of the samples which it sees\n"
            "parallel.none sums it over no other rank");
  EXPECT_EQ(error(2, 2, 1), "") << "which see the same samples";
  world.catalogue["parallel.none"].facts.clear();
  EXPECT_EQ(error(2, 1, 1),
            "the gradient of wte.weight is summed by nobody over the 2 ranks that see other samples\n"
            "each rank has that of the samples which it sees\n"
            "parallel.none does not say over which ranks it sums: [ranks] sums");
}

TEST_F(RankProof, FindsOneSumTooMany) {
  says("layer.tensor", {{"sums", "replicas"}});
  EXPECT_EQ(error(4, 2, 1),
            "the gradient of h.0.proj.weight is summed 2 times over the 2 ranks that see other samples\n"
            "each rank has that of the samples which it sees\n"
            "parallel.none sums it over the 2 ranks that have the same elements and see other samples\n"
            "layer.tensor sums it over the 2 ranks that have the same elements and see other samples");
  EXPECT_EQ(error(2, 2, 1), "") << "it has no replicas";
  // Who has no layers sums them all.
  listener("gradient.sum", "sums", "replicas");
  EXPECT_TRUE(error(2, 1, 1).starts_with(
      "the gradient of wte.weight is summed 2 times over the 2 ranks that see other samples\n"));
}

TEST_F(RankProof, FindsASumOfWhatIsWhole) {
  says("parallel.none", {{"sums", "all"}});
  EXPECT_EQ(error(2, 1, 1), "") << "all are replicas";
  EXPECT_EQ(error(4, 1, 2),
            "the gradient of h.0.mlp.0.up is whole along `experts`, and summed there: it counts 2 times\n"
            "layer.experts at h.0.mlp leaves it whole along `experts`\n"
            "parallel.none sums it over all 4 ranks");
  EXPECT_EQ(error(4, 2, 1),
            "the gradient of wte.weight is whole along `tensor`, and summed there: it counts 2 times\n"
            "each rank has that of the samples which it sees\n"
            "parallel.none sums it over all 4 ranks");
  listener("gradient.twice", "sums", "all");
  EXPECT_NE(error(2, 2, 1).find("whole along `tensor`, and summed there: it counts 4 times\n"), std::string::npos);
}

TEST_F(RankProof, FindsAGradientThatNothingCanAddUp) {
  says("layer.experts", {{"gradient", "partial"}});
  EXPECT_EQ(
      error(2, 1, 2),
      "the gradient of h.0.mlp.0.up is partial along `experts`, where no other rank has its elements: nothing can "
      "add it up\n"
      "layer.experts at h.0.mlp leaves it partial along `experts`\n"
      "parallel.none sums it over no other rank");
  EXPECT_EQ(error(2, 1, 1), "");
}

TEST_F(RankProof, FindsALayerThatGivesWhatTheNextOneDoesNotTake) {
  says("layer.tensor", {{"gives", "partial"}});
  EXPECT_EQ(error(2, 2, 1),
            "layer.tensor at h.0.proj gives a partial sum along `tensor`, and the same on each rank is expected\n"
            "ranks along `tensor` see the same samples\n"
            "layer.tensor: [ranks] gives = \"partial\"");
  EXPECT_EQ(error(2, 1, 2), "");
  says("layer.tensor", {{"gives", "same"}, {"gives_back", "cut"}});
  EXPECT_TRUE(
      error(2, 2, 1).starts_with("layer.tensor at h.0.proj gives back rows of each rank's own along `tensor`, "));
  says("layer.experts", {{"gives", "same"}});
  EXPECT_TRUE(error(2, 1, 2).starts_with(
      "layer.experts at h.0.mlp gives the same on each rank along `experts`, and rows of each rank's own is expected\n"
      "ranks along `experts` see other samples\n"));
}

TEST_F(RankProof, FindsANormOverReplicasAndOneOfAPart) {
  listener("gradient.norm", "norms", "all");
  EXPECT_EQ(error(2, 1, 1),
            "gradient.norm counts wte.weight 2 times in a norm\n"
            "2 ranks have the same elements of it\n"
            "gradient.norm: [ranks] norms = \"all\"");
  EXPECT_EQ(error(2, 1, 1, true), "") << "in parts, of which each rank has another one";
  EXPECT_EQ(error(2, 1, 2, true), "") << "nor of those along an axis";
  EXPECT_TRUE(error(4, 2, 1, true).starts_with("gradient.norm counts wte.weight 2 times in a norm\n"));
  says("gradient.norm", {{"norms", "none"}});
  EXPECT_EQ(error(2, 1, 1), "");
  EXPECT_EQ(error(2, 2, 1),
            "gradient.norm leaves out of a norm what other ranks have of h.0.proj.weight\n"
            "each rank has other elements of it\n"
            "gradient.norm: [ranks] norms = \"none\"");
  EXPECT_TRUE(
      error(2, 1, 1, true).starts_with("gradient.norm leaves out of a norm what other ranks have of wte.weight"));
  says("gradient.norm", {{"norms", "parts"}});
  EXPECT_EQ(lines(4, 2, 1)[2], "norm: each element counts once, as gradient.norm sums it up too");
}

TEST_F(RankProof, FindsASecondDivision) {
  world.catalogue["parallel.none"].facts.clear();
  says("parallel.none", {{"averages", "replicas"}});
  EXPECT_EQ(error(2, 1, 1),
            "parallel.none divides gradients by the number of ranks: each term would be divided twice\n"
            "the core divides each term by what 2 ranks have counted\n"
            "parallel.none: [ranks] averages = \"replicas\"");
}

// What the proof takes for granted of the core's norm: over all ranks, each element of a parameter counts once.
TEST(CountsSquares, OfEachElementOnce) {
  for (const int tensor : {1, 2, 3})
    for (const int experts : {1, 2})
      for (const int others : {1, 2, 3})
        for (const bool sharded : {false, true})
          for (const int axis : {-1, 0, 1}) {
            std::map<std::pair<int, int32_t>, int> counted;  // by what a rank has of it
            const int size = tensor * experts * others;
            for (int rank = 0; rank < size; ++rank) {
              const Mesh mesh(rank, size,
                              {{.name = "tensor", .by = "", .size = tensor, .shares_data = true},
                               {.name = "experts", .by = "", .size = experts}});
              const auto sharers = mesh.sharers(axis);
              const auto replica = std::ranges::find(sharers, rank) - sharers.begin();
              counted[{axis < 0 ? 0 : mesh.place(axis), sharded ? static_cast<int32_t>(replica) : 0}] +=
                  counts_squares(mesh, axis, sharded);
            }
            for (const auto& [elements, times] : counted)
              EXPECT_EQ(times, 1) << tensor << " " << experts << " " << others << " " << sharded << " " << axis;
          }
}

}  // namespace
}  // namespace mortise::test
