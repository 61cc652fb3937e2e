#include "core/cli/wait_policy.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "core/base/text.hpp"

namespace mortise::cli {
namespace {

// Below it, spinning gains nothing that was measured: docs/adr/0008.
constexpr int kManyProcessors = 8;
// Of the processors, in the mean of the last minute.
constexpr double kQuiet = 0.1;

}  // namespace

const char* policy_for(int processors, const char* loadavg) noexcept {
  char* end = nullptr;
  const double load = std::strtod(loadavg, &end);
  const bool alone = end != loadavg && load <= kQuiet * processors;
  return alone && processors >= kManyProcessors ? "" : "passive";
}

int processors_here() noexcept {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

const char* policy_here() noexcept {
  char text[64] = "";
  const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    const ssize_t length = read(file, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(file);
  }
  const int processors = processors_here();
  return policy_for(processors > 0 ? processors : kManyProcessors, text);
}

void begin_anew_waiting(const std::string& policy) {
  const char* const now = std::getenv("OMP_WAIT_POLICY");
  if (now && now == policy) return;
  setenv("OMP_WAIT_POLICY", policy.c_str(), /*overwrite=*/1);
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string> words = split(all, '\0');
  if (!words.empty()) words.pop_back();  // a zero ends each, the last one too
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());  // comes back if it cannot: then threads wait as they did
}

}  // namespace mortise::cli
