// Files of tensors come from anywhere: every claim of a header is checked before a byte is used.
#include "formats/safetensors/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/store/files.hpp"

namespace fs = std::filesystem;

namespace mortise {
namespace {

std::string length_bytes(uint64_t n) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(n >> (8 * i));
  return bytes;
}

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    path = (fs::path(testing::TempDir()) / ("mortise_safetensors." + std::to_string(getpid()))).string();
  }
  void TearDown() override { fs::remove(path); }

  void bytes(const std::string& all) { std::ofstream(path, std::ios::binary) << all; }
  void file(const std::string& header, const std::string& data) { bytes(length_bytes(header.size()) + header + data); }

  // What is said about the file; "" if it is taken.
  std::string refusal() {
    try {
      const SafetensorsFile f(path);
      return "";
    } catch (const FormatError& f) {
      EXPECT_TRUE(f.code == "bad_safetensors" || f.code == "not_read");
      EXPECT_EQ(f.path, path);
      return f.message;
    }
  }
  std::string refusal(const std::string& header, const std::string& data = "") {
    file(header, data);
    return refusal();
  }

  std::string path;
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& begin,
                  const std::string& end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" + begin + "," +
         end + "]}";
}

TEST_F(Safetensors, ComeBackAsTheyWereWritten) {
  const std::vector<float> a = {1.5f, -2.0f, 3.25f, 0.0f, 1e-30f, 7.0f};
  const std::vector<int64_t> b = {-1, INT64_MAX};
  const uint16_t c = 0x3f80;
  const std::vector<TensorView> tensors = {{"h.0.weight", "F32", {2, 3}, a.data(), 24},
                                           {"step", "I64", {2}, b.data(), 16},
                                           {"one", "BF16", {}, &c, 2},
                                           {"none", "F32", {0, 4}, a.data(), 0}};
  write_file(
      path, [&](const Sink& sink) { write_safetensors(sink, tensors, {{"format", "pt"}, {"note", "a \"quote\"\n"}}); });
  const SafetensorsFile f(path);
  EXPECT_EQ(f.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "a \"quote\"\n"}}));
  ASSERT_EQ(f.entries().size(), tensors.size());
  for (const TensorView& t : f.entries()) {
    const TensorView* same = nullptr;
    for (const TensorView& each : tensors)
      if (each.name == t.name) same = &each;
    ASSERT_NE(same, nullptr) << t.name;
    EXPECT_EQ(t.dtype, same->dtype);
    EXPECT_EQ(t.sizes, same->sizes);
    ASSERT_EQ(t.bytes, same->bytes);
    EXPECT_EQ(std::memcmp(t.data, same->data, t.bytes), 0) << t.name;
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(f.entries()[0].data) % 8, 0u);
}

TEST_F(Safetensors, WithoutTensorsAreAFileToo) {
  write_file(path, [](const Sink& sink) { write_safetensors(sink, {}, {}); });
  EXPECT_TRUE(SafetensorsFile(path).entries().empty());
}

TEST_F(Safetensors, AsAnotherProgramWritesThem) {
  file("{" + entry("b", "F16", "[2]", "4", "8") + "," + entry("a", "U8", "[2,2]", "0", "4") +
           R"(,"__metadata__":{}}      )",
       "abcdefgh");
  const SafetensorsFile f(path);
  ASSERT_EQ(f.entries().size(), 2u);
  EXPECT_EQ(f.entries()[0].name, "a");  // in the order of their bytes
  EXPECT_EQ(f.entries()[1].name, "b");
}

TEST_F(Safetensors, TooShort) {
  for (const char* text : {"", "\x01", "\0\0\0\0\0\0\0"}) {
    bytes(text);
    EXPECT_EQ(refusal(), "is too short to be safetensors");
  }
  fs::remove(path);
  EXPECT_EQ(refusal(), "cannot be opened: No such file or directory");
  fs::create_directory(path);
  EXPECT_EQ(refusal(), "cannot be opened: Is a directory");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // whoever waits for its writer hangs here
  EXPECT_EQ(refusal(), "cannot be opened: Invalid argument");
}

