// Operators as pairs: what the node that the host builds does with results, gradients, dtypes and mistakes.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include "core/host/call.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"
#include "core/host/test_operators.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

// One layer `op` at h.0.op, provided by a pair of the test's, with a parameter w [3, 3].
struct One {
  explicit One(Operator op) {
    op.plugin = "test.pair";
    op.declare = [](Builder& b, const std::string&) { b.param("w", {3, 3}); };
    host.provide("op", std::move(op));
    host.declare([&](Builder& b) {
      b.segment("h.0");
      layer = b.layer("op", "h.0.op");
    });
    host.begin_step();
    host.begin_micro(0, true);
  }
  Tensors run(const Args& args, uint32_t n = 1) {
    Tensors out;
    host.forward([&](Call& c) {
      out = c.layer(layer, args, n);
      return at::Tensor();
    });
    return out;
  }
  TestHost host;
  mortise_layer* layer = nullptr;
};

at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed) { return random(sizes, seed).set_requires_grad(true); }

// y = x · w; g saved as input.
Operator product() {
  Operator op;
  op.forward = [](Forward& f) {
    f.give(0, at::mm(f.arg(0), f.use("w")));
    f.save_input(0);
  };
  op.backward = [](Backward& b) {
    if (b.wants(0)) b.give_grad(0, at::mm(b.grad(), b.use("w").t()));
    b.sum("w", at::mm(b.saved(0).t(), b.grad()));
  };
  return op;
}

TEST(Pair, BuildsNoNodeWithoutGradOrWithoutAnythingToTrain) {
  One one(product());
  const at::Tensor x = random({2, 3}, 1);
  EXPECT_TRUE(one.run({x})[0].requires_grad());  // its parameter trains
  one.host.param("w")->info.trainable = 0;
  EXPECT_FALSE(one.run({x})[0].requires_grad());
  EXPECT_TRUE(one.run({leaf({2, 3}, 1)})[0].requires_grad());
  one.host.pass.flags = 0;
  EXPECT_FALSE(one.run({leaf({2, 3}, 1)})[0].requires_grad());
}

TEST(Pair, BuildsNoNodeInsideAScopeWithoutGrad) {
  One one(product());
  at::Tensor y;
  one.host.forward([&](Call& c) {
    at::NoGradGuard no_grad;
    y = c.layer(one.layer, {leaf({2, 3}, 1)})[0];
    return at::Tensor();
  });
  EXPECT_FALSE(y.requires_grad());
  EXPECT_EQ(one.host.get().parameters().state(*one.host.param("w")).expected,
            0);  // nor is it a use that anybody waits for
}

TEST(Pair, TrainsItsParameterOverAFrozenInput) {
  One one(product());
  const at::Tensor x = random({2, 3}, 1);
  one.host.backward(one.run({x})[0].sum());
  EXPECT_TRUE(bitwise(one.host.grad("w"), at::mm(x.t(), at::ones({2, 3}))));
}

TEST(Pair, WantsGradientsOnlyOfArgumentsThatRequireOne) {
  Operator op;
  uint64_t wanted = 0;
  op.forward = [](Forward& f) { f.give(0, f.arg(0) * f.arg(2) + f.arg(3)); };
  op.backward = [&](Backward& b) {
    wanted = b.record_b.wanted;
    EXPECT_EQ(b.record_b.n_grad_in, 4u);
    for (uint32_t i : {0u, 2u, 3u}) b.give_grad(i, b.grad().clone());  // one too many is dropped
  };
  One one(op);
  const at::Tensor a = leaf({2}, 1), b = leaf({2}, 3);
  one.host.backward(one.run({a, 7, random({2}, 2), b})[0].sum());
  EXPECT_EQ(wanted, 0b1001u);
  EXPECT_TRUE(bitwise(a.grad(), at::ones({2})));
  EXPECT_TRUE(bitwise(b.grad(), at::ones({2})));
}

