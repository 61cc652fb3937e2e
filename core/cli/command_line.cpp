#include "core/cli/command_line.hpp"

#include <poll.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <system_error>

#include "core/abi/error.hpp"
#include "core/abi/lost_device.hpp"
#include "core/base/errors.hpp"
#include "core/base/progress.hpp"
#include "core/base/text.hpp"
#include "core/cli/run_directory.hpp"
#include "core/manifest/vocabulary.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/load.hpp"
#include "formats/file.hpp"

namespace mortise::cli {
namespace {

[[noreturn]] void refuse(const std::string& code, const std::string& message, std::vector<std::string> fixes) {
  Diagnostic d = mistake(code, message);
  d.fixes = std::move(fixes);
  throw Failure(d);
}

const Verb& find_verb(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& v : verbs()) {
    if (v.name == name) return v;
    names.push_back(v.name);
  }
  if (name.starts_with("-"))
    refuse("unknown_verb", "`" + name + "` stands where a verb is expected", {"mortise VERB " + shell_word(name)});
  const std::string near = nearest(name, names);
  refuse("unknown_verb", "no verb `" + name + "`", {near.empty() ? "mortise help" : "mortise " + near});
}

std::string without_dashes(const std::string& flag) {
  return flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
}

std::string as_key(const std::string& flag) {
  std::string key = without_dashes(flag);
  std::ranges::replace(key, '-', '_');
  return key;
}

// Its own, and those of manifests if it takes them.
std::vector<const Flag*> flags_of(const Verb& verb) {
  std::vector<const Flag*> all;
  for (const Flag& f : verb.flags) all.push_back(&f);
  if (verb.takes_layers)
    for (const Flag& f : layer_flags()) all.push_back(&f);
  return all;
}

// What was meant by a flag that there is not: a flag of the verb whose value is called so (--output: -o OUT), that has
// another dash, lacks an s (--rank: --ranks) or says what the key says (--max_new_tokens: --tokens); a key of the
// manifest; a flag of other verbs; a typo.
std::vector<std::string> instead_of(const Verb& verb, const std::vector<const Flag*>& flags, const std::string& name,
                                    const std::string& value) {
  const std::string key = as_key(name);
  std::string upper = key;
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::map<std::string, PluginSchema> schemas = schemas_of_plugins({});
  ManifestRequest request = manifest_request({}, "");
  request.catalogue = &schemas;
  const Vocabulary words(request);
  const std::vector<std::string> keys = words.keys_called(key);
  for (const Flag& flag : verb.flags)
    if (const std::string own = as_key(flag.name);
        !flag.value.empty() && (upper.substr(0, std::max<size_t>(flag.value.size(), 3)) == flag.value || own == key ||
                                own == key + "s" || (keys.size() == 1 && keys[0].ends_with("." + own))))
      return {flag.name + " " + (value.empty() ? flag.value : shell_word(value))};
  if (verb.takes_layers)
    if (const std::vector<std::string> typed = words.typed_for(key, value); !typed.empty()) return typed;
  std::vector<std::string> others, names;
  std::string with_value;
  for (const Verb& other : verbs())
    for (const Flag* flag : flags_of(other))
      if (flag->name == name) {
        others.push_back(other.name);
        if (!flag->value.empty()) with_value = ", with its value";
      }
  if (!others.empty()) return {"leave it out" + with_value + ": it is a flag of " + join(others, ", ")};
  for (const Flag* flag : flags) names.push_back(without_dashes(flag->name));
  const std::string near = nearest(without_dashes(name), names);
  return {near.empty() ? "mortise " + verb.name + " --help" : (near.size() == 1 ? "-" : "--") + near};
}

// `value`: what was typed behind it, if anything.
const Flag& find_flag(const Verb& verb, const std::string& name, const std::string& value) {
  std::vector<const Flag*> all = flags_of(verb);
  for (const Flag& f : global_flags()) all.push_back(&f);
  if (const auto found = std::ranges::find(all, name, &Flag::name); found != all.end()) return **found;
  refuse("unknown_flag", "`mortise " + verb.name + "` has no flag `" + name + "`", instead_of(verb, all, name, value));
}

void take_global(const std::string& name, const std::string& value) {
  Globals& g = globals();
  if (name == "-q" || name == "--json") progress_screen().out = nullptr;
  if (name == "-q") g.quiet = true;
  if (name == "--json") g.json = true;
  if (name == "--strict") g.strict = true;
  if (name == "--color") {
    if (value != "auto" && value != "always" && value != "never")
      refuse("wrong_type", "--color is auto, always or never, this is `" + value + "`", {"--color auto"});
    if (value == "auto") return;
    g.colour = value == "always";
    // Plugins that print have no other way to know.
    setenv(g.colour ? "CLICOLOR_FORCE" : "NO_COLOR", "1", /*overwrite=*/1);
    unsetenv(g.colour ? "NO_COLOR" : "CLICOLOR_FORCE");
  }
}

[[noreturn]] void refuse_words(const Verb& verb, const Arguments& args) {
  const std::string& word = args.positional[verb.most_positional];
  const std::string meant = verb.name == "keys"                    ? "explain " + shell_word(word)
                            : verb.name == "points"                ? "plan --why " + shell_word(word)
                            : args.has("--resume") && is_run(word) ? "resume " + shell_word(word)
                                                                   : verb.name + " --help";
  refuse("too_many_words",
         fmt::format("`mortise {}` takes {}; `{}` is one word too many", verb.name,
                     verb.usage.empty() ? "no word" : verb.usage, word),
         {"mortise " + meant});
}

Arguments parse(const Verb& verb, const std::vector<std::string>& words) {
  Arguments a;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i], value;
    if (name.empty())
      refuse("missing_value", "a word behind `mortise " + verb.name + "` is empty: a variable that is not set?",
             {"mortise " + verb.name + " " + verb.usage});
    if (name.size() < 2 || name[0] != '-') {
      a.positional.push_back(name);
      continue;
    }
    const size_t equals = name.rfind("--", 0) == 0 ? name.find('=') : std::string::npos;
    const bool joined = equals != std::string::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const bool is_followed = i + 1 < words.size() && words[i + 1][0] != '-';
    const Flag& flag = find_flag(verb, name, joined || !is_followed ? value : words[i + 1]);
    if (flag.value.empty() && joined)
      refuse("needless_value", "`" + name + "` takes no value, and `" + words[i] + "` gives it one",
             {"mortise " + verb.name + " --help"});
    if (!flag.value.empty() && !flag.repeats && a.has(name))
      refuse("flag_twice", "`" + name + "` is given twice, and `mortise " + verb.name + "` takes it once",
             {"leave one out"});
    if (!flag.value.empty() && !joined) {
      if (i + 1 == words.size())
        refuse("missing_value", "`" + name + "` needs a value: " + name + " " + flag.value,
               {"mortise " + verb.name + " --help"});
      value = words[++i];
    }
    if (!flag.value.empty() && value.empty())
      refuse("missing_value", "`" + name + "` has an empty value; it needs one: " + name + " " + flag.value,
             {"leave it out, or " + name + " " + flag.value});
    a.flags[name].push_back(value);
    take_global(name, value);
  }
  if (a.positional.size() > verb.most_positional) refuse_words(verb, a);
  if (a.positional.empty() && verb.usage.starts_with("DIR") && !a.has("-h") && !a.has("--help"))
    refuse("missing_word",
           "`mortise " + verb.name + "` needs a run directory" + (verb.usage == "DIR" ? "" : " or a manifest"),
           {"mortise " + verb.name + " runs/latest"});
  return a;
}

