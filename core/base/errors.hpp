// Every code of an error or warning, with what it means: the rows of errors.def.
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

std::span<const ErrorEntry> all_errors();
const ErrorEntry* find_error(std::string_view code);  // NULL: there is none

// What `mortise explain CODE` prints. Throws Failure, with the nearest code, if there is no such code.
std::string explain_error(const std::string& code);
// docs/errors.md
std::string errors_markdown();

}  // namespace mortise
