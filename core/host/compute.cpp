// mortise.parallel/0 and mortise.random/0.
#include <ATen/Parallel.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/base/text.hpp"
#include "core/host/host.hpp"
#include "core/host/tables.hpp"

namespace mortise {
namespace {

void parallel_run(mortise_host*, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t) noexcept, void* user) {
  if (!body) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for what is to run");
  const PluginCall* call = current_call();
  at::parallel_for(0, n, std::max<int64_t>(grain, 1), [&](int64_t begin, int64_t end) {
    const PluginScope scope(call);
    body(user, begin, end);
  });
}

void parallel_threads(mortise_host*, int32_t* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  *out = at::get_num_threads();
}

void parallel_set_threads(mortise_host*, int32_t n) {
  if (n < 1) throw PluginError(MORTISE_E_ARGUMENT, std::to_string(n) + " threads compute nothing");
  at::set_num_threads(n);
}

// Murmur's finaliser over the four coordinates of a site: neighbours end far apart.
uint32_t mix(uint32_t segment, uint32_t layer, uint32_t nth, uint32_t draw) {
  uint64_t h = (uint64_t{segment} << 32 | layer) * 0x9E3779B97F4A7C15u ^ (uint64_t{nth} << 32 | draw);
  h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
  h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
  return static_cast<uint32_t>(h ^ h >> 33);
}

void begin_place(mortise_philox* place, Host& host, uint64_t stream) {
  const uint64_t key = host.seed() * 0x9E3779B97F4A7C15u ^ stream;
  place->key[0] = static_cast<uint32_t>(key);
  place->key[1] = static_cast<uint32_t>(key >> 32);
  place->step = static_cast<uint32_t>(host.services.clock.attempted);
}

void random_site(mortise_host* h, const mortise_call* call, uint32_t draw, mortise_philox* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  const Frame* f = current_frame();
  if (!f || !call->layer) throw PluginError(MORTISE_E_ARGUMENT, "random bits are drawn inside an operator's call");
  Host& host = host_of(h);
  static const uint64_t stream = hash_text("operators");
  begin_place(out, host, stream);
  out->site = mix(f->segment ? static_cast<uint32_t>(f->segment->segment) : ~0u, call->layer->index, f->nth, draw);
  const Mesh& mesh = host.services.mesh;  // one rank alone would take them all in this order
  out->micro = static_cast<uint32_t>(call->micro * mesh.data_size() + mesh.data_rank());
}

void random_stream(mortise_host* h, mortise_str name, mortise_philox* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  Host& host = host_of(h);
  const uint64_t place = hash_text(view(name));
  begin_place(out, host, hash_text(plugin_of(h).id));
  out->site = mix(static_cast<uint32_t>(place >> 32), static_cast<uint32_t>(place), 0, 0);
  // Each part of a parameter that ranks have cut has bits of its own.
  const mortise_param* const p = host.declaration().find(view(name));
  out->micro = p && p->is_placed() && p->placement.owner < 0 ? static_cast<uint32_t>(p->placement.rank) : 0;
}

}  // namespace

const mortise_parallel_api kParallelApi = {sizeof(mortise_parallel_api), at_edge<parallel_run>,
                                           at_edge<parallel_threads>, at_edge<parallel_set_threads>};
const mortise_random_api kRandomApi = {sizeof(mortise_random_api), at_edge<random_site>, at_edge<random_stream>};

}  // namespace mortise
