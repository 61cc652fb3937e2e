#include "core/assemble/links.hpp"

#include <algorithm>
#include <numeric>

namespace mortise {
namespace {

using Numbers = std::vector<size_t>;  // of wrappers of a point

Numbers all_wrappers(const Declared& d, uint32_t point) {
  Numbers all(d.plan->at[point].wrappers.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

// The wrappers of a point that take one of its elements.
Numbers wrappers_of(const Declared& d, uint32_t point, const std::vector<Element>& elements, size_t element,
                    uint32_t mode) {
  Numbers here;
  const auto& wrappers = d.plan->at[point].wrappers;
  for (size_t w = 0; w < wrappers.size(); ++w) {
    const auto taken = select(wrappers[w], elements, static_cast<int>(mode));
    if (std::ranges::find(taken, element) != taken.end()) here.push_back(w);
  }
  return here;
}

// The chain's outermost link.
const mortise_next* wrapped(Host& host, const Declared& d, uint32_t point, uint32_t mode, const Numbers& wrappers,
                            mortise_next* provider) {
  mortise_next* inner = provider;
  const std::string& name = d.plan->points[point].name;
  for (auto w = wrappers.rbegin(); w != wrappers.rend(); ++w) {
    const Attached& a = d.plan->at[point].wrappers[*w];
    if (!(a.modes >> mode & 1)) continue;
    Instance& by = d.instances->start(a.member);
    mortise_next* link = host.add_link();
    link->plugin = by.host;
    link->self = by.self;
    link->wrap = d.instances->attachment(a.member, name, "wrap").wrap;
    link->next = inner;
    link->point = name;
    inner = link;
  }
  return inner;
}

// The last link of a call point; NULL if nothing provides it.
mortise_next* provider_link(const Chains& chains, Host& host, const Declared& d, uint32_t point) {
  const auto& claims = d.plan->at[point].providers;
  const std::string& name = d.plan->points[point].name;
  if (!chains.provided(point) && claims.empty()) return nullptr;
  mortise_next* link = host.add_link();
  link->point = name;
  if (chains.provided(point)) {
    link->core = chains.provided(point);
    return link;
  }
  Instance& by = d.instances->start(claims.back().member);
  link->plugin = by.host;
  link->self = by.self;
  link->call = d.instances->attachment(claims.back().member, name, "call").provide;
  return link;
}

mortise_next* segment_link(Host& host, const Provided<mortise_model>& model, size_t index) {
  mortise_next* link = host.add_link();
  link->plugin = model.by->host;
  link->point = "segment";
  link->core = [model, index](mortise_call& call) {
    if (const mortise_status s = call_plugin({model.by->id(), "segment", view(call.path)}, model.object->segment,
                                             model.by->self, &call, static_cast<uint32_t>(index)))
      throw as_thrown(s);
  };
  return link;
}

mortise_next* layer_link(Host& host, const Declared& d, const mortise_layer& layer, uint32_t mode) {
  const auto op = d.instances->object<mortise_operator>(static_cast<Point>(layer.point), d.layers->member(layer, mode));
  mortise_next* link = host.add_link();
  link->plugin = op.by->host;
  link->self = op.by->self;
  link->op = op.object;
  link->point = layer.slot;
  return link;
}

void link_segments(Chains& chains, Host& host, const Declared& d) {
  const auto& segments = host.declaration().segments;
  std::vector<Element> blocks;
  for (const auto& s : segments) blocks.push_back({s.path, "", "block", {}, {}});
  for (size_t s = 0; s < segments.size(); ++s) {
    Chains::Modes links{};
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
      const bool block = segments[s].flags & MORTISE_BLOCK;
      const Numbers here = block ? wrappers_of(d, kBlock, blocks, s, mode) : Numbers{};
      links[mode] = wrapped(host, d, kBlock, mode, here, segment_link(host, d.model, s));
    }
    chains.add_segment(links);
  }
}

// Of a layer inside another of its place: wrappers stand around the outer one.
void link_inside(Host& host, const Declared& d) {
  for (const mortise_layer& layer : host.declaration().layers)
    for (uint32_t mode = 0; layer.around && mode < MORTISE_MODES; ++mode)
      if (d.layers->member(layer, mode) >= 0) host.set_layer_chain(layer, mode, layer_link(host, d, layer, mode));
}

void link_layers(Host& host, const Declared& d) {
  for (uint32_t point = kFirstOperator; point < d.plan->points.size(); ++point) {
    std::vector<uint32_t> index_of;
    const std::vector<Element> layers = elements_at(host.declaration(), point, &index_of);
    for (size_t l = 0; l < layers.size(); ++l)
      for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
        const mortise_layer& layer = host.declaration().layers[index_of[l]];
        const Numbers here = wrappers_of(d, point, layers, l, mode);
        host.set_layer_chain(layer, mode, wrapped(host, d, point, mode, here, layer_link(host, d, layer, mode)));
      }
  }
}

}  // namespace

void link_point(Chains& chains, Host& host, const Declared& d, uint32_t point) {
  Chains::Modes links{};
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    mortise_next* provider = provider_link(chains, host, d, point);
    if (!provider) return;
    links[mode] = wrapped(host, d, point, mode, all_wrappers(d, point), provider);
  }
  chains.set(point, links);
}

void link_all(Chains& chains, Host& host, const Declared& d) {
  for (uint32_t point = 0; point < kFirstOperator; ++point)
    if (d.plan->points[point].kind == Kind::Call && point != kBlock) link_point(chains, host, d, point);
  link_segments(chains, host, d);
  link_layers(host, d);
  link_inside(host, d);
}

}  // namespace mortise
