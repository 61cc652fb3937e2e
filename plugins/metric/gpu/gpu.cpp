// What the driver says of the run's GPU, in the records of steps that are due. Its library, NVML, is opened by name and
// asked for each function by name: none is linked, so a plan needs no driver, and what one driver lacks is left out.
#include <dlfcn.h>
#include <unistd.h>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

// Of nvml.h, which need not be here. A function keeps its name and its structs for good; a newer form has another name.
using Device = struct nvmlDevice*;
constexpr int kNotSupported = 3, kInsufficientSize = 7;
constexpr int kTemperatureGpu = 0;
struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {  // `used` without what the driver keeps for itself, as nvidia-smi has it
  unsigned int version = sizeof(Memory2) | 2u << 24;
  unsigned long long total, reserved, free, used;
};
struct Process {
  unsigned int pid;
  unsigned long long used;
};
constexpr unsigned long long kNotKnown = ~0ull;

// Why clocks are lower than they could be. An idle GPU, or clocks that a person set, are no throttling.
constexpr struct {
  unsigned long long bits;
  const char* name;
} kThrottles[] = {{0x04, "power"}, {0x20 | 0x40, "heat"}, {0x80, "power brake"}};
constexpr unsigned long long kHardware = 0x08;  // one of the last two, or another protection of the board

[[noreturn]] void cannot(const std::string& why) {
  throw Error(MORTISE_E_UNSUPPORTED, "metric.gpu cannot run: " + why, "--without metric.gpu");
}

class Library {
 public:
  Library(const char* name, int flags) : name_(name), handle_(dlopen(name, flags)) {
    if (!handle_) cannot("no " + name_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { dlclose(handle_); }

  // NULL: it has none.
  template <class Function>
  void find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }
  template <class Function>
  void need(const char* symbol, Function*& function) const {
    find(symbol, function);
    if (!function) cannot(name_ + " has no " + symbol);
  }

 private:
  std::string name_;
  void* handle_;
};

// The functions of NVML. The first five every driver has.
class Nvml {
 public:
  Nvml() : library_("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) {
    library_.need("nvmlInit_v2", init);
    library_.need("nvmlShutdown", shutdown);
    library_.need("nvmlErrorString", error_string);
    library_.need("nvmlDeviceGetHandleByPciBusId_v2", by_bus);
    library_.need("nvmlDeviceGetMemoryInfo", memory);
    library_.find("nvmlDeviceGetMemoryInfo_v2", memory2);
    library_.find("nvmlDeviceGetComputeRunningProcesses", processes);
    library_.find("nvmlDeviceGetPowerUsage", power_mw);
    library_.find("nvmlDeviceGetTemperature", temperature);
    library_.find("nvmlDeviceGetCurrentClocksEventReasons", throttles);
    if (!throttles) library_.find("nvmlDeviceGetCurrentClocksThrottleReasons", throttles);  // its older name
  }

 private:
  Library library_;

