// One number: how many micro-batches the next step takes. First contributions, denominators and a short last window are
// the core's.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

// 5.33, and as many digits as it takes to see that it is no whole number.
std::string broken(double x) {
  char text[64];
  for (int digits = 2; digits < 10; ++digits) {
    std::snprintf(text, sizeof text, "%.*f", digits, x);
    if (std::strtod(text, nullptr) != std::round(x)) break;
  }
  return text;
}

constexpr int64_t kMostMicros = 1'000'000;  // as plugin.toml has it: the host counts micro-batches in 32 bits
constexpr double kMostCounted = 0x1p53;     // beyond it, whole numbers have gaps in a double

int64_t greatest_divisor(int64_t n, int64_t most) {
  int64_t divisor = std::min(n, most);
  while (n % divisor != 0) --divisor;
  return divisor;
}

class Accumulation {
 public:
  Accumulation() : size_(config::get("global_batch_size")) {
    const mortise_value count = config::get("count");
    const bool by_size = size_.tag != MORTISE_NONE;
    if (count.tag != MORTISE_NONE) {
      if (by_size)
        config::refuse("count", "`count` and `global_batch_size` say the same thing in two ways",
                       "leave out one of them");
      micros_ = checked("count", count.v.i);
    } else if (!by_size) {
      config::refuse("count", "it does not say how many micro-batches make a step",
                     "count = 4, or global_batch_size = 512");
    }
  }

  void window(const mortise_event*) {
    if (micros_ == 0) micros_ = micros_of_size();
    check(api.loop->set_window(api.host, micros_));
  }

 private:
  static int32_t checked(std::string_view key, int64_t micros) {
    if (micros <= kMostMicros) return static_cast<int32_t>(micros);
    config::refuse(key,
                   with_commas(micros) + " micro-batches make no step; " + with_commas(kMostMicros) + " is the most",
                   key == "count" ? "count = 4" : "a smaller global_batch_size, or a larger [data] micro_batch_size");
  }

  // Ranks that see the same samples are one to the clock.
  static int64_t processes_of_each(int64_t ranks) {
    int32_t rank = 0, size = 1;
    if (MORTISE_HAS(api.comm, place)) check(api.comm->place(api.host, &rank, &size));
    return std::max<int64_t>(1, size / ranks);
  }

  int32_t micros_of_size() const {
    const mortise_clock clock = clock_now();
    const bool tokens = size_.count == MORTISE_TOKENS;
    const int64_t length = tokens ? clock.sequence_length : 1;
    if (length == 0)
      config::refuse("global_batch_size", "this data has no sequence length, so tokens do not say how many samples",
                     "global_batch_size = 512");
    int64_t once = int64_t{clock.micro_batch_size} * clock.ranks;
    if (size_.v.f > kMostCounted || __builtin_mul_overflow(once, length, &once))
      config::refuse("global_batch_size", "these are more samples or tokens than can be counted",
                     "global_batch_size = 512");
    const int64_t size = std::llround(size_.v.f);
    if (size % once == 0) return checked("global_batch_size", size / once);

    const std::string ranks = std::to_string(clock.ranks), micro = std::to_string(clock.micro_batch_size);
    const std::string each = tokens ? micro + " × " + std::to_string(length) : micro;
    const std::string over = clock.ranks == 1 ? "micro-batches of " + each : ranks + " ranks of " + each;
    const std::string divisor = clock.ranks == 1 ? each : each + " × " + ranks;
    const double share = static_cast<double>(size) / static_cast<double>(once);
    const std::string works =
        "step.accumulation.global_batch_size=" + std::to_string(std::max<int64_t>(1, std::llround(share)) * once);
    // Another size is another run: on several ranks it is proposed only where nothing else works.
    std::string fix;
    for (int64_t fewer = clock.ranks - 1; fewer > 0 && fix.empty(); --fewer)
      if (size % (once / clock.ranks * fewer) == 0)
        fix = "--ranks " + std::to_string(fewer * processes_of_each(clock.ranks));
    const int64_t samples = size / length, of_rank = samples / clock.ranks;
    if (clock.ranks > 1 && size % length == 0 && samples % clock.ranks == 0 && of_rank > 0)
      fix += std::string(fix.empty() ? "" : ", or in a new run ") +
             "--set data.micro_batch_size=" + std::to_string(greatest_divisor(of_rank, clock.micro_batch_size));
    if (fix.empty()) fix = "--set " + (tokens ? "'" + works + " tokens'" : works);
    config::refuse(
        {.code = "batch_arithmetic",
         .key = "global_batch_size",
         .why = with_commas(size) + (tokens ? " tokens" : " samples") + " a step cannot be split over " + over,
         .beside =
             std::to_string(size) + " / " + (divisor == micro ? micro : "(" + divisor + ")") + " = " + broken(share),
         .fix = fix});
  }

  mortise_value size_;
  int32_t micros_ = 0;
};
}  // namespace

MORTISE_PLUGIN(Accumulation, mortise::listen<&Accumulation::window>("step.window"))
