#include "core/loop/chains.hpp"

#include <algorithm>
#include <numeric>

#include "core/base/text.hpp"
#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "mortise/tensor.h"

namespace mortise {
namespace {

// The layers of one slot, up to and with `last`: whether a selector takes a layer depends on the ones before it only,
// so providers are known while the model is still being declared.
std::vector<Element> layers_until(const Declaration& d, const mortise_layer& last) {
  std::vector<Element> all;
  for (const auto& l : d.layers) {
    if (l.slot == last.slot) all.push_back({l.path, "", l.slot, {}, {}});
    if (&l == &last) break;
  }
  return all;
}

// What the run computes in by the plan, for `supports`: a static fact of whoever sets the frame's compute dtype.
uint32_t planned_compute_dtype(const Plan& plan, uint32_t mode) {
  for (const auto& w : plan.at[kForward].wrappers) {
    if (!(w.modes >> mode & 1)) continue;
    if (const Value* dtype = fact_of(*plan.members[static_cast<size_t>(w.member)].info, "frame", "compute_dtype"))
      return dtype_named(dtype->as_text());
  }
  return MORTISE_NO_DTYPE;
}

struct Answer {
  bool yes = false;
  std::string why, fix;
};

Answer supports(const Provided<mortise_operator>& op, const Plan& plan, const Host& host, const mortise_layer& layer,
                uint32_t mode) {
  if (!op.has(&mortise_operator::supports)) return {true, "", ""};
  mortise_place place{};
  place.struct_size = sizeof place;
  place.mode = mode;
  place.path = str(layer.path);
  place.compute_dtype = planned_compute_dtype(plan, mode);
  place.device = host.device().is_cuda() ? MORTISE_CUDA : MORTISE_CPU;
  place.attrs = layer.attrs.data();
  place.n_attrs = static_cast<uint32_t>(layer.attrs.size());
  int yes = 1;
  mortise_str why{}, fix{};
  op.call(&mortise_operator::supports, "supports of " + layer.slot, &place, &yes, &why, &fix);
  return {yes != 0, std::string(text_of(why, op.by->id())), std::string(text_of(fix, op.by->id()))};
}

Diagnostic cannot_run_here(const std::string& id, const mortise_layer& layer, const Answer& a, const Position& at) {
  return mistake("cannot_run_here", id + " cannot run at " + layer.path + ": " + a.why, at, a.fix);
}

}  // namespace

Chains::Chains(Host& host, const Plan& plan, Plugins& plugins)
    : host_(host), plan_(plan), plugins_(plugins), core_(kFirstOperator), listeners_(kFirstOperator) {}

void Chains::core(Point point, CoreFunction fn) { core_[point] = std::move(fn); }

int Chains::choose(const Claim& claim, const mortise_layer& layer, uint32_t mode) {
  if (claim.choices.empty()) return claim.member;
  std::string reasons;
  for (const int candidate : claim.choices) {
    const auto op = plugins_.object<mortise_operator>(static_cast<Point>(layer.point), candidate);
    const Answer a = supports(op, plan_, host_, layer, mode);
    if (a.yes) {
      auto& text = chosen_[plan_.members[static_cast<size_t>(claim.member)].info->schema.id];
      if (text.find(op.by->id()) == std::string::npos) text += (text.empty() ? "-> " : ", ") + op.by->id();
      return candidate;
    }
    reasons += (reasons.empty() ? "" : "; ") + op.by->id() + ": " + a.why;
  }
  throw Failure(cannot_run_here(plan_.members[static_cast<size_t>(claim.member)].info->schema.id, layer,
                                {false, reasons, ""}, claim.origin));
}

int Chains::provider_of(const mortise_layer& layer, uint32_t mode) {
  const auto elements = layers_until(host_.declaration(), layer);
  for (const auto& claim : plan_.at[static_cast<size_t>(layer.point)].providers) {
    Attached here;
    here.where = claim.where;
    here.modes = claim.modes;
    const auto taken = select(here, elements, static_cast<int>(mode));
    if (!taken.empty() && taken.back() == elements.size() - 1) return choose(claim, layer, mode);
  }
  throw Failure(mistake("nothing_provides", "nothing provides `" + layer.slot + "` at " + layer.path, {},
                        "mortise plugin list names what is installed"));
}

void Chains::declare_layer(mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec) {
  // add_layer may have grown nested layers by the time this returns; a deque keeps `layer` where it is.
  const uint32_t index = layer.index;
  if (layer_members_.size() <= index) layer_members_.resize(index + 1);
  std::array<int, MORTISE_MODES> members{};
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    members[mode] = provider_of(layer, mode);
    const auto same = std::find(members.begin(), members.begin() + mode, members[mode]);
    if (same != members.begin() + mode) {
      layer.data[mode] = layer.data[static_cast<size_t>(same - members.begin())];
      continue;
    }
    const auto op = plugins_.object<mortise_operator>(static_cast<Point>(layer.point), members[mode]);
    if (const Answer a = supports(op, plan_, host_, layer, mode); !a.yes) {
      const auto* table = op.by->member->table;
      throw Failure(cannot_run_here(op.by->id(), layer, a, table ? table->origin : Position{}));
    }
    if (!op.has(&mortise_operator::forward))
      throw PluginError(MORTISE_E_PLUGIN, op.by->id() + " has no function `forward` of " + layer.slot);
    if (op.has(&mortise_operator::declare))
      op.call(&mortise_operator::declare, "declare of " + layer.slot + " at " + layer.path, &builder, &spec,
              &layer.data[mode]);
  }
  layer_members_[index] = members;
}

