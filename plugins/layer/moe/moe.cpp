// Mixture of experts: a router scores the experts for each token, the token takes the best top_k of them, and their
// results are added up by weight. Tokens are sorted by expert: one gather, each expert's mlp on its own rows side by
// side, one scatter; no expert sees a token that did not take it. A token has a copy for each choice, so gather and
// scatter put each row at a place of its own, and sums over choices are in their order, forward and backward: on a GPU,
// too, bits do not change from run to run.
//
// Shapes as suffixes: N tokens, W width, E experts, K top_k, M assignments of a token to an expert that are computed.
#include <algorithm>
#include <cmath>
#include <numeric>

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
// In the order of the numbers; equal ones stay in the order in which they stand.
Tensor order_of(Ref x) {
  static const Op op("aten::sort.stable");
  return std::move(op.many<2>(x, true, 0, false)[1]);
}
Tensor bincount(Ref x, int64_t n) {
  static const Op op("aten::bincount");
  return op(x, none(), n);
}
Tensor index_select(Ref x, Ref index) {
  static const Op op("aten::index_select");
  return op(x, 0, index);
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
Tensor masked_fill(Ref x, Ref mask, double number) {
  static const Op op("aten::masked_fill.Scalar");
  return op(x, mask, number);
}
Tensor largest(Ref x) {
  static const Op op("aten::max");
  return op(x);
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
  int64_t layers = 0;  // of the model, once it is declared
};

class Moe : public Layers {
 public:
  Moe() {
    if (settings.top_k > settings.experts)
      config::refuse("top_k", "a token cannot take more experts than there are, " + std::to_string(settings.experts),
                     "top_k = " + std::to_string(settings.experts) + ", or more experts");
  }
  Settings settings;
};

class Experts {
 public:
  Experts(const Builder& build, const LayerSpec& spec, Settings& settings)
      : settings_(settings), width_(spec.integer("width")) {
    ++settings.layers;
    router_ = build.layer("linear", spec.path() + ".router",
                          {attr("name", spec.name() + ".router"), attr("in", width_), attr("out", settings.experts),
                           attr("bias", false)});
    // Not there if whoever provides the linear calls it otherwise.
    const std::string weight = spec.name() + ".router.weight";
    if (api.params->find(api.host, str(weight), &router_weight_) != MORTISE_OK) router_weight_ = nullptr;
    for (int64_t e = 0; e < settings.experts; ++e) {
      const std::string part = ".experts." + std::to_string(e), name = spec.name() + part;
      std::vector<mortise_attr> attrs(spec.all().begin(), spec.all().end());
      std::erase_if(attrs, [](const mortise_attr& a) { return view(a.key) == "name"; });
      attrs.push_back(attr("name", std::string_view(name)));
      const double share = static_cast<double>(settings.top_k) / static_cast<double>(settings.experts);
      experts_.push_back(build.layer("mlp", spec.path() + part, attrs, share));
    }
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
      expert_NK = masked_fill(expert_NK, ops::unsqueeze(padding_N, 1), static_cast<double>(settings_.experts));

    // First choices before second ones, so that what is beyond an expert's capacity is a second choice if it can be.
    const Tensor expert_KN = ops::reshape(ops::t(expert_NK), {-1});
    const Tensor counts_E = ops::narrow(bincount(expert_KN, settings_.experts + 1), 0, 0, settings_.experts);
    const std::vector<int64_t> counts = on_host(counts_E);
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t capacity = capacity_of(call, all);
    const Tensor order = ops::narrow(order_of(expert_KN), 0, 0, all);
    const Tensor taken_M = within(order, counts, capacity);

    const Tensor copies_KNW = ops::expand(ops::unsqueeze(x_NW, 0), {settings_.top_k, n, width_});
    const Tensor y_MW = computed(index_select(ops::reshape(copies_KNW, {-1, width_}), taken_M), counts, capacity);
    const Tensor weight_M = index_select(ops::reshape(ops::t(weight_NK), {-1}), taken_M);
    const Tensor part_MW = ops::mul(y_MW, ops::unsqueeze(cast(weight_M, Info(y_MW).dtype), 1));
    const Tensor zeros = zeros_of(Info(y_MW).dtype, {settings_.top_k * n, width_});
    const Tensor part_KNW = ops::reshape(index_add(zeros, taken_M, part_MW), {settings_.top_k, n, width_});
    const Tensor y_NW = ops::sum_over(part_KNW, 0);

    Tensor y = ops::reshape(y_NW, Info(x).shape());
    if (call->mode == MORTISE_TRAIN) y = with_terms(std::move(y), scores_NE, p_NE, padding_N, counts_E, all, capacity);
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

  // How many of all choices an expert takes at most.
  int64_t capacity_of(const mortise_call* call, int64_t all) const {
    if (settings_.capacity_factor == 0 || call->mode != MORTISE_TRAIN) return all;
    const double even = static_cast<double>(all) / static_cast<double>(settings_.experts);
    return std::clamp<int64_t>(std::llround(std::ceil(settings_.capacity_factor * even)), 1, std::max<int64_t>(all, 1));
  }

  static std::vector<int64_t> on_host(const Tensor& counts_E) {
    const Tensor host = empty(MORTISE_I64, Info(counts_E).shape(), true);
    ops::copy_(host, counts_E);
    const Info info(host);
    return {info.as<int64_t>(), info.as<int64_t>() + info.numel};
  }

  // Of the assignments, sorted by expert, the first `capacity` of each.
  static Tensor within(const Tensor& order, const std::vector<int64_t>& counts, int64_t capacity) {
    if (std::ranges::max(counts) <= capacity) return Tensor::share(order.get());
    std::vector<Tensor> kept;
    std::vector<mortise_tensor*> list;
    int64_t begin = 0;
    for (const int64_t n : counts) {
      list.push_back(kept.emplace_back(ops::narrow(order, 0, begin, std::min(n, capacity))).get());
      begin += n;
    }
    return ops::cat(list, 0);
  }

  // Each expert on its rows, which stand side by side; also on none, so that each parameter has its gradient.
  Tensor computed(const Tensor& rows_MW, const std::vector<int64_t>& counts, int64_t capacity) const {
    std::vector<Tensor> parts;
    std::vector<mortise_tensor*> list;
    int64_t begin = 0;
    for (size_t e = 0; e < experts_.size(); ++e) {
      const int64_t n = std::min(counts[e], capacity);
      parts.push_back(std::move(call_layer<1>(experts_[e], ops::narrow(rows_MW, 0, begin, n))[0]));
      list.push_back(parts.back().get());
      begin += n;
    }
    return ops::cat(list, 0);
  }

  // Means are over tokens, not over padding.
  Tensor with_terms(Tensor y, const Tensor& scores_NE, const Tensor& p_NE, const Tensor& padding_N,
                    const Tensor& counts_E, int64_t choices, int64_t capacity) const {
    const double all = static_cast<double>(std::max<int64_t>(choices, 1)),
                 tokens = all / static_cast<double>(settings_.top_k), experts = static_cast<double>(settings_.experts),
                 layers = static_cast<double>(settings_.layers);
    const Tensor share_E = ops::mul(ops::to(counts_E, MORTISE_F32), 1 / all);
    const bool learns = !router_weight_ || trainable(router_weight_);  // a frozen router evens nothing out
    if (learns && settings_.balance > 0) {
      const Tensor mean_E = ops::mul(ops::sum_rows(tokens_of(p_NE, padding_N)), 1 / tokens);
      const Tensor balance = ops::mul(ops::sum(ops::mul(share_E, mean_E)), experts);
      y = attach_term("moe_balance", y, balance, "one", settings_.balance);
    }
    if (learns && settings_.z_loss > 0) {
      const Tensor z_N = tokens_of(logsumexp(scores_NE), padding_N);
      y = attach_term("moe_z", y, ops::mul(ops::sum(ops::mul(z_N, z_N)), 1 / tokens), "one", settings_.z_loss);
    }
    metric("moe_load", ops::mul(largest(share_E), experts / layers));
    if (settings_.capacity_factor > 0) {
      const Tensor beyond_E = ops::clamp_min(ops::add(share_E, -static_cast<double>(capacity) / all), 0);
      metric("moe_dropped", ops::mul(ops::sum(beyond_E), 1 / layers));
    }
    return y;
  }
  // 0 in padding.
  static Tensor tokens_of(const Tensor& x, const Tensor& padding_N) {
    if (!padding_N) return Tensor::share(x.get());
    return masked_fill(x, Info(x).rank == 2 ? ops::unsqueeze(padding_N, 1) : Tensor::share(padding_N.get()), 0);
  }
  // The mean over the layers, which give it one after another.
  static void metric(std::string_view name, const Tensor& number) {
    check(api.loop->term(api.host, str(name), number.get(), MORTISE_STR("one"), 0));
  }

  const Settings& settings_;
  int64_t width_;
  mortise_layer* router_;
  mortise_param* router_weight_ = nullptr;
  std::vector<mortise_layer*> experts_;
};

mortise_status declare(void* self, mortise_builder* b, const mortise_layer_spec* s, void** data) noexcept {
  return guard([&] {
    Moe& moe = *static_cast<Moe*>(self);
    *data = moe.keep(std::make_unique<Experts>(Builder(b), LayerSpec(s), moe.settings));
  });
}
mortise_status supports(void* self, const mortise_place* place, int* yes, mortise_str* why, mortise_str* fix) noexcept {
  *yes = kernels::jitter_runs_on(place->device) || static_cast<Moe*>(self)->settings.jitter == 0;
  *why = MORTISE_STR("its jitter was built for the CPU only");
  *fix = MORTISE_STR("jitter = 0");
  return MORTISE_OK;
}
mortise_status forward(void*, mortise_call* call, mortise_saved*, uint32_t*) noexcept {
  return guard([&] { static_cast<const Experts*>(call->layer_data)->forward(call); });
}
const mortise_operator kObject = {sizeof kObject, 0, declare, supports, forward, nullptr};
}  // namespace

MORTISE_PLUGIN(Moe, mortise::provide("mlp", &kObject))
