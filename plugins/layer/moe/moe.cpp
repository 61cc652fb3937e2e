// Mixture of experts: a router scores the experts for each token, the token takes the best top_k of them, and their
// results are added up by weight. Tokens are sorted by expert: one gather, each expert's mlp on its own rows side by
// side, one gather back; no expert sees a token that did not take it. A token has a copy for each choice, so a gradient
// adds each row at a place of its own, and sums over choices are in their order, forward and backward: on a GPU, too,
// bits do not change from run to run.
//
// With a capacity an expert has as many rows as that, whatever it was given: the host knows every shape, and nothing
// waits for the device. Without one the host reads how many tokens each expert got, unless the experts are one mlp of
// groups, which reads on the device where each group ends.
//
// Shapes as suffixes: N tokens, W width, E experts, K top_k, A assignments of a token to an expert (K of each token,
// first choices before second ones), R rows of the experts.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>

#include "exchange.hpp"
#include "kernels/jitter/jitter.hpp"
#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

Tensor softmax(Ref x) {
  static const Op op("aten::_softmax");
  return op(x, -1, false);
}
Tensor logsumexp(Ref x) {
  static const Op op("aten::logsumexp");
  return op(x, ints({-1}), false);
}
std::array<Tensor, 2> topk(Ref x, int64_t k) {
  static const Op op("aten::topk");
  return op.many<2>(x, k, -1, true, true);
}
// The numbers in their order, and where each stood; equal ones stay in the order in which they stand.
std::array<Tensor, 2> sort(Ref x) {
  static const Op op("aten::sort.stable");
  return op.many<2>(x, true, 0, false);
}
// 0 1 2 … n - 1.
Tensor count_to(int64_t n) {
  Tensor numbers = empty(MORTISE_I64, {n});
  ops::arange_out(n, numbers);
  return numbers;
}
// Of each of these numbers, where it begins in a sorted list.
Tensor begins_in(Ref sorted, Ref numbers) {
  static const Op op("aten::searchsorted.Tensor");
  return op(sorted, numbers, false, false, none(), none());
}
Tensor index_add(Ref x, Ref index, Ref rows) {
  static const Op op("aten::index_add");
  return op(x, 0, index, rows, 1);
}
Tensor zeros_of(uint32_t dtype, std::initializer_list<int64_t> sizes) {
  Tensor zeros = empty(dtype, sizes);
  ops::fill_(zeros, 0);
  return zeros;
}
Tensor largest(Ref x) {
  static const Op op("aten::max");
  return op(x);
}
Tensor smaller(Ref a, Ref b) {
  static const Op op("aten::minimum");
  return op(a, b);
}
Tensor is_at_least(Ref a, Ref b) {
  static const Op op("aten::ge.Tensor");
  return op(a, b);
}
Tensor times(Ref whole_numbers, int64_t n) { return ops::op_mul_scalar()(whole_numbers, n); }
// x mod n.
Tensor wrapped(Ref x, int64_t n) {
  static const Op op("aten::remainder.Scalar");
  return op(x, n);
}

// Which tokens are padding, bool [N]; empty: the batch does not say, or is of other tokens. Where there is no
// attention_mask, positions are 0 in padding, as at the first token, and segments are -1 (data.pack).
Tensor padding_of(const mortise_batch* batch, int64_t n) {
  static const Op below("aten::lt.Scalar"), equal("aten::eq.Scalar");
  Tensor padding;
  if (const Tensor mask_BT = field(batch, "attention_mask")) padding = equal(mask_BT, int64_t{0});
  else if (const Tensor segments_BT = field(batch, "segments")) padding = below(segments_BT, int64_t{0});
  else if (const Tensor positions_BT = field(batch, "positions")) {
    padding = equal(positions_BT, int64_t{0});
    ops::fill_(ops::select(padding, 1, 0), 0);
  }
  return padding && Info(padding).numel == n ? ops::reshape(padding, {-1}) : Tensor();
}