TEST_F(Safetensors, HeaderLongerThanTheFile) {
  for (const uint64_t length : {uint64_t{3}, uint64_t{100'000'001}, uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    bytes(length_bytes(length) + "{}");
    EXPECT_EQ(refusal(), "says that its header has " + std::to_string(length) + " bytes; the file has 10");
  }
}

TEST_F(Safetensors, HeaderThatIsNoObject) {
  for (const char* header : {"", "[]", "3", "null", "{", "{}}", "{\"a\":}", "\xff\xfe", "{\"a\":1,}"})
    EXPECT_FALSE(refusal(header).empty()) << header;
  EXPECT_EQ(refusal("[]"), "has no JSON object for a header");
  EXPECT_EQ(refusal(R"({"__metadata__":[]})"), "has metadata that is no object");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":1}})"), "has metadata that is no text");
}

TEST_F(Safetensors, DeepJson) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(refusal("{\"a\":" + deep + "}"), "tensor `a` lacks dtype, shape or data_offsets");
  EXPECT_EQ(refusal("{\"a\":{\"shape\":" + deep + "}}"), "a dimension of tensor `a` is not a whole number");
  std::string objects;
  for (int i = 0; i < 50'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(refusal(objects), "tensor `a` has more than dtype, shape and data_offsets");
  EXPECT_EQ(refusal(R"({"a":{"dtype":)" + objects), "tensor `a` has a dtype, shape or data_offsets of another kind");
  EXPECT_EQ(refusal(R"({"__metadata__":)" + objects), "has metadata that is no text");
}

TEST_F(Safetensors, NamesTwice) {
  const std::string one = entry("a", "U8", "[1]", "0", "1");
  EXPECT_EQ(refusal("{" + one + "," + one + "}", "x"), "its header names `a` twice");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
            "its header names `dtype` twice");
  EXPECT_EQ(refusal(R"({"__metadata__":{"x":"1","x":"2"}})"), "its header names `x` twice");
  // The same key in two tensors is no double.
  EXPECT_EQ(refusal("{" + one + "," + entry("b", "U8", "[1]", "1", "2") + "}", "xy"), "");
}

TEST_F(Safetensors, NamesThatHideSomething) {
  EXPECT_EQ(refusal("{" + entry("a\\u0000b", "U8", "[1]", "0", "1") + "}", "x"),
            "tensor `a\\x00b` has a control character in its name, or none at all");
  EXPECT_EQ(refusal("{" + entry("\\u001b[2J", "U8", "[1]", "0", "1") + "}", "x"),
            "tensor `\\x1b[2J` has a control character in its name, or none at all");
  EXPECT_EQ(refusal("{" + entry("a\\nb", "U8", "[1]", "0", "1") + "}", "x"),
            "tensor `a\\x0ab` has a control character in its name, or none at all");
  EXPECT_EQ(refusal("{" + entry("", "U8", "[1]", "0", "1") + "}", "x"),
            "tensor `` has a control character in its name, or none at all");
  EXPECT_FALSE(refusal(std::string("{\"a\0b\":1}", 9)).empty());  // no JSON at all
}

TEST_F(Safetensors, EntriesOfAnotherKind) {
  EXPECT_EQ(refusal(R"({"a":3})"), "tensor `a` lacks dtype, shape or data_offsets");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1]}})"), "tensor `a` lacks dtype, shape or data_offsets");
  EXPECT_EQ(refusal(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})"),
            "tensor `a` has a dtype, shape or data_offsets of another kind");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})"),
            "tensor `a` has a dtype, shape or data_offsets of another kind");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})"),
            "tensor `a` has a dtype, shape or data_offsets of another kind");
  EXPECT_EQ(refusal("{" + entry("a", "F33", "[1]", "0", "4") + "}", "abcd"),
            "tensor `a` has the dtype `F33`, which is not known");
  EXPECT_EQ(refusal("{" + entry("a", "F\\u001b", "[1]", "0", "4") + "}", "abcd"),
            "tensor `a` has the dtype `F\\x1b`, which is not known");
}

