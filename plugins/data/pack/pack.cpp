// data.pack: the samples of a micro-batch in fewer rows, with the positions that they have and `segments`, a number of
// its own for each sample of a row, by which attention keeps them apart.
//
// Shapes  B samples, T positions of the longest, R rows, L positions of the longest row.
#include <cstring>
#include <numeric>

#include "mortise/cpp/batch.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

constexpr int64_t kNoLabel = -100, kPadding = -1;  // the segment of padding is no sample's

// Where each sample lies.
struct Packing {
  struct Place {
    int64_t row, first, length;
  };
  std::vector<Place> places;
  std::vector<int64_t> used;  // positions of each row

  // The longest first, each into the first row that has room for it: Johnson 1973, "first fit decreasing".
  Packing(std::span<const int64_t> lengths, int64_t most) : places(lengths.size()) {
    std::vector<size_t> order(lengths.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return lengths[i]; });
    for (const size_t i : order) {
      const auto has_room = [&](int64_t taken) { return taken + lengths[i] <= most; };
      auto row = std::ranges::find_if(used, has_room);
      if (row == used.end()) row = used.insert(row, 0);
      places[i] = {row - used.begin(), *row, lengths[i]};
      *row += lengths[i];
    }
  }
};

class Pack {
 public:
  // The length is known by now, whatever is done with the run.
  void declared(const mortise_event*) {
    most_ = clock_now().sequence_length;
    if (most_ < 1) throw Error(MORTISE_E_CONFIG, "data.pack fills rows up to a length", "[data] sequence_length = 512");
  }

  void load(mortise_call* call, mortise_next* next) const {
    const Batch samples = load_next(call, next);
    if (field(samples.get(), "segments")) throw Error(MORTISE_E_DATA, "these samples are packed already");
    const std::vector<int64_t> lengths = sample_lengths(samples.get());
    const Packing packing(lengths, most_);
    const int64_t longest = packing.used.empty() ? 1 : std::ranges::max(packing.used);
    const int64_t L = std::min((longest + multiple_ - 1) / multiple_ * multiple_, most_);
    Batch rows = Batch::create(samples.get());
    each_field(samples.get(), [&](mortise_str name, Ref from) {
      if (view(name) != "attention_mask") put(rows, name, packed(view(name), from, packing, L));
    });
    if (!field(samples.get(), "positions"))
      put(rows, MORTISE_STR("positions"), numbered(packing, L, 0, [](int64_t, int64_t t) { return t; }));
    put(rows, MORTISE_STR("segments"), numbered(packing, L, kPadding, [](int64_t i, int64_t) { return i; }));
    call->results[0] = value(rows.release());
  }

  // The rows that the step under way computes.
  void batch(mortise_call* call, mortise_next* next) {
    check(api.call->next(api.host, next, call));
    if (call->mode != MORTISE_TRAIN) return;
    int64_t samples = 0;
    check(api.batch->count(api.host, call->args[0].v.b, MORTISE_STR("samples"), &samples));
    samples_ += static_cast<double>(samples);
    rows_ += static_cast<double>(Info(field(call->args[0].v.b, "segments")).size(0));
  }

  void step_end(const mortise_event*) {
    const Tensor share = empty(MORTISE_F64, {});  // on the device, so that nobody waits for it to get there
    ops::fill_(share, rows_ > 0 ? samples_ / rows_ : 0);
    check(api.loop->report(api.host, MORTISE_STR("samples_per_row"), share.get(), {}));
    samples_ = rows_ = 0;
  }

 private:
  static void put(const Batch& batch, mortise_str name, const Tensor& t) {
    check(api.batch->set(api.host, batch.get(), name, t.get()));
  }

  // [B, T, …] → [R, L, …].
  static Tensor packed(std::string_view name, Ref from, const Packing& packing, int64_t L) {
    const Info in(from);
    const int64_t longest =
        packing.places.empty() ? 0 : std::ranges::max(packing.places, {}, &Packing::Place::length).length;
    if (in.rank < 2 || in.size(1) < longest)
      throw Error(MORTISE_E_DATA,
                  "`" + std::string(name) + "` has no element for each position, so samples cannot be packed",
                  "leave [data.pack] out: it is for data with a label a token");
    std::vector<int64_t> sizes(in.shape().begin(), in.shape().end());
    sizes[0] = static_cast<int64_t>(packing.used.size()), sizes[1] = L;
    Tensor out = empty(in.dtype, sizes, true);
    const Info to(out);
    const auto bytes = std::accumulate(sizes.begin() + 2, sizes.end(),
                                       static_cast<int64_t>(mortise_dtype_of(in.dtype)->bytes), std::multiplies());
    if (name == "labels" && in.dtype == MORTISE_I64) std::fill_n(to.as<int64_t>(), to.numel, kNoLabel);
    else std::memset(to.data, 0, static_cast<size_t>(sizes[0] * L * bytes));
    for (size_t i = 0; i < packing.places.size(); ++i) {
      const auto& [row, first, length] = packing.places[i];
      std::memcpy(to.as<char>() + (row * L + first) * bytes,
                  in.as<const char>() + static_cast<int64_t>(i) * in.size(1) * bytes,
                  static_cast<size_t>(length * bytes));
    }
    return out;
  }

  // [R, L]: of position t of sample i what `number` says, elsewhere `padding`.
  template <class Number>
  static Tensor numbered(const Packing& packing, int64_t L, int64_t padding, Number number) {
    Tensor out = empty(MORTISE_I64, {static_cast<int64_t>(packing.used.size()), L}, true);
    const Info to(out);
    std::fill_n(to.as<int64_t>(), to.numel, padding);
    for (size_t i = 0; i < packing.places.size(); ++i) {
      const auto& [row, first, length] = packing.places[i];
      for (int64_t t = 0; t < length; ++t) to.as<int64_t>()[row * L + first + t] = number(static_cast<int64_t>(i), t);
    }
    return out;
  }

  const int64_t multiple_ = config::integer("multiple");
  int64_t most_ = 0;               // positions of a row
  double samples_ = 0, rows_ = 0;  // of the step under way
};
}  // namespace

MORTISE_PLUGIN(Pack, mortise::wrap<&Pack::load>("load"), mortise::wrap<&Pack::batch>("batch"),
               mortise::listen<&Pack::declared>("params.declared"), mortise::listen<&Pack::step_end>("step.end"))
