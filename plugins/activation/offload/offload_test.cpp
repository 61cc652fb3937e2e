// The plugin against a block that saves what the test says. Against the real graph, bit for bit: tests/activation.
#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Tensor;

namespace {

// Queue 0 is the step's, queue 1 that of the copies.
struct Offload : testing::Test {
  Offload() {
    now = this;
    host.has_queues = true;
    host.set("min_kib", 1);
    host.op("aten::view", [](std::span<const mortise_value> args) { return Tensor::share(args[0].v.t); });
    host.op("aten::empty.memory_format", [this](std::span<const mortise_value> args) {
      EXPECT_EQ(args[4].v.i, 1) << "pinned";
      ++made;
      return host.tensor<float>({args[0].v.is[0]}, std::vector<float>(static_cast<size_t>(args[0].v.is[0])));
    });
    static const mortise_autograd_api autograd = {
        .struct_size = sizeof(mortise_autograd_api),
        .next_saving =
            [](mortise_host* h, mortise_next* next, mortise_call* call, const mortise_saver* given,
               void* its_self) noexcept {
              now->saver = given;
              now->self = its_self;
              const mortise_status status = mortise::api.call->next(h, next, call);
              now->saver = nullptr;
              return status;
            },
    };
    host.offer("mortise.autograd/0", &autograd);
    mortise::open_api(&host);
    plugin.emplace(host, MORTISE_PLUGIN_FILE);
  }
  ~Offload() override { plugin.reset(); }

  static Tensor numbers(FakeHost& host, float first, size_t n = 512) {
    std::vector<float> all(n);
    std::iota(all.begin(), all.end(), first);
    return host.tensor<float>({static_cast<int64_t>(n) / 2, 2}, all);
  }
  mortise_status block(uint32_t flags = MORTISE_GRAD) {
    FakeCall call({}, 0);
    call.flags = flags;
    return chain.wrap(*plugin, "block", call);
  }
  // What `save` of a block gets for a tensor; NULL: it stays.
  void* taken(const Tensor& t) {
    void* token = nullptr;
    EXPECT_EQ(saver->take(self, t.get(), &token), MORTISE_OK) << host.error();
    return token;
  }
  // A block that saves one tensor of these numbers and lets go of it.
  void* block_saving(float first) {
    void* token = nullptr;
    save = [&] { token = taken(numbers(host, first)); };
    EXPECT_EQ(block(), MORTISE_OK) << host.error();
    save = nullptr;
    return token;
  }
  float first_of(void* token) {
    mortise_tensor* out = nullptr;
    EXPECT_EQ(kSaver().give(self, token, &out), MORTISE_OK) << host.error();
    const Tensor t = Tensor::own(out);
    EXPECT_EQ(mortise::Info(t).size(0), 256);
    return host.values<float>(t.get())[0];
  }
  void drop(void* token) { kSaver().drop(self, token); }
  const mortise_saver& kSaver() { return *last; }

  static inline Offload* now = nullptr;
  FakeHost host;
  FakeChain chain{host, [this](mortise_call&) {
                    if (saver) last = saver;
                    ++blocks;
                    if (save) save();
                    return mortise_status{MORTISE_OK};
                  }};
  const mortise_saver *saver = nullptr, *last = nullptr;  // inside of a block; of the last block
  void* self = nullptr;
  std::function<void()> save;
  int made = 0, blocks = 0;
  std::optional<Plugin> plugin;
};

TEST_F(Offload, LeavesABlockAloneThatRecordsNoGraph) {
  save = [&] { EXPECT_EQ(saver, nullptr); };
  ASSERT_EQ(block(0), MORTISE_OK);
  EXPECT_EQ(blocks, 1);
}

TEST_F(Offload, LeavesSmallTensorsWhereTheyAre) {
  save = [&] {
    EXPECT_EQ(taken(numbers(host, 1, 254)), nullptr);
    void* const token = taken(numbers(host, 1, 256));
    EXPECT_NE(token, nullptr);
    saver->drop(self, token);
  };
  ASSERT_EQ(block(), MORTISE_OK);
}

TEST_F(Offload, SendsABlockWhenTheNextBeginsAndLetsGoOfItAtTheOneAfter) {
  void* const first = block_saving(10);
  EXPECT_EQ(made, 0) << "the last block stays";
  void* const second = block_saving(20);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(host.live_tensors(), 3u) << "the first twice, the second once";
  void* const third = block_saving(30);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(host.live_tensors(), 4u) << "the first is away, the second on its way, the third here";
  EXPECT_EQ(host.waited, (std::vector<std::pair<uintptr_t, uintptr_t>>{{1, 0}, {0, 1}, {1, 0}}));
  for (void* const token : {third, second, first}) drop(token);
}

TEST_F(Offload, BringsEachBackWhileTheOneBehindItIsAtWork) {
  void* const tokens[] = {block_saving(10), block_saving(20), block_saving(30), block_saving(40)};
  host.waited.clear();
  EXPECT_EQ(first_of(tokens[3]), 40);
  EXPECT_EQ(first_of(tokens[2]), 30);
  drop(tokens[3]);
  const auto before = host.waited;
  EXPECT_EQ(first_of(tokens[1]), 20) << "its copy was begun when the third was asked for";
  ASSERT_GT(host.waited.size(), before.size());
  EXPECT_EQ(host.waited[before.size()], std::pair(uintptr_t{0}, uintptr_t{1}))
      << "so that it waits, and begins no copy";
  drop(tokens[2]);
  EXPECT_EQ(first_of(tokens[0]), 10);
  EXPECT_EQ(first_of(tokens[0]), 10) << "and again, as a second backward does";
  drop(tokens[1]);
  drop(tokens[0]);
}

TEST_F(Offload, UsesHostMemoryAgainInTheNextPass) {
  for (int pass = 0; pass < 3; ++pass) {
    void* const tokens[] = {block_saving(10), block_saving(20), block_saving(30)};
    for (const int b : {2, 1, 0}) {
      EXPECT_EQ(first_of(tokens[b]), static_cast<float>(10 * (b + 1)));
      drop(tokens[b]);
    }
  }
  EXPECT_EQ(made, 2);
}

TEST_F(Offload, KeepsATensorOnceThatIsSavedTwice) {
  void *one = nullptr, *two = nullptr;
  save = [&] {
    const Tensor t = numbers(host, 10);
    one = taken(t);
    two = taken(t);
  };
  ASSERT_EQ(block(), MORTISE_OK);
  void* const next = block_saving(20);
  EXPECT_EQ(made, 1);
  drop(next);
  drop(one);
  EXPECT_EQ(first_of(two), 10);
  drop(two);
}

TEST_F(Offload, BeginsAnewAfterAPassWithoutBackward) {
  drop(block_saving(10));
  drop(block_saving(20));
  void* const tokens[] = {block_saving(30), block_saving(40)};
  EXPECT_EQ(first_of(tokens[1]), 40);
  EXPECT_EQ(first_of(tokens[0]), 30);
  drop(tokens[1]);
  drop(tokens[0]);
}

}  // namespace
