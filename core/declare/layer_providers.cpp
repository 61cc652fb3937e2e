#include "core/declare/layer_providers.hpp"

#include <algorithm>
#include <utility>

#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "core/model/declaration.hpp"
#include "core/plan/compute_dtype.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/words.hpp"

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
  place.is_recorded = edge_.services.records_steps && mode == MORTISE_TRAIN;
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
                      "] itself: `fallback` is for a machine that lacks what " + id +
                      " needs, or for bits that must repeat");
  throw Failure(d);
}

// Those to choose from, in their order; last of all who is made for other modes.
std::vector<int> LayerProviders::in_order(const Claim& claim, const mortise_layer& layer, uint32_t mode) const {
  std::vector<int> choices = claim.choices;
  std::ranges::stable_partition(choices, [&](int candidate) {
    const Value* best_in = fact_of(words::info_of(instances_.plan(), candidate), layer.slot, "best_in");
    return !best_in || words::contains(best_in->as_texts(), std::string(words::kModes[mode]));
  });
  return choices;
}

int LayerProviders::choose(const Claim& claim, const mortise_layer& layer, uint32_t mode) {
  if (claim.choices.empty()) return claim.member;
  const std::string& chooser = id_of(claim.member);
  std::vector<std::string> reasons;
  for (const int candidate : in_order(claim, layer, mode)) {
    const auto op = instances_.object<mortise_operator>(static_cast<Point>(layer.point), candidate);
    const Answer a = supports(op, layer, mode);
    if (!a.yes || gives_way(candidate, layer, mode)) {
      reasons.push_back(op.by->id() + ": " + (a.yes ? "kept apart at " + apart_[op.by->id()].back() : a.why));
      continue;
    }
    auto& chosen = chosen_[chooser];
    if (std::ranges::find(chosen, op.by->id()) == chosen.end()) chosen.push_back(op.by->id());
    return candidate;
  }
  cannot_run(chooser, layer, {false, join(reasons, "; "), ""}, claim.origin);
}

bool LayerProviders::gives_way(int member, const mortise_layer& layer, uint32_t mode) {
  const Plan& plan = instances_.plan();
  const AttachedBelow below = attached_below(plan, member, layer.slot, layer.path, static_cast<int>(mode));
  if (below.member < 0) return false;
  std::vector<std::string>& apart = apart_[id_of(member)];
  const std::string at = layer.path + ", for " + id_of(below.member);
  if (std::ranges::find(apart, at) == apart.end()) apart.push_back(at);
  return true;
}

void LayerProviders::check_covered(const Claim& claim, const mortise_layer& layer, uint32_t mode) {
  if (!claim.choices.empty()) return;
  const Plan& plan = instances_.plan();
  const AttachedBelow below = attached_below(plan, claim.member, layer.slot, layer.path, static_cast<int>(mode));
  if (below.member < 0) return;
  const std::string &whole = id_of(claim.member), &part = id_of(below.member);
  Diagnostic d = mistake("covered",
                         whole + " computes `" + layer.slot + "` at " + layer.path + " as one, and " + part +
                             " attaches to `" + below.point + "` inside it",
                         claim.origin,
                         "a `where` that leaves " + layer.path + " to one of them: [" + whole + "] or [" + part + "]");
  if (const auto* table = plan.members[static_cast<size_t>(below.member)].table) d.positions.push_back(table->origin);
  throw Failure(d);
}

LayerProviders::Claims LayerProviders::claims_on(const mortise_layer& layer) {
  Claims claims;
  const Element element = element_of(layer);
  for (const Claim& claim : instances_.plan().at[static_cast<size_t>(layer.point)].providers) {
    if (claim.where && !selections_.try_emplace(&claim, *claim.where).first->second.takes(element)) continue;
    for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode)
      if (claim.modes >> mode & 1) claims[mode].push_back(&claim);
  }
  return claims;
}

bool LayerProviders::is_declared_by(const Declarer& declarer, uint32_t mode) const {
  const int member = taken_[declarer.layer->index].members[mode];
  return member >= 0 && id_of(member) == declarer.id;
}

