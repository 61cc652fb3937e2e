// What a plan says beside its structure. The core names no technique, so both are the plugins' own words, facts of
// their plugin.toml: [repeat] differs = "why bits differ from run to run", [advice] text = "what a run without it
// lacks: [the.table] to add".
#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/print.hpp"
#include "core/plan/devices.hpp"
#include "core/plan/facts.hpp"
#include "core/plan/words.hpp"

namespace mortise::cli {
using namespace words;
namespace {

const std::string* text_of(const PluginInfo& info, const std::string& table, const std::string& key) {
  const Value* fact = fact_of(info, table, key);
  return fact ? std::get_if<std::string>(&fact->data) : nullptr;
}

// Of a run that nobody has started several ranks of.
void advise_on_ranks(const Plan& plan, const Manifest& manifest, std::vector<std::string>& advice) {
  const auto &claims = plan.at[kDevice].providers, &joining = plan.at[kReplicas].providers;
  if (claims.empty() || world().size > 1) return;
  const Member* joins = joining.empty() ? nullptr : &plan.members[static_cast<size_t>(joining.back().member)];
  if (joins && joins->table && joins->table->layer > 0 && text_of(*joins->info, "ranks", "sums"))
    advice.push_back(id_of(*joins->info) + " is of several ranks, and there is one: --ranks N");
  const std::string& id = id_of(plan, claims.back().member);
  const int seen = devices_seen(info_of(plan, claims.back().member));
  if (seen < 2) return;
  advice.push_back(std::to_string(seen - 1) + (seen == 2 ? " more device of " : " more devices of ") + id +
                   (seen == 2 ? " is" : " are") + " idle: mortise train " + shell_word(manifest.path) + " --ranks " +
                   std::to_string(seen));
}

}  // namespace

std::string repeat_text(const Plan& plan) {
  std::map<std::string, std::vector<std::string>> differ;  // ids, by why
  for (const Member& member : plan.members)
    if (const std::string why = why_bits_differ(plan, *member.info); !why.empty())
      differ[why].push_back(id_of(*member.info));
  std::vector<std::string> texts;
  for (const auto& [why, ids] : differ) texts.push_back(join(ids, ", ") + " (" + why + ")");
  return "same samples in the same order; " +
         (texts.empty() ? "bits repeatable" : "bits may differ: " + join(texts, ", ")) +
         (plan.kept_out.empty() ? "" : ", for that without " + join(plan.kept_out, ", "));
}

std::vector<std::string> advice_of(const Plan& plan, const Manifest& manifest,
                                   const std::map<std::string, PluginInfo>& catalogue,
                                   std::vector<std::string> advice) {
  // Whoever wrote a table of a family, be it to switch it off, needs no advice on it. The lowest layer is nobody's
  // decision.
  std::set<std::string> decided;
  for (const PluginTable& table : manifest.plugins)
    if (table.layer > 0) decided.insert(table.schema->family);
  for (const auto& [id, info] : catalogue) {
    const std::string* text = text_of(info, "advice", "text");
    if (text && !decided.contains(info.schema.family) &&
        std::ranges::find(plan.members, &info, &Member::info) == plan.members.end())
      advice.push_back(*text);
  }
  advise_on_ranks(plan, manifest, advice);
  return advice;
}

}  // namespace mortise::cli
