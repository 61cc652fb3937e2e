// Every code of an error or warning, and every exit code, with what it means: the rows of errors.def and exits.def.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace mortise {

struct ErrorEntry {
  std::string_view code;
  int exit;  // 0: a warning
  std::string_view meaning;
  std::string_view test;  // one that provokes it; "": none does
};

struct ExitEntry {
  int code;
  std::string_view name, meaning;
  std::string_view supervisor;  // what to do for who starts runs by itself
};

std::span<const ExitEntry> all_exits();
const ExitEntry* find_exit(std::string_view code);  // "76"; NULL: there is none

std::span<const ErrorEntry> all_errors();
const ErrorEntry* find_error(std::string_view code);  // NULL: there is none

// What `mortise explain CODE` prints, for the code of an error or of an exit. Throws Failure, with the nearest code, if
// there is none.
std::string explain_error(const std::string& code);
// docs/errors.md
std::string errors_markdown();

}  // namespace mortise
