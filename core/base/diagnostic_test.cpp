#include "core/base/diagnostic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace mortise {
namespace {

std::string printed(const Diagnostic& d, bool colour = false) {
  std::ostringstream out;
  print(out, d, colour);
  return out.str();
}

Diagnostic unknown_key() {
  Diagnostic d;
  d.code = "unknown_key";
  d.message = "[data.text] has no key `batch_size`";
  d.positions = {{"my.toml", 6, 1, "data.text.batch_size"}};
  d.fixes = {"samples that one device handles at once are `micro_batch_size` in [data]",
             "samples of a whole step are `global_batch_size` in [step.accumulation]"};
  return d;
}

TEST(Diagnostic, AlignsTheLinesOfAFix) {
  EXPECT_EQ(printed(unknown_key()),
            "error[unknown_key]: [data.text] has no key `batch_size`\n"
            "  --> my.toml:6:1\n"
            "  fix: samples that one device handles at once are `micro_batch_size` in [data]\n"
            "       samples of a whole step are `global_batch_size` in [step.accumulation]\n");
}

TEST(Diagnostic, ShowsTheLineOfTheFile) {
  Diagnostic d;
  d.code = "wrong_type";
  d.message = "optimizer.lr is a number, this is text";
  d.positions = {{"run.toml", 11, 6, "optimizer.lr"}};
  d.source_line = "lr = \"3e-4\"";
  d.fixes = {"lr = 3e-4"};
  EXPECT_EQ(printed(d),
            "error[wrong_type]: optimizer.lr is a number, this is text\n"
            "  --> run.toml:11:6\n"
            "  11 | lr = \"3e-4\"\n"
            "  fix: lr = 3e-4\n");
  d.positions[0].line = 3;
  EXPECT_NE(printed(d).find("\n   3 | lr"), std::string::npos);
}

TEST(Diagnostic, HasEveryLineOfTheForm) {
  Diagnostic d;
  d.level = Level::kWarning;
  d.code = "example";
  d.message = "both sides \x1b of a conflict";
  d.positions = {{"run.toml", 14, 1, ""}, {"default of data.padding", 0, 0, ""}};
  d.beside = "512 / 6 = 85.3";
  d.at = "step 3";
  d.holds = "weights 1,278 MiB";
  d.effect = "it was not loaded";
  d.fixes = {"one"};
  d.see = "mortise explain conflict";
  EXPECT_EQ(printed(d),
            "warning[example]: both sides \\x1b of a conflict\n"
            "  --> run.toml:14:1 and default of data.padding    512 / 6 = 85.3\n"
            "  at: step 3\n"
            "  holds: weights 1,278 MiB\n"
            "  effect: it was not loaded\n"
            "  fix: one\n"
            "  see: mortise explain conflict\n");
}

TEST(Diagnostic, UsesColourOnlyWhenAsked) {
  EXPECT_EQ(printed(unknown_key()).find('\x1b'), std::string::npos);
  EXPECT_EQ(printed(unknown_key(), true).substr(0, 26), "\x1b[1;31merror[unknown_key]\x1b");
}

TEST(Diagnostic, IsAnObjectInJson) {
  Diagnostic d;
  d.code = "unknown_key";
  d.message = "[optimizer] has no key `learning_rate`";
  d.positions = {{"my.toml", 10, 1, "optimizer.learning_rate"}};
  d.fixes = {"it is called `lr` here"};
  d.replace = "learning_rate";
  d.with = "lr";
  std::ostringstream out;
  print_json(out, d);
  EXPECT_EQ(out.str(),
            R"({"level":"error","code":"unknown_key","message":"[optimizer] has no key `learning_rate`",)"
            R"("at":{"file":"my.toml","line":10,"column":1,"key":"optimizer.learning_rate"},"also":[],"beside":null,)"
            R"("lines":[],"context":null,"holds":null,"effect":null,"fix":[{"text":"it is called `lr` here",)"
            R"("edit":{"file":"my.toml","line":10,"replace":"learning_rate","with":"lr"}}],)"
            R"("see":null,"plugin":null,"rank":null,"step":null,"exit":64})"
            "\n");
}

// Nothing that comes from outside, in whatever field, reaches a terminal as it is.
TEST(Diagnostic, EscapesEveryField) {
  const std::string hostile = "a\u009b31m\n\x1b[2J\x07\u202e\xff";
  Diagnostic d;
  for (std::string* field : {&d.code, &d.message, &d.beside, &d.source_line, &d.at, &d.holds, &d.effect, &d.see})
    *field = hostile;
  d.positions = {{hostile, 1, 1, hostile}, {hostile, 0, 0, hostile}};
  d.lines = d.fixes = {hostile, hostile};
  d.plugin = d.replace = d.with = hostile;
  const std::string text = printed(d);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11) << text;
  std::ostringstream out_json;
  print_json(out_json, d);
  const std::string json = out_json.str();
  for (const std::string& out : {text, json})
    for (const char* control : {"\x1b", "\x07", "\u009b", "\u202e", "\xff"})
      EXPECT_EQ(out.find(control), std::string::npos) << out;
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 1);
}

TEST(Position, IsWrittenAsPeopleTypeIt) {
  EXPECT_EQ((Position{"my.toml", 6, 1, ""}).text(), "my.toml:6:1");
  EXPECT_EQ((Position{"my.toml", 6, 0, ""}).text(), "my.toml:6");
  const Position typed{"command line: --set a.b=1", 0, 0, ""};
  EXPECT_EQ(typed.text(), "command line: --set a.b=1");
  EXPECT_EQ(typed.typed(), "--set a.b=1");
  EXPECT_EQ((Position{"my.toml", 6, 0, ""}).typed(), "");
}

TEST(Report, EndsWithTheNumberOfErrors) {
  Report report;
  std::ostringstream none;
  report.print(none, false, "nothing was started.");
  EXPECT_EQ(none.str(), "");
  EXPECT_EQ(report.exit_code(), 0);

  Diagnostic d;
  d.code = "example";
  d.message = "m";
  d.exit = kExitData;
  report.add(d);
  std::ostringstream one;
  report.print(one, false, "nothing was started.");
  EXPECT_EQ(one.str(), "error[example]: m\n\n1 error; nothing was started.\n");
  EXPECT_EQ(report.exit_code(), 65);

  report.add(d);
  std::ostringstream two;
  report.print(two, false, "nothing was started.");
  EXPECT_EQ(two.str(), "error[example]: m\n\nerror[example]: m\n\n2 errors; nothing was started.\n");
}

TEST(Report, PrintsTwentyErrorsAndCountsTheRest) {
  Report report;
  Diagnostic d;
  d.code = "example";
  for (int i = 0; i < 23; ++i) report.add(d);
  std::ostringstream out;
  report.print(out, false, "nothing was started.");
  EXPECT_EQ(report.errors(), 23);
  EXPECT_TRUE(out.str().ends_with(
      "error[example]: \n\n… and 3 more errors; --json prints them all\n\n23 errors; nothing was started.\n"));
}

TEST(Report, CountsErrorsOnly) {
  Report report;
  Diagnostic d;
  d.level = Level::kWarning;
  d.code = "example";
  report.add(d);
  EXPECT_FALSE(report.has_errors());
  std::ostringstream out;
  report.print(out, false, "nothing was started.");
  EXPECT_EQ(out.str(), "warning[example]: \n");
}

}  // namespace
}  // namespace mortise
