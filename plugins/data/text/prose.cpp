#include "prose.hpp"

#include <algorithm>
#include <functional>

namespace mortise {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kSlashed[] = {".c",   ".cc",   ".cpp", ".cu", ".cuh", ".cxx", ".h",
                                         ".hpp", ".java", ".js",  ".rs", ".go",  ".ts"};
constexpr std::string_view kHashed[] = {".py", ".sh", ".toml", ".cmake", ".yaml", ".yml"};

template <size_t n>
bool is_one_of(std::string_view x, const std::string_view (&all)[n]) {
  return std::find(std::begin(all), std::end(all), x) != std::end(all);
}

std::string_view trimmed(std::string_view line) {
  const size_t begin = line.find_first_not_of(kBlanks);
  return begin == line.npos ? "" : line.substr(begin, line.find_last_not_of(kBlanks) - begin + 1);
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
    for (const char c : line)
      if (c != ' ' || !text_.ends_with(' ')) text_.push_back(c);
    text_.push_back('\n');
  }
  void end() {
    if (!text_.empty() && !text_.ends_with("\n\n")) text_.push_back('\n');
  }
  std::string text() { return std::move(text_); }

 private:
  std::string text_;
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
