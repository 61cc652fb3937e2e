// The fake host against what mortise/testing/fake_host.hpp says of it. Loading libraries is shown by the tests of every
// plugin.
#include "mortise/testing/fake_host.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/comm.hpp"
#include "mortise/cpp/operator.hpp"
#include "mortise/cpp/ops.hpp"
#include "mortise/cpp/transformer.hpp"
#include "mortise/plugin.h"
#include "mortise/testing/fake_call.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

TEST(FakeHost, GivesMemoryThatNobodyMayCountOn) {
  FakeHost host;
  const Tensor floats = empty(MORTISE_F32, {2, 3}), ids = empty(MORTISE_I64, {1});
  EXPECT_TRUE(std::isnan(host.values<float>(floats)[5]));
  EXPECT_EQ(host.values<int64_t>(ids), std::vector<int64_t>{-1});
  EXPECT_EQ(Info(floats).strides[0], 3);
  EXPECT_EQ(Info(floats).strides[1], 1);
}

TEST(FakeHost, CountsTensorsThatAreAlive) {
  FakeHost host;
  EXPECT_EQ(host.live_tensors(), 0U);
  {
    const Tensor a = host.tensor<float>({2}, {1, 2});
    const Tensor b = a;
    EXPECT_EQ(host.live_tensors(), 1U);
  }
  EXPECT_EQ(host.live_tensors(), 0U);
  host.ledger();
  EXPECT_EQ(host.live_tensors(), 0U) << "the ledger is the core's";
}

TEST(FakeHost, TakesEmptyTensorsAndSingleNumbers) {
  FakeHost host;
  const Tensor nothing = empty(MORTISE_F32, {0, 4}), one = host.tensor<double>({}, {2.5});
  EXPECT_EQ(Info(nothing).numel, 0);
  EXPECT_EQ(Info(one).rank, 0U);
  EXPECT_EQ(host.number(one.get()), 2.5);
}

TEST(FakeHost, RefusesToReadAnotherSizeThanTheTensors) {
  FakeHost host;
  const Tensor t = host.tensor<int32_t>({2}, {1, 2});
  int32_t to[2] = {};
  EXPECT_EQ(api.tensor->read(&host, t.get(), to, 4), MORTISE_E_ARGUMENT);
  EXPECT_EQ(api.tensor->read(&host, t.get(), to, 8), MORTISE_OK);
  EXPECT_EQ(to[1], 2);
}

TEST(FakeHostDeathTest, EndsTheTestForWhatIsNotReleasedOrReleasedTwice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        FakeHost host;
        empty(MORTISE_F32, {1}).release();
      },
      "1 tensors were not released");
  EXPECT_DEATH(
      {
        FakeHost host;
        Tensor t = empty(MORTISE_F32, {1});
        api.tensor->release(&host, t.get());
      },
      "a tensor was released too often");
  EXPECT_DEATH(
      {
        FakeHost host;
        Batch::create(nullptr).release();
      },
      "1 batches were not released");
}

TEST(FakeHost, KnowsOnlyTheKeysThatTheTestSets) {
  FakeHost host;
  host.set("rate", 0.5).set("name", "x").set("paths", std::vector<std::string>{"a", "b"}).unset("none");
  EXPECT_EQ(config::number("rate"), 0.5);
  EXPECT_EQ(config::text("name"), "x");
  EXPECT_EQ(config::texts("paths").at(1), "b");
  EXPECT_EQ(config::get("none").tag, static_cast<uint32_t>(MORTISE_NONE));
  EXPECT_THROW(config::get("nmae"), HostError);
  EXPECT_EQ(host.error(), "the test sets no key `nmae`");
}

TEST(Transformer, TrainsOnLabelsAlone) {
  FakeHost host;
  const Batch batch = Batch::create(nullptr);
  const Tensor ids = empty(MORTISE_I64, {1});
  check(api.batch->set(&host, batch.get(), MORTISE_STR("label"), ids.get()));
  mortise_call call{};
  call.batch = batch.get();
  call.mode = MORTISE_EVAL;
  EXPECT_FALSE(labels_of(&call));
  call.mode = MORTISE_TRAIN;
  try {
    labels_of(&call);
    ADD_FAILURE() << "nothing to guess";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "the model needs the field `labels`, which the data does not have: it has `label`");
  }
}

