// Errors that come from anywhere (an operator, a plugin's exception, a nested backward, another thread) and leave as a
// status with a text that names every plugin on the way. Inside the host they are one exception class; at the edge, one
// text a thread.
#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "core/plugin/calls.hpp"
#include "mortise/abi.h"

namespace mortise {

class PluginError : public std::exception {
 public:
  PluginError(mortise_status status, std::string text, std::string plugin = "")
      : status_(status), text_(std::move(text)), plugin_(std::move(plugin)) {}
  mortise_status status() const { return status_; }
  const std::string& plugin() const { return plugin_; }  // the innermost that failed; "" where nobody is to blame
  const std::string& text() const { return text_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  mortise_status status_;
  std::string text_, plugin_;
};

// How the text of an error ends that is `not_repeatable`: a computation that run.deterministic does not allow.
inline constexpr std::string_view kNotRepeatable = " does not give the same bits in every run";

// This thread's text, until somebody takes it. Cleared around a call of a plugin: the text of a failure that was dealt
// with is not that of the next.
void clear_error();
mortise_status set_error(mortise_status status, std::string text);
std::string take_error(mortise_status status);  // "returned status 5 (MORTISE_E_DATA) and no text" if there is none

// Exceptions of a library that this room does not know (LibTorch's): the status and the text of one, or false.
using ExceptionReader = bool (*)(const std::exception&, mortise_status* status, std::string* text);
void set_exception_reader(ExceptionReader reader);
// What such a library says in a text, whoever passes it on: a plugin that calls it, or a program. Changes both.
using TextReader = void (*)(mortise_status* status, std::string* text);
void set_text_reader(TextReader reader);

// The exception under way as a status with its text kept.
mortise_status status_of_exception() noexcept;
// This thread's error, taken, as what is thrown inside the host: it names the plugin that failed, if one did.
PluginError as_thrown(mortise_status status);

// What a plugin returned, seen by the host: its own "internal" error is not the host's.
mortise_status status_of_plugin(mortise_status returned) noexcept;
// The exception under way, which a plugin let out through its table: a failure of that plugin.
mortise_status status_of_throw() noexcept;
// Of a plugin that returned to a thread that computes in another way than before, as it does from here on: its failure.
// Whoever comes after it would compute other numbers, and nobody would notice.
mortise_status status_of_arithmetic(uint32_t before) noexcept;

// Every call of a function of a plugin. It is charged to the plugin, and no exception leaves: the tables' functions are
// `noexcept` in C++, but who calls cannot know what they were written in.
template <class... Parameters, class... Arguments>
mortise_status call_plugin(const PluginCall& call, mortise_status (*function)(Parameters...), Arguments... arguments) {
  const PluginScope scope(call.plugin, call.what, call.where);
  const uint32_t arithmetic = arithmetic_here();
  try {
    const mortise_status status = status_of_plugin(function(arguments...));
    return arithmetic_here() == arithmetic ? status : status_of_arithmetic(arithmetic);
  } catch (...) {
    return status_of_throw();
  }
}

// A struct of the caller's is filled as far as its struct_size reaches: a plugin of an older header has a shorter one.
// Throws PluginError where it says no size.
template <class T>
void fill_struct(T* out, const T& value) {
  const uint32_t size = out->struct_size;
  if (size < sizeof size) throw PluginError(MORTISE_E_ARGUMENT, "a struct is to be filled and says no struct_size");
  std::memcpy(out, &value, std::min<size_t>(size, sizeof value));
  out->struct_size = size;
}

// A text that a plugin gave. Throws PluginError where it is NULL with a length, or longer than any text is; `plugin` is
// named where nobody else will do it: of what a plugin's function returned.
std::string_view text_of(mortise_str text, std::string_view plugin = {});
// The same where nothing may be thrown: what is wrong with it instead.
std::string text_or_complaint(mortise_str text) noexcept;

// Throws what a plugin's callback returned, with one more line: "in plugin ID, WHAT".
[[noreturn]] void throw_status(mortise_status status, std::string_view plugin, std::string_view what);

// Runs `body` for the C side: no exception leaves.
template <class Body>
mortise_status guarded(Body&& body) noexcept {
  try {
    body();
    return MORTISE_OK;
  } catch (...) {
    return status_of_exception();
  }
}

// Handles that are never NULL, as a refusal calls them. A tensor may be absent, and so may the batch that another one
// is made like.
inline const char* handle(const mortise_param*) { return "the parameter"; }
inline const char* handle(const mortise_layer*) { return "the layer"; }
inline const char* handle(const mortise_builder*) { return "the builder"; }
inline const char* handle(const mortise_next*) { return "the rest of the chain: a provider has no next"; }
inline const char* handle(const mortise_kept*) { return "the call that was kept"; }
inline const char* handle(const mortise_op*) { return "the operator"; }
inline const char* handle(const mortise_node*) { return "the node"; }
inline const char* handle(const mortise_call*) { return "the call"; }

// What a plugin passes to any function of the tables: its own host, handles and texts that are there, room for a
// result.
template <class T>
void check_argument(const T& argument) {
  using Target = std::remove_pointer_t<T>;
  if constexpr (std::is_same_v<T, mortise_str>) {
    text_of(argument);
  } else if constexpr (requires { handle(argument); }) {
    if (!argument) throw PluginError(MORTISE_E_ARGUMENT, std::string("called with NULL for ") + handle(argument));
  } else if constexpr (std::is_same_v<T, mortise_host*>) {
    if (!argument) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the plugin's own host");
  } else if constexpr (std::is_pointer_v<T> && std::is_pointer_v<Target> && !std::is_const_v<Target>) {
    if (!argument) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  }
}

// An array of values, texts or tensors, whose number is the next argument: NULL only if there are none.
template <class T, class Next>
void check_array(const T& array, const Next& next) {
  constexpr bool kIsArray = std::is_same_v<T, const mortise_value*> || std::is_same_v<T, mortise_value*> ||
                            std::is_same_v<T, const mortise_str*> || std::is_same_v<T, mortise_tensor* const*>;
  if constexpr (kIsArray && std::is_same_v<Next, uint32_t>)
    if (!array && next > 0)
      throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for an array of " + std::to_string(next));
}

template <class First, class... Rest>
void check_arguments(const First& first, const Rest&... rest) {
  check_argument(first);
  if constexpr (sizeof...(Rest) > 0) {
    check_array(first, std::get<0>(std::tie(rest...)));
    check_arguments(rest...);
  }
}

template <auto function>
struct AtEdge;
template <class... Arguments, void (*function)(Arguments...)>
struct AtEdge<function> {
  static mortise_status call(Arguments... arguments) noexcept {
    return guarded([&] {
      check_arguments(arguments...);
      function(arguments...);
    });
  }
};
// A function that may throw, as the C tables hold it.
template <auto function>
constexpr auto at_edge = &AtEdge<function>::call;

}  // namespace mortise
