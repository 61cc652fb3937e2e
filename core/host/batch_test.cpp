// What the host makes of rows, of first values, of threads and of a plugin's configuration.
#include "core/host/batch.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/abi/tables.hpp"
#include "core/abi/test_tables.hpp"
#include "core/base/dtype.hpp"
#include "core/host/handle.hpp"
#include "core/host/initial.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"
#include "core/plugin/calls.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;
using Numbers = std::vector<int64_t>;

// ---- collate ----

Field field_named(const char* name, uint32_t dtype, bool is_sequence, std::vector<int64_t> sizes = {}) {
  Field f;
  f.name = name;
  f.dtype = dtype;
  f.is_sequence = is_sequence;
  f.element = f.bytes = static_cast<size_t>(dtype_bytes(dtype));
  for (const int64_t size : sizes) f.bytes *= static_cast<size_t>(size);
  f.sizes = std::move(sizes);
  return f;
}
template <class T>
Field filled(Field f, T fill) {
  std::memcpy(f.fill.data(), &fill, sizeof fill);
  return f;
}
template <class T>
void put(mortise_rows& rows, uint32_t row, uint32_t field, const std::vector<T>& elements) {
  TestHost host;
  mortise_host* h = &host.window("test.data");
  EXPECT_EQ(kBatchApi.put(h, &rows, row, field, elements.data(), elements.size() * sizeof(T)), MORTISE_OK);
}

struct Collated {
  Collated(const std::vector<Numbers>& samples, int64_t longest, int64_t multiple)
      : fields({field_named("input_ids", MORTISE_I64, true),
                filled(field_named("labels", MORTISE_I64, true), int64_t{-100})}) {
    fields[1].unit = "tokens";
    mortise_rows rows(fields, samples.size());
    for (uint32_t row = 0; row < samples.size(); ++row)
      for (const uint32_t f : {0U, 1U}) put(rows, row, f, samples[row]);
    batch = collate(rows, longest, multiple);
  }
  ~Collated() { release(batch); }
  at::Tensor field(size_t i) const { return batch->fields[i].second; }
  std::vector<Field> fields;
  mortise_batch* batch = nullptr;
};
at::Tensor matrix(std::vector<int64_t> elements, int64_t rows) { return at::tensor(elements).view({rows, -1}); }

TEST(Collate, PadsToTheLongestRowWithTheFieldsFill) {
  const Collated c({{1, 2, 3}, {4}}, 0, 1);
  EXPECT_TRUE(bitwise(c.field(0), matrix({1, 2, 3, 4, 0, 0}, 2)));
  EXPECT_TRUE(bitwise(c.field(1), matrix({1, 2, 3, 4, -100, -100}, 2)));
  EXPECT_EQ(c.batch->count("tokens"), 4);
  EXPECT_EQ(c.batch->count("samples"), 2);
  EXPECT_EQ(c.batch->count("one"), 1);
  EXPECT_EQ(c.batch->count("words"), 0);
}

TEST(Collate, CutsAtTheLongestAllowedAndCountsWhatIsLeft) {
  const Collated c({{1, 2, 3, 4, 5}, {6}}, 3, 1);
  EXPECT_TRUE(bitwise(c.field(1), matrix({1, 2, 3, 6, -100, -100}, 2)));
  EXPECT_EQ(c.batch->count("tokens"), 4);
}

TEST(Collate, PadsToAMultipleThatFits) {
  EXPECT_EQ(Collated({{1, 2, 3, 4, 5}}, 0, 4).field(0).size(1), 8);
  EXPECT_EQ(Collated({{1, 2, 3, 4, 5}}, 6, 4).field(0).size(1), 6);
  EXPECT_EQ(Collated({{1, 2, 3, 4}}, 0, 4).field(0).size(1), 4);
}

TEST(Collate, LeavesOneLabelASampleAsItIs) {
  const std::vector<Field> fields = {field_named("input_ids", MORTISE_I64, true),
                                     filled(field_named("label", MORTISE_I64, false), int64_t{-100})};
  mortise_rows rows(fields, 2);
  put(rows, 0, 0, Numbers{1, 2, 3, 4, 5});
  put(rows, 0, 1, Numbers{7});
  put(rows, 1, 0, Numbers{6});
  put(rows, 1, 1, Numbers{});
  mortise_batch* batch = collate(rows, 0, 4);
  EXPECT_EQ(batch->fields[0].second.sizes(), (at::IntArrayRef{2, 8}));
  EXPECT_TRUE(bitwise(batch->fields[1].second, at::tensor(Numbers{7, -100})));
  release(batch);
}