TEST(FakeHost, RefusesAKeyThatIsReadAsAnotherType) {
  FakeHost host;
  host.set("count", int64_t{1}).set("rate", 0.5).set("yes", true).unset("none");
  EXPECT_EQ(config::integer("count"), 1);
  EXPECT_TRUE(config::flag("yes"));
  EXPECT_FALSE(config::flag("none"));
  EXPECT_THROW(config::flag("count"), Error);
  EXPECT_THROW(config::number("count"), Error);
  EXPECT_THROW(config::integer("rate"), Error);
  EXPECT_THROW(config::integer("yes"), Error);
  EXPECT_THROW(config::numbers("rate"), Error);
  EXPECT_TRUE(config::numbers("none").empty());
}

// The same in C, where nothing is thrown.
TEST(FakeHost, IsToldOfAKeyThatIsReadAsAnotherTypeInC) {
  FakeHost host;
  host.set("count", int64_t{3}).set("rate", 0.5).set("yes", true).unset("none");
  EXPECT_EQ(mortise_config_float(&host, "count"), 3.0);
  EXPECT_EQ(mortise_config_float(&host, "rate"), 0.5);
  EXPECT_EQ(mortise_config_float(&host, "none"), 0.0);
  EXPECT_EQ(mortise_config_int(&host, "count"), 3);
  EXPECT_EQ(mortise_config_bool(&host, "yes"), 1);
  EXPECT_EQ(host.failure, "");
  const auto told = [&](auto read, const char* key) {
    host.failure = "";
    EXPECT_EQ(read(&host, key), 0) << key;
    return host.failure;
  };
  const std::string otherwise = ", and plugin.toml says otherwise";
  EXPECT_EQ(told(mortise_config_float, "yes"), "`yes` is read as a float" + otherwise);
  EXPECT_EQ(told(mortise_config_int, "rate"), "`rate` is read as an int" + otherwise);
  EXPECT_EQ(told(mortise_config_bool, "count"), "`count` is read as a bool" + otherwise);
  EXPECT_EQ(told(mortise_config_bool, "nokey"),
            "`nokey` is read as a bool, and the host has no such key: is it in [config] of plugin.toml?");
}

TEST(FakeHost, KeepsStatesAsStrictlyAsARun) {
  FakeHost host;
  const auto save = [](void*, const mortise_sink*) noexcept { return mortise_status{MORTISE_OK}; };
  const auto load = [](void*, uint32_t, mortise_str) noexcept { return mortise_status{MORTISE_OK}; };
  const auto blob = [&](std::string_view name) { return mortise_blob{sizeof(mortise_blob), 1, str(name), save, load}; };
  const mortise_blob good = blob("a"), again = blob("a"), unnamed = blob(""), latin = blob("\xE4");
  mortise_blob no_load = blob("b");
  no_load.load = nullptr;
  EXPECT_EQ(api.state->keep(&host, &good), MORTISE_OK);
  for (const mortise_blob* bad : std::vector<const mortise_blob*>{&again, &unnamed, &latin, &no_load, nullptr})
    EXPECT_EQ(api.state->keep(&host, bad), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.blobs.size(), 1U);
}

TEST(FakeHost, KeepsARefusalOfAKey) {
  FakeHost host;
  EXPECT_THROW(config::refuse("rate", "it is too high", "rate = 1"), HostError);
  EXPECT_EQ(host.status(), MORTISE_E_CONFIG);
  EXPECT_EQ(host.blamed.value().key, "rate");
  EXPECT_EQ(host.blamed->fix, "rate = 1");
  EXPECT_EQ(host.blamed->code, "refused_value");
}

