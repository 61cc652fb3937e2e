// Errors that come from anywhere (an operator, a plugin's exception, a nested backward, another thread) and leave as a
// status with a text that names every plugin on the way. Inside the host they are one exception class; at the edge, one
// text a thread.
#pragma once
#include <exception>
#include <string>
#include <string_view>

#include "mortise/abi.h"

namespace mortise {

class PluginError : public std::exception {
 public:
  PluginError(mortise_status status, std::string text) : status_(status), text_(std::move(text)) {}
  mortise_status status() const { return status_; }
  const std::string& text() const { return text_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  mortise_status status_;
  std::string text_;
};

// This thread's text, until somebody takes it. Cleared around a call of a plugin: the text of a failure that was dealt
// with is not that of the next.
void clear_error();
mortise_status set_error(mortise_status status, std::string text);
std::string take_error(mortise_status status);  // "returned status 3 and no text" if there is none

// Exceptions of a library that this room does not know (LibTorch's): the status and the text of one, or false.
using ExceptionReader = bool (*)(const std::exception&, mortise_status* status, std::string* text);
void set_exception_reader(ExceptionReader reader);

// The exception under way as a status with its text kept.
mortise_status status_of_exception() noexcept;

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

template <auto function>
struct AtEdge;
template <class... Arguments, void (*function)(Arguments...)>
struct AtEdge<function> {
  static mortise_status call(Arguments... arguments) noexcept {
    return guarded([&] { function(arguments...); });
  }
};
// A function that may throw, as the C tables hold it.
template <auto function>
constexpr auto at_edge = &AtEdge<function>::call;

}  // namespace mortise
