// Training: what is told in which order, when it evaluates and saves, and how it ends.
#include "core/loop/train.hpp"

#include <chrono>
#include <fstream>
#include <thread>
#include <utility>

#include "core/abi/lost_device.hpp"
#include "core/loop/test_trainings.hpp"

namespace mortise::testing {
namespace {

TEST_F(Trainings, TellEverythingInOrder) {
  run.data.validation = 2;
  options.eval_every = {2, 0};
  options.save_every = {3, 0};
  sample = [] { return std::string("a text"); };
  EXPECT_EQ(train(), kExitOk);
  Lines all;
  for (const Told& t : told) all.push_back(t.line());
  EXPECT_EQ(all, (Lines{"run 0", "eval 0", "step 1", "step 2", "eval 2", "step 3", "saved 3", "step 4", "eval 4",
                        "step 5", "step 6", "eval 6", "saved 6", "sample 6", "end"}));
}

TEST_F(Trainings, TellWhatTheEndsAsk) {
  run.data.validation = 2;
  options.eval_at_start = options.eval_at_end = options.save_at_end = false;
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), Lines{});
  const Told end = of("end").at(0);
  EXPECT_EQ(end.numbers.at("steps"), 6);
  EXPECT_EQ(end.numbers.at("exit"), 0);
  EXPECT_EQ(end.numbers.at("resumable"), 0);
  EXPECT_EQ(end.numbers.at("loss_first"), of("step").front().numbers.at("loss"));
  EXPECT_EQ(end.numbers.at("loss_last"), of("step").back().numbers.at("loss"));
}

TEST_F(Trainings, EvaluateAndSaveAtTheEndOnce) {
  run.data.validation = 2;
  options.eval_at_start = false;
  options.eval_every = options.save_every = {4, 0};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), (Lines{"eval 4", "saved 4", "eval 6", "saved 6"}));
  EXPECT_EQ(saved(), (Steps{4, 6}));
}