TEST(Collate, TakesFieldsOfAnyTypeAndShape) {
  const std::vector<Field> fields = {field_named("pixels", MORTISE_F32, false, {2, 3}),
                                     filled(field_named("frames", MORTISE_U8, true, {2}), uint8_t{9})};
  mortise_rows rows(fields, 2);
  put(rows, 0, 0, std::vector<float>{1, 2, 3, 4, 5, 6});
  put(rows, 1, 0, std::vector<float>{7, 8, 9, 10, 11, 12});
  put(rows, 0, 1, std::vector<uint8_t>{1, 2});
  put(rows, 1, 1, std::vector<uint8_t>{3, 4, 5, 6, 7, 8});
  mortise_batch* batch = collate(rows, 2, 1);
  const at::Tensor pixels = at::arange(1, 13, at::kFloat).view({2, 2, 3});
  EXPECT_TRUE(bitwise(batch->fields[0].second, pixels)) << "the longest cuts sequences alone";
  const at::Tensor frames = at::tensor(std::vector<uint8_t>{1, 2, 9, 9, 3, 4, 5, 6}, at::kByte).view({2, 2, 2});
  EXPECT_TRUE(bitwise(batch->fields[1].second, frames));
  release(batch);
}

TEST(Collate, RefusesBytesThatAreNoSample) {
  TestHost host;
  mortise_host* h = &host.window("test.data");
  const std::vector<Field> fields = {field_named("pixels", MORTISE_F32, false, {2, 3}),
                                     field_named("frames", MORTISE_F32, true, {2})};
  mortise_rows rows(fields, 1);
  const float elements[12] = {};
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 0, elements, 20), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 0, elements, 48), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 1, elements, 12), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 1, elements, 48), MORTISE_OK);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 0, nullptr, 24), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 0, nullptr, 0), MORTISE_OK) << "a sample that has nothing of the field";
}

TEST(Collate, CountsNoElementThatIsFillAlready) {
  const Collated c({{-100, 2, -100}, {3, 4, 5}}, 0, 1);
  EXPECT_EQ(c.batch->count("tokens"), 4);
}

TEST(Collate, TakesRowsWithoutElements) {
  const Collated c({{}, {}}, 0, 8);
  EXPECT_EQ(c.field(0).size(1), 0);
  EXPECT_EQ(c.batch->count("tokens"), 0);
}

TEST(Batch, TableReadsWritesAndCounts) {
  TestHost host;
  mortise_host* h = &host.window("test.data");
  const Collated c({{1, 2}}, 0, 1);
  mortise_str name;
  EXPECT_EQ(kBatchApi.name(h, c.batch, 1, &name), MORTISE_OK);
  EXPECT_EQ(view(name), "labels");
  EXPECT_EQ(kBatchApi.name(h, c.batch, 2, &name), MORTISE_E_NOT_FOUND);
  mortise_tensor* t = nullptr;
  EXPECT_EQ(kBatchApi.get(h, c.batch, MORTISE_STR("input_ids"), &t), MORTISE_OK);
  EXPECT_EQ(t, borrow(c.field(0)));
  EXPECT_EQ(kBatchApi.get(h, c.batch, MORTISE_STR("mask"), &t), MORTISE_E_NOT_FOUND);
  mortise_batch* other = nullptr;
  ASSERT_EQ(kBatchApi.create(h, c.batch, &other), MORTISE_OK);
  EXPECT_EQ(other->count("tokens"), 2);
  EXPECT_TRUE(other->fields.empty());
  const at::Tensor x = random({2}, 1);
  EXPECT_EQ(kBatchApi.set(h, other, MORTISE_STR("x"), borrow(x)), MORTISE_OK);
  EXPECT_EQ(kBatchApi.set(h, other, MORTISE_STR("x"), borrow(x)), MORTISE_OK);
  EXPECT_EQ(other->fields.size(), 1u);
  kBatchApi.retain(h, other);
  kBatchApi.release(h, other);
  kBatchApi.release(h, other);
  EXPECT_EQ(x.use_count(), 1);
  mortise_tensor* there = nullptr;
  ASSERT_EQ(kBatchApi.to_device(h, borrow(x), &there), MORTISE_OK);
  EXPECT_TRUE(take(there).is_same(x));

  int64_t n = -1;
  EXPECT_EQ(kBatchApi.count(h, c.batch, MORTISE_STR("words"), &n), MORTISE_OK);
  EXPECT_EQ(n, 0);
  for (const int64_t words : {5, 3}) {
    EXPECT_EQ(kBatchApi.set_count(h, c.batch, MORTISE_STR("words"), words), MORTISE_OK);
    EXPECT_EQ(kBatchApi.count(h, c.batch, MORTISE_STR("words"), &n), MORTISE_OK);
    EXPECT_EQ(n, words);
  }
  for (const int64_t words : {int64_t{-1}, INT64_MAX})
    EXPECT_EQ(kBatchApi.set_count(h, c.batch, MORTISE_STR("words"), words), MORTISE_E_ARGUMENT);

  mortise_rows rows(c.fields, 1);
  const int64_t elements[] = {7, 8};
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 1, elements, 16), MORTISE_OK);
  EXPECT_EQ(rows.length(0, 1), 2);
  EXPECT_EQ(kBatchApi.put(h, &rows, 1, 0, elements, 16), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kBatchApi.put(h, &rows, 0, 2, elements, 16), MORTISE_E_ARGUMENT);
}