// A name never becomes a path, and real models have slashes and dots in theirs.
TEST_F(Safetensors, NamesThatLookLikePathsAreNames) {
  for (const char* name :
       {"../../etc/passwd", "/etc/passwd", "encoder/layer.0/..", ".", "a//b", "a\\\\b", "con", "\u00fcber \u4e2d"})
    EXPECT_EQ(refusal("{" + entry(name, "U8", "[1]", "0", "1") + "}", "x"), "") << name;
  EXPECT_EQ(refusal("{" + entry(std::string(4096, 'n'), "U8", "[1]", "0", "1") + "}", "x"), "");
  EXPECT_EQ(refusal("{" + entry(std::string(4097, 'n'), "U8", "[1]", "0", "1") + "}", "x"),
            "has a name of more than 4096 bytes");
}

TEST_F(Safetensors, NamesThatAreNoText) {
  for (const char* name : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\\ud800", "\\x41", "a\tb"})
    EXPECT_EQ(refusal("{" + entry(name, "U8", "[1]", "0", "1") + "}", "x"), "has no JSON object for a header") << name;
  EXPECT_EQ(
      refusal("{" + entry("a", "U8", "[1]", "0", "1") + "," + entry("\\u0061", "U8", "[1]", "1", "2") + "}", "xy"),
      "its header names `a` twice");  // the same name, written in another way
}

// What another reader might see otherwise: the format has an object from the first byte on, and spaces behind it.
TEST_F(Safetensors, HeadersWithSomethingAround) {
  EXPECT_EQ(refusal("{}   "), "");
  for (const char* header : {" {}", "\xef\xbb\xbf{}", "\n{}", "{}{}", "{}x", "{/**/}", "{}//"})
    EXPECT_EQ(refusal(header), "has no JSON object for a header") << header;
  EXPECT_EQ(refusal(std::string("{}\0", 3)), "has no JSON object for a header");
  EXPECT_EQ(refusal(R"({"__metadata__":{},"__metadata__":{}})"), "its header names `__metadata__` twice");
}

TEST_F(Safetensors, KeysInAnyOrder) {
  EXPECT_EQ(refusal(R"({"a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8"}})", "ab"), "");
  EXPECT_EQ(refusal(R"({"a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8","more":1}})", "ab"),
            "tensor `a` has more than dtype, shape and data_offsets");
}

TEST_F(Safetensors, AsManyDimensionsAsAreRead) {
  std::string shape = "[1";
  for (int i = 1; i < 64; ++i) shape += ",1";
  EXPECT_EQ(refusal("{" + entry("a", "U8", shape + "]", "0", "1") + "}", "x"), "");
  EXPECT_EQ(refusal("{" + entry("a", "U8", shape + ",1]", "0", "1") + "}", "x"),
            "has a tensor of more than 64 dimensions");
}

// Once quadratic in the number of tensors: 18 seconds for these.
TEST_F(Safetensors, AHundredThousandTensors) {
  std::vector<TensorView> tensors;
  for (int i = 0; i < 100'000; ++i)
    tensors.push_back({"model.layers." + std::to_string(i) + ".weight", "U8", {1}, "x", 1});
  write_file(path, [&](const Sink& sink) { write_safetensors(sink, tensors, {}); });
  const SafetensorsFile f(path);
  ASSERT_EQ(f.entries().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); i += 9999) EXPECT_EQ(f.entries()[i].name, tensors[i].name);
}

TEST_F(Safetensors, NumbersThatAreNone) {
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1e400]", "0", "1") + "}", "x"),
            "has no JSON object for a header");  // no number of JSON's parser
  for (const char* n : {"-1", "1.0", "1e0", "\"1\"", "null", "true", "[1]", "99999999999999999999999"}) {
    EXPECT_EQ(refusal("{" + entry("a", "U8", "[" + std::string(n) + "]", "0", "1") + "}", "x"),
              "a dimension of tensor `a` is not a whole number")
        << n;
    EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", n, "1") + "}", "x"),
              "an offset of tensor `a` is not a whole number")
        << n;
    EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "0", n) + "}", "x"),
              "an offset of tensor `a` is not a whole number")
        << n;
  }
}

