// A matrix of `mortise bench`: a base manifest, and rows that are layers above it in the manifest's own syntax.
//
//   base = "run.toml"                 # relative to the matrix, as every path in it
//   [[row]]
//   name = "small batch"
//   from = "vanilla"                  # a row further up that lies between
//   program = "build/own_loop"        # runs the row's manifest in the place of `mortise train`
//   data.micro_batch_size = 1
//   [axis]                            # every combination of these runs for every row
//   optimizer = ["NAME", "OTHER"]     # a family: its plugins
//   data.micro_batch_size = [4, 8]
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/manifest/toml.hpp"

namespace mortise::cli {

// A key of a row as a line of its manifest, and where the matrix has it.
struct RowLine {
  std::string text;
  TomlPlace key, value;
};

struct MatrixRow {
  std::string name;
  std::string file;          // of its manifest, FILE.toml, and of its run directory; like no other row's
  std::string below = {};    // the file of the row that it lies on; "": the base
  std::string program = {};  // "": mortise train
  bool is_measured = true;   // false: every row on it is, by the axes
  std::vector<RowLine> lines = {};
};

struct Matrix {
  std::string base;  // absolute
  TomlPlace base_at;
  int64_t warmup = 2;  // steps that do not count in what is steady
  std::vector<MatrixRow> rows;
};

constexpr size_t kMostRows = 1000;
constexpr int64_t kMostWarmup = 1'000'000;

// Whether a key of a manifest (model.weights) is a path.
using IsPath = std::function<bool(const std::string& key)>;
// It has rows or axes, or at least the key that every matrix has.
bool is_matrix(const TomlTable& root);
// `folder`, absolute: what the paths in it are relative to. Complete only without errors in the report.
Matrix matrix_of(const TomlTable& root, const std::string& folder, const IsPath& is_path, Report& report);

// The manifest of a row, to lie beside those of the others. Its lines begin at kFirstRowLine.
constexpr int kFirstRowLine = 3;
std::string manifest_of_row(const Matrix& matrix, const MatrixRow& row);

}  // namespace mortise::cli
