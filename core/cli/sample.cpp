// mortise sample DIR
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"
#include "core/plan/facts.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

constexpr const char* kTokenizerSlot = "tokenizer";

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::string& fix) {
  throw Failure(mistake(code, message, {}, fix));
}

double number(const Arguments& args, const std::string& flag, double most, double otherwise) {
  const std::string text = args.last(flag);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (*end || !(v >= 0) || v > most)
    refuse("wrong_type", flag + " is a number of 0 or more, this is `" + text + "`", "mortise sample --help");
  return v;
}

// 0 would leave nothing to draw from.
double share(const Arguments& args, const std::string& flag) {
  const double v = number(args, flag, HUGE_VAL, -1);
  if (v == 0 || v > 1)
    refuse("wrong_type", flag + " is a number above 0, at most 1, this is `" + args.last(flag) + "`",
           "mortise sample --help");
  return std::max(v, 0.0);
}

// No number loses anything on its way to the plugin.
int64_t whole(const Arguments& args, const std::string& flag, int64_t least, int64_t most, int64_t otherwise) {
  const std::string text = args.last(flag);
  if (text.empty()) return otherwise;
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || v < least || v > most)
    refuse("wrong_type",
           flag + " is a whole number from " + std::to_string(least) + " to " + std::to_string(most) + ", this is `" +
               text + "`",
           "mortise sample --help");
  return v;
}

// A prompt a line; lines without anything are none.
void add_lines(std::istream& in, std::vector<std::string>& prompts) {
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) prompts.push_back(line);
  }
}

// Those of the command line, else of standard input, else the plugin's own: "" where nobody can say which these are.
std::vector<std::string> prompts_for(const Arguments& args, const Plan& plan) {
  std::vector<std::string> prompts = args.all("--prompt");
  if (const std::string file = args.last("--prompt-file"); !file.empty()) {
    std::ifstream in(file);
    if (std::error_code error; !in || fs::is_directory(file, error)) {
      Diagnostic d = mistake("cannot_read", "`" + escape_control(file) + "` cannot be read",
                             {"command line: --prompt-file " + file, 0, 0, ""}, "a file with a prompt a line");
      d.exit = kExitIo;
      throw Failure(d);
    }
    add_lines(in, prompts);
    if (prompts.empty()) refuse("missing_value", "`" + escape_control(file) + "` has no prompt", "--prompt TEXT");
  } else if (prompts.empty() && !isatty(0)) {
    add_lines(std::cin, prompts);
  }
  if (prompts.empty()) prompts = prompts_of(plan);
  if (prompts.empty()) prompts.emplace_back();
  return prompts;
}

SampleRequest request_of(const Arguments& args) {
  SampleRequest request;
  request.tokens = static_cast<int>(whole(args, "--tokens", 1, INT32_MAX, 0));
  request.temperature = number(args, "--temperature", 1e9, -1);
  request.top_k = static_cast<int>(whole(args, "--top-k", 0, INT32_MAX, -1));
  request.top_p = share(args, "--top-p");
  request.stop = args.all("--stop");
  request.seed = static_cast<uint64_t>(whole(args, "--seed", 0, INT64_MAX, 0));
  return request;
}

// A plugin that reads tokenizers from files says so in plugin.toml: [tokenizer] path is its key, and `file` what such a
// file is called in a folder.
bool reads(const PluginInfo& info, const fs::path& path) {
  const Value *key = fact_of(info, kTokenizerSlot, "path"), *file = fact_of(info, kTokenizerSlot, "file");
  std::error_code error;
  return key && file && (fs::is_regular_file(path, error) || fs::is_regular_file(path / file->as_text(), error));
}

// --tokenizer FOLDER, FILE or NAME, as the --use and --set of the plugin that is meant.
void use_tokenizer(const std::string& named, Arguments& args) {
  Report quiet;
  std::vector<std::string> searched, names;
  std::map<std::string, PluginInfo> plugins = catalogue(args, nullptr, searched, quiet);
  std::erase_if(plugins, [](const auto& p) { return !std::ranges::count(p.second.schema.provides, kTokenizerSlot); });
  for (const auto& [id, info] : plugins) {
    if (!reads(info, named)) continue;
    args.flags["--use"].push_back(id);
    args.flags["--set"].push_back(id + "." + fact_of(info, kTokenizerSlot, "path")->as_text() + "=" +
                                  json_string(fs::absolute(named).lexically_normal().string()));
    return;
  }
  for (const auto& [id, info] : plugins) {
    if (fact_of(info, kTokenizerSlot, "path")) continue;  // it is called by its file
    if (named == id || named == info.schema.name) return args.flags["--use"].push_back(id);
    names.push_back("--tokenizer " + info.schema.name);
  }
  Diagnostic d = mistake("no_tokenizer", "`" + escape_control(named) + "` is no tokenizer that is here",
                         {"command line: --tokenizer " + named, 0, 0, ""},
                         "a folder with its tokenizer.json. Mortise does not download: hf download OWNER/NAME "
                         "tokenizer.json --local-dir " +
                             shell_word(named));
  if (!names.empty()) d.fixes.push_back(either(names));
  throw Failure(d);
}

}  // namespace

int sample(const Arguments& asked) {
  // It comes token by token, each from those before it: there is nothing to share out.
  must_be_alone("a text is made by one", "each process would have given the same text");
  Arguments args = asked;
  if (args.has("--tokenizer")) use_tokenizer(args.last("--tokenizer"), args);
  const std::string dir = run_directory_at(args.positional[0], "sample");
  SampleRequest request = request_of(args);
  PlanSource source = source_of_run(dir);
  source.slot = "sample";
  source.weights = false;
  const auto planned = make_planned(args, source);
  settle_device(*planned);
  std::unique_ptr<Run> run;
  with_checkpoint(dir, args.last("--checkpoint"), [&](const Verified& checkpoint) {
    run = make_run(*planned, {.purpose = Purpose::kUse, .checkpoint = checkpoint, .split = ""});
  });
  if (!run->can_sample()) refuse("nothing_provides", "nothing provides `sample`", "mortise plugin list sample");
  for (const std::string& prompt : prompts_for(args, planned->plan)) {
    request.prompt = prompt;
    std::string all;
    run->sample(request, [&](std::string_view piece) {
      if (globals().json) all += piece;
      else std::cout << piece << std::flush;
    });
    if (globals().json) std::cout << text_of({{"prompt", prompt}, {"text", all}});
    std::cout << std::endl;
    ++request.text;
  }
  return kExitOk;
}

}  // namespace mortise::cli
