#include <ATen/core/grad_mode.h>

#include <cmath>

#include "core/loop/test_run.hpp"

namespace mortise::testing {
namespace {

Term term(const char* name, const char* unit, double weight, double sum) {
  return {name, unit, weight, scalar(sum), false};
}
double loss_of(const TermSums& sums, const Denominators& d) { return sums.loss(d).item<double>(); }

TEST(Terms, AreWeightedSumsOverTheirOwnCounts) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 8}, {"samples", 2}});
  TermSums sums;
  sums.add({term("loss", "tokens", 1, 3), term("balance", "samples", 0.5, 1)});  // two micro-batches
  sums.add({term("loss", "tokens", 1, 5), term("balance", "samples", 0.5, 3), term("right", "tokens", 0, 6)});
  EXPECT_EQ(loss_of(sums, counts), 8.0 / 8 + 0.5 * 4 / 2);
  const auto metrics = sums.metrics(counts);
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].first, "right");
  EXPECT_EQ(metrics[0].second.item<double>(), 0.75);
}

TEST(Terms, BeginAnewInEachStep) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 1}});
  TermSums sums;
  sums.add({term("loss", "tokens", 1, 3), term("right", "tokens", 0, 1)});
  const void* place = sums.all()[0].total.data_ptr();
  sums.restart();
  sums.add({term("loss", "tokens", 1, 4)});
  EXPECT_EQ(loss_of(sums, counts), 4);
  EXPECT_EQ(sums.names(), "loss by tokens, right by tokens (not given)") << "which ranks compare";
  EXPECT_TRUE(sums.metrics(counts).empty()) << "not given in this step";
  EXPECT_EQ(sums.all()[0].total.data_ptr(), place) << "a recorded step adds to the same memory";
}

TEST(Terms, OfAUnitThatTheStepHasNoneOfAreNothing) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 2}, {"labels", 4}});
  const void* place = counts.of("labels", "loss").data_ptr();
  TermSums sums;
  sums.add({term("loss", "tokens", 1, 3), term("other", "labels", 1, 0)});
  for (const Counts& none : {Counts{{"tokens", 2}, {"labels", 0}}, Counts{{"tokens", 2}}}) {
    counts.set(none);
    EXPECT_EQ(loss_of(sums, counts), 1.5);
    EXPECT_EQ(counts.of("labels", "loss").data_ptr(), place);
  }
}

// 0 would be the best loss that there can be.
TEST(Terms, AreNaNWhereNothingWasCounted) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 0}, {"labels", 0}});
  TermSums sums;
  sums.add({term("loss", "tokens", 1, 0), term("other", "labels", 1, 0), term("right", "tokens", 0, 0)});
  EXPECT_TRUE(std::isnan(loss_of(sums, counts)));
  EXPECT_TRUE(std::isnan(sums.metrics(counts)[0].second.item<double>()));
  counts.set({{"tokens", 4}});
  TermSums of_metrics_alone;
  of_metrics_alone.add({term("right", "tokens", 0, 1)});
  EXPECT_TRUE(std::isnan(loss_of(of_metrics_alone, counts)));
  EXPECT_TRUE(std::isnan(loss_of(TermSums(), counts)));
}

TEST(Terms, HaveTheWeightAndTheUnitOfEachStep) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 1}, {"samples", 2}});
  TermSums sums;
  for (const double weight : {0.0, 1.0, 2.0}) {
    sums.restart();
    sums.add({term("loss", "tokens", 1, 3), term("other", "tokens", weight, 5)});
    EXPECT_EQ(loss_of(sums, counts), 3 + weight * 5);
    EXPECT_EQ(sums.metrics(counts).size(), weight == 0 ? 1u : 0u);
  }
  sums.restart();
  sums.add({term("loss", "samples", 1, 3)});
  EXPECT_EQ(loss_of(sums, counts), 1.5);
  EXPECT_EQ(error_of([&] { sums.add({term("loss", "samples", 2, 3)}); }),
            "the term `loss` changes its weight or its unit within one step");
  EXPECT_NE(error_of([&] { sums.add({term("loss", "tokens", 1, 3)}); }), "");
}

TEST(Terms, OfAUnitThatNobodyCountsAreRefused) {
  Denominators counts(c10::Device(c10::kCPU));
  counts.set({{"tokens", 2}});
  EXPECT_EQ(error_of([&] { counts.of("pixels", "loss"); }), "the term `loss` counts `pixels`, which the data does not");
  EXPECT_EQ(error_of([&] { counts.of("pixels", "loss", "test.x"); }),
            "the term `loss` of test.x counts `pixels`, which the data does not");
}

// ---- as a model gives them ----

