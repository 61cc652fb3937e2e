// What the records of a training say, and the state that it saves.
#include <chrono>
#include <thread>

#include "core/loop/test_trainings.hpp"

namespace mortise::testing {
namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Sample n is the number n + 1, so many times.
auto repeated(int64_t (*times)(int64_t n)) {
  return [times](std::string_view, int64_t n) { return Numbers(static_cast<size_t>(times(n)), n + 1); };
}

TEST_F(Trainings, BeginWithWhatTheyAreOf) {
  options.name = "a name";
  options.plan_hash = "abc";
  Summary& s = options.summary;
  s.run = "a run", s.model = "a model", s.weights = "weights", s.data = "data", s.device = "a device",
  s.batch = "a batch", s.dtypes = "types", s.steps = 6, s.parameters = 1000;
  EXPECT_EQ(train(), kExitOk);
  const Told first = of("run").at(0);
  EXPECT_EQ(first.texts, (std::map<std::string, std::string>{{"run", "a run"},
                                                             {"model", "a model"},
                                                             {"weights", "weights"},
                                                             {"data", "data"},
                                                             {"device", "a device"},
                                                             {"batch", "a batch"},
                                                             {"dtypes", "types"},
                                                             {"dir", dir.string()},
                                                             {"name", "a name"},
                                                             {"plan", "abc"}}));
  EXPECT_EQ(first.numbers, (std::map<std::string, double>{{"step", 0}, {"steps", 6}, {"parameters", 1000}}));
  s.weights = "";
  EXPECT_EQ(train_on(), kExitOk);  // at the end already
  EXPECT_FALSE(of("run").at(1).texts.contains("weights"));
  EXPECT_EQ(of("run").at(1).step(), 6);
}

TEST_F(Trainings, TellOfEachStepWhatItWas) {
  run.data.sample = repeated([](int64_t) -> int64_t { return 3; });
  options.length = 3;
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum());
    run.term("extra", x.sum(), "samples", 0);
  };
  EXPECT_EQ(train({.window = 2}), kExitOk);
  const Told first = of("step").at(0), third = of("step").at(2);
  // The mean of the samples 1 to 4; w is 2.
  const std::map<std::string, double> expected = {{"step", 1},    {"of", 3},          {"loss", 5},    {"lr", 0.5},
                                                  {"samples", 4}, {"grad_norm", 2.5}, {"tokens", 12}, {"epoch", 0},
                                                  {"micros", 2},  {"due", 1},         {"skipped", 0}, {"extra", 7.5}};
  for (const auto& [name, number] : expected) EXPECT_DOUBLE_EQ(first.numbers.at(name), number) << name;
  EXPECT_FALSE(first.texts.contains("skipped_parameter"));
  EXPECT_EQ(third.numbers.at("samples"), 12) << "of the run so far";
  EXPECT_EQ(third.numbers.at("tokens"), 36);
  EXPECT_EQ(third.numbers.at("epoch"), 1);
}

// The rates are of the steps since the last that was due, and of these alone.
TEST_F(Trainings, TellRatesOfTheStepsSinceTheLastOne) {
  run.data.sample = repeated([](int64_t n) { return n / 2 * 2 + 1; });  // steps of 1, 3, 5 and 7 tokens a sample
  run.data.during_get = [] { sleep_ms(100); };
  options.length = 4;
  options.log_every = {2, 0};
  options.summary.flop_per_token = 60;
  options.summary.flop_per_s_at_most = 6000;
  EXPECT_EQ(train(), kExitOk);
  const std::vector<Told> steps = of("step");
  EXPECT_FALSE(steps.at(0).numbers.contains("samples_per_s")) << "not due";
  for (const auto& [step, tokens_a_sample] : {std::pair(1, 2.0), std::pair(3, 6.0)}) {
    const auto& numbers = steps.at(static_cast<size_t>(step)).numbers;
    EXPECT_NEAR(numbers.at("tokens_per_s") / numbers.at("samples_per_s"), tokens_a_sample, 1e-9);
    EXPECT_NEAR(numbers.at("flop_per_s") / numbers.at("tokens_per_s"), 60, 1e-9);
    EXPECT_NEAR(numbers.at("mfu") / numbers.at("flop_per_s"), 1 / 6000.0, 1e-12);
    EXPECT_LT(numbers.at("samples_per_s"), 4 / 0.2) << "four samples in twice 100 ms";
    EXPECT_GT(numbers.at("data_wait_share"), 0.55) << "nearly all of the time; of one step it were a half";
    EXPECT_LE(numbers.at("data_wait_share"), 1);
    EXPECT_FALSE(numbers.contains("idle_share")) << "of a device that runs behind the host alone";
    EXPECT_EQ(numbers.at("memory_bytes"), 1);
    EXPECT_EQ(numbers.at("memory_peak_bytes"), 2);
    EXPECT_EQ(numbers.at("memory_total_bytes"), 3);
  }
  EXPECT_EQ(steps.at(1).texts.at("throughput_unit"), "tok");
}

