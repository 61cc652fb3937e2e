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

constexpr ExitEntry kExits[] = {
#define EXIT(code, name, meaning, supervisor) {code, name, meaning, supervisor},
#include "core/base/exits.def"
#undef EXIT
};

}  // namespace

std::span<const ErrorEntry> all_errors() { return kErrors; }

std::span<const ExitEntry> all_exits() { return kExits; }

const ErrorEntry* find_error(std::string_view code) {
  const auto found = std::ranges::find(kErrors, code, &ErrorEntry::code);
  return found == std::end(kErrors) ? nullptr : &*found;
}

const ExitEntry* find_exit(std::string_view code) {
  const auto found =
      std::ranges::find_if(kExits, [&](const ExitEntry& entry) { return std::to_string(entry.code) == code; });
  return found == std::end(kExits) ? nullptr : &*found;
}

std::string explain_error(const std::string& code) {
  if (const ErrorEntry* entry = find_error(code)) {
    const std::string kind = entry->exit == 0 ? "warning" : "error";
    const std::string exit = entry->exit == 0 ? "" : fmt::format("\n  exit code {}", entry->exit);
    return fmt::format("{}[{}]\n  {}{}\n", kind, entry->code, entry->meaning, exit);
  }
  if (const ExitEntry* entry = find_exit(code))
    return fmt::format("exit {}: {}\n  {}\n  for what starts runs by itself: {}\n", entry->code, entry->name,
                       entry->meaning, entry->supervisor);
  if (!code.empty() && code.find_first_not_of("0123456789") == std::string::npos)
    throw Failure(mistake("unknown_code", "Mortise never ends with exit " + code, {},
                          "mortise help   lists the exit codes; above 128 a signal ended the process"));
  std::vector<std::string> codes;
  for (const ErrorEntry& entry : kErrors) codes.emplace_back(entry.code);
  const std::string near = nearest(code, codes);
  throw Failure(
      mistake("unknown_code", "no error has the code `" + code + "`", {},
              near.empty() ? "mortise explain   lists them, mortise keys the keys" : "mortise explain " + near));
}

std::string errors_markdown() {
  std::string text =
      "<!-- made of core/base/*.def and each plugin.toml by: mortise explain --markdown > docs/errors.md -->\n"
      "# Errors and warnings\n\n"
      "The code stands in brackets: `error[unknown_key]`. Most of these say what to do in their line `fix:`.\n"
      "`mortise explain CODE` prints a row of this page, for a code of an error or for an exit code.\n\n"
      "## Exit codes\n\n"
      "[How systemd and Slurm act on them](run_directory.md#what-starts-runs-by-itself).\n\n"
      "| exit | | what it means | what starts runs by itself should do |\n|---|---|---|---|\n";
  for (const ExitEntry& entry : kExits)
    text += fmt::format("| `{}` | {} | {} | {} |\n", entry.code, entry.name, entry.meaning, entry.supervisor);
  text +=
      "\n## Codes\n\n"
      "An exit of 0 is a warning: the run goes on.\n\n"
      "| code | exit | what it means | seen in the test |\n|---|---|---|---|\n";
  for (const ErrorEntry& entry : kErrors) {
    text += fmt::format("| `{}` | {} | {} | `{}` |\n", entry.code, entry.exit, entry.meaning, entry.test);
  }
  return text;
}

}  // namespace mortise
