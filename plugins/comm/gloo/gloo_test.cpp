// comm.gloo in several processes of this one, each with a fake host and the plugin. Nothing of LibTorch runs in the
// process that forks, so no thread of it is lost to a child.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "../place_test.hpp"
#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;
using mortise::Tensor;
using Clock = std::chrono::steady_clock;

constexpr double kShort = 1.5;  // s, a timeout that a test waits for; ranks that are well come within it
constexpr double kNaming = 4;   // s, in which the others find out which rank it is that did not come
double seconds_since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }
mortise_str str(std::string_view text) { return mortise::str(text); }

bool checks = false;  // the key `check`

// One rank, in its process.
struct Rank {
  Rank(int rank_, int size_, const Place& place, double timeout_s, const char* address = "127.0.0.1")
      : rank(rank_), size(size_) {
    host.set("timeout", mortise_value{MORTISE_AMOUNT, MORTISE_SECONDS, {.f = timeout_s}}).set("check", checks);
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    comm = &plugin->object<mortise_comm>("comm");
    world = {sizeof world, rank, size, rank, size, place.port, rank == 0 ? place.fd : -1, 0, str(address)};
  }
  mortise_status open() { return comm->open(plugin->self(), &world); }
  mortise_status start(uint32_t kind, mortise_tensor* in, mortise_tensor* out, mortise_work** work,
                       uint32_t op = MORTISE_SUM, int root = 0) {
    const mortise_collective c = {sizeof c, kind, op, root, in, out};
    return comm->start(plugin->self(), &c, work);
  }
  mortise_status run(mortise_collective c) {
    c.struct_size = sizeof c;
    mortise_work* work = nullptr;
    const mortise_status status = comm->start(plugin->self(), &c, &work);
    return status ? status : wait(work);
  }
  mortise_rank_group* group(std::vector<int32_t> ranks) {
    mortise_rank_group* made = nullptr;
    EXPECT_EQ(comm->group(plugin->self(), ranks.data(), static_cast<uint32_t>(ranks.size()), &made), MORTISE_OK)
        << host.error();
    return made;
  }
  mortise_status wait(mortise_work* work) { return comm->wait(plugin->self(), work); }
  mortise_status run(uint32_t kind, mortise_tensor* in, mortise_tensor* out, uint32_t op = MORTISE_SUM, int root = 0) {
    mortise_work* work = nullptr;
    const mortise_status status = start(kind, in, out, &work, op, root);
    return status ? status : wait(work);
  }
  mortise_status sum(std::vector<int64_t> numbers, uint32_t op = MORTISE_SUM) {
    summed = std::move(numbers);
    return comm->host_all_reduce(plugin->self(), summed.data(), static_cast<uint32_t>(summed.size()), op);
  }
  mortise_status share(const char* key, std::string_view text) {
    return comm->share(plugin->self(), str(key), str(text));
  }
  std::string fetch(const char* key) {
    mortise_str text{};
    const mortise_status status = comm->fetch(plugin->self(), str(key), &text);
    return status ? "status " + std::to_string(status) : std::string(mortise::view(text));
  }

  const int rank, size;
  FakeHost host;
  std::optional<Plugin> plugin;
  const mortise_comm* comm = nullptr;
  mortise_world world{};
  std::vector<int64_t> summed;
};