// ---- first values ----

at::Tensor first_values(const std::string& name, const std::string& init, double scale, at::IntArrayRef sizes,
                        uint64_t seed, at::ScalarType dtype = at::kFloat) {
  mortise_param p;
  p.name = name;
  p.init = init;
  p.init_scale = scale;
  at::Tensor t = at::empty(sizes, dtype);
  initialise(t, p, seed);
  return t;
}

TEST(FirstValues, AreThoseOfTheirDeclarer) {
  const std::vector<float> values = {1, -2, 3.5F, 0, 5, 6};
  mortise_param p;
  p.init = "values";
  p.values = values.data();
  at::Tensor t = at::empty({2, 3}, at::kDouble);
  initialise(t, p, 1);
  EXPECT_TRUE(t.equal(at::tensor({1.0, -2.0, 3.5, 0.0, 5.0, 6.0}).view({2, 3})));
}

TEST(FirstValues, AreNormalWithTheDeviationAskedFor) {
  const at::Tensor t = first_values("w", "normal", 0.02, {1000, 1001}, 1, at::kDouble);
  EXPECT_NEAR(t.mean().item().toDouble(), 0, 5 * 0.02 / 1000);  // five standard errors
  EXPECT_NEAR(t.std().item().toDouble(), 0.02, 5 * 0.02 / std::sqrt(2e6));
  EXPECT_NEAR((t.div(0.02).pow(4)).mean().item().toDouble(), 3, 5 * std::sqrt(96.0) / 1000);
  EXPECT_GT(t.max().item().toDouble(), 0.02 * 4);
  EXPECT_NEAR((t.slice(1, 0, 1000) * t.slice(1, 1, 1001)).mean().item().toDouble() / 4e-4, 0,
              5e-3);  // neighbours know nothing of one another
}

// Blocks have 64-bit numbers: no bits come twice in a parameter of more than 2^34 elements.
TEST(FirstValues, DoNotRepeatBehind32BitsOfBlocks) {
  const uint32_t key[2] = {1, 2};
  double first[4], later[4];
  for (const uint64_t block : {uint64_t{0}, uint64_t{7}}) {
    initial_values(key, 3, block, false, first);
    initial_values(key, 3, block + (uint64_t{1} << 32), false, later);
    for (int i = 0; i < 4; ++i) EXPECT_NE(first[i], later[i]);
  }
}

TEST(FirstValues, AreUniformBetweenTheBounds) {
  const at::Tensor t = first_values("w", "uniform", 0.5, {1000, 1000}, 1);
  EXPECT_NEAR(t.mean().item().toDouble(), 0, 5 * 0.5 / std::sqrt(3.0) / 1000);
  EXPECT_NEAR(t.std().item().toDouble(), 0.5 / std::sqrt(3.0), 1e-3);
  EXPECT_LE(t.abs().max().item().toDouble(), 0.5);
  EXPECT_GT(t.max().item().toDouble(), 0.4999);
}

