#include "core/declare/device.hpp"

namespace mortise {

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

std::optional<Diagnostic> refusal_of_device(const Manifest& manifest, const Plan& plan, const std::string& probe,
                                            std::unique_ptr<Edge> edge) {
  Instances instances(*edge, plan, probe);
  try {
    const auto index = static_cast<int32_t>(manifest.get("device", "index").as_int());
    open_device(instances.object<mortise_device>(kDevice), index, instances, *edge);
  } catch (const Failure& f) {
    if (f.diagnostic.code == "device_unusable") return f.diagnostic;
  } catch (const PluginError&) {
  }
  return std::nullopt;
}

}  // namespace mortise