// What the experts of all layers share.
struct Settings {
  int64_t experts = config::integer("experts"), top_k = config::integer("top_k");
  double capacity_factor = config::number("capacity_factor"), jitter = config::number("jitter"),
         balance = config::number("balance"), z_loss = config::number("z_loss");
  bool grouped = config::text("products") == "grouped";
  int64_t layers = 0;  // of the model, once it is declared
};

// Whatever belongs to the experts of a layer, an adapter's parameters too; those of other ranks as well.
struct OfExperts {
  std::string begin;  // of their names
  std::vector<mortise_param*> params;
  bool learn() const {
    return std::ranges::any_of(params, [](mortise_param* p) { return trainable(p); });
  }
};

class Moe : public Layers {
 public:
  Moe() {
    if (settings.top_k > settings.experts)
      config::refuse("top_k", "a token cannot take more experts than there are, " + std::to_string(settings.experts),
                     "top_k = " + std::to_string(settings.experts) + ", or more experts");
  }
  // Where ranks share the experts, what belongs to one lies on its rank.
  void place(const mortise_event* e);
  Settings settings;
  std::deque<OfExperts> all;  // of each layer
};

class Experts {
 public:
  Experts(const Builder& build, const LayerSpec& spec, Settings& settings, const OfExperts& params)
      : settings_(settings), params_(params), width_(spec.integer("width")), exchange_(settings.experts),
        micro_batch_size_(build.fact("micro_batch_size").value_or(0)),
        sequence_length_(build.fact("sequence_length").value_or(0)) {
    ++settings.layers;
    router_ = build.layer("linear", spec.path() + ".router",
                          {attr("name", spec.name() + ".router"), attr("in", width_), attr("out", settings.experts),
                           attr("bias", false)});
    // Not there if whoever provides the linear calls it otherwise.
    const std::string weight = spec.name() + ".router.weight";
    if (api.params->find(api.host, str(weight), &router_weight_) != MORTISE_OK) router_weight_ = nullptr;
    const auto mlp = [&](const std::string& number) {
      const std::string name = spec.name() + ".experts." + (settings.grouped ? "*" : number);
      std::vector<mortise_attr> attrs(spec.all().begin(), spec.all().end());
      std::erase_if(attrs, [](const mortise_attr& a) { return view(a.key) == "name"; });
      attrs.push_back(attr("name", std::string_view(name)));
      if (settings.grouped) attrs.push_back(attr("groups", settings.experts));
      const double share = static_cast<double>(settings.top_k) / static_cast<double>(settings.experts);
      return build.layer("mlp", spec.path() + ".experts" + (settings.grouped ? "" : "." + number), attrs, share);
    };
    for (int64_t e = 0; e < (settings.grouped ? 1 : settings.experts); ++e) experts_.push_back(mlp(std::to_string(e)));
  }

