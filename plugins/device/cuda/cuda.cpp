// One NVIDIA GPU. LibTorch's CUDA half is opened when the device is, from where its CPU half came from; nothing is
// linked, so that a plan or `--help` needs no GPU and no CUDA. What it counts and names comes from CUDA's own runtime
// and driver, whichever of their versions LibTorch loaded.
#include <dlfcn.h>
#include <link.h>

#include <string>

#include "chips.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

// Of CUDA's headers, which need not be here: cudaError_t and cudaDeviceAttr.
constexpr int kInsufficientDriver = 35, kNoDevice = 100, kMajor = 75, kMinor = 76;
constexpr int kOldest = 8;  // compute capability; cmake/MortiseCuda.cmake builds for it

// The path of the first loaded library whose file name begins so; "" if there is none.
std::string loaded(std::string_view name) {
  struct Search {
    std::string_view name;
    std::string path;
  } search{name, ""};
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* user) {
        Search& s = *static_cast<Search*>(user);
        const std::string_view path = library->dlpi_name, file = path.substr(path.rfind('/') + 1);
        if (!file.starts_with(s.name)) return 0;
        s.path = path;
        return 1;
      },
      &search);
  return search.path;
}

[[noreturn]] void cannot(const std::string& why, const std::string& fix) {
  throw Error(MORTISE_E_UNSUPPORTED, "device.cuda cannot run: " + why, fix + ", or --use device.cpu");
}

// Without RTLD_GLOBAL, so that no plugin counts on it by chance; for good, because its threads and its operators live
// as long as the process.
void open_torch() {
  std::string path = loaded("libtorch_cpu.so");
  path.replace(path.rfind('/') + 1, std::string::npos, "libtorch_cuda.so");
  if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
    cannot(std::string("the CUDA half of LibTorch does not load: ") + dlerror(),
           "a LibTorch for CUDA with CUDA's own libraries: make setup CUDA=1, or LD_LIBRARY_PATH at one");
}

class Library {
 public:
  explicit Library(std::string_view name) {
    const std::string path = loaded(name);
    handle_ = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (!handle_) cannot("LibTorch loads no " + std::string(name), "a LibTorch for CUDA");
  }
  template <class Function>
  Function* get(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

class Cuda {
 public:
  void open(int32_t index) {
    open_torch();
    const Library runtime("libcudart.so.");
    int devices = 0;
    const int error = runtime.get<int(int*)>("cudaGetDeviceCount")(&devices);
    if (error == kInsufficientDriver) refuse_driver(runtime);
    if (error == kNoDevice || (error == 0 && devices == 0))
      cannot("no NVIDIA GPU here", "CUDA_VISIBLE_DEVICES, if it hides one");
    must_be_well(runtime, error);
    if (index >= devices)
      throw Error(MORTISE_E_CONFIG,
                  "device.cuda has no device " + std::to_string(index) + ": there " +
                      (devices == 1 ? "is 1, device 0" : "are " + std::to_string(devices)),
                  "[device] index = " + std::to_string(devices - 1));
    must_be_well(runtime, runtime.get<int(int)>("cudaSetDevice")(index));
    about_ = name_of(runtime, index);
  }

  void describe(mortise_str* about) { *about = str(about_); }
  void memory(int64_t* used, int64_t* peak, int64_t* total) {
    check(need(api.device, "mortise.device/0").memory(api.host, used, peak, total));
  }
  void products(mortise_str factors, double* flop_per_s) { *flop_per_s = products_of(about_, view(factors)); }

 private:
  static void must_be_well(const Library& runtime, int error) {
    if (error != 0)
      cannot(std::string("CUDA says ") + runtime.get<const char*(int)>("cudaGetErrorString")(error),
             "look at nvidia-smi");
  }

  [[noreturn]] static void refuse_driver(const Library& runtime) {
    int has = 0, needs = 0;
    runtime.get<int(int*)>("cudaDriverGetVersion")(&has);
    runtime.get<int(int*)>("cudaRuntimeGetVersion")(&needs);
    if (has == 0) cannot("no NVIDIA driver", "a driver");
    const auto text = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
    cannot("the driver serves CUDA " + text(has) + ", this LibTorch needs " + text(needs), "a newer driver");
  }

  // "NVIDIA H100 80GB HBM3, sm_90". Refuses one that kernels are not built for.
  static std::string name_of(const Library& runtime, int index) {
    int major = 0, minor = 0;
    const auto attribute = runtime.get<int(int*, int, int)>("cudaDeviceGetAttribute");
    must_be_well(runtime, attribute(&major, kMajor, index));
    must_be_well(runtime, attribute(&minor, kMinor, index));
    if (major < kOldest)
      cannot("this GPU is an sm_" + std::to_string(major) + std::to_string(minor) +
                 ", and kernels are for sm_80 and later",
             "a GPU from the A100 on");
    char name[256] = "";
    if (const auto get = Library("libcuda.so").get<int(char*, int, int)>("cuDeviceGetName"))
      get(name, sizeof name, index);
    return std::string(name) + ", sm_" + std::to_string(major) + std::to_string(minor);
  }

  std::string about_ = "an NVIDIA GPU";  // before it is open: in a plan
};

const mortise_device kObject = {sizeof(mortise_device), MORTISE_CUDA,         thunk<&Cuda::open>,
                                thunk<&Cuda::describe>, thunk<&Cuda::memory>, thunk<&Cuda::products>};
}  // namespace

MORTISE_PLUGIN(Cuda, mortise::provide("device", &kObject))
