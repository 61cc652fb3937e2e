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

// What lies in parts: the gradient that was summed is where it was, and whoever reads a value after it gathers it.
TEST(Replay, OfShardsHasTheirGradientsAndGathersWhatItReads) {
  TestRun run;
  int old = 0;
  run.replicas.written = [&](mortise_param& p) { old += &p == run.param; };
  run.replicas.ready = [&](mortise_param& p) {
    Parameters& all = run.host.parameters();
    all.add_gradient(p, all.take_gradient(p));
  };
  std::vector<int> old_at_begin;
  run.wrap(kStep, [&](mortise_call&, const std::function<void()>& next) {
    old_at_begin.push_back(old);
    next();
  });
  Recorder recorder(run);
  const PluginHost& watcher = run.host.add_plugin("test.watcher", nullptr, nullptr);
  std::vector<at::Tensor> gradients;
  run.listen(kStepEnd, [&](auto&) {
    const mortise_slice* slices = nullptr;
    uint32_t n = 0;
    run.services->slices(watcher, &slices, &n);
    ASSERT_EQ(n, 1U);
    gradients.push_back(share(slices[0].grad));
  });
  run.host.services.records_steps = true;
  run.build({.sharded = true});
  EXPECT_EQ(run.run().norm, 1.5);
  EXPECT_EQ(old, 1);
  EXPECT_EQ(run.run().norm, 1.5);
  EXPECT_EQ(old, 3);
  EXPECT_EQ(old_at_begin, (std::vector<int>{1, 2}));
  EXPECT_EQ(gradients[0].const_data_ptr(), gradients[1].const_data_ptr());
  EXPECT_EQ(gradients[1].item<double>(), 1.5);
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
