// data.mixture: which group of the data each sample to train on is drawn from, and which of its samples.
//
// Draws are numbered from the beginning of the run. A phase is a stretch of them with the same weights. Draw j of a
// phase takes the group in whose share of [0, 65536) the number reverse(j mod 65536) ^ shift lies, `shift` being drawn
// for each 65,536 draws. These numbers go through the whole range evenly (van der Corput 1935), so that
//   - each 65,536 draws have every group exactly as often as its share says, and
//   - of the first n draws of such a block each group has its share but for less than 2 for each one in n's binary
//     digits: an aligned stretch of 2^k draws has one number in each 65536/2^k, so its ends are off by less than 1;
//   - how many draws of each group there were is a sum of 17 terms: nothing is kept.
// Draw k of a group of n samples is sample k mod n of pass k / n, each pass in an order of its own.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

constexpr int kBits = 16;
constexpr int64_t kBlock = 1 << kBits;  // draws after which shares are exact

uint32_t reversed(uint32_t x) {
  uint32_t r = 0;
  for (int bit = 0; bit < kBits; ++bit) r |= (x >> bit & 1u) << (kBits - 1 - bit);
  return r;
}

// Shares of [0, kBlock): each weight's part, rounded down, and the rest to those that lost most.
std::vector<int64_t> shares_of(std::span<const double> weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<double> lost;
  for (const double w : weights) {
    const double exact = w / sum * static_cast<double>(kBlock);
    shares.push_back(static_cast<int64_t>(exact));
    lost.push_back(exact - std::floor(exact));
  }
  for (int64_t rest = kBlock - std::accumulate(shares.begin(), shares.end(), int64_t{0}); rest > 0; --rest) {
    const auto most = std::ranges::max_element(lost);
    ++shares[static_cast<size_t>(most - lost.begin())];
    *most = -1;
  }
  return shares;
}

struct Group {
  std::string name;
  int64_t first, samples;
  int64_t pass = -1;           // of which `order` is
  std::vector<int64_t> order;  // of samples 0 to samples - 1
};

struct Phase {
  int64_t step, first;         // draw
  std::vector<int64_t> ends;   // of the groups' shares
  std::vector<int64_t> drawn;  // of each group before it
};

class Mixture {
 public:
  void open(const mortise_order_request* request) {
    ask_ = *request;
    key_[0] = static_cast<uint32_t>(request->seed), key_[1] = static_cast<uint32_t>(request->seed >> 32);
    const auto* at = reinterpret_cast<const char*>(request->groups);
    for (uint32_t i = 0; i < request->n_groups; ++i) {
      const auto& g = *reinterpret_cast<const mortise_group*>(at + size_t{i} * request->groups->struct_size);
      const int64_t first = groups_.empty() ? 0 : groups_.back().first + groups_.back().samples;
      groups_.push_back({std::string(view(g.name)), first, g.samples, -1, {}});
    }
    make_phases();
    about_ = said();
  }

  void describe(mortise_str* about) { *about = str(about_); }

  void epoch(int64_t number, int64_t* samples, int64_t* before) {
    const int64_t first = number * ask_.per_epoch;
    std::vector<int64_t> drawn = drawn_before(first);
    const Phase* phase = nullptr;
    uint32_t by = 0;  // the shift of the block under way
    for (int64_t i = 0; i < ask_.per_epoch; ++i) {
      const Phase* const before_it = std::exchange(phase, &phase_of(first + i));
      const int64_t j = first + i - phase->first;
      if (phase != before_it || j % kBlock == 0) by = shift(*phase, j / kBlock);
      const int64_t at = reversed(static_cast<uint32_t>(j % kBlock)) ^ by;
      const auto g = static_cast<size_t>(std::ranges::upper_bound(phase->ends, at) - phase->ends.begin());
      const int64_t nth = drawn[g]++, pass = nth / groups_[g].samples;
      samples[i] = groups_[g].first + order(g, pass)[static_cast<size_t>(nth % groups_[g].samples)];
      before[i] = pass;
    }
  }

  // How many samples of each group the run has taken, this step's too.
  void step_end(const mortise_event*) const {
    const std::vector<int64_t> drawn = drawn_before(first_draw(clock_now().attempted));
    for (size_t g = 0; g < groups_.size(); ++g) {
      const Tensor n = empty(MORTISE_F64, {});  // on the device, so that nobody waits for it to get there
      ops::fill_(n, static_cast<double>(drawn[g]));
      check(api.loop->report(api.host, str("drawn." + groups_[g].name), n.get(), MORTISE_STR("samples")));
    }
  }

 private:
  // ---- what the manifest says ----

  void make_phases() {
    const std::span<const double> weights = config::numbers("weights");
    const mortise_value steps = config::get("from_step");
    for (size_t g = 1; g < groups_.size(); ++g)
      if (std::ranges::count(groups_, groups_[g].name, &Group::name) > 1)
        config::refuse("weights", "two sources are both called " + groups_[g].name,
                       "name each file or pattern once in the data's `path`");
    const size_t n = groups_.size(), phases = 1 + (steps.tag == MORTISE_INTS ? steps.count : 0);
    if (weights.size() != n * phases)
      config::refuse("weights",
                     std::to_string(weights.size()) + " weights for " + std::to_string(n) +
                         (n == 1 ? " source" : " sources") + " (" + names() + ")" +
                         (phases == 1 ? "" : ", at the beginning and at " + std::to_string(phases - 1) + " steps"),
                     n == 1 ? "name several files or patterns in the data's `path`"
                            : std::to_string(n * phases) + " weights: one a source, in this order");
    for (size_t p = 0; p < phases; ++p) {
      const int64_t step = p == 0 ? 0 : steps.v.is[p - 1];
      if (p > 0 && step <= phases_.back().step)
        config::refuse("from_step", "step " + std::to_string(step) + " does not follow the one before",
                       "steps in order: [1000, 5000]");
      const int64_t first = first_draw(step);
      std::vector<int64_t> drawn = p == 0 ? std::vector<int64_t>(n, 0) : drawn_before(first),
                           ends = checked(weights.subspan(p * n, n));
      std::partial_sum(ends.begin(), ends.end(), ends.begin());
      phases_.push_back({step, first, std::move(ends), std::move(drawn)});
    }
  }

