#include "core/abi/error.hpp"

#include <gtest/gtest.h>

#include <cfenv>
#include <stdexcept>

#include "core/abi/cause.hpp"

namespace mortise {
namespace {

mortise_status status_of(const std::exception_ptr& e) {
  try {
    std::rethrow_exception(e);
  } catch (...) {
    return status_of_exception();
  }
}

// "internal" is a fault of the host's, which only the host can have.
TEST(Error, OfAPluginIsNeverInternal) {
  clear_error();
  EXPECT_EQ(status_of_plugin(MORTISE_E_INTERNAL), MORTISE_E_PLUGIN);
  EXPECT_EQ(status_of_plugin(MORTISE_E_DATA), MORTISE_E_DATA);
  EXPECT_EQ(status_of_plugin(status_of(std::make_exception_ptr(std::logic_error("host")))), MORTISE_E_INTERNAL);
  EXPECT_EQ(take_error(MORTISE_E_INTERNAL), "host");
  clear_error();
  EXPECT_EQ(status_of_plugin(MORTISE_E_INTERNAL), MORTISE_E_PLUGIN) << "the host's was another one";
}

// Of a plugin that rounds otherwise from here on everybody's numbers would be others.
TEST(Error, IsAnArithmeticThatIsLeftChanged) {
  const PluginCall call{"test.rounds", "create", {}};
  mortise_status (*const rounds)() = [] {
    std::fesetround(FE_UPWARD);
    return mortise_status{MORTISE_OK};
  };
  mortise_status (*const returns)() = [] {
    const int before = std::fegetround();
    std::fesetround(FE_UPWARD);
    std::fesetround(before);
    return mortise_status{MORTISE_OK};
  };
  const uint32_t before = arithmetic_here();
  EXPECT_EQ(call_plugin(call, returns), MORTISE_OK);
  EXPECT_EQ(call_plugin(call, rounds), MORTISE_E_PLUGIN);
  EXPECT_EQ(arithmetic_here(), before);
  EXPECT_TRUE(take_error(MORTISE_E_PLUGIN).starts_with("it left this thread with another rounding"));
  std::fesetround(FE_TONEAREST);  // of what else there is
}

TEST(Error, IsOneEvenIfItSaysOk) {
  EXPECT_EQ(set_error(MORTISE_OK, "said ok"), MORTISE_E_PLUGIN);
  EXPECT_EQ(set_error(MORTISE_E_DATA, "said data"), MORTISE_E_DATA);
}

TEST(Error, IsTakenOnce) {
  set_error(MORTISE_E_DATA, "first");
  EXPECT_EQ(take_error(MORTISE_E_DATA), "first");
  EXPECT_EQ(take_error(MORTISE_E_DATA), "returned status 5 (MORTISE_E_DATA) and no text");
}

// The innermost plugin failed; those around it are lines of the text.
TEST(Error, IsOfTheInnermostPlugin) {
  const auto through = [](std::string_view plugin) {
    try {
      throw_status(MORTISE_E_DATA, plugin, "forward");
    } catch (const PluginError& e) {
      status_of(std::current_exception());
      return e;
    }
  };
  set_error(MORTISE_E_DATA, "no");
  EXPECT_EQ(through("test.inner").plugin(), "test.inner");
  const PluginError outer = through("test.outer");
  EXPECT_EQ(outer.plugin(), "test.inner");
  EXPECT_EQ(outer.text(), "no\nin plugin test.inner, forward\nin plugin test.outer, forward");
  clear_error();
  EXPECT_EQ(as_thrown(MORTISE_E_DATA).plugin(), "") << "of a failure that was dealt with";
}

// A plugin that called another one and fails for it: the other's reason is said too, but not that it had no such thing.
TEST(Error, HasTheReasonOfTheFailureBehindIt) {
  const auto behind = [](mortise_status status, const char* plugin) {
    clear_error();
    status_of(std::make_exception_ptr(PluginError(status, "no `x`\nin plugin test.inner, encode", plugin)));
    return with_cause("a.csv:3 cannot be read\n  fix: mend it");
  };
  EXPECT_EQ(behind(MORTISE_E_DATA, "test.inner"), "a.csv:3 cannot be read: test.inner: no `x`\n  fix: mend it");
  EXPECT_EQ(with_cause("one line"), "one line: test.inner: no `x`");
  EXPECT_EQ(behind(MORTISE_E_NOT_FOUND, "test.inner"), "a.csv:3 cannot be read\n  fix: mend it");
  EXPECT_EQ(behind(MORTISE_E_DATA, ""), "a.csv:3 cannot be read\n  fix: mend it") << "the host itself";
  behind(MORTISE_E_DATA, "test.inner");
  set_error(MORTISE_E_DATA, "later");
  EXPECT_EQ(with_cause("a"), "a") << "of another failure";
  clear_error();
  EXPECT_EQ(with_cause("a"), "a");
}

TEST(Error, OfALengthIsOneOfMemory) {
  EXPECT_EQ(status_of(std::make_exception_ptr(std::length_error("vector"))), MORTISE_E_MEMORY);
  EXPECT_EQ(status_of(std::make_exception_ptr(std::bad_alloc())), MORTISE_E_MEMORY);
  EXPECT_EQ(status_of(std::make_exception_ptr(std::invalid_argument("no"))), MORTISE_E_ARGUMENT);
}

TEST(Error, OfATextThatCannotBeRead) {
  EXPECT_EQ(text_of({nullptr, 0}), "");
  EXPECT_THROW(text_of({nullptr, 3}), PluginError);
  EXPECT_THROW(text_of({"abc", size_t{1} << 50}), PluginError);
  EXPECT_EQ(text_or_complaint({nullptr, 3}), "(a text of 3 bytes at NULL)");
  EXPECT_EQ(text_or_complaint({"abc", 3}), "abc");
}

}  // namespace
}  // namespace mortise
