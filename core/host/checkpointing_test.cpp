// Calls that are kept and run again, and nodes of a plugin's own: activation.checkpointing over real graphs, and a
// small wrapper of the test's where something has to be counted.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <thread>

#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

void check(mortise_status s) {
  if (s != MORTISE_OK) throw PluginError(s, take_error(s));
}

// Checkpointing of one tensor in, one tensor out, by the C tables alone. Wraps any point.
struct Recompute {
  static inline int alive = 0, dropped = 0;
  mortise_host* host;
  mortise_kept* kept = nullptr;
  uint32_t flags = 0;
  bool input_trains = false;

  static void wrap(Call& c, mortise_next* next) {
    mortise_host* h = &c.host.window("test.recompute");
    if (!(c.record.flags & MORTISE_GRAD)) return check(kCallApi.next(h, next, &c.record));
    auto* r = new Recompute{h, nullptr, c.record.flags & MORTISE_REPLAY, c.arg(0).requires_grad()};
    ++alive;
    check(kCallApi.keep(h, &c.record, next, nullptr, 0, &r->kept));
    static const mortise_node_fns fns = {
        sizeof fns, MORTISE_NODE_REQUIRES_GRAD, MORTISE_STR("recompute"), forward, backward, drop};
    check(kAutogradApi.apply(h, &fns, r, c.record.args, c.record.n_args, c.record.results, c.record.n_results));
  }
  static mortise_status forward(void* state, mortise_node* node, const mortise_value* in, uint32_t n,
                                mortise_value* out, uint32_t m) noexcept {
    auto& r = *static_cast<Recompute*>(state);
    return guarded([&] {
      mortise_tensor* x = in[0].v.t;
      check(kAutogradApi.save(r.host, node, &x, 1));
      check(kCallApi.run(r.host, r.kept, MORTISE_FIRST_PASS | r.flags, in, n, out, m));
    });
  }
  static mortise_status backward(void* state, mortise_node* node, mortise_tensor* const* grad_out, uint32_t,
                                 mortise_tensor** grad_in, uint32_t) noexcept {
    auto& r = *static_cast<Recompute*>(state);
    return guarded([&] {
      mortise_tensor *saved = nullptr, *leaf = nullptr;
      check(kAutogradApi.saved(r.host, node, 0, &saved));
      const at::Tensor x = take(saved);
      check(kAutogradApi.detach(r.host, borrow(x), r.input_trains, &leaf));
      const at::Tensor cut = take(leaf);
      const mortise_value arg = Arg(cut);
      mortise_value out{};
      check(kCallApi.run(r.host, r.kept, MORTISE_GRAD | MORTISE_REPLAY | r.flags, &arg, 1, &out, 1));
      const at::Tensor y = take(out.v.t);
      mortise_tensor *root = borrow(y), *input = borrow(cut);
      check(kAutogradApi.backward(r.host, &root, grad_out, 1, &input, grad_in, 1, 0));
    });
  }
  static void drop(void* state) noexcept {
    auto* r = static_cast<Recompute*>(state);
    kCallApi.drop(r->host, r->kept);
    delete r;
    --alive;
    ++dropped;
  }
};

