// What a program asks of CUDA, and when the GPU does it: kernels, copies, fills, and the calls of CUDA's runtime. The
// driver loads it into any program that is started with CUDA_INJECTION64_PATH at it; what it saw is written to
// CUDA_TRACE when the program ends. tests/gpu/cuda_trace.py reads it.
//
//   CUDA_INJECTION64_PATH=trace.so CUDA_TRACE=trace.txt mortise train run.toml
//
// A line an event, with tabs, times in ns of one clock for host and GPU:
//   name  ID TEXT
//   kernel START END STREAM CORRELATION NAME
//   copy  START END STREAM CORRELATION BYTES FROM TO      (1 pageable, 2 pinned, 3 the device's)
//   fill  START END STREAM CORRELATION BYTES
//   call  START END THREAD CORRELATION NAME
// What a call started has its CORRELATION. A call of the runtime may hold one of the driver, which is there too.
#include <cupti.h>
#include <cxxabi.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

constexpr size_t kBuffer = 8 << 20;

class Trace {
 public:
  // Never destroyed: CUPTI's thread may bring a last buffer while the program ends.
  static Trace& the() {
    static Trace& trace = *new Trace;
    return trace;
  }

  void begin() {
    if (!out_) return;
    must(cuptiActivityRegisterCallbacks(&Trace::give_buffer, &Trace::take_buffer), "cuptiActivityRegisterCallbacks");
    for (const auto kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                            CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME})
      must(cuptiActivityEnable(kind), "cuptiActivityEnable");
    // Who calls the driver without the runtime. All of its calls would be twice as many records.
    for (const auto call : {CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize, CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize,
                            CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize, CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2,
                            CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                            CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch})
      must(cuptiActivityEnableDriverApi(call, 1), "cuptiActivityEnableDriverApi");
    std::atexit([] { the().end(); });
  }

 private:
  Trace() {
    const char* const path = std::getenv("CUDA_TRACE");
    out_ = path ? std::fopen(path, "w") : nullptr;
    if (!out_) std::fprintf(stderr, "trace.so: CUDA_TRACE names no file that can be written\n");
  }

  // Who reads the trace refuses one with such a line.
  void must(CUptiResult result, const char* what) {
    if (result == CUPTI_SUCCESS) return;
    const char* why = "";
    cuptiGetResultString(result, &why);
    std::fprintf(out_, "error\t%s says %s\n", what, why);
    std::fflush(out_);
  }

  void end() {
    must(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    const std::lock_guard lock(mutex_);
    std::fprintf(out_, "end\n");
    std::fclose(out_);
    out_ = nullptr;
  }

  static void CUPTIAPI give_buffer(uint8_t** buffer, size_t* size, size_t* most_records) {
    *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBuffer));
    *size = kBuffer;
    *most_records = 0;  // as many as there is room for
  }

  static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid) {
    the().write_all(buffer, valid);
    std::free(buffer);
    size_t dropped = 0;
    cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
    if (dropped > 0) the().write_dropped(dropped);
  }

  void write_all(uint8_t* buffer, size_t valid) {
    const std::lock_guard lock(mutex_);
    if (!out_) return;
    CUpti_Activity* record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) write(*record);
  }

  void write_dropped(size_t n) {
    const std::lock_guard lock(mutex_);
    if (out_) std::fprintf(out_, "error\t%zu records were dropped\n", n);
  }

  template <class Record>
  static const Record& as(const CUpti_Activity& record) {
    return reinterpret_cast<const Record&>(record);
  }

  void write(const CUpti_Activity& record) {
    switch (record.kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const auto& k = as<CUpti_ActivityKernel10>(record);
        const int id = id_of_name(k.name, true);
        line("kernel", k.start, k.end, k.streamId, k.correlationId);
        std::fprintf(out_, "\t%d\n", id);
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const auto& c = as<CUpti_ActivityMemcpy6>(record);
        line("copy", c.start, c.end, c.streamId, c.correlationId);
        std::fprintf(out_, "\t%" PRIu64 "\t%d\t%d\n", uint64_t{c.bytes}, int{c.srcKind}, int{c.dstKind});
        return;
      }
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto& m = as<CUpti_ActivityMemset4>(record);
        line("fill", m.start, m.end, m.streamId, m.correlationId);
        std::fprintf(out_, "\t%" PRIu64 "\n", uint64_t{m.bytes});
        return;
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER: {
        const auto& c = as<CUpti_ActivityAPI>(record);
        const char* name = nullptr;
        cuptiGetCallbackName(
            record.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API,
            c.cbid, &name);
        const int id = id_of_name(name, false);
        line("call", c.start, c.end, c.threadId, c.correlationId);
        std::fprintf(out_, "\t%d\n", id);
        return;
      }
      default: return;
    }
  }

  void line(const char* what, uint64_t start, uint64_t end, uint32_t where, uint32_t correlation) {
    std::fprintf(out_, "%s\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%" PRIu32, what, start, end, where, correlation);
  }

  // Names of templates are long, and come again and again.
  int id_of_name(const char* name, bool mangled) {
    if (!name) name = "?";
    const auto [found, is_new] = ids_.try_emplace(name, static_cast<int>(ids_.size()));
    if (!is_new) return found->second;
    int status = 1;
    char* const plain = mangled ? abi::__cxa_demangle(name, nullptr, nullptr, &status) : nullptr;
    std::fprintf(out_, "name\t%d\t%.400s\n", found->second, status == 0 ? plain : name);
    std::free(plain);
    return found->second;
  }

  std::FILE* out_ = nullptr;
  std::mutex mutex_;
  std::map<std::string, int> ids_;
};

}  // namespace

// Called by the driver before its first context.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  Trace::the().begin();
  return 1;
}
