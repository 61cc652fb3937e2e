#include "core/model/declaration.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;  // 2 PiB in the largest element type
constexpr std::string_view kRoles[] = {"matrix", "vector", "norm", "embedding", "buffer"};

// Copies an attribute's text into the layer, so that it outlives the caller.
mortise_value own_value(mortise_layer& layer, mortise_value v) {
  constexpr uint32_t kPlain[] = {MORTISE_INT, MORTISE_FLOAT, MORTISE_LOGICAL, MORTISE_DTYPE, MORTISE_PARAM};
  if (v.tag == MORTISE_TEXT) v.v.s = str(layer.texts.emplace_back(view(v.v.s)));
  else if (std::ranges::find(kPlain, v.tag) == std::end(kPlain))
    throw std::invalid_argument("an attribute of layer " + layer.path + " is neither a number, a text nor a parameter");
  return v;
}

// The views that the C side sees, after any change of the strings behind them.
void fill_views(mortise_param& p) {
  mortise_param_info& i = p.info;
  i.struct_size = sizeof i;
  i.rank = static_cast<uint32_t>(p.sizes.size());
  i.name = str(p.name);
  i.role = str(p.role);
  p.tag_views.clear();
  p.dim_views.clear();
  for (const auto& t : p.tags) p.tag_views.push_back(str(t));
  for (const auto& d : p.dims) p.dim_views.push_back(str(d));
  i.tags = p.tag_views.data();
  i.dims = p.dim_views.data();
  i.n_tags = static_cast<uint32_t>(p.tags.size());
  i.sizes = p.sizes.data();
  i.n_parts = static_cast<uint32_t>(p.parts.size());
  i.parts = p.parts.data();
  i.segment = p.segment;
}

// Of its sizes, which may have changed.
void fill_numel(mortise_param& p) {
  int64_t& numel = p.info.numel;
  numel = 1;
  for (const int64_t n : p.sizes) {
    if (n < 0) throw std::invalid_argument("parameter " + p.name + " has a negative size");
    if (__builtin_mul_overflow(numel, n, &numel) || numel > kMostElements)
      throw std::length_error("parameter " + p.name + " has more elements than memory can hold");
  }
}

void fill_info(mortise_param& p) {
  fill_views(p);
  mortise_param_info& i = p.info;
  i.value_dtype = i.master_dtype = i.grad_dtype = MORTISE_F32;
  i.trainable = p.role != "buffer";
  i.replicas = 1;
  fill_numel(p);
}

const float* own_values(const mortise_param_spec& spec, const std::string& name) {
  if (MORTISE_HAS_ROOM(&spec, values) && spec.values) return spec.values;
  throw std::invalid_argument("parameter " + name + " has the init `values`, and no values");
}

// The parts of a packed parameter; a plugin built with an older SDK has none.
std::vector<int64_t> own_parts(const mortise_param_spec& spec, const std::string& name) {
  if (!MORTISE_HAS_ROOM(&spec, parts) || spec.n_parts == 0) return {};
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument("parameter " + name + " has " + std::to_string(spec.n_parts) +
                                " parts along dimension " + std::to_string(spec.part_dim) + why);
  };
  if (spec.part_dim >= spec.rank) refuse(", which it does not have");
  const int64_t size = spec.sizes[spec.part_dim];
  const auto do_not_fit = [&] { refuse("; they are above 0 and add up to its size, " + std::to_string(size)); };
  if (spec.n_parts > size) do_not_fit();
  std::vector<int64_t> parts(spec.parts, spec.parts + spec.n_parts);
  int64_t rest = size;
  for (const int64_t n : parts) {
    if (n <= 0 || n > rest) do_not_fit();
    rest -= n;
  }
  if (rest != 0) do_not_fit();
  return parts;
}

// Are they called in different modes? Then somewhere outwards a layer is provided by one for one of them, and by
// another for the other.
bool stand_in_different_modes(const Declarer& first, const Declarer& now) {
  for (const Declarer* a = &first; a->layer; a = &a->layer->declarer)
    for (const Declarer* b = &now; b->layer; b = &b->layer->declarer)
      if (a->layer == b->layer && a->id != b->id) return true;
  return false;
}