// A skipped step is told, and nothing is done twice because of it.
TEST_F(Trainings, SkippedStepsCountAsNothing) {
  run.data.validation = 2;
  options.eval_at_start = false;
  options.eval_every = options.save_every = {2, 0};
  options.log_every = {2, 0};
  skipped = {0, 2, 3};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(attempted(), 9);
  EXPECT_EQ(run.updates(), 6);
  EXPECT_EQ(lines({"step", "eval", "saved"}),
            (Lines{"step 1", "step 1", "step 2", "step 2", "step 2", "eval 2", "saved 2", "step 3", "step 4", "eval 4",
                   "saved 4", "step 5", "step 6", "eval 6", "saved 6"}));
  std::vector<int> due, skips;
  for (const Told& t : of("step")) {
    due.push_back(static_cast<int>(t.numbers.at("due")));
    skips.push_back(static_cast<int>(t.numbers.at("skipped")));
  }
  EXPECT_EQ(skips, (std::vector<int>{1, 0, 1, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(due, (std::vector<int>{0, 0, 0, 0, 1, 0, 1, 0, 1}));
}

Diagnostic failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Failure& f) {
    return f.diagnostic;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST_F(Trainings, EndWhereNothingIsAppliedAnyMore) {
  for (int64_t attempt = 1; attempt < 2'000; ++attempt) skipped.push_back(attempt);
  EXPECT_EQ(failure_of([&] { train(); }).code, "diverged");
  EXPECT_EQ(of("step").size(), 1'001u) << "the first, and a thousand that were skipped";
}

TEST_F(Trainings, SayOnceThatRanksHaveParted) {
  options.save_every = {1, 0};
  unlike = "w";
  run.build();
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_GT(captured.size(), 1U);
  ASSERT_EQ(of("note").size(), 1U);
  EXPECT_EQ(
      of("note")[0].texts.at("text"),
      "w is not the same on every rank, and the first rank's is saved: what one rank changes alone has to be sent to "
      "the others");
}

TEST_F(Trainings, SaveTheCountsAsTheyAre) {
  run.listen(kStepWindow, [this](auto&) { run.host.services.window = 2; });
  options.save_every = {2, 0};
  skipped = {1};
  run.build();
  run.ledger->scale.fill_(4);
  EXPECT_EQ(train_on(), kExitOk);
  ASSERT_EQ(captured.size(), 3u);
  const RunState& s = captured[0];
  EXPECT_EQ(s.applied, 2);
  EXPECT_EQ(s.attempted, 3);
  EXPECT_EQ(s.cursor, 6) << "micro-batches, also of the skipped step";
  EXPECT_EQ(s.samples, 12);
  EXPECT_EQ(s.tokens, 12);
  EXPECT_EQ(s.seed, 1u);
  EXPECT_EQ(s.scale, 4);
  EXPECT_EQ(s.loss_first, of("step").front().numbers.at("loss"));
}

// With reports that come late, whoever decides by `applied` waits for it: the model that is evaluated and saved is that
// of the step in the name, and no step is made that the length does not ask for.
TEST_F(Trainings, DecideOnlyWhenTheStepIsKnown) {
  run.data.validation = 2;
  options.eval_every = {2, 0};
  options.save_every = {3, 0};
  std::map<int64_t, double> evaluated;
  run.wrap(kEval, [&](mortise_call&, const std::function<void()>& next) {
    evaluated[run.host.services.clock.applied] = run.updates();
    next();
  });
  EXPECT_EQ(train({.depth = 2}), kExitOk);
  EXPECT_EQ(run.updates(), 6);
  EXPECT_EQ(attempted(), 6);
  EXPECT_EQ(evaluated, (std::map<int64_t, double>{{0, 0}, {2, 2}, {4, 4}, {6, 6}}));
  EXPECT_EQ(lines({"step"}), (Lines{"step 1", "step 2", "step 3", "step 4", "step 5", "step 6"}));
  ASSERT_EQ(captured.size(), 2u);
  for (const RunState& s : captured) {
    EXPECT_EQ(s.attempted, s.applied);
    EXPECT_EQ(s.cursor, s.applied);
  }
}

TEST_F(Trainings, DoNotWaitWhereNothingIsDecided) {
  int most = 0;
  run.listen(kStepEnd, [&](auto&) { most = std::max(most, run.step->under_way()); });
  options.length = 20;
  EXPECT_EQ(train({.depth = 2}), kExitOk);
  EXPECT_EQ(most, 2) << "two before the one that ends";
  EXPECT_EQ(run.updates(), 20);
  EXPECT_EQ(of("step").size(), 20u);
}

TEST_F(Trainings, LateReportsWithSkipsReachTheLengthAndNotMore) {
  options.save_every = {5, 0};
  options.length = 10;
  skipped = {1, 4, 5, 9, 12};
  EXPECT_EQ(train({.depth = 2}), kExitOk);
  EXPECT_EQ(run.updates(), 10);
  EXPECT_EQ(of("step").size(), static_cast<size_t>(attempted()));
  EXPECT_EQ(saved(), (Steps{5, 10}));
  for (const RunState& s : captured) EXPECT_EQ(s.cursor, s.attempted) << "no step was under way";
  EXPECT_EQ(captured[0].attempted, 8) << "5 applied, 3 skipped";
}

// ---- the best ----

TEST_F(Trainings, SaveWhatIsBetterThanAllBefore) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.eval_every = {1, 0};
  options.save_at_end = false;
  saver_options.retention.keep = 1;
  // The loss of an evaluation is w * 100.5 and w is what this says after each step; the first is of the untrained
  // model.
  const std::vector<double> values = {1, 3, 4, NAN, 3, 2, 6};
  run.listen(kStepCommit, [&](auto&) {
    run.host.parameters().state(*run.param).master.fill_(values[static_cast<size_t>(attempted()) + 1]);
  });
  run.build();
  run.host.parameters().state(*run.param).master.fill_(values[0]);
  EXPECT_EQ(train_on(), kExitOk);
  std::vector<int> is_best;
  for (const Told& t : of("eval")) is_best.push_back(static_cast<int>(t.numbers.at("best")));
  EXPECT_EQ(is_best, (std::vector<int>{0, 1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(lines({"saved"}), (Lines{"saved 1", "saved 5"}));
  EXPECT_EQ(saved(), (Steps{5}));
  EXPECT_EQ(best.step, 5);
  EXPECT_EQ(best.value, 2 * 100.5);
}

// The one of the end too, even if the end is not saved otherwise; and it stays when others go.
TEST_F(Trainings, SaveTheBestWhereverItIs) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.eval_at_end = true;
  options.save_at_end = false;
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{6}));
}

TEST_F(Trainings, KeepTheBestWhenOthersGo) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.eval_every = options.save_every = {1, 0};
  saver_options.retention.keep = 1;
  const std::vector<double> values = {1, 3, 2, 4, 5, 6, 7};
  run.listen(kStepCommit, [&](auto&) {
    run.host.parameters().state(*run.param).master.fill_(values[static_cast<size_t>(attempted()) + 1]);
  });
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 6}));
}