// Blocks h.0 … that do what `body` does, over a linear pair, a dropout pair and a plain parameter each.
struct Net {
  using BlockBody = std::function<at::Tensor(Net&, Call&, size_t block, at::Tensor x)>;
  Net(size_t n, const std::function<void(TestHost&)>& prepare, BlockBody b) : body(std::move(b)) {
    host.provide("linear", linear_pair(4, 4));
    host.provide("dropout", dropout_pair());
    host.provide("mlp", mlp_composite());
    prepare(host);
    host.declare([&](Builder& builder) {
      for (size_t i = 0; i < n; ++i) {
        const std::string path = "h." + std::to_string(i);
        builder.segment(path, MORTISE_BLOCK, [this, i](Call& c) { c.give(0, body(*this, c, i, c.arg(0))); });
        linear.push_back(builder.layer("linear", path + ".fc"));
        dropout.push_back(builder.layer("dropout", path + ".drop"));
        if (i == 0) mlp = builder.layer("mlp", path + ".mlp");
        builder.param(path + ".plain", {4, 4});
      }
    });
  }
  at::Tensor loss(Call& c) { return c.model({x})[0].pow(2).sum(); }
  void step(int micros = 1) {
    host.step(micros, [&](Call& c) { return loss(c); });
  }
  std::map<std::string, at::Tensor> grads() {
    std::map<std::string, at::Tensor> all;
    for (auto& p : host.get().declaration().params) all[p.name] = host.grad(p.name);
    return all;
  }
  BlockBody body;
  at::Tensor x = random({6, 4}, 1);
  std::vector<mortise_layer*> linear, dropout;
  mortise_layer* mlp = nullptr;
  TestHost host;
};

// Those of layers that were used.
void expect_equal(Net& a, Net& b) {
  const auto x = a.grads(), y = b.grads();
  ASSERT_EQ(x.size(), y.size());
  EXPECT_TRUE(x.at("h.0.plain").defined());
  for (const auto& [name, g] : x) EXPECT_TRUE(bitwise(g, y.at(name))) << name;
}

void nothing(TestHost&) {}
void checkpointed(TestHost& h) { h.load(MORTISE_CHECKPOINTING); }

at::Tensor plain_block(Net& net, Call& c, size_t i, at::Tensor x) {
  x = at::tanh(c.layer(net.linear[i], {x})[0]);
  return at::mm(x, c.use("h." + std::to_string(i) + ".plain"));
}

TEST(Kept, OperatorsRunOnceAndGiveTheSame) {
  const auto keeping = [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}}); };
  Net plain(3, nothing, plain_block), kept(3, keeping, plain_block), full(3, checkpointed, plain_block);
  for (Net* net : {&plain, &kept, &full}) net->step(2);
  expect_equal(plain, kept);
  expect_equal(plain, full);
  EXPECT_EQ(plain.host.count("forward linear"), 6u);
  EXPECT_EQ(kept.host.count("forward linear"), 6u);
  EXPECT_EQ(full.host.count("forward linear"), 12u);
}

TEST(Kept, OperatorsOfALayerThatIsCalledTwiceAreToldApart) {
  const auto twice = [](Net& net, Call& c, size_t i, at::Tensor x) {
    return c.layer(net.linear[i], {at::tanh(c.layer(net.linear[i], {x})[0])})[0] + plain_block(net, c, i, x);
  };
  const auto keeping = [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}}); };
  Net plain(2, nothing, twice), kept(2, keeping, twice);
  plain.step();
  kept.step();
  expect_equal(plain, kept);
  EXPECT_EQ(kept.host.count("forward linear"), 6u);
}

TEST(Kept, ResultThatWasWrittenInPlaceIsNotUsedAgain) {
  const auto writes = [](Net& net, Call& c, size_t i, at::Tensor x) {
    at::Tensor y = c.layer(net.linear[i], {x})[0];
    return at::mm(y.mul_(2), c.use("h." + std::to_string(i) + ".plain"));
  };
  const auto keeping = [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}}); };
  Net plain(1, nothing, writes), full(1, checkpointed, writes), kept(1, keeping, writes);
  plain.step();
  full.step();
  expect_equal(plain, full);
  const Thrown t = thrown([&] { kept.step(); });
  EXPECT_NE(t.text.find("linear at h.0.fc"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("in place"), std::string::npos) << t.text;
}

