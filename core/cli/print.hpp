// What is printed of a plan and of the table of points: columns for people, JSON for programs, a page for the guide.
#pragma once
#include <iosfwd>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace mortise::cli {

// The sections of `mortise plan` that structure knows: who does what, around, after backward, listening, replaced.
// `details` by plugin id is what a later stage learned ("8 × H200"); without it, the keys that a manifest set, or the
// plugin's summary. Long ones are cut to what `width` columns leave them, and not below 56.
void print_structure(std::ostream& out, const Plan& plan, const std::map<std::string, std::string>& details = {},
                     size_t width = 0);
// `mortise plan --why POINT`: every edge of the order there. False if no point is called so.
bool print_why(std::ostream& out, const Plan& plan, std::string_view point);
nlohmann::ordered_json plan_json(const Plan& plan);
// "same samples in the same order; bits repeatable", or whose bits differ and why.
std::string repeat_text(const Plan& plan);
// What is usually added and is not there: lines with the table to add, behind those that there are.
std::vector<std::string> advice_of(const Plan& plan, const Manifest& manifest,
                                   const std::map<std::string, PluginInfo>& catalogue,
                                   std::vector<std::string> advice = {});

// Choices or units, and bounds: "steps, epochs; above 0, at most 100".
std::string taken_by(const KeySchema& key);

// What `mortise points` prints, and the text of docs/guide/points.md.
void print_points(std::ostream& out, const PointTable& table, bool json);
std::string points_markdown(const PointTable& table);
std::string markdown_cell(std::string_view text);  // a bar would end the cell

}  // namespace mortise::cli
