// The rows of a bench, one after another.
#pragma once
#include <string>
#include <vector>

#include "core/cli/bench/directory.hpp"
#include "core/cli/bench/matrix.hpp"

namespace mortise::cli {

// Measures the rows of `bench`, those of `matrix` that are to be measured, which are still missing; `words`: the flags
// of each. After each row the files are written, and its line of the table is printed (without -q and --json). Ends
// after the row that is under way when the person asks for it, which is then missing.
void measure_rows(const Matrix& matrix, const BenchDirectory& directory, const std::vector<std::string>& words,
                  Bench& bench);

}  // namespace mortise::cli
