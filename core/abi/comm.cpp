// mortise.comm/0: the run's `comm`, whose object gets its own `self`; others reach it through the host.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"

namespace mortise {
namespace {

const Provided<mortise_comm>& comm_of(mortise_host* h) {
  const Provided<mortise_comm>& comm = edge_of(h).services.comm;
  if (!comm) throw PluginError(MORTISE_E_UNSUPPORTED, "a plan asks no other rank: ask in `run.begin`");
  return comm;
}

void comm_place(mortise_host* h, int32_t* rank, int32_t* size) {
  if (!rank || !size) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  *rank = edge_of(h).services.world.rank;
  *size = edge_of(h).services.world.size;
}
// As it stands now: what an older plugin does not say is 0.
mortise_collective whole(const mortise_collective* what) {
  if (!what) throw PluginError(MORTISE_E_ARGUMENT, "a collective is NULL");
  if (!MORTISE_HAS_ROOM(what, out)) throw PluginError(MORTISE_E_ARGUMENT, "a collective is begun without its size");
  mortise_collective all{};
  std::memcpy(&all, what, std::min<size_t>(what->struct_size, sizeof all));
  all.struct_size = sizeof all;
  return all;
}
void comm_start(mortise_host* h, const mortise_collective* what, mortise_work** out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where the work is to be put");
  const mortise_collective all = whole(what);
  comm_of(h).call(&mortise_comm::start, "start", &all, out);
}
void comm_start_all(mortise_host* h, const mortise_collective* const* what, uint32_t n, mortise_work** out) {
  if (n > 0 && (!what || !out)) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for collectives or works");
  std::vector<mortise_collective> all;
  for (uint32_t i = 0; i < n; ++i) all.push_back(whole(what[i]));
  const Provided<mortise_comm>& comm = comm_of(h);
  if (!comm.has(&mortise_comm::start_all)) {
    for (uint32_t i = 0; i < n; ++i) comm.call(&mortise_comm::start, "start", &all[i], out + i);
    return;
  }
  std::vector<const mortise_collective*> pointers;
  for (const mortise_collective& each : all) pointers.push_back(&each);
  comm.call(&mortise_comm::start_all, "start_all", pointers.data(), n, out);
}
void comm_wait(mortise_host* h, mortise_work* work) {
  if (!work) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the work");
  edge_of(h).services.wait(false, [&] { comm_of(h).call(&mortise_comm::wait, "wait", work); });
}
void comm_host_all_reduce(mortise_host* h, int64_t* numbers, uint32_t n, uint32_t op) {
  if (n == 0) return edge_of(h).services.must_be_there();
  if (!numbers) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the numbers");
  const Provided<mortise_comm>& comm = comm_of(h);
  edge_of(h).services.wait(true, [&] { comm.call(&mortise_comm::host_all_reduce, "host_all_reduce", numbers, n, op); });
}

void comm_axis(mortise_host* h, mortise_str name, mortise_rank_group** group, int32_t* rank, int32_t* size) {
  const Services& services = edge_of(h).services;
  const int axis = services.mesh.find(view(name));
  if (axis < 0)
    throw PluginError(MORTISE_E_NOT_FOUND, "no plugin of this run has an axis `" + std::string(view(name)) +
                                               "` ([ranks] axis of plugin.toml)");
  *group = services.groups.along.empty() ? nullptr : services.groups.along[static_cast<size_t>(axis)];
  *rank = services.mesh.place(axis);
  *size = services.mesh.axes()[static_cast<size_t>(axis)].size;
}

void comm_data_place(mortise_host* h, int32_t* rank, int32_t* size) {
  *rank = edge_of(h).services.mesh.data_rank();
  *size = edge_of(h).services.mesh.data_size();
}

}  // namespace

const mortise_comm_api kCommApi = {sizeof(mortise_comm_api), at_edge<comm_place>,           at_edge<comm_start>,
                                   at_edge<comm_wait>,       at_edge<comm_host_all_reduce>, at_edge<comm_axis>,
                                   at_edge<comm_data_place>, at_edge<comm_start_all>};

}  // namespace mortise
