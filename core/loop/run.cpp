#include "core/loop/run.hpp"

#include <chrono>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/loop/build.hpp"

namespace mortise {

Run::Run(RunRequest request) : parts_(std::make_unique<Parts>(std::move(request))) {
  try {
    parts_->build();
  } catch (const PluginError& e) {
    throw Failure(parts_->plugins.diagnose(e));
  } catch (const FormatError& e) {
    throw Failure(diagnostic_of(e));
  }
}

Diagnostic diagnostic_of(const FormatError& error) { return trouble(kExitData, error.code, error.message, error.path); }

Run::~Run() = default;

const Summary& Run::summary() const { return parts_->summary; }

int Run::train(const std::function<Interrupt()>& interrupt) { return parts_->train(interrupt); }

int64_t Run::step() const { return parts_->services.clock.applied; }

bool Run::can_sample() const { return static_cast<bool>(parts_->sampler); }

void Run::sample(const SampleRequest& request, const std::function<void(std::string_view)>& emit) {
  try {
    parts_->sample(request, emit);
  } catch (const PluginError& e) {
    throw Failure(parts_->plugins.diagnose(e));
  }
}

void Run::Parts::sample(const SampleRequest& ask, const std::function<void(std::string_view)>& emit) {
  mortise_sample_request r{};
  r.struct_size = sizeof r;
  r.tokens = ask.tokens;
  r.prompt = str(ask.prompt);
  r.temperature = ask.temperature;
  r.top_k = ask.top_k;
  r.seed = ask.seed;
  r.user = const_cast<void*>(static_cast<const void*>(&emit));
  r.emit = [](void* user, mortise_str piece) noexcept -> mortise_status {
    return guarded([&] { (*static_cast<const std::function<void(std::string_view)>*>(user))(text_of(piece)); });
  };
  sampler.call(&mortise_sampler::generate, "generate", static_cast<const mortise_sample_request*>(&r));
}

Measured Run::Parts::evaluate() {
  const auto before = std::chrono::steady_clock::now();
  Measured m;
  evaluation = [&] {
    Counts counts;
    TermSums sums;
    for (int64_t i = 0; i < feed->micros_per_epoch("validation"); ++i) {
      const BatchPtr loaded = passes->host_batch("validation", i, MORTISE_EVAL);
      add_counts(counts, *loaded.get());
      const BatchPtr batch = passes->device_batch(loaded, MORTISE_EVAL);
      Terms terms;
      mortise_value results[2] = {};
      passes->forward(batch.get(), MORTISE_EVAL, 0, results, 2, &terms);
      for (auto& v : results)
        if (v.tag == MORTISE_TENSOR) take(v.v.t);
      sums.add(terms);
    }
    m.values = {{"eval.loss", sums.loss(counts)}};
    for (const auto& s : sums.all())
      if (s.weight == 0 && counts[s.unit] > 0)
        m.values.emplace_back("eval." + s.name, s.total.item<double>() / static_cast<double>(counts[s.unit]));
    m.samples = counts["samples"];
    m.tokens = counts["tokens"];
  };
  // The whole pass is a call of `eval`, so that a wrapper may lend it other weights.
  mortise_call call = root_call(kEval, MORTISE_EVAL, 0);
  invoke(chains.at(kEval, MORTISE_EVAL), call);
  evaluation = nullptr;
  m.about = feed->about("validation");
  m.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  return m;
}

Measured Run::evaluate() {
  try {
    return parts_->evaluate();
  } catch (const PluginError& e) {
    throw Failure(parts_->plugins.diagnose(e));
  }
}

}  // namespace mortise
