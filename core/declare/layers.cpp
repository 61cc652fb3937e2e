#include "core/declare/layers.hpp"

#include <algorithm>
#include <utility>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/model/declaration.hpp"
#include "core/plan/compute_dtype.hpp"

namespace mortise {
namespace {

Element element_of(const mortise_layer& l) { return {l.path, "", l.slot, {}, {}}; }

}  // namespace

std::vector<Element> elements_at(const Declaration& d, uint32_t point, std::vector<uint32_t>* index_of) {
  std::vector<Element> all;
  for (const auto& l : d.layers) {
    if (l.around || l.point != static_cast<int>(point)) continue;
    all.push_back(element_of(l));
    if (index_of) index_of->push_back(l.index);
  }
  return all;
}

// A layer that asks for what its provider does not know would be another one than it asked for.
LayerProviders::Answer LayerProviders::knows_attributes(const Provided<mortise_operator>& op,
                                                        const mortise_layer& layer) {
  const Value* list = fact_of(*op.by->member->info, layer.slot, "attributes");
  std::vector<std::string> known;
  if (list)
    for (const Value& name : list->as_list()) known.push_back(name.as_text());
  for (const mortise_attr& a : layer.attrs)
    if (const std::string key(view(a.key)); std::ranges::find(known, key) == known.end())
      return {false, "it knows no attribute `" + key + "` of " + layer.slot,
              "another provider, or " + op.by->id() + "'s plugin.toml lists it: [" + layer.slot + "] attributes"};
  return {};
}

LayerProviders::Answer LayerProviders::supports(const Provided<mortise_operator>& op, const mortise_layer& layer,
                                                uint32_t mode) const {
  if (const Answer known = knows_attributes(op, layer); !known.yes || !op.has(&mortise_operator::supports))
    return known;
  mortise_place place{};
  place.struct_size = sizeof place;
  place.mode = mode;
  place.path = str(layer.path);
  place.compute_dtype = dtype_named(planned_compute_dtype(instances_.plan(), static_cast<int>(mode)));
  place.device = device_;
  place.attrs = layer.attrs.data();
  place.n_attrs = static_cast<uint32_t>(layer.attrs.size());
  int yes = 1;
  mortise_str why{}, fix{};
  op.call(&mortise_operator::supports, "supports of " + layer.slot, &place, &yes, &why, &fix);
  return {yes != 0, std::string(text_of(why, op.by->id())), std::string(text_of(fix, op.by->id()))};
}

void LayerProviders::cannot_run(const std::string& id, const mortise_layer& layer, const Answer& answer,
                                const Position& at) const {
  Diagnostic d = mistake("cannot_run_here", id + " cannot run at " + layer.path + ": " + answer.why, at, answer.fix);
  const auto& members = instances_.plan().members;
  const auto member = std::ranges::find(members, id, [](const Member& m) { return m.info->schema.id; });
  if (member->table && !member->table->fallback.empty())
    d.fixes.push_back("write [" + member->table->fallback.front() +
                      "] itself: `fallback` counts only where the machine lacks what " + id + " needs");
  throw Failure(d);
}

int LayerProviders::choose(const Claim& claim, const mortise_layer& layer, uint32_t mode) {
  if (claim.choices.empty()) return claim.member;
  const std::string& chooser = id_of(claim.member);
  std::vector<std::string> reasons;
  for (const int candidate : claim.choices) {
    const auto op = instances_.object<mortise_operator>(static_cast<Point>(layer.point), candidate);
    const Answer a = supports(op, layer, mode);
    if (!a.yes) {
      reasons.push_back(op.by->id() + ": " + a.why);
      continue;
    }
    auto& chosen = chosen_[chooser];
    if (std::ranges::find(chosen, op.by->id()) == chosen.end()) chosen.push_back(op.by->id());
    return candidate;
  }
  cannot_run(chooser, layer, {false, join(reasons, "; "), ""}, claim.origin);
}

LayerProviders::Taken LayerProviders::taken_by_claims(const mortise_layer& layer) {
  Taken taken;
  const Element element = element_of(layer);
  for (const Claim& claim : instances_.plan().at[static_cast<size_t>(layer.point)].providers) {
    if (claim.where && !selections_.try_emplace(&claim, *claim.where).first->second.takes(element)) continue;
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode)
      if (claim.modes >> mode & 1) taken.claims[mode].push_back(&claim);
  }
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    if (taken.claims[mode].empty())
      throw Failure(mistake("nothing_provides", "nothing provides `" + layer.slot + "` at " + layer.path, {},
                            "mortise plugin list names what is installed"));
    taken.members[mode] = choose(*taken.claims[mode].front(), layer, mode);
  }
  return taken;
}

