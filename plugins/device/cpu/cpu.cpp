// The host's processor: how many threads compute, what it is called, and memory as the kernel counts it.
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "load.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

// The rest of the first line that begins with `name`, without blanks, tabs and the colon; "" if there is none.
std::string line_of(const char* file, std::string_view name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) {
      const size_t begin = line.find_first_not_of(" \t:", name.size());
      return begin == std::string::npos ? "" : line.substr(begin);
    }
  return "";
}
int64_t number_of(const char* file, std::string_view name = "") {
  return std::strtoll(line_of(file, name).c_str(), nullptr, 10);
}

int processors_we_may_use() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));  // more processors than cpu_set_t holds
}

// "AMD EPYC 9654 96-Core Processor", "Intel Xeon Platinum 8480C"; where the kernel does not say, the architecture.
std::string processor() {
  std::string name = line_of("/proc/cpuinfo", "model name");
  for (const std::string_view noise : {"(R)", "(TM)", "(r)", "(tm)", " CPU"})
    for (size_t at; (at = name.find(noise)) != std::string::npos;) name.erase(at, noise.size());
  name = name.substr(0, name.find(" @ "));
  utsname system{};
  return !name.empty() ? name : uname(&system) == 0 ? system.machine : "unknown processor";
}

class Cpu {
 public:
  void open(int32_t index) {
    if (index != 0)
      throw Error(MORTISE_E_CONFIG,
                  "device.cpu has no device " + std::to_string(index) + ": the processor is one device, 0");
    const int n = set_threads();
    about_ = std::to_string(n) + (n == 1 ? " thread, " : " threads, ") + processor();
    threads_ = n;
  }

  // Asked of a run that is going to start: what is noted before that stands in front of the errors of one that is not.
  void describe(mortise_str* about) {
    *about = str(about_);
    if (threads_ > 0) note_of_load(std::exchange(threads_, 0));
  }

  void memory(int64_t* used, int64_t* peak, int64_t* total) {
    int64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    *used = resident * sysconf(_SC_PAGESIZE);
    *peak = std::max(*used, number_of("/proc/self/status", "VmHWM") * 1024);
    *total = number_of("/proc/meminfo", "MemTotal") * 1024;
    // A container may have less ("max" or no file: it has not).
    for (const char* limit : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
      if (const int64_t bytes = number_of(limit); bytes > 0) *total = std::min(*total, bytes);
  }

 private:
  // As the manifest says, else as many as LibTorch chose. Returns what computation uses from now on.
  static int set_threads() {
    const mortise_value asked = config::get("threads");
    if (!MORTISE_HAS(api.parallel, set_threads)) {
      if (asked.tag != MORTISE_NONE)
        config::refuse("threads", "this host lets no plugin set the number of threads", "OMP_NUM_THREADS, exported");
      return processors_we_may_use();
    }
    if (asked.tag != MORTISE_NONE) check(api.parallel->set_threads(api.host, static_cast<int32_t>(asked.v.i)));
    int32_t n = 0;
    check(api.parallel->threads(api.host, &n));
    return n;
  }

  static void note_of_load(int threads) {
    const int others = others_running(line_of("/proc/loadavg", ""));
    const int fewer = threads_without_sharing(threads, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), others);
    if (fewer == threads) return;
    log_line(MORTISE_LOG_INFO, "the machine is busy with " + std::to_string(others) +
                                   (others == 1 ? " other thread" : " other threads") +
                                   "; fewer of ours may be faster: --set device.cpu.threads=" + std::to_string(fewer));
  }

  std::string about_;
  int threads_ = 0;  // 0: what else runs was noted
};

const mortise_device kObject = {sizeof(mortise_device), MORTISE_CPU, thunk<&Cpu::open>, thunk<&Cpu::describe>,
                                thunk<&Cpu::memory>};
}  // namespace

MORTISE_PLUGIN(Cpu, mortise::provide("device", &kObject))
