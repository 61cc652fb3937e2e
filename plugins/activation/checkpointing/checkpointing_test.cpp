// The plugin against a graph of one node, made here. Against the real one, bit for bit: tests/ (with LibTorch).
#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Tensor;

namespace {

// One node: what `apply` was given, what forward saved, and a backward that triples its seeds.
struct Graph {
  FakeHost& host;
  mortise_node_fns node{};
  void* state = nullptr;
  std::vector<Tensor> saved;
  std::set<mortise_tensor*> requires_grad;
  std::vector<mortise_tensor*> roots, leaves;
  static inline Graph* now = nullptr;

  explicit Graph(FakeHost& h) : host(h) {
    now = this;
    static mortise_tensor_api tensors;
    tensors = *static_cast<const mortise_tensor_api*>(host.get_interface(&host, MORTISE_STR("mortise.tensor/0")));
    static const auto plain_info = tensors.info;
    tensors.info = [](mortise_host* h2, const mortise_tensor* t, mortise_tensor_info* out) noexcept {
      const mortise_status s = plain_info(h2, t, out);
      if (now->requires_grad.contains(const_cast<mortise_tensor*>(t))) out->flags |= MORTISE_REQUIRES_GRAD;
      return s;
    };
    host.offer("mortise.tensor/0", &tensors);
    static const mortise_autograd_api autograd = {
        .struct_size = sizeof(mortise_autograd_api),
        .apply =
            [](mortise_host*, const mortise_node_fns* fns, void* state_, const mortise_value* in, uint32_t n,
               mortise_value* out, uint32_t m) noexcept {
              now->node = *fns;
              now->state = state_;
              const mortise_status s = fns->forward(state_, nullptr, in, n, out, m);
              if (s != MORTISE_OK) now->drop();
              return s;
            },
        .save =
            [](mortise_host*, mortise_node*, mortise_tensor* const* t, uint32_t n) noexcept {
              for (uint32_t i = 0; i < n; ++i) now->saved.push_back(Tensor::share(t[i]));
              return mortise_status{MORTISE_OK};
            },
        .saved =
            [](mortise_host*, mortise_node*, uint32_t i, mortise_tensor** owned) noexcept {
              *owned = Tensor(now->saved.at(i)).release();
              return mortise_status{MORTISE_OK};
            },
        .detach =
            [](mortise_host*, mortise_tensor* t, int wanted, mortise_tensor** out) noexcept {
              *out = now->host.tensor<float>({1}, now->host.values<float>(t)).release();
              if (wanted) now->requires_grad.insert(*out);
              return mortise_status{MORTISE_OK};
            },
        .backward =
            [](mortise_host*, mortise_tensor* const* roots_, mortise_tensor* const* seeds, uint32_t n,
               mortise_tensor* const* inputs, mortise_tensor** grads, uint32_t m, uint32_t) noexcept {
              now->roots.assign(roots_, roots_ + n);
              now->leaves.assign(inputs, inputs + m);
              for (uint32_t i = 0; i < m; ++i) grads[i] = now->tensor(3 * now->number(seeds[0])).release();
              return mortise_status{MORTISE_OK};
            },
    };
    host.offer("mortise.autograd/0", &autograd);
    mortise::open_api(&host);
  }
  ~Graph() {
    drop();
    saved.clear();
    now = nullptr;
  }
  void drop() {
    if (state) node.drop(state);
    state = nullptr;
  }
  Tensor tensor(float x, bool grad = false) {
    Tensor t = host.tensor<float>({1}, {x});
    if (grad) requires_grad.insert(t.get());
    return t;
  }
  float number(mortise_tensor* t) { return static_cast<float>(host.number(t)); }

