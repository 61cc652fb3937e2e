// mortise explain [CODE]: of an error or an exit, or a key
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "core/base/errors.hpp"
#include "core/base/text.hpp"
#include "core/cli/common.hpp"
#include "core/cli/print.hpp"
#include "core/manifest/vocabulary.hpp"

namespace mortise::cli {
namespace {

using Schemas = std::map<std::string, PluginSchema>;

int exit_of(const OwnError& error) { return error.of_data ? kExitData : kExitUsage; }

nlohmann::ordered_json json(const ErrorEntry& entry) {
  return {{"code", entry.code}, {"exit", entry.exit}, {"meaning", entry.meaning}};
}

nlohmann::ordered_json json(const ExitEntry& entry) {
  return {{"exit", entry.code}, {"name", entry.name}, {"meaning", entry.meaning}, {"supervisor", entry.supervisor}};
}

nlohmann::ordered_json json(const std::string& id, const std::string& code, const OwnError& error) {
  return {{"code", code}, {"exit", exit_of(error)}, {"meaning", error.meaning}, {"plugin", id}};
}

void print_key(const std::string& table, const KeySchema& key) {
  const std::string standard = key.default_value.is_set() ? key.default_value.text() : "", takes = taken_by(key);
  if (globals().json)
    std::cout << nlohmann::ordered_json({{"key", table + "." + key.name},
                                         {"type", key.type},
                                         {"default", standard},
                                         {"takes", takes},
                                         {"change", key.change},
                                         {"meaning", key.doc}})
              << "\n";
  else
    std::cout << fmt::format("[{}] {}: {}{}{}; {} for a resumed run\n  {}\n", table, key.name, key.type,
                             takes.empty() ? "" : " (" + takes + ")",
                             standard.empty() ? "" : ", by default " + standard, key.change, escape_control(key.doc));
}

// "error[unknown_key]" and "[optimizer]", as they stand in a message or in a file.
std::string without_brackets(std::string word) {
  const size_t open = word.find('[');
  if (open == std::string::npos || !word.ends_with("]")) return word;
  return word.substr(open + 1, word.size() - open - 2);
}

// A key by its whole name, "checkpoint.keep"; a table with all of its keys; what a name from elsewhere is called here.
// False: there is none.
bool explain_key(const Arguments& args, const Schemas& schemas, const std::string& whole) {
  std::vector<std::string> names;
  ManifestRequest request = manifest_request(args, "");
  request.catalogue = &schemas;
  const Vocabulary words(request);
  const auto explain_one = [&](const std::string& name) {
    const size_t dot = std::min(name.rfind('.'), name.size());
    const KeySchema* key = words.key(name.substr(0, dot), name.substr(std::min(dot + 1, name.size())));
    if (key != nullptr) print_key(name.substr(0, dot), *key);
    return key != nullptr;
  };
  if (explain_one(whole)) return true;
  for (const auto& [name, table] : core_schema().tables)
    for (const auto& [key, schema] : table.keys) {
      if (name == whole) print_key(name, schema);
      names.push_back(name + "." + key);
    }
  for (const auto& [id, plugin] : schemas) {
    if (id == whole && !globals().json)
      std::cout << id << ": " << escape_control(plugin.summary) << (plugin.config.keys.empty() ? "; no keys\n" : "\n");
    for (const auto& [key, schema] : plugin.config.keys) {
      if (id == whole) print_key(id, schema);
      names.push_back(id + "." + key);
    }
  }
  if (core_schema().tables.contains(whole) || schemas.contains(whole)) return true;
  const std::vector<std::string> called = words.keys_called(whole), said = words.said_of(whole);
  for (const std::string& name : called) explain_one(name);
  for (const std::string& text : said) std::cout << whole << ": " << text << "\n";
  if (!called.empty() || !said.empty()) return true;
  if (whole.find('.') == std::string::npos) return false;
  const std::string near = nearest(whole, names);
  throw Failure(mistake("unknown_code", "no key is called `" + whole + "`", {},
                        near.empty() ? "mortise keys   lists them" : "mortise explain " + near));
}

// Codes that plugins tell of, by plugin; several may have the same.
template <class Take>
void each_own(const Schemas& schemas, Take take) {
  for (const auto& [id, schema] : schemas)
    for (const auto& [code, error] : schema.errors) take(id, code, error);
}

bool explain_own(const Schemas& schemas, const std::string& wanted) {
  bool found = false;
  each_own(schemas, [&](const std::string& id, const std::string& code, const OwnError& error) {
    if (code != wanted) return;
    found = true;
    if (globals().json) std::cout << json(id, code, error) << "\n";
    else
      std::cout << fmt::format("error[{}] of {}\n  {}\n  exit code {}\n", code, id, escape_control(error.meaning),
                               exit_of(error));
  });
  return found;
}

std::string own_markdown(const Schemas& schemas) {
  std::string text = "\n## Codes of plugins\n\n| code | exit | what it means | plugin |\n|---|---|---|---|\n";
  each_own(schemas, [&](const std::string& id, const std::string& code, const OwnError& error) {
    text += fmt::format("| `{}` | {} | {} | `{}` |\n", code, exit_of(error), error.meaning, id);
  });
  return text;
}

}  // namespace

int explain(const Arguments& args) {
  if (args.has("--markdown")) {
    std::cout << errors_markdown() << own_markdown(schemas_of_plugins(args));
  } else if (!args.positional.empty()) {
    const std::string code = without_brackets(args.positional[0]);
    const bool is_code = find_error(code) != nullptr || code.find_first_not_of("0123456789") == std::string::npos;
    if (!is_code) {
      const Schemas schemas = schemas_of_plugins(args);
      if (explain_own(schemas, code) || explain_key(args, schemas, code)) return kExitOk;
    }
    const std::string text = explain_error(code);
    const ExitEntry* exit = find_exit(code);
    if (!globals().json) std::cout << text;
    else std::cout << (exit != nullptr ? json(*exit) : json(*find_error(code))) << "\n";
  } else {
    for (const ErrorEntry& entry : all_errors()) {
      if (globals().json) std::cout << json(entry) << "\n";
      else std::cout << fmt::format("{:<24}{:<5}{}\n", entry.code, entry.exit, entry.meaning);
    }
    each_own(schemas_of_plugins(args), [](const std::string& id, const std::string& code, const OwnError& error) {
      if (globals().json) std::cout << json(id, code, error) << "\n";
      else std::cout << fmt::format("{:<24}{:<5}{} ({})\n", code, exit_of(error), escape_control(error.meaning), id);
    });
  }
  return kExitOk;
}

}  // namespace mortise::cli
