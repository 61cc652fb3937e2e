#include "core/abi/error.hpp"

#include <new>
#include <stdexcept>
#include <utility>

namespace mortise {
namespace {
thread_local std::string text_of_thread;
ExceptionReader exception_reader = nullptr;

mortise_status status_of(const std::exception& e) {
  mortise_status status = MORTISE_E_INTERNAL;
  std::string text = e.what();
  if (exception_reader && !exception_reader(e, &status, &text)) text = e.what();
  return set_error(status, std::move(text));
}

}  // namespace

void set_exception_reader(ExceptionReader reader) { exception_reader = reader; }

void clear_error() { text_of_thread.clear(); }

mortise_status set_error(mortise_status status, std::string text) {
  text_of_thread = std::move(text);
  return status == MORTISE_OK ? MORTISE_E_PLUGIN : status;
}

std::string take_error(mortise_status status) {
  if (text_of_thread.empty()) return "returned status " + std::to_string(status) + " and no text";
  return std::exchange(text_of_thread, {});
}

mortise_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const PluginError& e) {
    return set_error(e.status(), e.text());
  } catch (const std::bad_alloc&) {
    return set_error(MORTISE_E_MEMORY, "out of memory");
  } catch (const std::length_error& e) {
    return set_error(MORTISE_E_MEMORY, e.what());
  } catch (const std::invalid_argument& e) {
    return set_error(MORTISE_E_ARGUMENT, e.what());
  } catch (const std::exception& e) {
    return status_of(e);
  } catch (...) {
    return set_error(MORTISE_E_INTERNAL, "an exception of an unknown type");
  }
}

void throw_status(mortise_status status, std::string_view plugin, std::string_view what) {
  std::string text = take_error(status);
  text.append("\nin plugin ").append(plugin).append(", ").append(what);
  throw PluginError(status, std::move(text));
}

}  // namespace mortise