// As many as `wanted` has bits.
TEST(Pair, TakesSixtyFourArgumentsAndNotOneMore) {
  Operator op;
  op.forward = [](Forward& f) { f.give(0, f.arg(0) * 2); };
  op.backward = [](Backward& b) { b.give_grad(0, b.grad() * 2); };
  One one(op);
  const at::Tensor x = leaf({2}, 1);
  Args args(64, x);
  one.run(args);
  args.emplace_back(x);
  try {
    one.run(args);
    ADD_FAILURE() << "not refused";
  } catch (const PluginError& e) {
    EXPECT_NE(e.text().find("h.0.op has 65 arguments; a pair has at most 64"), std::string::npos) << e.text();
  }
}

TEST(Pair, WantsGradientsOfItsLastArgumentToo) {
  uint64_t wanted = 0;
  Operator op;
  op.forward = [](Forward& f) { f.give(0, f.arg(0) * 2); };
  op.backward = [&](Backward& b) {
    wanted = b.record_b.wanted;
    b.give_grad(0, b.grad() * 2);
  };
  One one(op);
  const at::Tensor x = leaf({2}, 1), constant = random({2}, 2);
  Args args;
  for (const int i : {0, 40, 63}) {
    while (args.size() < static_cast<size_t>(i)) args.emplace_back(constant);
    args.emplace_back(x);
  }
  one.host.backward(one.run(args)[0].sum());
  EXPECT_EQ(wanted, uint64_t{1} | uint64_t{1} << 40 | uint64_t{1} << 63);
}

TEST(Pair, GivesUndefinedGradientsAsNull) {
  Operator op;
  std::vector<bool> came;
  op.forward = [](Forward& f) {
    f.give(0, f.arg(0) * 2);
    f.give(1, f.arg(0) * 3);
  };
  op.backward = [&](Backward& b) {
    came = {b.grad(0).defined(), b.grad(1).defined()};
    b.give_grad(0, b.grad(1) * 3);
  };
  One one(op);
  const at::Tensor x = leaf({2}, 1);
  const Tensors y = one.run({x}, 2);
  one.host.backward(y[1].sum());
  EXPECT_EQ(came, (std::vector<bool>{false, true}));
  EXPECT_TRUE(bitwise(x.grad(), at::full({2}, 3.0f)));
}

TEST(Pair, MayGiveNoGradientAtAll) {
  Operator op;
  op.forward = [](Forward& f) { f.give(0, f.arg(0) * 2); };
  op.backward = [](Backward&) {};
  One one(op);
  const at::Tensor x = leaf({2}, 1);
  one.host.backward(one.run({x})[0].sum());
  EXPECT_FALSE(x.grad().defined());
}

TEST(Pair, HasIntegerAndAbsentResultsBesideOthers) {
  Operator op;
  op.forward = [](Forward& f) {
    f.give(0, f.arg(0).argmax(1));
    f.give(2, f.arg(0) * 2);
    f.save_output(0);
  };
  op.backward = [](Backward& b) {
    EXPECT_EQ(b.record_b.n_grad_out, 3u);
    EXPECT_FALSE(b.grad(0).defined());
    EXPECT_FALSE(b.grad(1).defined());
    EXPECT_EQ(b.saved(0).scalar_type(), at::kLong);
    b.give_grad(0, b.grad(2) * 2);
  };
  One one(op);
  const at::Tensor x = leaf({2, 3}, 1);
  const Tensors y = one.run({x}, 3);
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_FALSE(y[1].defined());
  one.host.backward(y[2].sum());
  EXPECT_TRUE(bitwise(x.grad(), at::full({2, 3}, 2.0f)));
}

