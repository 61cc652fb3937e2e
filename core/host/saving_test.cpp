// Tensors that are saved for backward and kept elsewhere until then.
#include <ATen/ATen.h>

#include <cstring>
#include <mutex>

#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

// Keeps bytes outside of every tensor.
struct Shelf {
  struct Kept {
    std::vector<std::byte> bytes;
    at::Tensor like;  // of no elements
    std::vector<int64_t> sizes;
  };
  int taken = 0, given = 0, alive = 0;
  bool takes = true, fails = false, forgets_shape = false;

  static mortise_status take(void* self, mortise_tensor* handle, void** token) noexcept {
    auto& shelf = *static_cast<Shelf*>(self);
    if (!shelf.takes) return MORTISE_OK;
    const at::Tensor t = share(handle).contiguous();
    const auto* from = static_cast<const std::byte*>(t.const_data_ptr());
    *token = new Kept{{from, from + t.nbytes()}, at::empty({0}, t.options()), t.sizes().vec()};
    ++shelf.taken;
    ++shelf.alive;
    return MORTISE_OK;
  }
  static mortise_status give(void* self, void* token, mortise_tensor** out) noexcept {
    auto& shelf = *static_cast<Shelf*>(self);
    auto& kept = *static_cast<Kept*>(token);
    if (shelf.fails) return set_error(MORTISE_E_DATA, "the shelf broke");
    ++shelf.given;
    at::Tensor t = at::empty(kept.sizes, kept.like.options());
    std::memcpy(t.mutable_data_ptr(), kept.bytes.data(), kept.bytes.size());
    *out = mortise::give(shelf.forgets_shape ? t.view({-1}) : t);
    return MORTISE_OK;
  }
  static void drop(void* self, void* token) noexcept {
    --static_cast<Shelf*>(self)->alive;
    delete static_cast<Kept*>(token);
  }
};
const mortise_saver kShelf = {sizeof(mortise_saver), 0, Shelf::take, Shelf::give, Shelf::drop};

// Two layers in a block: the second one saves what the first one gave, and nobody else holds it.
struct Block {
  explicit Block(Shelf* shelf) {
    host.provide("linear", linear_pair(64, 64));
    if (shelf)
      host.wrap("block", "test.shelf", [shelf](Call& c, mortise_next* next) {
        mortise_host* h = &c.host.window("test.shelf");
        if (const mortise_status s = kAutogradApi.next_saving(h, next, &c.record, &kShelf, shelf)) throw as_thrown(s);
      });
    host.declare([&](Builder& b) {
      b.segment("h.0", MORTISE_BLOCK, [this](Call& c) {
        const at::Tensor y = c.layer(first, {c.arg(0)})[0];
        c.give(0, c.layer(second, {y})[0]);
      });
      first = b.layer("linear", "h.0.first");
      second = b.layer("linear", "h.0.second");
    });
  }
  at::Tensor forward(const at::Tensor& x) {
    host.begin_step();
    host.begin_micro(0, true);
    return host.forward([&](Call& c) { return c.segment(0, {x})[0].sum(); });
  }
  TestHost host;
  mortise_layer *first = nullptr, *second = nullptr;
};

const at::Tensor kX = random({128, 64}, 1);

TEST(SavedElsewhere, GivesTheGradientsOfWhatStaysInPlace) {
  Block plain(nullptr);
  plain.host.backward(plain.forward(kX));
  Shelf shelf;
  Block kept(&shelf);
  kept.host.backward(kept.forward(kX));
  EXPECT_EQ(shelf.taken, 2);
  EXPECT_EQ(shelf.given, 2);
  EXPECT_EQ(shelf.alive, 0) << "the graph is gone, and what it saved too";
  for (const char* name : {"h.0.first.weight", "h.0.second.weight", "h.0.first.bias"})
    EXPECT_TRUE(bitwise(kept.host.grad(name), plain.host.grad(name))) << name;
}

TEST(SavedElsewhere, LeavesNothingInPlace) {
  Shelf shelf;
  Block kept(&shelf);
  const int64_t before = LiveBytes::now();
  const at::Tensor loss = kept.forward(kX);
  EXPECT_LT(LiveBytes::now() - before, 128 * 64 * 4) << "what the first layer gave is still there";
  shelf.takes = false;
  const at::Tensor other = kept.forward(kX);
  EXPECT_GE(LiveBytes::now() - before, 128 * 64 * 4) << "what is not taken stays";
}

TEST(SavedElsewhere, IsNotAskedForValuesOfParameters) {
  Operator op;
  op.declare = [](Builder& b, const std::string&) { b.param("w", {3, 3}); };
  op.forward = [](Forward& f) {
    f.give(0, at::mm(f.arg(0), f.use("w")));
    f.save_input(0);
    f.save(f.use("w"));
  };
  op.backward = [](Backward& b) { b.sum("w", at::mm(b.saved(0).t(), b.grad()) + 0 * b.saved(1)); };
  Shelf shelf;
  TestHost host;
  host.provide("op", op);
  host.wrap("block", "test.shelf", [&](Call& c, mortise_next* next) {
    if (kAutogradApi.next_saving(&c.host.window("test.shelf"), next, &c.record, &kShelf, &shelf))
      throw as_thrown(MORTISE_E_PLUGIN);
  });
  mortise_layer* layer = nullptr;
  host.declare([&](Builder& b) {
    b.segment("h.0", MORTISE_BLOCK, [&](Call& c) { c.give(0, c.layer(layer, {c.arg(0)})[0]); });
    layer = b.layer("op", "h.0.op");
  });
  host.step(1, [](Call& c) { return c.segment(0, {random({2, 3}, 1)})[0].sum(); });
  EXPECT_EQ(shelf.taken, 1);
}

TEST(SavedElsewhere, NamesWhoDidNotGiveItBack) {
  Shelf shelf;
  Block kept(&shelf);
  shelf.fails = true;
  at::Tensor loss = kept.forward(kX);
  const Thrown broke = thrown([&] { kept.host.backward(loss); });
  EXPECT_EQ(broke.status, MORTISE_E_DATA);
  EXPECT_NE(broke.text.find("the shelf broke"), std::string::npos) << broke.text;
  EXPECT_NE(broke.text.find("test.shelf"), std::string::npos) << broke.text;
  loss = at::Tensor();
  EXPECT_EQ(shelf.alive, 0);

  shelf.fails = false;
  shelf.forgets_shape = true;
  loss = kept.forward(kX);
  const Thrown other = thrown([&] { kept.host.backward(loss); });
  EXPECT_NE(other.text.find("came back as another tensor"), std::string::npos) << other.text;
}

TEST(SavedElsewhere, WantsAllThreeFunctions) {
  mortise_saver half = kShelf;
  half.drop = nullptr;
  Shelf shelf;
  TestHost host;
  host.provide("linear", linear_pair(4, 4));
  host.wrap("block", "test.shelf", [&](Call& c, mortise_next* next) {
    if (const mortise_status s = kAutogradApi.next_saving(&c.host.window("test.shelf"), next, &c.record, &half, &shelf))
      throw as_thrown(s);
  });
  mortise_layer* layer = nullptr;
  host.declare([&](Builder& b) {
    b.segment("h.0", MORTISE_BLOCK, [&](Call& c) { c.give(0, c.layer(layer, {c.arg(0)})[0]); });
    layer = b.layer("linear", "h.0.op");
  });
  const Thrown refused =
      thrown([&] { host.step(1, [](Call& c) { return c.segment(0, {random({2, 4}, 1)})[0].sum(); }); });
  EXPECT_EQ(refused.status, MORTISE_E_ARGUMENT);
}

}  // namespace
