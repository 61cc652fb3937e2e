// mortise.build/0, and what mortise.params/0 says of a declared parameter.
#include <algorithm>

#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"
#include "mortise/dtype.h"

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
  if (!spec || !MORTISE_HAS_ROOM(spec, attrs))  // the share is Since 0.2
    throw PluginError(MORTISE_E_ARGUMENT, "a layer is declared by a spec without its size");
  if (MORTISE_HAS_ROOM(spec, share) && !(spec->share >= 0 && spec->share <= 1))
    throw PluginError(MORTISE_E_ARGUMENT, "the share of layer " + std::string(view(spec->path)) + " is not 0 to 1");
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
  if (!spec || !MORTISE_HAS_ROOM(spec, tie))  // the parts are Since 0.2
    throw PluginError(MORTISE_E_ARGUMENT, "a parameter is declared by a spec without its size");
  if (MORTISE_HAS_ROOM(spec, parts) && spec->n_parts > 0 && !spec->parts)
    throw PluginError(MORTISE_E_ARGUMENT, "the parts of parameter " + std::string(view(spec->name)) + " are NULL");
  for (const mortise_str text : {spec->name, spec->role, spec->init}) text_of(text);
  if (spec->rank > kMostDimensions || (spec->rank > 0 && !spec->sizes && !spec->tie))
    throw PluginError(MORTISE_E_ARGUMENT, "parameter " + std::string(view(spec->name)) + " has " +
                                              std::to_string(spec->rank) + " dimensions, at most 64, or no sizes");
  if (spec->dims) check_texts(spec->dims, spec->rank, "the names of dimensions");
  check_texts(spec->tags, spec->n_tags, "tags");
}

