// Throws where `where` says, what `what` says.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

void throw_at(std::string_view here) {
  if (config::text("where") != here) return;
  const std::string_view what = config::text("what");
  if (what == "number") throw 42;
  if (what == "memory") throw std::bad_alloc();
  if (what == "type") config::text("rate");
  if (what == "int") config::integer("rate");
  if (what == "error") throw Error(MORTISE_E_DATA, "bad luck in " + std::string(here), "another day");
  throw std::out_of_range("out of luck in " + std::string(here));
}

class Throwing {
 public:
  Throwing() { throw_at("create"); }
  ~Throwing() noexcept(false) { throw_at("destroy"); }
  void factor(double, double* multiplier) {
    throw_at("object");
    *multiplier = 1;
  }
  void batch(mortise_call*) const { throw_at("call"); }
  void block(mortise_call*, mortise_next*) { throw_at("wrap"); }
  void record(const mortise_event*) {
    throw_at("listen");
    parallel_for(100, 10, [](int64_t, int64_t) { throw_at("parallel"); });
  }
};

constexpr mortise_schedule kSchedule = {sizeof(mortise_schedule), 0, thunk<&Throwing::factor>};

mortise_attachment schedule() {
  throw_at("attachments");
  return provide("schedule", &kSchedule);
}
}  // namespace

MORTISE_PLUGIN(Throwing, schedule(), mortise::provide_call<&Throwing::batch>("batch"),
               mortise::wrap<&Throwing::block>("block"), mortise::listen<&Throwing::record>("record"))