// The ranks of one world, each with `body`; those in `unfit` need not end well: they are killed after the others ended.
void in_ranks(int n, const std::function<void(Rank&)>& body, double timeout_s = 20, std::set<int> unfit = {}) {
  const Place place;
  std::vector<pid_t> children;
  for (int r = 0; r < n; ++r)
    children.push_back(fork_into([&, r] {
      Rank rank(r, n, place, timeout_s);
      ASSERT_EQ(rank.open(), MORTISE_OK) << rank.host.error();
      body(rank);
    }));
  for (int r = 0; r < n; ++r) {
    if (unfit.contains(r)) continue;
    int status = 0;
    ::waitpid(children[static_cast<size_t>(r)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << r << " of " << n;
  }
  for (const int r : unfit) {
    ::kill(children[static_cast<size_t>(r)], SIGKILL);
    ::waitpid(children[static_cast<size_t>(r)], nullptr, 0);
  }
}

// Elements that every sum of four ranks holds exactly, also in bf16; other ones on each rank.
std::vector<double> pattern(int rank, int64_t n, int salt = 0) {
  std::vector<double> r;
  for (int64_t i = 0; i < n; ++i) r.push_back(static_cast<double>((7 * i + 13 * rank + salt) % 31 - 15));
  return r;
}
Tensor tensor_of(FakeHost& host, uint32_t dtype, const std::vector<double>& elements) {
  const int64_t n = static_cast<int64_t>(elements.size());
  Tensor t = mortise::empty(dtype, {n});
  for (int64_t i = 0; i < n; ++i) host.set_element(t.get(), i, elements[static_cast<size_t>(i)]);
  return t;
}
std::vector<double> elements_of(FakeHost& host, const Tensor& t) {
  std::vector<double> r;
  for (int64_t i = 0; i < mortise::Info(t).numel; ++i) r.push_back(host.element(t.get(), i));
  return r;
}
// What a reduction over n ranks gives.
std::vector<double> reduced(int n, int64_t length, uint32_t op) {
  std::vector<double> r = pattern(0, length);
  for (int rank = 1; rank < n; ++rank)
    for (int64_t i = 0; i < length; ++i) {
      double& to = r[static_cast<size_t>(i)];
      const double x = pattern(rank, length)[static_cast<size_t>(i)];
      to = op == MORTISE_SUM ? to + x : op == MORTISE_MAX ? std::max(to, x) : std::min(to, x);
    }
  return r;
}
std::vector<double> part(const std::vector<double>& all, int64_t from, int64_t n) {
  return {all.begin() + from, all.begin() + from + n};
}

constexpr uint32_t kOps[] = {MORTISE_SUM, MORTISE_MAX, MORTISE_MIN};
constexpr uint32_t kTypes[] = {MORTISE_F32, MORTISE_F64, MORTISE_BF16, MORTISE_F16, MORTISE_I64, MORTISE_I32};
constexpr int64_t kLengths[] = {1, 5, 300};  // fewer than ranks, odd, more than a line

struct Ranks : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, Ranks, testing::Values(2, 3, 4), testing::PrintToStringParamName());

TEST_P(Ranks, LeaveAsSoonAsTheyHaveMet) {
  for (int i = 0; i < 3; ++i) in_ranks(GetParam(), [](Rank&) {});
}

TEST_P(Ranks, ReduceEveryTypeToTheSame) {
  in_ranks(GetParam(), [](Rank& at) {
    for (const uint32_t dtype : kTypes)
      for (const uint32_t op : kOps)
        for (const int64_t length : kLengths) {
          SCOPED_TRACE(testing::Message() << dtype << " " << op << " " << length);
          const Tensor t = tensor_of(at.host, dtype, pattern(at.rank, length));
          ASSERT_EQ(at.run(MORTISE_ALL_REDUCE, nullptr, t.get(), op), MORTISE_OK) << at.host.error();
          ASSERT_EQ(elements_of(at.host, t), reduced(at.size, length, op));
          ASSERT_EQ(at.host.times_written(t.get()), 1);
        }
  });
}

TEST_P(Ranks, ScatterWhatTheyReduce) {
  in_ranks(GetParam(), [](Rank& at) {
    for (const uint32_t dtype : {MORTISE_F32, MORTISE_F64, MORTISE_BF16, MORTISE_I64})
      for (const uint32_t op : kOps)
        for (const int64_t length : kLengths) {
          SCOPED_TRACE(testing::Message() << dtype << " " << op << " " << length);
          const std::vector<double> given = pattern(at.rank, length * at.size);
          const Tensor in = tensor_of(at.host, dtype, given), out = mortise::empty(dtype, {length});
          ASSERT_EQ(at.run(MORTISE_REDUCE_SCATTER, in.get(), out.get(), op), MORTISE_OK) << at.host.error();
          ASSERT_EQ(elements_of(at.host, out), part(reduced(at.size, length * at.size, op), at.rank * length, length));
          ASSERT_EQ(elements_of(at.host, in), given);
        }
  });
}

TEST_P(Ranks, ReduceToOne) {
  in_ranks(GetParam(), [](Rank& at) {
    for (const uint32_t dtype : kTypes)
      for (int root = 0; root < at.size; ++root) {
        SCOPED_TRACE(testing::Message() << dtype << " " << root);
        const Tensor t = tensor_of(at.host, dtype, pattern(at.rank, 70));
        ASSERT_EQ(at.run(MORTISE_REDUCE, nullptr, t.get(), MORTISE_SUM, root), MORTISE_OK) << at.host.error();
        if (at.rank == root) {
          ASSERT_EQ(elements_of(at.host, t), reduced(at.size, 70, MORTISE_SUM));
        }
      }
  });
}

TEST_P(Ranks, GatherAndBroadcast) {
  in_ranks(GetParam(), [](Rank& at) {
    for (const uint32_t dtype : kTypes)
      for (const int64_t length : kLengths) {
        SCOPED_TRACE(testing::Message() << dtype << " " << length);
        std::vector<double> all;
        for (int r = 0; r < at.size; ++r)
          for (const double x : pattern(r, length)) all.push_back(x);
        const Tensor in = tensor_of(at.host, dtype, pattern(at.rank, length));
        const Tensor out = mortise::empty(dtype, {length * at.size});
        ASSERT_EQ(at.run(MORTISE_ALL_GATHER, in.get(), out.get()), MORTISE_OK) << at.host.error();
        ASSERT_EQ(elements_of(at.host, out), all);
        for (int root = 0; root < at.size; ++root) {
          const Tensor t = tensor_of(at.host, dtype, pattern(at.rank, length, 3));
          ASSERT_EQ(at.run(MORTISE_BROADCAST, nullptr, t.get(), 0, root), MORTISE_OK) << at.host.error();
          ASSERT_EQ(elements_of(at.host, t), pattern(root, length, 3));
        }
      }
  });
}

// What a rank has for each of the others: a row for 0, two for 1, and so on, of 3 numbers that say from whom to whom.
std::vector<double> rows_of(int from, const std::vector<int64_t>& rows) {
  std::vector<double> all;
  for (size_t to = 0; to < rows.size(); ++to)
    for (int64_t row = 0; row < rows[to]; ++row)
      for (const double x : {double(from), double(to), double(row)}) all.push_back(x);
  return all;
}
Tensor rows_tensor(FakeHost& host, uint32_t dtype, const std::vector<double>& elements) {
  Tensor t = mortise::empty(dtype, {static_cast<int64_t>(elements.size() / 3), 3});
  for (size_t i = 0; i < elements.size(); ++i) host.set_element(t.get(), static_cast<int64_t>(i), elements[i]);
  return t;
}

// `rows(from, to)`: how many rows one rank has for another.
void exchange(Rank& at, const std::vector<int>& ranks, const mortise_rank_group* group,
              const std::function<int64_t(int, int)>& rows, bool even) {
  const int own = static_cast<int>(std::ranges::find(ranks, at.rank) - ranks.begin());
  for (const uint32_t dtype : kTypes) {
    std::vector<int64_t> to, from;
    std::vector<double> expected;
    for (int other = 0; other < std::ssize(ranks); ++other) {
      to.push_back(rows(own, other));
      from.push_back(rows(other, own));
      for (int64_t row = 0; row < from.back(); ++row)
        for (const double x : {double(other), double(own), double(row)}) expected.push_back(x);
    }
    const Tensor in = rows_tensor(at.host, dtype, rows_of(own, to));
    const Tensor out = mortise::empty(dtype, {static_cast<int64_t>(expected.size() / 3), 3});
    ASSERT_EQ(at.run({.kind = MORTISE_ALL_TO_ALL,
                      .in = in.get(),
                      .out = out.get(),
                      .group = group,
                      .in_rows = even ? nullptr : to.data(),
                      .out_rows = even ? nullptr : from.data()}),
              MORTISE_OK)
        << at.host.error();
    ASSERT_EQ(elements_of(at.host, out), expected);
    ASSERT_EQ(at.host.times_written(out.get()), 1);
  }
}

TEST_P(Ranks, ExchangeRows) {
  in_ranks(GetParam(), [](Rank& at) {
    std::vector<int> all(static_cast<size_t>(at.size));
    std::iota(all.begin(), all.end(), 0);
    exchange(at, all, nullptr, [](int, int) { return 2; }, true);
    exchange(at, all, nullptr, [](int from, int to) { return from + 2 * to; }, false);
    exchange(at, all, nullptr, [](int from, int to) { return from == 0 && to == 1 ? 5 : 0; }, false);
    exchange(at, all, nullptr, [](int, int) { return 0; }, false);
  });
}

// Two groups side by side, the ranks of one in another order than their numbers, and one rank alone.
TEST(Gloo, GroupsCommunicateByThemselves) {
  in_ranks(4, [](Rank& at) {
    const std::vector<int> own = at.rank % 2 == 0 ? std::vector{2, 0} : std::vector{1, 3};
    mortise_rank_group* const pair = at.group({own[0], own[1]});
    mortise_rank_group* const alone = at.group({at.rank});
    const Tensor sum = tensor_of(at.host, MORTISE_F64, {double(at.rank), 1});
    ASSERT_EQ(at.run({.kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = sum.get(), .group = pair}), MORTISE_OK);
    EXPECT_EQ(elements_of(at.host, sum), (std::vector<double>{double(own[0] + own[1]), 2}));

    const Tensor mine = tensor_of(at.host, MORTISE_I64, {double(at.rank)}), both = mortise::empty(MORTISE_I64, {2});
    ASSERT_EQ(at.run({.kind = MORTISE_ALL_GATHER, .in = mine.get(), .out = both.get(), .group = pair}), MORTISE_OK);
    EXPECT_EQ(elements_of(at.host, both), (std::vector<double>{double(own[0]), double(own[1])}));

    const Tensor told = tensor_of(at.host, MORTISE_I64, {double(at.rank)});
    ASSERT_EQ(at.run({.kind = MORTISE_BROADCAST, .root = 1, .out = told.get(), .group = pair}), MORTISE_OK);
    EXPECT_EQ(elements_of(at.host, told), std::vector<double>{double(own[1])});

    exchange(at, own, pair, [](int from, int to) { return 1 + from + 3 * to; }, false);
    exchange(at, {at.rank}, alone, [](int, int) { return 3; }, true);
    ASSERT_EQ(at.run({.kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = sum.get(), .group = alone}), MORTISE_OK);
    EXPECT_EQ(elements_of(at.host, sum), (std::vector<double>{double(own[0] + own[1]), 2}));

    const Tensor of_all = tensor_of(at.host, MORTISE_F64, {1});
    ASSERT_EQ(at.run(MORTISE_ALL_REDUCE, nullptr, of_all.get()), MORTISE_OK);
    EXPECT_EQ(elements_of(at.host, of_all), std::vector<double>{4});
  });
}

// What one rank starts among all first, another starts in its group first.
TEST(Gloo, GroupsKeepAnOrderOfTheirOwn) {
  in_ranks(2, [](Rank& at) {
    mortise_rank_group* const both = at.group({0, 1});
    for (int i = 0; i < 20; ++i) {
      const Tensor all = tensor_of(at.host, MORTISE_F32, std::vector<double>(1000, 1)),
                   some = tensor_of(at.host, MORTISE_F32, std::vector<double>(1000, 2));
      const mortise_collective among_all = {
          .struct_size = sizeof among_all, .kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = all.get()};
      mortise_collective in_group = among_all;
      in_group.out = some.get();
      in_group.group = both;
      mortise_work *first = nullptr, *second = nullptr;
      const auto& [one, other] = at.rank == 0 ? std::pair(among_all, in_group) : std::pair(in_group, among_all);
      ASSERT_EQ(at.comm->start(at.plugin->self(), &one, &first), MORTISE_OK);
      ASSERT_EQ(at.comm->start(at.plugin->self(), &other, &second), MORTISE_OK);
      ASSERT_EQ(at.wait(first), MORTISE_OK);
      ASSERT_EQ(at.wait(second), MORTISE_OK);
      ASSERT_EQ(elements_of(at.host, all), std::vector<double>(1000, 2));
      ASSERT_EQ(elements_of(at.host, some), std::vector<double>(1000, 4));
    }
  });
}

// Each rank begins another call than the others do in its place, and the next is the same again.
TEST(Gloo, FindsWhoBeginsAnotherCallWhereItChecks) {
  checks = true;
  in_ranks(3, [](Rank& at) {
    const Tensor a = mortise::empty(MORTISE_F64, {4}), b = mortise::empty(MORTISE_F64, {8}),
                 whole = mortise::empty(MORTISE_I64, {4});
    mortise_rank_group* const some = at.rank < 2 ? at.group({0, 1}) : at.group({2});
    const auto last = [&](auto&& mine, auto&& others) { return at.rank == 2 ? mine() : others(); };
    const auto sum = [&] { return at.run(MORTISE_ALL_REDUCE, nullptr, a.get()); };
    const auto differ = [&](const mortise_status status) {
      EXPECT_EQ(status, MORTISE_E_ARGUMENT);
      EXPECT_TRUE(at.host.error().starts_with("the ranks do not begin the same; this one: ")) << at.host.error();
    };
    EXPECT_EQ(sum(), MORTISE_OK);
    differ(last([&] { return at.run(MORTISE_ALL_REDUCE, nullptr, b.get()); }, sum));
    const std::string of = "all_reduce, sum of fp64, ", four = of + "4 elements", eight = of + "8 elements";
    const std::string& error = at.host.error();
    if (at.rank == 2) {
      EXPECT_TRUE(error.ends_with("this one: " + eight + "; rank 0: " + four) ||
                  error.ends_with("this one: " + eight + "; rank 1: " + four))
          << error;
    } else {
      EXPECT_TRUE(error.ends_with("this one: " + four + "; rank 2: " + eight)) << error;
    }
    differ(last([&] { return at.run(MORTISE_ALL_REDUCE, nullptr, a.get(), MORTISE_MAX); }, sum));
    differ(last([&] { return at.run(MORTISE_BROADCAST, nullptr, a.get()); }, sum));
    differ(at.run(MORTISE_BROADCAST, nullptr, a.get(), MORTISE_SUM, at.rank == 2 ? 1 : 0));
    differ(last([&] { return at.run(MORTISE_ALL_REDUCE, nullptr, whole.get()); }, sum));
    differ(last([&] { return at.sum({1}, MORTISE_MAX); }, [&] { return at.sum({1}); }));
    differ(last([&] { return at.sum({1, 2}); }, sum));
    differ(last([&] { return at.sum({1, 2}); }, [&] { return at.sum({1}); }));
    const Tensor three = mortise::empty(MORTISE_F32, {3, 2}), one_more = mortise::empty(MORTISE_F32, {4, 2}),
                 taken = mortise::empty(MORTISE_F32, {3, 2});
    const int64_t ones[] = {1, 1, 1}, more[] = {2, 1, 1};
    EXPECT_EQ(at.run({.kind = MORTISE_ALL_TO_ALL,
                      .in = at.rank == 2 ? one_more.get() : three.get(),
                      .out = taken.get(),
                      .in_rows = at.rank == 2 ? more : ones,
                      .out_rows = ones}),
              MORTISE_E_SHAPE);
    EXPECT_EQ(error, "all_to_all: of these ranks number 2 sends number 0 2 rows, which has room for 1");
    if (at.rank < 2) {
      const auto of_some = [&](mortise_tensor* out) {
        return at.run({.kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = out, .group = some});
      };
      differ(of_some(at.rank == 0 ? a.get() : b.get()));
      EXPECT_EQ(of_some(a.get()), MORTISE_OK) << at.host.error();
    }
    // What two of them alone have found does not keep all from comparing texts.
    differ(last([&] { return at.run(MORTISE_ALL_REDUCE, nullptr, b.get()); }, sum));
    EXPECT_TRUE(error.find(at.rank == 2 ? four : "; rank 2: " + eight) != std::string::npos) << error;
    EXPECT_EQ(sum(), MORTISE_OK) << at.host.error();
  });
  checks = false;
}

TEST(Gloo, RefusesWhatIsNoGroupAndNoExchange) {
  in_ranks(2, [](Rank& at) {
    mortise_rank_group* made = nullptr;
    const auto refuses = [&](std::vector<int32_t> ranks, const std::string& text) {
      EXPECT_EQ(at.comm->group(at.plugin->self(), ranks.data(), static_cast<uint32_t>(ranks.size()), &made),
                MORTISE_E_ARGUMENT);
      EXPECT_EQ(at.host.error(), text);
    };
    const auto own = std::to_string(at.rank);
    refuses({}, "group: no ranks are named");
    refuses({1 - at.rank}, "group: rank " + own + " is not among those it names");
    refuses({at.rank, at.rank}, "group: rank " + own + " is named twice, or is none of 2");
    refuses({at.rank, 2}, "group: rank 2 is named twice, or is none of 2");

    const Tensor three = mortise::empty(MORTISE_F32, {3, 2}), four = mortise::empty(MORTISE_F32, {4, 2}),
                 wide = mortise::empty(MORTISE_F32, {4, 3}), other = mortise::empty(MORTISE_F32, {4, 2}),
                 other_rows = mortise::empty(MORTISE_F32, {2, 2});
    const int64_t two[] = {2, 2}, less[] = {1, 1}, negative[] = {5, -1};
    const auto says = [&](mortise_status expected, const std::string& text, mortise_collective c) {
      c.kind = MORTISE_ALL_TO_ALL;
      EXPECT_EQ(at.run(c), expected);
      EXPECT_EQ(at.host.error(), "all_to_all: " + text);
    };
    says(MORTISE_E_SHAPE, "`in` has 3 rows, which 2 ranks do not share evenly",
         {.in = three.get(), .out = three.get()});
    says(MORTISE_E_SHAPE, "`in` and `out` have other sizes", {.in = four.get(), .out = other_rows.get()});
    says(MORTISE_E_SHAPE, "rows of `in` and of `out` have other sizes", {.in = four.get(), .out = wide.get()});
    says(MORTISE_E_ARGUMENT, "`in` and `out` are one memory", {.in = four.get(), .out = four.get()});
    says(MORTISE_E_ARGUMENT, "`in_rows` and `out_rows` are given together, or neither",
         {.in = four.get(), .out = other.get(), .in_rows = two});
    says(MORTISE_E_SHAPE, "`in` has 4 rows, and the ranks are to have 2",
         {.in = four.get(), .out = other.get(), .in_rows = less, .out_rows = two});
    says(MORTISE_E_SHAPE, "`out` has 4 rows, and the ranks are to have less than none",
         {.in = four.get(), .out = other.get(), .in_rows = two, .out_rows = negative});
    const int64_t out[] = {3, 1}, in[] = {1, 3};
    says(MORTISE_E_SHAPE,
         "this rank is to send itself " + std::to_string(in[at.rank]) + " rows and has room for " +
             std::to_string(out[at.rank]),
         {.in = four.get(), .out = other.get(), .in_rows = in, .out_rows = out});
    const auto* const nobody = reinterpret_cast<const mortise_rank_group*>(&in);
    EXPECT_EQ(at.run({.kind = MORTISE_ALL_REDUCE, .out = four.get(), .group = nobody}), MORTISE_E_ARGUMENT);
    EXPECT_EQ(at.host.error(), "start: no group of ranks is at that address");
    EXPECT_EQ(at.sum({1}), MORTISE_OK) << "no connection is lost by it";
  });
}

TEST(Gloo, OfAGroupARankThatIsKilledIsLost) {
  in_ranks(3,
           [](Rank& at) {
             mortise_rank_group* const pair = at.rank == 0 ? at.group({0}) : at.group({1, 2});
             const Tensor in = mortise::empty(MORTISE_F32, {2}), out = mortise::empty(MORTISE_F32, {2});
             ASSERT_EQ(at.run({.kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = out.get(), .group = pair}),
                       MORTISE_OK);  // both have connected
             if (at.rank == 2) ::raise(SIGKILL);
             if (at.rank == 0) return static_cast<void>(::usleep(2'500'000));
             EXPECT_EQ(at.run({.kind = MORTISE_ALL_TO_ALL, .in = in.get(), .out = out.get(), .group = pair}),
                       MORTISE_E_LOST);
             EXPECT_TRUE(at.host.error().starts_with("all_to_all: rank 2 ended, or did not come, ")) << at.host.error();
           },
           20, {0, 2});
}

TEST_P(Ranks, SendNothingOfNothing) {
  in_ranks(GetParam(), [](Rank& at) {
    const Tensor none = mortise::empty(MORTISE_F32, {0}), also = mortise::empty(MORTISE_F32, {0});
    for (const uint32_t kind :
         {MORTISE_ALL_REDUCE, MORTISE_REDUCE_SCATTER, MORTISE_ALL_GATHER, MORTISE_BROADCAST, MORTISE_REDUCE})
      EXPECT_EQ(at.run(kind, none.get(), also.get()), MORTISE_OK) << at.host.error();
    EXPECT_EQ(at.sum({}), MORTISE_OK);
  });
}

// Each rank adds numbers at another time of its own; the two groups keep their orders apart.
TEST_P(Ranks, ReduceNumbersWhileTensorsAreUnderWay) {
  in_ranks(GetParam(), [](Rank& at) {
    constexpr int64_t kBig = 1 << 20;
    std::vector<Tensor> tensors;
    std::vector<mortise_work*> works;
    const int when = at.rank * 3;
    for (int i = 0; i < 12; ++i) {
      if (i == when) {
        ASSERT_EQ(at.sum({at.rank, 5}), MORTISE_OK) << at.host.error();
        EXPECT_EQ(at.summed, (std::vector<int64_t>{at.size * (at.size - 1) / 2, 5 * at.size}));
      }
      tensors.push_back(at.host.tensor<float>({kBig}, std::vector<float>(kBig, static_cast<float>(at.rank + i))));
      ASSERT_EQ(at.start(MORTISE_ALL_REDUCE, nullptr, tensors.back().get(), &works.emplace_back()), MORTISE_OK);
    }
    ASSERT_EQ(at.sum({at.rank}, MORTISE_MAX), MORTISE_OK);
    EXPECT_EQ(at.summed[0], at.size - 1);
    ASSERT_EQ(at.sum({-at.rank}, MORTISE_MIN), MORTISE_OK);
    EXPECT_EQ(at.summed[0], 1 - at.size);
    for (size_t i = 12; i-- > 0;) {  // in another order than they began
      ASSERT_EQ(at.wait(works[i]), MORTISE_OK) << at.host.error();
      const float expected = static_cast<float>(at.size * (at.size - 1) / 2 + at.size * static_cast<int>(i));
      EXPECT_EQ(at.host.values<float>(tensors[i]), std::vector<float>(kBig, expected));
    }
  });
}

TEST_P(Ranks, KeepTheTensorsUntilTheyWait) {
  in_ranks(GetParam(), [](Rank& at) {
    mortise_work* work = nullptr;
    Tensor t = tensor_of(at.host, MORTISE_F32, pattern(at.rank, 300));
    ASSERT_EQ(at.start(MORTISE_ALL_REDUCE, nullptr, t.get(), &work), MORTISE_OK);
    t = {};
    EXPECT_EQ(at.host.live_tensors(), 1u);
    EXPECT_EQ(at.wait(work), MORTISE_OK);
    EXPECT_EQ(at.host.live_tensors(), 0u);
    EXPECT_EQ(at.wait(work), MORTISE_E_ARGUMENT);
    // One that nobody waits for goes with the plugin: the fake host counts what is left.
    t = tensor_of(at.host, MORTISE_F32, pattern(at.rank, 300));
    EXPECT_EQ(at.start(MORTISE_ALL_REDUCE, nullptr, t.get(), &work), MORTISE_OK);
  });
}

TEST_P(Ranks, ShareTexts) {
  in_ranks(GetParam(), [](Rank& at) {
    const std::string long_text(300'000, 'x');
    if (at.rank == 1) ::usleep(100'000);  // the others wait
    const std::string own = "of " + std::to_string(at.rank);
    ASSERT_EQ(at.share(("place/" + std::to_string(at.rank)).c_str(), own), MORTISE_OK) << at.host.error();
    for (int r = 0; r < at.size; ++r)
      EXPECT_EQ(at.fetch(("place/" + std::to_string(r)).c_str()), "of " + std::to_string(r));
    if (at.rank == 0) {
      EXPECT_EQ(at.share("empty", ""), MORTISE_OK);
      EXPECT_EQ(at.share("empty", "again"), MORTISE_E_ARGUMENT);
      EXPECT_EQ(at.share("long", long_text), MORTISE_OK);
      return;  // and ends, while the others fetch
    }
    ::usleep(static_cast<useconds_t>(100'000 * at.rank));
    EXPECT_EQ(at.fetch("empty"), "");
    EXPECT_EQ(at.fetch("long"), long_text);
  });
}

// A mistake that every rank makes costs no connection: the next call is good.
TEST_P(Ranks, RefuseWhatCannotBeSent) {
  in_ranks(GetParam(), [](Rank& at) {
    const Tensor t = mortise::empty(MORTISE_F32, {6}), wide = mortise::empty(MORTISE_F64, {6 * at.size});
    const Tensor flags = mortise::empty(MORTISE_BOOL, {6});
    const auto says = [&](mortise_status expected, const std::string& text, mortise_status status) {
      EXPECT_EQ(status, expected);
      EXPECT_EQ(at.host.error(), text);
    };
    const auto n = std::to_string(at.size);
    says(MORTISE_E_ARGUMENT, "start: no collective has the number 9", at.run(9, t.get(), t.get()));
    says(MORTISE_E_ARGUMENT, "all_reduce: no reduction has the number 7", at.run(MORTISE_ALL_REDUCE, {}, t.get(), 7));
    says(MORTISE_E_ARGUMENT, "all_reduce: `out` is NULL", at.run(MORTISE_ALL_REDUCE, nullptr, nullptr));
    says(MORTISE_E_ARGUMENT, "all_reduce: booleans have no sum", at.run(MORTISE_ALL_REDUCE, {}, flags.get()));
    says(MORTISE_E_ARGUMENT, "all_gather: `in` is NULL", at.run(MORTISE_ALL_GATHER, nullptr, t.get()));
    says(MORTISE_E_ARGUMENT, "broadcast: `root` is " + n + ", of " + n + " ranks",
         at.run(MORTISE_BROADCAST, nullptr, t.get(), 0, at.size));
    says(MORTISE_E_ARGUMENT, "reduce: `root` is -1, of " + n + " ranks",
         at.run(MORTISE_REDUCE, nullptr, t.get(), MORTISE_SUM, -1));
    says(MORTISE_E_ARGUMENT, "reduce: no reduction has the number 9", at.run(MORTISE_REDUCE, nullptr, t.get(), 9));
    says(MORTISE_E_SHAPE, "all_gather: `in` and `out` are of two element types",
         at.run(MORTISE_ALL_GATHER, t.get(), wide.get()));
    says(MORTISE_E_SHAPE,
         "reduce_scatter: `in` has 6 elements and `out` 6; " + n + " ranks need " + std::to_string(6 * at.size),
         at.run(MORTISE_REDUCE_SCATTER, t.get(), t.get()));
    says(MORTISE_E_ARGUMENT, "host_all_reduce: no reduction has the number 3", at.sum({1}, 3));
    says(MORTISE_E_ARGUMENT, "host_all_reduce: the numbers are NULL",
         at.comm->host_all_reduce(at.plugin->self(), nullptr, 2, MORTISE_SUM));
    says(MORTISE_E_ARGUMENT, "open: it was called before", at.open());
    EXPECT_EQ(at.sum({1}), MORTISE_OK) << at.host.error();
    EXPECT_EQ(at.summed[0], at.size);
  });
}

TEST(Gloo, RefusesATensorThatIsNotContiguous) {
  in_ranks(2, [](Rank& at) {
    static const mortise_tensor_api* real = mortise::api.tensor;
    static mortise_tensor_api table = *real;
    table.info = [](mortise_host* h, const mortise_tensor* t, mortise_tensor_info* info) noexcept {
      const mortise_status status = real->info(h, t, info);
      info->flags &= ~uint32_t{MORTISE_CONTIGUOUS};
      return status;
    };
    at.host.offer("mortise.tensor/0", &table);
    at.plugin.reset();
    at.plugin.emplace(at.host, MORTISE_PLUGIN_FILE);
    at.world.size = 1, at.world.rank = 0, at.world.listen_fd = -1;
    ASSERT_EQ(at.open(), MORTISE_OK);
    const Tensor t = at.host.tensor<float>({2}, {1, 2});
    EXPECT_EQ(at.run(MORTISE_BROADCAST, nullptr, t.get()), MORTISE_E_ARGUMENT);
    EXPECT_EQ(at.host.error(), "broadcast: `out` is not contiguous");
  });
}

// ---- ranks that are lost ----

void expect_one_line(std::string error) {
  error.erase(std::min(error.find("\n  fix: "), error.size()));
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_EQ(error.find("/pytorch"), std::string::npos) << error;
  EXPECT_LT(error.size(), 300u) << error;
}

TEST_P(Ranks, EndWhenOneIsKilled) {
  const int last = GetParam() - 1;
  in_ranks(GetParam(),
           [=](Rank& at) {
             const Tensor t = tensor_of(at.host, MORTISE_F32, pattern(at.rank, 300));
             ASSERT_EQ(at.run(MORTISE_ALL_REDUCE, nullptr, t.get()), MORTISE_OK);
             if (at.rank == last) ::raise(SIGKILL);
             const Clock::time_point from = Clock::now();
             EXPECT_EQ(at.run(MORTISE_ALL_REDUCE, nullptr, t.get()), MORTISE_E_LOST);
             EXPECT_LT(seconds_since(from), 10);
             expect_one_line(at.host.error());
             EXPECT_TRUE(
                 at.host.error().starts_with("all_reduce: rank " + std::to_string(last) + " ended, or did not come, "))
                 << at.host.error();
             const std::string first = at.host.error();
             EXPECT_EQ(at.sum({1}),
                       MORTISE_E_LOST);  // nothing can be used any more, and what is said is what went first
             EXPECT_EQ(at.host.error(), first);
             EXPECT_EQ(at.fetch("key"), "status 12");
           },
           20, {last});
}

TEST(Gloo, EndsAtTheTimeoutWhenOneStops) {
  in_ranks(3,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 1) ::raise(SIGSTOP);
             const Clock::time_point from = Clock::now();
             std::vector<mortise_work*> works(6);
             for (mortise_work*& work : works) {
               const Tensor t = tensor_of(at.host, MORTISE_F32, pattern(at.rank, 300));
               ASSERT_EQ(at.start(MORTISE_ALL_REDUCE, nullptr, t.get(), &work), MORTISE_OK);
             }
             EXPECT_EQ(at.wait(works[0]), MORTISE_E_LOST);
             EXPECT_EQ(at.wait(works[1]), MORTISE_E_LOST);
             EXPECT_LT(seconds_since(from), kShort + kNaming);
             expect_one_line(at.host.error());
             EXPECT_TRUE(at.host.error().starts_with("all_reduce: rank 1 ended, or did not come, ")) << at.host.error();
             at.plugin.reset();  // the four that nobody waited for delay nobody
             EXPECT_LT(seconds_since(from), kShort + kNaming);
           },
           kShort, {1});
}

// As after an error of its own: the others end at once, say goodbye although they are lost, and rank 0 waits no longer.
TEST_P(Ranks, EndSoonWhenRankZeroEnds) {
  in_ranks(GetParam(), [](Rank& at) {
    ASSERT_EQ(at.sum({1}), MORTISE_OK);
    const Clock::time_point from = Clock::now();
    if (at.rank > 0) {
      EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
    }
    at.plugin.reset();
    EXPECT_LT(seconds_since(from), 5);
  });
}

// As at the end of a run, where nothing is sent any more that would tell of it. Who is only late is waited for.
TEST_P(Ranks, WaitForNoGoodbyeOfOneThatIsKilled) {
  in_ranks(GetParam(),
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 1) ::raise(SIGKILL);
             if (at.rank == 2) ::usleep(2'500'000);
             const Clock::time_point from = Clock::now();
             at.plugin.reset();
             if (at.rank == 0) {
               EXPECT_LT(seconds_since(from), 5);
               EXPECT_GT(seconds_since(from), at.size > 2 ? 2 : 0.5);
             }
           },
           20, {1});
}

// Rank 0 has the store: while it is stopped, even the store's own timeout does not end.
TEST(Gloo, EndsAtTheTimeoutWhenTheStoreStops) {
  in_ranks(3,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 0) ::raise(SIGSTOP);
             ::usleep(100'000);
             const Clock::time_point from = Clock::now();
             EXPECT_EQ(at.fetch("key"), "status 12");
             EXPECT_LT(seconds_since(from), kShort + kNaming);
             expect_one_line(at.host.error());
             EXPECT_TRUE(at.host.error().starts_with("fetch of `key`: rank 0 ended, or did not come, "))
                 << at.host.error();
             at.plugin.reset();
             EXPECT_LT(seconds_since(from), kShort + kNaming);
           },
           kShort, {0});
}

