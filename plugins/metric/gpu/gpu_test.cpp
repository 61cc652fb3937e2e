// Against a driver of the test's own, which is loaded first under the name of the real one; and against the real one
// where there is one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "mortise/testing/fake_host.hpp"
#include "plugins/metric/gpu/fixtures/nvml.h"

namespace {
using namespace mortise;
using namespace mortise::testing;

class Loaded {
 public:
  explicit Loaded(const char* file) : handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {}
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
  ~Loaded() {
    if (handle_) dlclose(handle_);
  }
  template <class T>
  T* get(const char* symbol) const {
    return handle_ ? reinterpret_cast<T*>(dlsym(handle_, symbol)) : nullptr;
  }

 private:
  void* handle_;
};

FakeRecord run() { return FakeRecord("run").add("step", 0); }
FakeRecord due(int is_due = 1) { return FakeRecord("step").add("step", 1).add("due", is_due); }

const mortise_value* column(FakeHost& host, std::string_view name) {
  const mortise_record* added = host.columns.get();
  for (uint32_t i = 0; i < added->n_columns; ++i)
    if (view(added->columns[i].name) == name) return &added->columns[i].value;
  return nullptr;
}

struct Gpu : ::testing::Test {
  Gpu() : nvml(*driver.get<fake_nvml>("fake_nvml")) {
    nvml = {};
    nvml.used = 3'000'000'000'000;  // more than 32 bits
    nvml.power_mw = 701'250;
    nvml.temperature = 64;
    *cuda.get<int>("fake_cuda_result") = 0;
    *cuda.get<const char*>("fake_cuda_bus") = "0000:3B:00.0";
  }
  // The columns of a step that is due, of a plugin that stays.
  void step() {
    if (!plugin) {
      plugin.emplace(host, MORTISE_PLUGIN_FILE);
      ASSERT_EQ(plugin->notify("record", run()), MORTISE_OK) << host.error();
    }
    ASSERT_EQ(plugin->notify("record", due()), MORTISE_OK) << host.error();
  }
  std::string throttled(unsigned long long reasons) {
    nvml.throttles = reasons;
    step();
    const mortise_value *is = column(host, "gpu.throttled"), *by = column(host, "gpu.throttled_by");
    if (!is) return "no column";
    EXPECT_EQ(is->v.i != 0, by != nullptr);
    return by ? std::string(view(by->v.s)) : "";
  }
  void list_processes(unsigned int n) {
    nvml.n_processes = n;
    for (unsigned int i = 0; i < n; ++i) nvml.pids[i] = 1'000'000'000 + i, nvml.process_used[i] = i;
  }
  // None: there is no column.
  std::optional<int64_t> own_bytes() {
    step();
    const mortise_value* v = column(host, "gpu.process_bytes");
    return v ? std::optional(v->v.i) : std::nullopt;
  }

