#include "core/base/diagnostic.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "core/base/text.hpp"

namespace mortise {
namespace {

constexpr int kMostPrinted = 20;

std::string_view level_name(Level level) { return level == Level::kError ? "error" : "warning"; }

std::string_view colour_of(Level level) { return level == Level::kError ? "\x1b[1;31m" : "\x1b[1;33m"; }

void print_line(std::ostream& out, std::string_view label, const std::string& text) {
  if (!text.empty()) out << "  " << label << escape_control(text) << '\n';
}

// Like a compiler: the number of the line, so that it ends where "-->" does, then the line.
void print_source(std::ostream& out, const Diagnostic& d) {
  const std::string number = std::to_string(d.positions.front().line);
  out << std::string(number.size() < 2 ? 3 : 2, ' ') << number << " | " << escape_control(d.source_line) << '\n';
}

using Json = nlohmann::ordered_json;

Json json_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json json_or_null(int number) { return number == 0 ? Json() : Json(number); }

Json json(const Position& p) {
  return {{"file", p.file},
          {"line", json_or_null(p.line)},
          {"column", json_or_null(p.column)},
          {"key", json_or_null(p.key)}};
}

// The first may be meant as an edit too.
Json json_fixes(const Diagnostic& d) {
  Json all = Json::array();
  for (const std::string& fix : d.fixes) all.push_back({{"text", fix}, {"edit", nullptr}});
  if (all.empty() || d.replace.empty() || d.positions.empty()) return all;
  const Position& at = d.positions.front();
  all[0]["edit"] = {{"file", at.file}, {"line", json_or_null(at.line)}, {"replace", d.replace}, {"with", d.with}};
  return all;
}

}  // namespace

std::string Position::text() const {
  std::string out = file;
  if (line > 0) out += ":" + std::to_string(line);
  if (line > 0 && column > 0) out += ":" + std::to_string(column);
  return out;
}

std::string Position::typed() const {
  constexpr std::string_view kTyped = "command line: ";
  return file.starts_with(kTyped) ? file.substr(kTyped.size()) : "";
}

Diagnostic mistake(std::string code, std::string message, Position at, std::string fix) {
  Diagnostic d;
  d.code = std::move(code);
  d.message = std::move(message);
  if (at) d.positions = {std::move(at)};
  if (!fix.empty()) d.fixes = {std::move(fix)};
  return d;
}

Diagnostic trouble(int exit, std::string code, std::string message, std::string at, std::string fix) {
  Diagnostic d = mistake(std::move(code), std::move(message), {}, std::move(fix));
  d.at = std::move(at);
  d.exit = exit;
  return d;
}

std::string in_place_of(std::string written, std::vector<std::string> gone) {
  std::erase(gone, "");
  return written + (gone.empty() ? "" : " in place of " + join(gone, " and "));
}

Diagnostic as_warning(Diagnostic d, std::string effect) {
  d.level = Level::kWarning;
  if (!effect.empty()) d.effect = std::move(effect);
  return d;
}

void print(std::ostream& out, const Diagnostic& d, bool colour) {
  out << (colour ? colour_of(d.level) : "") << level_name(d.level) << '[' << escape_control(d.code) << ']'
      << (colour ? "\x1b[0m" : "") << ": " << escape_control(d.message) << '\n';
  if (!d.positions.empty()) {
    out << "  --> ";
    for (const Position& p : d.positions)
      out << (&p == &d.positions.front() ? "" : " and ") << escape_control(p.text());
    if (!d.beside.empty()) out << "    " << escape_control(d.beside);
    out << '\n';
    if (!d.source_line.empty() && d.positions.front().line > 0) print_source(out, d);
  }
  for (const std::string& line : d.lines) print_line(out, "", line);
  print_line(out, "at: ", d.at);
  print_line(out, "holds: ", d.holds);
  print_line(out, "effect: ", d.effect);
  for (const std::string& fix : d.fixes) print_line(out, &fix == &d.fixes.front() ? "fix: " : "     ", fix);
  print_line(out, "see: ", d.see);
}

void print_json(std::ostream& out, const Diagnostic& d) {
  Json also = Json::array();
  for (size_t i = 1; i < d.positions.size(); ++i) also.push_back(json(d.positions[i]));
  const Json object = {{"level", level_name(d.level)},
                       {"code", d.code},
                       {"message", d.message},
                       {"at", d.positions.empty() ? Json() : json(d.positions.front())},
                       {"also", also},
                       {"beside", json_or_null(d.beside)},
                       {"lines", d.lines},
                       {"context", json_or_null(d.at)},
                       {"holds", json_or_null(d.holds)},
                       {"effect", json_or_null(d.effect)},
                       {"fix", json_fixes(d)},
                       {"see", json_or_null(d.see)},
                       {"plugin", json_or_null(d.plugin)},
                       {"rank", nullptr},
                       {"step", nullptr},
                       {"exit", d.exit}};
  // ASCII alone: a terminal obeys characters that JSON leaves as they are. What is no UTF-8 becomes U+FFFD.
  out << object.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) << '\n';
}

void Report::add(Diagnostic d) {
  if (d.level == Level::kError) ++errors_;
  all_.push_back(std::move(d));
}

int Report::exit_code() const {
  for (const Diagnostic& d : all_)
    if (d.level == Level::kError) return d.exit;
  return kExitOk;
}

void Report::print(std::ostream& out, bool colour, std::string_view closing) const {
  int printed = 0;
  bool first = true;
  for (const Diagnostic& d : all_) {
    if (d.level == Level::kError && printed++ >= kMostPrinted) continue;
    if (!first) out << '\n';
    first = false;
    mortise::print(out, d, colour);
  }
  if (errors_ > kMostPrinted)
    out << "\n… and " << errors_ - kMostPrinted << (errors_ == kMostPrinted + 1 ? " more error" : " more errors")
        << "; --json prints them all\n";
  if (errors_ > 0 && !closing.empty())
    out << '\n' << errors_ << (errors_ == 1 ? " error; " : " errors; ") << closing << '\n';
}

void Report::print_json(std::ostream& out) const {
  for (const Diagnostic& d : all_) mortise::print_json(out, d);
}

}  // namespace mortise
