// Small text: numbers as people read them, the nearest name, escapes. with_commas and utf8_length are the SDK's.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/glob.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise {

std::string formatted(const char* format, double number);  // one number, as printf has it
std::string short_count(double n);                         // 412k, 3.19M, 9.8k, 412
std::string byte_size(int64_t bytes);                      // 1.4 GiB
int64_t mebibytes_in(const std::string& text);             // bytes of "64 MiB"; 0: it is no such text
std::string escape_control(std::string_view text);         // control characters shown as \x1b
std::string escape_lines(std::string_view text);           // the same, but newlines stay
std::string shell_word(const std::string& word);           // as a shell takes it, in quotes if it must be
std::string join(const std::vector<std::string>& parts, std::string_view between);
std::string either(const std::vector<std::string>& parts);  // a, b or c
std::vector<std::string> split(std::string_view text, char at);
int edit_distance(std::string_view a, std::string_view b);
// The candidate within `most` edits, nearest first; else the only one that shortens or is shortened; "" if none is.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates, int most = 2);
// FNV-1a; stable for ever, since the seeds of random streams hang on it.
uint64_t hash_text(std::string_view text);
bool is_utf8(std::string_view text);
std::string json_string(std::string_view text);  // with quotes

}  // namespace mortise