TEST(GivenTerms, ReachTheGradientByWeightAndCount) {
  TestRun run;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum(), "tokens", 1);       // mean x = 2.5 over the four tokens
    run.term("square", w.mul(w).mul(3), "one", 0.25);    // 2 micro-batches × 3w² over 2, a quarter of it
    run.term("metric", w.mul(100).sum(), "samples", 0);  // trains nothing
  };
  run.build({.window = 2});
  const StepReport r = run.run();
  EXPECT_EQ(r.loss, 2 * 2.5 + 0.25 * 3 * 4);
  EXPECT_EQ(r.norm, 2.5 + 0.25 * 3 * 2 * 2);
  ASSERT_EQ(r.metrics.size(), 1u);
  EXPECT_EQ(r.metrics[0].number, 2 * 200.0 / 4);
}

std::string refused(const std::function<void(TestRun&, const at::Tensor& w)>& give) {
  TestRun run;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum());
    give(run, w);
  };
  run.build();
  return error_of([&] { run.run(); });
}

TEST(GivenTerms, WithoutAGraphAreRefused) {
  const auto detached = [](double weight) {
    return refused([=](TestRun& run, const at::Tensor& w) { run.term("aux", w.detach().mul(2), "one", weight); });
  };
  EXPECT_NE(detached(1).find("the term `aux` depends on no trainable parameter; give it weight 0"), std::string::npos);
  EXPECT_EQ(detached(0), "");
}

TEST(GivenTerms, AreOneNumberEachOfAUnitThatIsCounted) {
  EXPECT_NE(refused([](TestRun& run, const at::Tensor& w) {
              run.term("aux", w.expand({2}));
            }).find("is a tensor of one number"),
            std::string::npos);
  EXPECT_NE(refused([](TestRun& run, const at::Tensor& w) {
              run.term("aux", w.mul(1), "pixels");
            }).find("the term `aux` counts `pixels`, which the data does not"),
            std::string::npos);
}

// What a record could not show, or has already.
TEST(GivenTerms, HaveNamesOfTheirOwn) {
  for (const char* name : {"", "a\nb", "\xff"})
    EXPECT_NE(refused([&](TestRun& run, const at::Tensor& w) { run.term(name, w.mul(1)); }).find("a line can show"),
              std::string::npos);
  const auto metric = [](const char* name) {
    return refused([&](TestRun& run, const at::Tensor& w) { run.term(name, w.mul(1), "one", 0); });
  };
  for (const std::string name : {"step", "of", "grad_norm", "flop_per_s", "mfu", "memory_total_bytes"})
    EXPECT_NE(metric(name.c_str()).find("each step has a column `" + name + "` of the core's already"),
              std::string::npos)
        << name;
  EXPECT_EQ(metric("mine"), "");
}

// A block that is computed again in backward gives its terms in both passes.
TEST(GivenTerms, OfAReplayAreCountedOnce) {
  TestRun run;
  run.wrap(kBlock, [](mortise_call& call, const std::function<void()>& next) {
    next();
    call.flags |= MORTISE_REPLAY;
    next();
  });
  run.build();
  const StepReport r = run.run();
  EXPECT_EQ(r.loss, 2 * 1.5);
  EXPECT_EQ(r.norm, 1.5);
}

TEST(GivenTerms, ThatWouldTrainNothingInABlockThatIsComputedAgainAreRefused) {
  TestRun run;
  run.wrap(kBlock, [](mortise_call& call, const std::function<void()>& next) {
    const at::AutoGradMode no_grad(false);
    call.flags = (call.flags & ~uint32_t{MORTISE_GRAD}) | MORTISE_FIRST_PASS;
    next();
  });
  run.build();
  EXPECT_NE(error_of([&] { run.run(); }).find("inside a block that is computed again in backward"), std::string::npos);
}

// ---- attached terms ----

TEST(AttachedTerms, TrainAsTermsDo) {
  const auto run_with = [](bool attach) {
    TestRun run;
    run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
      const at::Tensor square = w.mul(w).mul(3);
      at::Tensor on = w;
      if (attach) on = run.attach_term("square", w, square, "samples", 0.25);
      else run.term("square", square, "samples", 0.25);
      run.term("loss", on.mul(x).sum());
    };
    run.build({.window = 2});
    const StepReport r = run.run();
    return std::tuple(r.loss, r.norm, run.value());
  };
  EXPECT_EQ(run_with(true), run_with(false));
  EXPECT_EQ(std::get<1>(run_with(true)), 2.5 + 0.25 * 2 * 3 * 2 * 2 / 4) << "scaled by the count of its unit";
}