TEST(FakeHost, WithholdsAndReplacesInterfaces) {
  FakeHost host;
  EXPECT_NE(mortise_get(&host, "mortise.tensor/0"), nullptr);
  host.withhold("mortise.tensor/0");
  EXPECT_EQ(mortise_get(&host, "mortise.tensor/0"), nullptr);
  const int own = 0;
  host.offer("mine.table/0", &own);
  EXPECT_EQ(mortise_get(&host, "mine.table/0"), &own);
  EXPECT_EQ(mortise_get(&host, "mortise.nothing/0"), nullptr);
  EXPECT_EQ(mortise_get(&host, "mortise.tokenizer/0"), nullptr) << "none until one is set";
  host.set_tokenizer({});
  EXPECT_NE(mortise_get(&host, "mortise.tokenizer/0"), nullptr);
}

TEST(FakeHost, TakesVotesFactorsAndWindowsOnlyAtTheirPoints) {
  FakeHost host;
  const Tensor half = host.tensor<double>({}, {0.5}), no = host.tensor<float>({}, {0});
  EXPECT_EQ(api.loop->multiply(&host, half.get()), MORTISE_E_ARGUMENT);
  host.point = "grad.transform";
  EXPECT_EQ(api.loop->multiply(&host, half.get()), MORTISE_OK);
  EXPECT_EQ(api.loop->multiply(&host, half.get()), MORTISE_OK);
  EXPECT_EQ(api.loop->vote(&host, no.get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "only allowed in step.verdict");
  host.point = "step.verdict";
  EXPECT_EQ(api.loop->vote(&host, no.get()), MORTISE_OK);
  host.point = "step.window";
  EXPECT_EQ(api.loop->set_window(&host, 4), MORTISE_OK);
  EXPECT_EQ(host.number(host.ledger().multiplier), 0.25);
  EXPECT_EQ(host.number(host.ledger().verdict), 0.0);
  EXPECT_EQ(host.window, 4);
}

TEST(FakeHost, ParametersCanBeFoundAndChangedWhileTheyAreDeclared) {
  FakeHost host;
  mortise_param* weight = host.add_param("h.0.weight", "matrix", {3, 4}, {"head"});
  mortise_param* found = nullptr;
  EXPECT_EQ(api.params->find(&host, MORTISE_STR("h.0.weight"), &found), MORTISE_OK);
  EXPECT_EQ(found, weight);
  EXPECT_EQ(info_of(weight).numel, 12);
  EXPECT_EQ(view(info_of(weight).tags[0]), "head");
  host.point = "params.declared";
  EXPECT_EQ(api.params->set(&host, weight, MORTISE_STR("trainable"), value(false)), MORTISE_OK);
  EXPECT_EQ(api.params->set(&host, weight, MORTISE_STR("value_dtype"), dtype_value(MORTISE_BF16)), MORTISE_OK);
  EXPECT_EQ(info_of(weight).trainable, 0);
  EXPECT_EQ(info_of(weight).value_dtype, static_cast<uint32_t>(MORTISE_BF16));
  mortise_param* table = host.add_param("mask", "buffer", {3});
  EXPECT_EQ(api.params->set(&host, table, MORTISE_STR("trainable"), value(true)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(info_of(table).trainable, 0) << "nothing trains a buffer";
}

TEST(FakeHost, AChangeOfAParameterThatIsRefusedChangesNothing) {
  FakeHost host;
  mortise_param* weight = host.add_param("h.0.weight", "matrix", {3, 4});
  const mortise_param_info before = info_of(weight);
  const auto set = [&](std::string_view field, const mortise_value& v) {
    return api.params->set(&host, weight, str(field), v);
  };
  EXPECT_EQ(set("trainable", value(false)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "only allowed in params.declared");
  host.point = "params.declared";
  EXPECT_EQ(set("name", value("x")), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(set("trainable", value(0)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(set("value_dtype", value(3)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(set("value_dtype", dtype_value(MORTISE_I64)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(set("master_dtype", dtype_value(99)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(set("grad_dtype", dtype_value(MORTISE_NO_DTYPE)), MORTISE_E_ARGUMENT);
  host.manifest = R"(listens = [{ point = "params.declared", writes = ["value_dtype"] }])";
  EXPECT_EQ(set("grad_dtype", dtype_value(MORTISE_BF16)), MORTISE_E_PLUGIN);
  EXPECT_EQ(host.error(), "plugin.toml does not say that it writes `grad_dtype`");
  EXPECT_EQ(api.params->set(&host, nullptr, MORTISE_STR("value_dtype"), dtype_value(MORTISE_BF16)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(std::memcmp(&before, &info_of(weight), sizeof before), 0);
  EXPECT_EQ(set("value_dtype", dtype_value(MORTISE_BF16)), MORTISE_OK);
}

TEST(FakeHost, CopiesBetweenDtypesAsLibTorchDoes) {
  FakeHost host;
  const Tensor from = host.tensor<double>({3}, {1.01, -2, 70000});
  const Tensor bf16 = empty(MORTISE_BF16, {3}), half = empty(MORTISE_F16, {3}), whole = empty(MORTISE_I32, {3});
  for (const Tensor* to : {&bf16, &half, &whole}) ops::copy_(*to, from);
  EXPECT_EQ(host.values<uint16_t>(bf16), (std::vector<uint16_t>{0x3F81, 0xC000, 0x4789}));
  EXPECT_EQ(host.element(half.get(), 0), 1.009765625);
  EXPECT_TRUE(std::isinf(host.element(half.get(), 2)));
  EXPECT_EQ(host.values<int32_t>(whole), (std::vector<int32_t>{1, -2, 70000}));
  EXPECT_EQ(host.times_written(bf16.get()), 1);
}

// A pointer of any other kind was taken for a bool once.
template <class T>
concept IsValue = requires(T v) { value(v); };
static_assert(IsValue<mortise_tensor*> && IsValue<mortise_param*> && IsValue<mortise_batch*> && IsValue<const char*>);
static_assert(!IsValue<mortise_kept*> && !IsValue<const mortise_tensor*> && !IsValue<void*> && !IsValue<int*>);

TEST(Value, OfAHandleIsATensorAndOfNoHandleNone) {
  FakeHost host;
  const Tensor t = host.tensor<float>({1}, {1});
  EXPECT_EQ(value(t.get()).tag, static_cast<uint32_t>(MORTISE_TENSOR));
  EXPECT_EQ(value(t.get()).v.t, t.get());
  EXPECT_EQ(value(static_cast<mortise_tensor*>(nullptr)).tag, static_cast<uint32_t>(MORTISE_NONE));
  EXPECT_EQ(value("text").tag, static_cast<uint32_t>(MORTISE_TEXT));
}

TEST(FakeHost, RunsEachElementOnceInPiecesTheLastFirst) {
  FakeHost host;
  for (const int64_t n : {0, 1, 7, 100}) {
    std::vector<int> times(static_cast<size_t>(n));
    int64_t first_begin = -1;
    parallel_for(n, 3, [&](int64_t begin, int64_t end) {
      if (first_begin < 0) first_begin = begin;
      for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
    });
    EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(n), 1));
    EXPECT_EQ(first_begin > 0, n > 3);
  }
}

TEST(FakeHost, HasTheOperatorsThatTheTestDefines) {
  FakeHost host;
  host.op("aten::mul.Scalar", [&](std::span<const mortise_value> args) {
    std::vector<float> x = host.values<float>(args[0].v.t);
    for (float& e : x) e *= static_cast<float>(args[1].v.f);
    return host.tensor<float>({static_cast<int64_t>(x.size())}, x);
  });
  mortise_op* op = nullptr;
  EXPECT_EQ(api.ops->find(&host, MORTISE_STR("aten::add.Tensor"), &op), MORTISE_E_NOT_FOUND);
  ASSERT_EQ(api.ops->find(&host, MORTISE_STR("aten::mul.Scalar"), &op), MORTISE_OK);
  const Tensor two = host.tensor<float>({2}, {1, 2});
  const mortise_value args[] = {value(two), value(3.0)};
  Tensor out;
  EXPECT_EQ(api.ops->call1(&host, op, args, 2, out.put()), MORTISE_OK);
  EXPECT_EQ(host.values<float>(out), (std::vector<float>{3, 6}));
}

TEST(FakeHost, BatchesKeepTheirFields) {
  FakeHost host;
  const Batch batch = Batch::create(nullptr);
  {
    const Tensor ids = host.tensor<int64_t>({2}, {7, 8});
    EXPECT_EQ(api.batch->set(&host, batch.get(), MORTISE_STR("input_ids"), ids.get()), MORTISE_OK);
  }
  EXPECT_EQ(host.values<int64_t>(field(batch.get(), "input_ids")), (std::vector<int64_t>{7, 8}));
  EXPECT_FALSE(field(batch.get(), "labels"));
  mortise_str name{};
  EXPECT_EQ(api.batch->name(&host, batch.get(), 0, &name), MORTISE_OK);
  EXPECT_EQ(view(name), "input_ids");
  EXPECT_EQ(api.batch->name(&host, batch.get(), 1, &name), MORTISE_E_NOT_FOUND);
}

TEST(FakeHost, KeepsLogLinesRequestsAndTerms) {
  FakeHost host;
  log_line(MORTISE_LOG_WARNING, "careful");
  const Tensor sum = host.tensor<float>({}, {12});
  EXPECT_EQ(api.loop->term(&host, MORTISE_STR("balance"), sum.get(), MORTISE_STR("tokens"), 0.01), MORTISE_OK);
  EXPECT_EQ(api.loop->request(&host, MORTISE_STOP, MORTISE_STR("enough")), MORTISE_OK);
  EXPECT_EQ(host.log.at(0).text, "careful");
  EXPECT_EQ(host.terms.at(0).sum, 12.0);
  EXPECT_EQ(host.requests.at(0).reason, "enough");
}

TEST(FakeHost, GathersGradientsAndSaysWhereTheyAreAddedTo) {
  FakeHost host;
  mortise_param* w = host.add_param("w", "matrix", {2});
  EXPECT_EQ(host.values<float>(use(w)), (std::vector<float>{0, 0}));
  const auto write = [](const GradientTarget& target, float a, float b) {
    float* at = Info(target.buffer).as<float>();
    at[0] = a + (target.add ? at[0] : 0), at[1] = b + (target.add ? at[1] : 0);
    return target.add;
  };
  EXPECT_FALSE(gradient_target(w, MORTISE_BF16).buffer) << "of another type";
  EXPECT_FALSE(write(gradient_target(w, MORTISE_F32), 1, 2));
  EXPECT_TRUE(write(gradient_target(w, MORTISE_F32), 10, 20));
  EXPECT_FALSE(gradient_buffer(w, MORTISE_F32)) << "nothing to overwrite any more";
  sum_gradient(w, host.tensor<float>({2}, {100, 200}));
  EXPECT_EQ(host.values<float>(host.gradient(w)), (std::vector<float>{111, 222}));
  EXPECT_EQ(api.grads->sum(&host, w, host.tensor<int64_t>({2}, {1, 1}).get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(api.grads->sum(&host, w, host.tensor<float>({1}, {1}).get()), MORTISE_E_SHAPE);
  host.set_gradient(w, {});
  sum_gradient(w, host.tensor<float>({2}, {3, 4}));
  EXPECT_EQ(host.values<float>(host.gradient(w)), (std::vector<float>{3, 4}));
}

TEST(FakeHost, RefusesCollectivesThatARunRefuses) {
  FakeHost host;
  host.ranks = 3;
  host.axes["experts"] = {0, 2};
  const Tensor part = empty(MORTISE_F32, {2, 2}), whole = empty(MORTISE_F32, {6, 2}), ids = empty(MORTISE_I64, {6, 2}),
               wide = empty(MORTISE_F32, {4, 3});
  mortise_rank_group* two = nullptr;
  int32_t rank = -1, size = 0;
  ASSERT_EQ(api.comm->axis(&host, MORTISE_STR("experts"), &two, &rank, &size), MORTISE_OK);
  const auto status = [&](mortise_collective c) {
    mortise_work* work = nullptr;
    const mortise_status answer = api.comm->start(&host, &c, &work);
    EXPECT_EQ(work != nullptr, answer == MORTISE_OK);
    return answer;
  };
  EXPECT_EQ(status(collective_of(MORTISE_ALL_GATHER, part, whole, nullptr)), MORTISE_OK);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_GATHER, part, whole, two)), MORTISE_E_SHAPE) << "of two ranks";
  EXPECT_EQ(status(collective_of(MORTISE_REDUCE_SCATTER, whole, part, nullptr)), MORTISE_OK);
  EXPECT_EQ(status(collective_of(MORTISE_REDUCE_SCATTER, part, whole, nullptr)), MORTISE_E_SHAPE);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_GATHER, part, ids, nullptr)), MORTISE_E_SHAPE) << "two types";
  EXPECT_EQ(status(collective_of(MORTISE_ALL_GATHER, Tensor(), whole, nullptr)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(status(collective_of(MORTISE_BROADCAST, Tensor(), whole, nullptr, 2)), MORTISE_OK);
  EXPECT_EQ(status(collective_of(MORTISE_BROADCAST, Tensor(), whole, two, 2)), MORTISE_E_ARGUMENT) << "no such root";

  mortise_collective reduced = collective_of(MORTISE_ALL_REDUCE, Tensor(), whole, nullptr);
  reduced.op = MORTISE_MIN + 1;
  EXPECT_EQ(status(reduced), MORTISE_E_ARGUMENT);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_REDUCE, Tensor(), empty(MORTISE_BOOL, {2}), nullptr)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(status(collective_of(MORTISE_REDUCE + 1, Tensor(), whole, nullptr)), MORTISE_E_ARGUMENT);
  EXPECT_EQ(status(collective_of(MORTISE_BROADCAST, Tensor(), whole, nullptr, -1)), MORTISE_E_ARGUMENT);
  int64_t number = 1;
  EXPECT_EQ(api.comm->host_all_reduce(&host, &number, 1, MORTISE_MIN + 1), MORTISE_E_ARGUMENT);
  EXPECT_EQ(api.comm->host_all_reduce(&host, nullptr, 1, MORTISE_SUM), MORTISE_E_ARGUMENT);
  mortise_collective without_size = collective_of(MORTISE_ALL_REDUCE, Tensor(), whole, nullptr);
  without_size.struct_size = 0;
  EXPECT_EQ(status(without_size), MORTISE_E_ARGUMENT);
  const auto* const nobody = reinterpret_cast<const mortise_rank_group*>(&host);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_REDUCE, Tensor(), whole, nobody)), MORTISE_E_ARGUMENT);

  const Tensor as_whole = empty(MORTISE_F32, {6, 2});
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, whole, as_whole, two)), MORTISE_OK);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, whole, whole, two)), MORTISE_E_ARGUMENT) << "one memory";
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, whole, wide, two)), MORTISE_E_SHAPE);
  mortise_collective uneven = collective_of(MORTISE_ALL_TO_ALL, whole, part, two);
  const Tensor odd = empty(MORTISE_F32, {3, 2}), four = empty(MORTISE_F32, {4, 2}),
               number_alone = empty(MORTISE_F32, {});
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, odd, empty(MORTISE_F32, {3, 2}), two)), MORTISE_E_SHAPE);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, whole, four, two)), MORTISE_E_SHAPE);
  EXPECT_EQ(status(collective_of(MORTISE_ALL_TO_ALL, number_alone, empty(MORTISE_F32, {}), two)), MORTISE_E_SHAPE);
  const int64_t sent[] = {1, 5}, taken[] = {1, 1}, too_many[] = {1, 2}, other[] = {2, 4}, less[] = {7, -1};
  uneven.in_rows = sent, uneven.out_rows = taken;
  EXPECT_EQ(status(uneven), MORTISE_OK);
  EXPECT_EQ(host.collectives.back().in_rows, (std::vector<int64_t>{1, 5}));
  uneven.in_rows = other;
  EXPECT_EQ(status(uneven), MORTISE_E_SHAPE) << "to itself";
  uneven.in_rows = less;
  EXPECT_EQ(status(uneven), MORTISE_E_SHAPE);
  uneven.in_rows = sent;
  uneven.out_rows = too_many;
  EXPECT_EQ(status(uneven), MORTISE_E_SHAPE);
  uneven.out_rows = nullptr;
  EXPECT_EQ(status(uneven), MORTISE_E_ARGUMENT);
}

