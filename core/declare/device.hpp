// The run's device is opened, or asked beforehand whether it can be.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "core/abi/instances.hpp"
#include "core/base/world.hpp"
#include "core/manifest/manifest.hpp"
#include "mortise/objects.h"

namespace mortise {

// Which of several devices of one kind this rank has. Of several ranks on a host each has its own, from device.index
// on; whoever is shown a single one has that.
int32_t device_index(const Manifest& manifest, const Plan& plan, const World& world);

// Throws Failure, device_unusable, where the device says that it cannot run here; else PluginError.
void open_device(const Provided<mortise_device>& device, int32_t index, const Instances& instances, const Edge& edge);

// Why the device of this plan cannot run here, as it says itself: it is opened, with nothing else of the run. Nothing:
// it can. What else may be wrong with it is said when the run opens it.
std::optional<Diagnostic> refusal_of_device(const Manifest& manifest, const Plan& plan, const World& world,
                                            const std::string& probe, std::unique_ptr<Edge> edge);

}  // namespace mortise
