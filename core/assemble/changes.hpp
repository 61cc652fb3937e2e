// How one manifest differs from another, and what each difference means for a run that is to go on: nothing (free),
// other numbers from here on (numeric), or another run (fixed).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/manifest/manifest.hpp"
#include "core/plugin/plugin_info.hpp"
#include "core/store/checkpoint.hpp"

namespace mortise {

struct Change {
  std::string key, was, is, change;  // change: free, numeric or fixed
  Position was_at, is_at;
};
std::vector<Change> changes_between(const Manifest& was, const Manifest& is,
                                    const std::map<std::string, PluginInfo>& catalogue);
// A key without a value has that of another: stated, it would not follow it any more.
bool follows(const Change& c);
// Of a run that goes on, what was said before: warnings of values that are as they were.
void drop_unchanged(std::vector<Diagnostic>& warnings, const std::vector<Change>& changes);

// What no checkpoint of the run may have otherwise, by key; a plugin that is there is "on", one that may come and go
// "on or off". Without paths, which differ from machine to machine.
using Fixed = std::map<std::string, std::string>;
Fixed fixed_of(const Manifest& manifest, const std::map<std::string, PluginInfo>& catalogue);
// It stands in every checkpoint as this file. Throws Failure (exit 65): it would be too large to be read back.
constexpr const char* kFixedFile = "fixed.json";
std::string fixed_text(const Fixed& fixed);
// Throws Failure (exit 65): the checkpoint is of a run that had something else. One that does not say is taken.
void check_fixed(const Fixed& fixed, const Found& checkpoint);

// "numeric  optimizer.lr        6e-4 -> 3e-4     gpt2.toml:24:6 (was …)", a line each.
std::vector<std::string> lines_of(const std::vector<Change>& changes);

}  // namespace mortise
