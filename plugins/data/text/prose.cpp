#include "prose.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace mortise {
namespace {

constexpr std::string_view kSlashed[] = {".c",   ".cc",   ".cpp", ".cu", ".cuh", ".cxx", ".h",
                                         ".hpp", ".java", ".js",  ".rs", ".go",  ".ts"};
constexpr std::string_view kHashed[] = {".py", ".sh", ".toml", ".cmake", ".yaml", ".yml"};

template <size_t n>
bool is_one_of(std::string_view x, const std::string_view (&all)[n]) {
  return std::find(std::begin(all), std::end(all), x) != std::end(all);
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_blank(line.back())) line.remove_suffix(1);
  return line;
}

// Takes `mark` off the front; false if the text does not begin with it.
bool take(std::string_view& text, std::string_view mark) {
  if (!text.starts_with(mark)) return false;
  text.remove_prefix(mark.size());
  return true;
}

// Lines that stand together, and an empty line wherever they do not. Runs of blanks, which align columns, become one.
class Paragraphs {
 public:
  void add(std::string_view line) {
    if (line.empty()) return end();
    for (size_t run; (run = line.find("  ")) != line.npos;) {
      text_.append(line.substr(0, run + 1));
      line.remove_prefix(std::min(line.find_first_not_of(' ', run), line.size()));
    }
    text_.append(line).push_back('\n');
    ended_ = false;
  }
  void end() {
    if (!std::exchange(ended_, true)) text_.push_back('\n');
  }
  std::string text() { return std::move(text_); }

 private:
  std::string text_;
  bool ended_ = true;
};

// What stands behind the mark of a comment. Indented further, it is an example in code.
void add_comment(Paragraphs& out, std::string_view rest) {
  if (!rest.starts_with("   ")) out.add(trimmed(rest));
}

void each_line(std::string_view text, const std::function<void(std::string_view)>& body) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    body(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::string comments(std::string_view text, std::string_view mark, bool has_blocks) {
  Paragraphs out;
  bool inside = false;
  each_line(text, [&](std::string_view line) {
    line = trimmed(line);
    if (!inside && !line.starts_with(mark[0])) return out.end();  // most lines: code
    const bool opens = !inside && has_blocks && (take(line, "/**") || take(line, "/*"));
    if (!inside && !opens) {
      if (!take(line, mark) || (!has_blocks && line.starts_with('!'))) return out.end();
      line.remove_prefix(std::min(line.find_first_not_of(mark[0]), line.size()));
      return add_comment(out, line);
    }
    const size_t end = line.find("*/");
    inside = end == line.npos;
    line = line.substr(0, end);
    if (!opens) take(line, "*");
    add_comment(out, line);
  });
  return out.text();
}

std::string without_code(std::string_view markdown) {
  Paragraphs out;
  bool fenced = false;
  each_line(markdown, [&](std::string_view line) {
    const std::string_view bare = trimmed(line);
    const bool fence = bare.starts_with("```") || bare.starts_with("~~~");
    fenced = fenced != fence;
    if (fence || fenced || bare.starts_with('|') || line.starts_with("    ")) return out.end();
    out.add(bare);
  });
  return out.text();
}

}  // namespace

std::string prose(std::string_view extension, std::string_view text) {
  if (extension == ".md") return without_code(text);
  if (is_one_of(extension, kSlashed)) return comments(text, "//", true);
  if (is_one_of(extension, kHashed)) return comments(text, "#", false);
  return std::string(text);
}

}  // namespace mortise
