// Steps: what runs in them and in which order, what a skipped one leaves alone, and where the data goes on.
#include "core/loop/test_run.hpp"

namespace mortise::testing {
namespace {

using Lines = std::vector<std::string>;

TEST(Step, CallsItsPointsInOrderTheFirstWrapperOutermost) {
  TestRun run;
  Lines log;
  const auto wrap = [&](Point point, const std::string& name) {
    run.wrap(point, [&log, name](mortise_call&, const std::function<void()>& next) {
      log.push_back(name + " {");
      next();
      log.push_back("} " + name);
    });
  };
  const auto listen = [&](Point point) {
    run.listen(point, [&](const mortise_event& e) { log.push_back(run.points[e.point].name); });
  };
  wrap(kStep, "step");
  wrap(kGradients, "gradients");
  wrap(kMicro, "micro");
  wrap(kForward, "outer");
  wrap(kForward, "inner");
  wrap(kBlock, "block");
  wrap(kBackward, "backward");
  for (const Point p : {kStepBegin, kStepVerdict, kGradTransform, kStepCommit, kStepEnd}) listen(p);
  run.build();
  run.run();
  EXPECT_EQ(log, (Lines{"step.begin", "step {", "gradients {", "micro {", "outer {", "inner {", "block {", "} block",
                        "} inner", "} outer", "backward {", "} backward", "} micro", "} gradients", "step.verdict",
                        "grad.transform", "step.commit", "} step", "step.end"}));
}

TEST(Step, LoadsAndPlacesAllItsBatchesBeforeTheFirstForward) {
  TestRun run;
  Lines log;
  for (const Point p : {kLoad, kBatch, kForward})
    run.wrap(p, [&, p](mortise_call&, const std::function<void()>& next) {
      log.push_back(run.points[p].name);
      next();
    });
  run.build({.window = 2});
  run.run();
  EXPECT_EQ(log, (Lines{"load", "load", "batch", "batch", "forward", "forward"}));
}

// A wrapper that runs the model twice (to measure something) must not train on the sum of both.
TEST(Step, AForwardThatIsRunTwiceCountsOnce) {
  TestRun once, twice;
  twice.wrap(kForward, [](mortise_call&, const std::function<void()>& next) {
    next();
    next();
  });
  for (TestRun* run : {&once, &twice}) run->build();
  const StepReport a = once.run(), b = twice.run();
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(once.value(), twice.value());
}

TEST(Step, WindowsEndWithTheEpoch) {
  TestRun run;  // 4 micro-batches of 2 an epoch
  std::vector<int64_t> micros, cursors, epochs, tokens, begun;
  run.listen(kStepBegin, [&](auto&) { begun.push_back(run.host.services.clock.epoch); });
  run.build({.window = 3});
  std::vector<double> norms;
  for (int i = 0; i < 4; ++i) {
    const StepReport r = run.run();
    micros.push_back(r.micros);
    cursors.push_back(r.cursor);
    epochs.push_back(r.epoch);
    tokens.push_back(r.tokens);
    norms.push_back(r.norm);
  }
  EXPECT_EQ(micros, (std::vector<int64_t>{3, 1, 3, 1}));
  EXPECT_EQ(cursors, (std::vector<int64_t>{3, 4, 7, 8}));
  EXPECT_EQ(epochs, (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(begun, epochs) << "step.begin is told the epoch of its step";
  EXPECT_EQ(tokens, (std::vector<int64_t>{6, 2, 6, 2}));
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(norms[i], i % 2 ? 7.5 : 3.5) << "means over what the window had";
  EXPECT_EQ(run.host.services.clock.epoch, 1);
  EXPECT_EQ(run.host.services.clock.samples, 16);
  EXPECT_EQ(run.host.services.clock.tokens, 16);
}

TEST(Step, AWindowIsOneMicroBatchWhereNobodySaysMore) {
  TestRun run;
  run.listen(kStepWindow, [&](auto&) {
    if (run.host.services.clock.attempted == 0) run.host.services.window = 2;
  });
  run.build();
  EXPECT_EQ(run.run().micros, 2);
  EXPECT_EQ(run.run().micros, 1) << "what was said of a step holds for that step";
}

TEST(Step, ReportsTheLargestRateOfItsGroups) {
  TestRun run;
  run.build({.lr = {0.25, 0.5, 0.125}});
  EXPECT_EQ(run.run().lr, 0.5);
}

TEST(Step, AccumulatedAreOneBigBatch) {
  TestRun parts, whole;
  parts.build({.micro_batch_size = 2, .window = 4});
  whole.build({.micro_batch_size = 8});
  const StepReport a = parts.run(), b = whole.run();
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.norm, b.norm);
  EXPECT_EQ(parts.value(), whole.value());
}

TEST(Step, GoesOnFromACursor) {
  TestRun whole, part;
  for (TestRun* run : {&whole, &part}) run->build({.window = 3, .shuffle = true});
  for (int i = 0; i < 3; ++i) whole.run();
  part.step->set_cursor(7);
  const StepReport a = whole.run(), b = part.run();
  EXPECT_EQ(b.micros, 1);
  EXPECT_EQ(b.cursor, 8);
  EXPECT_EQ(a.norm, b.norm) << "the same samples of the same epoch";
}

// ---- the update ----

TEST(Update, OfASkippedStepAdvancesNothingButWhatWasConsumed) {
  TestRun run;
  bool skip = false;
  run.listen(kStepVerdict, [&](auto&) { run.ledger->vote(scalar(skip ? 0 : 1)); });
  run.build({.horizon = {10, 100}});
  run.run();
  const double value = run.value();
  skip = true;
  const StepReport r = run.run();
  EXPECT_FALSE(r.applied);
  EXPECT_EQ(run.value(), value);
  EXPECT_EQ(run.updates(), 1);
  EXPECT_EQ(run.ledger->applied.item<int64_t>(), 1);
  EXPECT_EQ(run.host.services.clock.applied, 1);
  EXPECT_EQ(run.host.services.clock.attempted, 2);
  EXPECT_EQ(run.host.services.clock.tokens, 4) << "they were read";
  EXPECT_EQ(run.step->cursor(), 2) << "other samples come next";
  skip = false;
  EXPECT_EQ(run.run().lr, r.lr) << "the rate of the second applied step";
  EXPECT_EQ(run.updates(), 2);
}

// Gradients in memory are scale × true; norm, multiplier and update are of true ones.
TEST(Update, HonoursTheLossScale) {
  TestRun plain, scaled;
  double in_memory = 0;
  at::Tensor multiplier;
  scaled.listen(kGradTransform, [&](auto&) {
    in_memory = scaled.host.parameters().state(*scaled.param).grad.item<double>();
    multiplier = scaled.ledger->multiplier.clone();
  });
  for (TestRun* run : {&plain, &scaled}) run->build();
  scaled.ledger->scale.fill_(1024);
  const StepReport a = plain.run(), b = scaled.run();
  EXPECT_EQ(in_memory, 1024 * 1.5);
  EXPECT_EQ(multiplier.item<double>(), 1.0 / 1024);
  EXPECT_EQ(a.norm, 1.5);
  EXPECT_EQ(b.norm, 1.5);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(plain.value(), 2 - 0.5 * 1.5);
  EXPECT_EQ(scaled.value(), plain.value());
}

TEST(Update, ScalesTheNextLossByWhatACommitSays) {
  TestRun plain, scaled;
  scaled.listen(kStepCommit, [&](auto&) { scaled.services->set_scale(borrow(scalar(8))); });
  std::vector<double> gradients;
  for (TestRun* run : {&plain, &scaled}) {
    run->build();
    for (int i = 0; i < 2; ++i) {
      run->run();
      gradients.push_back(share(run->optimizer.seen[0].grad).item<double>());
    }
  }
  EXPECT_EQ(gradients[2], gradients[0]);
  EXPECT_EQ(gradients[3], 8 * gradients[1]);
  EXPECT_EQ(scaled.value(), plain.value());
}

TEST(Update, TakesNoScaleThatIsNotOneNumber) {
  TestRun run;
  run.build();
  EXPECT_NE(error_of([&] { run.services->set_scale(borrow(at::ones({2}))); }).find("one number"), std::string::npos);
  EXPECT_NE(error_of([&] { run.services->set_scale(nullptr); }), "");
}

TEST(Step, ReportsNumbersOfItsPluginsWhenItsReportArrives) {
  TestRun run;
  const at::Tensor number = at::full({}, 7, at::kFloat);
  run.listen(kStepBegin, [&](auto&) { run.services->report("temperature", borrow(number), "C"); });
  run.listen(kStepEnd, [&](auto&) { number.add_(1); });
  run.build({.depth = 1});
  using Numbers = std::vector<Reported<double>>;
  run.step->run();
  run.step->run();
  EXPECT_EQ(run.step->take_report(true)->metrics, (Numbers{{"temperature", "C", 8}}));
  EXPECT_EQ(run.step->take_report(true)->metrics, (Numbers{{"temperature", "C", 9}}));
}

TEST(Step, ReportsANumberOnceAndInsideAStepOnly) {
  TestRun run;
  const auto report = [&] { run.services->report("scale", borrow(scalar(1)), ""); };
  Lines said;
  run.listen(kStepVerdict, [&](auto&) {
    report();
    said.push_back(error_of(report));
    said.push_back(error_of([&] { run.services->report("two", borrow(at::ones({2})), ""); }));
  });
  run.build();
  run.run();
  said.push_back(error_of(report));
  EXPECT_EQ(said,
            (Lines{"this step has a number `scale` already", "the number `two` of a step is a tensor of one number",
                   "numbers of a step are reported inside it"}));
}

// ---- the batches of a step ----

TEST(Step, HasItsBatchesAsArgumentsBeforeItBegins) {
  TestRun run;
  std::vector<uint32_t> counts;
  for (const Point p : {kStep, kGradients})
    run.wrap(p, [&](mortise_call& call, const std::function<void()>& next) {
      counts.push_back(call.n_args);
      for (uint32_t i = 0; i < call.n_args; ++i) EXPECT_EQ(call.args[i].v.b->count("samples"), 2) << i;
      next();
    });
  run.build({.window = 2});
  run.run();
  EXPECT_EQ(counts, (std::vector<uint32_t>{2, 2}));
}

// As one does that records the step: the numbers are copied to where they were when it was recorded.
TEST(Step, ComputesWithTheBatchesThatAWrapperHandsOn) {
  TestRun plain, copied;
  std::vector<mortise_batch*> own;
  copied.wrap(kStep, [&](mortise_call& call, const std::function<void()>& next) {
    std::vector<mortise_value> values;
    for (uint32_t i = 0; i < call.n_args; ++i) {
      if (own.size() == i) {
        own.push_back(new mortise_batch);
        own.back()->fields = {{"x", at::full({2, 1}, -1, at::kLong)}};
        own.back()->counts = call.args[i].v.b->counts;
      }
      own[i]->fields[0].second.copy_(call.args[i].v.b->fields[0].second);
      values.push_back({MORTISE_BATCH, 0, {.b = own[i]}});
    }
    call.args = values.data();
    next();
  });
  for (TestRun* run : {&plain, &copied}) {
    run->build({.window = 2});
    for (int i = 0; i < 2; ++i) run->run();
  }
  EXPECT_EQ(copied.value(), plain.value());
  for (mortise_batch* batch : own) release(batch);
}

TEST(Step, ComputesWithNoneOfTheBatchesThatAWrapperReplaced) {
  TestRun alone, twice, plain;
  std::vector<mortise_value> batches;
  twice.wrap(kGradients, [&](mortise_call& call, const std::function<void()>& next) {
    batches.assign(call.n_args, call.args[0]);
    call.args = batches.data();
    next();
  });
  alone.build();
  for (TestRun* run : {&twice, &plain}) run->build({.window = 2});
  const double first = alone.run().loss;
  EXPECT_EQ(twice.run().loss, first);
  EXPECT_NE(plain.run().loss, first) << "else the second batch tells nothing";
}

TEST(Step, RefusesFewerBatchesThanItCounted) {
  TestRun run;
  mortise_value none{};
  bool fewer = true;
  run.wrap(kGradients, [&](mortise_call& call, const std::function<void()>& next) {
    if (fewer) call.n_args = 0;
    else call.args = &none;
    next();
  });
  run.build();
  EXPECT_NE(error_of([&] { run.run(); }).find("`gradients` is called with 0 batches; this step has 1"),
            std::string::npos);
  fewer = false;
  EXPECT_NE(error_of([&] { run.run(); }).find("argument 0 of `gradients` is no batch"), std::string::npos);
}

// ---- element types ----

TEST(Dtypes, ThatAPluginChangedAreRefusedAfterTheFirstStep) {
  const auto half = [](const at::Tensor& t) { t.set_data(t.to(at::kHalf)); };
  for (const std::string what : {"the master of w", "the gradient of w", "the state w/steps of optimizer.fake"}) {
    TestRun run;
    run.listen(kStepCommit, [&](auto&) {
      ParameterState& s = run.host.parameters().state(*run.param);
      if (what.starts_with("the master")) half(s.master);
      if (what.starts_with("the gradient")) half(s.grad);
      if (what.starts_with("the state")) half(run.optimizers[0].states()[0].tensor);
    });
    run.build();
    const std::string said = error_of([&] { run.run(); });
    EXPECT_NE(said.find(" is in fp16 after the first step; the plan has it in fp64"), std::string::npos) << said;
    EXPECT_TRUE(said.starts_with(what) || what.starts_with("the master")) << said;  // it is the value, too
  }
}

// No run could go on from a checkpoint of them.
TEST(Dtypes, AndShapesThatAPluginChangedAreRefused) {
  TestRun run;
  run.build();
  run.run();
  EXPECT_EQ(error_of([&] { run.step->check_tensors("now"); }), "");
  at::Tensor state = run.optimizers[0].states()[0].tensor;
  state.set_data(at::zeros({5}, state.options()));
  EXPECT_EQ(error_of([&] { run.step->check_tensors("now"); }),
            "the state w/steps of optimizer.fake has the shape [5] now; the plan has it in []");
}

TEST(Dtypes, ThatForwardComputesInAreThoseOfThePlan) {
  TestRun run;
  run.wrap(kForward, [](mortise_call& call, const std::function<void()>& next) {
    call.compute_dtype = MORTISE_BF16;
    next();
  });
  run.build();
  EXPECT_NE(error_of([&] {
              run.run();
            }).find("`forward` computes in bf16, as test.wrapper has it; the plan has it in that of the weights"),
            std::string::npos);
  TestRun planned;
  planned.wrap(kForward, [](mortise_call& call, const std::function<void()>& next) {
    call.compute_dtype = MORTISE_BF16;
    next();
  });
  planned.build();
  planned.host.planned_compute_dtype = MORTISE_BF16;
  EXPECT_EQ(error_of([&] { planned.run(); }), "");
  planned.host.planned_compute_dtype = MORTISE_F32;
  EXPECT_EQ(error_of([&] { planned.run(); }), "") << "looked at in the first step only";
}

TEST(Update, UsesTheMultiplier) {
  TestRun run;
  run.listen(kGradTransform, [&](auto&) { run.ledger->multiply(scalar(0.5)); });
  run.build();
  EXPECT_EQ(run.run().norm, 1.5) << "of the gradients as they came";
  EXPECT_EQ(run.value(), 2 - 0.5 * 0.5 * 1.5);
}

TEST(Update, GivesAnOptimizerWhatGotAGradient) {
  TestRun run;
  run.build();
  run.run();
  ASSERT_EQ(run.optimizer.seen.size(), 1u);
  const mortise_slice& s = run.optimizer.seen[0];
  EXPECT_EQ(s.param, run.param);
  EXPECT_EQ(s.length, 1);
  EXPECT_EQ(s.n_states, 1u);
  EXPECT_EQ(s.value, nullptr) << "compute copy and master are one";
  EXPECT_EQ(s.master, borrow(run.host.parameters().state(*run.param).master));
  EXPECT_EQ(run.optimizers[0].states()[0].name, "w/steps");
  run.host.parameters().begin_step();
  run.optimizers[0].step(*run.ledger);
  EXPECT_TRUE(run.optimizer.seen.empty()) << "no gradient came since the step began";
}

TEST(Update, BeginsStatesAsTheOptimizerSays) {
  TestRun run;
  run.build();
  DeclaredOptimizer declared = run.optimizer.of({run.param});
  declared.states[0].states[0].fill = 0.1;
  EXPECT_EQ(Optimizer(declared, run.host).states()[0].tensor.item<double>(), 0.1);
}

// An optimizer that writes no compute copies finds them written.
TEST(Update, IsWhatTheNextStepComputesWith) {
  TestRun run;
  run.build();
  ParameterState& w = run.host.parameters().state(*run.param);
  w.value = w.master.to(at::kFloat);
  run.param->info.value_dtype = MORTISE_F32;
  run.run();
  EXPECT_EQ(run.value(), 2 - 0.5 * 1.5);
  EXPECT_EQ(w.value.item<float>(), 2 - 0.5 * 1.5);
}

TEST(Step, RefusesAModelThatChangesItsParameters) {
  TestRun run;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum());
    run.host.parameters().state(*run.param).value.add_(1);
  };
  run.build();
  EXPECT_NE(error_of([&] { run.run(); }).find("parameter w was written in place during forward"), std::string::npos);
}

// Others may have a gradient where this rank has none: what is sent for it is nothing, not what the last step left.
TEST(Step, GivesAParameterThatWasNotUsedAGradientOfZeros) {
  TestRun run;
  bool uses = true;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", (uses ? w : at::ones_like(w).requires_grad_()).mul(x).sum());
  };
  run.replicas.object.layout = [](void*, uint32_t) noexcept { return mortise_status{MORTISE_OK}; };
  std::vector<double> sent;
  run.replicas.ready = [&](mortise_param& p) {
    ParameterState& s = run.host.parameters().state(p);
    sent.push_back(run.host.parameters().gradient(s).item<double>());
  };
  run.build();
  run.run();
  uses = false;
  run.run();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_NE(sent[0], 0);
  EXPECT_EQ(sent[1], 0);
}

