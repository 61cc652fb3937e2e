#include "core/declare/join.hpp"

#include <algorithm>
#include <climits>
#include <map>

#include "core/base/text.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/proof.hpp"

namespace mortise {
namespace {

bool records_steps(const Plan& plan) {
  return std::ranges::any_of(plan.members, [](const Member& member) {
    return std::ranges::find(member.info->wraps, "capture", &WrapInfo::band) != member.info->wraps.end();
  });
}

// [ranks] of plugin.toml: `axis` is its name, `size` the key that says how many ranks there are along it, `sees` =
// "same" that these have the same samples. Who does not train is alone.
struct Asked {
  Axis axis;
  Position at;
};
std::string said(const Axis& axis) { return axis.by + " = " + std::to_string(axis.size); }

// Two plugins may mean one axis, if they say the same of it.
void must_be_one(const Asked& first, const Asked& now) {
  if (first.axis.size == now.axis.size && first.axis.shares_data == now.axis.shares_data) return;
  Diagnostic refused =
      mistake("axes_do_not_fit", said(first.axis) + " and " + said(now.axis) + " are of one axis, " + now.axis.name,
              now.at, "one number for both");
  refused.positions.push_back(first.at);
  throw Failure(refused);
}

std::vector<Asked> axes_of(const Plan& plan, bool trains) {
  std::vector<Asked> all;
  for (const Member& member : plan.members) {
    const Value *name = fact_of(*member.info, "ranks", "axis"), *key = fact_of(*member.info, "ranks", "size");
    if (!name || !key) continue;
    const Value* size = value_of_fact(member, "ranks", "size");
    Asked asked;
    asked.axis.name = name->as_text();
    asked.axis.by = member.info->schema.id + "." + key->as_text();
    const auto* ranks = size ? std::get_if<int64_t>(&size->data) : nullptr;
    if (trains && ranks) asked.axis.size = static_cast<int>(std::min<int64_t>(*ranks, INT_MAX));
    asked.axis.shares_data = fact_of(*member.info, "ranks", "sees") != nullptr;
    if (size) asked.at = size->origin;
    const auto first = std::ranges::find(all, asked.axis.name, [](const Asked& a) { return a.axis.name; });
    if (first == all.end()) all.push_back(asked);
    else must_be_one(*first, asked);
  }
  return all;
}

void must_fit(const std::vector<Asked>& all, int ranks) {
  int64_t together = 1;
  Diagnostic refused = mistake("axes_do_not_fit", "", {}, "");
  std::vector<std::string> sizes, keys;
  for (const auto& [axis, at] : all) {
    if (axis.size == 1) continue;
    together *= together > ranks ? 1 : axis.size;  // more than there are, however many
    sizes.push_back(said(axis));
    keys.push_back("--set " + axis.by + "=1");
    refused.positions.push_back(at);
  }
  if (ranks % together == 0) return;
  refused.message = join(sizes, " and ") + (sizes.size() == 1 ? " wants" : " want") + " a number of ranks that " +
                    std::to_string(together) + " divides; there " +
                    (ranks == 1 ? "is 1" : "are " + std::to_string(ranks));
  refused.effect = "nothing was started";
  refused.fixes = {"--ranks " + std::to_string(together) + ", or a multiple", join(keys, " ")};
  throw Failure(refused);
}

mortise_rank_group* group_of(const Provided<mortise_comm>& comm, const std::vector<int32_t>& ranks) {
  mortise_rank_group* group = nullptr;
  comm.call(&mortise_comm::group, "group", ranks.data(), static_cast<uint32_t>(ranks.size()), &group);
  return group;
}

// Along an axis always in an order of their own, be it all ranks: gradients are sent meanwhile. Of those that share
// parameters the same ranks are one group.
void make_groups(Services& services) {
  const Mesh& mesh = services.mesh;
  std::map<std::vector<int32_t>, mortise_rank_group*> made;
  const auto sharers_of = [&](int axis) {
    const std::vector<int32_t> ranks = mesh.sharers(axis);
    if (std::ssize(ranks) == mesh.size()) return static_cast<mortise_rank_group*>(nullptr);
    const auto [group, is_new] = made.try_emplace(ranks);
    if (is_new) group->second = group_of(services.comm, ranks);
    return group->second;
  };
  for (int axis = 0; axis < static_cast<int>(mesh.axes().size()); ++axis) {
    services.groups.along.push_back(group_of(services.comm, mesh.along(axis)));
    services.groups.sharers.push_back(sharers_of(axis));
  }
  services.groups.data = sharers_of(-1);
}

void meet(const Declared& d, const World& world) {
  if (!d.comm.has(&mortise_comm::group))
    throw PluginError(MORTISE_E_PLUGIN, d.comm.by->id() + " is built for a `comm` of before ABI 0.2", d.comm.by->id());
  mortise_world ranks{};
  ranks.struct_size = sizeof ranks;
  ranks.rank = world.rank;
  ranks.size = world.size;
  ranks.local_rank = world.local_rank;
  ranks.local_size = world.local_size;
  ranks.port = world.port;
  ranks.listen_fd = world.listen_fd;
  ranks.address = str(world.address);
  d.comm.call(&mortise_comm::open, "open", static_cast<const mortise_world*>(&ranks));
}

void share(const Provided<mortise_comm>& comm, std::string_view key, std::string_view text) {
  comm.call(&mortise_comm::share, "share", str(key), str(text));
}
// Before a text is fetched: of a rank that ends before it has shared its own, the others hear at once as they meet; who
// fetches waits for the timeout.
void meet_again(const Provided<mortise_comm>& comm) {
  int64_t one = 1;
  comm.call(&mortise_comm::host_all_reduce, "host_all_reduce", &one, uint32_t{1}, uint32_t{MORTISE_SUM});
}
std::string fetched(const Provided<mortise_comm>& comm, std::string_view key) {
  mortise_str text{};
  comm.call(&mortise_comm::fetch, "fetch", str(key), &text);
  return std::string(view(text));
}

}  // namespace

void join_ranks(Declared& d, const DeclareRequest& request) {
  Services& services = d.edge->services;
  const std::vector<Asked> asked = axes_of(*d.plan, request.train_samples);
  must_fit(asked, request.world.size);
  std::vector<Axis> axes;
  for (const Asked& a : asked) axes.push_back(a.axis);
  services.comm = d.comm;
  services.world = request.world;
  services.mesh = Mesh(request.world.rank, request.world.size, std::move(axes));
  services.records_steps = records_steps(*d.plan);
  if (!request.open_device) return;
  meet(d, request.world);
  if (request.world.size > 1) make_groups(services);
}

std::string said_by(const Services& services, int32_t number, std::string_view key, const std::string& own) {
  const bool is_own = number == services.world.rank;
  if (is_own) share(services.comm, key, own);
  meet_again(services.comm);
  return is_own ? own : fetched(services.comm, key);
}

std::vector<std::string> said_by_each(const Services& services, const std::string& key, const std::string& own) {
  const auto of = [&](int32_t rank) { return key + "/" + std::to_string(rank); };
  share(services.comm, of(services.world.rank), own);
  meet_again(services.comm);
  std::vector<std::string> all;
  for (int32_t rank = 0; rank < services.world.size; ++rank) all.push_back(fetched(services.comm, of(rank)));
  return all;
}

void count_replicas(Declaration& declaration, const Mesh& mesh) {
  for (mortise_param& p : declaration.params) {
    const std::vector<int32_t> sharers = mesh.sharers(p.placement.axis);
    p.info.replicas = static_cast<int32_t>(sharers.size());
    p.info.replica = static_cast<int32_t>(std::ranges::find(sharers, mesh.rank()) - sharers.begin());
  }
}

std::vector<std::string> proof_of(const Declared& d) {
  if (d.edge->services.world.size == 1) return {};
  const Declaration& declaration = d.edge->declaration();
  const auto& members = d.plan->members;
  std::map<std::string, const PluginInfo*> by_id;
  for (const Member& member : members) by_id[member.info->schema.id] = member.info;
  std::vector<RankedLayer> layers;
  for (const mortise_layer& l : declaration.layers)
    if (const int member = d.layers->member(l, MORTISE_TRAIN); member >= 0)
      layers.push_back({l.path, members[static_cast<size_t>(member)].info});
  std::vector<RankedParameter> params;
  for (const mortise_param& p : declaration.params) {
    if (!p.info.trainable) continue;
    RankedParameter& ranked = params.emplace_back(RankedParameter{p.name, p.placement.axis, p.is_sharded(), {}});
    const Declarer* by = &p.declarer;
    for (; by->layer; by = &by->layer->declarer) ranked.inside.push_back({by->layer->path, by_id.at(by->id)});
    ranked.inside.push_back({"", by_id.at(by->id)});
  }
  return proof_of(*d.plan, d.edge->services.mesh, layers, params);
}

}  // namespace mortise
