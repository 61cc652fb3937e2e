// Files made to cost memory and time: what reading one takes beyond the file itself stays below 64 MiB and a few
// seconds. Each is read in a process of its own, whose peak the system measures.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "core/base/diagnostic.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/hash.hpp"
#include "core/store/run_state.hpp"
#include "formats/safetensors/safetensors.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory and red zones are not what is measured
#else
constexpr bool kSanitized = false;
#endif

namespace mortise {
namespace {

constexpr size_t kMiB = size_t{1} << 20, kHeader = 16 * kMiB, kManifest = 2 * kMiB;
constexpr double kSeconds = 5;

struct Cost {
  double seconds = 0;
  size_t bytes = 0;
  std::string verdict;  // "" if it was taken
};

size_t status_bytes(const char* key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::stoull(line.substr(std::string(key).size())) * 1024;
  return 0;
}

// Made and read in a child. The peak counts from after it was made: the system forgets an older one when it is told to.
Cost cost_of(const std::function<std::string()>& make, const std::function<void(const std::string&)>& read) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    const std::string file = make();
    malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << 5;
    const size_t before = status_bytes("VmRSS:");
    const auto start = std::chrono::steady_clock::now();
    std::string verdict;
    try {
      read(file);
    } catch (const FormatError& e) {
      verdict = e.message;
    } catch (const Failure& f) {
      verdict = f.diagnostic.message;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::ostringstream text;
    text << seconds << ' ' << status_bytes("VmHWM:") - before << ' ' << verdict.substr(0, 200);
    const ssize_t written = write(ends[1], text.str().data(), text.str().size());
    _exit(written > 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  Cost cost;
  std::istringstream in(text);
  in >> cost.seconds >> cost.bytes;
  in.get();
  std::getline(in, cost.verdict);
  return cost;
}

std::string short_name(size_t n) {
  std::string name;
  do name += "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
  while (n /= 36);
  return name;
}

// `begin`, then what `part` gives as often as there is room, separated by commas, then `end`.
std::string filled(size_t size, const std::string& begin, const std::function<std::string(size_t)>& part,
                   const std::string& end) {
  std::string all = begin;
  all.reserve(size);
  for (size_t i = 0;; ++i) {
    const std::string next = part(i);
    if (all.size() + next.size() + 1 + end.size() > size) break;
    all += next;
    all += ',';
  }
  if (all.back() == ',') all.pop_back();
  return all + end;
}

std::string with_length(const std::string& header) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return bytes + header;
}

std::string zeros(int rank) {
  std::string shape = "[0";
  for (int i = 1; i < rank; ++i) shape += ",0";
  return shape + "]";
}

struct Hostile {
  const char* name;
  std::function<std::string()> make;
  std::string verdict;  // "" if it is taken
};
void PrintTo(const Hostile& h, std::ostream* out) { *out << h.name; }
std::string name_of(const testing::TestParamInfo<Hostile>& info) { return info.param.name; }

std::string entries(int rank) {
  return filled(
      kHeader, "{",
      [&](size_t i) {
        return "\"" + short_name(i) + R"(":{"dtype":"U8","shape":)" + zeros(rank) + R"(,"data_offsets":[0,0]})";
      },
      "}");
}
std::string around(const std::string& begin, char fill, const std::string& end) {
  return begin + std::string(kHeader - begin.size() - end.size(), fill) + end;
}
const std::string kLongText(4 * kMiB - 100, 'v');
const std::string kRest = R"(,"shape":[0],"data_offsets":[0,0]}})";

void expect_little(const Cost& cost, const Hostile& hostile) {
  std::printf("%.1f MiB beside the file, %.2f s: %s\n", static_cast<double>(cost.bytes) / kMiB, cost.seconds,
              cost.verdict.c_str());
  EXPECT_TRUE(cost.verdict.starts_with(hostile.verdict)) << hostile.verdict;
  EXPECT_EQ(cost.verdict.empty(), hostile.verdict.empty());
  EXPECT_LT(cost.seconds, kSanitized ? 10 * kSeconds : kSeconds);
  EXPECT_LT(cost.bytes, kSanitized ? SIZE_MAX : 64 * kMiB);
}

class HostileHeader : public testing::TestWithParam<Hostile> {};

TEST_P(HostileHeader, CostsLittle) {
  const Cost cost = cost_of([] { return with_length(GetParam().make()); },
                            [](const std::string& file) { parse_safetensors(file, "hostile"); });
  expect_little(cost, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, HostileHeader,
    testing::Values(
        Hostile{"ManyTinyEntries", [] { return entries(1); }, ""},
        Hostile{"ManyEntriesOfRank16", [] { return entries(16); }, ""},
        Hostile{"ManyEntriesOfRank33", [] { return entries(33); }, ""},
        Hostile{"ManyEntriesOfRank64", [] { return entries(64); }, ""},
        Hostile{"OneHugeShape",
                [] { return filled(kHeader, R"({"a":{"dtype":"U8","shape":[)", [](size_t) { return "1"; }, "]}}"); },
                "has a tensor of more than 64 dimensions"},
        Hostile{"ArrayForAnEntry", [] { return filled(kHeader, R"({"a":[)", [](size_t) { return "1"; }, "]}"); },
                "tensor `a` lacks dtype, shape or data_offsets"},
        Hostile{"ManyArraysInAShape",
                [] { return filled(kHeader, R"({"a":{"shape":[)", [](size_t) { return "[]"; }, "]}}"); },
                "a dimension of tensor `a` is not a whole number"},
        Hostile{"DeepArrays", [] { return around(R"({"a":)", '[', ""); },
                "tensor `a` lacks dtype, shape or data_offsets"},
        Hostile{"DeepArraysInAShape", [] { return around(R"({"a":{"shape":)", '[', ""); },
                "a dimension of tensor `a` is not a whole number"},
        Hostile{"DeepObjects",
                [] {
                  std::string deep;
                  while (deep.size() + 5 <= kHeader) deep += "{\"a\":";
                  return deep;
                },
                "tensor `a` has more than dtype, shape and data_offsets"},
        Hostile{"OnlyBraces", [] { return std::string(kHeader, '{'); }, "has no JSON object for a header"},
        Hostile{"ManyMetadata",
                [] {
                  return filled(
                      kHeader, R"({"__metadata__":{)", [](size_t i) { return "\"" + short_name(i) + R"(":"")"; }, "}}");
                },
                "has metadata of more than 65536 names"},
        Hostile{
            "ManyKeysInAnEntry",
            [] { return filled(kHeader, R"({"a":{)", [](size_t i) { return "\"" + short_name(i) + "\":1"; }, "}}"); },
            "tensor `a` has more than dtype, shape and data_offsets"},
        Hostile{"LongNames",
                [] {
                  return filled(
                      kHeader, "{",
                      [](size_t i) {
                        return "\"" + short_name(i) + "/" + std::string(4000, 'n') +
                               R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
                      },
                      "}");
                },
                ""},
        Hostile{"LongName", [] { return around("{\"", 'n', R"(":{"dtype":"U8")" + kRest); },
                "has a text of more than 4194304 bytes in its header"},
        Hostile{"LongEscapedName",
                [] {
                  std::string name = "{\"";
                  while (name.size() + 6 <= kHeader) name += "\\u00e9";
                  return name;
                },
                "has a text of more than 4194304 bytes in its header"},
        Hostile{"LongMetadata", [] { return around(R"({"__metadata__":{"a":")", 'v', "\"}}"); },
                "has a text of more than 4194304 bytes in its header"},
        Hostile{"LongMetadataOpen", [] { return around(R"({"__metadata__":{"a":")", 'v', ""); },
                "has a text of more than 4194304 bytes in its header"},
        Hostile{"LongElementType", [] { return around(R"({"a":{"dtype":")", 'F', "\"" + kRest); },
                "has a text of more than 4194304 bytes in its header"},
        Hostile{"FourMetadata",
                [] {
                  return filled(
                      kHeader, R"({"__metadata__":{)",
                      [](size_t i) { return "\"" + short_name(i) + "\":\"" + kLongText + "\""; }, "}}");
                },
                ""},
        Hostile{"FourMetadataNotUtf8",
                [] {
                  return filled(
                      kHeader, R"({"__metadata__":{)",
                      [](size_t i) { return "\"" + short_name(i) + "\":\"" + kLongText + (i == 2 ? "\xff\"" : "\""); },
                      "}}");
                },
                "has no JSON object for a header"},
        Hostile{"FourMegabytesOfAName", [] { return "{\"" + kLongText + R"(":{"dtype":"U8")" + kRest; },
                "has a name of more than 4096 bytes"},
        Hostile{"FourMegabytesOfANameNotUtf8", [] { return "{\"" + kLongText + "\xff\""; },
                "has no JSON object for a header"},
        Hostile{"FourMegabytesOfAnElementType", [] { return R"({"a":{"dtype":")" + kLongText + "\"" + kRest; },
                "tensor `a` has the dtype `vvvv"},
        Hostile{"LongNumber", [] { return around(R"({"a":{"dtype":"U8","shape":[)", '1', "]}}"); },
                "has no JSON object for a header"},
        Hostile{"LongFraction", [] { return around(R"({"a":{"dtype":"U8","shape":[1.)", '1', "]}}"); },
                "has no JSON object for a header"},
        Hostile{"OnlySpaces", [] { return around("{", ' ', "}"); }, "has no JSON object for a header"},
        Hostile{"OnlySpacesOpen", [] { return around("{", ' ', ""); }, "has no JSON object for a header"},
        Hostile{"OnlyTabs", [] { return around("{", '\t', "}"); }, "has no JSON object for a header"},
        Hostile{"ManyErrorsInOneText", [] { return around("{\"", '\x01', ""); },
                "has a text of more than 4194304 bytes in its header"}),
    name_of);

class HostileManifest : public testing::TestWithParam<Hostile> {};

// Whoever edits a manifest writes the hash that belongs to it.
TEST_P(HostileManifest, CostsLittle) {
  const auto make = [] {
    const std::string body = GetParam().make();
    return body + ",\n \"sha256\": \"" + sha256_of(body.data(), body.size()) + "\"\n}\n";
  };
  const Cost cost = cost_of(make, [](const std::string& text) { parse_checkpoint_manifest(text, "hostile"); });
  expect_little(cost, GetParam());
}

constexpr size_t kBody = kManifest - 128;
const std::string kHash(64, '0');
std::string manifest_of(const std::function<std::string(size_t)>& part) {
  return filled(kBody, R"({"mortise":1,"step":5,"plugins":{},"files":{)", part, "}");
}

INSTANTIATE_TEST_SUITE_P(
    Manifests, HostileManifest,
    testing::Values(
        Hostile{"ManyFiles",
                [] {
                  return manifest_of(
                      [](size_t i) { return "\"" + short_name(i) + R"(":{"bytes":1,"sha256":")" + kHash + "\"}"; });
                },
                ""},
        Hostile{"ManyFilesThatAreNone",
                [] { return manifest_of([](size_t i) { return "\"" + short_name(i) + "\":{}"; }); }, "the file `"},
        Hostile{"ManyNumbers", [] { return manifest_of([](size_t i) { return "\"" + short_name(i) + "\":1"; }); },
                "the file `"},
        Hostile{"ManyArrays", [] { return filled(kBody, R"({"mortise":2,"x":[)", [](size_t) { return "[]"; }, "]"); },
                "it is of another version"},
        Hostile{"DeepArrays", [] { return std::string(kBody, '['); }, "it is nested deeper than manifests are"},
        Hostile{"DeepObjects",
                [] {
                  std::string deep;
                  while (deep.size() + 5 <= kBody) deep += "{\"a\":";
                  return deep;
                },
                "it is nested deeper than manifests are"},
        Hostile{"LongNumber", [] { return R"({"mortise":)" + std::string(kBody - 20, '1'); },
                "it is of another version"},
        Hostile{
            "LongPath",
            [] { return R"({"mortise":1,"step":5,"plugins":{},"files":{")" + std::string(kBody - 60, 'a') + "\":1}"; },
            "the file `"},
        Hostile{"TooLong", [] { return std::string(64 * kMiB, ' '); }, "it is larger than manifests are"}),
    name_of);

// What plugins keep may be long, and is a tree of JSON too.
class HostileBlobs : public testing::TestWithParam<Hostile> {};

TEST_P(HostileBlobs, CostLittle) {
  expect_little(cost_of(GetParam().make, [](const std::string& text) { parse_blobs(text, "hostile"); }), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    PluginStates, HostileBlobs,
    testing::Values(
        Hostile{"ManyNumbers",
                [] { return filled(kHeader, "{", [](size_t i) { return "\"" + short_name(i) + "\":1"; }, "}"); },
                "it has more values than states have"},
        Hostile{
            "ManyKeysInOne",
            [] { return filled(kHeader, R"({"a":{)", [](size_t i) { return "\"" + short_name(i) + "\":1"; }, "}}"); },
            "it has more values than states have"},
        Hostile{"ManyArrays", [] { return filled(kHeader, "[", [](size_t) { return "[]"; }, "]"); },
                "it has more values than states have"},
        Hostile{"DeepArrays", [] { return std::string(kHeader, '['); }, "it is nested deeper than states are"},
        Hostile{"LongText", [] { return around(R"({"a":{"version":1,"text":")", 'v', "\"}}"); }, ""}),
    name_of);

}  // namespace
}  // namespace mortise
