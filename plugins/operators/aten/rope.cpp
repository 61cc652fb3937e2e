// rope: turns each pair of a head's numbers by the position times a frequency of its own; backward turns it the other
// way. Pairs stand D/2 apart ("half", as Llama's files have them) or side by side ("pairs").
//
// Shapes  B batch, T positions, H heads, D width of a head. Angles are fp32, sines and cosines in the dtype of x.
// Source  Su et al. 2021, arXiv:2104.09864; frequencies as transformers' Llama computes them.
#include <numbers>

#include "common.hpp"

namespace mortise::aten {
namespace {

class Rope {
 public:
  Rope(const Builder&, const LayerSpec& spec)
      : dim_(spec.integer("head_dim")), theta_(spec.number("theta", 1e4)), factor_(spec.number("factor", 1)),
        low_(spec.number("low", 0)), high_(spec.number("high", 0)), context_(spec.integer("context", 0)),
        pairs_(spec.choice("layout", {"half", "pairs"}) == 1) {
    if (dim_ < 2 || dim_ % 2 != 0)
      throw Error(MORTISE_E_ARGUMENT,
                  spec.path() + ": a head of width " + std::to_string(dim_) + " has no pairs to turn");
    if (!(theta_ > 0)) throw Error(MORTISE_E_ARGUMENT, spec.path() + ": theta is not above 0");
    if (!(factor_ >= 1) || (context_ > 0 && !(high_ > low_)))
      throw Error(MORTISE_E_ARGUMENT, spec.path() + ": factor is below 1, or high is not above low");
  }

  void forward(mortise_call* call, Saves& saves) const {
    const Info x(call->args[0]);
    if (x.rank != 3 || x.size(-1) % dim_ != 0)
      throw Error(MORTISE_E_SHAPE, "rope takes [batch, positions, heads * " + std::to_string(dim_) + "]");
    const bool counted = call->n_args < 2 || call->args[1].tag != MORTISE_TENSOR;
    counted ? saves.own(Tensor()) : saves.input(1);
    give(call, 0, turned(call->args[0], counted ? Ref(nullptr) : Ref(call->args[1]), 1));
  }
  void backward(mortise_call*, Backward& b) const {
    if (b.wants(0) && b.grad(0)) b.give(0, turned(b.grad(0), b.saved(0), -1));
  }

 private:
  Tensor turned(Ref x, Ref positions, double sign) const {
    const Info like(x);
    const int64_t B = like.size(0), T = like.size(1), H = like.size(2) / dim_, half = dim_ / 2;
    const Tensor angle = angles(positions, T);
    const Tensor c = cast(ops::cos(angle), like.dtype), s = cast(ops::mul(ops::sin(angle), sign), like.dtype);
    const Tensor x_BTHD = pairs_ ? ops::reshape(x, {B, T, H, half, 2}) : ops::reshape(x, {B, T, H, 2, half});
    const int of_pair = pairs_ ? 4 : 3;
    const Tensor a = ops::select(x_BTHD, of_pair, 0), b = ops::select(x_BTHD, of_pair, 1);
    const Tensor first = ops::unsqueeze(ops::sub(ops::mul(a, c), ops::mul(b, s)), of_pair),
                 second = ops::unsqueeze(ops::add(ops::mul(b, c), ops::mul(a, s)), of_pair);
    return ops::reshape(ops::cat({first.get(), second.get()}, of_pair), like.shape());
  }

  // [1 or B, T, 1, D/2]. Without positions: 0 1 2 …
  Tensor angles(Ref positions, int64_t T) const {
    const int64_t half = dim_ / 2;
    const Tensor pair = counting(half);
    const Tensor exponent = ops::mul(cast(pair, MORTISE_F32), 2 / static_cast<double>(dim_));
    const Tensor frequency = scaled(ops::reciprocal(ops::pow(theta_, exponent)));
    const Tensor place = cast(positions ? Tensor::share(positions) : counting(T), MORTISE_F32);
    const int64_t samples = Info(place).rank == 1 ? 1 : Info(place).size(0);
    return ops::mul(ops::reshape(place, {samples, T, 1, 1}), ops::reshape(frequency, {1, 1, 1, half}));
  }

  // For a context `factor` times as long. With `context`, as Llama 3.1: what turns around in it less than `low` times
  // is slowed down, more than `high` times stays, and between the two it keeps a share that grows with the frequency.
  Tensor scaled(Tensor frequency) const {
    if (factor_ == 1) return frequency;
    Tensor slow = ops::mul(frequency, 1 / factor_);
    if (context_ == 0) return slow;
    Tensor share = ops::mul(frequency, static_cast<double>(context_) / (2 * std::numbers::pi));
    ops::add_(share, -low_);
    ops::mul_(share, 1 / (high_ - low_));
    share = ops::clamp_max(ops::clamp_min(share, 0), 1);
    return ops::add(slow, ops::mul(ops::sub(frequency, slow), share));
  }

  static Tensor counting(int64_t n) {
    Tensor numbers = empty(MORTISE_I64, {n});
    ops::arange_out(n, numbers);
    return numbers;
  }

  int64_t dim_;
  double theta_, factor_, low_, high_;
  int64_t context_;
  bool pairs_;
};

}  // namespace

const mortise_operator* rope() { return operator_of<Rope>(); }

}  // namespace mortise::aten
