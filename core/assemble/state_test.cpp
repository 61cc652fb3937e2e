// What a checkpoint brings back: every value of it, in a run that had others.
#include "core/assemble/state.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "core/assemble/test_assembled.hpp"
#include "core/loop/test_comm.hpp"
#include "core/store/folder.hpp"

namespace mortise::testing {
namespace {

// Numbers that no two of which are equal.
RunState state() {
  RunState s;
  s.attempted = 11;
  s.applied = 7;
  s.samples = 130;
  s.tokens = 1040;
  s.cursor = 23;
  s.seed = 1;
  s.scale = 64;
  s.loss_first = 2.5;
  s.best = 1.25;
  s.best_step = 3;
  s.evaluated = 4;
  return s;
}

std::map<std::string, at::Tensor> tensors(Assembled& run) {
  std::map<std::string, at::Tensor> all;
  for (const auto& p : run.host().parameters().all()) all[p.declared->name] = p.master;
  for (const Optimizer& o : *run.r.optimizers)
    for (const NamedState& s : o.states()) all[s.name] = s.tensor;
  return all;
}

struct States : InFolder {
  Found save(Assembled& run, const RunState& s) { return save(run, capture(run.r, s), s.applied); }
  Found save(Assembled& run, const Snapshot& s, int64_t step) {
    CheckpointFolder checkpoints((folder / "checkpoints").string());
    checkpoints.save(s, tensor_format(run.r.declared()), step, {});
    return checkpoints.all().at(0);
  }
  // A run whose every tensor is its own.
  static void scatter(Assembled& run) {
    for (auto& [name, tensor] : tensors(run)) tensor.copy_(at::randn_like(tensor));
  }
  // Changes a text of a checkpoint, which is not verified again.
  static void edit(const Found& found, const std::string& file, const std::string& from, const std::string& to) {
    const std::string path = found.path + "/" + file;
    std::ifstream in(path);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << text;
    std::ofstream(path) << text.replace(at, from.size(), to);
  }
};

TEST_F(States, AreRestoredToTheLastValue) {
  Assembled first("[precision.bf16]\n");
  scatter(first);
  const Found found = save(first, state());
  Assembled second("[precision.bf16]\n");
  const RunState s = restore(second.r, found);
  EXPECT_EQ(second.clock().attempted, 11);
  EXPECT_EQ(second.clock().applied, 7);
  EXPECT_EQ(second.clock().samples, 130);
  EXPECT_EQ(second.clock().tokens, 1040);
  EXPECT_EQ(second.r.step->cursor(), 23);
  EXPECT_EQ(second.r.ledger->applied.item<int64_t>(), 7);
  EXPECT_EQ(second.r.ledger->scale.item<double>(), 64);
  EXPECT_EQ(s.seed, 1u);
  EXPECT_EQ(s.loss_first, 2.5);
  EXPECT_EQ(s.best, 1.25);
  EXPECT_EQ(s.best_step, 3);
  EXPECT_EQ(s.evaluated, 4);
  auto was = tensors(first), is = tensors(second);
  ASSERT_EQ(is.size(), was.size());
  for (const auto& [name, tensor] : was) EXPECT_TRUE(at::equal(is.at(name), tensor)) << name;
  int copies = 0;
  for (const auto& p : second.host().parameters().all()) {
    EXPECT_TRUE(at::equal(p.value, p.master.to(p.value.scalar_type()))) << p.declared->name << ": its compute copy";
    copies += !p.value.is_same(p.master);
  }
  EXPECT_GT(copies, 0);
}

// With accumulation, a rate that changes, dropout and a skipped step, no two counts agree.
TEST_F(States, TrainOnAsIfNothingHadHappened) {
  const std::string more =
      "[step.accumulation]\ncount = 2\n[schedule]\nwarmup = 4\n[optimizer]\nlr = 0.01\n[optimizer.adamw]\n";
  const std::vector<std::string> set = {"model.gpt.dropout=0.1", "run.length=20", "data.random.samples=10"};
  Assembled whole(more, set);
  const auto spoil = [](Assembled& run) {  // the next step is not finite, and skipped
    run.r.ledger->scale.fill_(INFINITY);
    EXPECT_FALSE(run.step().applied);
    run.r.ledger->scale.fill_(1);
  };
  whole.step();
  spoil(whole);
  whole.step();
  RunState s = state();
  s.attempted = whole.clock().attempted;
  s.applied = whole.clock().applied;
  s.samples = whole.clock().samples;
  s.tokens = whole.clock().tokens;
  s.cursor = whole.r.step->cursor();
  s.scale = 1;
  s.best_step = 1;
  s.evaluated = 2;
  EXPECT_EQ(s.attempted, 3);
  EXPECT_EQ(s.applied, 2);
  EXPECT_EQ(s.cursor, 5) << "windows of 2, 2 and 1 micro-batches are an epoch";
  const Found found = save(whole, s);
  // One after the other: a plugin's library is there once, and knows the host that started it last.
  std::vector<StepReport> reports;
  for (int i = 0; i < 3; ++i) reports.push_back(whole.step());
  Assembled part(more, set);
  restore(part.r, found);
  for (const StepReport& a : reports) {
    const StepReport b = part.step();
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.lr, b.lr);
    EXPECT_EQ(a.norm, b.norm);
    EXPECT_EQ(a.cursor, b.cursor);
    EXPECT_EQ(a.attempted, b.attempted);
  }
  auto was = tensors(whole), is = tensors(part);
  for (const auto& [name, tensor] : was) EXPECT_TRUE(at::equal(is.at(name), tensor)) << name;
}

TEST_F(States, OfAPluginAreRestored) {
  Assembled first;
  ASSERT_EQ(first.host().services.blobs.size(), 1u) << "guard.nonfinite keeps how many steps it skipped in a row";
  const Found found = save(first, state());
  edit(found, "plugins/guard.nonfinite.json", "\"text\": \"0\"", "\"text\": \"2\"");
  Assembled second;
  restore(second.r, found);
  Snapshot again = capture(second.r, state());
  EXPECT_NE(again.texts.at("plugins/guard.nonfinite.json").find("\"text\": \"2\""), std::string::npos);
}

// A plugin that has changed its form since knows by this how to read the text.
TEST_F(States, OfAPluginComeWithTheVersionThatWasSaved) {
  Assembled first;
  const Found found = save(first, state());
  Assembled second;
  KeptBlob& kept = second.host().services.blobs.at(0);
  static uint32_t told = 0;
  mortise_blob newer = *kept.blob;
  newer.version += 8;
  newer.load = [](void*, uint32_t version, mortise_str) noexcept -> mortise_status {
    told = version;
    return MORTISE_OK;
  };
  kept.blob = &newer;
  restore(second.r, found);
  EXPECT_EQ(told, newer.version - 8);
}

TEST_F(States, ForUseAreParametersAndCounts) {
  Assembled first;
  scatter(first);
  const Found found = save(first, state());
  PlannedRun planned;
  const Allocated a = allocate(declare(planned.request(), std::make_unique<Host>(planned.plan.points, 1)), false);
  restore(a, found);
  EXPECT_EQ(a.host().services.clock.applied, 7);
  auto was = tensors(first);
  for (const auto& p : a.host().parameters().all())
    EXPECT_TRUE(at::equal(p.master, was.at(p.declared->name))) << p.declared->name;
}

// ---- what is refused ----

std::string refused(const std::function<void()>& body) {
  try {
    body();
  } catch (const Failure& f) {
    EXPECT_EQ(f.diagnostic.exit, kExitData);
    return f.diagnostic.message;
  }
  return "";
}

TEST_F(States, OfAnotherRunAreRefused) {
  Assembled first;
  const Found found = save(first, state());
  const auto by = [&](const std::string& more, const std::vector<std::string>& set) {
    Assembled other(more, set);
    return refused([&] { restore(other.r, found); });
  };
  EXPECT_NE(by("", {"model.gpt.width=16"}).find("has another shape or dtype than in this run"), std::string::npos);
  EXPECT_NE(by("", {"model.gpt.layers=3"}).find("which this run needs"), std::string::npos);
  EXPECT_NE(by("", {"model.gpt.layers=1"}).find("which this run does not know"), std::string::npos);
  EXPECT_NE(by("[optimizer.sgd]\nmomentum = 0.9\n", {}).find("which this run needs"), std::string::npos);
  EXPECT_NE(by("", {"data.random.samples=13"}).find("split `train` is not what this run began with"),
            std::string::npos);
  EXPECT_NE(by("", {"data.random.validation_samples=6"}).find("split `validation` is not what"), std::string::npos);
}

// The same bytes as a matrix of other sides.
TEST_F(States, OfAnotherShapeAreRefused) {
  Assembled first;
  Snapshot s = capture(first.r, state());
  auto& entries = s.tensors.at("model/model");
  const auto embedding = std::ranges::find(entries, "wte.weight", &StoredEntry::name);
  ASSERT_NE(embedding, entries.end());
  std::ranges::reverse(embedding->sizes);
  const Found found = save(first, s, state().applied);
  Assembled second;
  EXPECT_EQ(refused([&] { restore(second.r, found); }), "`wte.weight` has another shape or dtype than in this run");
}

TEST_F(States, OfAnotherSeedAreRefused) {
  Assembled first;
  RunState s = state();
  s.seed = 2;
  const Found found = save(first, s);
  Assembled second;
  EXPECT_EQ(refused([&] { restore(second.r, found); }), "it is of another seed");
}

// ---- what is captured ----

// Training changes the masters while a file is written: what is captured of the host's memory says whose it is.
TEST_F(States, BorrowWhatTheHostHas) {
  Assembled run;
  const Snapshot s = capture(run.r, state());
  for (const auto& [file, entries] : s.tensors)
    for (const StoredEntry& e : entries)
      EXPECT_EQ(e.owner, nullptr) << e.name << ": a copy in the background copies it";
  std::vector<std::string> files;
  for (const auto& [file, entries] : s.tensors) files.push_back(file);
  for (const auto& [file, text] : s.texts) files.push_back(file);
  EXPECT_EQ(files, (std::vector<std::string>{"model/model", "optimizer/rank-0", "data.json", "model/config.json",
                                             "plugins/guard.nonfinite.json", "state.json"}));
}

// Made for the save, so nobody writes to it; beside it are states that this rank has whole, which training changes.
TEST_F(States, OwnWhatWasGatheredAndThatAlone) {
  Assembled run;
  const Snapshot s =
      capture(run.r, state(), {},
              {{"optimizer/rank-0", {{.name = "wte.weight/moment", .tensor = at::ones({3, 2}), .is_own = true}}}});
  const auto& entries = s.tensors.at("optimizer/rank-0");
  ASSERT_GT(entries.size(), 1u);
  EXPECT_NE(entries.back().owner, nullptr);
  EXPECT_EQ(static_cast<const float*>(entries.back().data)[5], 1);
  for (size_t i = 0; i + 1 < entries.size(); ++i) EXPECT_EQ(entries[i].owner, nullptr) << entries[i].name;
}

TEST_F(States, SayThePlaceOfEachOptimizerState) {
  Assembled run;
  const Snapshot s = capture(run.r, state());
  const auto& entries = s.tensors.at("optimizer/rank-0");
  EXPECT_EQ(entries.size(), 2 * run.host().declaration().params.size());
  for (const StoredEntry& e : entries) {
    EXPECT_EQ(e.whole, e.sizes) << e.name;
    EXPECT_EQ(e.offset, std::vector<int64_t>(e.sizes.size(), 0)) << e.name;
  }
}

// Which tensors a save finds to be others on another rank: this one's, one after another.
TEST_F(States, AreComparedWithThoseOfOtherRanks) {
  Assembled run("[ema.weights]\n");
  FakeComm comm;
  comm.join(run.host().services);
  std::vector<std::string> found;
  for (size_t unlike = 0;; ++unlike) {
    comm.differ_in(unlike);
    const std::string name = first_unlike(run.r);
    if (name.empty()) break;
    found.push_back(name);
  }
  for (const std::string parameter : {"h.0.mlp.c_fc.weight", "ln_f.bias"})
    for (const std::string& what : {std::string(), std::string("/exp_avg of optimizer.adamw"),
                                    std::string("/exp_avg_sq of optimizer.adamw"), std::string("/mean of ema.weights")})
      EXPECT_TRUE(std::ranges::count(found, parameter + what)) << parameter << what;
}

}  // namespace
}  // namespace mortise::testing
