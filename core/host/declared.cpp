// mortise.build/0, mortise.params/0 and mortise.grads/0: what is declared, used and summed.
#include <ATen/core/Tensor.h>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

mortise_status build_segment(mortise_host*, mortise_builder* b, mortise_str path, uint32_t flags) noexcept {
  return guarded([&] { add_segment(*b, view(path), flags); });
}
mortise_status build_layer(mortise_host* h, mortise_builder* b, const mortise_layer_spec* spec, mortise_layer** out) noexcept {
  return guarded([&] { *out = add_layer(*b, host_of(h).points(), *spec); });
}
mortise_status build_param(mortise_host*, mortise_builder* b, const mortise_param_spec* spec, mortise_param** out) noexcept {
  return guarded([&] { *out = add_param(*b, *spec); });
}
mortise_status build_fact(mortise_host*, mortise_builder* b, mortise_str name, int64_t* out) noexcept {
  const auto found = b->declaration.facts.find(std::string(view(name)));
  if (found == b->declaration.facts.end()) return set_error(MORTISE_E_NOT_FOUND, "nobody decided `" + std::string(view(name)) + "`");
  *out = found->second;
  return MORTISE_OK;
}

mortise_status param_info(mortise_host*, const mortise_param* p, const mortise_param_info** out) noexcept {
  *out = &p->info;
  return MORTISE_OK;
}
mortise_status param_find(mortise_host* h, mortise_str name, mortise_param** out) noexcept {
  *out = host_of(h).declaration().find(view(name));
  return *out ? MORTISE_OK : set_error(MORTISE_E_NOT_FOUND, "there is no parameter `" + std::string(view(name)) + "`");
}
mortise_status param_set(mortise_host* h, mortise_param* p, mortise_str field, mortise_value v) noexcept {
  return guarded([&] {
    const auto name = view(field);
    const auto number = static_cast<uint32_t>(v.v.i);
    if (name == "trainable") p->info.trainable = v.v.i != 0 && p->role != "buffer";
    else if (name == "value_dtype") p->info.value_dtype = number;
    else if (name == "master_dtype") p->info.master_dtype = number;
    else if (name == "grad_dtype") p->info.grad_dtype = number;
    else throw PluginError(MORTISE_E_NOT_FOUND, "a parameter has no field `" + std::string(name) + "`; fields are trainable, value_dtype, master_dtype, grad_dtype");
    must_write(h, name);
  });
}
mortise_status param_use(mortise_host* h, mortise_param* p, mortise_tensor** out) noexcept {
  return guarded([&] {
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
  });
}

mortise_status grad_target(mortise_host* h, mortise_param* p, uint32_t dtype, mortise_tensor** out) noexcept {
  return guarded([&] { *out = give(host_of(h).parameters().target(*p, scalar_type(dtype))); });
}
mortise_status grad_sum(mortise_host* h, mortise_param* p, mortise_tensor* contribution) noexcept {
  return guarded([&] { host_of(h).parameters().sum(*p, share(contribution)); });
}
mortise_status grad_norm(mortise_host* h, mortise_tensor** out) noexcept {
  return guarded([&] {
    auto& norm = host_of(h).norm_of_step;
    if (!norm) throw PluginError(MORTISE_E_ARGUMENT, "the norm is known after backward only");
    *out = give(norm());
  });
}

}  // namespace

const mortise_build_api kBuildApi = {sizeof(mortise_build_api), build_segment, build_layer, build_param, build_fact};
const mortise_params_api kParamsApi = {sizeof(mortise_params_api), param_info, param_find, param_set, param_use};
const mortise_grads_api kGradsApi = {sizeof(mortise_grads_api), grad_target, grad_sum, grad_norm};

}  // namespace mortise