// Two providers of one layer, one a mode, may declare the same inside it; anything else is a mistake.
void must_be_new(const Declarer& first, const Declarer& now, const std::string& what, const std::string& fix) {
  if (stand_in_different_modes(first, now)) return;
  const auto text = [](const Declarer& d) { return d.id + (d.layer ? " at " + d.layer->path : ""); };
  throw std::invalid_argument(what + " is declared twice: by " + text(first) + " and by " + text(now) + "; " + fix);
}

}  // namespace
}  // namespace mortise

int64_t mortise_param::whole_numel() const {
  int64_t n = 1;
  for (const int64_t size : whole_sizes()) n *= size;
  return n;
}

bool mortise_param::has_tag(std::string_view tag) const { return std::ranges::find(tags, tag) != tags.end(); }

void mortise_param::add_tag(const std::string& tag) {
  if (has_tag(tag)) return;
  tags.push_back(tag);
  mortise::fill_views(*this);
}

namespace mortise {

mortise_param* Declaration::find(std::string_view name) {
  for (; n_named < params.size(); ++n_named) params_by_name.emplace(params[n_named].name, n_named);
  const auto found = params_by_name.find(name);
  return found == params_by_name.end() ? nullptr : &params[found->second];
}

std::vector<Element> Declaration::param_elements() const {
  std::vector<Element> all;
  for (const auto& p : params) all.push_back({p.name, p.role, "", p.tags, p.dims});
  return all;
}

std::vector<Element> Declaration::layer_elements() const {
  std::vector<Element> all;
  for (const auto& l : layers)
    if (!l.around) all.push_back({l.path, "", l.slot, {}, {}});
  return all;
}

int64_t Declaration::count() const {
  int64_t n = 0;
  for (const auto& p : params) n += p.whole_numel();
  return n;
}

void add_segment(mortise_builder& b, std::string_view path, uint32_t flags) {
  for (const auto& s : b.declaration.segments)
    if (s.path == path) throw std::invalid_argument("segment " + std::string(path) + " is declared twice");
  b.declaration.segments.push_back({std::string(path), flags});
}

mortise_layer* add_layer(mortise_builder& b, const PointTable& points, const mortise_layer_spec& spec) {
  Declaration& d = b.declaration;
  if (d.segments.empty())
    throw std::invalid_argument("layer " + std::string(view(spec.path)) + " is declared before the first segment");
  const int point = points.find(view(spec.slot));
  if (point < 0 || points[static_cast<uint32_t>(point)].kind != Kind::Operator)
    throw std::invalid_argument("layer " + std::string(view(spec.path)) + " asks for the operator " +
                                std::string(view(spec.slot)) + ", which no plugin in use brings");
  const mortise_layer* declaring = b.declarer.layer;
  const bool inside = declaring && declaring->slot == view(spec.slot) && declaring->path == view(spec.path);
  const auto [first, last] = d.layers_at.equal_range(view(spec.path));
  for (auto at = first; at != last; ++at)
    if (const mortise_layer& same = d.layers[at->second]; !inside || same.around == declaring)
      must_be_new(same.declarer, b.declarer, "layer " + same.path, "give one of them another path");
  mortise_layer& layer = d.layers.emplace_back();
  layer.declarer = b.declarer;
  if (inside) layer.around = declaring;
  if (declaring) layer.share = declaring->share;
  if (MORTISE_HAS_ROOM(&spec, share) && spec.share > 0) layer.share *= spec.share;
  layer.index = static_cast<uint32_t>(d.layers.size() - 1);
  layer.point = point;
  layer.segment = static_cast<int>(d.segments.size()) - 1;
  layer.slot = view(spec.slot);
  layer.path = view(spec.path);
  d.layers_at.emplace(layer.path, layer.index);
  for (uint32_t i = 0; i < spec.n_attrs; ++i) {
    layer.texts.emplace_back(view(spec.attrs[i].key));
    const mortise_str key = str(layer.texts.back());
    layer.attrs.push_back({key, own_value(layer, spec.attrs[i].value)});
  }
  // The providers see the layer's own copy, which lives as long as the run.
  const mortise_layer_spec own = {sizeof own,      spec.n_attrs,       str(layer.slot),
                                  str(layer.path), layer.attrs.data(), layer.share};
  b.provide(layer, own);
  return &layer;
}

mortise_param* add_param(mortise_builder& b, const mortise_param_spec& spec) {
  Declaration& d = b.declaration;
  const std::string name(view(spec.name));
  if (name.empty()) throw std::invalid_argument("a parameter without a name");
  if (const std::string shown = escape_control(name); shown != name)  // no file of a checkpoint could hold it
    throw std::invalid_argument("parameter `" + shown + "` has a name of characters that a line cannot show");
  if (spec.tie) {
    if (!d.find(name)) spec.tie->other_names.push_back(name);
    d.params_by_name.emplace(name, spec.tie->index);
    return spec.tie;
  }
  const std::vector<int64_t> sizes(spec.sizes, spec.sizes + spec.rank);
  if (mortise_param* p = d.find(name)) {
    must_be_new(p->declarer, b.declarer, "parameter " + name, "give one of them another name, or share it with `tie`");
    if (p->sizes != sizes) throw std::invalid_argument("parameter " + name + " is declared twice with different sizes");
    return p;
  }
  if (std::find(std::begin(kRoles), std::end(kRoles), view(spec.role)) == std::end(kRoles))
    throw std::invalid_argument("parameter " + name + " has the role " + std::string(view(spec.role)) +
                                "; roles are matrix vector norm embedding buffer");
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n <= 0; }))
    throw std::invalid_argument("parameter " + name + " has a dimension of 0");
  std::vector<int64_t> parts = own_parts(spec, name);
  mortise_param& p = d.params.emplace_back();
  p.index = static_cast<uint32_t>(d.params.size() - 1);
  p.declarer = b.declarer;
  p.name = name;
  p.role = view(spec.role);
  p.init = view(spec.init);
  p.init_scale = spec.init_scale;
  if (p.init == "values") p.values = own_values(spec, name);
  p.sizes = sizes;
  p.parts = std::move(parts);
  p.info.part_dim = p.parts.empty() ? 0 : spec.part_dim;
  p.segment = static_cast<int>(d.segments.size()) - 1;
  for (uint32_t i = 0; i < spec.rank && spec.dims; ++i) p.dims.emplace_back(view(spec.dims[i]));
  for (uint32_t i = 0; i < spec.n_tags; ++i) p.tags.emplace_back(view(spec.tags[i]));
  fill_info(p);
  return d.find(name);  // named at once: plugins look for parameters from several threads
}

