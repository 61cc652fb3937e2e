// The C tables that stand over LibTorch, a file each.
#pragma once
#include "mortise/mortise.h"

namespace mortise {

extern const mortise_tensor_api kTensorApi;
extern const mortise_ops_api kOpsApi;
extern const mortise_autograd_api kAutogradApi;
extern const mortise_params_api kParamsApi;
extern const mortise_grads_api kGradsApi;
extern const mortise_parallel_api kParallelApi;
extern const mortise_random_api kRandomApi;
extern const mortise_device_api kDeviceApi;
extern const mortise_replicas_api kReplicasApi;

}  // namespace mortise