  // Backward of the node; the gradients of its inputs.
  std::vector<Tensor> backward(std::vector<mortise_tensor*> grad_out, uint32_t n_in) {
    std::vector<mortise_tensor*> in(n_in);
    EXPECT_EQ(node.backward(state, nullptr, grad_out.data(), static_cast<uint32_t>(grad_out.size()), in.data(), n_in),
              MORTISE_OK)
        << host.error();
    std::vector<Tensor> r;
    for (mortise_tensor* t : in) r.push_back(Tensor::own(t));
    return r;
  }
};

struct Pass {
  uint32_t flags;
  std::vector<mortise_tensor*> tensors;
};

// A block of two outputs, each twice the first input; the first requires a gradient when a graph is recorded.
struct Checkpointing : testing::Test {
  Checkpointing() { host.set("keep", std::vector<std::string>{}); }
  mortise_status block(mortise_call& call) {
    Pass& pass = passes.emplace_back(Pass{call.flags, {}});
    for (uint32_t i = 0; i < call.n_args; ++i) pass.tensors.push_back(mortise::Ref(call.args[i]));
    if (fail_at == passes.size()) return host.fail(&host, MORTISE_E_OPERATOR, MORTISE_STR("the block failed"));
    for (uint32_t k = 0; k < call.n_results; ++k)
      mortise::give(&call, k, graph.tensor(2 * graph.number(pass.tensors[0]), k == 0 && (call.flags & MORTISE_GRAD)));
    return MORTISE_OK;
  }
  mortise_status run(FakeCall& call, uint32_t flags = MORTISE_GRAD) {
    call.flags = flags;
    call.path = MORTISE_STR("h.0");
    return chain.wrap(plugin(), "block", call);
  }
  Plugin& plugin() {
    if (!plugin_) plugin_.emplace(host, MORTISE_PLUGIN_FILE);
    return *plugin_;
  }
  FakeHost host;
  FakeChain chain{host, [this](mortise_call& call) { return block(call); }};
  Graph graph{host};
  std::vector<Pass> passes;
  size_t fail_at = 0;
  std::optional<Plugin> plugin_;
};

TEST_F(Checkpointing, GoesStraightOnWhenNoGraphIsRecorded) {
  const Tensor x = graph.tensor(5);
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call, 0), MORTISE_OK);
  EXPECT_EQ(graph.number(call.results[0].v.t), 10);
  EXPECT_EQ(graph.state, nullptr);
  EXPECT_EQ(chain.kept, 0);
}

TEST_F(Checkpointing, RunsTheFirstPassWithoutAGraphAndSavesOnlyTheInputs) {
  const Tensor x = graph.tensor(5, true), ids = host.tensor<int64_t>({1}, {7});
  FakeCall call({mortise::value(x), mortise::none(), mortise::value(ids), mortise::value(3)}, 2);
  ASSERT_EQ(run(call), MORTISE_OK) << host.error();
  EXPECT_EQ(passes.at(0).flags, static_cast<uint32_t>(MORTISE_FIRST_PASS));
  EXPECT_EQ(graph.number(call.results[1].v.t), 10);
  ASSERT_EQ(graph.saved.size(), 4u);
  EXPECT_EQ(graph.saved[0].get(), x.get());
  EXPECT_FALSE(graph.saved[1]);
  EXPECT_EQ(graph.saved[2].get(), ids.get());
  EXPECT_TRUE(graph.node.flags & MORTISE_NODE_REQUIRES_GRAD);
}

TEST_F(Checkpointing, RunsTheBlockAgainInBackwardOverInputsCutOffFromTheGraph) {
  const Tensor x = graph.tensor(5, true), ids = host.tensor<int64_t>({1}, {7}), frozen = graph.tensor(1),
               seed = graph.tensor(4);
  FakeCall call({mortise::value(x), mortise::value(ids), mortise::value(frozen)}, 2);
  ASSERT_EQ(run(call), MORTISE_OK);
  const auto grads = graph.backward({seed.get(), nullptr}, 3);
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_EQ(passes[1].flags, static_cast<uint32_t>(MORTISE_GRAD | MORTISE_REPLAY));
  EXPECT_NE(passes[1].tensors[0], x.get());
  EXPECT_EQ(passes[1].tensors[1], ids.get());  // integers and frozen inputs as they are,
  EXPECT_EQ(passes[1].tensors[2], frozen.get());
  EXPECT_EQ(graph.number(grads[0].get()), 12);  // and without a gradient
  EXPECT_FALSE(grads[1]);
  EXPECT_FALSE(grads[2]);
}