TEST(Step, NamesTheFirstGradientThatIsNotFinite) {
  TestRun run;
  double factor = 1;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.sum().mul(x.sum()).mul(factor));
  };
  run.build({.elements = 2});
  run.run();
  EXPECT_EQ(run.step->first_nonfinite(), "");
  factor = 1e200;  // finite, and its square is not
  run.run();
  EXPECT_EQ(run.step->first_nonfinite(), "w");
  factor = INFINITY;
  run.run();
  EXPECT_EQ(run.step->first_nonfinite(), "w");
}

// With steps under way the host knows late; what was begun is known at once.
TEST(Step, KnowsWhatWasAppliedWhenItsReportIsTaken) {
  TestRun run;
  run.build({.depth = 2});
  const mortise_clock& clock = run.host.services.clock;
  for (int i = 0; i < 2; ++i) {
    run.step->run();
    EXPECT_EQ(run.step->take_report(false), std::nullopt);
  }
  EXPECT_EQ(clock.attempted, 2);
  EXPECT_EQ(clock.applied, 0);
  EXPECT_EQ(run.step->under_way(), 2);
  run.step->run();
  EXPECT_EQ(run.step->take_report(false)->attempted, 0);
  EXPECT_EQ(clock.applied, 1);
  EXPECT_EQ(clock.tokens, 2);
  while (run.step->take_report(true)) {
  }
  EXPECT_EQ(clock.applied, 3);
  EXPECT_EQ(clock.tokens, 6);
}