  void forward(mortise_call* call) const {
    const Ref x = call->args[0];
    const Tensor x_NW = ops::reshape(x, {-1, width_});
    const int64_t n = Info(x_NW).size(0);
    const Tensor scores_NE = ops::to(std::move(call_layer<1>(router_, jittered(call, x_NW))[0]), MORTISE_F32);
    const Tensor p_NE = softmax(scores_NE);
    const Tensor padding_N = padding_of(call->batch, n);
    auto [weight_NK, expert_NK] = chosen(p_NE);
    // Padding takes an expert that is not there, the last in the order.
    if (padding_N)
      expert_NK = ops::masked_fill(expert_NK, ops::unsqueeze(padding_N, 1), static_cast<double>(settings_.experts));

    // First choices before second ones, so that what is beyond an expert's capacity is a second choice if it can be.
    const Tensor expert_KN = ops::reshape(ops::t(expert_NK), {-1});
    const auto [sorted_A, order_A] = sort(expert_KN);
    const Tensor begin_E1 = begins_in(sorted_A, count_to(settings_.experts + 1));  // the last: where padding's begin
    const int64_t assignments = settings_.top_k * n;
    const Tensor rank_A = index_add(zeros_of(MORTISE_I64, {assignments}), order_A, count_to(assignments));
    const int64_t capacity = capacity_of(call, Info(x));
    const Rows rows = capacity            ? of_capacity(expert_KN, order_A, begin_E1, rank_A, capacity)
                      : settings_.grouped ? of_groups(order_A, begin_E1, rank_A, padding_N)
                                          : of_all(order_A, begin_E1, rank_A);

    const Tensor copies_KNW = ops::expand(ops::unsqueeze(x_NW, 0), {settings_.top_k, n, width_});
    const Tensor x_RW = zeroed(ops::index_select(ops::reshape(copies_KNW, {-1, width_}), rows.from_R), rows.nobodys_R);
    const Tensor y_RW = settings_.grouped ? in_groups(x_RW, rows) : apart(x_RW, rows.sizes, capacity);
    const Tensor y_AW = zeroed(ops::index_select(y_RW, rows.of_A), rows.dropped_A);
    const Tensor y_KNW = ops::reshape(y_AW, {settings_.top_k, n, width_});
    const Tensor weight_KN = cast(ops::t(weight_NK), Info(y_RW).dtype);
    const Tensor y_NW = ops::sum_over(ops::mul(y_KNW, ops::unsqueeze(weight_KN, 2)), 0);

    Tensor y = ops::reshape(y_NW, Info(x).shape());
    if (call->mode == MORTISE_TRAIN) y = with_terms(std::move(y), scores_NE, p_NE, padding_N, begin_E1, rows.limit);
    give(call, 0, std::move(y));
  }

 private:
  // The bits come from the call's own place in the random stream: a replay draws the same.
  Tensor jittered(const mortise_call* call, const Tensor& x_NW) const {
    if (settings_.jitter == 0 || call->mode != MORTISE_TRAIN) return Tensor::share(x_NW.get());
    const Info x(x_NW);
    return ops::mul(x_NW, cast(kernels::jitter(random_site(call), settings_.jitter, x.shape()), x.dtype));
  }

  // The best top_k experts of each token and what they count: of one alone its probability, through which the router
  // learns; of several their share of their sum.
  std::array<Tensor, 2> chosen(const Tensor& p_NE) const {
    auto [p_NK, expert_NK] = topk(p_NE, settings_.top_k);
    if (settings_.top_k == 1) return {std::move(p_NK), std::move(expert_NK)};
    const Tensor sum_N1 = ops::unsqueeze(ops::sum_over(p_NK, 1), 1);
    return {ops::div(p_NK, sum_N1), std::move(expert_NK)};
  }

  // Which row of the experts is of which assignment. An expert's rows stand side by side.
  struct Rows {
    std::vector<int64_t> sizes;   // where experts are one by one: how many each has, and behind them padding
    Tensor end_E;                 // where they are groups: where each one's end
    Tensor from_R, of_A;          // whose each row is, and which row each has
    Tensor nobodys_R, dropped_A;  // rows that are nobody's, assignments that have none; empty: there are none
    Tensor limit;                 // how many an expert takes at most, 0-dim; empty: all
  };

  // How many positions a micro-batch may have on any rank, whatever this one has.
  int64_t most_of_any_rank(const Info& x) const {
    const int64_t rows = x.size(0), length = x.rank > 2 ? x.size(1) : 1;
    if (rows > micro_batch_size_ || (sequence_length_ > 0 && length > sequence_length_))
      throw Error(MORTISE_E_PLUGIN,
                  "ranks that share experts with a capacity make room for data.micro_batch_size × data.sequence_length "
                  "positions; here are " +
                      std::to_string(rows) + " × " + std::to_string(length),
                  "data.sequence_length of as many or more, capacity_factor = 0, or expert_parallel = 1");
    return micro_batch_size_ * (sequence_length_ > 0 ? sequence_length_ : length);
  }

