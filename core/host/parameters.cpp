#include "core/host/parameters.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unbind.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include "core/abi/error.hpp"
#include "core/host/call.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/initial.hpp"
#include "core/host/placed.hpp"

namespace mortise {
namespace {

namespace ta = torch::autograd;

// Where the gradient of one use outside a pair arrives.
struct GradientSink final : ta::Node {
  Parameters& parameters;
  const mortise_param& param;
  GradientSink(Parameters& all, const mortise_param& p) : Node(/*sequence_nr=*/UINT64_MAX), parameters(all), param(p) {}
  std::string name() const override { return "gradient of " + param.name; }
  ta::variable_list apply(ta::variable_list&& grads) override {
    // Its gradient would be of a sum that nobody divided, and count beside that of the step.
    if (!is_backward_under_way())
      throw PluginError(
          MORTISE_E_ARGUMENT,
          "a backward that is not the run's reaches the parameter " + param.name +
              "\n  fix: micro.backward(sum, \"tokens\") of a program, loop.term of a model, in its place");
    // Undefined: a node in between wrote the gradient elsewhere, or had none. The use has arrived all the same.
    if (!grads.empty() && grads[0].defined()) parameters.sum(param, grads[0]);
    parameters.arrive(param);
    return {};
  }
};

}  // namespace

// Drawn or taken as a whole, so that it begins with the same numbers wherever it lies.
at::Tensor Parameters::first_master(const mortise_param& p, uint64_t seed, const Fill& fill) const {
  const auto options = at::TensorOptions()
                           .device(p.is_updated_on_host() ? c10::Device(c10::kCPU) : device_)
                           .dtype(scalar_type(p.info.master_dtype));
  if (p.info.numel == 0) return at::empty(p.sizes, options);
  at::Tensor whole = at::empty(p.whole_sizes(), options);
  if (!fill || !fill(p, whole)) initialise(whole, p, seed);
  if (!p.is_placed() || p.info.numel == whole.numel()) return whole;
  return placed_part(whole, p.placement, p.placement.rank).clone(at::MemoryFormat::Contiguous);
}

void Parameters::allocate(Declaration& d, at::Device device, uint64_t seed, const Fill& fill) {
  states_.clear();
  device_ = device;
  keeps_gradients_ = device.is_cpu();
  for (auto& p : d.params) {
    ParameterState& s = states_.emplace_back();
    s.declared = &p;
    s.master = first_master(p, seed, fill);
    if (p.is_sharded()) {
      keep_own(s, s.master);
      continue;
    }
    const bool is_master = p.info.value_dtype == p.info.master_dtype && !p.is_updated_on_host();
    s.value = is_master ? s.master
                        : s.master.to(device_, scalar_type(p.info.value_dtype), /*non_blocking=*/false, /*copy=*/true);
  }
}

void Parameters::begin_step() {
  for (auto& s : states_) {
    s.has_gradient = s.begun = false;
    s.own_grad = at::Tensor();
    if (!keeps_gradients_) s.grad = at::Tensor();
  }
}

at::Tensor& Parameters::gradient(ParameterState& s) const {
  const mortise_param& p = *s.declared;
  if (!s.grad.defined()) s.grad = with_room(p, p.info.grad_dtype);
  return s.grad;
}

void Parameters::begin_micro(int micro, bool last) {
  micro_ = micro;
  last_ = last;
  for (auto& s : states_) {
    s.expected = s.arrived = 0;
    s.ready = s.is_taken = false;
    s.partial = at::Tensor();
    if (s.value.defined()) s.version = s.value.unsafeGetTensorImpl()->version_counter().current_version();
  }
}

void Parameters::check_versions() const {
  for (const auto& s : states_)
    if (s.value.defined() && s.value.unsafeGetTensorImpl()->version_counter().current_version() != s.version)
      throw PluginError(
          MORTISE_E_PLUGIN,
          "parameter " + s.declared->name +
              " was written in place during forward; a model computes with parameters, it does not change them");
}

at::Tensor Parameters::value(mortise_param& p) {
  if (p.info.numel == 0)
    throw PluginError(MORTISE_E_ARGUMENT, p.name + " is used here, and lies on another rank along `" +
                                              std::string(view(p.info.axis)) + "`");
  if (p.is_sharded()) {
    const Frame* f = current_frame();
    const bool backward = ta::get_current_graph_task_id() != -1;  // known on each of the engine's threads
    edge_.loop->need(p, f && f->segment ? f->segment->segment : -1, backward);
  }
  return states_[p.index].value;
}

at::Tensor Parameters::use(mortise_param& p, uint32_t flags) {
  count_use(p, flags);
  const at::Tensor plain = value(p);
  if (!p.info.trainable || !(flags & MORTISE_GRAD) || !at::GradMode::is_enabled()) return plain;
  at::Tensor alias = plain.tensor_data();
  auto sink = std::shared_ptr<GradientSink>(new GradientSink(*this, p), ta::deleteNode);
  sink->add_input_metadata(alias);  // on the current stream
  ta::impl::set_gradient_edge(alias, {sink, 0});
  return alias;
}

void Parameters::count_use(const mortise_param& p, uint32_t flags) {
  if (!p.info.trainable || (flags & MORTISE_REPLAY)) return;
  if ((flags & MORTISE_FIRST_PASS) || ((flags & MORTISE_GRAD) && at::GradMode::is_enabled()))
    ++states_[p.index].expected;
}

at::Tensor Parameters::target(const mortise_param& p, at::ScalarType dtype, bool* add) {
  ParameterState& s = states_[p.index];
  if (!p.info.trainable || scalar_type(p.info.grad_dtype) != dtype || (s.begun && !add)) return {};
  if (s.is_taken || (s.ready && p.info.replicas > 1))
    throw PluginError(MORTISE_E_UNSUPPORTED, "a gradient of " + p.name +
                                                 " comes after that of this micro-batch was sent to the other ranks, "
                                                 "which add up one backward a micro-batch");
  if (add) *add = s.begun;
  if (!s.begun) {
    s.has_gradient = s.begun = true;
    s.first_micro = micro_;
    return gradient(s);
  }
  if (micro_ == s.first_micro || s.expected <= 1) return s.grad;
  *add = s.partial.defined();
  if (!s.partial.defined()) s.partial = at::empty_like(s.grad);
  return s.partial;
}

void Parameters::sum(const mortise_param& p, const at::Tensor& contribution) {
  if (!p.info.trainable) return;
  if (contribution.sizes() != at::IntArrayRef(p.sizes))
    throw PluginError(MORTISE_E_SHAPE, c10::str("a gradient of ", p.name, " has the sizes ", contribution.sizes(),
                                                "; the parameter has ", at::IntArrayRef(p.sizes)));
  at::NoGradGuard no_grad;
  bool add = false;
  at::Tensor to = target(p, scalar_type(p.info.grad_dtype), &add);
  add ? to.add_(contribution) : to.copy_(contribution);
}

void Parameters::arrive(const mortise_param& p) {
  ParameterState& s = states_[p.index];
  if (!p.info.trainable) return;
  if (++s.arrived == s.expected) complete(s);
}

void Parameters::complete(ParameterState& s) {
  if (s.partial.defined()) {
    at::NoGradGuard no_grad;
    s.grad.add_(s.partial);
    s.partial = at::Tensor();
  }
  // Whatever comes now, backward over a retained graph, is another sum of as many.
  s.arrived = 0;
  s.first_micro = -1;
  if (s.ready) return;
  s.ready = last_ || s.declared->is_sharded();
  if (edge_.loop) edge_.loop->ready(*s.declared, micro_, last_);
}

void Parameters::end_backward() {
  for (auto& s : states_)
    if (s.declared->info.trainable && (s.partial.defined() || ((last_ || s.declared->is_sharded()) && !s.ready)))
      complete(s);
}

// On the CPU a norm is one running sum of squares in the gradient's own type, which after some million of them is a
// per cent too small. Of pieces it is exact to six digits.
static std::vector<at::Tensor> in_pieces(const std::vector<at::Tensor>& grads) {
  std::vector<at::Tensor> pieces;
  for (const auto& g : grads) {
    // Sums of 16 bits go element by element, others in lanes.
    const int64_t piece = at::isReducedFloatingType(g.scalar_type()) ? int64_t{1} << 12 : int64_t{1} << 16;
    if (g.numel() <= piece || !g.is_contiguous()) {
      pieces.push_back(g);
      continue;
    }
    const at::Tensor flat = g.view({-1});
    for (int64_t at = 0; at < flat.numel(); at += piece)
      pieces.push_back(flat.narrow(0, at, std::min(piece, flat.numel() - at)));
  }
  return pieces;
}

// The norm of gradients in 16 bits is computed in 32: some of them keep 8 bits of it, others end at 65,504.
static at::Tensor norm_of(const at::Tensor& t) {
  if (!at::isReducedFloatingType(t.scalar_type())) return at::linalg_vector_norm(t);
  return at::linalg_vector_norm(t, 2, {}, false, at::kFloat);
}

// On the CPU the pieces are shared among the threads, and each is one thread's: however many there are, the bits are
// the same. A GPU takes them all in a few launches, each whole.
static std::vector<at::Tensor> norms_of(const std::vector<at::Tensor>& grads) {
  if (grads.front().is_cpu()) {
    const auto pieces = in_pieces(grads);
    std::vector<at::Tensor> norms(pieces.size());
    at::parallel_for(0, std::ssize(pieces), 1, [&](int64_t begin, int64_t end) {
      const at::NoGradGuard no_grad;  // of each thread
      for (int64_t i = begin; i < end; ++i) norms[static_cast<size_t>(i)] = norm_of(pieces[static_cast<size_t>(i)]);
    });
    return norms;
  }
  std::vector<at::Tensor> norms(grads.size());
  for (const bool half : {false, true}) {
    std::vector<at::Tensor> alike;
    std::vector<size_t> which;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (at::isReducedFloatingType(grads[i].scalar_type()) != half) continue;
      alike.push_back(grads[i]);
      which.push_back(i);
    }
    if (alike.empty()) continue;
    const auto found = half ? at::_foreach_norm(alike, 2, at::kFloat) : at::_foreach_norm(alike, 2);
    for (size_t i = 0; i < which.size(); ++i) norms[which[i]] = found[i];
  }
  return norms;
}