// What happens before the first one is no part of them.
TEST_F(Trainings, TellTheRatesOfTheLastStepToo) {
  options.log_every = {4, 0};
  run.listen(kRunBegin, [](auto&) { sleep_ms(800); });
  EXPECT_EQ(train(), kExitOk);
  Steps due;
  for (const Told& t : of("step"))
    if (t.numbers.contains("samples_per_s")) due.push_back(t.step());
  EXPECT_EQ(due, (Steps{4, 6}));
  EXPECT_GT(of("step").at(3).numbers.at("samples_per_s"), 8 / 0.8);
}

// Data that counts no tokens, such as images.
TEST_F(Trainings, TellRatesOfSamplesWhereNothingElseIsCounted) {
  const_cast<mortise_field*>(run.data.provided().object->fields)->unit = {};
  run.data.validation = 2;
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum(), "samples");
  };
  options.summary.tokens_per_sample = 3;
  options.summary.flop_per_token = 60;
  EXPECT_EQ(train(), kExitOk);
  const Told last = of("step").back();
  EXPECT_EQ(last.texts.at("throughput_unit"), "samples");
  EXPECT_GT(last.numbers.at("samples_per_s"), 0);
  EXPECT_FALSE(last.numbers.contains("tokens_per_s"));
  EXPECT_NEAR(last.numbers.at("flop_per_s") / last.numbers.at("samples_per_s"), 3 * 60, 1e-9) << "as if it were whole";
  EXPECT_FALSE(last.numbers.contains("mfu")) << "nobody says what the device reaches";
  EXPECT_EQ(of("eval").back().numbers.at("samples"), 2);
  EXPECT_FALSE(of("eval").back().numbers.contains("tokens"));
}

// By the steps of this process; a sleep is never shorter than it was asked to be.
TEST_F(Trainings, TellTheTimeThatIsLeft) {
  run.listen(kStepBegin, [](auto&) { sleep_ms(30); });
  options.length = 4;
  EXPECT_EQ(train(), kExitOk);
  EXPECT_GE(of("step").at(1).numbers.at("left_s"), 0.030 / 2 * 2) << "two of four; one was over when it was reported";
  EXPECT_EQ(of("step").at(3).numbers.at("left_s"), 0);
  options.length = 7;
  options.time_limit_s = 1e6;
  saver_options.resumed = 4;
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_GE(of("step").at(5).numbers.at("left_s"), 0.030 / 2) << "one of three";
  EXPECT_LT(of("step").at(5).numbers.at("left_s"), 1e5) << "not the limit";
}

// Neither an evaluation nor a save slows down the steps, by what is told of them.
TEST_F(Trainings, TellRatesOfStepsAlone) {
  run.data.validation = 2;
  options.length = 4;
  options.eval_every = {1, 0};
  options.save_every = {2, 0};
  run.wrap(kEval, [](mortise_call&, const std::function<void()>& next) {
    sleep_ms(400);
    next();
  });
  saver_options.format.write = [](const std::vector<StoredEntry>&, const Sink&) { sleep_ms(400); };
  EXPECT_EQ(train(), kExitOk);
  for (const Told& t : of("step")) EXPECT_GT(t.numbers.at("samples_per_s"), 2 / 0.4) << t.line();
}

// One that goes on in the background is beside the steps, and takes nothing of their time.
TEST_F(Trainings, TellRatesBesideASaveInTheBackground) {
  options.save_every = {2, 0};
  options.log_every = {3, 0};
  saver_options.background = true;
  saver_options.format.write = [](const std::vector<StoredEntry>&, const Sink&) { sleep_ms(300); };
  run.listen(kStepBegin, [this](auto&) {
    if (attempted() == 2) sleep_ms(500);
  });
  EXPECT_EQ(train(), kExitOk);
  EXPECT_GT(of("step").back().numbers.at("samples_per_s"), 0);
  const Told first = of("saved").at(0);
  EXPECT_EQ(first.step(), 2);
  EXPECT_EQ(first.numbers.at("background"), 1);
  EXPECT_EQ(first.numbers.at("bytes"), of("saved").at(1).numbers.at("bytes"));
  EXPECT_EQ(first.texts.at("path"), saver_options.root + "/step-2");
}

