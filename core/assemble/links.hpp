// The plan as links: for each point, block and layer, and each mode, the wrappers around the provider.
#pragma once
#include "core/declare/declared.hpp"
#include "core/host/host.hpp"
#include "core/loop/chains.hpp"

namespace mortise {

// Every segment and layer, and every call point that has a provider by now. Throws PluginError.
void link_all(Chains& chains, Host& host, const Declared& d);
// One call point, whose provider is there now.
void link_point(Chains& chains, Host& host, const Declared& d, uint32_t point);

}  // namespace mortise
