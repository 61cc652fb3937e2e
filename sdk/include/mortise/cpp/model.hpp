// Declaring segments, layers and parameters, and calling layers: for models, composites and operator pairs.
#pragma once
#include <optional>

#include "mortise/cpp/core.hpp"

namespace mortise {

template <class T>
mortise_attr attr(std::string_view key, const T& v) {
  return {str(key), value(v)};
}

// A parameter to be; in a braced list, by name. `dims` are the logical names of `sizes`; `parts` are sizes along
// `part_dim`.
struct Parameter {
  std::string_view name, role;
  std::initializer_list<std::string_view> dims;
  std::initializer_list<int64_t> sizes;
  std::string_view init;
  double scale = 0;
  mortise_param* tie = nullptr;
  uint32_t part_dim = 0;
  std::span<const int64_t> parts = {};
  std::initializer_list<std::string_view> tags = {};
  const float* values = nullptr;  // of the init "values"
};

// mortise.build/0. [build]
class Builder {
 public:
  explicit Builder(mortise_builder* b) : builder_(b) {}
  void segment(std::string_view path, uint32_t flags = 0) const {
    check(api.build->segment(api.host, builder_, str(path), flags));
  }
  mortise_layer* layer(std::string_view slot, std::string_view path, std::initializer_list<mortise_attr> attrs) const {
    return layer(slot, path, std::span<const mortise_attr>(attrs.begin(), attrs.size()));
  }
  mortise_layer* layer(std::string_view slot, std::string_view path, std::span<const mortise_attr> attrs,
                       double share = 0) const {
    const mortise_layer_spec spec = {
        sizeof spec, static_cast<uint32_t>(attrs.size()), str(slot), str(path), attrs.data(), share};
    mortise_layer* layer = nullptr;
    check(api.build->layer(api.host, builder_, &spec, &layer));
    return layer;
  }
  mortise_param* param(const Parameter& p) const {
    std::vector<mortise_str> dims, tags;
    for (const auto d : p.dims) dims.push_back(str(d));
    for (const auto t : p.tags) tags.push_back(str(t));
    mortise_param_spec spec{};
    spec.struct_size = sizeof spec;
    spec.rank = static_cast<uint32_t>(p.sizes.size());
    spec.name = str(p.name);
    spec.role = str(p.role);
    spec.dims = dims.data();
    spec.tags = tags.data();
    spec.n_tags = static_cast<uint32_t>(tags.size());
    spec.sizes = p.sizes.begin();
    spec.init = str(p.init);
    spec.init_scale = p.scale;
    spec.tie = p.tie;
    spec.part_dim = p.part_dim;
    spec.n_parts = static_cast<uint32_t>(p.parts.size());
    spec.parts = p.parts.data();
    spec.values = p.values;
    mortise_param* param = nullptr;
    check(api.build->param(api.host, builder_, &spec, &param));
    return param;
  }
  // How `left` and `right` go into the parameter of this name on export: mortise_merge_spec.
  void merge(std::string_view into, mortise_param* left, mortise_param* right, double scale, bool transposed) const {
    const mortise_merge_spec spec = {sizeof spec, transposed, str(into), left, right, scale};
    check(api.build->merge(api.host, builder_, &spec));
  }
  // A number that somebody else decided; nothing if nobody did.
  std::optional<int64_t> fact(std::string_view name) const {
    int64_t n = 0;
    const mortise_status status = api.build->fact(api.host, builder_, str(name), &n);
    if (status == MORTISE_E_NOT_FOUND) return std::nullopt;
    check(status);
    return n;
  }

 private:
  mortise_builder* builder_;
};

// A term of the loss from inside a block: `carrier`, to go on with, which brings it its gradient (loop.attach_term).
inline Tensor attach_term(std::string_view name, Ref carrier, Ref sum, std::string_view unit, double weight) {
  Tensor out;
  check(api.loop->attach_term(api.host, str(name), carrier, sum, str(unit), weight, out.put()));
  return out;
}

// An argument of a call; NONE where the caller left it out.
inline mortise_value argument(const mortise_call* call, uint32_t index) {
  return index < call->n_args ? call->args[index] : none();
}

// Calls a layer within the call under way: auto [y, sum] = call_layer<2>(norm, branch, residual). An absent result is
// empty.
template <size_t N, class... Args>
std::array<Tensor, N> call_layer(mortise_layer* layer, const Args&... args) {
  const mortise_value in[] = {value(args)...};
  mortise_value results[N] = {};
  const mortise_status status = api.call->layer(api.host, layer, in, sizeof...(Args), results, N);
  std::array<Tensor, N> out;
  for (size_t i = 0; i < N; ++i) out[i] = take(results[i]);
  check(status);
  return out;
}

}  // namespace mortise