TEST(FakeHost, EveryCallSaysThatARankIsLost) {
  FakeHost host;
  host.ranks = 2;
  const Tensor t = empty(MORTISE_F32, {2});
  const mortise_collective sum = collective_of(MORTISE_ALL_REDUCE, Tensor(), t, nullptr);
  mortise_work *begun = nullptr, *work = nullptr;
  int64_t number = 1;
  ASSERT_EQ(api.comm->start(&host, &sum, &begun), MORTISE_OK);
  EXPECT_EQ(api.comm->host_all_reduce(&host, nullptr, 0, MORTISE_SUM), MORTISE_OK);
  host.has_lost = true;
  EXPECT_EQ(api.comm->start(&host, &sum, &work), MORTISE_E_LOST);
  EXPECT_EQ(api.comm->wait(&host, begun), MORTISE_E_LOST);
  EXPECT_EQ(api.comm->host_all_reduce(&host, &number, 1, MORTISE_SUM), MORTISE_E_LOST);
  EXPECT_EQ(api.comm->host_all_reduce(&host, nullptr, 0, MORTISE_SUM), MORTISE_E_LOST);
}

TEST(FakeHost, PlacesParametersAsStrictlyAsARun) {
  FakeHost host;
  host.point = "params.declared";
  host.axes["tensor"] = {1, 2};
  mortise_param* w = host.add_param("w", "matrix", {4, 3});
  host.name_dims(w, {"out", "in"});
  const auto place = [&](mortise_value v) { return api.params->set(&host, w, MORTISE_STR("place.tensor"), v); };
  EXPECT_EQ(place(value("in")), MORTISE_E_ARGUMENT) << "3 on two ranks";
  EXPECT_EQ(place(value("heads")), MORTISE_E_ARGUMENT);
  for (const int rank : {2, -1}) EXPECT_EQ(place(value(rank)), MORTISE_E_ARGUMENT);
  EXPECT_TRUE(host.places.empty());
  EXPECT_EQ(place(value("out")), MORTISE_OK);
  EXPECT_EQ(host.places.at(w), "out");
  mortise_philox bits{};
  EXPECT_EQ(api.random->stream(&host, MORTISE_STR("w"), &bits), MORTISE_OK);
  EXPECT_EQ(bits.micro, 1U) << "those of this part";
}