void add_merge(mortise_builder& b, const mortise_merge_spec& spec) {
  Declaration& d = b.declaration;
  const std::string name(view(spec.into));
  const mortise_param* into = d.find(name);
  if (!into) throw std::invalid_argument("what is merged into parameter " + name + " has no such parameter to go into");
  const auto is_matrix = [](const mortise_param& p) { return p.sizes.size() == 2; };
  if (!is_matrix(*into) || !is_matrix(*spec.left) || !is_matrix(*spec.right) ||
      spec.left->sizes[1] != spec.right->sizes[0])
    throw std::invalid_argument("what is merged into parameter " + name + " is no product of two matrices");
  const size_t row = spec.transposed ? 1 : 0;
  if (into->sizes[row] != spec.left->sizes[0] || into->sizes[1 - row] != spec.right->sizes[1])
    throw std::invalid_argument("what is merged into parameter " + name + " has another shape");
  // Providers of other modes declare the same.
  if (std::ranges::find(d.merges, spec.left, &Merge::left) == d.merges.end())
    d.merges.push_back({into, spec.left, spec.right, spec.scale, spec.transposed != 0});
}

static void must_be_placeable(const mortise_param& p, const OnAxis& here) {
  if (p.is_placed()) throw std::invalid_argument("parameter " + p.name + " lies along an axis of ranks already");
  if (p.sizes.empty())
    throw std::invalid_argument("parameter " + p.name + " is one number, which every rank along `" +
                                std::string(here.name) + "` has");
}

