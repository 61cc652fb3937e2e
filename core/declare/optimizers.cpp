#include "core/declare/optimizers.hpp"

#include <algorithm>

#include "core/base/dtype.hpp"
#include "core/plan/proof.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise {
namespace {

// A family's number for one provider: what the manifest says in the provider's own table, in the family's, or the
// plugin's default.
double family_number(const Manifest& m, const Member& member, const char* name, double otherwise) {
  if (member.table)
    if (const auto own = member.table->values.find(name); own != member.table->values.end() && own->second.is_set())
      return own->second.as_float();
  if (const Value& v = m.get("optimizer", name); v.is_set()) return v.as_float();
  const auto& defaults = member.info->schema.family_defaults;
  const auto d = defaults.find(name);
  return d == defaults.end() || !d->second.is_set() ? otherwise : d->second.as_float();
}

// What the plugin says it keeps of one parameter.
std::vector<mortise_state_spec> asked(const DeclaredOptimizer& o, const mortise_param& p) {
  // A plugin that writes a few too many is refused below; it does not write over the host's memory.
  std::vector<mortise_state_spec> specs(8 * MORTISE_MAX_STATES);
  uint32_t n = 0;
  mortise_param_info info = p.info;
  if (info.numel == 0) {  // another rank's: what that one keeps, since all gather it together
    info.sizes = p.whole_sizes().data();
    info.numel = p.whole_numel();
  }
  o.object.call(&mortise_optimizer::states, "states of " + p.name, &info, specs.data(), &n);
  if (n > MORTISE_MAX_STATES)
    throw PluginError(MORTISE_E_PLUGIN, o.by->id() + " keeps " + std::to_string(n) + " states; at most 8 can be kept",
                      o.by->id());
  specs.resize(n);
  return specs;
}

// Elements that stay together, as [optimizer] cut says. Rows are as good as the tensor: their states have other shapes.
int64_t cut_of(const PluginInfo& info, const mortise_param& p) {
  const Value* stated = fact_of(info, "optimizer", "cut");
  const std::string how = stated ? stated->as_text() : "element";
  if (how == "element") return 1;
  return how.starts_with("block:") ? std::stoll(how.substr(6)) : std::max<int64_t>(p.info.numel, 1);
}

// Of a matrix whose rows are on several ranks nobody has the norm, or the product with itself.
void refuse_cut(const DeclaredOptimizer& o, const mortise_param& p) {
  if (!p.is_placed() || p.placement.owner >= 0 || cut_of(*o.by->member->info, p) == 1) return;
  throw Failure(mistake("conflict",
                        o.by->id() + " does not update " + p.name + " element by element, and ranks along `" +
                            std::string(view(p.info.axis)) + "` have parts of it",
                        o.by->member->table ? o.by->member->table->origin : Position{}, "another optimizer for it"));
}

DeclaredOptimizer declare_one(Instances& instances, int member, std::vector<mortise_param*> params) {
  DeclaredOptimizer o;
  o.by = &instances.start(member);
  o.params = std::move(params);
  o.object = instances.object<mortise_optimizer>(kOptimizer, member);
  for (mortise_param* p : o.params) {
    if (!p->info.trainable) continue;
    refuse_cut(o, *p);
    ParamStates& beside = o.states.emplace_back(ParamStates{p, {}});
    for (const mortise_state_spec& spec : asked(o, *p)) add_state(beside, spec, o.by->id());
    if (p->is_updated_on_host()) beside.at_most = update_at_most(beside, cut_of(*o.by->member->info, *p));
  }
  return o;
}

// Throws PluginError: what the ranks update is not the parameter, each element once.
std::vector<Piece> pieces_of(const Provided<mortise_replicas>& replicas, const mortise_param& p, int64_t cut) {
  std::vector<Piece> pieces(static_cast<size_t>(p.info.replicas));
  for (int32_t rank = 0; rank < p.info.replicas; ++rank) {
    Piece& piece = pieces[static_cast<size_t>(rank)];
    replicas.call(&mortise_replicas::own, "own of " + p.name, &p.info, int64_t{cut}, int32_t{rank}, &piece.offset,
                  &piece.length);
  }
  std::vector<Piece> in_order;
  std::ranges::copy_if(pieces, std::back_inserter(in_order), [](const Piece& piece) { return piece.length != 0; });
  std::ranges::sort(in_order, {}, &Piece::offset);
  int64_t end = 0;
  for (const Piece& piece : in_order) {
    if (piece.offset != end || piece.length < 0 || piece.offset % cut != 0) break;
    end += piece.length;
  }
  if (end != p.info.numel)
    throw PluginError(MORTISE_E_PLUGIN,
                      replicas.by->id() + " does not give each element of " + p.name + " to one rank, in cuts of " +
                          std::to_string(cut),
                      replicas.by->id());
  return pieces;
}

// Decides what this rank has of a parameter.
void shard(mortise_param& p, const std::vector<Piece>& pieces, const Provided<mortise_replicas>& replicas) {
  uint32_t what = MORTISE_WHOLE;
  int64_t room = p.info.numel;
  replicas.call(&mortise_replicas::shard, "shard of " + p.name, &p.info, &what, &room);
  if (what == MORTISE_WHOLE) return;
  if (what > MORTISE_COMES_AND_GOES || room < p.info.numel)
    throw PluginError(MORTISE_E_PLUGIN,
                      replicas.by->id() + " shards " + p.name + " in no way that there is, or leaves no room for it",
                      replicas.by->id());
  p.shards = {pieces, pieces[static_cast<size_t>(p.info.replica)], room, what == MORTISE_COMES_AND_GOES};
}

void cut(DeclaredOptimizer& o, const Provided<mortise_replicas>& replicas) {
  for (ParamStates& beside : o.states) {
    mortise_param& p = *beside.param;
    beside.pieces = pieces_of(replicas, p, cut_of(*o.by->member->info, p));
    if (replicas.has(&mortise_replicas::shard)) shard(p, beside.pieces, replicas);
    const bool is_whole = std::ranges::any_of(beside.pieces, [&](const Piece& b) { return b.length == p.info.numel; });
    for (const StateSpec& s : beside.states)
      if (s.per == 0 && !is_whole)
        throw PluginError(
            MORTISE_E_PLUGIN,
            o.by->id() + " keeps the state `" + s.name +
                "` of a whole parameter, and does not say so: [optimizer] cut = \"tensor\" of plugin.toml",
            o.by->id());
  }
}

}  // namespace

