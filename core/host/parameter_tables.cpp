// mortise.params/0, mortise.grads/0 and mortise.replicas/0: parameters as they are used, and their gradients.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>

#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

void param_use(mortise_host* h, mortise_param* p, mortise_tensor** out) {
  Parameters& all = host_of(h).parameters();
  Frame* f = current_frame();
  if (!f || !f->call)  // nobody would know whether a gradient is wanted, nor wait for it
    throw PluginError(MORTISE_E_ARGUMENT, plugin_of(h).id + " uses parameter " + p->name + " outside of any call");
  if (f->uses) {  // inside a pair: noted, and counted by the host when forward is done
    f->uses->push_back(p);
    *out = give(all.value(*p));
  } else {
    *out = give(all.use(*p, f->call->flags));
  }
}

void param_slices(mortise_host* h, const mortise_slice** out, uint32_t* n) {
  LoopServices* loop = host_of(h).loop;
  if (!loop) throw PluginError(MORTISE_E_ARGUMENT, "there are no slices before parameters are allocated");
  loop->slices(plugin_of(h), out, n);
}
void param_publish(mortise_host* h, mortise_param* p) {
  if (!host_of(h).loop) throw PluginError(MORTISE_E_ARGUMENT, "there is nothing to publish before the run begins");
  if (host_of(h).services.filter == Filter::kScale) must_write(h, "masters");
  host_of(h).loop->publish(*p);
}

void grad_target(mortise_host* h, mortise_param* p, uint32_t dtype, mortise_tensor** out, int32_t* add) {
  // The engine knows on each of its threads.
  if (torch::autograd::get_current_graph_task_id() == -1)
    throw PluginError(MORTISE_E_ARGUMENT,
                      plugin_of(h).id + " asks for the gradient of " + p->name + " outside of a backward");
  bool adds = false;
  *out = give(host_of(h).parameters().target(*p, scalar_type(dtype), add ? &adds : nullptr));
  if (add) *add = adds;
}
// `add` may be NULL; at_edge would take it for a result without a place.
mortise_status grad_target_at_edge(mortise_host* h, mortise_param* p, uint32_t dtype, mortise_tensor** out,
                                   int32_t* add) noexcept {
  return guarded([&] {
    check_arguments(h, p, dtype, out);
    grad_target(h, p, dtype, out, add);
  });
}
void grad_sum(mortise_host* h, mortise_param* p, mortise_tensor* contribution) {
  if (!contribution) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the contribution to " + p->name);
  const at::Tensor t = share(contribution);
  if (!t.is_floating_point())
    throw PluginError(MORTISE_E_ARGUMENT, c10::str(plugin_of(h).id, " gives a gradient of ", p->name, " in ",
                                                   t.scalar_type(), "; a gradient is of a float dtype"));
  host_of(h).parameters().sum(*p, t);
}
void grad_norm(mortise_host* h, mortise_tensor** out) {
  if (!host_of(h).loop) throw PluginError(MORTISE_E_ARGUMENT, "the norm is known after backward only");
  host_of(h).loop->norm(out);
}

void replicas_place(mortise_host* h, mortise_param* p, mortise_tensor* flat, int64_t offset) {
  host_of(h).parameters().place(*p, share(flat), offset);
}
void replicas_has_gradient(mortise_host* h, const mortise_param* p, int32_t* has) {
  *has = host_of(h).parameters().state(*p).has_gradient;
}
void replicas_set_has_gradient(mortise_host* h, mortise_param* p, int32_t has) {
  Parameters& all = host_of(h).parameters();
  ParameterState& s = all.state(*p);
  if (has && !s.grad.defined() && !p->is_sharded()) all.gradient(s).zero_();
  s.has_gradient = has != 0;
}
void replicas_master(mortise_host* h, mortise_param* p, int64_t offset, int64_t length, mortise_tensor** out) {
  if (p->is_sharded()) throw PluginError(MORTISE_E_ARGUMENT, "the ranks have a part of the master of " + p->name);
  const at::Tensor master = host_of(h).parameters().master_to_gather(*p);
  if (offset < 0 || length < 0 || offset > master.numel() - length)
    throw PluginError(MORTISE_E_ARGUMENT, c10::str(p->name, " has no ", length, " elements from ", offset, " on"));
  *out = give(master.view(-1).narrow(0, offset, length));
}
void replicas_recorded(mortise_host* h, int32_t* is) { *is = host_of(h).services.records_steps; }
void replicas_group(mortise_host* h, const mortise_param* p, const mortise_rank_group** out) {
  *out = host_of(h).services.groups.of(p->placement.axis);
}
void replicas_hold(mortise_host* h, mortise_param* p, mortise_tensor** out) {
  *out = give(host_of(h).parameters().hold(*p));
}
void replicas_drop(mortise_host* h, mortise_param* p) { host_of(h).parameters().drop(*p); }
void replicas_take_gradient(mortise_host* h, mortise_param* p, mortise_tensor** out) {
  *out = give(host_of(h).parameters().take_gradient(*p));
}
void replicas_add_gradient(mortise_host* h, mortise_param* p, mortise_tensor* own) {
  host_of(h).parameters().add_gradient(*p, share(own));
}

}  // namespace

const mortise_params_api kParamsApi = {
    sizeof(mortise_params_api), param_info_of, param_by_name,         set_param_field,
    at_edge<param_use>,         keep_beside,   at_edge<param_slices>, at_edge<param_publish>};
const mortise_grads_api kGradsApi = {sizeof(mortise_grads_api), grad_target_at_edge, at_edge<grad_sum>,
                                     at_edge<grad_norm>};
const mortise_replicas_api kReplicasApi = {sizeof(mortise_replicas_api),    at_edge<replicas_place>,
                                           at_edge<replicas_has_gradient>,  at_edge<replicas_set_has_gradient>,
                                           at_edge<replicas_master>,        at_edge<replicas_recorded>,
                                           at_edge<replicas_hold>,          at_edge<replicas_drop>,
                                           at_edge<replicas_take_gradient>, at_edge<replicas_add_gradient>,
                                           at_edge<replicas_group>};

}  // namespace mortise