TEST_F(Safetensors, ShapesWhoseProductOverflows) {
  for (const char* shape : {"[18446744073709551615]", "[9223372036854775808]", "[4294967296,4294967296]",
                            "[3037000500,3037000500,3]", "[2305843009213693952,8]"})
    EXPECT_EQ(refusal("{" + entry("a", "F32", shape, "0", "4") + "}", "abcd"), "tensor `a` is larger than any file")
        << shape;
  EXPECT_EQ(refusal("{" + entry("a", "F32", "[2]", "0", "4") + "}", "abcd"),
            "tensor `a` has 4 bytes, its shape needs 8");
  // Zero anywhere makes nothing of it, whatever stands beside.
  EXPECT_EQ(refusal("{" + entry("a", "F32", "[0,9223372036854775807]", "0", "0") + "}"), "");
}

TEST_F(Safetensors, OffsetsBeyondTheFile) {
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[5]", "0", "5") + "}", "abcd"), "tensor `a` lies outside the file");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "18446744073709551614", "18446744073709551615") + "}", "abcd"),
            "tensor `a` lies outside the file");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "3", "2") + "}", "abcd"), "tensor `a` lies outside the file");
}

TEST_F(Safetensors, HolesOverlapsAndRests) {
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "0", "1") + "," + entry("b", "U8", "[1]", "2", "3") + "}", "abc"),
            "has a hole or an overlap before tensor `b`");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "1", "2") + "}", "ab"), "has a hole or an overlap before tensor `a`");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[2]", "0", "2") + "," + entry("b", "U8", "[2]", "1", "3") + "}", "abc"),
            "has a hole or an overlap before tensor `b`");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[2]", "0", "2") + "," + entry("b", "U8", "[2]", "0", "2") + "}", "ab"),
            "has a hole or an overlap before tensor `b`");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[2]", "0", "2") + "}", "abc"), "has 1 bytes that belong to no tensor");
  EXPECT_EQ(refusal("{}", "x"), "has 1 bytes that belong to no tensor");
}

// Cut anywhere and with any byte changed: taken or refused, and what is taken lies inside the file.
TEST_F(Safetensors, DamagedAnywhere) {
  const std::string header = "{" + entry("a", "F32", "[2]", "0", "8") + "," + entry("b", "U8", "[2]", "8", "10") + "}";
  const std::string whole = length_bytes(header.size()) + header + "0123456789";
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    bytes(whole.substr(0, cut));
    EXPECT_NE(refusal(), "") << cut;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = whole;
    for (int n = 0; n <= i % 3; ++n) damaged[random() % damaged.size()] = static_cast<char>(random());
    bytes(damaged);
    try {
      const SafetensorsFile f(path);
      size_t sum = 0;
      for (const TensorView& t : f.entries()) {
        sum += t.bytes;
        for (size_t b = 0; b < t.bytes; ++b) sum += static_cast<const unsigned char*>(t.data)[b] & 0;
      }
      EXPECT_LE(sum, whole.size());
    } catch (const FormatError& f) {
      EXPECT_TRUE(f.code == "bad_safetensors" || f.code == "not_read");
    }
  }
}

}  // namespace
}  // namespace mortise