// Evaluated before it is saved: the checkpoint knows that it is the best.
TEST_F(Trainings, SaveTheLastStepOnceAsTheBest) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.save_every = {3, 0};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), (Lines{"eval 0", "saved 3", "eval 6", "saved 6"}));
  EXPECT_EQ(captured.back().best_step, 6);
}

// It was saved before anybody knew that it is the best.
TEST_F(Trainings, SaveAStepAgainThatTurnsOutToBeTheBest) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.save_every = {2, 0};
  run.listen(kStepEnd, [&](auto&) {
    if (attempted() == 4) run.host.services.requests.add({MORTISE_STOP, "", ""});
  });
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), (Lines{"eval 0", "saved 2", "saved 4", "eval 4", "saved 4"}));
  EXPECT_EQ(captured.back().best_step, 4);
}

TEST_F(Trainings, KnowTheBestOfTheRunTheyGoOnWith) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.save_at_end = false;
  saver_options.best = {-1e9, 3};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), Steps{});
  EXPECT_EQ(best.step, 3);
}

// ---- ends ----

TEST_F(Trainings, StopWhenAPluginAsksThemTo) {
  run.data.validation = 2;
  run.listen(kStepEnd, [&](auto&) {
    if (attempted() != 4) return;
    run.host.services.requests.add({MORTISE_STOP, "no better for long", ""});
  });
  EXPECT_EQ(train({.depth = 2}), kExitOk);
  EXPECT_EQ(run.updates(), 4);
  EXPECT_EQ(lines({"eval", "saved", "end"}), (Lines{"eval 0", "eval 4", "saved 4", "end"}));
  EXPECT_EQ(of("end")[0].texts.at("reason"), "no better for long");
  EXPECT_EQ(of("step").size(), 4u) << "no report is lost";
}

TEST_F(Trainings, EndAtTheTimeLimitSavedAndResumable) {
  options.time_limit_s = 1e-9;
  EXPECT_EQ(train(), kExitResumable);
  EXPECT_EQ(saved(), (Steps{1}));
  EXPECT_EQ(of("end")[0].numbers.at("resumable"), 1);
  EXPECT_EQ(of("end")[0].texts.at("reason"), "the time limit of run.time_limit is reached");
}

TEST_F(Trainings, EndOnASignalSavedWithoutAnEvaluation) {
  run.data.validation = 2;
  options.save_at_end = false;
  options.eval_at_start = false;
  interrupt = [this] { return attempted() == 3 ? Interrupt::kTerminate : Interrupt::kNone; };
  EXPECT_EQ(train({.depth = 2}), kExitResumable);
  EXPECT_EQ(saved(), (Steps{3}));
  EXPECT_EQ(lines({"eval"}), Lines{});
  EXPECT_EQ(of("step").size(), 3u);
  ASSERT_EQ(captured.size(), 1u);
  EXPECT_EQ(captured[0].applied, 3) << "with what was under way";
}