TEST(FirstValues, ComeFromSeedNameAndIndexAlone) {
  const at::Tensor t = first_values("w", "normal", 1, {130, 100}, 1);
  EXPECT_TRUE(bitwise(t, first_values("w", "normal", 1, {130, 100}, 1)));
  EXPECT_TRUE(
      bitwise(t.flatten().slice(0, 0, 601), first_values("w", "normal", 1, {601}, 1)));  // a prefix has the same values
  EXPECT_FALSE(bitwise(t, first_values("w", "normal", 1, {130, 100}, 2)));
  EXPECT_FALSE(bitwise(t, first_values("v", "normal", 1, {130, 100}, 1)));
  EXPECT_FALSE(bitwise(t, first_values("w", "normal", 1, {130, 100}, uint64_t{1} << 32 | 1)));
  EXPECT_TRUE(bitwise(t.to(at::kBFloat16), first_values("w", "normal", 1, {130, 100}, 1, at::kBFloat16)));
}

TEST(FirstValues, DoNotDependOnTheNumberOfThreads) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = first_values("w", "normal", 1, {300, 301}, 1);
  at::set_num_threads(3);
  const at::Tensor three = first_values("w", "normal", 1, {300, 301}, 1);
  at::set_num_threads(threads);
  EXPECT_TRUE(bitwise(one, three));
}

TEST(Parallel, UsesAsManyThreadsAsItIsTold) {
  const int before = at::get_num_threads();
  TestHost host;
  mortise_host* const window = &host.window("test.x");
  int32_t threads = 0;
  EXPECT_EQ(kParallelApi.set_threads(window, 3), MORTISE_OK);
  EXPECT_EQ(kParallelApi.threads(window, &threads), MORTISE_OK);
  EXPECT_EQ(threads, 3);
  EXPECT_EQ(at::get_num_threads(), 3);
  // Another thread, a loader's, computes with as many.
  int elsewhere = 0;
  std::thread([&] { elsewhere = at::get_num_threads(); }).join();
  EXPECT_EQ(elsewhere, 3);
  EXPECT_EQ(kParallelApi.set_threads(window, 0), MORTISE_E_ARGUMENT);
  at::set_num_threads(before);
}

TEST(FirstValues, MayBeConstantAndAreRefusedByName) {
  EXPECT_TRUE(bitwise(first_values("w", "constant", 1, {3}, 1), at::ones({3})));
  const Thrown t = thrown([] { first_values("w", "xavier", 1, {3}, 1); });
  EXPECT_NE(t.text.find("parameter w has the init `xavier`"), std::string::npos) << t.text;
}

// ---- threads, random sites ----

TEST(Parallel, RunsEveryPieceOnce) {
  TestHost host;
  std::vector<std::atomic<int>> seen(1000);
  const auto body = [](void* user, int64_t begin, int64_t end) noexcept {
    for (int64_t i = begin; i < end; ++i)
      (*static_cast<std::vector<std::atomic<int>>*>(user))[static_cast<size_t>(i)]++;
  };
  EXPECT_EQ(kParallelApi.run(&host.window("test.x"), 1000, 10, body, &seen), MORTISE_OK);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
  EXPECT_EQ(kParallelApi.run(&host.window("test.x"), 0, 10, body, &seen), MORTISE_OK);
  EXPECT_EQ(kParallelApi.run(&host.window("test.x"), 5, 0, body, &seen), MORTISE_OK);
}

// Each of them sees both: with one thread, or one after the other, the first would wait in vain.
TEST(Parallel, RunsPiecesAtTheSameTime) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  TestHost host;
  struct Meeting {
    std::atomic<int> here = 0, met = 0;
  } meeting;
  const auto body = [](void* user, int64_t, int64_t) noexcept {
    auto& m = *static_cast<Meeting*>(user);
    ++m.here;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (m.here < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    m.met += m.here == 2;
  };
  EXPECT_EQ(kParallelApi.run(&host.window("test.x"), 1000, 10, body, &meeting), MORTISE_OK);
  EXPECT_EQ(meeting.met, 2);
  at::set_num_threads(before);
}

