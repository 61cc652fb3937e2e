// Muon, in the host's operators: on whatever device the run is, and without waiting for it. Operations and roundings
// are those of torch.optim.Muon (torch/optim/_muon.py of 2.11).
#include <cmath>

#include "mortise/cpp/optimizer.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

class Muon {
 public:
  Muon()
      : momentum_(config::number("momentum")), eps_(config::number("eps")), nesterov_(config::flag("nesterov")),
        matches_adamw_(config::text("adjust_lr_fn") == "match_rms_adamw"), steps_(config::integer("ns_steps")),
        dtype_(config::text("ns_dtype") == "fp32" ? MORTISE_F32 : MORTISE_BF16) {
    if (momentum_ >= 1) config::refuse("momentum", "a decay of 1 never takes a gradient in", "momentum = 0.95");
    const auto abc = config::numbers("ns_coefficients");
    if (abc.size() != 3)
      config::refuse("ns_coefficients", "an iteration has three of them", "ns_coefficients = [3.4445, -4.775, 2.0315]");
    a_ = abc[0], b_ = abc[1], c_ = abc[2];
  }

  void states(const mortise_param_info* info, mortise_state_spec* specs, uint32_t* n) const {
    const std::string role(view(info->role));
    const std::string name(view(info->name)), rest = ", and a second optimizer for the rest: [optimizer.adamw]";
    if (role != "matrix" || info->rank != 2)
      config::refuse("where",
                     "Muon updates matrices; " + name + " has the role " + role + " and " + std::to_string(info->rank) +
                         " dimensions",
                     (role == "matrix" ? "where = { match = \"role:matrix\", except = \"" + name + "\" }"
                                       : "where = \"role:matrix\"") +
                         rest);
    specs[0] = {MORTISE_STR("momentum_buffer"), MORTISE_STR("same"), MORTISE_F32, 0, 0.0};
    *n = 1;
  }

  void step(const mortise_slice* slices, uint32_t n, const mortise_ledger* ledger) const {
    const Tensor apply = ops::to(ledger->verdict, MORTISE_BOOL);
    for (uint32_t i = 0; i < n; ++i) update(slice_at(slices, i), *ledger, apply);
  }

 private:
  void update(const mortise_slice& s, const mortise_ledger& ledger, Ref apply) const {
    const Tensor master = as_matrix(s.master, s), before = as_matrix(s.states[0], s);
    const Tensor g = ops::mul(ops::to(as_matrix(s.grad, s), MORTISE_F32), ledger.multiplier);
    const Tensor mean = ops::lerp(before, g, 1 - momentum_);
    const Tensor lr = ops::select(ledger.lr, 0, s.group), decay = ops::select(ledger.weight_decay, 0, s.group);
    const Tensor change = change_of(nesterov_ ? ops::lerp(g, mean, momentum_) : Tensor::share(mean.get()), *s.info, lr);
    const Tensor kept = ops::add(ops::mul(ops::mul(lr, decay), -1), 1);  // 1 - lr · decay
    const Tensor p = ops::to(master, Info(master).dtype == MORTISE_F64 ? MORTISE_F64 : MORTISE_F32);
    // Nothing of a step that is skipped: what it computed may be NaN.
    store(s.master, ops::where(apply, ops::sub(ops::mul(p, kept), change), p));
    store(s.states[0], ops::where(apply, mean, before));
  }
  static Tensor as_matrix(Ref t, const mortise_slice& s) { return ops::view(t, {s.info->sizes[0], s.info->sizes[1]}); }
  static void store(Ref to, Ref matrix) { ops::copy_(to, ops::view(matrix, Info(to).shape())); }