std::vector<DeclaredOptimizer> declare_optimizers(Instances& instances, Declaration& d, const Manifest& manifest,
                                                  const Provided<mortise_replicas>& replicas, const Mesh& mesh,
                                                  std::vector<Group>* groups) {
  const Plan& plan = instances.plan();
  const bool is_shared = mesh.size() > 1;
  std::vector<Element> trainable;
  std::vector<mortise_param*> params;
  const auto all = d.param_elements();
  for (auto& p : d.params) {
    if (!p.info.trainable) continue;
    trainable.push_back(all[p.index]);
    params.push_back(&p);
  }
  Report report;
  const auto& claims = plan.at[kOptimizer].providers;
  const auto provider = assign(plan.at[kOptimizer], plan, trainable, MORTISE_TRAIN, "parameter", "optimizer", report);
  for (const auto& found : report.all())
    if (found.level == Level::kError) throw Failure(found);

  std::vector<DeclaredOptimizer> optimizers;
  std::vector<double> lr, decay;
  for (size_t c = 0; c < claims.size(); ++c) {
    const Member& member = plan.members[static_cast<size_t>(claims[c].member)];
    lr.push_back(family_number(manifest, member, "lr", 1e-3));
    decay.push_back(family_number(manifest, member, "weight_decay", 0.0));
    std::vector<mortise_param*> own;
    for (size_t i = 0; i < params.size(); ++i)
      if (provider[i] == static_cast<int>(c)) {
        params[i]->optimizer = static_cast<int>(c);
        own.push_back(params[i]);
      }
    optimizers.push_back(declare_one(instances, claims[c].member, std::move(own)));
    if (is_shared && replicas.has(&mortise_replicas::own)) cut(optimizers.back(), replicas);
  }
  if (is_shared && replicas.has(&mortise_replicas::shard))
    for (auto& p : d.params)
      if (!p.info.trainable) shard(p, pieces_of(replicas, p, 1), replicas);
  for (auto& p : d.params) p.counts = counts_squares(mesh, p.placement.axis, p.is_sharded());
  *groups = make_groups(d, lr, decay);
  return optimizers;
}

void shard_kept(std::vector<ParamStates>& kept, const std::string& by) {
  for (ParamStates& beside : kept) {
    beside.pieces = beside.param->shards.pieces;
    for (const StateSpec& s : beside.states)
      if (s.per == 0 && beside.param->is_sharded())
        throw PluginError(
            MORTISE_E_UNSUPPORTED,
            by + " keeps `" + s.name + "` of the whole of " + beside.param->name + ", of which each rank has a part",
            by);
  }
}

}  // namespace mortise