// Who asked may wait for seconds only. What was given up is made by the process that goes on.
TEST_F(Trainings, GiveUpAnEvaluationForASignalAndMakeItLater) {
  run.data.validation = 2;
  options.eval_at_start = false;
  options.eval_every = {3, 0};
  interrupt = [this] { return attempted() == 3 ? Interrupt::kTerminate : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitResumable);
  EXPECT_EQ(lines({"eval"}), Lines{});
  ASSERT_EQ(captured.size(), 1u);
  EXPECT_EQ(captured[0].evaluated, -1);
  interrupt = nullptr;
  saver_options.resumed = 3;
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(lines({"eval"}), (Lines{"eval 3", "eval 6"}));
  EXPECT_EQ(captured.back().evaluated, 6);
}

// The last checkpoint is that of the run that was never stopped, also where nothing was left to do but to evaluate.
TEST_F(Trainings, SaveWhatTheyEvaluateLater) {
  run.data.validation = 2;
  options.eval_at_start = false;
  options.eval_every = {3, 0};
  options.length = 3;
  interrupt = [this] { return attempted() == 3 ? Interrupt::kTerminate : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitResumable);
  EXPECT_EQ(captured.back().evaluated, -1);
  interrupt = nullptr;
  saver_options.resumed = 3;
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), (Lines{"saved 3", "eval 3", "saved 3"}));
  EXPECT_EQ(captured.back().evaluated, 3);
}

// The best of a step that was saved before it was evaluated.
TEST_F(Trainings, SaveAsTheBestWhatTheyEvaluateLater) {
  run.data.validation = 2;
  options.best_by = "eval.loss";
  options.eval_at_start = options.eval_at_end = options.save_at_end = false;
  options.eval_every = {3, 0};
  options.length = 4;
  interrupt = [this] { return attempted() == 3 ? Interrupt::kTerminate : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitResumable);
  EXPECT_EQ(captured.back().best_step, -1);
  interrupt = nullptr;
  saver_options.resumed = 3;
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(lines({"eval", "saved"}), (Lines{"saved 3", "eval 3", "saved 3"}));
  EXPECT_EQ(captured.back().best_step, 3);
}

TEST_F(Trainings, EvaluateNothingTwiceWhenTheyGoOn) {
  run.data.validation = 2;
  options.eval_every = {3, 0};
  options.length = 3;
  EXPECT_EQ(train(), kExitOk);
  options.length = 6;
  options.evaluated = 3;
  saver_options.resumed = 3;
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(lines({"eval"}), (Lines{"eval 0", "eval 3", "eval 6"}));
}

TEST_F(Trainings, SaveWhenAskedToDuringAnEvaluation) {
  run.data.validation = 2;
  options.eval_at_start = false;
  options.eval_every = {2, 0};
  int polls = 0;  // the first one at step 2 is that of the evaluation
  interrupt = [&] { return attempted() == 2 && polls++ == 0 ? Interrupt::kSave : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 6}));
}

// Before a step there is nothing to save that is not there already.
TEST_F(Trainings, SaveWhenAskedToBeforeTheFirstStepAfterIt) {
  interrupt = [this] { return attempted() == 0 ? Interrupt::kSave : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{1, 6}));
}

TEST_F(Trainings, SaveWhenAskedToAndGoOn) {
  interrupt = [this] { return attempted() == 2 ? Interrupt::kSave : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 6}));
}

TEST_F(Trainings, OfOneRankSaveAsOftenAsTheyAreAsked) {
  interrupt = [this] { return attempted() == 2 || attempted() == 4 ? Interrupt::kSave : Interrupt::kNone; };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 4, 6}));
  EXPECT_EQ(asked_since, std::chrono::steady_clock::time_point());
}

TEST_F(Trainings, SaveByTheClockOnceAPeriod) {
  constexpr double kPeriod = 0.05;  // s
  options.save_every = {0, kPeriod};
  options.length = 40;
  run.listen(kStepEnd, [](auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(10)); });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(train(), kExitOk);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(of("saved").size(), 2U);
  EXPECT_LE(static_cast<double>(of("saved").size()), took.count() / kPeriod + 1) << "and one at the end";
}

