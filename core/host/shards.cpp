// Parameters of which this rank has a part.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/set.h>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/parameters.hpp"

namespace mortise {
namespace {

// Another tensor over the same memory. It counts its own versions: what ranks bring is no change of a value.
at::Tensor over(const at::Tensor& t, at::IntArrayRef sizes) {
  return at::empty({0}, t.options()).set_(t.storage(), 0, sizes);
}

at::Tensor part_of(const at::Tensor& flat, const Piece& piece) { return flat.narrow(0, piece.offset, piece.length); }

// What one rank has whole keeps its shape.
at::Tensor shaped(const at::Tensor& flat, const mortise_param& p) {
  return p.shards.own.length == p.info.numel ? flat.view(p.sizes) : flat;
}

}  // namespace

at::Tensor Parameters::with_room(const mortise_param& p, uint32_t dtype) const {
  const auto options = at::TensorOptions().device(device_).dtype(scalar_type(dtype));
  return p.is_sharded() ? over(at::empty({p.shards.room}, options), p.sizes) : at::empty(p.sizes, options);
}

void Parameters::keep_own(ParameterState& s, const at::Tensor& whole) {
  const mortise_param& p = *s.declared;
  const at::Tensor own = part_of(whole.view(-1), p.shards.own);
  if (!p.shards.comes_and_goes) s.value = with_room(p, p.info.value_dtype);
  const at::Tensor there = s.value.defined() ? part_of(over(s.value, {p.info.numel}), p.shards.own) : at::Tensor();
  const bool is_value = there.defined() && p.info.value_dtype == p.info.master_dtype && !p.is_updated_on_host();
  const at::Tensor flat = is_value ? there : at::empty_like(own);
  flat.copy_(own);
  s.master = shaped(flat, p);
  if (is_value || (!there.defined() && !p.is_updated_on_host())) return;
  const auto options = at::TensorOptions().device(device_).dtype(scalar_type(p.info.value_dtype));
  s.own_value = shaped(there.defined() ? there : at::empty({p.shards.own.length}, options), p);
  s.own_value.copy_(s.master);
}

ParameterState& Parameters::sharded(const mortise_param& p) {
  if (!p.is_sharded()) throw PluginError(MORTISE_E_ARGUMENT, p.name + " is not sharded: every rank has all of it");
  return states_[p.index];
}

at::Tensor Parameters::hold(const mortise_param& p) {
  const at::NoGradGuard no_grad;
  ParameterState& s = sharded(p);
  if (!s.value.defined()) {
    s.value = with_room(p, p.info.value_dtype);
    s.version = s.value.unsafeGetTensorImpl()->version_counter().current_version();
  }
  const at::Tensor flat = over(s.value, {p.shards.room});
  const at::Tensor& own = s.own_value.defined() ? s.own_value : s.master;
  if (!own.is_alias_of(s.value)) part_of(flat, p.shards.own).copy_(own.view(-1));
  return flat;
}

void Parameters::drop(const mortise_param& p) {
  if (ParameterState& s = sharded(p); p.shards.comes_and_goes) s.value = at::Tensor();
}

at::Tensor Parameters::take_gradient(const mortise_param& p) {
  const at::NoGradGuard no_grad;
  ParameterState& s = sharded(p);
  if (!p.info.trainable || s.is_taken)
    throw PluginError(MORTISE_E_ARGUMENT, p.name + " has no gradient that was not taken in this micro-batch");
  if (!s.begun) gradient(s).zero_();
  s.begun = false;
  s.is_taken = true;
  return over(std::exchange(s.grad, at::Tensor()), {p.shards.room});
}

void Parameters::add_gradient(const mortise_param& p, const at::Tensor& own) {
  const at::NoGradGuard no_grad;
  ParameterState& s = sharded(p);
  const int64_t length = p.shards.own.length;
  if (!own.defined() || own.dim() != 1 || own.numel() < length || own.device() != device_ ||
      own.scalar_type() != scalar_type(p.info.grad_dtype))
    throw PluginError(MORTISE_E_SHAPE, "that tensor does not have the " + std::to_string(length) +
                                           " elements of the gradient of " + p.name + " that this rank owns");
  const at::Tensor part = length > 0 ? shaped(own.narrow(0, 0, length), p) : at::empty({0}, own.options());
  if (s.own_grad.defined()) s.own_grad.add_(part);
  else s.own_grad = part;
}

}  // namespace mortise