// ---- evaluation ----

TEST(Evaluation, IsOfTheWholeSplitInItsOwnMode) {
  TestRun run;
  run.data.validation = 5;
  std::vector<uint32_t> modes;
  bool graph = false;
  run.terms = [&](mortise_call& call, const at::Tensor& w, const at::Tensor& x) {
    modes.push_back(call.mode);
    const at::Tensor sum = w.mul(x).sum();
    graph |= sum.requires_grad() || (call.flags & MORTISE_GRAD);
    run.term("loss", sum);
    run.term("right", x.detach().sum(), "samples", 0);
  };
  run.build();
  const Measured m = run.passes->evaluate();
  EXPECT_EQ(modes, std::vector<uint32_t>(3, uint32_t{MORTISE_EVAL}));
  EXPECT_FALSE(graph);
  EXPECT_EQ(m.values, (std::vector<std::pair<std::string, double>>{{"eval.loss", 2 * 102.0}, {"eval.right", 102.0}}));
  EXPECT_EQ(m.samples, 5);
  EXPECT_EQ(m.tokens, 5);
  EXPECT_EQ(run.step->cursor(), 0);
  modes.clear();
  run.run();
  EXPECT_EQ(modes, (std::vector<uint32_t>{MORTISE_TRAIN}));
}