// What crashes or hangs in a piece is charged to who asked for it, on every thread.
TEST(Parallel, PiecesAreOfTheCallThatAskedForThem) {
  const int before = at::get_num_threads();
  at::set_num_threads(4);
  TestHost host;
  std::atomic<int> others = 0;
  const auto body = [](void* user, int64_t, int64_t) noexcept {
    const PluginCall* call = current_call();
    if (!call || call->plugin != "optimizer.x" || call->what != "step") ++*static_cast<std::atomic<int>*>(user);
  };
  {
    const PluginScope scope("optimizer.x", "step");
    EXPECT_EQ(kParallelApi.run(&host.window("test.x"), 1000, 10, body, &others), MORTISE_OK);
  }
  EXPECT_EQ(others, 0);
  at::set_num_threads(before);
}

TEST(RandomSite, DependsOnSeedStepMicroLayerAndDraw) {
  struct Seen {
    std::vector<mortise_philox> of;
  };
  const auto sites = [](uint64_t seed, int steps, uint32_t draw) {
    TestHost host(seed);
    Seen seen;
    host.provide("op", {{},
                        [&](Forward& f) {
                          mortise_philox p;
                          EXPECT_EQ(kRandomApi.site(&f.host.window("test.operators"), &f.record, draw, &p), MORTISE_OK);
                          seen.of.push_back(p);
                          f.give(0, f.arg(0) + 1);
                        },
                        [](Backward&) {}});
    std::vector<mortise_layer*> layers;
    host.declare([&](Builder& b) {
      b.segment("s");
      for (const char* path : {"a", "b"}) layers.push_back(b.layer("op", path));
    });
    const at::Tensor x = at::zeros({1}).set_requires_grad(true);
    for (int s = 0; s < steps; ++s)
      host.step(2, [&](Call& c) { return c.layer(layers[1], {c.layer(layers[0], {x})[0]})[0]; });
    return seen.of;
  };
  const auto same = [](const mortise_philox& a, const mortise_philox& b) { return std::memcmp(&a, &b, sizeof a) == 0; };
  const auto one = sites(1, 2, 0), again = sites(1, 2, 0), other_seed = sites(2, 2, 0), other_draw = sites(1, 2, 1);
  ASSERT_EQ(one.size(), 8u);
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(same(one[i], again[i]));
    EXPECT_FALSE(same(one[i], other_seed[i]));
    EXPECT_FALSE(same(one[i], other_draw[i]));
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(same(one[i], one[j]));
  }
  TestHost host;
  mortise_call call{};
  mortise_philox p;
  EXPECT_EQ(kRandomApi.site(&host.window("test.x"), &call, 0, &p), MORTISE_E_ARGUMENT);
}

// ---- configuration ----

TEST(Config, GivesValuesDefaultsAndNothingElse) {
  PluginSchema schema;
  const auto key = [&](const char* name, const char* type, Value default_value) {
    schema.config.keys[name].name = name;
    schema.config.keys[name].type = type;
    schema.config.keys[name].default_value = std::move(default_value);
  };
  key("beta", "float", {0.9, {}});
  key("n", "int", {int64_t{3}, {}});
  key("on", "bool", {true, {}});
  key("dtype", "dtype", {std::string("bf16"), {}});
  key("names", "list<string>", texts({"a", "b"}));
  key("unset", "string", {});
  PluginTable table;
  table.schema = &schema;
  table.values["beta"] = {0.5, {}};
  TestHost host;
  PluginHost& p = host.get().add_plugin("test.config", &schema, &table);
  const auto get = [&](const char* name) {
    mortise_value v{};
    EXPECT_EQ(kConfigApi.get(&p, str(name), &v), MORTISE_OK);
    return v;
  };
  EXPECT_EQ(get("beta").v.f, 0.5);
  EXPECT_EQ(get("n").v.i, 3);
  EXPECT_EQ(get("on").tag, uint32_t{MORTISE_LOGICAL});
  EXPECT_EQ(get("dtype").v.i, MORTISE_BF16);
  ASSERT_EQ(get("names").count, 2u);
  EXPECT_EQ(view(get("names").v.ss[1]), "b");
  EXPECT_EQ(get("unset").tag, uint32_t{MORTISE_NONE});
  mortise_value v{};
  EXPECT_EQ(kConfigApi.get(&p, MORTISE_STR("gamma"), &v), MORTISE_E_NOT_FOUND);
  EXPECT_EQ(kConfigApi.blame(&p, MORTISE_STR("beta"), MORTISE_STR("too small"), MORTISE_STR("beta = 0.9")),
            MORTISE_E_CONFIG);
  EXPECT_TRUE(p.blamed);
  EXPECT_EQ(p.blame.message, "too small");
  EXPECT_EQ(p.blame.code, "refused_value");
  const auto refused_as = [&](mortise_str code) {
    EXPECT_EQ(kConfigApi.refuse(&p, code, MORTISE_STR("n"), MORTISE_STR("it does not divide"),
                                MORTISE_STR("3 / 2 = 1.5"), {}),
              MORTISE_E_CONFIG);
    return p.blame.code;
  };
  EXPECT_EQ(refused_as(MORTISE_STR("batch_arithmetic")), "batch_arithmetic");
  EXPECT_EQ(p.blame.beside, "3 / 2 = 1.5");
  EXPECT_EQ(p.blame.at, p.id + ".n");
  EXPECT_TRUE(p.blame.fixes.empty());
  EXPECT_EQ(refused_as(MORTISE_STR("optimizer.adamw")), "refused_value") << "an id is no code";
}

