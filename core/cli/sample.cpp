// mortise sample DIR
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "core/assemble/run.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/json.hpp"

namespace fs = std::filesystem;

namespace mortise::cli {
namespace {

[[noreturn]] void refuse(const std::string& code, const std::string& message, const std::string& fix) {
  throw Failure(mistake(code, message, {}, fix));
}

double number(const Arguments& args, const std::string& flag, double otherwise) {
  const std::string text = args.last(flag);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  if (*end || !(v >= 0) || v > 1e9)
    refuse("wrong_type", flag + " is a number of 0 or more, this is `" + text + "`", "mortise sample --help");
  return v;
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

}  // namespace

int sample(const Arguments& args) {
  const std::string dir = run_directory_at(args.positional[0], "sample");
  PlanSource source = source_of_run(dir);
  source.slot = "sample";
  source.weights = false;
  const auto planned = make_planned(args, source);
  std::unique_ptr<Run> run;
  with_checkpoint(dir, args.last("--checkpoint"), [&](const Verified& checkpoint) {
    run = make_run(*planned, {.purpose = Purpose::kUse, .checkpoint = checkpoint, .split = ""});
  });
  if (!run->can_sample()) refuse("nothing_provides", "nothing provides `sample`", "mortise plugin list sample");
  SampleRequest request;
  request.prompt = args.last("--prompt");
  if (!args.has("--prompt") && !isatty(0)) {
    request.prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
    while (!request.prompt.empty() && request.prompt.back() == '\n') request.prompt.pop_back();
  }
  request.tokens = static_cast<int>(whole(args, "--tokens", 1, INT32_MAX, 0));
  request.temperature = number(args, "--temperature", -1);
  request.top_k = static_cast<int>(whole(args, "--top-k", 0, INT32_MAX, -1));
  request.seed = static_cast<uint64_t>(whole(args, "--seed", 0, INT64_MAX, 0));
  std::string all;
  run->sample(request, [&](std::string_view piece) {
    if (globals().json) all += piece;
    else std::cout << piece << std::flush;
  });
  if (globals().json) std::cout << text_of({{"text", all}});
  std::cout << "\n";
  return kExitOk;
}

}  // namespace mortise::cli