// By its gradient, as long as no later step was begun: then it is that one's.
TEST_F(Trainings, NameWhoseGradientIsNotFinite) {
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum().mul(attempted() == 1 || attempted() == 2 ? NAN : 1));
  };
  skipped = {1, 2};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(of("step").at(1).texts.at("skipped_parameter"), "w");
  EXPECT_FALSE(of("step").at(3).texts.contains("skipped_parameter"));
}

TEST_F(Trainings, NameNoParameterByTheGradientOfALaterStep) {
  run.terms = [this](mortise_call&, const at::Tensor& w, const at::Tensor& x) {
    run.term("loss", w.mul(x).sum().mul(attempted() == 1 || attempted() == 2 ? NAN : 1));
  };
  options.length = 20;
  skipped = {1, 2};
  EXPECT_EQ(train({.depth = 1}), kExitOk);
  EXPECT_EQ(of("step").at(1).texts.at("skipped_parameter"), "");
}

TEST_F(Trainings, TellOfAnEvaluationWhatItMeasured) {
  run.data.sample = repeated([](int64_t) -> int64_t { return 3; });
  run.data.validation = 2;
  options.eval_every = {2, 0};
  EXPECT_EQ(train(), kExitOk);
  const Told eval = of("eval").at(0);
  EXPECT_EQ(eval.numbers.at("step"), 0);
  EXPECT_EQ(eval.numbers.at("of"), 6);
  EXPECT_EQ(eval.numbers.at("eval.loss"), 2 * 1.5);
  EXPECT_EQ(eval.numbers.at("samples"), 2);
  EXPECT_EQ(eval.numbers.at("tokens"), 6);
  EXPECT_EQ(eval.numbers.at("best"), 0) << "nobody wants to keep it";
}

// Each thing that goes on with the run, told apart from what is like it.
TEST_F(Trainings, SaveWhatWasFoundSoFar) {
  run.data.sample = repeated([](int64_t) -> int64_t { return 3; });
  run.data.validation = 2;
  options.length = 4;
  options.best_by = "eval.loss";
  options.eval_every = {2, 0};
  options.save_every = {3, 0};
  EXPECT_EQ(train(), kExitOk);
  ASSERT_EQ(captured.size(), 3u);
  const RunState& s = captured.at(1);
  EXPECT_EQ(s.applied, 3);
  EXPECT_EQ(s.samples, 6);
  EXPECT_EQ(s.tokens, 18);
  EXPECT_EQ(s.best_step, 2);
  EXPECT_EQ(s.best, of("eval").at(1).numbers.at("eval.loss"));
  EXPECT_EQ(s.evaluated, 2);
  EXPECT_EQ(s.loss_first, of("step").at(0).numbers.at("loss"));
  EXPECT_NE(s.loss_first, of("step").at(2).numbers.at("loss"));
}

// ---- the first loss ----

TEST_F(Trainings, KnowTheFirstLossOfTheRunTheyGoOnWith) {
  options.first_loss = 42;
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(of("end").at(0).numbers.at("loss_first"), 42);
  EXPECT_EQ(captured.back().loss_first, 42);
}

TEST_F(Trainings, TakeTheFirstLossOfAStepThatCounts) {
  skipped = {0};
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(of("end").at(0).numbers.at("loss_first"), of("step").at(1).numbers.at("loss"));
}

TEST_F(Trainings, HaveNoLossWithoutAStep) {
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(of("end").at(0).numbers.at("steps_here"), of("end").at(0).numbers.at("steps"));
  EXPECT_EQ(of("end").at(1).numbers.at("steps_here"), 0);
  EXPECT_TRUE(of("end").at(0).numbers.contains("loss_last"));
  EXPECT_FALSE(of("end").at(1).numbers.contains("loss_first"));
  EXPECT_FALSE(of("end").at(1).numbers.contains("loss_last"));
}

// ---- the end ----

TEST_F(Trainings, SayWhetherTheyCanGoOnAndHow) {
  EXPECT_EQ(train(), kExitOk);
  EXPECT_EQ(of("end").at(0).numbers.at("resumable"), 0) << "saved, and finished";
  EXPECT_FALSE(of("end").at(0).texts.contains("next")) << "nothing samples";
  sample = [] { return std::string("a text"); };
  EXPECT_EQ(train_on(), kExitOk);
  EXPECT_EQ(of("end").at(1).texts.at("next"), "mortise sample " + dir.string());
  saver_options.root = "";
  options.length = 8;
  interrupt = [this] { return attempted() == 7 ? Interrupt::kInterrupt : Interrupt::kNone; };
  EXPECT_EQ(train_on(), kExitInterrupted);
  EXPECT_EQ(of("end").at(2).numbers.at("resumable"), 0) << "there is nothing to go on from";
  EXPECT_FALSE(of("end").at(2).texts.contains("next"));
}

}  // namespace
}  // namespace mortise::testing