// It is heard of by a collective, not by the store, which is then asked for nothing that takes its time.
TEST(Gloo, SaysNoLongGoodbyeToAStoreThatIsStopped) {
  in_ranks(2,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 0) ::raise(SIGSTOP);
             const Clock::time_point from = Clock::now();
             EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
             at.plugin.reset();
             EXPECT_LT(seconds_since(from), kShort + 1);
           },
           kShort, {0});
}

// After an error of its own it is still there for a while, and so is the thread that answers the roll call.
TEST(Gloo, NamesWhoEndsByItself) {
  in_ranks(3,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 1) {
               at.plugin.reset();
               ::usleep(3'000'000);
               return;
             }
             EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
             EXPECT_TRUE(at.host.error().starts_with("host_all_reduce: rank 1 ended, or did not come, "))
                 << at.host.error();
           },
           20, {1});
}

TEST(Gloo, WhoWasStoppedDoesNotNameItself) {
  in_ranks(
      3,
      [](Rank& at) {
        ASSERT_EQ(at.sum({1}), MORTISE_OK);
        if (at.rank == 1) {
          const pid_t stopped = ::getpid();
          if (::fork() == 0) {
            ::usleep(static_cast<useconds_t>(1e6 * (kShort + kNaming)));
            ::kill(stopped, SIGCONT);
            ::_exit(0);
          }
          ::raise(SIGSTOP);
        }
        EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
        EXPECT_EQ(at.host.error().find("rank 1 ended") != std::string::npos, at.rank != 1) << at.host.error();
        if (at.rank != 1) ::usleep(static_cast<useconds_t>(1e6 * (kShort + kNaming)));  // and can be asked
      },
      kShort);
}

