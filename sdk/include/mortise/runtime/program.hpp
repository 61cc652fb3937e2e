// `mortise train` beside the program's own loop: it runs as a coroutine, which pauses wherever the loop has its turn.
#pragma once
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mortise/cpp/core.hpp"
#include "mortise/philox.h"
#include "mortise/program.h"
#include "mortise/runtime/adopted.hpp"
#include "mortise/runtime/coroutine.hpp"

namespace mortise {

class Program {
 public:
  enum class At { kBegin, kDeclare, kMicro, kGradients, kStepEnd, kEnd };

  Program(std::string manifest, int argc, char** argv)
      : manifest_(std::move(manifest)), words_(argv, argv + argc), training_([this] { run(); }) {
    program_.manifest = manifest_.c_str();
    program_.self = this;
    if (is_open_.exchange(true)) throw std::logic_error("a second run is opened before the first has ended");
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // ---- for the loop: outside ----

  At at() const { return at_; }  // where training waits for the loop
  // With a failure that the host has described, training ends.
  void go_on(mortise_status status = MORTISE_OK) {
    must_be_its_thread();
    status_ = status;
    training_.resume();
    if (!training_.is_done()) return;
    at_ = At::kEnd;
    is_open_ = false;
  }
  void must_be_its_thread() const {
    if (std::this_thread::get_id() != thread_)
      throw std::logic_error("a run goes on where it was opened: all of it is on one thread");
  }
  // From here on the loop has no turn any more; the step under way fails.
  void leave() { is_left_ = true; }
  int exit() const { return exit_; }
  // [model.host] sizes, at kDeclare: tables are those of model.host.
  static std::vector<int64_t> sizes() {
    const mortise_value v = config::get("sizes");
    return v.tag == MORTISE_INTS ? std::vector(v.v.is, v.v.is + v.count) : std::vector<int64_t>();
  }
  mortise_builder* builder() const { return builder_; }  // at kDeclare
  mortise_call* micro() const { return micro_; }         // at kMicro
  // What the program computes with its tensors from here on is computed with the run's parameters.
  void bind() {
    must_be_its_thread();
    for (Adopted& a : adopted) a.bind();
  }

  std::deque<Adopted> adopted;
  std::function<void(mortise_call*)> evaluate;

 private:
  void run() {
    std::vector<char*> words;
    for (std::string& word : words_) words.push_back(word.data());
    words.push_back(nullptr);
    exit_ = mortise_program_main(static_cast<int>(words_.size()), words.data(), &program_);
  }

  // ---- what training asks for: inside ----

  void pause(At here) {
    if (!is_left_) {
      at_ = here;
      training_.pause();
    }
    check(status_);
    if (is_left_)
      throw Error(MORTISE_E_PLUGIN, here == At::kDeclare ? "the program ended before its loop"
                                                         : "the program left its loop inside a step");
  }
  void declare(mortise_builder* build) {
    builder_ = build;
    seed(0);  // what the program makes its model of
    pause(At::kDeclare);
    if (Builder(build).fact("validation") && !evaluate)
      throw Error(MORTISE_E_CONFIG, "there is data to evaluate on, and the program does not say how",
                  "run.evaluate_with([&](mortise::Micro& micro) { … }), or [data] validation = 0");
    for (Adopted& a : adopted) a.declare(build);
  }
  void forward(mortise_call* call) {
    if (call->mode == MORTISE_SAMPLE)
      throw Error(MORTISE_E_UNSUPPORTED, "the model of a program cannot be sampled", "leave [sample.text] out");
    const Autocast autocast(call->compute_dtype);
    if (call->mode == MORTISE_EVAL) {
      bind();
      return evaluate(call);
    }
    seed(static_cast<uint32_t>(call->micro) + 1);
    micro_ = call;
    pause(At::kMicro);
  }

  void gradients() {
    for (Adopted& a : adopted) a.unbind();
    pause(At::kGradients);
  }

  // What a layer of a plugin does in the compute dtype of the call, LibTorch does of itself for the program's.
  struct Autocast {
    explicit Autocast(uint32_t dtype) : wanted(dtype == MORTISE_BF16 || dtype == MORTISE_F16) {
      if (!wanted) return;
      for (const auto device : {at::kCPU, at::kCUDA}) {
        at::autocast::set_autocast_enabled(device, true);
        at::autocast::set_autocast_dtype(device, dtype == MORTISE_BF16 ? at::kBFloat16 : at::kHalf);
      }
    }
    ~Autocast() {
      if (!wanted) return;
      at::autocast::clear_cache();
      for (const auto device : {at::kCPU, at::kCUDA}) at::autocast::set_autocast_enabled(device, false);
    }
    bool wanted;
  };

  // The program's random numbers depend on the run's seed and the place of the micro-batch alone: a run that goes on
  // has those of one that was never interrupted.
  static void seed(uint32_t micro) {
    mortise_philox stream{};
    check(api.random->stream(api.host, MORTISE_STR("program"), &stream));
    uint32_t words[4];
    mortise_philox_words(stream.key, micro, stream.site, stream.step, stream.micro, words);
    at::manual_seed(uint64_t{words[1]} << 32 | words[0]);
  }

  static Program& of(void* self) { return *static_cast<Program*>(self); }

  static inline std::atomic<bool> is_open_{false};  // one at a time: plugins of both would share their statics

  const std::thread::id thread_ = std::this_thread::get_id();
  std::string manifest_;
  std::vector<std::string> words_;
  Coroutine training_;
  At at_ = At::kBegin;
  bool is_left_ = false;
  mortise_status status_ = MORTISE_OK;
  int exit_ = 0;
  mortise_builder* builder_ = nullptr;
  mortise_call* micro_ = nullptr;
  mortise_program program_ = {
      sizeof(mortise_program),
      MORTISE_ABI_MAJOR,
      MORTISE_ABI_MINOR,
      0,
      nullptr,
      nullptr,
      [](void* self, mortise_host* host, mortise_builder* build) noexcept {
        open_api(host);
        return guard([&] { of(self).declare(build); });
      },
      [](void* self, mortise_host*, mortise_call* call) noexcept { return guard([&] { of(self).forward(call); }); },
      [](void* self, mortise_host*) noexcept { return guard([&] { of(self).gradients(); }); },
      [](void* self, mortise_host*) noexcept { return guard([&] { of(self).pause(At::kStepEnd); }); }};
};

}  // namespace mortise
