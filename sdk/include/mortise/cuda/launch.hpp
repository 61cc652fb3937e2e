// For a plugin's kernels of CUDA: one source, two ways to run it. nvcc compiles a kernel for the GPU; a C++ compiler
// compiles the same file for a test on a machine without one, where testing/emulated.hpp stands in for the device.
//
//   MORTISE_LAUNCH(kernel, blocks, threads, stream, arguments…);  // `stream` as stream_now() gives it
//   if (const char* wrong = launch_error()) …
#pragma once
#ifdef __CUDACC__
#include <cuda_runtime.h>

#include <cstdio>

#define MORTISE_UNROLL _Pragma("unroll")
#define MORTISE_LAUNCH(kernel, blocks, threads, stream, ...) \
  (kernel)<<<(blocks), (threads), 0, static_cast<cudaStream_t>(stream)>>>(__VA_ARGS__)

namespace mortise {

// Of the launches of this thread: NULL, or what CUDA says was wrong.
inline const char* launch_error() {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return nullptr;
  thread_local char text[128];
  std::snprintf(text, sizeof text, "CUDA error: %s", cudaGetErrorString(error));  // as LibTorch says it
  return text;
}

}  // namespace mortise
#else
#include "mortise/testing/emulated.hpp"
#endif
