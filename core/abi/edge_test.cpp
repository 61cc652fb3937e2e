#include "core/abi/edge.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"
#include "core/abi/test_loop.hpp"
#include "core/abi/test_tables.hpp"

namespace mortise {
namespace {

struct EdgeTest : ::testing::Test {
  PointTable points;
  Edge edge{points, 1};
  PluginHost& window = edge.add_plugin("test.x", nullptr, nullptr);
  template <class Table>
  const Table& table(const char* id) {
    const auto* t = static_cast<const Table*>(mortise_get(&window, id));
    EXPECT_NE(t, nullptr) << id;
    return *t;
  }
  mortise_param& param(const std::string& role) {
    mortise_param& p = edge.declaration().params.emplace_back();
    p.name = role + ".weight";
    p.role = role;
    p.info.trainable = role != "buffer";
    p.info.value_dtype = p.info.master_dtype = p.info.grad_dtype = MORTISE_F32;
    return p;
  }
  mortise_status set(mortise_param& p, const char* field, mortise_value v) {
    return table<mortise_params_api>("mortise.params/0").set(&window, &p, str(std::string_view(field)), v);
  }
};

TEST_F(EdgeTest, WithoutTensorsRefusesWhoCallsForThemAndSaysWhoItWas) {
  const auto& ops = table<mortise_ops_api>("mortise.ops/0");
  mortise_op* op = nullptr;
  EXPECT_EQ(edge.needs_tensors, "");
  EXPECT_EQ(ops.find(&window, MORTISE_STR("aten::add.Tensor"), &op), MORTISE_E_UNSUPPORTED);
  EXPECT_EQ(take_error(MORTISE_E_UNSUPPORTED), "test.x calls for tensors, and LibTorch is not loaded");
  EXPECT_EQ(edge.needs_tensors, "test.x");
  EXPECT_EQ(ops.find(&edge.add_plugin("test.y", nullptr, nullptr), MORTISE_STR("aten::add.Tensor"), &op),
            MORTISE_E_UNSUPPORTED);
  EXPECT_EQ(edge.needs_tensors, "test.x") << "the first";
  // What gives nothing back is harmless.
  table<mortise_tensor_api>("mortise.tensor/0").release(&window, nullptr);
}

TEST_F(EdgeTest, HasNoTableWithAHole) { mortise::testing::expect_no_hole(edge); }

TEST_F(EdgeTest, KnowsHowManyThreadsThereWillBe) {
  const auto& parallel = table<mortise_parallel_api>("mortise.parallel/0");
  int32_t n = 0;
  EXPECT_EQ(parallel.set_threads(&window, 3), MORTISE_OK);
  EXPECT_EQ(parallel.threads(&window, &n), MORTISE_OK);
  EXPECT_EQ(n, 3);
  EXPECT_EQ(parallel.set_threads(&window, 0), MORTISE_E_ARGUMENT);
}

TEST_F(EdgeTest, HasNoTokenizerUntilThereIsOne) { EXPECT_EQ(mortise_get(&window, "mortise.tokenizer/0"), nullptr); }

TEST_F(EdgeTest, ParametersAreSetInTheirPhaseOnly) {
  window.writes = {"trainable"};
  mortise_param& p = param("matrix");
  EXPECT_EQ(set(p, "trainable", {MORTISE_LOGICAL, 0, {.i = 0}}), MORTISE_E_ARGUMENT);
  EXPECT_TRUE(p.info.trainable);
  edge.declaring_parameters = true;
  EXPECT_EQ(set(p, "trainable", {MORTISE_LOGICAL, 0, {.i = 0}}), MORTISE_OK);
  EXPECT_FALSE(p.info.trainable);
}

TEST_F(EdgeTest, ARefusedFieldOfAParameterIsNotChanged) {
  window.writes = {"trainable", "value_dtype"};
  edge.declaring_parameters = true;
  mortise_param &p = param("matrix"), &buffer = param("buffer");
  EXPECT_EQ(set(p, "master_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_BF16}}), MORTISE_E_PLUGIN) << "not written";
  EXPECT_EQ(set(p, "value_dtype", {MORTISE_INT, 0, {.i = MORTISE_BF16}}), MORTISE_E_ARGUMENT) << "no dtype";
  EXPECT_EQ(set(p, "value_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_I64}}), MORTISE_E_ARGUMENT) << "no floats";
  EXPECT_EQ(set(p, "value_dtype", {MORTISE_DTYPE, 0, {.i = 99}}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(set(p, "colour", {MORTISE_INT, 0, {.i = 1}}), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(set(buffer, "trainable", {MORTISE_LOGICAL, 0, {.i = 1}}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(p.info.master_dtype, uint32_t{MORTISE_F32});
  EXPECT_EQ(p.info.value_dtype, uint32_t{MORTISE_F32});
  EXPECT_FALSE(buffer.info.trainable);
  EXPECT_EQ(set(p, "value_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_BF16}}), MORTISE_OK);
  EXPECT_EQ(p.info.value_dtype, uint32_t{MORTISE_BF16});
}

TEST_F(EdgeTest, AFieldOfAParameterIsTheOneThatWasNamed) {
  window.writes = {"trainable", "value_dtype", "master_dtype", "grad_dtype"};
  edge.declaring_parameters = true;
  mortise_param& p = param("matrix");
  EXPECT_EQ(set(p, "value_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_BF16}}), MORTISE_OK);
  EXPECT_EQ(set(p, "grad_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_F64}}), MORTISE_OK);
  EXPECT_EQ(p.info.master_dtype, uint32_t{MORTISE_F32});
  EXPECT_EQ(set(p, "master_dtype", {MORTISE_DTYPE, 0, {.i = MORTISE_F16}}), MORTISE_OK);
  EXPECT_EQ(p.info.value_dtype, uint32_t{MORTISE_BF16});
  EXPECT_EQ(p.info.master_dtype, uint32_t{MORTISE_F16});
  EXPECT_EQ(p.info.grad_dtype, uint32_t{MORTISE_F64});
  EXPECT_EQ(set(p, "trainable", {MORTISE_INT, 0, {.i = 0}}), MORTISE_E_ARGUMENT) << "no logical";
  EXPECT_TRUE(p.info.trainable);
}

TEST_F(EdgeTest, BeforeTheLoopThereIsNoLedgerAndNoModel) {
  const auto& loop = table<mortise_loop_api>("mortise.loop/0");
  const mortise_ledger* ledger = nullptr;
  EXPECT_EQ(loop.ledger(&window, &ledger), MORTISE_E_ARGUMENT);
  mortise_clock clock{};
  EXPECT_EQ(loop.clock(&window, &clock), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "a struct is to be filled and says no struct_size");
  clock.struct_size = sizeof clock;
  EXPECT_EQ(loop.clock(&window, &clock), MORTISE_OK);
  EXPECT_EQ(clock.micros, 1);
}

// A plugin that was built when the clock ended after `micros`: what lies behind it is the plugin's own.
TEST_F(EdgeTest, FillsAStructAsFarAsTheCallersReaches) {
  const auto& loop = table<mortise_loop_api>("mortise.loop/0");
  mortise_clock clock;
  std::memset(&clock, 0x55, sizeof clock);
  clock.struct_size = offsetof(mortise_clock, ranks);
  EXPECT_EQ(loop.clock(&window, &clock), MORTISE_OK);
  EXPECT_EQ(clock.struct_size, offsetof(mortise_clock, ranks));
  EXPECT_EQ(clock.micros, 1);
  EXPECT_EQ(clock.ranks, 0x55555555);
  EXPECT_EQ(clock.length, 0x5555555555555555);
}

TEST_F(EdgeTest, FiltersAreOpenOneAtATime) {
  const auto& loop = table<mortise_loop_api>("mortise.loop/0");
  window.writes = {"micros"};
  EXPECT_EQ(loop.set_window(&window, 4), MORTISE_E_ARGUMENT);
  {
    const FilterScope open(edge.services, Filter::kWindow);
    EXPECT_EQ(loop.set_window(&window, 0), MORTISE_E_ARGUMENT);
    EXPECT_EQ(loop.set_window(&window, 4), MORTISE_OK);
  }
  EXPECT_EQ(edge.services.window, 4);
  EXPECT_EQ(loop.set_window(&window, 2), MORTISE_E_ARGUMENT) << "closed again";
}

TEST_F(EdgeTest, AnAbortIsHeardAfterAStopAndStaysOne) {
  const auto& loop = table<mortise_loop_api>("mortise.loop/0");
  const auto request = [&](uint32_t what, const char* why) {
    EXPECT_EQ(loop.request(&window, what, str(std::string_view(why))), MORTISE_OK);
    const Requests::Request strongest = edge.services.requests.strongest();
    return std::pair(strongest.what, strongest.reason);
  };
  EXPECT_EQ(request(MORTISE_STOP, "enough"), std::pair(uint32_t{MORTISE_STOP}, std::string("enough")));
  EXPECT_EQ(request(MORTISE_ABORT, "nan"), std::pair(uint32_t{MORTISE_ABORT}, std::string("nan")));
  EXPECT_EQ(request(MORTISE_STOP, "enough"), std::pair(uint32_t{MORTISE_ABORT}, std::string("nan")));
}

// Guards may watch from threads of their own. Under a thread sanitizer this also says who forgot the lock.
TEST_F(EdgeTest, RequestsAndRefusalsOfManyThreadsAreWhole) {
  const auto& config = table<mortise_config_api>("mortise.config/0");
  for (int round = 0; round < 50; ++round) {
    Requests requests;
    std::vector<std::thread> threads;
    for (char name = 'a'; name < 'e'; ++name)
      threads.emplace_back([&, name] {
        const std::string text(200, name);  // too long to be copied at once
        requests.add({name % 2 ? MORTISE_STOP : MORTISE_ABORT, text, text});
        EXPECT_EQ(config.blame(&window, MORTISE_STR("key"), str(text), str(text)), MORTISE_E_CONFIG);
      });
    for (auto& thread : threads) thread.join();
    const auto [what, reason, by] = requests.strongest();
    const std::string& blame = window.blame.message;
    EXPECT_EQ(what, uint32_t{MORTISE_ABORT});
    EXPECT_TRUE(reason == std::string(200, 'b') || reason == std::string(200, 'd')) << reason;
    EXPECT_EQ(by, reason) << "of one request";
    EXPECT_EQ(blame, std::string(200, blame.at(0)));
    EXPECT_EQ(window.blame.fixes.at(0), blame) << "of one refusal";
  }
}

// A plugin that gives NULL where its handle should be is told so; the host goes on.
TEST_F(EdgeTest, RefusesHandlesThatAreNull) {
  mortise_param* param = nullptr;
  mortise_layer* layer = nullptr;
  int64_t fact = 0;
  const auto& build = table<mortise_build_api>("mortise.build/0");
  EXPECT_EQ(build.segment(&window, nullptr, MORTISE_STR("h"), 0), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "called with NULL for the builder");
  EXPECT_EQ(build.layer(&window, nullptr, nullptr, &layer), MORTISE_E_ARGUMENT);
  EXPECT_EQ(build.param(&window, nullptr, nullptr, &param), MORTISE_E_ARGUMENT);
  EXPECT_EQ(build.fact(&window, nullptr, MORTISE_STR("vocabulary"), &fact), MORTISE_E_ARGUMENT);
  const auto& params = table<mortise_params_api>("mortise.params/0");
  const mortise_param_info* info = nullptr;
  EXPECT_EQ(params.info(&window, nullptr, &info), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "called with NULL for the parameter");
}

struct NoModel final : testing::NoLoop {
  void forward(mortise_batch*, uint32_t mode, uint32_t, mortise_value*, uint32_t) override { ran = mode; }
  uint32_t ran = 99;
};

TEST_F(EdgeTest, RunsTheModelInModesThatThereAre) {
  NoModel loop;
  edge.loop = &loop;
  const auto& model = table<mortise_model_api>("mortise.model/0");
  char batch = 0;
  const auto forward = [&](uint32_t mode, mortise_value* results, uint32_t n) {
    return model.forward(&window, reinterpret_cast<mortise_batch*>(&batch), mode, 0, results, n);
  };
  mortise_value result{};
  EXPECT_EQ(forward(MORTISE_SAMPLE, &result, 1), MORTISE_OK);
  EXPECT_EQ(loop.ran, uint32_t{MORTISE_SAMPLE});
  EXPECT_EQ(forward(MORTISE_MODES, &result, 1), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "there is no mode 3");
  EXPECT_EQ(forward(MORTISE_EVAL, nullptr, 1), MORTISE_E_ARGUMENT) << "results that are not there";
  EXPECT_EQ(forward(MORTISE_EVAL, nullptr, 0), MORTISE_OK);
  EXPECT_EQ(model.forward(&window, nullptr, MORTISE_EVAL, 0, &result, 1), MORTISE_E_ARGUMENT);
}

// The plan orders listeners by what they say they write.
TEST_F(EdgeTest, WhatAFilterWritesIsSaidInPluginToml) {
  const auto& loop = table<mortise_loop_api>("mortise.loop/0");
  const auto refused = [&](Filter filter, auto&& write) {
    const FilterScope open(edge.services, filter);
    const mortise_status status = write();
    return std::pair(status, take_error(status));
  };
  const auto [status, text] = refused(Filter::kVerdict, [&] { return loop.vote(&window, nullptr); });
  EXPECT_EQ(status, MORTISE_E_PLUGIN);
  EXPECT_NE(text.find("votes"), std::string::npos) << text;
  EXPECT_EQ(refused(Filter::kTransform, [&] { return loop.multiply(&window, nullptr); }).first, MORTISE_E_PLUGIN);
  EXPECT_EQ(refused(Filter::kWindow, [&] { return loop.set_window(&window, 4); }).first, MORTISE_E_PLUGIN);
  EXPECT_EQ(refused(Filter::kScale, [&] { return loop.set_scale(&window, nullptr); }).first, MORTISE_E_PLUGIN);
  EXPECT_EQ(refused(Filter::kVerdict, [&] { return loop.set_scale(&window, nullptr); }).first, MORTISE_E_ARGUMENT);
}

}  // namespace
}  // namespace mortise
