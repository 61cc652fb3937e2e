// Votes against a step whose gradient is not finite: on the device, nobody waits. Counts skips when their records
// arrive, some steps later.
#include <cmath>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

class NonFinite {
 public:
  NonFinite() : stop_after_(config::integer("stop_after")) {
    if (api.state) check(api.state->keep(api.host, &kInARow));
  }

  void verdict(const mortise_event*) {
    // Of the loss that is under way: what the record says is the factor of the next one.
    if (!first_scale_) first_scale_ = ops::clone(Ref(ledger_now().scale));
    Tensor norm;
    check(api.grads->norm(api.host, norm.put()));
    check(api.loop->vote(api.host, ops::isfinite(norm).get()));
  }

  void record(const mortise_event* event) {
    const Columns columns(*event->record);
    if (columns.kind() != "step") return;
    if (columns.has("skipped_reason")) return;  // it had nothing to learn: that says nothing of gradients
    const bool skipped = columns.integer("skipped") != 0;
    if (scale_ == 0 && first_scale_) check(api.tensor->read(api.host, first_scale_.get(), &scale_, sizeof scale_));
    // A loss scale that is being lowered is still being found: such a skip is the search, not a run gone wrong.
    const bool searching = skipped && columns.number("scale", scale_) < scale_;
    scale_ = columns.number("scale", scale_);
    in_a_row_ = skipped && !searching ? in_a_row_ + 1 : 0;
    if (in_a_row_ == 0) return;
    say_how_many();
    if (asked_ || in_a_row_ < stop_after_) return;  // above it at once: a resumed run may allow fewer than there were
    asked_ = true;
    // Where the last of them has a norm, another plugin voted against it.
    const std::string in = std::to_string(in_a_row_) + (in_a_row_ == 1 ? " step" : " steps in a row");
    const std::string reason = std::isfinite(columns.number("grad_norm", NAN)) ? "a plugin voted against " + in
                                                                               : "the gradient was not finite in " + in;
    check(api.loop->request(api.host, MORTISE_ABORT, str(reason)));
  }

  void save(const mortise_sink* sink) { save_integer(sink, in_a_row_); }
  void load(uint32_t, mortise_str text) { in_a_row_ = load_integer(text, "the count of guard.nonfinite"); }

 private:
  // For whoever shows the record after us: "(1 of 3 in a row before stopping)".
  void say_how_many() const {
    if (!MORTISE_HAS(api.loop, column)) return;
    check(api.loop->column(api.host, MORTISE_STR("skipped_in_a_row"), value(in_a_row_)));
    check(api.loop->column(api.host, MORTISE_STR("stop_after"), value(stop_after_)));
  }

  static const mortise_blob kInARow;
  int64_t stop_after_, in_a_row_ = 0;
  bool asked_ = false;
  Tensor first_scale_;  // of the first step of this process, on the device: float64, 0-dim
  double scale_ = 0;    // of the record before; 0: there was none
};
const mortise_blob NonFinite::kInARow = {sizeof(mortise_blob), 1, MORTISE_STR("in_a_row"), thunk<&NonFinite::save>,
                                         thunk<&NonFinite::load>};
}  // namespace

MORTISE_PLUGIN(NonFinite, mortise::listen<&NonFinite::verdict>("step.verdict"),
               mortise::listen<&NonFinite::record>("record"))
