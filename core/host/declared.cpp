// mortise.build/0, mortise.params/0 and mortise.grads/0: what is declared, used and summed.
#include <ATen/core/Tensor.h>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

void build_segment(mortise_host*, mortise_builder* b, mortise_str path, uint32_t flags) {
  add_segment(*b, view(path), flags);
}
void check_texts(const mortise_str* texts, uint32_t n, const char* what) {
  if (n > 0 && !texts) throw PluginError(MORTISE_E_ARGUMENT, std::string(what) + " are NULL");
  for (uint32_t i = 0; i < n; ++i) text_of(texts[i]);
}
// What add_layer and add_param read of the specs.
void check_spec(const mortise_layer_spec* spec) {
  if (!spec || spec->struct_size < sizeof *spec)
    throw PluginError(MORTISE_E_ARGUMENT, "a layer is declared by a spec without its size");
  text_of(spec->slot);
  text_of(spec->path);
  if (spec->n_attrs > 0 && !spec->attrs) throw PluginError(MORTISE_E_ARGUMENT, "the attributes of a layer are NULL");
  for (uint32_t i = 0; i < spec->n_attrs; ++i) {
    text_of(spec->attrs[i].key);
    if (spec->attrs[i].value.tag == MORTISE_TEXT) text_of(spec->attrs[i].value.v.s);
  }
}
void check_spec(const mortise_param_spec* spec) {
  constexpr uint32_t kMostDimensions = 64;
  if (!spec || spec->struct_size < sizeof *spec)
    throw PluginError(MORTISE_E_ARGUMENT, "a parameter is declared by a spec without its size");
  for (const mortise_str text : {spec->name, spec->role, spec->init}) text_of(text);
  if (spec->rank > kMostDimensions || (spec->rank > 0 && !spec->sizes && !spec->tie))
    throw PluginError(MORTISE_E_ARGUMENT, "parameter " + std::string(view(spec->name)) + " has " +
                                              std::to_string(spec->rank) + " dimensions, at most 64, or no sizes");
  if (spec->dims) check_texts(spec->dims, spec->rank, "the names of dimensions");
  check_texts(spec->tags, spec->n_tags, "tags");
}

void build_layer(mortise_host* h, mortise_builder* b, const mortise_layer_spec* spec, mortise_layer** out) {
  check_spec(spec);
  *out = add_layer(*b, host_of(h).points(), *spec);
}
void build_param(mortise_host*, mortise_builder* b, const mortise_param_spec* spec, mortise_param** out) {
  check_spec(spec);
  *out = add_param(*b, *spec);
}
void build_fact(mortise_host*, mortise_builder* b, mortise_str name, int64_t* out) {
  const auto found = b->declaration.facts.find(std::string(view(name)));
  if (found == b->declaration.facts.end())
    throw PluginError(MORTISE_E_NOT_FOUND, "nobody decided `" + std::string(view(name)) + "`");
  *out = found->second;
}

void param_info(mortise_host*, const mortise_param* p, const mortise_param_info** out) { *out = &p->info; }
void param_find(mortise_host* h, mortise_str name, mortise_param** out) {
  *out = host_of(h).declaration().find(view(name));
  if (!*out) throw PluginError(MORTISE_E_NOT_FOUND, "there is no parameter `" + std::string(view(name)) + "`");
}
void param_set(mortise_host* h, mortise_param* p, mortise_str field, mortise_value v) {
  const auto name = view(field);
  const auto number = static_cast<uint32_t>(v.v.i);
  if (name == "trainable") p->info.trainable = v.v.i != 0 && p->role != "buffer";
  else if (name == "value_dtype") p->info.value_dtype = number;
  else if (name == "master_dtype") p->info.master_dtype = number;
  else if (name == "grad_dtype") p->info.grad_dtype = number;
  else
    throw PluginError(MORTISE_E_NOT_FOUND, "a parameter has no field `" + std::string(name) +
                                               "`; fields are trainable, value_dtype, master_dtype, grad_dtype");
  must_write(h, name);
}
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

void grad_target(mortise_host* h, mortise_param* p, uint32_t dtype, mortise_tensor** out) {
  *out = give(host_of(h).parameters().target(*p, scalar_type(dtype)));
}
void grad_sum(mortise_host* h, mortise_param* p, mortise_tensor* contribution) {
  host_of(h).parameters().sum(*p, share(contribution));
}
void grad_norm(mortise_host* h, mortise_tensor** out) {
  auto& norm = host_of(h).norm_of_step;
  if (!norm) throw PluginError(MORTISE_E_ARGUMENT, "the norm is known after backward only");
  *out = give(norm());
}

}  // namespace

const mortise_build_api kBuildApi = {sizeof(mortise_build_api), at_edge<build_segment>, at_edge<build_layer>,
                                     at_edge<build_param>, at_edge<build_fact>};
const mortise_params_api kParamsApi = {sizeof(mortise_params_api), at_edge<param_info>, at_edge<param_find>,
                                       at_edge<param_set>, at_edge<param_use>};
const mortise_grads_api kGradsApi = {sizeof(mortise_grads_api), at_edge<grad_target>, at_edge<grad_sum>,
                                     at_edge<grad_norm>};

}  // namespace mortise
