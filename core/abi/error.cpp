#include "core/abi/error.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/abi/cause.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise {
namespace {

// Only a guard against lengths that are garbage: a data set crosses the edge as one text.
constexpr size_t kLongestText = size_t{1} << 40;

thread_local std::string text_of_thread, plugin_of_thread;
thread_local mortise_status status_of_thread = MORTISE_OK;
thread_local bool is_of_host = false;  // the text is of an exception of the host's own
ExceptionReader exception_reader = nullptr;
TextReader text_reader = nullptr;

mortise_status of_host(mortise_status status) {
  is_of_host = true;
  return status;
}

mortise_status status_of(const std::exception& e) {
  mortise_status status = MORTISE_E_INTERNAL;
  std::string text = e.what();
  if (exception_reader && !exception_reader(e, &status, &text)) text = e.what();
  return of_host(set_error(status, std::move(text)));
}

// Of a text that cannot be read; "" if it can.
std::string complaint_of(mortise_str text) {
  if (!text.ptr && text.len > 0) return "a text of " + std::to_string(text.len) + " bytes at NULL";
  return text.len > kLongestText ? "a text of " + std::to_string(text.len) + " bytes" : "";
}

}  // namespace

void set_exception_reader(ExceptionReader reader) { exception_reader = reader; }
void set_text_reader(TextReader reader) { text_reader = reader; }

void clear_error() {
  text_of_thread.clear();
  plugin_of_thread.clear();
  is_of_host = false;
}

mortise_status set_error(mortise_status status, std::string text) {
  if (text_reader) text_reader(&status, &text);
  text_of_thread = std::move(text);
  plugin_of_thread.clear();
  is_of_host = false;
  return status == MORTISE_OK ? MORTISE_E_PLUGIN : status;
}

std::string_view text_of(mortise_str text, std::string_view plugin) {
  if (text.len == 0) return {};
  if (const std::string complaint = complaint_of(text); !complaint.empty())
    throw PluginError(MORTISE_E_ARGUMENT, std::string(plugin) + (plugin.empty() ? "gave " : " gave ") + complaint,
                      std::string(plugin));
  return view(text);
}

std::string text_or_complaint(mortise_str text) noexcept {
  const std::string complaint = complaint_of(text);
  return complaint.empty() ? std::string(text_of(text)) : "(" + complaint + ")";
}

std::string with_cause(std::string said) {
  if (plugin_of_thread.empty() || text_of_thread.empty() || status_of_thread == MORTISE_E_NOT_FOUND) return said;
  const std::string why = ": " + plugin_of_thread + ": " + text_of_thread.substr(0, text_of_thread.find('\n'));
  return said.insert(std::min(said.find('\n'), said.size()), why);
}

std::string take_error(mortise_status status) {
  constexpr const char* kNames[] = {"OK",          "E_ARGUMENT", "E_SHAPE",  "E_UNSUPPORTED", "E_CONFIG",
                                    "E_DATA",      "E_IO",       "E_MEMORY", "E_OPERATOR",    "E_PLUGIN",
                                    "E_NOT_FOUND", "E_INTERNAL", "E_LOST"};
  const auto number = static_cast<size_t>(status);
  if (text_of_thread.empty())
    return "returned status " + std::to_string(status) +
           (number < std::size(kNames) ? std::string(" (MORTISE_") + kNames[number] + ")" : "") + " and no text";
  return std::exchange(text_of_thread, {});
}

mortise_status status_of_plugin(mortise_status returned) noexcept {
  return returned == MORTISE_E_INTERNAL && !is_of_host ? MORTISE_E_PLUGIN : returned;
}

mortise_status status_of_throw() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    return set_error(MORTISE_E_PLUGIN, std::string("an exception left the plugin: ") + e.what());
  } catch (...) {
    return set_error(MORTISE_E_PLUGIN, "an exception of an unknown type left the plugin");
  }
}

mortise_status status_of_arithmetic(uint32_t before) noexcept {
  set_arithmetic(before);
  return set_error(MORTISE_E_PLUGIN,
                   "it left this thread with another rounding of floating-point numbers, another way with the smallest "
                   "of them (flush to zero) or exceptions that trap\n  fix: set it back before you return (fesetenv)");
}

mortise_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const PluginError& e) {
    status_of_thread = set_error(e.status(), e.text());
    plugin_of_thread = e.plugin();
    return of_host(status_of_thread);
  } catch (const std::bad_alloc&) {
    return set_error(MORTISE_E_MEMORY, "out of memory");
  } catch (const std::length_error& e) {
    return set_error(MORTISE_E_MEMORY, e.what());
  } catch (const std::invalid_argument& e) {
    return set_error(MORTISE_E_ARGUMENT, e.what());
  } catch (const std::exception& e) {
    return status_of(e);
  } catch (...) {
    return of_host(set_error(MORTISE_E_INTERNAL, "an exception of an unknown type"));
  }
}

PluginError as_thrown(mortise_status status) {
  std::string plugin = std::exchange(plugin_of_thread, {});
  return {status, take_error(status), std::move(plugin)};
}

void throw_status(mortise_status status, std::string_view plugin, std::string_view what) {
  std::string innermost = std::exchange(plugin_of_thread, {});
  std::string text = take_error(status);
  text.append("\nin plugin ").append(plugin).append(", ").append(what);
  throw PluginError(status, std::move(text), innermost.empty() ? std::string(plugin) : std::move(innermost));
}

}  // namespace mortise