// The sum is counted in the first pass, which has no graph; a replay has a graph, and counts nothing. Here the replay
// gives the loss, so that backward goes through it.
TEST(AttachedTerms, OfABlockThatIsComputedAgainCountOnceAndTrain) {
  TestRun run;
  run.terms = [&](mortise_call& call, const at::Tensor& w, const at::Tensor& x) {
    const bool first = call.flags & MORTISE_FIRST_PASS;
    const at::Tensor on = run.attach_term("square", w, w.mul(w).mul(3), "one", 0.25);
    EXPECT_EQ(on.requires_grad(), !first);
    if (first) return;
    call.flags &= ~uint32_t{MORTISE_REPLAY};
    run.term("loss", on.mul(x).sum());
  };
  run.wrap(kBlock, [](mortise_call& call, const std::function<void()>& next) {
    const uint32_t flags = call.flags;
    {
      const at::AutoGradMode no_grad(false);
      call.flags = (flags & ~uint32_t{MORTISE_GRAD}) | MORTISE_FIRST_PASS;
      next();
    }
    call.flags = flags | MORTISE_REPLAY;
    next();
  });
  run.build();
  const StepReport r = run.run();
  EXPECT_EQ(r.loss, 2 * 1.5 + 0.25 * 3 * 4);
  EXPECT_EQ(r.norm, 1.5 + 0.25 * 3 * 2 * 2);
}

TEST(AttachedTerms, OfWeight0AreMetricsAndLeaveTheCarrierAlone) {
  TestRun run;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    const at::Tensor on = run.attach_term("size", w, w.detach().mul(3), "one", 0);
    EXPECT_TRUE(on.is_same(w));
    run.term("loss", on.mul(x).sum());
  };
  run.build();
  const StepReport r = run.run();
  ASSERT_EQ(r.metrics.size(), 1u);
  EXPECT_EQ(r.metrics[0].number, 6);
  EXPECT_EQ(r.norm, 1.5);
}

// What was saved for backward must not be written: the tensor that goes on counts the same writes.
TEST(AttachedTerms, NoticeThatTheirCarrierWasWritten) {
  const std::string error = refused([](TestRun& run, const at::Tensor& w) {
    const at::Tensor doubled = w.mul(2), square = doubled.mul(doubled);
    const at::Tensor on = run.attach_term("aux", doubled, square.sum(), "one", 1);
    {
      const at::NoGradGuard no_grad;
      on.mul_(2);
    }
    run.term("other", on.sum(), "one", 1);
  });
  EXPECT_NE(error.find("modified by an inplace operation"), std::string::npos) << error;
}

TEST(AttachedTerms, ThatCannotTrainAreRefused) {
  const auto attach = [](const std::function<void(TestRun&, const at::Tensor&)>& body) { return refused(body); };
  EXPECT_NE(attach([](TestRun& run, const at::Tensor& w) {
              run.attach_term("aux", w, w.detach(), "one", 1);
            }).find("the term `aux` depends on no trainable parameter"),
            std::string::npos);
  EXPECT_NE(attach([](TestRun& run, const at::Tensor& w) {
              const at::NoGradGuard inside_a_pair;
              run.attach_term("aux", w, w.mul(2), "one", 1);
            }).find("the term `aux` depends on no trainable parameter"),
            std::string::npos);
  EXPECT_NE(attach([](TestRun& run, const at::Tensor& w) {
              run.attach_term("aux", w.to(at::kLong), w.mul(2), "one", 1);
            }).find("is attached to a tensor of floating-point numbers"),
            std::string::npos);
  EXPECT_NE(attach([](TestRun& run, const at::Tensor& w) {
              run.attach_term("aux", w, w.mul(2), "pixels", 1);
            }).find("counts `pixels`, which the data does not"),
            std::string::npos);
}

TEST(GivenTerms, BelongInsideForward) {
  TestRun run;
  run.build();
  EXPECT_EQ(error_of([&] { run.attach_term("aux", scalar(1), scalar(1), "one", 1); }),
            "a term of the loss is given inside `forward` only");
  EXPECT_EQ(error_of([&] { run.term("loss", scalar(1)); }), "a term of the loss is given inside `forward` only");
}

TEST(GivenTerms, NoneThatTrainsIsRefused) {
  TestRun run;
  run.terms = [&](mortise_call&, const at::Tensor& w, const at::Tensor&) { run.term("m", w.mul(1), "one", 0); };
  run.build();
  const std::string error = error_of([&] { run.run(); });
  EXPECT_NE(error.find("gave no term of a loss"), std::string::npos) << error;
  EXPECT_NE(error.find("\n  fix: call loop.term(\"loss\", …)"), std::string::npos) << error;
}

}  // namespace
}  // namespace mortise::testing