TEST_F(Trainings, DivergedNameTheLastGoodCheckpointAndSaveNothing) {
  options.save_every = {2, 0};
  run.listen(kStepEnd, [&](auto&) {
    if (attempted() != 5) return;
    run.host.services.requests.add({MORTISE_ABORT, "loss is nan", "guard.fake"});
  });
  skipped = {4};
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.exit, kExitGuard);
  EXPECT_EQ(d.message, "loss is nan");
  EXPECT_EQ(d.at, "step 5, asked for by guard.fake") << "the one after the last that was applied";
  EXPECT_NE(d.effect.find("step 2 is the last good checkpoint"), std::string::npos) << d.effect;
  EXPECT_EQ(saved(), (Steps{2, 4}));
  EXPECT_NE(d.fixes.at(0).find("mortise resume it --from 2 "), std::string::npos) << d.fixes.at(0);
}

TEST_F(Trainings, DivergedBetweenTwoSavesSaveNothing) {
  options.save_every = {2, 0};
  run.listen(kStepEnd, [&](auto&) {
    if (attempted() == 4) run.host.services.requests.add({MORTISE_ABORT, "", ""});
  });
  skipped = {3};
  EXPECT_EQ(failure_of([&] { train(); }).exit, kExitGuard);
  EXPECT_EQ(saved(), (Steps{2}));
}

TEST_F(Trainings, DivergeInTheLastEvaluationToo) {
  run.data.validation = 2;
  options.eval_at_start = false;
  run.listen(kRecord, [&](const mortise_event& e) {
    if (view(e.record->kind) == "eval") run.host.services.requests.add({MORTISE_ABORT, "", ""});
  });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.exit, kExitGuard);
  EXPECT_EQ(d.effect, "stopped after step 6");
}

TEST_F(Trainings, DivergeBeforeTheFirstStep) {
  run.listen(kRunBegin, [&](auto&) { run.host.services.requests.add({MORTISE_ABORT, "", ""}); });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.exit, kExitGuard);
  EXPECT_EQ(d.effect, "stopped before the first step");
  EXPECT_EQ(run.updates(), 0);
}

TEST_F(Trainings, AFailingEndBlamesNoStep) {
  run.listen(kRunEnd, [&](const mortise_event& e) {
    if (e.record) throw PluginError(MORTISE_E_PLUGIN, "cannot close");
  });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.at.find("after step 6"), 0u) << d.at;
  EXPECT_EQ(d.effect.find("was not applied"), std::string::npos) << d.effect;
}

TEST_F(Trainings, AFailingPluginEndsThemWithTheStepAndARunEnd) {
  options.save_every = {2, 0};
  mortise_status outcome = MORTISE_OK;
  run.listen(kRunEnd, [&](const mortise_event& e) { outcome = e.outcome; });
  run.listen(kStepBegin, [&](auto&) {
    if (attempted() == 3) throw PluginError(MORTISE_E_PLUGIN, "no more");
  });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.exit, kExitPlugin);
  EXPECT_EQ(d.message, "no more");
  EXPECT_NE(d.at.find("step 4"), std::string::npos) << d.at;
  EXPECT_NE(d.effect.find("last checkpoint is step 2"), std::string::npos) << d.effect;
  EXPECT_EQ(outcome, MORTISE_E_PLUGIN);
}

TEST_F(Trainings, AFailingListenerOfARecordBlamesTheStepBehindIt) {
  run.listen(kRecord, [&](const mortise_event& e) {
    if (view(e.record->kind) == "step" && attempted() == 4) throw PluginError(MORTISE_E_IO, "cannot write");
  });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.at.find("after step 4"), 0u) << d.at;
  EXPECT_EQ(d.effect, "the run stopped; last checkpoint is step 4");
}