at::Tensor norm_of_gradients(const std::vector<at::Tensor>& grads) {
  return at::linalg_vector_norm(at::stack(norms_of(grads)).to(at::kDouble));
}

// [n]
static at::Tensor norm_of_each(const std::vector<at::Tensor>& grads) {
  if (!grads.front().is_cpu()) return at::stack(norms_of(grads)).to(at::kDouble);
  std::vector<at::Tensor> norms;
  for (const auto& g : grads) norms.push_back(norm_of_gradients({g}));
  return at::stack(norms);
}

at::Tensor Parameters::norm() const {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const auto& s : states_)
    if (s.has_gradient && !s.declared->is_in_parts()) grads.push_back(s.grad);
  if (grads.empty()) return at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device_));
  return norm_of_gradients(grads);
}

at::Tensor Parameters::squares_of_parts() const {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> own;
  std::vector<size_t> which;
  size_t n = 0;
  for (const auto& s : states_) {
    const mortise_param& p = *s.declared;
    if (!p.is_in_parts()) continue;
    const at::Tensor& part = p.is_sharded() ? s.own_grad : s.grad;
    if (p.counts && s.has_gradient && part.numel() > 0) {
      own.push_back(part);
      which.push_back(n);
    }
    ++n;
  }
  if (n == 0) return {};
  std::vector<at::Tensor> squares(n, at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device_)));
  const auto found = own.empty() ? own : norm_of_each(own).square().unbind();
  for (size_t i = 0; i < which.size(); ++i) squares[which[i]] = found[i];
  return at::stack(squares);
}

