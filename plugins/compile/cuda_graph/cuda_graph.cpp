// compile.cuda_graph: the device's work of a whole step, recorded once for each signature of its batches and played
// from then on by one launch. The host enqueues nothing of the model any more.
//
// What is played reads and writes where the recorded step did: the batches are copied into batches of the recording's
// own; everything else that a step uses lies still (the ledger, denominators, sums, parameters, states).
// Source: at::cuda::CUDAGraph of LibTorch, which gives a recording's memory a pool of its own.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

// A field of a batch, and where a step looks for it.
struct Field {
  std::string name;
  Tensor tensor;
};

struct Recording {
  std::vector<Batch> batches;                  // the step's own
  std::vector<std::vector<Field>> fields;      // of each
  std::unique_ptr<at::cuda::CUDAGraph> graph;  // none before the second step
  uint64_t token = 0;
  bool has_run = false;  // once as it is, so that whatever is made at first sight has been made
};

// Every batch of the step: its fields with their dtypes and sizes.
std::string signature_of(const mortise_call* call) {
  std::string text;
  for (uint32_t m = 0; m < call->n_args; ++m) {
    text += "|";
    each_field(call->args[m].v.b, [&](mortise_str name, mortise_tensor* t) {
      const Info info(t);
      text.append(view(name)).append(":").append(std::to_string(info.dtype));
      for (const int64_t size : info.shape()) text += "," + std::to_string(size);
      text += ";";
    });
  }
  return text;
}

// What was queued on one stream is done before what is queued on the other from now on.
void join(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& then) {
  c10::Event event(c10::DeviceType::CUDA);
  event.record(first.unwrap());
  event.block(then.unwrap());
}

class CudaGraph {
 public:
  CudaGraph() : most_(config::integer("signatures")) {}

  void step(mortise_call* call, mortise_next* next) {
    Recording* const recording = recording_for(call);
    if (!recording) return check(api.call->next(api.host, next, call));
    fill(*recording, call);
    if (recording->graph) {
      recording->graph->replay();
      check(api.loop->replayed(api.host, recording->token));
      return;
    }
    // A recording is made on a stream of its own, and so is the run before it: LibTorch keeps memory by streams.
    if (!side_) side_ = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream();
    join(before, *side_);
    {
      const c10::cuda::CUDAStreamGuard guard(*side_);
      run_or_record(*recording, call, next);
    }
    join(*side_, before);
  }

 private:
  // The one of this signature; NULL if there are as many others as may be.
  Recording* recording_for(const mortise_call* call) {
    const std::string signature = signature_of(call);
    if (const auto known = recordings_.find(signature); known != recordings_.end()) return &known->second;
    if (static_cast<int64_t>(recordings_.size()) >= most_) {
      if (!std::exchange(has_warned_, true))
        log_line(MORTISE_LOG_WARNING,
                 "batches have had " + std::to_string(most_) +
                     " shapes by now; steps of other shapes are not recorded: data.pad_to_multiple "
                     "makes fewer, compile.cuda_graph.signatures allows more");
      return nullptr;
    }
    Recording& made = recordings_[signature];
    for (uint32_t m = 0; m < call->n_args; ++m) {
      Batch own = Batch::create(call->args[m].v.b);
      std::vector<Field>& fields = made.fields.emplace_back();
      each_field(call->args[m].v.b, [&](mortise_str name, mortise_tensor* t) {
        fields.push_back({std::string(view(name)), ops::clone(t)});
        check(api.batch->set(api.host, own.get(), name, fields.back().tensor.get()));
      });
      made.batches.push_back(std::move(own));
    }
    return &made;
  }

  static void fill(const Recording& recording, const mortise_call* call) {
    for (uint32_t m = 0; m < call->n_args; ++m)
      for (const Field& field : recording.fields[m]) {
        mortise_tensor* from = nullptr;
        check(api.batch->get(api.host, call->args[m].v.b, str(field.name), &from));
        ops::copy_(field.tensor, from);
      }
  }

  void run_or_record(Recording& recording, mortise_call* call, mortise_next* next) {
    std::vector<mortise_value> own;
    for (const Batch& batch : recording.batches) own.push_back({MORTISE_BATCH, 0, {.b = batch.get()}});
    const struct Given {  // the caller's arguments, when this is over
      mortise_call* call;
      const mortise_value* args;
      ~Given() { call->args = args; }
    } given{call, std::exchange(call->args, own.data())};
    const auto run = [&] { return api.call->next(api.host, next, call); };
    mortise_status status = MORTISE_OK;
    if (!std::exchange(recording.has_run, true)) {
      status = run();
    } else {
      int64_t freed = 0;
      check(api.device->trim(api.host, &freed));  // what steps have used so far, for the recording's own pool
      auto graph = std::make_unique<at::cuda::CUDAGraph>();
      // Loaders may pin memory meanwhile: what other threads ask of CUDA is no part of it.
      graph->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      status = run();
      if (status == MORTISE_OK) {
        graph->capture_end();
        check(api.loop->recorded(api.host, &recording.token));
        recording.graph = std::move(graph);
        recording.graph->replay();
      } else {
        try {
          graph->capture_end();  // what failed has ended it already, and CUDA says so
        } catch (const std::exception&) {
        }
      }
    }
    check(status);
  }

  int64_t most_;
  bool has_warned_ = false;
  std::map<std::string, Recording> recordings_;
  std::optional<c10::cuda::CUDAStream> side_;
};
}  // namespace

MORTISE_PLUGIN(CudaGraph, mortise::wrap<&CudaGraph::step>("step"))
