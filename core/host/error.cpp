#include "core/host/error.hpp"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <new>

namespace mortise {
namespace {
thread_local std::string text_of_thread;
}

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
  } catch (const c10::OutOfMemoryError& e) {
    return set_error(MORTISE_E_MEMORY, e.what_without_backtrace());
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    const bool memory = text.find("DefaultCPUAllocator") != text.npos;  // which throws no class of its own
    return set_error(memory ? MORTISE_E_MEMORY : MORTISE_E_OPERATOR, text);
  } catch (const std::bad_alloc&) {
    return set_error(MORTISE_E_MEMORY, "out of memory");
  } catch (const std::invalid_argument& e) {
    return set_error(MORTISE_E_ARGUMENT, e.what());
  } catch (const std::exception& e) {
    return set_error(MORTISE_E_INTERNAL, e.what());
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