// Between steps the model is whole, and what was trained is worth keeping.
TEST_F(Trainings, AListenerThatFailsBetweenStepsLosesNothing) {
  fail_with_an_evaluation("no such metric");
  failure_of([&] { train(); });
  EXPECT_EQ(saved(), (Steps{4}));
}

TEST_F(Trainings, ADeviceThatIsLostGivesNothingToSave) {
  fail_with_an_evaluation("no more");
  const auto before = std::exchange(lost_device, [] { return std::string("the GPU says: it is gone"); });
  const Diagnostic d = failure_of([&] { train(); });
  lost_device = before;
  EXPECT_EQ(d.code, "device_lost");
  EXPECT_NE(d.at.find("; no more"), std::string::npos) << d.at;
  EXPECT_EQ(saved(), Steps{});
}

TEST_F(Trainings, AFailureWithinAnEvaluationSavesNoOtherWeights) {
  run.data.validation = 2;
  options.eval_every = {4, 0};
  options.eval_at_start = false;
  run.wrap(kEval, [](mortise_call&, const std::function<void()>&) { throw std::runtime_error("half way"); });
  failure_of([&] { train(); });
  EXPECT_EQ(saved(), Steps{});
}

TEST_F(Trainings, AFailureWaitsForTheSaveUnderWay) {
  options.save_every = {2, 0};
  saver_options.background = true;
  saver_options.format.write = [](const std::vector<StoredEntry>&, const Sink&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  };
  run.listen(kStepBegin, [&](auto&) {
    if (attempted() == 2) throw PluginError(MORTISE_E_PLUGIN, "no more");
  });
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.effect, "step 3 was not applied; the run stopped; last checkpoint is step 2");
  EXPECT_EQ(of("saved").size(), 1u);
}

TEST_F(Trainings, WhatTheCoreThrowsIsToldLikeAFailureOfAPlugin) {
  bool ended = false;
  run.listen(kRunEnd, [&](auto&) { ended = true; });
  sample = []() -> std::string { throw std::bad_alloc(); };
  const Diagnostic d = failure_of([&] { train(); });
  EXPECT_EQ(d.code, "out_of_memory");
  EXPECT_EQ(d.at.find("after step 6"), 0u) << d.at;
  EXPECT_TRUE(ended);
}

TEST_F(Trainings, ASaveThatFailsIsSaidAndTheLastOneIsAnExitOfItsOwn) {
  options.save_every = {3, 0};
  saver_options.format.write = [](const std::vector<StoredEntry>&, const Sink&) {};
  fs::create_directories(dir);
  std::ofstream(dir / "checkpoints") << "a file where the folder should be";
  EXPECT_EQ(train(), kExitIo);
  EXPECT_EQ(run.updates(), 6);
  ASSERT_EQ(warnings.size(), 2u) << "of steps 3 and 6; what is tried once more at the end is not told again";
  EXPECT_NE(warnings[0].find("step 3 is not saved"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("training goes on; nothing is saved yet"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("training is over; nothing is saved"), std::string::npos) << warnings[1];
}

TEST_F(Trainings, ASaveThatFailsAfterAnInterruptDoesNotSayThatTrainingGoesOn) {
  interrupt = [this] { return attempted() == 3 ? Interrupt::kInterrupt : Interrupt::kNone; };
  saver_options.format.write = [](const std::vector<StoredEntry>&, const Sink&) {};
  fs::create_directories(dir);
  std::ofstream(dir / "checkpoints") << "a file where the folder should be";
  train();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("training is over; nothing is saved"), std::string::npos) << warnings[0];
}

TEST_F(Trainings, ASaveThatFailsDoesNotSpeakOfACheckpointThatIsGone) {
  options.save_every = {3, 0};
  int saves = 0;
  saver_options.format.write = [&](const std::vector<StoredEntry>&, const Sink&) {
    if (++saves == 1) return;
    fs::remove_all(dir / "checkpoints");
    std::ofstream(dir / "checkpoints") << "a file where the folder should be";
    throw Failure(trouble(kExitIo, "not_written", "no room"));
  };
  train();
  ASSERT_FALSE(warnings.empty());
  EXPECT_NE(warnings[0].find("step 3 is gone"), std::string::npos) << warnings[0];
}

TEST_F(Trainings, AListenerAddsColumnsForThoseAfterIt) {
  FakeListener adds([this](const mortise_event& e) {
    if (view(e.record->kind) == "step" && run.host.services.add_column)
      run.host.services.add_column("extra", {MORTISE_FLOAT, 0, {.f = 7}});
  });
  run.listeners.add(kRecord, FakeListener::run, adds.instance);
  std::vector<Told> later;
  run.listen(kRecord, [&](const mortise_event& e) { later.push_back(read(*e.record)); });
  EXPECT_EQ(train(), kExitOk);
  EXPECT_FALSE(of("step")[0].numbers.contains("extra"));
  const auto step = std::ranges::find(later, "step", &Told::kind);
  ASSERT_NE(step, later.end());
  EXPECT_EQ(step->numbers.at("extra"), 7);
  EXPECT_EQ(run.host.services.add_column, nullptr) << "only while a record is told";
}

TEST_F(Trainings, AListenerOfTheEndAddsColumnsToItsRecord) {
  FakeListener adds([this](const mortise_event& e) {
    if (e.record) run.host.services.add_column("extra", {MORTISE_FLOAT, 0, {.f = 7}});
  });
  run.listeners.add(kRunEnd, FakeListener::run, adds.instance);
  std::vector<Told> later;
  run.listen(kRunEnd, [&](const mortise_event& e) { later.push_back(read(*e.record)); });
  EXPECT_EQ(train(), kExitOk);
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].numbers.at("extra"), 7);
}

