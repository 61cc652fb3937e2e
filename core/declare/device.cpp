#include "core/declare/device.hpp"

#include "core/plan/devices.hpp"

namespace mortise {

int32_t device_index(const Manifest& manifest, const Plan& plan, const World& world) {
  const Claim& device = plan.at[kDevice].providers.back();
  if (device.stands_in) return 0;  // an index is that of the device that was asked for
  const auto first = static_cast<int32_t>(manifest.get("device", "index").as_int());
  const PluginInfo& info = *plan.members[static_cast<size_t>(device.member)].info;
  return world.local_size > 1 && devices_seen(info) > 1 ? first + world.local_rank : first;
}

void open_device(const Provided<mortise_device>& device, int32_t index, const Instances& instances, const Edge& edge) {
  try {
    device.call(&mortise_device::open, "open", int32_t{index});
  } catch (const PluginError& e) {
    if (e.status() != MORTISE_E_UNSUPPORTED || !edge.needs_tensors.empty()) throw;
    Diagnostic refused = instances.diagnose(e);
    refused.code = "device_unusable";
    refused.exit = kExitUnavailable;
    throw Failure(refused);
  }
}

std::optional<Diagnostic> refusal_of_device(const Manifest& manifest, const Plan& plan, const World& world,
                                            const std::string& probe, std::unique_ptr<Edge> edge) {
  Instances instances(*edge, plan, probe);
  try {
    open_device(instances.object<mortise_device>(kDevice), device_index(manifest, plan, world), instances, *edge);
  } catch (const Failure& f) {
    if (f.diagnostic.code == "device_unusable") return f.diagnostic;
  } catch (const PluginError&) {
  }
  return std::nullopt;
}

}  // namespace mortise
