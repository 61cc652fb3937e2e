// A name for what a plan does: no word about where things were written goes into it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <set>

#include "core/base/text.hpp"
#include "core/plan/enabled_table.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

// Keys without effect on numbers make no other plan, nor do paths, which differ from machine to machine.
bool is_essential(const std::map<std::string, KeySchema>& keys, const std::string& key) {
  const auto schema = keys.find(key);
  return schema == keys.end() ||
         (schema->second.change != "free" && schema->second.type.find("path") == std::string::npos);
}

std::string lines_of(const std::string& title, const std::map<std::string, Value>& values,
                     const std::map<std::string, KeySchema>& keys) {
  std::string text;
  for (const auto& [key, value] : values)
    if (is_essential(keys, key)) text += key + " = " + value.text() + "\n";
  return text.empty() ? "" : "[" + title + "]\n" + text;
}

std::string text_of(const Selector* where, unsigned modes) {
  return (where ? Value{*where, {}}.text() : "") + " " + std::to_string(modes) + "\n";
}

// What the manifest says that is no plugin's: the core's tables, the families', the rules for parameters, the orders.
std::string essence_of(const Manifest& manifest) {
  static const std::map<std::string, KeySchema> kAll;
  std::string text;
  for (const auto& [name, values] : manifest.tables) {
    const auto schema = core_schema().tables.find(name);
    const bool every_key = name == "order" || schema == core_schema().tables.end();
    text += lines_of(name, values, every_key ? kAll : schema->second.keys);
  }
  std::set<int> layers;  // which rule is above which, not in how many files they stand
  for (const ParameterRule& rule : manifest.rules) layers.insert(rule.layer);
  for (const ParameterRule& rule : manifest.rules)
    text += lines_of("parameters." + rule.name, rule.values, core_schema().rule.keys) +
            text_of(&rule.where, kAllModes) + std::to_string(std::distance(layers.begin(), layers.find(rule.layer))) +
            "\n";
  return text;
}

std::string essence_of(const Plan& plan, const Manifest& manifest) {
  std::string text = essence_of(manifest);
  for (const Member& member : plan.members) {
    text += id_of(*member.info) + " " + member.info->version + "\n";
    if (!member.table) continue;
    text += lines_of(id_of(*member.info), member.table->values, member.info->schema.config.keys) +
            text_of(member.table->where ? &*member.table->where : nullptr, modes_of(*member.table));
  }
  const auto add = [&](const Placed& placed) {
    text += id_of(plan, placed.member) + " " + text_of(placed.where, placed.modes);
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

std::string hash_of(const Plan& plan, const Manifest& manifest) {
  const uint64_t hash = hash_text(essence_of(plan, manifest));  // the name need not resist anybody
  char digits[7];
  std::snprintf(digits, sizeof digits, "%06x", static_cast<unsigned>((hash ^ hash >> 24 ^ hash >> 48) & 0xffffff));
  return digits;
}

}  // namespace mortise