LayerProviders::Taken LayerProviders::taken(const mortise_layer& layer) {
  Taken taken{layer.around ? taken_[layer.around->index].claims : claims_on(layer), {}};
  for (const Declarer* d = &layer.declarer; d->layer; d = &d->layer->declarer)
    for (uint32_t mode = 0; d->layer->point == layer.point && mode < MORTISE_MODES; ++mode)
      if (is_declared_by(*d, mode)) std::erase(taken.claims[mode], taken_[d->layer->index].claims[mode].front());
  for (uint32_t mode = 0; mode < MORTISE_MODES; ++mode) {
    taken.members[mode] = -1;
    if (layer.around && !is_declared_by(layer.declarer, mode)) continue;  // never called in this mode
    if (taken.claims[mode].empty()) nothing_provides(layer);
    check_covered(*taken.claims[mode].front(), layer, mode);
    taken.members[mode] = choose(*taken.claims[mode].front(), layer, mode);
    if (!layer.around) continue;
    std::vector<std::string>& ids = inside_[layer.declarer.id];
    if (const std::string& id = id_of(taken.members[mode]); std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  return taken;
}

void LayerProviders::nothing_provides(const mortise_layer& layer) const {
  const std::string what = "nothing provides `" + layer.slot + "` at " + layer.path;
  for (const Declarer* d = &layer.declarer; d->layer; d = &d->layer->declarer) {
    if (d->layer->point != layer.point) continue;
    const auto member =
        std::ranges::find(instances_.plan().members, d->id, [](const Member& m) { return m.info->schema.id; });
    const std::string& path = d->layer->path;
    const size_t dot = path.rfind('.');
    throw Failure(mistake("nothing_provides", what + " inside " + d->id,
                          member->table ? member->table->origin : Position{},
                          "[" + d->id + "] where = \"" + (dot == path.npos ? path : "*" + path.substr(dot)) +
                              "\", or others: inside its own layers it needs what another table provides"));
  }
  throw Failure(mistake("nothing_provides", what, {}, "mortise plugin list names what is installed"));
}

const std::string& LayerProviders::id_of(int member) const {
  return instances_.plan().members[static_cast<size_t>(member)].info->schema.id;
}

void LayerProviders::declare(mortise_builder& builder, mortise_layer& layer, const mortise_layer_spec& spec) {
  // A provider may ask for nested layers before this returns; a deque keeps `layer` where it is.
  if (taken_.size() <= layer.index) taken_.resize(layer.index + 1);
  const auto& members = (taken_[layer.index] = taken(layer)).members;
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
  op.call(&mortise_operator::declare, "declare of " + layer.slot + " at " + layer.path, &builder, &spec,
          &layer.data[mode]);
  builder.declarer = outside;
}

// Who only wraps what the model has none of would change nothing, in silence.
static void check_wrappers(const Plan& plan, const Declaration& d, Report& report) {
  const auto is_called = [&](const WrapInfo& wrap) {
    const auto point = static_cast<uint32_t>(plan.points.find(wrap.point));
    if (point == kBlock) return std::ranges::any_of(d.segments, [](auto& s) { return s.flags & MORTISE_BLOCK; });
    return point < kFirstOperator || !elements_at(d, point).empty();
  };
  for (const Member& m : plan.members) {
    const PluginInfo& info = *m.info;
    const bool only_wraps = info.schema.provides.empty() && info.listens.empty() && !info.wraps.empty();
    if (!m.table || !only_wraps || std::ranges::any_of(info.wraps, is_called)) continue;
    report.add(mistake("nothing_to_wrap",
                       info.schema.id + " wraps `" + info.wraps.front().point + "`, and the model has none",
                       m.table->origin, "leave it out"));
  }
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
  check_wrappers(plan, d, report);
  for (const auto& found : report.all())
    if (found.level == Level::kError) throw Failure(found);
}

}  // namespace mortise
