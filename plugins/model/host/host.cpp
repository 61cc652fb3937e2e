// The model that a program of the user's brings, and where its own loop stands between the parts of a step.
#include "mortise/cpp/model.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/program.h"

namespace {
using namespace mortise;

class Host {
 public:
  Host() : program_(static_cast<const mortise_program*>(mortise_get(api.host, "mortise.program/0"))) {
    if (!program_)
      config::refuse({.code = "host_missing",
                      .why = "[model.host] means that a program of yours brings the model; `mortise` has none",
                      .fix = "run that program, or name a model: [model.gpt]"});
  }

  void declare(mortise_builder* b) {
    Builder(b).segment("host");
    check(program_->declare(program_->self, api.host, b));
  }
  void segment(mortise_call* call, uint32_t) { check(program_->forward(program_->self, api.host, call)); }
  void gradients(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    check(program_->gradients(program_->self, api.host));
  }
  void step_end(const mortise_event*) { check(program_->step_end(program_->self, api.host)); }

 private:
  const mortise_program* program_;
};

const mortise_model kModel = {sizeof kModel, 0, thunk<&Host::declare>, thunk<&Host::segment>};
}  // namespace

MORTISE_PLUGIN(Host, mortise::provide("model", &kModel), mortise::wrap<&Host::gradients>("gradients"),
               mortise::listen<&Host::step_end>("step.end"))
