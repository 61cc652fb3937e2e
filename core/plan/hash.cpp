// The plan's name: the same for the same plugins, order and values, wherever they were written.
#include <cstdint>
#include <cstdio>

#include "core/plan/holding.hpp"
#include "core/plan/words.hpp"

namespace mortise {
using namespace words;
namespace {

std::string text_of(const Selector* where) {
  if (!where) return "all";
  return join(where->match, ",") + "-" + join(where->except, ",") + "/" + std::to_string(where->every) + "+" + std::to_string(where->from);
}

// Keys that have no effect on numbers do not count, nor do paths, which differ from machine to machine.
void add_values(std::string& text, const Member& member) {
  if (!member.table) return;
  for (const auto& [key, value] : member.table->values) {
    const auto schema = member.info->schema.config.keys.find(key);
    const bool counts =
        schema == member.info->schema.config.keys.end() || (schema->second.change != "free" && schema->second.type.find("path") == std::string::npos);
    if (counts) text += " " + key + "=" + value.text();
  }
}

std::string text_of(const Plan& plan) {
  std::string text;
  for (const Member& member : plan.members) {
    text += id_of(*member.info) + " " + member.info->version;
    add_values(text, member);
    text += "\n";
  }
  const auto place = [&](int member, const Selector* where, unsigned modes) {
    text += " " + id_of(plan, member) + " " + text_of(where) + " " + modes_text(modes) + "\n";
  };
  for (uint32_t point = 0; point < plan.points.size(); ++point) {
    text += plan.points[point].name + "\n";
    for (const Claim& claim : plan.at[point].providers) {
      place(claim.member, claim.where, claim.modes);
      for (int choice : claim.choices) place(choice, claim.where, claim.modes);
    }
    for (const auto* list : {&plan.at[point].wrappers, &plan.at[point].listeners})
      for (const Attached& attached : *list) {
        text += attached.band;
        place(attached.member, attached.where, attached.modes);
      }
  }
  return text;
}

}  // namespace

std::string hash_of(const Plan& plan) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the name need not resist anybody
  for (unsigned char byte : text_of(plan)) hash = (hash ^ byte) * 0x100000001b3;
  char digits[7];
  std::snprintf(digits, sizeof digits, "%06x", static_cast<unsigned>((hash ^ hash >> 24 ^ hash >> 48) & 0xffffff));
  return digits;
}

}  // namespace mortise
