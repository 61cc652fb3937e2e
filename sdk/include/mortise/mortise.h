/* Every header of the C interface but those for plugins in plain C: plugin.h and simple_optimizer.h. C++ includes
 * mortise/cpp/plugin.hpp instead. */
#ifndef MORTISE_MORTISE_H
#define MORTISE_MORTISE_H
#include "abi.h"
#include "autograd.h"
#include "build.h"
#include "call.h"
#include "checkpoint.h"
#include "compute.h"
#include "config.h"
#include "data.h"
#include "device.h"
#include "dtype.h"
#include "half.h"
#include "loop.h"
#include "objects.h"
#include "operator.h"
#include "ops.h"
#include "optimizer.h"
#include "params.h"
#include "philox.h"
#include "ranks.h"
#include "tensor.h"
#endif