  std::vector<int64_t> checked(std::span<const double> weights) const {
    if (std::ranges::all_of(weights, [](double w) { return w == 0; }))
      config::refuse("weights", "all weights are 0: nothing would be drawn", "a weight above 0");
    std::vector<int64_t> shares = shares_of(weights);
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (weights[g] > 0 && groups_[g].samples == 0)
        config::refuse("weights", groups_[g].name + " has no samples to draw from",
                       "0 as its weight, or a file with more");
      if (weights[g] > 0 && shares[g] == 0)
        config::refuse("weights", "the weight of " + groups_[g].name + " is less than 1 of " + with_commas(kBlock),
                       "0, or a larger one");
    }
    return shares;
  }

  std::string names() const {
    std::string all;
    for (const Group& g : groups_) all += (all.empty() ? "" : ", ") + g.name;
    return all;
  }

  // "70 % web (1,204), 30 % code (511); from step 1,000 50 %, 50 %"
  std::string said() const {
    std::string text;
    for (const Phase& p : phases_) {
      if (p.step > 0) text += "; from step " + with_commas(p.step) + " ";
      for (size_t g = 0; g < groups_.size(); ++g) {
        char share[32];
        const int64_t part = p.ends[g] - (g > 0 ? p.ends[g - 1] : 0);
        std::snprintf(share, sizeof share, "%.4g %%", 100.0 * static_cast<double>(part) / static_cast<double>(kBlock));
        text += (g > 0 ? ", " : "") + std::string(share);
        if (p.step == 0) text += " " + groups_[g].name + " (" + with_commas(groups_[g].samples) + ")";
      }
    }
    return text;
  }

  // ---- which group ----

  int64_t first_draw(int64_t step) const {
    const int64_t steps = (ask_.per_epoch + ask_.per_step - 1) / ask_.per_step;  // of an epoch
    return step / steps * ask_.per_epoch + step % steps * ask_.per_step;
  }
  const Phase& phase_of(int64_t draw) const {
    return *(std::ranges::upper_bound(phases_, draw, {}, &Phase::first) - 1);
  }
  uint32_t shift(const Phase& p, int64_t block) const {
    uint32_t words[4];
    mortise_philox_words(key_, static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(p.step), ~0u, words);
    return words[0] % kBlock;
  }

  // Draws of each group before one.
  std::vector<int64_t> drawn_before(int64_t draw) const {
    const Phase& p = draw == 0 ? phases_.front() : phase_of(draw - 1);
    const int64_t blocks = (draw - p.first) / kBlock;
    const uint32_t within = static_cast<uint32_t>((draw - p.first) % kBlock), by = shift(p, blocks);
    std::vector<int64_t> drawn = p.drawn;
    int64_t below_before = 0;
    for (size_t g = 0; g < drawn.size(); ++g) {
      const int64_t below = blocks * p.ends[g] + below_end(within, by, p.ends[g]);
      drawn[g] += below - std::exchange(below_before, below);
    }
    return drawn;
  }
  // Of the numbers of a block's first n draws those below `end`: n as aligned stretches of 2^k. The numbers of one have
  // all values in their k highest bits and the same in the others.
  static int64_t below_end(uint32_t n, uint32_t shift, int64_t end) {
    int64_t below = 0;
    for (int k = kBits - 1; k >= 0; --k) {
      if (!(n >> k & 1u)) continue;
      const uint32_t first = n >> (k + 1) << (k + 1), low = (1u << (kBits - k)) - 1;
      const int64_t rest = (reversed(first) ^ shift) & low;
      below += (end >> (kBits - k)) + (rest < (end & low));
    }
    return below;
  }

  // ---- which of its samples ----

  const std::vector<int64_t>& order(size_t index, int64_t pass) {
    Group& g = groups_[index];
    if (g.pass == pass) return g.order;
    g.order.resize(static_cast<size_t>(g.samples));
    std::iota(g.order.begin(), g.order.end(), int64_t{0});
    for (int64_t i = ask_.shuffle ? g.samples - 1 : 0; i > 0; --i) {  // Fisher and Yates
      uint32_t w[4];
      mortise_philox_words(key_, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(pass),
                           static_cast<uint32_t>(index), w);
      const uint64_t bits = uint64_t{w[0]} << 32 | w[1];
      std::swap(g.order[static_cast<size_t>(i)], g.order[bits % static_cast<uint64_t>(i + 1)]);
    }
    g.pass = pass;
    return g.order;
  }

  mortise_order_request ask_ = {};
  uint32_t key_[2] = {};
  std::vector<Group> groups_;
  std::vector<Phase> phases_;
  std::string about_;
};

const mortise_order kObject = {sizeof kObject, 0, thunk<&Mixture::open>, thunk<&Mixture::describe>,
                               thunk<&Mixture::epoch>};
}  // namespace

MORTISE_PLUGIN(Mixture, mortise::provide("data.order", &kObject), mortise::listen<&Mixture::step_end>("step.end"))
