#include "core/base/text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace mortise {
std::string formatted(const char* format, double number) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, number);
  return buffer;
}

namespace {

std::string without_trailing_zeros(std::string number) {
  if (number.find('.') == std::string::npos) return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

// Characters that would move the cursor or reorder what a reader sees: controls, ends of lines, and the marks that turn
// the direction of text.
bool is_hidden(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]) < 0x20 || character[0] == 0x7f;
  if (character.size() == 2) return character[0] == '\xc2' && character[1] < '\xa0';
  const std::string_view hidden[] = {"\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b", "\u202c",
                                     "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"};
  return std::ranges::find(hidden, character) != std::end(hidden);
}

// The number of a character of one to three bytes.
unsigned code_point(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0);
  if (character.size() == 2) return (byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
  return (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
}

}  // namespace

std::string short_count(double n) {
  if (!std::isfinite(n)) return "?";
  const char* const suffixes[] = {"", "k", "M", "B", "T"};
  size_t power = 0;
  // 999.5 would already print as 1000.
  for (; std::fabs(n) >= 999.5 && power + 1 < std::size(suffixes); ++power) n /= 1000;
  const double size = std::fabs(n);
  const char* format = size >= 99.95 ? "%.0f" : size >= 9.995 ? "%.1f" : "%.2f";
  return without_trailing_zeros(formatted(format, n)) + suffixes[power];
}

int64_t mebibytes_in(const std::string& text) {
  const int64_t n = std::atoll(text.c_str());
  return n > 0 && n < 1 << 20 && text == std::to_string(n) + " MiB" ? n << 20 : 0;
}

std::string byte_size(int64_t bytes) {
  if (bytes > -1024 && bytes < 1024) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  const char* const suffixes[] = {" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  double size = static_cast<double>(bytes) / 1024;
  size_t power = 0;
  for (; std::fabs(size) >= 1023.5 && power + 1 < std::size(suffixes); ++power) size /= 1024;
  return without_trailing_zeros(formatted(std::fabs(size) < 99.95 ? "%.1f" : "%.0f", size)) + suffixes[power];
}

std::string escape_control(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    if (length != 0 && !is_hidden(character)) out += character;
    else
      for (const char byte : character) {
        char buffer[8];
        std::snprintf(buffer, sizeof buffer, "\\x%02x", static_cast<unsigned char>(byte));
        out += buffer;
      }
    text.remove_prefix(character.size());
  }
  return out;
}

std::string escape_lines(std::string_view text) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) line = escape_control(line);
  return join(lines, "\n");
}

std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i != 0) out += between;
    out += parts[i];
  }
  return out;
}

std::string either(const std::vector<std::string>& parts) {
  if (parts.size() < 2) return join(parts, "");
  return join({parts.begin(), parts.end() - 1}, ", ") + " or " + parts.back();
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

namespace {
// "optim" of "optimizer", "quitting" of "quit": one has all letters of the other in their order, and begins as it does.
bool shortens(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a.size() < 4 || a.size() * 3 < b.size() || a[0] != b[0]) return false;
  size_t found = 0;
  for (const char c : b) found += found < a.size() && c == a[found] ? 1 : 0;
  return found == a.size();
}
}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates, int most) {
  std::string best;
  int best_distance = most + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(name.size(), candidate.size()), shorter = std::min(name.size(), candidate.size());
    if (longer - shorter >= static_cast<size_t>(best_distance)) continue;
    const int distance = edit_distance(name, candidate);
    // Of a short name, half must still be there: `x` is not a typo of `lr`.
    if (distance >= best_distance || static_cast<size_t>(distance) * 2 > longer) continue;
    best = candidate;
    best_distance = distance;
  }
  if (!best.empty()) return best;
  for (const std::string& candidate : candidates) {
    if (!shortens(name, candidate)) continue;
    if (!best.empty()) return "";
    best = candidate;
  }
  return best;
}

bool is_utf8(std::string_view text) {
  size_t length = 1;
  for (; !text.empty() && length > 0; text.remove_prefix(length)) length = utf8_length(text);
  return length > 0;
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    text.remove_prefix(character.size());
    if (length == 0) out += "\\ufffd";
    else if (character == "\"" || character == "\\") (out += '\\') += character;
    else if (character == "\n") out += "\\n";
    else if (character == "\t") out += "\\t";
    else if (is_hidden(character)) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", code_point(character));
      out += buffer;
    } else {
      out += character;
    }
  }
  return out += '"';
}

uint64_t hash_text(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

}  // namespace mortise
