// Files of rows with named columns: CSV, TSV, JSONL.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mortise {

// A column that the manifest names, and the key that names it.
struct Column {
  std::string key, name;
};

struct TableFormat {
  std::string_view format;  // may be "auto"
  bool quotes = true;
};

// The cells of one row, of the wanted columns in their order, and the line on which it begins.
using TakeRow = std::function<void(size_t line, std::span<const std::string> cells)>;

// Refuses, under the key whose file it is, what is no table, and under a column's key a column that it lacks.
void read_table(std::string_view key, std::string_view file, const TableFormat& format,
                const std::vector<Column>& wanted, const TakeRow& take);

// The file's name and a line of it: "reviews.csv:17"
std::string line_of(std::string_view file, size_t line);

// A row that cannot be used.
[[noreturn]] void refuse_row(std::string_view key, const std::string& why, const std::string& fix);

}  // namespace mortise
