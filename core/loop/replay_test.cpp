// A step that is played from a recording: what the call left on the host is there again, over the same tensors.
#include "core/loop/test_run.hpp"

namespace mortise::testing {
namespace {

// Calls the first step and records it; plays it in the others, as `play` does.
struct Recorder {
  explicit Recorder(TestRun& run) : run_(run) {
    run.wrap(kStep, [this](mortise_call&, const std::function<void()>& next) {
      if (token == 0) {
        next();
        mortise_tensor* there = nullptr;
        run_.services->norm(&there);
        norm = take(there);
        run_.services->report("extra", borrow(extra), "");
        token = run_.services->recorded();
      } else {
        play();
        run_.services->replayed(token);
      }
    });
  }
  uint64_t token = 0;
  at::Tensor norm, extra = scalar(1);
  std::function<void()> play = [] {};

 private:
  TestRun& run_;
};

TEST(Replay, HasTheNumbersThatPlayingPutsIntoTheSameTensors) {
  TestRun run;
  Recorder recorder(run);
  recorder.play = [&] {
    recorder.norm.fill_(7);
    recorder.extra.fill_(8);
  };
  run.listen(kStepBegin, [&](auto&) { run.services->report("outside", borrow(scalar(3)), ""); });
  run.build();
  const StepReport called = run.run(), played = run.run();
  EXPECT_EQ(called.norm, 1.5);
  EXPECT_EQ(played.norm, 7);
  using Numbers = std::vector<Reported<double>>;
  EXPECT_EQ(called.metrics, (Numbers{{"outside", "", 3}, {"extra", "", 1}}));
  EXPECT_EQ(played.metrics, (Numbers{{"outside", "", 3}, {"extra", "", 8}}));
  EXPECT_EQ(played.loss, 0) << "the sum of a term that was given, and that nobody played";
  EXPECT_EQ(run.host.services.clock.attempted, 2);
  EXPECT_EQ(run.host.services.clock.samples, 4);
  EXPECT_TRUE(run.step->is_updated());
  EXPECT_TRUE(run.host.parameters().state(*run.param).has_gradient);
}

TEST(Replay, TheNumberOfAStepIsOnTheDeviceBeforeItBegins) {
  TestRun run;
  std::vector<int64_t> seen;
  run.wrap(kStep, [&](mortise_call&, const std::function<void()>& next) {
    seen.push_back(share(run.services->ledger().attempted).item<int64_t>());
    next();
  });
  run.build();
  const void* const lies = run.ledger->attempted.const_data_ptr();
  for (int i = 0; i < 3; ++i) run.run();
  EXPECT_EQ(seen, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(run.ledger->attempted.const_data_ptr(), lies);
}

TEST(Replay, IsRefusedWhereThereIsNothingToPlay) {
  TestRun run;
  std::string unknown, twice, early;
  run.wrap(kStep, [&](mortise_call&, const std::function<void()>& next) {
    early = error_of([&] { run.services->recorded(); });
    unknown = error_of([&] { run.services->replayed(1); });
    next();
    const uint64_t token = run.services->recorded();
    twice = error_of([&] { run.services->replayed(token); });
  });
  run.build();
  run.run();
  EXPECT_EQ(early, "a step is recorded after `next` in a wrapper of `step`");
  EXPECT_EQ(unknown, "there is no recording 1");
  EXPECT_EQ(twice, "a recording is played in a wrapper of `step`, instead of `next`");
  EXPECT_EQ(error_of([&] { run.services->recorded(); }), "a step is recorded after `next` in a wrapper of `step`");
}

}  // namespace
}  // namespace mortise::testing