// ---- declarations ----

TEST(Declared, ParametersAreFoundByEveryNameAndChangedByField) {
  TestHost host;
  mortise_host* h = &host.window("test.x");
  plugin_of(h).writes = {"value_dtype", "trainable"};
  mortise_param* p = nullptr;
  host.declare([&](Builder& b) {
    b.segment("s");
    p = b.param("embed.weight", {3, 2});
    b.param("head.weight", {3, 2}, {.tie = p});
    host.get().declaring_parameters = true;
    EXPECT_EQ(kParamsApi.set(h, p, MORTISE_STR("master_dtype"), {MORTISE_DTYPE, 0, {.i = MORTISE_F32}}),
              MORTISE_E_PLUGIN);
    EXPECT_EQ(take_error(MORTISE_E_PLUGIN),
              "test.x writes `master_dtype`, which its plugin.toml does not say: listens = [{ …, writes = "
              "[\"master_dtype\"] }]");
    EXPECT_EQ(kParamsApi.set(h, p, MORTISE_STR("value_dtype"), {MORTISE_DTYPE, 0, {.i = MORTISE_BF16}}), MORTISE_OK);
    EXPECT_EQ(kParamsApi.set(h, p, MORTISE_STR("trainable"), {MORTISE_LOGICAL, 0, {.i = 0}}), MORTISE_OK);
    EXPECT_EQ(kParamsApi.set(h, p, MORTISE_STR("colour"), {MORTISE_INT, 0, {.i = 0}}), MORTISE_E_NOT_FOUND);
  });
  mortise_param* found = nullptr;
  EXPECT_EQ(kParamsApi.find(h, MORTISE_STR("head.weight"), &found), MORTISE_OK);
  EXPECT_EQ(found, p);
  EXPECT_EQ(kParamsApi.find(h, MORTISE_STR("tail.weight"), &found), MORTISE_E_NOT_FOUND);
  const mortise_param_info* info = nullptr;
  ASSERT_EQ(kParamsApi.info(h, p, &info), MORTISE_OK);
  EXPECT_EQ(info->numel, 6);
  EXPECT_EQ(host.get().parameters().state(*p).value.scalar_type(), at::kBFloat16);
}

// Where it would count for nobody: before and after calls, and on a thread that a call started.
TEST(Declared, AParameterIsUsedInsideACallOrNotAtAll) {
  TestHost host;
  mortise_host* h = &host.window("test.x");
  host.declare([](Builder& b) { b.segment("s"), b.param("w", {2}); });
  const auto refused = [&] {
    mortise_tensor* t = nullptr;
    EXPECT_EQ(kParamsApi.use(h, host.param("w"), &t), MORTISE_E_ARGUMENT);
    EXPECT_EQ(t, nullptr);
    EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "test.x uses parameter w outside of any call");
  };
  refused();
  host.step(1, [&](Call& c) {
    std::thread(refused).join();
    return c.use("w").sum();
  });
  EXPECT_TRUE(at::equal(host.grad("w"), at::ones({2})));
  refused();
  // Gradients are off by design where the call says so: a sample, or an evaluation.
  host.pass = {.mode = MORTISE_SAMPLE, .flags = 0};
  host.begin_step();
  host.begin_micro(0, true);
  EXPECT_FALSE(host.forward([](Call& c) { return c.use("w"); }).requires_grad());
}