mortise_next* Chains::wrapped(uint32_t point, uint32_t mode, const std::vector<size_t>& wrappers,
                              mortise_next* provider) {
  mortise_next* inner = provider;
  const auto& all = plan_.at[point].wrappers;
  for (auto w = wrappers.rbegin(); w != wrappers.rend(); ++w) {
    const Attached& a = all[*w];
    if (!(a.modes >> mode & 1)) continue;
    mortise_next* link = host_.add_link();
    Instance& by = plugins_.start(a.member);
    link->plugin = by.host;
    link->self = by.self;
    link->wrap = plugins_.attachment(a.member, plan_.points[point].name, "wrap").wrap;
    link->next = inner;
    link->point = plan_.points[point].name;
    inner = link;
  }
  return inner;
}

void Chains::build(const Provided<mortise_model>& model) {
  const Declaration& d = host_.declaration();
  check_places();
  std::vector<Element> blocks, layers = d.layer_elements();
  for (const auto& s : d.segments) blocks.push_back({s.path, "", "block", {}, {}});

  points_.assign(kFirstOperator, {});
  segments_.assign(d.segments.size(), {});
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    for (uint32_t point = 0; point < kFirstOperator; ++point) {
      if (plan_.points[point].kind != Kind::Call || point == kBlock) continue;
      mortise_next* provider = nullptr;
      if (core_[point]) {
        provider = host_.add_link();
        provider->core = core_[point];
      } else if (!plan_.at[point].providers.empty()) {
        const int member = plan_.at[point].providers.back().member;
        provider = host_.add_link();
        provider->plugin = plugins_.start(member).host;
        provider->self = plugins_.start(member).self;
        provider->call = plugins_.attachment(member, plan_.points[point].name, "call").provide;
      } else {
        continue;
      }
      provider->point = plan_.points[point].name;
      std::vector<size_t> all(plan_.at[point].wrappers.size());
      std::iota(all.begin(), all.end(), size_t{0});
      points_[point][mode] = wrapped(point, mode, all, provider);
    }
    for (size_t s = 0; s < d.segments.size(); ++s) {
      mortise_next* provider = host_.add_link();
      provider->plugin = model.by->host;
      provider->point = "segment";
      const auto* object = model.object;
      void* self = model.by->self;
      provider->core = [object, self, s, id = std::string_view(provider->plugin->id)](mortise_call& call) {
        if (const mortise_status status =
                call_plugin({id, "segment", view(call.path)}, object->segment, self, &call, static_cast<uint32_t>(s)))
          throw PluginError(status, take_error(status));
      };
      std::vector<size_t> here;
      if (d.segments[s].flags & MORTISE_BLOCK)
        for (size_t w = 0; w < plan_.at[kBlock].wrappers.size(); ++w) {
          const auto taken = select(plan_.at[kBlock].wrappers[w], blocks, static_cast<int>(mode));
          if (std::find(taken.begin(), taken.end(), s) != taken.end()) here.push_back(w);
        }
      segments_[s][mode] = wrapped(kBlock, mode, here, provider);
    }
    for (const auto& layer : d.layers) {
      const auto point = static_cast<uint32_t>(layer.point);
      mortise_next* provider = host_.add_link();
      const auto op = plugins_.object<mortise_operator>(static_cast<Point>(point), layer_members_[layer.index][mode]);
      provider->plugin = op.by->host;
      provider->self = op.by->self;
      provider->op = op.object;
      provider->point = layer.slot;
      std::vector<size_t> here;
      for (size_t w = 0; w < plan_.at[point].wrappers.size(); ++w) {
        const auto taken = select(plan_.at[point].wrappers[w], layers, static_cast<int>(mode));
        if (std::find(taken.begin(), taken.end(), layer.index) != taken.end()) here.push_back(w);
      }
      host_.set_layer_chain(layer, mode, wrapped(point, mode, here, provider));
    }
  }
  for (uint32_t point = 0; point < kFirstOperator; ++point)
    for (const auto& l : plan_.at[point].listeners) {
      Instance& by = plugins_.start(l.member);
      listeners_[point].push_back({plugins_.attachment(l.member, plan_.points[point].name, "listen").listen, &by});
    }
}

void Chains::check_places() const {
  Report report;
  const Declaration& d = host_.declaration();
  for (uint32_t point = kFirstOperator; point < plan_.points.size(); ++point) {
    std::vector<Element> layers;
    for (const auto& l : d.layers)
      if (l.point == static_cast<int>(point)) layers.push_back({l.path, "", l.slot, {}, {}});
    if (layers.empty()) continue;
    for (int mode = 0; mode < MORTISE_MODES; ++mode)
      assign(plan_.at[point], plan_, layers, mode, "layer", plan_.points[point].name, report);
  }
  std::vector<Element> everything = d.layer_elements();
  for (const auto& s : d.segments) everything.push_back({s.path, "", "block", {}, {}});
  for (const auto& e : d.param_elements()) everything.push_back(e);
  check_where(plan_, everything, "layer or parameter", report);
  for (const auto& found : report.all())
    if (found.level == Level::kError) throw Failure(found);
}

void Chains::notify(Point point, mortise_event event) const {
  event.struct_size = sizeof event;
  event.point = point;
  clear_error();
  for (const auto& l : listeners_[point])
    if (const mortise_status s = call_plugin({l.by->id(), plan_.points[point].name, {}}, l.fn, l.by->self,
                                             static_cast<const mortise_event*>(&event)))
      throw_from(*l.by, s, plan_.points[point].name);
}

}  // namespace mortise
