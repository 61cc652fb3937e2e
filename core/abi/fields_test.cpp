#include "core/abi/fields.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/abi/error.hpp"

namespace mortise {
namespace {

constexpr int64_t kIds[] = {-1}, kImage[] = {3, 4, 5}, kFrames[] = {-1, 80};

struct FieldsTest : testing::Test {
  FieldsTest() {
    info.schema.id = "data.x";
    by.member = &member;
    member.info = &info;
  }
  static mortise_field field(mortise_str name, uint32_t dtype = MORTISE_I64, double fill = 0) {
    return {sizeof(mortise_field), dtype, name, {}, fill, nullptr, 0, 0};
  }
  template <size_t N>
  static mortise_field sized(const int64_t (&sizes)[N], uint32_t dtype = MORTISE_F32) {
    return {sizeof(mortise_field), dtype, MORTISE_STR("x"), {}, 0, sizes, N, 0};
  }
  std::vector<Field> read(std::vector<mortise_field> fields) {
    mortise_data object{};
    object.struct_size = sizeof object;
    object.n_fields = static_cast<uint32_t>(fields.size());
    object.fields = fields.data();
    return fields_of({&object, &by});
  }
  std::string refused(std::vector<mortise_field> fields) {
    try {
      read(std::move(fields));
    } catch (const PluginError& e) {
      EXPECT_EQ(e.status(), MORTISE_E_PLUGIN);
      return e.text();
    }
    return "";
  }
  PluginInfo info;
  Member member;
  Instance by;
};

TEST_F(FieldsTest, AreASequenceAnImageFramesOrOneElement) {
  const auto ids = read({sized(kIds, MORTISE_I64)})[0], image = read({sized(kImage)})[0];
  EXPECT_TRUE(ids.is_sequence);
  EXPECT_TRUE(ids.sizes.empty());
  EXPECT_EQ(ids.bytes, 8u);
  EXPECT_FALSE(image.is_sequence);
  EXPECT_EQ(image.sizes, (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(image.bytes, 240u);
  const auto frames = read({sized(kFrames, MORTISE_F16)})[0], label = read({field(MORTISE_STR("label"))})[0];
  EXPECT_TRUE(frames.is_sequence);
  EXPECT_EQ(frames.bytes, 160u);
  EXPECT_FALSE(label.is_sequence);
  EXPECT_EQ(label.bytes, 8u);
}

TEST_F(FieldsTest, HoldTheirFillAsItLiesInMemory) {
  const auto as = [&]<class T>(T wanted, uint32_t dtype, double fill) {
    const Field f = read({field(MORTISE_STR("x"), dtype, fill)})[0];
    EXPECT_EQ(f.element, sizeof wanted);
    EXPECT_EQ(std::memcmp(f.fill.data(), &wanted, sizeof wanted), 0) << dtype;
  };
  as(int64_t{-100}, MORTISE_I64, -100);
  as(int32_t{-7}, MORTISE_I32, -7);
  as(uint8_t{255}, MORTISE_U8, 255);
  as(uint8_t{1}, MORTISE_BOOL, 1);
  as(0.5f, MORTISE_F32, 0.5);
  as(-0.5, MORTISE_F64, -0.5);
  as(uint16_t{0x3F80}, MORTISE_BF16, 1);
}

TEST_F(FieldsTest, RefuseAFillThatTheTypeCannotHold) {
  EXPECT_EQ(refused({field(MORTISE_STR("x"), MORTISE_U8, -100)}),
            "data.x fills `x` with -100, which its element type cannot hold");
  EXPECT_NE(refused({field(MORTISE_STR("x"), MORTISE_I32, 2147483648.0)}), "");
  EXPECT_EQ(refused({field(MORTISE_STR("x"), MORTISE_I32, 2147483647.0)}), "");
  EXPECT_NE(refused({field(MORTISE_STR("x"), MORTISE_I64, 0.5)}), "");
  EXPECT_NE(refused({field(MORTISE_STR("x"), MORTISE_I64, std::ldexp(1.0, 63))}), "");
  EXPECT_NE(refused({field(MORTISE_STR("x"), MORTISE_BOOL, 2)}), "");
  EXPECT_NE(refused({field(MORTISE_STR("x"), MORTISE_I64, NAN)}), "");
}

TEST_F(FieldsTest, RefuseWhatIsNoField) {
  EXPECT_EQ(refused({field({})}), "data.x has a field without a name");
  EXPECT_EQ(refused({field(MORTISE_STR("x"), 99)}), "data.x gives `x` in the element type 99, which is none");
  EXPECT_EQ(refused({field(MORTISE_STR("x")), field(MORTISE_STR("x"))}), "data.x has two fields `x`");
  mortise_field a = field(MORTISE_STR("a")), b = field(MORTISE_STR("b"));
  a.unit = b.unit = MORTISE_STR("tokens");
  EXPECT_EQ(refused({a, b}), "data.x counts both `a` and `b` as tokens");
  a.unit = MORTISE_STR("samples");
  EXPECT_EQ(refused({a}), "data.x counts `a` as samples, which the core counts");
  a = field(MORTISE_STR("a"));
  a.struct_size = 48;
  EXPECT_EQ(refused({a}), "data.x gives fields of 48 bytes; in this interface they have 64");
}

TEST_F(FieldsTest, RefuseSizesThatAreNone) {
  constexpr int64_t kLate[] = {3, -1}, kZero[] = {0}, kHuge[] = {1 << 20, 1 << 20};
  EXPECT_EQ(refused({sized(kLate)}),
            "data.x gives `x` a size of -1; sizes are 1 or more, and -1 is for the first alone");
  EXPECT_NE(refused({sized(kZero)}), "");
  EXPECT_EQ(refused({sized(kHuge)}), "data.x gives `x` sizes of more than 2147483648 bytes a sample");
  mortise_field many = sized(kImage);
  many.n_sizes = 8;
  EXPECT_EQ(refused({many}), "data.x gives `x` 8 sizes");
  many.n_sizes = 1;
  many.sizes = nullptr;
  EXPECT_EQ(refused({many}), "data.x gives `x` 1 sizes, at NULL");
}

// A plugin that was built against a later interface has longer ones.
TEST_F(FieldsTest, MayBeLongerThanOurs) {
  struct Longer {
    mortise_field field;
    int64_t more;
  };
  Longer both[] = {{field(MORTISE_STR("a")), 7}, {field(MORTISE_STR("b")), 7}};
  both[0].field.struct_size = both[1].field.struct_size = sizeof(Longer);
  mortise_data object{};
  object.struct_size = sizeof object;
  object.n_fields = 2;
  object.fields = &both[0].field;
  EXPECT_EQ(fields_of({&object, &by})[1].name, "b");
}

// ---- classes ----

std::vector<mortise_str> names;
uint32_t n_names = 0;
mortise_status give_names(void*, const mortise_str** out, uint32_t* n) noexcept {
  *out = names.empty() ? nullptr : names.data();
  *n = n_names;
  return MORTISE_OK;
}

TEST_F(FieldsTest, ClassesAreThoseThatTheDataNames) {
  mortise_data object{};
  object.struct_size = sizeof object;
  using Names = std::vector<std::string>;
  const auto classes = [&] { return classes_of({&object, &by}); };
  EXPECT_EQ(classes(), Names()) << "it has no such function";
  object.classes = give_names;
  names = {}, n_names = 0;
  EXPECT_EQ(classes(), Names());
  names = {MORTISE_STR("no"), MORTISE_STR("yes")}, n_names = 2;
  EXPECT_EQ(classes(), (Names{"no", "yes"}));
  object.struct_size = offsetof(mortise_data, classes);
  EXPECT_EQ(classes(), Names()) << "a plugin of an older header";
}

TEST_F(FieldsTest, ClassesWithoutNamesAreRefused) {
  mortise_data object{};
  object.struct_size = sizeof object;
  object.classes = give_names;
  const auto refusal = [&] {
    try {
      classes_of({&object, &by});
    } catch (const PluginError& e) {
      EXPECT_EQ(e.plugin(), "data.x");
      return e.text();
    }
    return std::string();
  };
  names = {}, n_names = 2;
  EXPECT_EQ(refusal(), "data.x says that it has 2 classes, at NULL");
  names = {MORTISE_STR("no"), {}}, n_names = 2;
  EXPECT_EQ(refusal(), "data.x has a class without a name");
  names = {{nullptr, 3}}, n_names = 1;
  EXPECT_EQ(refusal(), "data.x gave a text of 3 bytes at NULL");
}

// ---- groups ----

struct GroupsTest : FieldsTest {
  static mortise_status give(void* self, mortise_str, const mortise_group** out, uint32_t* n) noexcept {
    const auto& test = *static_cast<GroupsTest*>(self);
    *out = test.is_null ? nullptr : test.groups.data();
    *n = static_cast<uint32_t>(test.groups.size());
    return MORTISE_OK;
  }
  GroupsTest() {
    by.self = this;
    object.struct_size = sizeof object;
    object.groups = give;
  }
  std::string refusal() {
    try {
      groups_of({&object, &by}, "train");
    } catch (const PluginError& e) {
      return e.text();
    }
    return "";
  }
  std::vector<mortise_group> groups;
  bool is_null = false;
  mortise_data object{};
};

TEST_F(GroupsTest, OfDataThatSaysNoneAreOneOfAnySize) {
  const auto all = groups_of({&object, &by}, "train");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].samples, INT64_MAX);
  object.struct_size = offsetof(mortise_data, groups);
  EXPECT_EQ(groups_of({&object, &by}, "train").size(), 1u) << "a plugin of an older header";
}

TEST_F(GroupsTest, ThatAreNoneAreRefused) {
  groups = {{sizeof(mortise_group), 0, MORTISE_STR("a"), 3}, {sizeof(mortise_group), 0, MORTISE_STR("b"), 0}};
  EXPECT_EQ(refusal(), "");
  EXPECT_EQ(groups_of({&object, &by}, "train")[1].samples, 0);
  groups[1].samples = -1;
  EXPECT_EQ(refusal(), "data.x has a group of -1 samples");
  groups[1].samples = INT64_MAX;
  EXPECT_EQ(refusal(), "data.x has a group of 9223372036854775807 samples");
  groups[1].name = {};
  EXPECT_EQ(refusal(), "data.x has a group without a name");
  groups[0].struct_size = 8;
  EXPECT_EQ(refusal(),
            "data.x gives groups of 8 bytes; in this interface they have " + std::to_string(sizeof(mortise_group)));
  is_null = true;
  EXPECT_EQ(refusal(), "data.x says that it has 2 groups, at NULL");
}

}  // namespace
}  // namespace mortise