// Every call of an evaluation says that it is one: loaders augment, and dropout drops, in training only.
TEST(Evaluation, SaysSoAtEveryPoint) {
  TestRun run;
  run.data.validation = 2;
  std::map<std::string, uint32_t> modes;
  for (const Point p : {kLoad, kBatch, kForward, kBlock, kEval})
    run.wrap(p, [&, p](mortise_call& call, const std::function<void()>& next) {
      modes[run.points[p].name] = call.mode;
      next();
    });
  run.build();
  run.passes->evaluate();
  EXPECT_EQ(modes.size(), 5u);
  for (const auto& [point, mode] : modes) EXPECT_EQ(mode, uint32_t{MORTISE_EVAL}) << point;
}

TEST(Evaluation, ThatAWrapperLeavesOutIsRefused) {
  TestRun run;
  run.data.validation = 2;
  run.wrap(kEval, [](mortise_call&, const auto&) {});
  run.build();
  EXPECT_NE(error_of([&] { run.passes->evaluate(); }).find("did not call `next`"), std::string::npos);
}

TEST(Step, KnowsTheNormOfAWholeStepOnly) {
  TestRun run;
  std::vector<std::string> early;
  const auto ask = [&] { early.push_back(error_of([&] { run.step->norm(); })); };
  run.listen(kStepBegin, [&](auto&) { ask(); });
  run.wrap(kForward, [&](mortise_call&, const auto& next) {
    ask();
    next();
  });
  run.listen(kStepVerdict, [&](auto&) { EXPECT_GT(run.step->norm().template item<double>(), 0); });
  run.build();
  run.run();
  run.run();
  ASSERT_EQ(early.size(), 4u);
  for (const std::string& error : early) EXPECT_NE(error, "");
}

