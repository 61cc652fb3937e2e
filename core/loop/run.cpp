#include "core/loop/run.hpp"

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/loop/build.hpp"

namespace mortise {

Run::Run(RunRequest request) : parts_(std::make_unique<Parts>(std::move(request))) {
  try {
    parts_->build();
  } catch (const PluginError& e) {
    throw Failure(parts_->plugins.diagnose(e));
  }
}

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
    return guarded([&] { (*static_cast<const std::function<void(std::string_view)>*>(user))(view(piece)); });
  };
  sampler.call(&mortise_sampler::generate, "generate", static_cast<const mortise_sample_request*>(&r));
}

}  // namespace mortise
