// What a run has at a key that only plugin.toml knows the name of.
#pragma once
#include "core/plan/plan.hpp"

namespace mortise {

// [TABLE] FACT = "KEY" of plugin.toml says which key of its own table holds something: its value; NULL if it has none.
const Value* value_of_fact(const Member& member, const std::string& table, const std::string& fact);
// [memory] workspaces of plugin.toml, in bytes, of all members: what libraries of the device keep for themselves.
int64_t workspaces_of(const Plan& plan);
// What whoever provides `sample` goes on from when nobody says otherwise; may be none.
std::vector<std::string> prompts_of(const Plan& plan);

// Why a plugin's bits differ from run to run on the run's device; "" if they repeat. [repeat] of plugin.toml says why:
// `differs`, whatever is asked; `unasked`, unless run.deterministic asks; `devices`, there alone.
std::string why_bits_differ(const Plan& plan, const PluginInfo& info);

// [SLOT] covers of plugin.toml: the operators that a provider of the slot computes itself, where a composite would call
// layers of them.
std::vector<std::string> covered_by(const PluginInfo& info, const std::string& slot);

// Who attaches to one of these below a layer, and so would not be called: the operator, and the plugin's member, -1 if
// there is none. Whoever wraps every point does not mind.
struct AttachedBelow {
  std::string point;
  int member = -1;
};
AttachedBelow attached_below(const Plan& plan, int provider, const std::string& slot, const std::string& path,
                             int mode);

}  // namespace mortise
