#include "core/base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "core/base/progress.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

// Lines on stderr are for people: no time. The lock guards only the pointers; spdlog's sinks lock themselves.
struct Log {
  std::mutex lock;
  std::shared_ptr<spdlog::sinks::sink> screen = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::shared_ptr<spdlog::sinks::sink> file;
  spdlog::level::level_enum least = spdlog::level::info;
  Log() {
    screen->set_pattern(stderr_is_redrawn() ? "\r\x1b[K%v" : "%v");  // a line that shows progress may stand there
  }
};

// Never destroyed: threads of plugins may log until the process is gone.
Log& the_log() {
  static Log& log = *new Log;
  return log;
}

constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::err, spdlog::level::warn, spdlog::level::info,
                                                 spdlog::level::debug};

}  // namespace

void log(LogLevel level, std::string_view line) try {
  Log& log = the_log();
  const std::string shown = escape_lines(line);
  const spdlog::details::log_msg message("", kLevels[static_cast<size_t>(level)], shown);
  const std::lock_guard guard(log.lock);
  if (message.level < log.least) return;
  for (const auto& sink : {log.screen, log.file}) {
    if (!sink) continue;
    sink->log(message);
    sink->flush();
  }
} catch (const std::exception&) {
  // A full disk must not end a run because of its log.
}

void set_log_level(LogLevel least) {
  const std::lock_guard guard(the_log().lock);
  the_log().least = kLevels[static_cast<size_t>(least)];
}

bool set_log_file(const std::string& path) try {
  std::shared_ptr<spdlog::sinks::sink> file;
  if (!path.empty()) {
    file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  }
  const std::lock_guard guard(the_log().lock);
  the_log().file = file;
  return true;
} catch (const std::exception&) {
  return false;
}

}  // namespace mortise