void Parameters::place(const mortise_param& p, const at::Tensor& flat, int64_t offset) {
  at::NoGradGuard no_grad;
  ParameterState& s = states_[p.index];
  if (!p.info.trainable || p.is_sharded())
    throw PluginError(MORTISE_E_ARGUMENT, p.name + " has no gradient that could be placed");
  if (!flat.defined() || flat.dim() != 1 || !flat.is_contiguous() ||
      flat.scalar_type() != scalar_type(p.info.grad_dtype) || flat.device() != device_ || offset < 0 ||
      offset > flat.numel() - p.info.numel)
    throw PluginError(MORTISE_E_SHAPE, "the gradient of " + p.name + " is no part of that tensor from element " +
                                           std::to_string(offset) + " on");
  const at::Tensor part = flat.narrow(0, offset, p.info.numel).view(p.sizes);
  if (s.has_gradient) part.copy_(s.grad);
  s.grad = part;
  keep_gradients();
}

void Parameters::publish(const std::vector<bool>& written) {
  for (const auto& s : states_)
    if (const mortise_param& p = *s.declared; s.has_gradient && !written[p.index] && !p.is_updated_on_host()) cast(p);
}

void Parameters::cast(const mortise_param& p) {
  at::NoGradGuard no_grad;
  ParameterState& s = states_[p.index];
  if (s.own_value.defined()) s.own_value.copy_(s.master);
  if (!p.is_sharded() && !s.value.is_same(s.master)) s.value.copy_(s.master);
}

at::Tensor Parameters::updated_value(const mortise_param& p, const Piece& piece) {
  const ParameterState& s = states_[p.index];
  if (!s.own_value.defined()) return s.value.view(-1).narrow(0, piece.offset, piece.length);
  return s.own_value.view(-1).narrow(0, piece.offset - p.shards.own.offset, piece.length);
}

// A value of the master's type has what this rank has updated already, and takes the rest where it is.
at::Tensor Parameters::master_to_gather(const mortise_param& p) {
  ParameterState& s = states_[p.index];
  if (!p.is_updated_on_host()) return s.master;
  const bool in_value = p.info.value_dtype == p.info.master_dtype;
  if (!s.arriving.defined())
    s.arriving = in_value ? s.value : s.master.to(device_, s.master.scalar_type(), false, true);
  return s.arriving;
}

void Parameters::masters_arrived() {
  const at::NoGradGuard no_grad;
  for (ParameterState& s : states_) {
    if (!s.arriving.defined()) continue;
    s.master.copy_(s.arriving);
    if (!s.arriving.is_same(s.value)) s.value.copy_(s.arriving);
    s.arriving = at::Tensor();
  }
}

}  // namespace mortise
