// What of a file is prose: sentences for people.
#pragma once
#include <string>
#include <string_view>

namespace mortise {

// Of source files the comments that have lines of their own, without their marks and without the code in them; of
// Markdown all but tables and blocks of code; of any other file the whole. `extension` as in ".cpp".
std::string prose(std::string_view extension, std::string_view text);

}  // namespace mortise
