// A name for what a plan does: no word about where things were written goes into it.
#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// Keys without effect on numbers make no other plan, nor do paths, which differ from machine to machine.
bool is_essential(const PluginInfo& info, const std::string& key) {
  const auto schema = info.schema.config.keys.find(key);
  return schema == info.schema.config.keys.end() ||
         (schema->second.change != "free" && schema->second.type.find("path") == std::string::npos);
}

std::string essence_of(const Plan& plan) {
  std::string text;
  for (const Member& member : plan.members) {
    text += id_of(*member.info) + " " + member.info->version + "\n";
    if (!member.table) continue;
    for (const auto& [key, value] : member.table->values)
      if (is_essential(*member.info, key)) text += key + " = " + value.text() + "\n";
  }
  const auto add = [&](const Placed& placed) {
    const std::string where = placed.where ? Value{*placed.where, {}}.text() : "";
    text += id_of(plan, placed.member) + " " + where + " " + std::to_string(placed.modes) + "\n";
  };
  for (uint32_t i = 0; i < plan.points.size(); ++i) {
    text += plan.points[i].name + "\n";
    for (const Claim& claim : plan.at[i].providers) {
      add(claim);
      for (int choice : claim.choices) text += id_of(plan, choice) + "\n";
    }
    std::ranges::for_each(plan.at[i].wrappers, add);
    std::ranges::for_each(plan.at[i].listeners, add);
  }
  return text;
}

}  // namespace

std::string hash_of(const Plan& plan) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the name need not resist anybody
  for (unsigned char byte : essence_of(plan)) hash = (hash ^ byte) * 0x100000001b3;
  char digits[7];
  std::snprintf(digits, sizeof digits, "%06x", static_cast<unsigned>((hash ^ hash >> 24 ^ hash >> 48) & 0xffffff));
  return digits;
}

}  // namespace mortise