TEST_F(Checkpointing, StartsBackwardFromOutputsThatHaveAGradientAndCanTakeOne) {
  const Tensor x = graph.tensor(5, true), seed = graph.tensor(1);
  FakeCall call({mortise::value(x)}, 3);
  ASSERT_EQ(run(call), MORTISE_OK);
  graph.backward({seed.get(), nullptr, seed.get()}, 1);  // the third output never requires one
  EXPECT_EQ(graph.roots.size(), 1u);
}

TEST_F(Checkpointing, GoesBackwardForItsParametersAloneWhenEveryInputIsFrozen) {
  const Tensor x = graph.tensor(5), seed = graph.tensor(1);
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call), MORTISE_OK);
  const auto grads = graph.backward({seed.get()}, 1);
  EXPECT_EQ(graph.roots.size(), 1u);
  EXPECT_TRUE(graph.leaves.empty());
  EXPECT_FALSE(grads[0]);
}

TEST_F(Checkpointing, DoesNotRunAgainWhenNoOutputHasAGradient) {
  const Tensor x = graph.tensor(5, true);
  FakeCall call({mortise::value(x)}, 2);
  ASSERT_EQ(run(call), MORTISE_OK);
  graph.backward({nullptr, nullptr}, 1);
  EXPECT_EQ(passes.size(), 1u);
}

TEST_F(Checkpointing, InsideAReplayCountsNothingTwice) {
  const Tensor x = graph.tensor(5, true);
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call, MORTISE_GRAD | MORTISE_REPLAY | MORTISE_LAST_MICRO), MORTISE_OK);
  EXPECT_EQ(passes[0].flags, static_cast<uint32_t>(MORTISE_FIRST_PASS | MORTISE_REPLAY | MORTISE_LAST_MICRO));
}

TEST_F(Checkpointing, DropsTheKeptCallWithTheGraph) {
  const Tensor x = graph.tensor(5, true);
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call), MORTISE_OK);
  EXPECT_EQ(chain.kept, 1);
  graph.drop();
  EXPECT_EQ(chain.kept, 0);
}

TEST_F(Checkpointing, KeepsNothingAfterAFailureInEitherPass) {
  const Tensor x = graph.tensor(5, true), seed = graph.tensor(1);
  fail_at = 1;
  {
    FakeCall call({mortise::value(x)}, 1);
    EXPECT_EQ(run(call), MORTISE_E_OPERATOR);
    EXPECT_EQ(chain.kept, 0);
  }
  graph.saved.clear();
  fail_at = 3;
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call), MORTISE_OK);
  mortise_tensor *grad_out = seed.get(), *grad_in = nullptr;
  EXPECT_EQ(graph.node.backward(graph.state, nullptr, &grad_out, 1, &grad_in, 1), MORTISE_E_OPERATOR);
  EXPECT_EQ(host.error(), "the block failed");
  EXPECT_EQ(grad_in, nullptr);
}

TEST_F(Checkpointing, NamesTheOperatorsToKeep) {
  host.set("keep", std::vector<std::string>{"attention", "mlp"});
  const Tensor x = graph.tensor(5, true);
  FakeCall call({mortise::value(x)}, 1);
  ASSERT_EQ(run(call), MORTISE_OK);
  EXPECT_EQ(chain.kept_results, (std::vector<std::string>{"attention", "mlp"}));
}

TEST_F(Checkpointing, RefusesArgumentsThatBackwardCouldNotRepeat) {
  const std::string word = "gone by then";
  FakeCall call({mortise::value(std::string_view(word))}, 1);
  EXPECT_EQ(run(call), MORTISE_E_UNSUPPORTED);
  EXPECT_NE(host.error().find("argument 0 of h.0"), std::string::npos) << host.error();
}

}  // namespace
