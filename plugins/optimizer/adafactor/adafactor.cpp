// Adafactor on the host's processor (kernels/adafactor).
#include "kernels/adafactor/adafactor.h"

#include <cmath>

#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;
using Update = kernels::Adafactor;  // one parameter's, of one step

// stage(update, item) for all items of all updates, `count` of each: one list for all threads.
template <class Count, class Stage>
void for_items(std::vector<Update>& updates, Count count, Stage stage) {
  std::vector<int64_t> first = {0};
  for (const Update& u : updates) first.push_back(first.back() + (u.*count)());
  parallel_for(first.back(), 1, [&](int64_t begin, int64_t end) {
    size_t u = static_cast<size_t>(std::upper_bound(first.begin(), first.end(), begin) - first.begin()) - 1;
    for (int64_t item = begin; item < end; ++item) {
      while (item >= first[u + 1]) ++u;
      (updates[u].*stage)(item - first[u]);
    }
  });
}

class Adafactor {
 public:
  Adafactor()
      : clip_threshold_(config::number("clip_threshold")), decay_rate_(config::number("decay_rate")),
        scale_parameter_(config::flag("scale_parameter")), relative_step_(config::flag("relative_step")),
        warmup_init_(config::flag("warmup_init")) {
    const auto eps = config::numbers("eps");
    if (eps.size() != 2) config::refuse("eps", "Adafactor has two of them", "eps = [1e-30, 1e-3]");
    if (static_cast<float>(eps[0]) == 0)
      config::refuse("eps",
                     std::string(eps[0] == 0 ? "without the first" : "the first is 0 in fp32, and without it") +
                         ", a row whose gradient is 0 divides 0 by 0",
                     "eps = [1e-30, 1e-3]");
    eps_ = eps[0];
    least_scale_ = eps[1];
    const mortise_value beta1 = config::get("beta1");
    has_moment_ = beta1.tag == MORTISE_FLOAT;
    beta1_ = has_moment_ ? beta1.v.f : 0;
    if (beta1_ >= 1) config::refuse("beta1", "a decay of 1 never takes an update in", "beta1 = 0.9");
    if (warmup_init_ && !relative_step_)
      config::refuse("warmup_init", "it is a part of relative_step, which is off", "relative_step = true");
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) const {
    if (info->master_dtype == MORTISE_F64)
      throw Error(MORTISE_E_UNSUPPORTED,
                  "optimizer.adafactor updates weights in fp32, bf16 or fp16; those of " +
                      std::string(view(info->name)) + " are in fp64",
                  "[optimizer.adamw] or [optimizer.sgd]");
    const auto add = [&](const char* name, const char* relation) {
      specs[(*n)++] = {mortise_text(name), mortise_text(relation), MORTISE_F32, 0, 0.0};
    };
    *n = 0;
    if (info->rank < 2) add("exp_avg_sq", "same");
    else add("exp_avg_sq_row", "rows"), add("exp_avg_sq_col", "columns");
    if (has_moment_) add("exp_avg", "same");
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) const {
    const Ledger ledger(device_ledger);
    if (!ledger.apply) return;
    std::vector<Update> updates;
    for (uint32_t i = 0; i < n; ++i) updates.push_back(update_of(slice_at(slices, i), ledger));
    for_items(updates, &Update::tiles, &Update::sum_squares);
    for_items(updates, &Update::bands, &Update::average);
    for (Update& u : updates) u.prepare();
    for_items(updates, &Update::tiles, &Update::measure);
    for (Update& u : updates) u.clip();
    for_items(updates, &Update::tiles, &Update::update);
    for (uint32_t i = 0; i < n; ++i) {
      const mortise_slice& s = slice_at(slices, i);
      finish_slice(s, copy_of(s) != nullptr);
    }
  }

 private:
  // Of a narrower master the value is cast by the host, from what was rounded.
  static uint16_t* copy_of(const mortise_slice& s) {
    return Info(s.master).dtype == MORTISE_F32 ? bf16_value<uint16_t>(s) : nullptr;
  }

  double relative_rate(double t) const {
    if (!relative_step_) return 1;
    return std::min(warmup_init_ ? 1e-6 * t : 1e-2, 1 / std::sqrt(t));
  }

  Update update_of(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad);
    const auto t = static_cast<double>(ledger.applied + 1);
    const bool factored = s.info->rank >= 2;
    const auto state = [&](uint32_t i) { return Info(s.states[i]).as<float>(); };
    const kernels::AdafactorStep step{.lr = ledger.lr[s.group] * relative_rate(t),
                                      .weight_decay = ledger.weight_decay[s.group],
                                      .beta1 = beta1_,
                                      .beta2 = 1 - std::pow(t, decay_rate_),
                                      .eps = eps_,
                                      .least_scale = least_scale_,
                                      .clip_threshold = clip_threshold_,
                                      .multiplier = ledger.multiplier,
                                      .scale_parameter = scale_parameter_};
    const kernels::AdafactorArrays arrays{.master = p.dtype,
                                          .grad = g.dtype,
                                          .p = p.data,
                                          .g = g.data,
                                          .row = factored ? state(0) : nullptr,
                                          .column = factored ? state(1) : nullptr,
                                          .v = factored ? nullptr : state(0),
                                          .m = has_moment_ ? state(factored ? 2 : 1) : nullptr,
                                          .copy = copy_of(s)};
    if (!factored) return {step, arrays, s.length, 1, s.length};
    return {step, arrays, s.length, s.info->sizes[s.info->rank - 2], s.info->sizes[s.info->rank - 1]};
  }

  double eps_ = 0, least_scale_ = 0, clip_threshold_, decay_rate_, beta1_ = 0;
  bool scale_parameter_, relative_step_, warmup_init_, has_moment_ = false;
};

constexpr mortise_optimizer kAdafactor = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&Adafactor::states>,
                                          thunk<&Adafactor::step>};
}  // namespace

MORTISE_PLUGIN(Adafactor, mortise::provide("optimizer", &kAdafactor))