TEST(Pair, RefusesAResultThatSharesMemoryWithSomethingElse) {
  struct {
    const char* what;
    std::function<void(Forward&)> forward;
  } const mistakes[] = {
      {"argument 0", [](Forward& f) { f.give(0, f.arg(0)); }},
      {"argument 0", [](Forward& f) { f.give(0, f.arg(0).t()); }},
      {"argument 0", [](Forward& f) { f.give(0, f.arg(0).detach()); }},
      {"parameter w", [](Forward& f) { f.give(0, f.use("w")); }},
      {"parameter w", [](Forward& f) { f.give(0, f.use("w").t()); }},
      {"result 0",
       [](Forward& f) {
         f.give(0, f.arg(0) * 2);
         f.give(1, share(f.record.results[0].v.t).view({-1}));
       }},
  };
  for (const auto& m : mistakes)
    for (const uint32_t flags : {0u, uint32_t{MORTISE_GRAD}}) {
      Operator op;
      op.forward = m.forward;
      op.backward = [](Backward&) {};
      One one(op);
      one.host.pass.flags = flags;
      const Thrown t = thrown([&] { one.run({leaf({3, 3}, 1)}, 2); });
      EXPECT_EQ(t.status, MORTISE_E_ARGUMENT);
      EXPECT_NE(t.text.find(m.what), std::string::npos) << t.text;
      EXPECT_NE(t.text.find("in plugin test.pair, op at h.0.op"), std::string::npos) << t.text;
      EXPECT_FALSE(one.host.value("w").requires_grad());
    }
}

// A result may be a view of memory of its own; what a model does with it in place must not part it from its history.
TEST(Pair, KeepsItsHistoryWhenAModelWritesItsResultInPlace) {
  Operator op = product();
  op.forward = [](Forward& f) {
    f.give(0, at::mm(f.arg(0), f.use("w")).view({-1}));
    f.save_input(0);
  };
  op.backward = [](Backward& b) {
    const at::Tensor g = b.grad().view({2, 3});
    b.give_grad(0, at::mm(g, b.use("w").t()));
    b.sum("w", at::mm(b.saved(0).t(), g));
  };
  One one(op);
  const at::Tensor x = leaf({2, 3}, 1);
  at::Tensor y = one.run({x})[0];
  y.mul_(2);
  one.host.backward(y.sum());
  EXPECT_TRUE(bitwise(one.host.grad("w"), at::mm(x.detach().t(), at::full({2, 3}, 2.0f))));
  EXPECT_TRUE(bitwise(x.grad(), at::mm(at::full({2, 3}, 2.0f), one.host.value("w").t())));
}

TEST(Pair, FreesWhatItSavedWithTheGraphAlsoWhenItSavedItsOwnResult) {
  for (const bool as_own : {false, true}) {
    Operator op;
    op.forward = [=](Forward& f) {
      const at::Tensor y = at::exp(f.arg(0));
      f.give(0, y);
      if (as_own) f.save(y);
      else f.save_output(0);
    };
    op.backward = [](Backward& b) { b.give_grad(0, b.grad() * b.saved(0)); };
    One one(op);
    const at::Tensor x = leaf({1000}, 1);
    const int64_t before = LiveBytes::now();
    {
      const at::Tensor y = one.run({x})[0];
      EXPECT_EQ(LiveBytes::now() - before, 4000);
    }
    EXPECT_EQ(LiveBytes::now(), before) << (as_own ? "as its own" : "as an output");
    const at::Tensor y = one.run({x})[0];
    one.host.backward(y, 0, at::ones({1000}));
    EXPECT_TRUE(bitwise(x.grad(), at::exp(x.detach())));
  }
}

TEST(Pair, HoldsItsBatchUntilTheGraphIsGone) {
  One one(product());
  mortise_batch batch;
  one.host.pass.batch = &batch;
  {
    const at::Tensor y = one.run({leaf({2, 3}, 1)})[0];
    EXPECT_EQ(batch.references, 2);
  }
  EXPECT_EQ(batch.references, 1);
}

TEST(Pair, GoesBackwardTwiceOverAGraphThatIsRetainedAndNotThreeTimes) {
  One one(product());
  const at::Tensor x = leaf({2, 3}, 1);
  const at::Tensor y = one.run({x})[0];
  const at::Tensor seed = at::ones({2, 3});
  one.host.backward(y, MORTISE_RETAIN_GRAPH, seed);
  const at::Tensor first = x.grad().clone(), weight = one.host.grad("w");
  one.host.backward(y, 0, seed);
  EXPECT_TRUE(bitwise(x.grad(), first + first));
  EXPECT_TRUE(bitwise(one.host.grad("w"), weight + weight));
  const Thrown t = thrown([&] { one.host.backward(y, 0, seed); });
  EXPECT_EQ(t.status, MORTISE_E_ARGUMENT);
  EXPECT_NE(t.text.find("backward a second time through op at h.0.op"), std::string::npos) << t.text;
}

