#include "core/base/errors.hpp"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <vector>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

constexpr ErrorEntry kErrors[] = {
#define ERROR(code, exit, meaning, test) {#code, exit, meaning, test},
#include "core/base/errors.def"
#undef ERROR
};

}  // namespace

std::span<const ErrorEntry> all_errors() { return kErrors; }

const ErrorEntry* find_error(std::string_view code) {
  const auto found = std::ranges::find(kErrors, code, &ErrorEntry::code);
  return found == std::end(kErrors) ? nullptr : &*found;
}

std::string explain_error(const std::string& code) {
  if (const ErrorEntry* entry = find_error(code)) {
    const std::string kind = entry->exit == 0 ? "warning" : "error";
    const std::string exit = entry->exit == 0 ? "" : fmt::format("\n  exit code {}", entry->exit);
    return fmt::format("{}[{}]\n  {}{}\n", kind, entry->code, entry->meaning, exit);
  }
  std::vector<std::string> codes;
  for (const ErrorEntry& entry : kErrors) codes.emplace_back(entry.code);
  const std::string near = nearest(code, codes);
  throw Failure(mistake("unknown_code", "no error has the code `" + code + "`", {},
                        near.empty() ? "mortise explain   lists them" : "mortise explain " + near));
}

std::string errors_markdown() {
  std::string text =
      "<!-- made of core/base/errors.def by: mortise explain --markdown > docs/errors.md -->\n"
      "# Errors and warnings\n\n"
      "The code stands in brackets: `error[unknown_key]`. Most of these say what to do in their line `fix:`.\n"
      "`mortise explain CODE` prints a row of this page. An exit of 0 is a warning: the run goes on.\n\n"
      "| code | exit | what it means | seen in the test |\n|---|---|---|---|\n";
  for (const ErrorEntry& entry : kErrors) {
    text += fmt::format("| `{}` | {} | {} | `{}` |\n", entry.code, entry.exit, entry.meaning, entry.test);
  }
  return text;
}

}  // namespace mortise
