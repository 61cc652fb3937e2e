// Small text: numbers and times as people read them, the nearest name, globs, escapes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mortise {

std::string formatted(const char* format, double number);  // one number, as printf has it
std::string with_commas(int64_t n);                 // 1,200
std::string short_count(double n);                  // 412k, 3.19M, 9.8k, 412
std::string byte_size(int64_t bytes);               // 1.4 GiB
std::string duration_text(double seconds);          // 12m04s, 31s, 6h44m
size_t utf8_length(std::string_view text);          // of the character that `text` begins with, in bytes; 0: it is not UTF-8
std::string escape_control(std::string_view text);  // control characters shown as \x1b
std::string join(const std::vector<std::string>& parts, std::string_view between);
std::string either(const std::vector<std::string>& parts);  // a, b or c
std::vector<std::string> split(std::string_view text, char at);
int edit_distance(std::string_view a, std::string_view b);
// The candidate within `most` edits, nearest first; "" if none is.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates, int most = 2);
// `*` matches any run of characters, dots too; `?` one; everything else itself.
bool glob_match(std::string_view pattern, std::string_view text);
std::string json_string(std::string_view text);  // with quotes

}  // namespace mortise
