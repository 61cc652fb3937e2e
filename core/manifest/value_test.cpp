#include "core/manifest/value.hpp"

#include <gtest/gtest.h>

namespace mortise {
namespace {

// As "number unit", or "-" for what is refused.
std::string read(const std::string& text) {
  const std::optional<Amount> amount = parse_amount(text);
  return amount ? number_text(amount->number) + " " + unit_name(amount->unit) : "-";
}

TEST(Units, ReadsDurations) {
  EXPECT_EQ(read("500 steps"), "500.0 steps");
  EXPECT_EQ(read("1 step"), "1.0 steps");
  EXPECT_EQ(read("2 epochs"), "2.0 epochs");
  EXPECT_EQ(read("0.5 epochs"), "0.5 epochs");
  EXPECT_EQ(read("1epoch"), "1.0 epochs");
  EXPECT_EQ(read("10 B tokens"), "1e10 tokens");
  EXPECT_EQ(read("10B tokens"), "1e10 tokens");
  EXPECT_EQ(read("1.5 M samples"), "1500000.0 samples");
  EXPECT_EQ(read("524_288 tokens"), "524288.0 tokens");
  EXPECT_EQ(read("1e3 steps"), "1000.0 steps");
  EXPECT_EQ(read("30 min"), "1800.0 seconds");
  EXPECT_EQ(read("2h"), "7200.0 seconds");
  EXPECT_EQ(read("1 d"), "86400.0 seconds");
  EXPECT_EQ(read("3%"), "3.0 percent");
  EXPECT_EQ(read("3 percent"), "3.0 percent");
  EXPECT_EQ(read("6 %"), "6.0 percent");
}

TEST(Units, KnowsEachWordForATime) {
  for (const char* text : {"3600 s", "3600 sec", "3600 secs", "3600 seconds", "60 m", "60 min", "60 mins", "60 minutes",
                           "1 h", "1 hr", "1 hour"})
    EXPECT_EQ(read(text), "3600.0 seconds") << text;
  for (const char* text : {"7 d", "7 days", "168 hours", "168 hrs", "1 week"})
    EXPECT_EQ(read(text), "604800.0 seconds") << text;
  EXPECT_EQ(read("5 minutes"), "300.0 seconds");
  EXPECT_EQ(read("1 second"), "1.0 seconds");
}

TEST(Units, RefusesTheRest) {
  for (const char* text :
       {"",           "steps",      "500",     "5 stepss",      "5 percents", "-5 steps", "1.5 steps", "5 steps more",
        "101%",       "1 B epochs", "1 K min", "1e400 steps",   "1__0 steps", "_1 steps", "1e steps",  "nan steps",
        "0x10 steps", "5 ms",       "1 B",     "9e15 B tokens", "5 Steps"})
    EXPECT_EQ(read(text), "-") << text;
}

TEST(Units, WritesWhatItReads) {
  for (const char* text : {"500 steps", "1 step", "2 epochs", "10 B tokens", "250 M tokens", "524288 tokens",
                           "512 samples", "30 min", "90 s", "2 h", "1 d", "3%", "0.5%", "0 s"})
    EXPECT_EQ(amount_text(*parse_amount(text)), text);
}

TEST(Units, ReadsBytes) {
  EXPECT_EQ(parse_bytes("16 GiB"), 16LL << 30);
  EXPECT_EQ(parse_bytes("512MB"), 512'000'000);
  EXPECT_EQ(parse_bytes("1.5 KiB"), 1536);
  EXPECT_EQ(parse_bytes("7 B"), 7);
  for (const char* text : {"16", "16 gib", "16 GiB more", "-1 B", "1e30 TiB"}) EXPECT_FALSE(parse_bytes(text)) << text;
}

TEST(Units, WritesNumbersThatReadBack) {
  EXPECT_EQ(number_text(3e-4), "3e-4");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(10), "10.0");
  EXPECT_EQ(number_text(1e6), "1e6");
  EXPECT_EQ(number_text(-2.5e-11), "-2.5e-11");
  EXPECT_EQ(number_text(1e100), "1e100");
}

}  // namespace
}  // namespace mortise