  // What the weights are to lose: of each part of a packed matrix by itself.
  Tensor change_of(Ref mean, const mortise_param_info& info, Ref lr) const {
    const bool in_out = info.dims && view(info.dims[0]) == "in" && view(info.dims[1]) == "out";
    const auto parts = parts_of(info);
    if (parts.empty()) return change_of_part(mean, in_out, lr);
    std::vector<Tensor> changes;
    std::vector<mortise_tensor*> handles;
    int64_t first = 0;
    for (const int64_t size : parts) {
      const Tensor part = ops::narrow(mean, static_cast<int>(info.part_dim), first, size);
      handles.push_back(changes.emplace_back(change_of_part(part, in_out, lr)).get());
      first += size;
    }
    return ops::cat(handles, static_cast<int>(info.part_dim));
  }

  // As torch has matrices, a row an output; one that is stored the other way round (in_out) is seen so too.
  Tensor change_of_part(Ref part, bool in_out, Ref lr) const {
    const Tensor mean = in_out ? ops::t(part) : Tensor::share(part);
    const Info shape(mean);
    const auto out = static_cast<double>(shape.size(0)), in = static_cast<double>(shape.size(1));
    const double factor = matches_adamw_ ? 0.2 * std::sqrt(std::max(out, in)) : std::sqrt(std::max(1.0, out / in));
    const Tensor change = ops::mul(ops::to(orthogonal(mean, out > in), MORTISE_F32), ops::mul(lr, factor));
    return in_out ? ops::t(change) : Tensor::share(change.get());
  }

  // The same singular vectors, singular values about 1 (0.7 to 1.2).
  Tensor orthogonal(Ref mean, bool tall) const {
    const Tensor narrow = ops::to(mean, dtype_);
    const Tensor wide = tall ? ops::t(narrow) : Tensor::share(narrow.get());
    Tensor x = ops::div(wide, ops::clamp_min(ops::norm(wide), eps_));
    const Info shape(x);
    x = dtype_ == MORTISE_F32 && shape.size(1) >= 2 * shape.size(0) ? by_gram_matrix(std::move(x))
                                                                    : iterated(std::move(x));
    return tall ? ops::t(x) : std::move(x);
  }
  Tensor iterated(Tensor x) const {
    for (int64_t i = 0; i < steps_; ++i) x = ops::addmm(x, polynomial(ops::mm(x, ops::t(x))), x, a_, 1);
    return x;
  }
  // b G + c G²
  Tensor polynomial(Ref gram) const { return ops::addmm(gram, gram, gram, b_, c_); }

  // The same by way of the Gram matrix G = X·Xᵀ, which is small where X is wide: with P = a + b G + c G², X becomes
  // P·X and G becomes P·G·P. What rounding adds to the least eigenvalues of G grows, so every third time G is made of X
  // again. Only in fp32: in bf16 it is lost.
  Tensor by_gram_matrix(Tensor x) const {
    constexpr int64_t kAgain = 3;
    static const Op eye("aten::eye.out");
    const int64_t rows = Info(x).size(0);
    const Tensor identity = empty(MORTISE_F32, {rows, rows});
    eye(rows, identity);
    Tensor gram, product;
    for (int64_t i = 0; i < steps_; ++i) {
      if (i % kAgain == 0) {
        if (i > 0) x = ops::mm(product, x);
        gram = ops::mm(x, ops::t(x));
      }
      const Tensor p = ops::op_add()(polynomial(gram), identity, a_);
      product = i % kAgain == 0 ? Tensor::share(p.get()) : ops::mm(p, product);
      if ((i + 1) % kAgain != 0 && i + 1 < steps_) gram = ops::mm(p, ops::mm(gram, p));
    }
    return ops::mm(product, x);
  }

  double momentum_, eps_, a_ = 0, b_ = 0, c_ = 0;
  bool nesterov_, matches_adamw_;
  int64_t steps_;
  uint32_t dtype_;
};

constexpr mortise_optimizer kMuon = {sizeof(mortise_optimizer), 0, thunk<&Muon::states>, thunk<&Muon::step>};
}  // namespace

MORTISE_PLUGIN(Muon, mortise::provide("optimizer", &kMuon))