TEST_F(Trainings, AColumnIsAddedOnce) {
  std::string refused;
  FakeListener adds([&](const mortise_event& e) {
    if (view(e.record->kind) != "step") return;
    try {
      run.host.services.add_column("loss", {MORTISE_FLOAT, 0, {.f = 7}});
    } catch (const PluginError& error) {
      refused = error.text();
    }
  });
  run.listeners.add(kRecord, FakeListener::run, adds.instance);
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(refused, "the record has a column `loss` already");
}

// A run whose loss became NaN: the steps behind are no proof that what was saved before them was good.
TEST_F(Trainings, ALossThatIsNoNumberConfirmsNothing) {
  options.save_every = {1, 0};
  saver_options.retention.keep = 1;
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum().mul(attempted() >= 3 ? NAN : 1));
  };
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(saved(), (Steps{2, 6}));
  EXPECT_EQ(captured.back().confirmed, 2);
}

TEST_F(Trainings, WhatFailsAfterTheUpdateSaysSo) {
  run.listen(kStepEnd, [&](auto&) {
    if (attempted() == 2) throw PluginError(MORTISE_E_PLUGIN, "no more");
  });
  EXPECT_EQ(failure_of([&] { train(); }).effect, "step 2 is in no checkpoint; the run stopped");
}

TEST_F(Trainings, AFailureOfASaveIsToldToListenersToo) {
  options.save_every = {2, 0};
  int ends = 0;
  run.listen(kRunEnd, [&](const mortise_event& e) {
    ++ends;
    EXPECT_EQ(e.outcome, MORTISE_E_IO);
  });
  capture_fails = true;
  EXPECT_EQ(failure_of([&] { train(); }).code, "dir_moved");
  EXPECT_EQ(ends, 1);
}

TEST_F(Trainings, WarnOnceOfParametersWithoutAGradient) {
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor&) {
    run.term("loss", at::full({}, 1.0, at::kDouble).set_requires_grad(true).mul(1));
    (void)w;
  };
  EXPECT_EQ(train(), kExitOk);
  ASSERT_EQ(of("note").size(), 1u);
  EXPECT_EQ(of("note")[0].texts.at("text"),
            "trainable, but without a gradient in the first step: w; without one they are not updated");
  EXPECT_EQ(run.updates(), 0);
}

}  // namespace
}  // namespace mortise::testing
