// comm.nccl without a GPU: what it refuses, and the watch, in several processes that are killed and stopped. What it
// sends: tests/gpu/gpu_ranks_test.py.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>

#include "../place_test.hpp"
#include "meeting.hpp"
#include "mortise/testing/fake_host.hpp"
#include "side.hpp"
#include "watch.hpp"

namespace {
using namespace mortise::testing;
using mortise::Tensor;
using mortise::comm::Clock;
using mortise::comm::kSomeRank;
using mortise::comm::Milliseconds;
using mortise::comm::RollCall;

double seconds_since(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// ---- a world of one, whose tensors say that they are on a GPU ----

struct One : testing::Test {
  One() {
    static const mortise_tensor_api* real = mortise::api.tensor;
    static mortise_tensor_api table = *real;
    table.info = [](mortise_host* h, const mortise_tensor* t, mortise_tensor_info* info) noexcept {
      const mortise_status status = real->info(h, t, info);
      info->device = MORTISE_CUDA;
      return status;
    };
    host.offer("mortise.tensor/0", &table);
    host.op("aten::copy_", [this](auto args) {
      for (int64_t i = 0; i < 3; ++i) host.set_element(args[0].v.t, i, host.element(args[1].v.t, i));
      return Tensor::share(args[0].v.t);
    });
    host.op("aten::view", [this](auto args) { return viewed = true, Tensor::share(args[0].v.t); });
    host.set("timeout", mortise_value{MORTISE_AMOUNT, MORTISE_SECONDS, {.f = 5}});
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
    comm = &plugin->object<mortise_comm>("comm");
  }
  mortise_status open() {
    const mortise_world world = {sizeof world, 0, 1, 0, 1, 0, -1, 0, mortise::str("")};
    return comm->open(plugin->self(), &world);
  }
  mortise_status run(uint32_t kind, mortise_tensor* in, mortise_tensor* out, uint32_t op = MORTISE_SUM) {
    const mortise_collective c = {sizeof c, kind, op, 0, in, out};
    mortise_work* work = nullptr;
    const mortise_status status = comm->start(plugin->self(), &c, &work);
    return status ? status : comm->wait(plugin->self(), work);
  }
  bool viewed = false;
  FakeHost host;
  std::optional<Plugin> plugin;
  const mortise_comm* comm = nullptr;
};

// Before the others, of which some leave a roll call behind that is quiet for as long as the process lives.
TEST(Quiet, LeavesWhatLibTorchSaysAsItWas) {
  FLAGS_caffe2_log_level = c10::GLOG_WARNING;
  {
    const mortise::comm::Quiet quiet;
    mortise::comm::within(std::chrono::seconds(20), [] { const mortise::comm::Quiet within; });
    EXPECT_EQ(FLAGS_caffe2_log_level, c10::GLOG_FATAL);
  }
  EXPECT_EQ(FLAGS_caffe2_log_level, c10::GLOG_WARNING);
}

TEST_F(One, EveryCallIsTheIdentity) {
  ASSERT_EQ(open(), MORTISE_OK) << host.error();
  const Tensor in = host.tensor<float>({3}, {1, 2, 3});
  EXPECT_EQ(run(MORTISE_ALL_REDUCE, nullptr, in.get()), MORTISE_OK) << host.error();
  EXPECT_EQ(host.values<float>(in), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(host.times_written(in.get()), 1);
  const Tensor out = mortise::empty(MORTISE_F32, {3});
  EXPECT_EQ(run(MORTISE_ALL_GATHER, in.get(), out.get()), MORTISE_OK) << host.error();
  EXPECT_EQ(host.values<float>(out), (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(viewed) << "`in` may have another shape";
}

// A thread that this host does not give is no rank's loss; what else goes wrong stays what it is.
TEST(WithThreads, SaysWhatThisHostLacks) {
  const auto throws = [](std::errc code) {
    return [code] { mortise::comm::with_threads([&] { throw std::system_error(std::make_error_code(code)); }); };
  };
  try {
    throws(std::errc::resource_unavailable_try_again)();
    FAIL();
  } catch (const mortise::Error& e) {
    EXPECT_EQ(e.status(), MORTISE_E_MEMORY) << e.what();
  }
  EXPECT_THROW(throws(std::errc::connection_reset)(), std::system_error);
}

TEST_F(One, SeveralAtOnceHaveAWorkEach) {
  ASSERT_EQ(open(), MORTISE_OK) << host.error();
  const Tensor in = host.tensor<float>({3}, {1, 2, 3}), out = mortise::empty(MORTISE_F32, {3});
  const mortise_collective sum = {.struct_size = sizeof sum, .kind = MORTISE_ALL_REDUCE, .out = in.get()},
                           all = {
                               .struct_size = sizeof all, .kind = MORTISE_ALL_GATHER, .in = in.get(), .out = out.get()};
  const mortise_collective* both[] = {&sum, &all};
  mortise_work* works[2] = {};
  ASSERT_EQ(comm->start_all(plugin->self(), both, 2, works), MORTISE_OK) << host.error();
  EXPECT_NE(works[0], works[1]);
  for (mortise_work* work : {works[1], works[0]}) EXPECT_EQ(comm->wait(plugin->self(), work), MORTISE_OK);
  EXPECT_EQ(host.values<float>(out), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(comm->start_all(plugin->self(), nullptr, 0, nullptr), MORTISE_OK) << host.error();
  both[1] = nullptr;
  EXPECT_EQ(comm->start_all(plugin->self(), both, 2, works), MORTISE_E_ARGUMENT);
}

TEST_F(One, IsAGroupByItself) {
  ASSERT_EQ(open(), MORTISE_OK) << host.error();
  const int32_t ranks[] = {0, 1};
  mortise_rank_group* group = nullptr;
  ASSERT_EQ(comm->group(plugin->self(), ranks, 1, &group), MORTISE_OK) << host.error();
  const Tensor in = host.tensor<float>({3}, {1, 2, 3}), out = mortise::empty(MORTISE_F32, {3});
  const mortise_collective c = {
      .struct_size = sizeof c, .kind = MORTISE_ALL_TO_ALL, .in = in.get(), .out = out.get(), .group = group};
  mortise_work* work = nullptr;
  ASSERT_EQ(comm->start(plugin->self(), &c, &work), MORTISE_OK) << host.error();
  ASSERT_EQ(comm->wait(plugin->self(), work), MORTISE_OK) << host.error();
  EXPECT_EQ(host.values<float>(out), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(comm->group(plugin->self(), ranks, 2, &group), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "group: rank 1 is named twice, or is none of 1");
}

TEST_F(One, RefusesWhatSeveralWould) {
  const Tensor t = mortise::empty(MORTISE_F32, {3}), four = mortise::empty(MORTISE_F32, {4});
  EXPECT_EQ(run(MORTISE_ALL_REDUCE, nullptr, t.get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "all_reduce: the ranks have not met yet (open)");
  ASSERT_EQ(open(), MORTISE_OK);
  EXPECT_EQ(run(9, nullptr, t.get()), MORTISE_E_ARGUMENT);
  EXPECT_EQ(run(MORTISE_ALL_REDUCE, nullptr, t.get(), 7), MORTISE_E_ARGUMENT);
  EXPECT_EQ(run(MORTISE_ALL_GATHER, t.get(), four.get()), MORTISE_E_SHAPE);
  EXPECT_EQ(comm->wait(plugin->self(), nullptr), MORTISE_E_ARGUMENT);
  const auto* const nobody = reinterpret_cast<const mortise_rank_group*>(&t);
  const mortise_collective c = {
      .struct_size = sizeof c, .kind = MORTISE_ALL_REDUCE, .op = MORTISE_SUM, .out = t.get(), .group = nobody};
  mortise_work* work = nullptr;
  EXPECT_EQ(comm->start(plugin->self(), &c, &work), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "start: no group of ranks is at that address");
}

TEST(Side, WhoAsksWhetherAllAreThereWaitsForTheVerdict) {
  struct Asked : mortise::comm::Side {
    Asked() : Side("comm.asked", Milliseconds(1000), 1) {}
    void await_verdict() override { ++times; }
    int times = 0;
  } side;
  const mortise_world world = {sizeof world, 0, 1, 0, 1, 0, -1, 0, mortise::str("")};
  side.open(&world);
  int64_t number = 1;
  side.host_all_reduce(&number, 1, MORTISE_SUM);
  EXPECT_EQ(side.times, 0);
  side.host_all_reduce(nullptr, 0, MORTISE_SUM);
  EXPECT_EQ(side.times, 1);
}

constexpr Milliseconds kLong{20'000}, kShort{1'500};

// ---- who is lost ----

struct Peer : mortise::comm::Side {
  Peer(int rank_, int size, const Place& place) : Side("comm.peer", kLong, 1), rank(rank_) {
    const mortise_world world = {
        sizeof world, rank, size, rank, size, place.port, rank == 0 ? place.fd : -1, 0, mortise::str("127.0.0.1")};
    open(&world);
  }
  using Side::absent_ranks, Side::lost_ranks, Side::met;
  // What `ranks_must_be_there` comes to; "": they are.
  std::string asks() {
    try {
      host_all_reduce(nullptr, 0, MORTISE_SUM);
    } catch (const mortise::Error& e) {
      EXPECT_EQ(e.status(), MORTISE_E_LOST);
      return e.what();
    }
    return "";
  }
  void says(const std::string& what) { share(mortise::str(what), mortise::str("1")); }
  void hears(const std::string& what) {
    mortise_str text;
    fetch(mortise::str(what), &text);
  }
  const int rank;
};

void in_processes(int n, const std::function<void(int rank, const Place&)>& body) {
  const Place place;
  std::vector<pid_t> children;
  for (int r = 0; r < n; ++r) children.push_back(fork_into([&, r] { body(r, place); }));
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

// One has trouble with another, and every process lives: the others must not go on with what it then ends.
TEST(Side, TellsOfALossInWhichAllAnswer) {
  for (const int size : {2, 3})
    in_processes(size, [=](int rank, const Place& place) {
      Peer at(rank, size, place);
      if (rank == 0) {
        EXPECT_EQ(at.absent_ranks(), "");
        at.says("who asked");
        for (int r = 1; r < size; ++r) at.hears(std::to_string(r) + " is well");
        EXPECT_EQ(at.lost_ranks(), size == 2 ? "rank 1" : "a rank");
        at.says("who is lost");
      } else {
        at.hears("who asked");
        EXPECT_EQ(at.asks(), "") << "to ask is to say nothing";
        at.says(std::to_string(rank) + " is well");
        at.hears("who is lost");
        EXPECT_EQ(at.asks(),
                  std::string("host_all_reduce: ") + (size == 2 ? "rank 0" : "a rank") + " ended, or does not answer");
      }
    });
}

// As the thread that watches does, and the one that waits: the second comes to what the first has found.
TEST(Side, AsksOnceWhoIsLost) {
  in_processes(3, [](int rank, const Place& place) {
    Peer at(rank, 3, place);
    if (rank == 2) return;
    if (rank == 1) return at.hears("who is lost");
    while (at.absent_ranks().empty()) ::usleep(10'000);
    const auto from = Clock::now();
    EXPECT_EQ(at.lost_ranks(), "rank 2");
    EXPECT_LT(seconds_since(from), 0.5) << "another roll call takes a second";
    at.says("who is lost");
  });
}

// Rank 0 has the store, and ends as soon as all have heard: whoever is asking then believes what it was told.
TEST(Side, BelievesWhatItWasToldBeforeTheStoreEnded) {
  in_processes(3, [](int rank, const Place& place) {
    Peer at(rank, 3, place);
    if (rank == 2) return;
    if (rank == 1) ::usleep(500'000);  // half of the second in which rank 0 waits for an answer
    while (at.absent_ranks().empty()) ::usleep(1000);
    EXPECT_EQ(at.lost_ranks(), "rank 2");
    if (rank == 0) ::_exit(::testing::Test::HasFailure());
  });
}

// Of many ranks a few ask, and the others are told: all asking all would keep the store busy for seconds.
TEST(Side, OfManyAFewAsk) {
  static constexpr int kRanks = 9, kMostCalls = 2 * 4;  // each asks, and tells
  in_processes(kRanks, [](int rank, const Place& place) {
    Peer at(rank, kRanks, place);
    if (rank == kRanks - 1) return;
    ::usleep(300'000);
    EXPECT_EQ(at.lost_ranks(), "rank 8");
    EXPECT_LE(at.met().asks->add("calls", 0), kMostCalls);
  });
}

struct Called {
  explicit Called(std::initializer_list<int> ranks) {
    for (const int r : ranks) calls.emplace(r, std::make_unique<RollCall>(store, r));
  }
  // Of four: who is not among them is away, and waited for.
  std::string lost(int by, const std::string& otherwise = "") {
    const auto in_time = Milliseconds(calls.size() == 4 ? 20'000 : 1000);
    return calls.at(by)->lost(*store, 4, in_time, otherwise);
  }
  void leaves(int rank) {
    calls.at(rank)->end(*store, kLong);
    calls.erase(rank);
  }
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  std::map<int, std::unique_ptr<RollCall>> calls;
};

TEST(RollCall, NamesWhoDoesNotAnswer) {
  Called all{0, 1, 2, 3}, some{1, 2};
  EXPECT_EQ(all.lost(0), "");
  EXPECT_EQ(some.lost(1), "ranks 0, 3");
  EXPECT_EQ(some.calls.at(2)->found(), "ranks 0, 3");
}

// Whoever found the loss ends, which is no loss of its own.
TEST(RollCall, WhatIsFoundFirstCounts) {
  Called all{0, 1, 3};
  EXPECT_EQ(all.lost(1), "rank 2");
  EXPECT_EQ(all.calls.at(0)->found(), "rank 2");
  EXPECT_EQ(all.calls.at(1)->found(), "rank 2") << "whether or not all others can be told in time";
  all.leaves(1);
  EXPECT_EQ(all.lost(0), "rank 2");
}

TEST(RollCall, ANameTakesThePlaceOfSomeRank) {
  Called all{0, 1, 2, 3};
  EXPECT_EQ(all.lost(1, kSomeRank), kSomeRank);
  EXPECT_EQ(all.calls.at(0)->found(), kSomeRank);
  EXPECT_EQ(all.lost(0), kSomeRank) << "all are there, and one has said otherwise";
  all.leaves(2);
  EXPECT_EQ(all.lost(0), "rank 2");
  EXPECT_EQ(all.calls.at(3)->found(), "rank 2");
  EXPECT_EQ(all.lost(3, kSomeRank), "rank 2");
}

// It stays in the mailbox of whoever does not answer.
TEST(RollCall, WhoIsLateHearsToo) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const RollCall one(store, 0);
  EXPECT_EQ(one.lost(*store, 2, Milliseconds(50), kSomeRank), "rank 1");
  const RollCall late(store, 1);
  for (const auto from = Clock::now(); late.found().empty() && seconds_since(from) < 20;) ::usleep(1000);
  EXPECT_EQ(late.found(), kSomeRank);
}

TEST(Nccl, RefusesATensorOfTheCpu) {
  FakeHost host;
  host.set("timeout", mortise_value{MORTISE_AMOUNT, MORTISE_SECONDS, {.f = 5}});
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const auto& comm = plugin.object<mortise_comm>("comm");
  const mortise_world world = {sizeof world, 0, 1, 0, 1, 0, -1, 0, mortise::str("")};
  ASSERT_EQ(comm.open(plugin.self(), &world), MORTISE_OK);
  const Tensor t = mortise::empty(MORTISE_F32, {3});
  const mortise_collective c = {sizeof c, MORTISE_ALL_REDUCE, MORTISE_SUM, 0, nullptr, t.get()};
  mortise_work* work = nullptr;
  EXPECT_EQ(comm.start(plugin.self(), &c, &work), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host.error(), "all_reduce: `out` is not in the memory of the GPU");
}

// ---- the watch ----

struct Device : mortise::comm::Progress {
  void mark() override { ++marks; }
  bool is_reached() override { return broken ? throw std::runtime_error("an illegal memory access") : !hangs; }
  std::string trouble() override { return failed ? "a cable is out" : ""; }
  std::atomic<int> marks = 0;
  std::atomic<bool> hangs = false, failed = false, broken = false;
};

// One rank of a world, which has met the others and watches them.
struct Rank {
  Rank(int rank_, int size, const Place& place, Milliseconds timeout, const char* id = "test")
      : rank(rank_), world({sizeof(mortise_world), rank, size, rank, size, place.port, rank == 0 ? place.fd : -1, 0,
                            mortise::str("127.0.0.1")}),
        met(mortise::comm::meet(world, timeout, id, 1)),
        watch(std::in_place, met.own, device, timeout, [this](const std::string& why) { said.set_value(why); }) {}
  // What the watch says within so many seconds; "": nothing.
  std::string heard(double within_s) {
    std::future<std::string> text = said.get_future();
    const bool came = text.wait_for(std::chrono::duration<double>(within_s)) == std::future_status::ready;
    return came ? text.get() : "";
  }
  const int rank;
  mortise::comm::World world;
  mortise::comm::Meeting met;
  std::promise<std::string> said;
  Device device;
  std::optional<mortise::comm::Watch> watch;
};

// Two ranks; the one in `unfit` need not end well.
void in_two_ranks(Milliseconds timeout, const std::function<void(Rank&)>& body, int unfit = -1) {
  const Place place;
  std::vector<pid_t> children;
  for (int r = 0; r < 2; ++r)
    children.push_back(fork_into([&, r] {
      Rank rank(r, 2, place, timeout);
      body(rank);
    }));
  for (int r = 0; r < 2; ++r) {
    if (r == unfit) continue;
    int status = 0;
    ::waitpid(children[static_cast<size_t>(r)], &status, 0);
    EXPECT_EQ(status, 0) << "rank " << r;
  }
  if (unfit < 0) return;
  ::kill(children[static_cast<size_t>(unfit)], SIGKILL);
  ::waitpid(children[static_cast<size_t>(unfit)], nullptr, 0);
}

TEST(Watch, SaysNothingWhileAllAreThere) {
  in_two_ranks(kShort, [](Rank& at) {
    EXPECT_EQ(at.heard(2.5), "");
    EXPECT_GT(at.device.marks, 5) << "each that is reached is followed by the next";
  });
}

TEST(Watch, HearsAtOnceOfARankThatIsKilled) {
  for (const int killed : {0, 1})
    in_two_ranks(
        kLong,
        [=](Rank& at) {
          ::usleep(300'000);  // the other has met it too
          if (at.rank == killed) ::raise(SIGKILL);
          const std::string why = at.heard(3);
          EXPECT_TRUE(why.starts_with("ended or stopped, ")) << why;
        },
        killed);
}

TEST(Watch, WhoAsksMeanwhileWaitsUntilItIsClear) {
  in_two_ranks(
      kLong,
      [](Rank& at) {
        ::usleep(300'000);
        if (at.rank == 1) ::raise(SIGKILL);
        double waited_s = 0;
        for (const auto from = Clock::now(); waited_s < 0.05 && seconds_since(from) < 5; ::usleep(1000)) {
          const auto asked = Clock::now();
          at.watch->await_verdict();
          waited_s = seconds_since(asked);
        }
        EXPECT_GE(waited_s, 0.05);
        EXPECT_NE(at.heard(0), "");
      },
      1);
}

TEST(Watch, GivesUpAStoppedRankAtTheTimeout) {
  in_two_ranks(
      kShort,
      [](Rank& at) {
        ::usleep(300'000);  // the other has met it too
        if (at.rank == 1) ::raise(SIGSTOP);
        const auto from = Clock::now();
        EXPECT_NE(at.heard(5), "");
        EXPECT_LT(seconds_since(from), 1.5 + 1);
        at.watch.reset();
        EXPECT_LT(seconds_since(from), 1.5 + 1);
      },
      1);
}

// A rank whose process lives and does not come, so that a kernel waits for it.
TEST(Watch, GivesUpADeviceThatDoesNotComeFurther) {
  in_two_ranks(kShort, [](Rank& at) {
    at.device.hangs = at.rank == 0;
    const std::string why = at.heard(5);
    if (at.rank == 0) {
      EXPECT_EQ(why, "did not come to a collective on the device within 1.5 s");
    }
  });
}

TEST(Watch, TellsWhatTheConnectionsSay) {
  in_two_ranks(kLong, [](Rank& at) {
    at.device.failed = at.rank == 1;
    const std::string why = at.heard(3);
    if (at.rank == 1) {
      EXPECT_EQ(why, "cannot be reached: a cable is out");
    }
  });
}

// Its host may be in something that the others end only once their watches have heard.
TEST(Watch, LetsGoOfTheOthersWhoseWatchesWaitForIt) {
  for (const bool breaks : {false, true})
    in_two_ranks(kLong, [=](Rank& at) {
      if (at.rank == 0) {  // it has the store
        const std::string why = at.heard(5);
        EXPECT_TRUE(why.starts_with("ended or stopped, ")) << why;
        at.met.store->set("heard", "1");
        at.met.store->wait({"all heard"}, kLong);
      } else {
        (breaks ? at.device.broken : at.device.failed) = true;
        EXPECT_EQ(at.heard(2), breaks ? "" : "cannot be reached: a cable is out");
        at.met.store->wait({"heard"}, kLong);
        at.met.store->set("all heard", "1");
      }
    });
}

TEST(Watch, IsQuietWhereTheRunIsOver) {
  in_two_ranks(kLong, [](Rank& at) {
    ::usleep(300'000);
    const auto from = Clock::now();
    at.watch.reset();
    at.met.own.reset();
    EXPECT_LT(seconds_since(from), 3);
    EXPECT_EQ(at.heard(0), "");
  });
}

TEST(Meeting, RefusesARankThatCameWithAnother) {
  in_processes(2, [](int r, const Place& place) {
    try {
      Rank rank(r, 2, place, kLong, r == 0 ? "comm.nccl" : "comm.gloo");
      ADD_FAILURE() << "they met";
    } catch (const mortise::Error& e) {
      const std::string text = e.what();
      const bool first = text.starts_with("open: rank 1 came with comm.gloo of 2 ranks, rank 0 with comm.nccl");
      const bool second = text.starts_with("open: rank 0 came with comm.nccl of 2 ranks, rank 1 with comm.gloo");
      EXPECT_TRUE(first || second || r == 1) << text;  // rank 0 may be gone before rank 1 could ask
    }
  });
}

}  // namespace
