// Adafactor (kernels/adafactor), on the host's processor or on a GPU.
#include "kernels/adafactor/adafactor.h"
#include "kernels/adafactor/adafactor_cuda.h"
#include "kernels/adafactor/element.h"
#include "kernels/cuda/ledger.hpp"

#include <map>

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
  Adafactor() {
    settings_.clip_threshold = config::number("clip_threshold");
    settings_.decay_rate = config::number("decay_rate");
    settings_.scale_parameter = config::flag("scale_parameter");
    settings_.relative_step = config::flag("relative_step");
    settings_.warmup_init = config::flag("warmup_init");
    const auto eps = config::numbers("eps");
    if (eps.size() != 2) config::refuse("eps", "Adafactor has two of them", "eps = [1e-30, 1e-3]");
    if (static_cast<float>(eps[0]) == 0)
      config::refuse("eps",
                     std::string(eps[0] == 0 ? "without the first" : "the first is 0 in fp32, and without it") +
                         ", a row whose gradient is 0 divides 0 by 0",
                     "eps = [1e-30, 1e-3]");
    settings_.eps = eps[0];
    settings_.least_scale = eps[1];
    const mortise_value beta1 = config::get("beta1");
    has_moment_ = beta1.tag == MORTISE_FLOAT;
    settings_.beta1 = has_moment_ ? beta1.v.f : 0;
    if (settings_.beta1 >= 1) config::refuse("beta1", "a decay of 1 never takes an update in", "beta1 = 0.9");
    if (settings_.warmup_init && !settings_.relative_step)
      config::refuse("warmup_init", "it is a part of relative_step, which is off", "relative_step = true");
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) const {
    if (info->master_dtype == MORTISE_F64)
      throw Error(MORTISE_E_CONFIG,
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

  // On a GPU the sums of a step have memory of their own, from the first step on.
  void workspace(const mortise_param_info* info, uint32_t device, int64_t* bytes) const {
    *bytes = 0;
    if constexpr (MORTISE_HAS_CUDA)
      if (device == MORTISE_CUDA) {
        const Shape shape(*info, info->numel);
        *bytes = static_cast<int64_t>(sizeof(double)) * shape.space();
      }
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* device_ledger) {
    if constexpr (MORTISE_HAS_CUDA)
      if (is_on_gpu(device_ledger)) return step_on_gpu(slices, n, *device_ledger);
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
  // What a slice is to the kernels: matrices of rows × columns, or a vector, which is one row.
  struct Shape {
    explicit Shape(const mortise_slice& s) : Shape(*s.info, s.length) {}
    Shape(const mortise_param_info& info, int64_t length) : is_vector(info.rank < 2), columns(length) {
      if (!is_vector) {
        rows = info.sizes[info.rank - 2];
        columns = info.sizes[info.rank - 1];
      }
      matrices = length == 0 ? 0 : length / (rows * columns);
    }
    // Doubles that the kernels add up in.
    int64_t space() const { return kernels::adafactor_space(matrices, rows, columns, is_vector); }
    bool is_vector;
    int64_t rows = 1, columns, matrices;
  };

  // Of a narrower master the value is cast by the host, from what was rounded.
  static uint16_t* copy_of(const mortise_slice& s) {
    return Info(s.master).dtype == MORTISE_F32 ? bf16_value<uint16_t>(s) : nullptr;
  }

  Update update_of(const mortise_slice& s, const Ledger& ledger) const {
    const Info p(s.master), g(s.grad);
    const Shape shape(s);
    const auto state = [&](uint32_t i) { return Info(s.states[i]).as<float>(); };
    const kernels::AdafactorStep step =
        kernels::adafactor_step(settings_, ledger.lr[s.group], ledger.weight_decay[s.group], ledger.multiplier,
                                static_cast<double>(ledger.applied + 1));
    const kernels::AdafactorArrays arrays{.master = p.dtype,
                                          .grad = g.dtype,
                                          .p = p.data,
                                          .g = g.data,
                                          .row = shape.is_vector ? nullptr : state(0),
                                          .column = shape.is_vector ? nullptr : state(1),
                                          .v = shape.is_vector ? state(0) : nullptr,
                                          .m = has_moment_ ? state(shape.is_vector ? 1 : 2) : nullptr,
                                          .copy = copy_of(s)};
    return {settings_, step, arrays, s.length, shape.rows, shape.columns};
  }

  // ---- on a GPU ----

  void step_on_gpu(const mortise_slice* slices, uint32_t n, const mortise_ledger& ledger) {
    std::vector<kernels::AdafactorSlice> all;
    for (uint32_t i = 0; i < n; ++i) all.push_back(slice_on_gpu(slice_at(slices, i)));
    kernels::check_launch(kernels::adafactor_cuda(all.data(), static_cast<int64_t>(all.size()), settings_,
                                                  kernels::device_ledger(ledger), stream_now()));
    for (uint32_t i = 0; i < n; ++i) finish_slice(slice_at(slices, i), all[i].copy != nullptr);
  }

  kernels::AdafactorSlice slice_on_gpu(const mortise_slice& s) {
    const Info p(s.master), g(s.grad), value(s.value ? s.value : s.master);
    const Shape shape(s);
    const auto state = [&](uint32_t i) { return Info(s.states[i]).as<float>(); };
    const bool copies =
        s.value && p.dtype == MORTISE_F32 && (value.dtype == MORTISE_BF16 || value.dtype == MORTISE_F16);
    return {.p = p.data,
            .g = g.data,
            .row = state(0),
            .column = shape.is_vector ? nullptr : state(1),
            .m = has_moment_ ? state(shape.is_vector ? 1 : 2) : nullptr,
            .copy = copies ? value.data : nullptr,
            .space = space_of(s.param, shape.space()),
            .matrices = shape.matrices,
            .rows = shape.rows,
            .columns = shape.columns,
            .group = s.group,
            .master = static_cast<uint8_t>(p.dtype),
            .grad = static_cast<uint8_t>(g.dtype),
            .copy_dtype = static_cast<uint8_t>(value.dtype)};
  }

  // Where a parameter's sums lie, from its first step on: a recorded step finds them where they were.
  double* space_of(mortise_param* param, int64_t doubles) {
    Tensor& space = spaces_[param];
    if (!space) space = empty(MORTISE_F64, {doubles});
    return Info(space).as<double>();
  }

  kernels::AdafactorSettings settings_ = {};
  bool has_moment_ = false;
  std::map<mortise_param*, Tensor> spaces_;
};

constexpr mortise_optimizer kAdafactor = {sizeof(mortise_optimizer), MORTISE_WRITES_VALUE, thunk<&Adafactor::states>,
                                          thunk<&Adafactor::step>, thunk<&Adafactor::workspace>};
}  // namespace

MORTISE_PLUGIN(Adafactor, mortise::provide("optimizer", &kAdafactor))