void print_flags(const std::vector<Flag>& flags) {
  for (const Flag& f : flags)
    if (!f.doc.empty())
      std::cout << fmt::format("  {:<25} {}\n", f.name + (f.value.empty() ? "" : " " + f.value), f.doc);
}

std::string names_of(const std::vector<Flag>& flags) {
  std::vector<std::string> names;
  for (const Flag& f : flags) names.push_back(f.name);
  return join(names, " ");
}

void print_verb_help(const Verb& v) {
  std::cout << fmt::format("mortise {} {}\n  {}\n\n", v.name, v.usage, v.doc);
  print_flags(v.flags);
  const std::string shared = (v.takes_layers ? names_of(layer_flags()) + " " : "") + names_of(global_flags());
  std::cout << fmt::format("  {}: mortise help flags\n\n  {}\n", shared, v.example);
}

void print_flags_help() {
  std::cout << "flags of every verb that reads a manifest\n";
  print_flags(layer_flags());
  std::cout << "\nflags of every verb\n";
  print_flags(global_flags());
}

void print_help() {
  std::cout << "mortise: a training runtime; every technique is a plugin, switched on by a table in TOML\n\n";
  for (const auto& v : verbs()) std::cout << fmt::format("  {:<33} {}\n", v.name + " " + v.usage, v.doc);
  std::cout << "\nmortise help VERB says more; --version and --prefix say which one this is, and where.\n"
               "Exit codes, of which `mortise explain CODE` says more:\n";
  for (const ExitEntry& exit : all_exits()) std::cout << fmt::format("exit {:<4} {}\n", exit.code, exit.name);
}

int help(const Arguments& args) {
  if (args.positional.empty()) print_help();
  else if (args.positional[0] == "flags") print_flags_help();
  else print_verb_help(find_verb(args.positional[0]));
  return kExitOk;
}