 public:
  int (*init)();
  int (*shutdown)();
  const char* (*error_string)(int);
  int (*by_bus)(const char*, Device*);
  int (*memory)(Device, Memory*);
  int (*memory2)(Device, Memory2*);
  int (*processes)(Device, unsigned int*, Process*);
  int (*power_mw)(Device, unsigned int*);
  int (*temperature)(Device, int sensor, unsigned int*);
  int (*throttles)(Device, unsigned long long*);
};

// As CUDA, which hides and orders GPUs by CUDA_VISIBLE_DEVICES and more, calls the one that the run computes on. CUDA's
// driver is loaded where a run has a GPU.
std::string bus_of_device() {
  const Library cuda("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*bus_of)(char*, int, int) = nullptr;
  cuda.need("cuDeviceGetPCIBusId", bus_of);
  char bus[32] = "";
  const auto index = static_cast<int>(Info(empty(MORTISE_F32, {1})).device_index);
  if (bus_of(bus, sizeof bus, index) != 0) cannot("CUDA does not say where device " + std::to_string(index) + " is");
  return bus;
}

class Gpu {
 public:
  Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    if (is_open_) nvml_.shutdown();
  }

  void record(const mortise_event* event) {
    const Columns columns(*event->record);
    if (columns.kind() == "run") open();
    if (columns.kind() == "step" && columns.integer("due") != 0 && device_) add_columns();
  }

 private:
  // Not when it is made: a plan asks no device anything.
  void open() {
    if (is_open_) return;
    must_work("nvmlInit_v2", nvml_.init());
    is_open_ = true;
    must_work("nvmlDeviceGetHandleByPciBusId_v2", nvml_.by_bus(bus_of_device().c_str(), &device_));
  }
  void must_work(const char* function, int result) const {
    if (result != 0) cannot(std::string(function) + " says " + nvml_.error_string(result));
  }

  void add_columns() {
    add_memory();
    add_own_memory();
    if (unsigned int mw = 0; has("power", nvml_.power_mw, &mw)) add("gpu.power_w", value(mw / 1000.0));
    if (unsigned int c = 0; has("temperature", nvml_.temperature, kTemperatureGpu, &c))
      add("gpu.temperature_c", integer(c));
    if (unsigned long long bits = 0; has("throttling", nvml_.throttles, &bits)) add_throttling(bits);
  }

  void add_memory() {
    Memory2 memory;
    if (nvml_.memory2 && nvml_.memory2(device_, &memory) == 0) return add("gpu.memory_bytes", integer(memory.used));
    if (Memory older{}; has("memory", nvml_.memory, &older)) add("gpu.memory_bytes", integer(older.used));
  }

  // In a container the driver may know this process by another number, or tell of none: then there is no column.
  void add_own_memory() {
    if (!nvml_.processes) return;
    auto n = static_cast<unsigned int>(processes_.size());
    int result = nvml_.processes(device_, &n, processes_.data());
    if (result == kInsufficientSize) {  // n says how many there are; some may be added meanwhile
      processes_.resize(n + size_t{8});
      n = static_cast<unsigned int>(processes_.size());
      result = nvml_.processes(device_, &n, processes_.data());
    }
    if (!answered("processes", result)) return;
    const auto own = static_cast<unsigned int>(getpid());
    for (const Process& process : std::span(processes_).first(n))
      if (process.pid == own && process.used != kNotKnown) return add("gpu.process_bytes", integer(process.used));
  }

  void add_throttling(unsigned long long bits) {
    std::string by;
    for (const auto& [mask, name] : kThrottles)
      if (bits & mask) (by += by.empty() ? "" : ", ") += name;
    if (by.empty() && (bits & kHardware)) by = "hardware";
    add("gpu.throttled", value(by.empty() ? 0 : 1));
    if (!by.empty()) add("gpu.throttled_by", value(std::string_view(by)));
  }

  template <class Function, class... Args>
  bool has(const char* what, Function* function, Args... args) {
    return function && answered(what, function(device_, args...));
  }
  // What this GPU never says is left out in silence; what fails, with one warning.
  bool answered(const char* what, int result) {
    if (result != 0 && result != kNotSupported && !std::exchange(has_warned_, true))
      log_line(MORTISE_LOG_WARNING, std::string("metric.gpu: NVML does not say the GPU's ") + what + ": " +
                                        nvml_.error_string(result) + "; such columns are left out");
    return result == 0;
  }

  static mortise_value integer(unsigned long long n) { return value(static_cast<int64_t>(n)); }
  static void add(std::string_view name, const mortise_value& v) { check(api.loop->column(api.host, str(name), v)); }

  Nvml nvml_;
  bool is_open_ = false, has_warned_ = false;
  Device device_ = nullptr;
  std::vector<Process> processes_ = std::vector<Process>(8);
};
}  // namespace

MORTISE_PLUGIN(Gpu, mortise::listen<&Gpu::record>("record"))