// A cast of an argument is made again from the fresh one: it is not stored between the passes.
TEST(Kept, CastsAreMadeAgain) {
  const auto run = [](bool cast) {
    TestHost host;
    Operator op = linear_pair(64, 64);
    op.forward = [=](Forward& f) {
      const at::Tensor half = f.arg(0).to(at::kBFloat16);
      f.give(0, at::mm(half.to(at::kFloat), f.use(f.path() + ".weight").t()));
      cast ? f.save_cast(0, half) : f.save_input(0);
    };
    op.backward = [=](Backward& b) {
      b.sum(b.path() + ".weight", at::mm(b.grad().t(), b.saved(0).to(at::kBFloat16).to(at::kFloat)));
    };
    host.provide("linear", op);
    host.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}});
    mortise_layer* layer = nullptr;
    host.declare([&](Builder& b) {
      b.segment("h.0", MORTISE_BLOCK, [&](Call& c) { c.give(0, c.layer(layer, {at::tanh(c.arg(0))})[0]); });
      layer = b.layer("linear", "h.0.fc");
    });
    host.begin_step();
    host.begin_micro(0, true);
    const at::Tensor x = random({8, 64}, 1);
    const int64_t before = LiveBytes::now();
    const at::Tensor loss = host.forward([&](Call& c) { return c.segment(0, {x})[0].sum(); });
    const int64_t between = LiveBytes::now() - before;
    host.backward(loss);
    return std::make_pair(between, host.grad("h.0.fc.weight"));
  };
  const auto with = run(true), without = run(false);
  EXPECT_EQ(with.first, without.first);
  EXPECT_TRUE(bitwise(with.second, without.second));
}

TEST(Kept, CompositesAreRefused) {
  Net net(
      1, [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"mlp"})}}); },
      [](Net& n, Call& c, size_t, at::Tensor x) { return c.layer(n.mlp, {x})[0]; });
  const Thrown t = thrown([&] { net.step(); });
  EXPECT_EQ(t.status, MORTISE_E_UNSUPPORTED);
  EXPECT_NE(t.text.find("mlp at h.0.mlp cannot be kept"), std::string::npos) << t.text;
}

// One layer twice in a segment, and one layer in two segments: each call has bits of its own, the same in both passes.
at::Tensor dropping_block(Net& net, Call& c, size_t i, at::Tensor x) {
  x = plain_block(net, c, i, x);
  const at::Tensor a = c.layer(net.dropout[i], {x})[0], b = c.layer(net.dropout[i], {x})[0],
                   shared = c.layer(net.dropout[0], {x})[0];
  return a + 2 * b + 3 * shared;
}

TEST(Random, BitsAreTheSameInTheReplayAndDifferentAtEveryCall) {
  std::vector<at::Tensor> masks;
  const auto recording = [&](Net& net, Call& c, size_t i, at::Tensor x) {
    const at::Tensor one = at::ones({64, 4});
    for (mortise_layer* l : {net.dropout[i], net.dropout[i], net.dropout[0]})
      masks.push_back(c.layer(l, {one})[0].detach().clone());
    return plain_block(net, c, i, x);
  };
  Net net(2, checkpointed, recording);
  net.step();
  // h.0: its own layer is the shared one, thrice; h.1; then the replays: h.1, h.0.
  ASSERT_EQ(masks.size(), 12u);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_TRUE(bitwise(masks[k], masks[9 + k]));
    EXPECT_TRUE(bitwise(masks[3 + k], masks[6 + k]));
  }
  for (size_t k = 0; k < 6; ++k)
    for (size_t j = 0; j < k; ++j) EXPECT_FALSE(bitwise(masks[k], masks[j])) << j << " and " << k;
  masks.clear();
  net.step();  // another step, other bits
  EXPECT_FALSE(bitwise(masks[0], masks[3]));
}

TEST(Random, GradientsOfACheckpointedRunAreThoseOfAPlainOne) {
  Net plain(2, nothing, dropping_block), full(2, checkpointed, dropping_block),
      kept(
          2, [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"dropout"})}}); }, dropping_block),
      twice(2, [](TestHost& h) { h.load(MORTISE_CHECKPOINTING), h.load(MORTISE_CHECKPOINTING); }, dropping_block);
  for (int s = 0; s < 2; ++s)
    for (Net* net : {&plain, &full, &kept, &twice}) net->step(2);
  expect_equal(plain, full);
  expect_equal(plain, kept);
  expect_equal(plain, twice);
  EXPECT_EQ(kept.host.count("forward dropout"), plain.host.count("forward dropout"));
}