LayerProviders::Taken LayerProviders::taken_inside(const mortise_layer& layer, const std::string& asking) {
  Taken taken;
  const Taken& around = taken_[layer.around->index];
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    taken.members[mode] = -1;
    if (around.members[mode] < 0 || id_of(around.members[mode]) != asking) continue;  // never called in this mode
    taken.claims[mode] = {around.claims[mode].begin() + 1, around.claims[mode].end()};
    if (taken.claims[mode].empty())
      throw Failure(mistake("nothing_provides",
                            "nothing provides `" + layer.slot + "` at " + layer.path + " inside " + asking,
                            around.claims[mode].front()->origin,
                            "a `where` in [" + asking + "]: it wraps what another table provides there"));
    taken.members[mode] = choose(*taken.claims[mode].front(), layer, mode);
    std::vector<std::string>& ids = inside_[asking];
    if (const std::string& id = id_of(taken.members[mode]); std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return taken;
}

const std::string& LayerProviders::id_of(int member) const {
  return instances_.plan().members[static_cast<size_t>(member)].info->schema.id;
}

// A provider whose inner layer is its own to provide again would go on without an end.
void LayerProviders::check_depth(const Declarer& here) {
  constexpr int kDeepest = 16;
  int depth = 0;
  std::map<std::string, std::vector<const mortise_layer*>> layers_of;  // innermost first
  for (const Declarer* d = &here; d->layer; d = &d->layer->declarer, ++depth) layers_of[d->id].push_back(d->layer);
  if (depth <= kDeepest) return;
  const auto& [id, layers] =
      *std::ranges::max_element(layers_of, {}, [](const auto& each) { return each.second.size(); });
  Diagnostic d =
      trouble(kExitPlugin, "plugin_failed",
              id + " declares `" + layers.front()->slot + "` inside `" + layers.back()->slot + "` at " +
                  layers.back()->path + ", and again inside that, more than " + std::to_string(kDeepest) + " deep",
              "", "give its table a `where` that does not take the layers that it declares itself");
  d.plugin = id;
  throw Failure(d);
}

void LayerProviders::declare(mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec) {
  Taken taken = layer.around ? taken_inside(layer, builder.declarer.id) : taken_by_claims(layer);
  // A provider may ask for nested layers before this returns; a deque keeps `layer` where it is.
  if (taken_.size() <= layer.index) taken_.resize(layer.index + 1);
  const auto& members = (taken_[layer.index] = std::move(taken)).members;
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    const auto same = std::find(members.begin(), members.begin() + mode, members[mode]);
    if (same != members.begin() + mode) layer.data[mode] = layer.data[static_cast<size_t>(same - members.begin())];
    else if (members[mode] >= 0) declare_in(mode, builder, layer, spec);
  }
}

void LayerProviders::declare_in(uint32_t mode, mortise_builder& builder, mortise_layer& layer,
                                const mortise_layer_spec& spec) {
  const auto op = instances_.object<mortise_operator>(static_cast<Point>(layer.point), member(layer, mode));
  if (const Answer a = supports(op, layer, mode); !a.yes) {
    const auto* table = op.by->member->table;
    cannot_run(op.by->id(), layer, a, table ? table->origin : Position{});
  }
  if (!op.has(&mortise_operator::forward))
    throw PluginError(MORTISE_E_PLUGIN, op.by->id() + " has no function `forward` of " + layer.slot, op.by->id());
  if (!op.has(&mortise_operator::declare)) return;
  const Declarer outside = std::exchange(builder.declarer, {&layer, op.by->id()});
  check_depth(builder.declarer);
  op.call(&mortise_operator::declare, "declare of " + layer.slot + " at " + layer.path, &builder, &spec,
          &layer.data[mode]);
  builder.declarer = outside;
}

void LayerProviders::check() const {
  Report report;
  const Plan& plan = instances_.plan();
  const Declaration& d = edge_.declaration();
  for (uint32_t point = kFirstOperator; point < plan.points.size(); ++point) {
    const std::vector<Element> layers = elements_at(d, point);
    if (layers.empty()) continue;
    for (int mode = 0; mode < MORTISE_MODES; ++mode)
      assign(plan.at[point], plan, layers, mode, "layer", plan.points[point].name, report);
  }
  std::vector<Element> everything = d.layer_elements();
  for (const auto& s : d.segments)
    if (s.flags & MORTISE_BLOCK) everything.push_back({s.path, "", "block", {}, {}});
  for (const auto& e : d.param_elements()) everything.push_back(e);
  check_where(plan, everything, "layer or parameter", report);
  for (const auto& found : report.all())
    if (found.level == Level::kError) throw Failure(found);
}

}  // namespace mortise
