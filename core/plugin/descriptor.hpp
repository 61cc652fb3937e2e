// What must hold of a descriptor before any of it is used; checked by the probe, then again by the host.
#pragma once
#include "mortise/abi.h"

namespace mortise {

// What is wrong with it, in a few words; NULL if nothing is. A later, longer descriptor is right too.
inline const char* descriptor_fault(const mortise_plugin* plugin) {
  if (!plugin) return "mortise_plugin_v0 returned NULL";
  if (plugin->struct_size < sizeof(mortise_plugin)) return "its descriptor is shorter than that of ABI 0.1";
  if (!plugin->manifest.ptr || plugin->manifest.len == 0) return "its descriptor carries no plugin.toml";
  if (!plugin->create) return "its descriptor has no `create`";
  if (!plugin->attachments) return "its descriptor has no `attachments`";
  if (!plugin->destroy) return "its descriptor has no `destroy`";
  return nullptr;
}

}  // namespace mortise