// A wrapper may keep a layer instead of a block. The calls that follow, and the second call of that layer, stand where
// they stand without it.
TEST(Random, BitsDoNotShiftWhenALayerIsKept) {
  Operator drops = mlp_composite();
  drops.declare = [](Builder&, const std::string&) {};
  drops.forward = [](Forward& f) {
    for (auto& l : f.host.get().declaration().layers)
      if (l.path == "h.0.drop") f.give(0, f.layer(&l, {f.layer(&l, {f.arg(0)})[0]})[0] * 2);
  };
  const auto run = [&](bool recompute) {
    TestHost host;
    host.provide("dropout", dropout_pair(0.25));
    host.provide("mlp", drops);
    if (recompute)
      host.wrap("mlp", "test.recompute", Recompute::wrap), host.wrap("dropout", "test.recompute", Recompute::wrap);
    mortise_layer *mlp = nullptr, *dropout = nullptr;
    host.declare([&](Builder& b) {
      b.segment("h.0");
      dropout = b.layer("dropout", "h.0.drop");
      mlp = b.layer("mlp", "h.0.mlp");
      b.param("w", {5, 4});
    });
    at::Tensor loss;
    host.step(1, [&](Call& c) {
      at::Tensor x = c.layer(mlp, {c.use("w")})[0];
      x = c.layer(mlp, {x})[0];
      loss = c.layer(dropout, {x})[0].sum();
      return loss;
    });
    return std::make_pair(loss.detach(), host.grad("w"));
  };
  const auto plain = run(false), kept = run(true);
  EXPECT_TRUE(bitwise(plain.first, kept.first));
  EXPECT_TRUE(bitwise(plain.second, kept.second));
}

TEST(Checkpointed, BlocksMayBeNested) {
  // Each block calls the next one inside itself.
  const auto nested = [](Net& net, Call& c, size_t i, at::Tensor x) {
    x = dropping_block(net, c, i, x);
    return i + 1 < net.linear.size() ? at::tanh(c.segment(i + 1, {x})[0]) + x : x;
  };
  Net plain(3, nothing, nested), full(3, checkpointed, nested),
      kept(3, [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"linear"})}}); }, nested);
  for (Net* net : {&plain, &full, &kept})
    net->host.step(2, [&](Call& c) { return c.segment(0, {net->x})[0].pow(2).sum(); });
  expect_equal(plain, full);
  expect_equal(plain, kept);
  for (const auto& p : full.host.get().declaration().params)
    EXPECT_EQ(full.host.count("ready " + p.name), 1u) << p.name;  // h.0.mlp's too, at the end
}

// LibTorch moves to a thread of its own beyond 60 nested backwards; on a device every one is on another thread. The end
// is still that of the outermost.
TEST(Checkpointed, BlocksMayBeNestedBeyondOneThread) {
  const auto nested = [](Net& net, Call& c, size_t i, at::Tensor x) {
    x = at::tanh(at::mm(x, c.use("h." + std::to_string(i) + ".plain")));
    return i + 1 < net.linear.size() ? c.segment(i + 1, {x})[0] + c.use("h.0.plain").sum()
                                     : c.layer(net.linear[i], {x})[0];
  };
  Net plain(70, nothing, nested), full(70, checkpointed, nested);
  for (Net* net : {&plain, &full}) {
    net->host.step(1, [&](Call& c) { return c.segment(0, {net->x})[0].pow(2).sum(); });
    std::vector<std::string> ready;
    for (const auto& line : net->host.log)
      if (line.starts_with("ready ") && line.ends_with(".plain")) ready.push_back(line);
    ASSERT_EQ(ready.size(), 70u);
    for (size_t i = 0; i < 70; ++i) EXPECT_EQ(ready[i], "ready h." + std::to_string(69 - i) + ".plain");
  }
  for (int i = 0; i < 70; ++i)
    EXPECT_TRUE(bitwise(plain.host.grad("h." + std::to_string(i) + ".plain"),
                        full.host.grad("h." + std::to_string(i) + ".plain")))
        << i;
}