void build_layer(mortise_host* h, mortise_builder* b, const mortise_layer_spec* spec, mortise_layer** out) {
  check_spec(spec);
  *out = add_layer(*b, edge_of(h).points(), *spec);
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

void build_merge(mortise_host*, mortise_builder* b, const mortise_merge_spec* spec) {
  if (!spec || spec->struct_size < sizeof *spec || !spec->left || !spec->right)
    throw PluginError(MORTISE_E_ARGUMENT, "parameters are merged by a spec without its size, or without both of them");
  text_of(spec->into);
  add_merge(*b, *spec);
}

void info(mortise_host*, const mortise_param* p, const mortise_param_info** out) { *out = &p->info; }
void find(mortise_host* h, mortise_str name, mortise_param** out) {
  *out = edge_of(h).declaration().find(view(name));
  if (!*out) throw PluginError(MORTISE_E_NOT_FOUND, "there is no parameter `" + std::string(view(name)) + "`");
}

// The dtype field of that name; NULL if it is none.
uint32_t* dtype_field(mortise_param_info& info, std::string_view name) {
  if (name == "value_dtype") return &info.value_dtype;
  if (name == "master_dtype") return &info.master_dtype;
  return name == "grad_dtype" ? &info.grad_dtype : nullptr;
}
// Likewise of one that is true or false.
int32_t* logical_field(mortise_param_info& info, std::string_view name) {
  if (name == "trainable") return &info.trainable;
  if (name == "update_on_host") return &info.update_on_host;
  return name == "states_in_store" ? &info.states_in_store : nullptr;
}

// "place.AXIS"
void place_along(mortise_host* h, mortise_param* p, const std::string& axis, mortise_value v) {
  Services& services = edge_of(h).services;
  const int index = services.mesh.find(axis);
  if (index < 0)
    throw PluginError(MORTISE_E_NOT_FOUND, plugin_of(h).id + " places " + p->name + " along `" + axis +
                                               "`, an axis that no plugin of this run has");
  if (std::ranges::any_of(services.kept, [&](const KeptTensors& kept) {
        return std::ranges::count(kept.beside, p, &ParamStates::param) > 0;
      }))
    throw PluginError(MORTISE_E_ARGUMENT, plugin_of(h).id + " places " + p->name + ", beside which a tensor is kept");
  const Axis& along = services.mesh.axes()[static_cast<size_t>(index)];
  const OnAxis here{index, along.name, services.mesh.place(index), along.size};
  if (v.tag == MORTISE_INT) place(*p, here, v.v.i);
  else if (v.tag == MORTISE_TEXT) place(*p, here, text_of(v.v.s));
  else
    throw PluginError(MORTISE_E_ARGUMENT, "`place." + axis + "` of " + p->name +
                                              " is the number of a rank along it, or the name of a dimension");
}

// Everything is checked before anything is changed.
void set(mortise_host* h, mortise_param* p, mortise_str field, mortise_value v) {
  const std::string name(view(field));
  constexpr std::string_view kPlace = "place.";
  const bool places = name.starts_with(kPlace);
  uint32_t* dtype = dtype_field(p->info, name);
  int32_t* logical = logical_field(p->info, name);
  if (!dtype && !logical && !places)
    throw PluginError(MORTISE_E_NOT_FOUND,
                      "a parameter has no field `" + name + "`; fields are trainable, " +
                          "value_dtype, master_dtype, grad_dtype, update_on_host, states_in_store, place.AXIS");
  if (!edge_of(h).declaring_parameters)
    throw PluginError(MORTISE_E_ARGUMENT,
                      plugin_of(h).id + " sets `" + name + "` of " + p->name + " outside of params.declared");
  must_write(h, name);
  if (places) return place_along(h, p, name.substr(kPlace.size()), v);
  if (dtype) {
    if (v.tag != MORTISE_DTYPE || v.v.i < 0 || v.v.i >= MORTISE_DTYPES ||
        !mortise_dtype_is_float(static_cast<uint32_t>(v.v.i)))
      throw PluginError(MORTISE_E_ARGUMENT, "`" + name + "` of " + p->name + " is an element type of floats");
    *dtype = static_cast<uint32_t>(v.v.i);
    return;
  }
  if (v.tag != MORTISE_LOGICAL)
    throw PluginError(MORTISE_E_ARGUMENT, "`" + name + "` of " + p->name + " is true or false");
  if (v.v.i != 0 && name == "trainable" && p->role == "buffer")
    throw PluginError(MORTISE_E_ARGUMENT, p->name + " is a buffer, which is never trained");
  *logical = v.v.i != 0;
}

void keep(mortise_host* h, mortise_param* p, const mortise_state_spec* spec) {
  const PluginHost& by = plugin_of(h);
  if (!edge_of(h).declaring_parameters)
    throw PluginError(MORTISE_E_ARGUMENT, by.id + " keeps a tensor beside " + p->name + " outside of params.declared");
  if (!spec) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for what is kept beside " + p->name);
  std::vector<KeptTensors>& all = edge_of(h).services.kept;
  auto own = std::ranges::find(all, &by, &KeptTensors::host);
  if (own == all.end()) own = all.insert(own, {&by, {}});
  auto beside = std::ranges::find(own->beside, p, &ParamStates::param);
  if (beside == own->beside.end()) beside = own->beside.insert(beside, {p, {}});
  add_state(*beside, *spec, by.id);
}

}  // namespace

mortise_status param_info_of(mortise_host* h, const mortise_param* p, const mortise_param_info** out) noexcept {
  return at_edge<info>(h, p, out);
}
mortise_status param_by_name(mortise_host* h, mortise_str name, mortise_param** out) noexcept {
  return at_edge<find>(h, name, out);
}
mortise_status set_param_field(mortise_host* h, mortise_param* p, mortise_str field, mortise_value v) noexcept {
  return at_edge<set>(h, p, field, v);
}
mortise_status keep_beside(mortise_host* h, mortise_param* p, const mortise_state_spec* spec) noexcept {
  return at_edge<keep>(h, p, spec);
}

const mortise_build_api kBuildApi = {sizeof(mortise_build_api), at_edge<build_segment>, at_edge<build_layer>,
                                     at_edge<build_param>,      at_edge<build_fact>,    at_edge<build_merge>};

}  // namespace mortise