// Takes the sizes that this rank has for those of the whole. Along an axis of one rank that is all.
static void take_part(mortise_param& p, const OnAxis& here, int owner, size_t dim, int64_t size) {
  if (here.ranks == 1) return;
  p.placement = {here.axis, owner, here.rank, here.ranks, dim, p.sizes};
  p.sizes[dim] = size;
  p.info.axis = str(here.name);
  fill_numel(p);
}

void place(mortise_param& p, const OnAxis& here, int64_t owner) {
  must_be_placeable(p, here);
  if (owner < 0 || owner >= here.ranks)
    throw std::invalid_argument("parameter " + p.name + " is to be on rank " + std::to_string(owner) + " along `" +
                                std::string(here.name) + "`, which has " + std::to_string(here.ranks));
  take_part(p, here, static_cast<int>(owner), 0, owner == here.rank ? p.sizes[0] : 0);
}

void place(mortise_param& p, const OnAxis& here, std::string_view dim) {
  must_be_placeable(p, here);
  const auto found = std::ranges::find(p.dims, dim);
  const auto at = static_cast<size_t>(found - p.dims.begin());
  const std::string what = "`" + std::string(dim) + "` of parameter " + p.name;
  if (found == p.dims.end()) throw std::invalid_argument(what + " is to be cut, and it has no such dimension");
  if (p.sizes[at] % here.ranks != 0)
    throw std::invalid_argument(what + " is " + std::to_string(p.sizes[at]) + ", which " + std::to_string(here.ranks) +
                                " ranks along `" + std::string(here.name) + "` do not share evenly");
  if (!p.parts.empty() && p.info.part_dim == at)
    throw std::invalid_argument(what + " is packed of parts, through which a cut would go");
  take_part(p, here, -1, at, p.sizes[at] / here.ranks);
}

std::vector<Group> make_groups(Declaration& d, const std::vector<double>& family_lr,
                               const std::vector<double>& family_weight_decay) {
  std::vector<Group> groups;
  for (auto& p : d.params) {
    if (!p.info.trainable) {
      p.info.group = -1;
      continue;
    }
    const auto o = static_cast<size_t>(p.optimizer);
    Group g{p.optimizer, (p.lr >= 0 ? p.lr : family_lr[o]) * p.lr_scale,
            p.weight_decay >= 0 ? p.weight_decay : family_weight_decay[o]};
    auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& x) {
      return x.optimizer == g.optimizer && x.lr == g.lr && x.weight_decay == g.weight_decay;
    });
    if (same == groups.end()) same = groups.insert(groups.end(), g);
    p.info.group = static_cast<int32_t>(same - groups.begin());
  }
  return groups;
}

static int64_t own_elements(const mortise_param& p) { return p.is_sharded() ? p.shards.own.length : p.info.numel; }

Memory weights_and_gradients(const Declaration& d) {
  Memory m;
  for (const auto& p : d.params) {
    if (p.info.trainable) m.gradients += own_elements(p) * dtype_bytes(p.info.grad_dtype);
    if (p.is_updated_on_host()) {
      m.host += own_elements(p) * dtype_bytes(p.info.master_dtype);
      const int64_t value = !p.is_sharded() ? p.info.numel : p.shards.comes_and_goes ? own_elements(p) : p.shards.room;
      m.casts += value * dtype_bytes(p.info.value_dtype);
      continue;
    }
    const bool has_copy = p.info.value_dtype != p.info.master_dtype;
    const int64_t whole = p.is_sharded() ? p.shards.room : p.info.numel;
    // A value that stays has the master's elements in its own memory.
    const bool in_value = p.is_sharded() && !p.shards.comes_and_goes && !has_copy;
    m.weights += (in_value ? whole : own_elements(p)) * dtype_bytes(p.info.master_dtype);
    if (has_copy && !p.shards.comes_and_goes) m.casts += whole * dtype_bytes(p.info.value_dtype);
  }
  return m;
}

}  // namespace mortise