TEST(Checkpointed, ResultMayBeAnInputOrAParameterItself) {
  // The values of a parameter must not become part of a graph.
  const auto returns = [](const char* what) {
    return [what](Net&, Call& c, size_t, at::Tensor x) {
      const at::Tensor w = c.use("h.0.plain");
      return *what == 'x' ? x : *what == 'w' ? w : w.t();
    };
  };
  for (const char* what : {"x", "w", "v"}) {
    Net plain(1, nothing, returns(what)), full(1, checkpointed, returns(what));
    for (Net* net : {&plain, &full}) {
      at::Tensor x = random({4, 4}, 2).set_requires_grad(true);
      net->host.step(1, [&](Call& c) { return (c.segment(0, {x * 1})[0] * 3 + x).sum(); });
      EXPECT_TRUE(bitwise(x.grad(), at::full({4, 4}, *what == 'x' ? 4.0f : 1.0f))) << what;
      EXPECT_FALSE(net->host.value("h.0.plain").requires_grad()) << what;
    }
    EXPECT_TRUE(bitwise(plain.host.grad("h.0.plain"), full.host.grad("h.0.plain"))) << what;
  }
}

TEST(Checkpointed, GraphThatIsThrownAwayFreesEverything) {
  for (const bool kept : {false, true}) {
    Net net(
        3,
        [&](TestHost& h) {
          h.load(MORTISE_CHECKPOINTING,
                 {{"keep", texts(kept ? std::vector<std::string>{"linear"} : std::vector<std::string>{})}});
        },
        [](Net& n, Call& c, size_t i, at::Tensor x) {
          return c.layer(n.linear[i], {plain_block(n, c, i, x)})[0];
        });  // a kept result is the block's own
    net.step();
    const int64_t before = LiveBytes::now();
    net.host.begin_step();
    net.host.begin_micro(0, true);
    for (int i = 0; i < 3; ++i) net.host.forward([&](Call& c) { return net.loss(c); });
    EXPECT_EQ(LiveBytes::now(), before) << (kept ? "keeping" : "");
  }
}

TEST(Node, DropsItsStateOnceWhateverHappens) {
  Net net(2, [](TestHost& h) { h.wrap("block", "test.recompute", Recompute::wrap); }, plain_block);
  const auto forward = [&] {
    net.host.begin_step();
    net.host.begin_micro(0, true);
    return net.host.forward([&](Call& c) { return net.loss(c); });
  };
  Recompute::alive = Recompute::dropped = 0;
  {
    const at::Tensor loss = forward();
    EXPECT_EQ(Recompute::alive, 2);
    net.host.backward(loss);
    EXPECT_EQ(Recompute::alive, 0);  // as soon as backward is done with it
  }
  EXPECT_EQ(Recompute::dropped, 2);
  forward();
  EXPECT_EQ(Recompute::dropped, 4);  // thrown away
  net.host.pass.flags = 0;
  forward();
  EXPECT_EQ(Recompute::dropped, 4);  // no graph, no node
  net.host.pass.flags = MORTISE_GRAD;
  net.x = random({6, 3}, 1);
  EXPECT_NE(thrown(forward).status, MORTISE_OK);
  EXPECT_EQ(Recompute::alive, 0);
  EXPECT_EQ(Recompute::dropped, 5);  // the first one failed
}