TEST(Pair, RefusesASecondDerivative) {
  One one(product());
  const at::Tensor y = one.run({leaf({2, 3}, 1)})[0];
  const Thrown t = thrown([&] { one.host.backward(y.sum(), MORTISE_CREATE_GRAPH); });
  EXPECT_EQ(t.status, MORTISE_E_UNSUPPORTED) << t.text;
}

TEST(Pair, RefusesAGradientOfAWrongShapeInOneSentence) {
  Operator op = product();
  op.backward = [](Backward& b) { b.give_grad(0, at::ones({5, 5})); };
  One argument(op);
  const Thrown t = thrown([&] { argument.host.backward(argument.run({leaf({2, 3}, 1)})[0].sum()); });
  EXPECT_NE(t.text.find("op at h.0.op"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("[5, 5]"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("[2, 3]"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("test.pair"), std::string::npos) << t.text;

  op.backward = [](Backward& b) { b.sum("w", at::ones({9})); };
  One parameter(op);
  const Thrown u = thrown([&] { parameter.host.backward(parameter.run({leaf({2, 3}, 1)})[0].sum()); });
  EXPECT_EQ(u.status, MORTISE_E_SHAPE);
  EXPECT_NE(u.text.find("[9]"), std::string::npos) << u.text;
  EXPECT_NE(u.text.find("[3, 3]"), std::string::npos) << u.text;
  EXPECT_NE(u.text.find("in plugin test.pair, backward of op at h.0.op"), std::string::npos) << u.text;
}

TEST(Pair, NoticesASavedInputThatWasWrittenAfterwards) {
  One one(product());
  at::Tensor x = random({2, 3}, 1);
  const at::Tensor y = one.run({x})[0];
  x.add_(1);
  const Thrown t = thrown([&] { one.host.backward(y.sum()); });
  EXPECT_NE(t.text.find("modified by an inplace operation"), std::string::npos) << t.text;
  EXPECT_NE(t.text.find("\n  fix: a plugin wrote into a tensor"), std::string::npos) << t.text;
  EXPECT_EQ(t.text.find("set_detect_anomaly"), std::string::npos) << "nobody here has Python";
  EXPECT_NE(t.text.find("op at h.0.op"), std::string::npos) << t.text;
}

TEST(Pair, CastsAGradientToItsArgumentsDtype) {
  Operator op;
  op.forward = [](Forward& f) {
    const at::Tensor cast = f.arg(0).to(at::kBFloat16);
    f.give(0, cast * 2);
    f.save_cast(0, cast);
  };
  op.backward = [](Backward& b) {
    EXPECT_EQ(b.saved(0).scalar_type(), at::kBFloat16);
    b.give_grad(0, b.grad() * 2);
  };
  One one(op);
  const at::Tensor x = leaf({3}, 1);
  one.host.backward(one.run({x})[0].sum());
  EXPECT_TRUE(bitwise(x.grad(), at::full({3}, 2.0f)));
}

struct Autocast {
  Autocast() { set(true); }
  ~Autocast() { set(false); }
  static void set(bool on) {
    at::autocast::set_autocast_enabled(at::kCPU, on);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
};

TEST(Pair, IsNotTouchedByAutocast) {
  std::vector<at::ScalarType> inside;
  Operator op = product();
  op.forward = [&](Forward& f) {
    inside.push_back(at::mm(f.arg(0), f.use("w")).scalar_type());
    f.give(0, at::mm(f.arg(0), f.use("w")));
    f.save_input(0);
  };
  op.backward = [&](Backward& b) {
    inside.push_back(at::mm(b.grad(), b.use("w")).scalar_type());
    b.give_grad(0, at::mm(b.grad(), b.use("w").t()));
  };
  One one(op);
  Autocast on;
  const at::Tensor x = leaf({2, 3}, 1), w = random({3, 3}, 2);
  EXPECT_EQ(at::mm(x, w).scalar_type(), at::kBFloat16);  // it is on
  one.host.backward(one.run({x})[0].sum());
  EXPECT_EQ(inside, (std::vector<at::ScalarType>{at::kFloat, at::kFloat}));
  EXPECT_EQ(at::mm(x, w).scalar_type(), at::kBFloat16);
}

TEST(Pair, LeavesDispatchAndGradModeAsTheyWereAlsoAfterErrors) {
  const auto state = [] {
    return std::make_pair(c10::impl::tls_local_dispatch_key_set().excluded_.raw_repr(), at::GradMode::is_enabled());
  };
  const auto before = state();
  Operator bad = product();
  bad.forward = [](Forward& f) { f.give(0, at::mm(f.arg(0), f.arg(0))); };
  One one(bad);
  EXPECT_EQ(thrown([&] { one.run({leaf({2, 3}, 1)}); }).status, MORTISE_E_OPERATOR);
  EXPECT_EQ(state(), before);
  Operator bad_backward = product();
  bad_backward.backward = [](Backward& b) { at::mm(b.grad(), b.grad()); };
  One two(bad_backward);
  const at::Tensor y = two.run({leaf({2, 3}, 1)})[0];
  EXPECT_EQ(thrown([&] { two.host.backward(y.sum()); }).status, MORTISE_E_OPERATOR);
  EXPECT_EQ(state(), before);
}

TEST(Pair, ReleasesWhatItGaveAndSavedBeforeItFailed) {
  Operator op = product();
  op.forward = [](Forward& f) {
    f.give(0, at::ones({1000}));
    f.save(at::ones({1000}));
    throw PluginError(MORTISE_E_PLUGIN, "half done");
  };
  One one(op);
  const at::Tensor x = leaf({2, 3}, 1);
  const int64_t before = LiveBytes::now();
  mortise_value result{};
  one.host.forward([&](Call& c) {  // by the table, so that nobody releases results for us
    const mortise_value arg = Arg(x);
    EXPECT_EQ(kCallApi.layer(&c.host.window("test.model"), one.layer, &arg, 1, &result, 1), MORTISE_E_PLUGIN);
    return at::Tensor();
  });
  EXPECT_EQ(result.tag, uint32_t{MORTISE_NONE});
  EXPECT_EQ(LiveBytes::now(), before);
}

TEST(Pair, RefusesToCallALayerAndToSaveWhatIsNotThere) {
  Operator calls;
  mortise_layer* self = nullptr;
  calls.forward = [&](Forward& f) { f.layer(self, {f.arg(0)}); };
  calls.backward = [](Backward&) {};
  One one(calls);
  self = one.layer;
  EXPECT_NE(thrown([&] { one.run({leaf({2, 3}, 1)}); }).text.find("inside an operator pair"), std::string::npos);

  Operator calls_back = product();
  calls_back.backward = [&](Backward& b) { b.layer(self, {b.grad()}); };
  One back(calls_back);
  self = back.layer;
  const at::Tensor y = back.run({leaf({2, 3}, 1)})[0];
  EXPECT_NE(thrown([&] { back.host.backward(y.sum()); }).text.find("inside an operator pair"), std::string::npos);

  Operator saves = product();
  saves.forward = [](Forward& f) {
    f.give(0, at::mm(f.arg(0), f.use("w")));
    f.save_input(3);
  };
  One two(saves);
  EXPECT_EQ(thrown([&] { two.run({leaf({2, 3}, 1)}); }).status, MORTISE_E_ARGUMENT);
}

// The table of a plugin whose header ended before `backward`: what lies behind it is no function.
TEST(Composite, IsAnOperatorWhoseTableEndsBeforeBackward) {
  TestHost host;
  mortise_operator table{};
  table.struct_size = offsetof(mortise_operator, backward);
  table.forward = [](void*, mortise_call* call, mortise_saved*, uint32_t*) noexcept {
    call->results[0] = value_of(share(call->args[0].v.t) * 2);
    return mortise_status{MORTISE_OK};
  };
  table.backward = [](void*, mortise_call*, mortise_backward*) noexcept {
    ADD_FAILURE() << "called";
    return mortise_status{MORTISE_E_INTERNAL};
  };
  mortise_next link;
  link.plugin = &host.window("test.old");
  link.op = &table;
  link.point = "twice";
  at::Tensor x = random({3}, 1).set_requires_grad(true);
  const mortise_value arg = value_of(x);
  mortise_value result{};
  mortise_call call = make_call(nullptr, 0, {});
  call.flags = MORTISE_GRAD;
  set_values(call, &arg, 1, &result, 1);
  invoke(&link, call);
  take(result.v.t).sum().backward();
  take(arg.v.t);
  EXPECT_TRUE(bitwise(x.grad(), at::full({3}, 2.f)));
}

TEST(Composite, ThatSavesIsRefusedAndKeepsNothing) {
  TestHost host;
  mortise_operator table{};
  table.struct_size = offsetof(mortise_operator, backward);
  table.forward = [](void*, mortise_call* call, mortise_saved* saved, uint32_t* n) noexcept {
    call->results[0] = value_of(at::ones({3}));
    saved[0] = {MORTISE_SAVE_OWN, 0, value_of(at::zeros({1000})).v.t};
    *n = 1;
    return mortise_status{MORTISE_OK};
  };
  mortise_next link;
  link.plugin = &host.window("test.old");
  link.op = &table;
  link.point = "twice";
  const int64_t before = LiveBytes::now();
  mortise_value result{};
  mortise_call call = make_call(nullptr, 0, {});
  set_values(call, nullptr, 0, &result, 1);
  EXPECT_NE(thrown([&] { invoke(&link, call); }).text.find("saves 1 tensors"), std::string::npos);
  take(result.v.t);
  EXPECT_EQ(LiveBytes::now(), before);
}

// Below a composite are pairs and ATen operators; it has no node of its own.
TEST(Composite, HasTheGradientsOfItsParts) {
  TestHost host;
  host.provide("linear", linear_pair(4, 4));
  host.provide("mlp", mlp_composite());
  mortise_layer* mlp = nullptr;
  host.declare([&](Builder& b) {
    b.segment("h.0");
    mlp = b.layer("mlp", "h.0.mlp");
  });
  const at::Tensor x = random({3, 4}, 1);
  host.step(1, [&](Call& c) { return c.layer(mlp, {x})[0].sum(); });
  auto p = host.leaves();
  at::linear(at::tanh(at::linear(x, p["h.0.mlp.up.weight"], p["h.0.mlp.up.bias"])), p["h.0.mlp.down.weight"],
             p["h.0.mlp.down.bias"])
      .sum()
      .backward();
  for (const char* name : {"h.0.mlp.up.weight", "h.0.mlp.up.bias", "h.0.mlp.down.weight", "h.0.mlp.down.bias"})
    EXPECT_TRUE(bitwise(host.grad(name), p[name].grad())) << name;
}

TEST(Layer, SaysWhatItWasDeclaredWith) {
  One one(product());
  mortise_value v{};
  const auto asked = [&](const mortise_layer* layer, mortise_str key, mortise_value* out) {
    return kCallApi.attribute(&one.host.window("test.x"), layer, key, out);
  };
  EXPECT_EQ(asked(one.layer, MORTISE_STR("nothing"), &v), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(asked(nullptr, MORTISE_STR("in"), &v), MORTISE_E_ARGUMENT);
  EXPECT_EQ(asked(one.layer, MORTISE_STR("in"), nullptr), MORTISE_E_ARGUMENT);
  one.layer->attrs = {{MORTISE_STR("heads"), {MORTISE_INT, 0, {.i = 4}}}};
  EXPECT_EQ(asked(one.layer, MORTISE_STR("heads"), &v), MORTISE_OK);
  EXPECT_EQ(v.tag, static_cast<uint32_t>(MORTISE_INT));
  EXPECT_EQ(v.v.i, 4);
}

TEST(Layer, WithoutAProviderInAModeIsNamed) {
  One one(product());
  one.host.get().set_layer_chain(*one.layer, MORTISE_EVAL, nullptr);
  one.host.pass.mode = MORTISE_EVAL;
  EXPECT_NE(thrown([&] { one.run({leaf({2, 3}, 1)}); }).text.find("h.0.op"), std::string::npos);
}

}  // namespace