TEST(FakeChain, SaysItsPointAndWhoProvides) {
  FakeHost host;
  FakeChain chain(host, [](mortise_call&) { return MORTISE_OK; });
  host.point = "linear";
  const FakeCall call({}, 0);
  EXPECT_EQ(name_of(&call), "linear");
  EXPECT_EQ(provider_of(chain.next()), "");
  chain.provider = "operators.own";
  EXPECT_EQ(provider_of(chain.next()), "operators.own");
  mortise_str out{};
  EXPECT_EQ(api.call->name(&host, nullptr, &out), MORTISE_E_ARGUMENT);
  EXPECT_EQ(api.call->provider(&host, nullptr, &out), MORTISE_E_ARGUMENT);
}

TEST(FakeHost, HasTheSpecialTokensThatTheTestGives) {
  FakeHost host;
  FakeTokenizer tokenizer;
  tokenizer.special["eos"] = 7;
  host.set_tokenizer(tokenizer);
  open_api(&host);
  int64_t id = 0;
  EXPECT_EQ(api.tokenizer->special(&host, MORTISE_STR("eos"), &id), MORTISE_OK);
  EXPECT_EQ(id, 7);
  EXPECT_EQ(api.tokenizer->special(&host, MORTISE_STR("cls"), &id), MORTISE_E_NOT_FOUND);
}

TEST(FakeHost, SaysWhichLibraryCannotBeLoaded) {
  FakeHost host;
  EXPECT_THROW(Plugin(host, "/nowhere/optimizer.lion.so"), PluginError);
}
}  // namespace