  // How many rows an expert has, as far as the host knows: padding counts. Of shared ones as many on every rank, since
  // ranks do not tell one another. 0: as many as it was given.
  int64_t capacity_of(const mortise_call* call, const Info& x) const {
    if (settings_.capacity_factor == 0 || call->mode != MORTISE_TRAIN) return 0;
    const int64_t n = exchange_.is_shared() ? most_of_any_rank(x) : x.numel / width_;
    const double even = static_cast<double>(settings_.top_k * n) / static_cast<double>(settings_.experts);
    // A token takes an expert once.
    return std::max<int64_t>(std::llround(std::min(std::ceil(settings_.capacity_factor * even), 1.0 * n)), 1);
  }

  // The first of each expert, `capacity` of them without padding. What is nobody's has an index all the same, one of
  // all in turn: thousands that add their zeros to one row would wait for one another.
  Rows of_capacity(const Tensor& expert_A, const Tensor& order_A, const Tensor& begin_E1, const Tensor& rank_A,
                   int64_t capacity) const {
    static const Op ceil("aten::ceil"), clamp("aten::clamp"), equal("aten::eq.Scalar");
    const int64_t experts = settings_.experts, all = experts * capacity;
    Rows rows;
    rows.sizes.assign(static_cast<size_t>(experts), capacity);
    if (settings_.grouped)
      rows.end_E = ops::to(times(ops::narrow(count_to(experts + 1), 0, 1, experts), capacity), MORTISE_I32);
    Tensor parts = empty(MORTISE_F64, {});  // a tensor: divided by a number, a GPU multiplies by its inverse
    ops::fill_(parts, static_cast<double>(experts));
    const Tensor even = ops::div(ops::to(ops::select(begin_E1, 0, experts), MORTISE_F64), parts);
    rows.limit = ops::to(clamp(ceil(ops::mul(even, settings_.capacity_factor)), 1, capacity), MORTISE_I64);

    const Tensor begin_E = ops::narrow(begin_E1, 0, 0, experts), place = count_to(capacity);
    const Tensor from_EC = wrapped(ops::add(ops::unsqueeze(begin_E, 1), place), Info(order_A).numel);
    const Tensor taken_E = smaller(ops::sub(ops::narrow(begin_E1, 0, 1, experts), begin_E), rows.limit);
    rows.from_R = ops::index_select(order_A, ops::reshape(from_EC, {-1}));
    rows.nobodys_R = ops::reshape(is_at_least(place, ops::unsqueeze(taken_E, 1)), {-1});

    const Tensor place_A = ops::sub(rank_A, ops::index_select(begin_E1, expert_A));
    rows.dropped_A = ops::logical_or(is_at_least(place_A, rows.limit), equal(expert_A, experts));
    rows.of_A = ops::where(rows.dropped_A, wrapped(rank_A, all), ops::add(times(expert_A, capacity), place_A));
    return rows;
  }

  // All, and behind them padding's, which are nobody's.
  Rows of_groups(const Tensor& order_A, const Tensor& begin_E1, const Tensor& rank_A, const Tensor& padding_N) const {
    Rows rows{.from_R = order_A, .of_A = rank_A};
    rows.end_E = ops::to(ops::narrow(begin_E1, 0, 1, settings_.experts), MORTISE_I32);
    const Tensor all = ops::select(begin_E1, 0, settings_.experts);
    if (padding_N) rows.nobodys_R = is_at_least(count_to(Info(order_A).numel), all);
    return rows;
  }

  static Rows of_all(const Tensor& order_A, const Tensor& begin_E1, const Tensor& rank_A) {
    const Tensor host = empty(MORTISE_I64, Info(begin_E1).shape(), true);
    ops::copy_(host, begin_E1);  // waits
    const Info begin(host);
    Rows rows{.from_R = order_A, .of_A = rank_A};
    const std::span<const int64_t> begins(begin.as<int64_t>(), static_cast<size_t>(begin.numel));
    for (size_t e = 1; e < begins.size(); ++e) rows.sizes.push_back(begins[e] - begins[e - 1]);
    rows.sizes.push_back(Info(order_A).numel - begins.back());
    return rows;
  }