TEST(Step, AWrapperThatDoesNotGoOnIsRefused) {
  for (const Point point : {kMicro, kStep, kForward, kGradients, kBackward}) {
    TestRun run;
    run.wrap(point, [](mortise_call&, const auto&) {});
    run.build();
    EXPECT_NE(error_of([&] { run.run(); }).find("(test.wrapper) did not call `next`"), std::string::npos);
  }
  TestRun run;  // it trains, and measures nothing
  run.wrap(kForward, [](mortise_call& call, const auto& next) {
    if (call.mode == MORTISE_TRAIN) next();
  });
  run.build();
  run.run();
  const BatchPtr batch = run.passes->host_batch("train", 0, MORTISE_TRAIN);
  const auto measure = [&] { run.passes->forward(batch.get(), MORTISE_EVAL, 0, nullptr, 0, nullptr); };
  EXPECT_NE(error_of(measure).find("call of `forward` ended without"), std::string::npos);
}

TEST(Step, WhatWouldCountTwiceIsRefused) {
  for (const Point point : {kMicro, kGradients, kStep}) {
    TestRun run;
    run.wrap(point, [](mortise_call&, const auto& next) {
      next();
      next();
    });
    run.build();
    EXPECT_NE(error_of([&] { run.run(); }).find("called `next` twice"), std::string::npos);
  }
}

}  // namespace
}  // namespace mortise::testing