TEST(Declared, MistakesComeBackAsAStatusWithAText) {
  TestHost host;
  mortise_host* h = &host.window("test.x");
  mortise_builder b{host.get().declaration(), {}};
  EXPECT_EQ(kBuildApi.segment(h, &b, MORTISE_STR("s"), 0), MORTISE_OK);
  EXPECT_EQ(kBuildApi.segment(h, &b, MORTISE_STR("s"), 0), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "segment s is declared twice");
  const mortise_layer_spec spec = {sizeof spec, 0, MORTISE_STR("telepathy"), MORTISE_STR("s.x"), nullptr};
  mortise_layer* layer = nullptr;
  EXPECT_EQ(kBuildApi.layer(h, &b, &spec, &layer), MORTISE_E_ARGUMENT);
  EXPECT_NE(take_error(MORTISE_E_ARGUMENT).find("telepathy"), std::string::npos);
  int64_t fact = 0;
  EXPECT_EQ(kBuildApi.fact(h, &b, MORTISE_STR("vocabulary"), &fact), MORTISE_E_NOT_FOUND);
  host.facts()["vocabulary"] = 61;
  EXPECT_EQ(kBuildApi.fact(h, &b, MORTISE_STR("vocabulary"), &fact), MORTISE_OK);
  EXPECT_EQ(fact, 61);
  mortise_tensor* norm = nullptr;
  EXPECT_EQ(kGradsApi.norm(h, &norm), MORTISE_E_ARGUMENT);  // nobody computed one yet
}

// What lies behind the size of a spec is not read: a plugin built with SDK 0.1 knows no parts.
TEST(Declared, PartsAreReadWhereTheSpecHasThem) {
  TestHost host;
  mortise_host* h = &host.window("test.x");
  mortise_builder b{host.get().declaration(), {}};
  const int64_t sizes[] = {6}, parts[] = {4, 2};
  mortise_param_spec spec{};
  spec.rank = 1;
  spec.role = MORTISE_STR("vector");
  spec.sizes = sizes;
  spec.n_parts = 2;
  const auto declare = [&](mortise_str name, size_t size) -> mortise_param* {
    spec.name = name;
    spec.struct_size = static_cast<uint32_t>(size);
    mortise_param* p = nullptr;
    return kBuildApi.param(h, &b, &spec, &p) == MORTISE_OK ? p : nullptr;
  };
  mortise_param* older = declare(MORTISE_STR("older"), offsetof(mortise_param_spec, part_dim));
  ASSERT_TRUE(older);
  EXPECT_EQ(older->info.n_parts, 0u);
  EXPECT_FALSE(declare(MORTISE_STR("null"), sizeof spec));
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "the parts of parameter null are NULL");
  EXPECT_FALSE(declare(MORTISE_STR("short"), offsetof(mortise_param_spec, tie)));
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "a parameter is declared by a spec without its size");
  spec.parts = parts;
  mortise_param* packed = declare(MORTISE_STR("packed"), sizeof spec);
  ASSERT_TRUE(packed);
  EXPECT_EQ(packed->info.n_parts, 2u);
}

TEST(Interfaces, HaveNoHole) {
  TestHost host;
  mortise::testing::expect_no_hole(host.get());
}

TEST(Interfaces, AreFoundById) {
  TestHost host;
  PluginHost& p = host.window("test.x");
  EXPECT_EQ(p.get_interface(&p, MORTISE_STR("mortise.ops/0")), &kOpsApi);
  EXPECT_EQ(p.get_interface(&p, MORTISE_STR("mortise.ops/9")), nullptr);
  EXPECT_EQ(p.get_interface(&p, MORTISE_STR("mortise.test/0")), nullptr);
  static const int table = 0;
  host.get().register_table("mortise.test/0", &table);
  EXPECT_EQ(p.get_interface(&p, MORTISE_STR("mortise.test/0")), &table);
}

}  // namespace