  Loaded driver{FAKE_NVML}, cuda{FAKE_CUDA};
  fake_nvml& nvml;
  FakeHost host;
  std::optional<Plugin> plugin;
};

TEST_F(Gpu, SaysTheMemoryOfAnOldDriverWithWhatTheDriverKeeps) {
  step();
  EXPECT_EQ(column(host, "gpu.memory_bytes")->v.i, 3'000'000'000'000);
  nvml.is_old = 1;
  step();
  EXPECT_EQ(column(host, "gpu.memory_bytes")->v.i, 3'000'000'000'000 + (500 << 20));
}

TEST_F(Gpu, IsDescribedInAStepThatIsDue) {
  step();
  EXPECT_EQ(column(host, "gpu.memory_bytes")->v.i, 3'000'000'000'000);
  EXPECT_DOUBLE_EQ(column(host, "gpu.power_w")->v.f, 701.25);
  EXPECT_EQ(column(host, "gpu.temperature_c")->v.i, 64);
  EXPECT_EQ(column(host, "gpu.throttled")->v.i, 0);
}

TEST_F(Gpu, IsAskedNothingInAnyOtherRecord) {
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(nvml.inits, 0) << "a plan asks no driver";
  for (FakeRecord record : {run(), due(0), FakeRecord("eval").add("due", 1), FakeRecord("end")})
    EXPECT_EQ(plugin->notify("record", record), MORTISE_OK) << host.error();
  EXPECT_EQ(nvml.calls, 0);
  EXPECT_EQ(nvml.inits, 1);
}

TEST_F(Gpu, IsTheOneThatCudaComputesOn) {
  step();
  EXPECT_STREQ(nvml.bus, "0000:3B:00.0");
}

TEST_F(Gpu, IsGivenBackWhenTheRunIsOver) {
  step();
  EXPECT_EQ(nvml.initialised, 1);
  plugin.reset();
  EXPECT_EQ(nvml.initialised, 0);
}

TEST_F(Gpu, HasTheMemoryOfThisProcessAmongMany) {
  for (const unsigned int n : {1u, 8u, 9u, static_cast<unsigned>(FAKE_PROCESSES)}) {
    list_processes(n);
    EXPECT_EQ(own_bytes(), std::nullopt) << "not among " << n;
    nvml.pids[n - 1] = static_cast<unsigned int>(getpid());
    nvml.process_used[n - 1] = 5'000'000'000;
    EXPECT_EQ(own_bytes(), 5'000'000'000) << "the last of " << n;
  }
}

TEST_F(Gpu, DoesNotSayWhatTheDriverDoesNotKnow) {
  list_processes(1);
  nvml.pids[0] = static_cast<unsigned int>(getpid());
  nvml.process_used[0] = ~0ull;  // as in some containers and on some GPUs
  EXPECT_EQ(own_bytes(), std::nullopt);
}

TEST_F(Gpu, SaysWhyItIsThrottled) {
  EXPECT_EQ(throttled(0x01 | 0x02), "") << "idle, or clocks that somebody set";
  EXPECT_EQ(throttled(0x04), "power");
  EXPECT_EQ(throttled(0x20), "heat");
  EXPECT_EQ(throttled(0x08 | 0x40), "heat") << "not said twice";
  EXPECT_EQ(throttled(0x08), "hardware");
  EXPECT_EQ(throttled(0x04 | 0x08 | 0x40 | 0x80), "power, heat, power brake");
}

TEST_F(Gpu, LeavesOutInSilenceWhatItNeverSays) {
  nvml.power_result = 3;  // NVML_ERROR_NOT_SUPPORTED
  step();
  EXPECT_EQ(column(host, "gpu.power_w"), nullptr);
  EXPECT_NE(column(host, "gpu.temperature_c"), nullptr) << "the others are there";
  EXPECT_TRUE(host.log.empty());
}

TEST_F(Gpu, ThatIsLostIsOneWarningAndNoEndOfTheRun) {
  nvml.power_result = 15;  // NVML_ERROR_GPU_IS_LOST
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(column(host, "gpu.power_w"), nullptr);
  ASSERT_EQ(host.log.size(), 1u);
  EXPECT_EQ(host.log[0].level, static_cast<uint32_t>(MORTISE_LOG_WARNING));
  EXPECT_EQ(host.log[0].text, "metric.gpu: NVML does not say the GPU's power: GPU is lost; such columns are left out");
}

TEST_F(Gpu, WhoseDriverDoesNotStartIsAnErrorBeforeTheFirstStep) {
  nvml.init_result = 9;
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin->notify("record", run()), MORTISE_E_UNSUPPORTED);
  EXPECT_NE(host.error().find("metric.gpu cannot run: nvmlInit_v2 says Driver Not Loaded"), std::string::npos)
      << host.error();
  EXPECT_NE(host.error().find("--without metric.gpu"), std::string::npos);
  plugin.reset();
  EXPECT_EQ(nvml.initialised, 0) << "what did not start is not shut down";
}

TEST_F(Gpu, ThatTheDriverDoesNotKnowIsAnError) {
  *cuda.get<const char*>("fake_cuda_bus") = "0000:99:00.0";
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin->notify("record", run()), MORTISE_E_UNSUPPORTED);
  EXPECT_NE(host.error().find("nvmlDeviceGetHandleByPciBusId_v2 says Not Found"), std::string::npos) << host.error();
}

TEST_F(Gpu, ThatCudaDoesNotKnowIsAnError) {
  *cuda.get<int>("fake_cuda_result") = 101;
  plugin.emplace(host, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin->notify("record", run()), MORTISE_E_UNSUPPORTED);
  EXPECT_NE(host.error().find("CUDA does not say where device 0 is"), std::string::npos) << host.error();
}

TEST(NoGpu, IsRefusedBeforeARunBegins) {
  if (const Loaded real("libnvidia-ml.so.1"); real.get<void>("nvmlInit_v2"))
    GTEST_SKIP() << "this machine has a driver";
  FakeHost host;
  try {
    const Plugin plugin(host, MORTISE_PLUGIN_FILE);
    FAIL() << "it was made";
  } catch (const PluginError& e) {
    EXPECT_EQ(e.status, MORTISE_E_UNSUPPORTED);
    EXPECT_STREQ(e.what(), "metric.gpu cannot run: no libnvidia-ml.so.1\n  fix: --without metric.gpu");
  }
}

TEST(RealGpu, SaysNumbersThatCanBe) {
  const Loaded cuda("libcuda.so.1");
  const auto init = cuda.get<int(unsigned int)>("cuInit");
  if (!init || init(0) != 0) GTEST_SKIP() << "no NVIDIA GPU here";
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  ASSERT_EQ(plugin.notify("record", run()), MORTISE_OK) << host.error();
  ASSERT_EQ(plugin.notify("record", due()), MORTISE_OK) << host.error();
  EXPECT_TRUE(host.log.empty()) << host.log[0].text;
  ASSERT_NE(column(host, "gpu.memory_bytes"), nullptr);
  EXPECT_GT(column(host, "gpu.memory_bytes")->v.i, 0);
  EXPECT_LT(column(host, "gpu.memory_bytes")->v.i, int64_t{1} << 40);
  if (const mortise_value* watts = column(host, "gpu.power_w")) {
    EXPECT_GT(watts->v.f, 1);
    EXPECT_LT(watts->v.f, 2000);
  }
  if (const mortise_value* degrees = column(host, "gpu.temperature_c")) {
    EXPECT_GT(degrees->v.i, 5);
    EXPECT_LT(degrees->v.i, 120);
  }
}
}  // namespace