TEST(Node, OfAThreadThatRecordsNothingDropsItsStateAtOnce) {
  Net net(1, [](TestHost& h) { h.wrap("block", "test.recompute", Recompute::wrap); }, plain_block);
  Recompute::alive = Recompute::dropped = 0;
  net.host.forward([&](Call& c) {
    at::NoGradGuard no_grad;
    EXPECT_FALSE(c.model({net.x})[0].requires_grad());
    EXPECT_EQ(Recompute::dropped, 1);
    return at::Tensor();
  });
}

TEST(Checkpointed, GraphThatIsRetainedGoesBackwardTwiceAndNotThreeTimes) {
  Net net(2, checkpointed, dropping_block), plain(2, nothing, dropping_block);
  for (Net* n : {&net, &plain}) {
    n->host.begin_step();
    n->host.begin_micro(0, true);
    const at::Tensor y = n->host.forward([&](Call& c) { return c.model({n->x})[0]; });
    const at::Tensor seed = at::ones_like(y);
    n->host.backward(y, MORTISE_RETAIN_GRAPH, seed);
    const auto once = n->grads();
    n->host.backward(y, 0, seed);
    for (const auto& [name, g] : n->grads())
      EXPECT_TRUE(bitwise(g, g.defined() ? once.at(name) + once.at(name) : g)) << name;
    const Thrown t = thrown([&] { n->host.backward(y, 0, seed); });
    EXPECT_NE(t.text.find("a second time"), std::string::npos) << t.text;
  }
  expect_equal(net, plain);
}

TEST(Checkpointed, ForwardAndBackwardMayBeOnDifferentThreads) {
  Net one(2, checkpointed, dropping_block), two(2, checkpointed, dropping_block);
  one.step();
  at::Tensor loss;
  two.host.begin_step();
  two.host.begin_micro(0, true);
  std::thread([&] { loss = two.host.forward([&](Call& c) { return two.loss(c); }); }).join();
  std::thread([&] { two.host.backward(loss); }).join();
  expect_equal(one, two);
}

TEST(Checkpointed, RunsInTheFrameOfItsFirstPass) {
  std::vector<mortise_call> seen;
  mortise_batch batch;
  Net net(1, checkpointed, [&](Net& n, Call& c, size_t i, at::Tensor x) {
    seen.push_back(c.record);
    return plain_block(n, c, i, x);
  });
  net.host.pass = {MORTISE_TRAIN, MORTISE_GRAD, MORTISE_BF16, MORTISE_WANT_LOGITS, &batch};
  net.host.begin_step();
  net.host.begin_micro(1, true);
  const at::Tensor loss = net.host.forward([&](Call& c) { return net.loss(c); });
  net.host.backward(loss);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].flags, uint32_t{MORTISE_FIRST_PASS | MORTISE_LAST_MICRO});
  EXPECT_EQ(seen[1].flags, uint32_t{MORTISE_GRAD | MORTISE_REPLAY | MORTISE_LAST_MICRO});
  for (const auto& s : seen) {
    EXPECT_EQ(s.micro, 1);
    EXPECT_EQ(s.compute_dtype, uint32_t{MORTISE_BF16});
    EXPECT_EQ(s.want, uint32_t{MORTISE_WANT_LOGITS});
    EXPECT_EQ(s.batch, &batch);
    EXPECT_EQ(view(s.path), "h.0");
  }
  EXPECT_EQ(batch.references, 1);
}

TEST(Keep, NamesAnOperatorThatDoesNotExist) {
  Net net(1, [](TestHost& h) { h.load(MORTISE_CHECKPOINTING, {{"keep", texts({"lineer"})}}); }, plain_block);
  const Thrown t = thrown([&] { net.step(); });
  EXPECT_EQ(t.status, MORTISE_E_CONFIG);
  EXPECT_NE(t.text.find("lineer"), std::string::npos);
  EXPECT_NE(t.text.find("in plugin activation.checkpointing, block at h.0"), std::string::npos) << t.text;
}

}  // namespace