int run_words(const std::vector<std::string>& words, const RunVerb& run) {
  if (words.empty() || words[0] == "-h" || words[0] == "--help") {
    print_help();
    return words.empty() ? kExitUsage : kExitOk;
  }
  if (words[0] == "--version") {
    std::cout << "mortise " << MORTISE_VERSION << ", ABI " << abi_text(kOurAbi) << "\n";
    return kExitOk;
  }
  if (words[0] == "--prefix") {
    std::cout << installation().prefix << "\n";
    return kExitOk;
  }
  const Verb& verb = find_verb(words[0]);
  const Arguments args = parse(verb, {words.begin() + 1, words.end()});
  if (args.has("-h") || args.has("--help")) {
    print_verb_help(verb);
    return kExitOk;
  }
  if (verb.name == "help") return help(args);
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error)
    throw Failure(trouble(kExitIo, "no_folder", "the current folder cannot be found: " + error.message(), "",
                          "go to one that is there: cd"));
  return run(verb, args);
}

// A variable that is empty says nothing (no-color.org); 0 forces nothing (bixense.com/clicolors).
bool colour_by_environment() {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (!variable("NO_COLOR").empty()) return false;
  if (const std::string_view force = variable("CLICOLOR_FORCE"); !force.empty() && force != "0") return true;
  return stderr_is_redrawn();
}

Diagnostic out_of_memory() {
  return trouble(kExitUnavailable, "out_of_memory", "there is not enough memory to go on", "",
                 "end other programs, or raise the limit: ulimit -v, or that of the container");
}

// What an exception is that nobody on its way could read. Of LibTorch's there are such that leave a destructor.
std::optional<Diagnostic> read_uncaught() {
  const PluginError error = as_thrown(status_of_exception());
  if (!lost_device().empty()) return device_lost();
  if (error.status() != MORTISE_E_MEMORY) return std::nullopt;
  Diagnostic d = out_of_memory();
  if (error.text().starts_with("not enough memory")) d.message = error.text();
  return d;
}

const std::terminate_handler handler_before = std::get_terminate();

// Given back before a lack of memory is said, which needs some itself.
std::unique_ptr<char[]> reserve;

// A library that may throw nothing, a thread of one, or a program's own loop that nobody watches.
[[noreturn]] void end_uncaught() {
  if (std::current_exception()) {
    reserve.reset();
    if (const auto d = read_uncaught()) end_at_once(*d);
  }
  handler_before();  // says what it was
  std::abort();
}

// Whoever closed a pipe has read enough; anything else that was not written is missed. The exit code.
int say_not_written() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&out, 1, 0) == 1 && (out.revents & POLLERR)) return kExitOk;
  say(trouble(kExitIo, "not_written", "standard output cannot be written: the disk is full, or it is closed", "",
              "make room, or name another file"));
  return kExitIo;
}

void take_environment(int argc, char** argv) {
  globals().colour = colour_by_environment();
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--json")
      globals().json = true;  // also for what is wrong with the flags before it
    globals().command += (i ? " " : "") + shell_word(argv[i]);
    globals().words.push_back(argv[i]);
  }
}

}  // namespace

int command_line(int argc, char** argv, const RunVerb& run) {
  reserve.reset(new char[size_t{2} << 20]);  // more than the allocator asks the kernel for at once
  std::set_terminate(end_uncaught);
  // A reader that went away, and a file that became larger than the process may write, are errors of writing.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  take_environment(argc, argv);
  set_guard_output([](const Diagnostic& d) { say(d); }, globals().json);
  int exit = kExitOk;
  try {
    exit = run_words({argv + std::min(argc, 1), argv + argc}, run);
  } catch (const Failed& f) {
    exit = f.exit;
  } catch (const Failure& f) {
    say(f.diagnostic);
    exit = f.diagnostic.exit;
  } catch (const FormatError& e) {
    exit = kExitData;
    say(trouble(exit, e.code, e.message, e.path));
  } catch (const std::exception& e) {
    reserve.reset();
    const auto* system = dynamic_cast<const std::system_error*>(&e);
    const bool no_thread = system && system->code() == std::errc::resource_unavailable_try_again;  // no stack for one
    const Diagnostic d = no_thread
                             ? out_of_memory()
                             : read_uncaught().value_or(trouble(
                                   kExitBug, "internal", e.what(), "",
                                   "this is a mistake of ours: report it with the command line and the manifest"));
    exit = d.exit;
    say(d);
  }
  // Where a rank was lost, a thread may hang in a library that would be taken apart.
  if (!lost_device().empty() || exit == kExitResumable) leave_process(exit);
  std::cout.flush();
  if (!std::cout && exit == kExitOk) exit = say_not_written();
  return exit;
}

}  // namespace mortise::cli