  // On the rank that has the expert.
  Tensor apart(const Tensor& x_RW, std::vector<int64_t> sizes, int64_t capacity) const {
    if (!exchange_.is_shared()) return one_by_one(x_RW, sizes);
    const auto compute = [this](const Tensor& rows, const std::vector<int64_t>& of_each) {
      return one_by_one(rows, of_each);
    };
    if (capacity > 0) return exchange_.computed_evenly(x_RW, capacity, params_.learn(), compute);
    const int64_t padding = std::ssize(sizes) > settings_.experts ? sizes.back() : 0;
    sizes.resize(static_cast<size_t>(settings_.experts));
    const Tensor y =
        exchange_.computed(ops::narrow(x_RW, 0, 0, Info(x_RW).size(0) - padding), sizes, params_.learn(), compute);
    const Tensor zeros = zeros_of(Info(y).dtype, {padding, width_});
    return padding == 0 ? y : ops::cat({y.get(), zeros.get()}, 0);
  }

  // Each expert of this rank on its rows; also on none, so that each parameter has its gradient. What is behind them,
  // padding, has zeros.
  Tensor one_by_one(const Tensor& x_RW, const std::vector<int64_t>& sizes) const {
    std::vector<Tensor> parts = ops::split(x_RW, sizes);
    const auto first = static_cast<size_t>(exchange_.first()), here = static_cast<size_t>(exchange_.each());
    for (size_t e = 0; e < here; ++e) parts[e] = std::move(call_layer<1>(experts_[first + e], parts[e])[0]);
    if (parts.size() > here) parts.back() = zeros_of(Info(parts[0]).dtype, {sizes.back(), width_});
    std::vector<mortise_tensor*> list;
    for (const Tensor& part : parts) list.push_back(part.get());
    return ops::cat(list, 0);
  }

  // What is computed for nobody, and the gradient that comes back from it, may be any numbers.
  Tensor in_groups(const Tensor& x_RW, const Rows& rows) const {
    return zeroed(call_layer<1>(experts_[0], x_RW, rows.end_E)[0], rows.nobodys_R);
  }

  // Means are over tokens, not over padding.
  Tensor with_terms(Tensor y, const Tensor& scores_NE, const Tensor& p_NE, const Tensor& padding_N,
                    const Tensor& begin_E1, const Tensor& limit) const {
    const double experts = static_cast<double>(settings_.experts), layers = static_cast<double>(settings_.layers),
                 top_k = static_cast<double>(settings_.top_k);
    const Tensor begin_E = ops::narrow(begin_E1, 0, 0, settings_.experts),
                 count_E = ops::to(ops::sub(ops::narrow(begin_E1, 0, 1, settings_.experts), begin_E), MORTISE_F32);
    const Tensor all = ops::clamp_min(ops::to(ops::select(begin_E1, 0, settings_.experts), MORTISE_F32), 1),
                 share_E = ops::div(count_E, all);
    const bool learns = !router_weight_ || trainable(router_weight_);  // a frozen router evens nothing out
    if (learns && settings_.balance > 0) {
      const Tensor mean_E = ops::mul(ops::div(ops::sum_rows(zeroed(p_NE, padding_N)), all), top_k);
      const Tensor balance = ops::mul(ops::sum(ops::mul(share_E, mean_E)), experts);
      y = attach_term("moe_balance", y, balance, "one", settings_.balance);
    }
    if (learns && settings_.z_loss > 0) {
      const Tensor z_N = zeroed(logsumexp(scores_NE), padding_N);
      const Tensor mean = ops::mul(ops::div(ops::sum(ops::mul(z_N, z_N)), all), top_k);
      y = attach_term("moe_z", y, mean, "one", settings_.z_loss);
    }
    metric("moe_load", ops::mul(largest(share_E), experts / layers));
    if (limit) {
      const Tensor beyond_E = ops::clamp_min(ops::sub(count_E, limit), 0);
      metric("moe_dropped", ops::mul(ops::div(ops::sum(beyond_E), all), 1 / layers));
    }
    return y;
  }
  // 0 in these rows; an empty tensor means none. Not a product: 0 · inf is not 0.
  static Tensor zeroed(const Tensor& x, const Tensor& rows) {
    if (!rows) return x;
    return ops::masked_fill(x, Info(x).rank == 2 ? ops::unsqueeze(rows, 1) : rows, 0);
  }
  // The mean over the layers, which give it one after another.
  static void metric(std::string_view name, const Tensor& number) {
    check(api.loop->term(api.host, str(name), number.get(), MORTISE_STR("one"), 0));
  }

