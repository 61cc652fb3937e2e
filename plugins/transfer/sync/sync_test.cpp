#include <gtest/gtest.h>

#include "mortise/testing/fake_call.hpp"

using namespace mortise::testing;
using mortise::Batch, mortise::Tensor;

namespace {

// A host whose device is somewhere else: every tensor is copied there, except those of one byte an element.
const mortise_batch_api& away(FakeHost& host) {
  static mortise_batch_api table;
  table = *static_cast<const mortise_batch_api*>(host.get_interface(&host, MORTISE_STR("mortise.batch/0")));
  table.to_device = [](mortise_host* h, mortise_tensor* t, mortise_tensor** out) noexcept -> mortise_status {
    FakeHost& f = *static_cast<FakeHost*>(h);
    const mortise::Info info(t);
    *out = info.dtype == MORTISE_U8 ? Tensor::share(t).release()
                                    : f.tensor<int64_t>({info.numel}, f.values<int64_t>(t)).release();
    return MORTISE_OK;
  };
  return table;
}

Batch batch_of(std::initializer_list<std::pair<const char*, const Tensor&>> fields) {
  Batch b = Batch::create(nullptr);
  for (const auto& [name, t] : fields)
    mortise::check(mortise::api.batch->set(mortise::api.host, b.get(), mortise::str(name), t.get()));
  return b;
}

TEST(Sync, CopiesEveryFieldToTheDevice) {
  FakeHost host;
  host.offer("mortise.batch/0", &away(host));
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const Tensor ids = host.tensor<int64_t>({3}, {1, 2, 3}), mask = host.tensor<uint8_t>({3}, {1, 1, 0});
  const Batch from = batch_of({{"input_ids", ids}, {"mask", mask}});
  FakeCall call({mortise::value(from.get())}, 1);
  ASSERT_EQ(plugin.call("batch", call), MORTISE_OK);
  mortise_batch* device = call.results[0].v.b;
  EXPECT_NE(device, from.get());
  const Tensor copied = mortise::field(device, "input_ids");
  EXPECT_NE(copied.get(), ids.get());
  EXPECT_EQ(host.values<int64_t>(copied), host.values<int64_t>(ids));
  EXPECT_EQ(mortise::field(device, "mask").get(), mask.get());
}

TEST(Sync, PassesABatchOnThatIsThereAlready) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const Tensor ids = host.tensor<int64_t>({2}, {1, 2});
  const Batch from = batch_of({{"input_ids", ids}});
  {
    FakeCall call({mortise::value(from.get())}, 1);
    ASSERT_EQ(plugin.call("batch", call), MORTISE_OK);
    EXPECT_EQ(call.results[0].v.b, from.get());
  }
  EXPECT_EQ(host.live_batches(), 1u);
}

TEST(Sync, PassesOnAnErrorOfTheDeviceAndKeepsNothing) {
  FakeHost host;
  mortise_batch_api full =
      *static_cast<const mortise_batch_api*>(host.get_interface(&host, MORTISE_STR("mortise.batch/0")));
  full.to_device = [](mortise_host* h, mortise_tensor*, mortise_tensor**) noexcept {
    return h->fail(h, MORTISE_E_MEMORY, MORTISE_STR("the device is full"));
  };
  host.offer("mortise.batch/0", &full);
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  const Tensor ids = host.tensor<int64_t>({2}, {1, 2});
  const Batch from = batch_of({{"input_ids", ids}});
  FakeCall call({mortise::value(from.get())}, 1);
  EXPECT_EQ(plugin.call("batch", call), MORTISE_E_MEMORY);
  EXPECT_EQ(host.error(), "the device is full");
  EXPECT_EQ(host.live_batches(), 1u);
}

TEST(Sync, RefusesACallWithoutABatch) {
  FakeHost host;
  Plugin plugin(host, MORTISE_PLUGIN_FILE);
  FakeCall call({mortise::value(7)}, 1);
  EXPECT_EQ(plugin.call("batch", call), MORTISE_E_ARGUMENT);
}

}  // namespace
