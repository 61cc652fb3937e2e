#include "core/host/test_operators.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tanh.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>

#include "core/host/tables.hpp"
#include "mortise/philox.h"

namespace mortise::testing {

Operator linear_pair(int64_t in, int64_t out) {
  Operator op;
  op.declare = [=](Builder& b, const std::string& path) {
    b.param(path + ".weight", {out, in});
    b.param(path + ".bias", {out}, {}, "vector");
  };
  op.forward = [](Forward& f) {
    f.give(0, at::addmm(f.use(f.path() + ".bias"), f.arg(0), f.use(f.path() + ".weight").t()));
    f.save_input(0);
  };
  op.backward = [](Backward& b) {
    const at::Tensor g = b.grad();
    if (!g.defined()) return;
    if (b.wants(0)) b.give_grad(0, at::mm(g, b.use(b.path() + ".weight")));
    const std::string weight = b.path() + ".weight";
    if (at::Tensor to = b.target(weight); to.defined()) at::mm_out(to, g.t(), b.saved(0));
    else if (b.host.param(weight)->info.trainable) b.sum(weight, at::mm(g.t(), b.saved(0)));
    b.sum(b.path() + ".bias", g.sum(0));
  };
  return op;
}

namespace {

at::Tensor drop(Call& c, const at::Tensor& x, double p) {
  mortise_philox place;
  if (const mortise_status s = kRandomApi.site(&c.host.window("test.operators"), &c.record, 0, &place))
    throw as_thrown(s);
  at::Tensor y = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const auto threshold = mortise_dropout_threshold(p);
  const auto scale = static_cast<float>(mortise_dropout_scale(p));
  uint16_t bits[8];
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (i % 8 == 0) mortise_philox_block(&place, static_cast<uint32_t>(i / 8), bits);
    to[i] = bits[i % 8] >= threshold ? from[i] * scale : 0.0f;
  }
  return y;
}

}  // namespace

Operator dropout_pair(double p) {
  Operator op;
  op.forward = [=](Forward& f) { f.give(0, drop(f, f.arg(0).contiguous(), p)); };
  op.backward = [=](Backward& b) {
    if (b.wants(0) && b.grad().defined()) b.give_grad(0, drop(b, b.grad().contiguous(), p));
  };
  return op;
}

Operator mlp_composite() {
  Operator op;
  op.declare = [](Builder& b, const std::string& path) {
    b.layer("linear", path + ".up");
    b.layer("linear", path + ".down");
  };
  op.forward = [](Forward& f) {
    const auto layer = [&](const char* name) {
      for (auto& l : f.host.get().declaration().layers)
        if (l.path == f.path() + name) return &l;
      throw PluginError(MORTISE_E_NOT_FOUND, "no layer " + f.path() + name);
    };
    f.give(0, f.layer(layer(".down"), {at::tanh(f.layer(layer(".up"), {f.arg(0)})[0])})[0]);
  };
  return op;
}

namespace {

std::atomic<int64_t> live{0}, most{0};

struct Block {
  at::DataPtr bytes;
  size_t size;
};

struct CountingAllocator final : at::Allocator {
  at::Allocator* inner = c10::GetDefaultCPUAllocator();
  at::DataPtr allocate(size_t n) override {
    auto* block = new Block{inner->allocate(n), n};
    const int64_t now = live += static_cast<int64_t>(n);
    for (int64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    void* data = block->bytes.get();
    return {data, block, &free, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  static void free(void* p) {
    auto* block = static_cast<Block*>(p);
    live -= static_cast<int64_t>(block->size);
    delete block;
  }
};

void install() {
  static CountingAllocator allocator;
  static const bool once = (c10::SetCPUAllocator(&allocator, /*priority=*/200), true);
  (void)once;
}

}  // namespace

int64_t LiveBytes::now() {
  install();
  return live;
}
int64_t LiveBytes::peak() { return most; }
void LiveBytes::reset_peak() {
  install();
  most = live.load();
}

}  // namespace mortise::testing
