// Stand-ins for the tables that need LibTorch, where there is none: every function refuses, and notes who called it, so
// that `mortise plan` can say which plugin's declaration needs LibTorch.
#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace mortise {
namespace {

mortise_status refuse(mortise_host* h) noexcept {
  if (!h) return set_error(MORTISE_E_ARGUMENT, "called with NULL for the plugin's own host");
  PluginHost& by = plugin_of(h);
  if (by.owner->needs_tensors.empty()) by.owner->needs_tensors = by.id;
  return set_error(MORTISE_E_UNSUPPORTED, by.id + " calls for tensors, and LibTorch is not loaded");
}

template <class Function>
struct Refusing;
template <class... Arguments>
struct Refusing<mortise_status (*)(mortise_host*, Arguments...) noexcept> {
  static mortise_status call(mortise_host* h, Arguments...) noexcept { return refuse(h); }
};
template <class... Arguments>
struct Refusing<void (*)(mortise_host*, Arguments...) noexcept> {
  static void call(mortise_host*, Arguments...) noexcept {}
};

// A table whose members all refuse.
template <class Table, class... Member>
Table refusing(Member Table::*... member) {
  Table table{};
  table.struct_size = sizeof table;
  ((table.*member = &Refusing<Member>::call), ...);
  return table;
}

using Call = mortise_call_api;
using Tensor = mortise_tensor_api;
using Ops = mortise_ops_api;
using Autograd = mortise_autograd_api;
using Grads = mortise_grads_api;
using Batch = mortise_batch_api;
using Parallel = mortise_parallel_api;
using Random = mortise_random_api;
using Device = mortise_device_api;
using Params = mortise_params_api;

const Call kCall = refusing(&Call::next, &Call::layer, &Call::keep, &Call::run, &Call::drop, &Call::name,
                            &Call::provider, &Call::attribute);
const Tensor kTensor =
    refusing(&Tensor::info, &Tensor::retain, &Tensor::release, &Tensor::empty, &Tensor::written, &Tensor::read);
const Ops kOps = refusing(&Ops::find, &Ops::call, &Ops::call1);
const Autograd kAutograd = refusing(&Autograd::apply, &Autograd::save, &Autograd::saved, &Autograd::detach,
                                    &Autograd::backward, &Autograd::next_saving);
const Grads kGrads = refusing(&Grads::target, &Grads::sum, &Grads::norm);
const Batch kBatchTable = refusing(&Batch::put, &Batch::get, &Batch::name, &Batch::create, &Batch::set, &Batch::retain,
                                   &Batch::release, &Batch::to_device, &Batch::count, &Batch::set_count);
// What LibTorch will take where nobody asks.
int32_t threads_by_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const long n = text ? std::strtol(text, nullptr, 10) : 0;
  if (n > 0 && n <= INT32_MAX) return static_cast<int32_t>(n);
  return static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}
// How many threads there will be is known without them: a device says so in the plan.
mortise_status threads(mortise_host* h, int32_t* out) noexcept {
  if (!h || !out) return set_error(MORTISE_E_ARGUMENT, "called with NULL for the host or for the result");
  const int32_t set = plugin_of(h).owner->threads;
  *out = set > 0 ? set : threads_by_environment();
  return MORTISE_OK;
}
mortise_status set_threads(mortise_host* h, int32_t n) noexcept {
  if (!h) return set_error(MORTISE_E_ARGUMENT, "called with NULL for the plugin's own host");
  if (n < 1) return set_error(MORTISE_E_ARGUMENT, std::to_string(n) + " threads compute nothing");
  plugin_of(h).owner->threads = n;
  return MORTISE_OK;
}
const Parallel kParallel = {sizeof(Parallel), &Refusing<decltype(Parallel::run)>::call, threads, set_threads};
const Random kRandom = refusing(&Random::site, &Random::stream);
const Device kDeviceTable =
    refusing(&Device::stream, &Device::memory, &Device::trim, &Device::fast_products, &Device::new_stream,
             &Device::with_stream, &Device::mark, &Device::wait_for, &Device::drop_mark, &Device::record_stream);
const Params kParams = {sizeof(Params),
                        param_info_of,
                        param_by_name,
                        set_param_field,
                        &Refusing<decltype(Params::use)>::call,
                        keep_beside,
                        &Refusing<decltype(Params::slices)>::call,
                        &Refusing<decltype(Params::publish)>::call};

}  // namespace

void register_unavailable(Edge& edge) {
  edge.register_table("mortise.call/0", &kCall);
  edge.register_table("mortise.tensor/0", &kTensor);
  edge.register_table("mortise.ops/0", &kOps);
  edge.register_table("mortise.autograd/0", &kAutograd);
  edge.register_table("mortise.grads/0", &kGrads);
  edge.register_table("mortise.batch/0", &kBatchTable);
  edge.register_table("mortise.parallel/0", &kParallel);
  edge.register_table("mortise.random/0", &kRandom);
  edge.register_table("mortise.device/0", &kDeviceTable);
  edge.register_table("mortise.params/0", &kParams);
}

}  // namespace mortise
