// Values of type `path`, from what is written to absolute names: ~/, ${NAME}, ${NAME:-default}, relative to the file
// that states them, globs.
#pragma once
#include <string>
#include <vector>

#include "core/manifest/value.hpp"

namespace mortise {

// Replaces what `value` (type `path` or `list<path>`) says by absolute paths; in a list, globs by what they match,
// sorted. `folder` is absolute. One that matches nothing is a mistake, or stays if `keep_unmatched`.
void resolve_paths(Value& value, const std::string& folder, Report& report, bool keep_unmatched = false);

// What a pattern with *, ? and ** (any folders) matches, sorted. No wildcard enters a run directory. An existing file
// is itself, whatever characters its name has.
std::vector<std::string> expand_glob(const std::string& pattern);

std::string absolute_path(const std::string& path, const std::string& folder);
std::string current_folder();

}  // namespace mortise
