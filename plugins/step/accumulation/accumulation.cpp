// One number: how many micro-batches the next step takes. First contributions, denominators and a short last window are the core's.
#include <cmath>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

class Accumulation {
 public:
  Accumulation() : size_(config::get("global_batch_size")) {
    const mortise_value count = config::get("count");
    const bool by_size = size_.tag != MORTISE_NONE;
    if (count.tag != MORTISE_NONE) {
      if (by_size) config::refuse("count", "`count` and `global_batch_size` say the same thing in two ways", "leave out one of them");
      micros_ = static_cast<int32_t>(count.v.i);
    } else if (!by_size) {
      config::refuse("count", "it does not say how many micro-batches make a step", "count = 4, or global_batch_size = 512");
    }
  }

  void window(const mortise_event*) {
    if (micros_ == 0) micros_ = micros_of_size();
    check(api.loop->set_window(api.host, micros_));
  }

 private:
  int32_t micros_of_size() const {
    mortise_clock clock{};
    clock.struct_size = sizeof clock;
    check(api.loop->clock(api.host, &clock));
    const bool tokens = size_.count == MORTISE_TOKENS;
    const int64_t length = tokens ? clock.sequence_length : 1;
    if (length == 0) config::refuse("global_batch_size", "this data has no sequence length, so tokens do not say how many samples", "global_batch_size = 512");
    const int64_t size = std::llround(size_.v.f), once = int64_t{clock.micro_batch_size} * clock.ranks * length;
    if (size % once == 0) return static_cast<int32_t>(size / once);

    const std::string unit = tokens ? " tokens" : " samples";
    const std::string rank = std::to_string(clock.micro_batch_size) + (tokens ? " × " + std::to_string(length) : "");
    const std::string why = with_commas(size) + unit + " a step cannot be split over " +
                            (clock.ranks == 1 ? "micro-batches of " : std::to_string(clock.ranks) + " ranks of ") + rank;
    const int64_t near = std::max<int64_t>(1, std::llround(static_cast<double>(size) / static_cast<double>(once)));
    const std::string works = "step.accumulation.global_batch_size=" + std::to_string(near * once);
    config::refuse("global_batch_size", why, "--set " + (tokens ? "'" + works + " tokens'" : works) + " (" + std::to_string(near) + " accumulated)");
  }

  mortise_value size_;
  int32_t micros_ = 0;
};
}  // namespace

MORTISE_PLUGIN(Accumulation, mortise::listen<&Accumulation::window>("step.window"))
