#include <gtest/gtest.h>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise;
using namespace mortise::testing;

class ByteTokenizer : public ::testing::Test {
 protected:
  std::vector<int64_t> encode(std::string_view text) {
    size_t needed = 0;
    EXPECT_EQ(object_.encode(plugin_.self(), str(text), nullptr, 0, &needed), MORTISE_OK);
    std::vector<int64_t> ids(needed);
    EXPECT_EQ(object_.encode(plugin_.self(), str(text), ids.data(), ids.size(), &needed), MORTISE_OK);
    return ids;
  }
  std::string decode(const std::vector<int64_t>& ids) {
    size_t needed = 0;
    EXPECT_EQ(object_.decode(plugin_.self(), ids.data(), ids.size(), nullptr, 0, &needed), MORTISE_OK);
    std::string text(needed, '?');
    EXPECT_EQ(object_.decode(plugin_.self(), ids.data(), ids.size(), text.data(), text.size(), &needed), MORTISE_OK);
    return text;
  }
  FakeHost host_;
  Plugin plugin_{host_, MORTISE_PLUGIN_FILE};
  const mortise_tokenizer& object_ = plugin_.object<mortise_tokenizer>("tokenizer");
};

TEST_F(ByteTokenizer, Knows256Ids) {
  int64_t size = 0;
  EXPECT_EQ(object_.size(plugin_.self(), &size), MORTISE_OK);
  EXPECT_EQ(size, 256);
}

TEST_F(ByteTokenizer, GivesOneIdAByteAboveAsciiToo) {
  EXPECT_EQ(encode("aé"), (std::vector<int64_t>{97, 0xC3, 0xA9}));
  EXPECT_EQ(encode(std::string_view("\0\xFF", 2)), (std::vector<int64_t>{0, 255}));
}

TEST_F(ByteTokenizer, ReturnsEveryByteAsItWas) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(decode(encode(all)), all);
  EXPECT_EQ(decode(encode("")), "");
}

TEST_F(ByteTokenizer, WritesNothingIntoTooLittleRoomButSaysHowMuchItNeeds) {
  int64_t ids[2] = {-7, -7};
  size_t needed = 0;
  EXPECT_EQ(object_.encode(plugin_.self(), MORTISE_STR("abc"), ids, 2, &needed), MORTISE_OK);
  EXPECT_EQ(needed, 3U);
  EXPECT_EQ(ids[0], -7);
}

TEST_F(ByteTokenizer, RefusesAnIdThatIsNoByte) {
  const int64_t ids[] = {65, 256};
  char text[2] = {};
  size_t needed = 0;
  EXPECT_EQ(object_.decode(plugin_.self(), ids, 2, text, 2, &needed), MORTISE_E_ARGUMENT);
  EXPECT_EQ(host_.error(), "id 256 is no byte");
}
}  // namespace