  const Settings& settings_;
  const OfExperts& params_;
  int64_t width_;
  mortise_layer* router_;
  mortise_param* router_weight_ = nullptr;
  moe::Exchange exchange_;
  int64_t micro_batch_size_, sequence_length_;  // 0: the data has none
  std::vector<mortise_layer*> experts_;
};

void Moe::place(const mortise_event* e) {
  const moe::Exchange exchange(settings.experts);
  if (!exchange.is_shared()) return;
  const std::string_view name = view(info_of(e->param).name);
  for (OfExperts& of : all) {
    int64_t expert = 0;
    if (!name.starts_with(of.begin)) continue;
    of.params.push_back(e->param);
    std::from_chars(name.data() + of.begin.size(), name.data() + name.size(), expert);
    check(api.params->set(api.host, e->param, MORTISE_STR("place.experts"), value(exchange.owner(expert))));
  }
}

mortise_status declare(void* self, mortise_builder* b, const mortise_layer_spec* s, void** data) noexcept {
  return guard([&] {
    Moe& moe = *static_cast<Moe*>(self);
    const OfExperts& params = moe.all.emplace_back(OfExperts{LayerSpec(s).name() + ".experts.", {}});
    *data = moe.keep(std::make_unique<Experts>(Builder(b), LayerSpec(s), moe.settings, params));
  });
}
// Why the layer cannot stand there, and what to write instead; nothing: it can.
struct Refused {
  const char *why = nullptr, *fix = nullptr;
};
Refused refusal(const Settings& settings, const mortise_place* place) {
  const bool on_gpu = place->device == MORTISE_CUDA, in_bf16 = place->compute_dtype == MORTISE_BF16;
  const Attrs attrs(place);
  if (settings.jitter > 0 && !kernels::jitter_runs_on(place->device))
    return {"its jitter was built for the CPU only", "jitter = 0"};
  if (settings.grouped && (attrs.integer("width") % 8 || attrs.integer("inner") % 8))
    return {"grouped products need sizes that are multiples of 8", "products = \"each\""};
  if (settings.grouped && moe::Exchange(settings.experts).is_shared())
    return {"grouped products are of experts that are on one rank", "products = \"each\", or expert_parallel = 1"};
  if (settings.grouped && on_gpu && settings.experts > 1023)
    return {"grouped products on a GPU are of 1,023 experts at most", "experts = 1023, or products = \"each\""};
  if (place->is_recorded && settings.grouped && !(on_gpu && in_bf16))
    return {"the step is recorded, and grouped products wait for the device but in bf16 on a GPU",
            "precision.bf16, or products = \"each\" with capacity_factor = 1.25 or so"};
  if (place->is_recorded && !settings.grouped && settings.capacity_factor == 0)
    return {"the step is recorded, and the host waits in it for the number of tokens of each expert",
            "capacity_factor = 1.25 or so, products = \"grouped\" in bf16, or leave out what records the step"};
  return {};
}
mortise_status supports(void* self, const mortise_place* place, int* yes, mortise_str* why, mortise_str* fix) noexcept {
  return guard([&] {
    const auto refused = refusal(static_cast<const Moe*>(self)->settings, place);
    *yes = !refused.why;
    if (!*yes) *why = str(refused.why), *fix = str(refused.fix);
  });
}
mortise_status forward(void*, mortise_call* call, mortise_saved*, uint32_t*) noexcept {
  return guard([&] { static_cast<const Experts*>(call->layer_data)->forward(call); });
}
const mortise_operator kObject = {sizeof kObject, 0, declare, supports, forward, nullptr};
}  // namespace

MORTISE_PLUGIN(Moe, mortise::provide("mlp", &kObject), mortise::listen<&Moe::place>("params.declared"))
