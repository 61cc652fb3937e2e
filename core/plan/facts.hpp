// What a run has at a key that only plugin.toml knows the name of.
#pragma once
#include "core/plan/plan.hpp"

namespace mortise {

// [TABLE] FACT = "KEY" of plugin.toml says which key of its own table holds something: its value; NULL if it has none.
const Value* value_of_fact(const Member& member, const std::string& table, const std::string& fact);
// What whoever provides `sample` goes on from when nobody says otherwise; may be none.
std::vector<std::string> prompts_of(const Plan& plan);

}  // namespace mortise
