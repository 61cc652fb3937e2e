// SGD of one element: the arithmetic that the host's processor and CUDA share, so that both give the same bits. No
// operation is fused with another: -ffp-contract=off, --fmad=false.
#pragma once
#include "kernels/sgd/sgd.h"

namespace mortise::kernels {

// A step's numbers, the same for every element of a group.
template <class T>
struct SGDNumbers {
  T multiplier, weight_decay, momentum, rate;
};

template <class T>
MORTISE_BOTH inline SGDNumbers<T> sgd_numbers(const SGDStep& s) {
  return {static_cast<T>(s.multiplier), static_cast<T>(s.weight_decay), static_cast<T>(s.momentum),
          static_cast<T>(-s.lr)};
}

template <class T>
MORTISE_BOTH inline T sgd_gradient(const SGDNumbers<T>& k, T grad, T p) {
  return grad * k.multiplier + k.weight_decay * p;
}

template <class T>
MORTISE_BOTH inline void sgd_element(const SGDNumbers<T>& k, T grad, T& p) {
  p += k.rate * sgd_gradient(k, grad, p);
}

template <bool kNesterov, class T>
MORTISE_BOTH inline void sgd_element(const SGDNumbers<T>& k, T grad, T& p, T& b) {
  const T g = sgd_gradient(k, grad, p);
  b = k.momentum * b + g;
  p += k.rate * (kNesterov ? g + k.momentum * b : b);
}

}  // namespace mortise::kernels
