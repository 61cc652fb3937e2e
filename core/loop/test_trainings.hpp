// What the tests of trainings share: a run whose records, saves and warnings are kept.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/loop/test_run.hpp"
#include "core/loop/train.hpp"

namespace mortise::testing {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;
using Steps = std::vector<int64_t>;

struct Told {
  std::string kind;
  std::map<std::string, double> numbers;
  std::map<std::string, std::string> texts;
  std::string line() const { return numbers.contains("step") ? kind + " " + std::to_string(step()) : kind; }
  int64_t step() const { return static_cast<int64_t>(numbers.at("step")); }
};

struct FakeDevice : FakePlugin {
  mortise_device object{};
  FakeDevice() : FakePlugin("device.fake") {
    object.struct_size = sizeof object;
    object.memory = [](void*, int64_t* used, int64_t* peak, int64_t* total) noexcept {
      *used = 1, *peak = 2, *total = 3;
      return mortise_status{MORTISE_OK};
    };
  }
};

class Trainings : public ::testing::Test {
 protected:
  void SetUp() override {
    dir = fs::path(::testing::TempDir()) / ("mortise_train." + std::to_string(getpid()));
    fs::remove_all(dir);
    fs::create_directories(dir);
    options.length = 6;
    options.log_every = {1, 0};
    options.dir = dir.string();
    options.resume_command = "mortise resume it";
    options.warn = [this](const Diagnostic& d) { warnings.push_back(d.message + "; " + d.effect); };
    saver_options.root = (dir / "checkpoints").string();
    saver_options.retention.keep = 100;
    saver_options.format = {".bin", [](const std::vector<StoredEntry>&, const Sink&) {}};
    run.listen(kRecord, [this](const mortise_event& e) { told.push_back(read(*e.record)); });
    run.listen(kStepVerdict, [this](auto&) {
      const bool skips = std::ranges::find(skipped, run.host.services.clock.attempted) != skipped.end();
      run.ledger->vote(scalar(skips ? 0 : 1));
    });
  }
  void TearDown() override { fs::remove_all(dir); }

  static Told read(const mortise_record& r) {
    Told t{std::string(view(r.kind)), {}, {}};
    for (uint32_t i = 0; i < r.n_columns; ++i) {
      const mortise_column& c = r.columns[i];
      const std::string name(view(c.name));
      if (c.value.tag == MORTISE_TEXT) t.texts[name] = view(c.value.v.s);
      else t.numbers[name] = c.value.tag == MORTISE_INT ? static_cast<double>(c.value.v.i) : c.value.v.f;
    }
    return t;
  }
  int train(RunOptions run_options = {}) {
    run.build(run_options);
    return train_on();
  }
  // With what was built.
  int train_on() {
    Saver saver(saver_options);
    const auto capture = [this](const RunState& s) {
      captured.push_back(s);
      if (capture_fails) throw Failure(trouble(kExitIo, "dir_moved", "gone"));
      Snapshot snapshot;
      snapshot.texts[kStateFile] = "{}";
      snapshot.tensors["rank0"] = {};
      return snapshot;
    };
    Training training({run.host,
                       run.listeners,
                       instances,
                       *run.samples,
                       *run.passes,
                       *run.step,
                       saver,
                       *run.ledger,
                       {&device.object, &device.instance},
                       capture,
                       sample,
                       [this] { return unlike; }},
                      options);
    const int exit = training.run([this](auto since) {
      asked_since = since;
      return interrupt ? interrupt() : Interrupt::kNone;
    });
    best = saver.best();
    return exit;
  }
  Lines lines(std::initializer_list<const char*> kinds) const {
    Lines all;
    for (const Told& t : told)
      if (std::ranges::find(kinds, t.kind) != kinds.end()) all.push_back(t.line());
    return all;
  }
  std::vector<Told> of(const std::string& kind) const {
    std::vector<Told> all;
    std::ranges::copy_if(told, std::back_inserter(all), [&](const Told& t) { return t.kind == kind; });
    return all;
  }
  Steps saved() const {
    Steps steps;
    for (const Found& found : checkpoints_in(saver_options.root)) steps.push_back(found.step);
    std::ranges::reverse(steps);
    return steps;
  }
  int64_t attempted() const { return run.host.services.clock.attempted; }
  // Whoever hears of the evaluation behind step 4 does.
  void fail_with_an_evaluation(const char* why) {
    run.listen(kRecord, [why](const mortise_event& e) {
      if (view(e.record->kind) == "eval") throw std::runtime_error(why);
    });
    run.data.validation = 2;
    options.eval_every = {4, 0};
    options.eval_at_start = false;
  }

  TestRun run;
  FakeDevice device;
  Plan plan;
  Instances instances{run.host, plan, ""};
  TrainOptions options;
  SaverOptions saver_options;
  fs::path dir;
  std::function<Interrupt()> interrupt;
  std::chrono::steady_clock::time_point asked_since;  // of saves: what came before is answered
  std::function<std::string()> sample;
  bool capture_fails = false;
  std::string unlike;  // of what is to be the same on every rank
  std::vector<Told> told;
  std::vector<RunState> captured;
  std::vector<std::string> warnings;
  Steps skipped;  // attempted steps that are voted down
  Best best;
};

}  // namespace mortise::testing
