// A snapshot that is written while training goes on holds what was there when it was taken.
#include "core/store/snapshot.hpp"

#include <gtest/gtest.h>

namespace mortise {
namespace {

StoredEntry entry(const std::string& name, std::vector<float>& values) {
  StoredEntry e;
  e.name = name;
  e.sizes = {static_cast<int64_t>(values.size())};
  e.data = values.data();
  e.bytes = values.size() * sizeof(float);
  return e;
}

float first(const StoredEntry& e) { return *static_cast<const float*>(e.data); }

TEST(Snapshots, CountTensorsAndTexts) {
  std::vector<float> a(3), b(5);
  Snapshot s;
  s.tensors["model"] = {entry("a", a), entry("b", b)};
  s.texts["state.json"] = "{}";
  EXPECT_EQ(s.bytes(), 8 * 4 + 2);
}

TEST(Snapshots, KeepWhatWasThere) {
  std::vector<float> weights(1000, 1), none;
  Snapshot s;
  s.tensors["model"] = {entry("w", weights), entry("empty", none)};
  copy_borrowed(s, {});
  weights.assign(1000, 2);
  EXPECT_EQ(first(s.tensors["model"][0]), 1);
  EXPECT_EQ(s.tensors["model"][0].name, "w");
  EXPECT_EQ(s.tensors["model"][0].bytes, 4000u);
}

TEST(Snapshots, TakeTheMemoryOfTheOneBefore) {
  std::vector<float> weights(1000, 1), states(500, 7);
  const auto take = [&] {
    Snapshot s;
    s.tensors["model"] = {entry("w", weights)};
    s.tensors["optimizer"] = {entry("m", states)};
    return s;
  };
  Snapshot one = take();
  copy_borrowed(one, {});
  const void *w = one.tensors["model"][0].data, *m = one.tensors["optimizer"][0].data;
  weights.assign(1000, 2);
  Snapshot two = take();
  copy_borrowed(two, std::move(one));
  EXPECT_EQ(two.tensors["model"][0].data, w);
  EXPECT_EQ(two.tensors["optimizer"][0].data, m);
  EXPECT_EQ(first(two.tensors["model"][0]), 2);
}

// Another shape, or memory that somebody still reads, is not written over.
TEST(Snapshots, TakeNewMemoryWhereTheOldDoesNotServe) {
  std::vector<float> weights(1000, 1), more(1001, 3);
  Snapshot one, two, three;
  one.tensors["model"] = {entry("w", weights)};
  copy_borrowed(one, {});
  const StoredEntry held = one.tensors["model"][0];
  weights.assign(1000, 2);
  two.tensors["model"] = {entry("w", weights), entry("v", weights)};
  copy_borrowed(two, std::move(one));
  EXPECT_EQ(first(held), 1);
  EXPECT_EQ(first(two.tensors["model"][0]), 2);
  three.tensors["model"] = {entry("w", more)};
  copy_borrowed(three, std::move(two));
  EXPECT_EQ(three.tensors["model"][0].bytes, 4004u);
  EXPECT_EQ(static_cast<const float*>(three.tensors["model"][0].data)[1000], 3);
}

// What came from a device is a copy already.
TEST(Snapshots, DoNotCopyWhatTheyOwn) {
  const auto owned = std::make_shared<std::vector<float>>(10, 4.0F);
  Snapshot s;
  s.tensors["model"] = {entry("w", *owned)};
  s.tensors["model"][0].owner = owned;
  copy_borrowed(s, {});
  EXPECT_EQ(s.tensors["model"][0].data, owned->data());
}

// An owner is an object of whatever type, not the bytes that it keeps.
TEST(Snapshots, TakeNoOwnerForMemory) {
  std::vector<float> values(10, 4.0F);
  Snapshot one, two;
  one.tensors["model"] = {entry("w", values)};
  one.tensors["model"][0].owner = std::make_shared<std::vector<float>>(values);
  const auto* owner = static_cast<const std::vector<float>*>(one.tensors["model"][0].owner.get());
  const std::weak_ptr<void> kept = one.tensors["model"][0].owner;
  two.tensors["model"] = {entry("w", values)};
  copy_borrowed(two, std::move(one));
  EXPECT_TRUE(kept.expired());
  EXPECT_NE(two.tensors["model"][0].data, owner);
}

}  // namespace
}  // namespace mortise