TEST(Gloo, NamesAllThatAreGone) {
  in_ranks(4,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 1) ::raise(SIGSTOP);
             if (at.rank == 3) ::raise(SIGKILL);
             EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
             EXPECT_TRUE(at.host.error().starts_with("host_all_reduce: ranks 1, 3 ended, or did not come, "))
                 << at.host.error();
           },
           kShort, {1, 3});
}

// Rank 0 is in no collective, and hears nothing of rank 2 from gloo: those that are tell it before they end.
TEST(Gloo, WhoAsksHearsWhatOthersFound) {
  in_ranks(4,
           [](Rank& at) {
             ASSERT_EQ(at.sum({1}), MORTISE_OK);
             if (at.rank == 2) ::raise(SIGKILL);
             const auto from = Clock::now();
             if (at.rank == 0) {
               while (at.sum({}) == MORTISE_OK && seconds_since(from) < 10) ::usleep(1000);
               EXPECT_EQ(at.host.error(), "host_all_reduce: rank 2 ended, or does not answer");
             } else {
               EXPECT_EQ(at.sum({1}), MORTISE_E_LOST);
               ::usleep(5'000'000);
             }
             EXPECT_LT(seconds_since(from), 9);
           },
           20, {2});
}

TEST(Gloo, RefusesASecondProcessOfOneRank) {
  const Place place;
  int refused[2];
  ASSERT_EQ(::pipe(refused), 0);
  for (const int r : {0, 1, 1})
    fork_into([&, r] {
      Rank at(r, 2, place, 20);
      if (at.open() == MORTISE_OK) return;
      EXPECT_TRUE(at.host.error().starts_with("open: another process is rank 1 too")) << at.host.error();
      EXPECT_EQ(::write(refused[1], "!", 1), 1);
    });
  for (int i = 0, status = 0; i < 3; ++i) {
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  ::close(refused[1]);
  char all[4];
  EXPECT_EQ(::read(refused[0], all, sizeof all), 1) << "one of them";
  ::close(refused[0]);
}

TEST(Gloo, NamesWhoCountsOtherRanks) {
  const Place place;
  const pid_t other = fork_into([&] { Rank(1, 3, place, 20).open(); });
  const pid_t first = fork_into([&] {
    Rank at(0, 2, place, 20);
    EXPECT_EQ(at.open(), MORTISE_E_CONFIG);
    EXPECT_TRUE(
        at.host.error().starts_with("open: rank 1 came with comm.gloo of 3 ranks, rank 0 with comm.gloo of 2 ranks"))
        << at.host.error();
  });
  int status = 0;
  ::waitpid(first, &status, 0);
  EXPECT_EQ(status, 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST(Gloo, NamesWhoDoesNotCheck) {
  const Place place;
  const auto open = [&](int r) {
    checks = r == 1;
    Rank at(r, 2, place, 20);
    const mortise_status status = at.open();
    if (r == 1) return;  // whose store may have ended
    EXPECT_EQ(status, MORTISE_E_CONFIG);
    EXPECT_NE(at.host.error().find("comm.gloo that checks"), std::string::npos) << at.host.error();
  };
  const pid_t first = fork_into([&] { open(0); }), other = fork_into([&] { open(1); });
  int status = 0;
  ::waitpid(first, &status, 0);
  EXPECT_EQ(status, 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST(Gloo, NamesTheRanksThatDoNotCome) {
  const Place place;
  std::vector<pid_t> children;
  for (const int r : {0, 2})
    children.push_back(fork_into([&, r] {
      Rank at(r, 4, place, kShort);
      const Clock::time_point from = Clock::now();
      EXPECT_EQ(at.open(), MORTISE_E_LOST);
      EXPECT_LT(seconds_since(from), kShort + 2);
      expect_one_line(at.host.error());
      if (r > 0) return;  // rank 0 may have ended with its store before this one could ask
      EXPECT_TRUE(at.host.error().starts_with("open: of 4 ranks these did not come within 1.5 s: 1, 3\n  fix: "))
          << at.host.error();
    }));
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(Gloo, SaysThatRankZeroDoesNotAnswer) {
  const pid_t child = fork_into([] {
    int port = 0;
    {
      port = Place().port;
    }
    Place other;
    other.port = port;  // nobody listens there any more
    Rank at(1, 2, other, kShort);
    const Clock::time_point from = Clock::now();
    EXPECT_EQ(at.open(), MORTISE_E_LOST);
    EXPECT_LT(seconds_since(from), kShort + 2);
    expect_one_line(at.host.error());
    EXPECT_TRUE(at.host.error().starts_with("open: rank 0 does not answer at 127.0.0.1 port ")) << at.host.error();
  });
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// ---- a world of one, in this process: nothing of c10d runs ----

struct One : testing::Test {
  One() : at(0, 1, Place(), 1) { at.world.listen_fd = -1; }
  Rank at;
};

TEST_F(One, EveryCallIsTheIdentity) {
  at.world.port = 0, at.world.address = str("");  // there is nobody to reach
  ASSERT_EQ(at.open(), MORTISE_OK) << at.host.error();
  const Tensor in = at.host.tensor<float>({3}, {1, 2, 3});
  for (const uint32_t kind : {MORTISE_ALL_REDUCE, MORTISE_BROADCAST, MORTISE_REDUCE}) {
    EXPECT_EQ(at.run(kind, nullptr, in.get()), MORTISE_OK);
    EXPECT_EQ(at.host.values<float>(in), (std::vector<float>{1, 2, 3}));
  }
  for (const uint32_t kind : {MORTISE_REDUCE_SCATTER, MORTISE_ALL_GATHER}) {
    const Tensor out = mortise::empty(MORTISE_F32, {3});
    EXPECT_EQ(at.run(kind, in.get(), out.get()), MORTISE_OK);
    EXPECT_EQ(at.host.values<float>(out), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(at.run(kind, in.get(), in.get()), MORTISE_OK);
  }
  EXPECT_EQ(at.sum({4, -5}), MORTISE_OK);
  EXPECT_EQ(at.summed, (std::vector<int64_t>{4, -5}));
  EXPECT_EQ(at.share("a", "text"), MORTISE_OK);
  EXPECT_EQ(at.fetch("a"), "text");
}

TEST_F(One, RefusesWhatSeveralWould) {
  ASSERT_EQ(at.open(), MORTISE_OK);
  const Tensor t = mortise::empty(MORTISE_F32, {3}), four = mortise::empty(MORTISE_F32, {4});
  EXPECT_EQ(at.run(99, t.get(), t.get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.run(MORTISE_BROADCAST, nullptr, t.get(), 0, 1), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.run(MORTISE_ALL_GATHER, t.get(), four.get()), MORTISE_E_SHAPE);
  EXPECT_EQ(at.sum({1}, 3), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.wait(nullptr), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.fetch("a"), "status 12");  // what nobody can share any more is lost
}

TEST_F(One, RefusesToBeginBeforeItIsOpen) {
  const Tensor t = mortise::empty(MORTISE_F32, {3});
  EXPECT_EQ(at.run(MORTISE_ALL_REDUCE, nullptr, t.get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.host.error(), "all_reduce: the ranks have not met yet (open)");
  EXPECT_EQ(at.sum({1}), MORTISE_E_ARGUMENT);
  EXPECT_EQ(at.share("a", "b"), MORTISE_E_ARGUMENT);
}

TEST_F(One, RefusesAWorldThatCannotBe) {
  const auto says = [&](const std::string& text) {
    EXPECT_EQ(at.open(), MORTISE_E_ARGUMENT);
    EXPECT_EQ(at.host.error(), text);
  };
  at.world.rank = 1;
  says("open: there is no rank 1 of 1");
  at.world.size = at.world.local_size = 2, at.world.port = 70000;
  says("open: there is no port 70000");
  at.world.port = 29500, at.world.address = str("");
  says("open: the address of rank 0 is empty");
  at.world.address = str("127.0.0.1"), at.world.local_size = 1;
  EXPECT_EQ(at.open(), MORTISE_E_CONFIG);
  EXPECT_NE(at.host.error().find("those of other hosts do not reach 127.0.0.1"), std::string::npos) << at.host.error();
}

// gloo_names.h holds as long as no function, table or type of gloo is asked for by name.
TEST(Gloo, TakesNothingOfGloo) {
  FILE* const pipe = ::popen("nm -D --undefined-only '" MORTISE_PLUGIN_FILE "'", "r");
  ASSERT_TRUE(pipe);
  std::string all;
  for (char line[4096]; std::fgets(line, sizeof line, pipe);) all += line;
  ASSERT_EQ(::pclose(pipe), 0);
  EXPECT_NE(all.find("_ZN4c10d16ProcessGroupGlooC"), std::string::npos);  // nm told of those it takes
  for (const char* own : {" _ZN4gloo", " _ZNK4gloo", " _ZTVN4gloo", " _ZTIN4gloo", " _ZTSN4gloo"})
    EXPECT_EQ(all.find(own), std::string::npos) << all.substr(all.find(own), 200);
}
}  // namespace
