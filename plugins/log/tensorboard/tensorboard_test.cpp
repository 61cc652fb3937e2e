// The files are read back by a reader of the test's own: a checksum bit by bit, and messages by nothing but their wire
// format.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "mortise/testing/fake_host.hpp"

namespace {
using namespace mortise::testing;

// ---- a reader ----

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool differs = (crc & 1) != (static_cast<unsigned char>(byte) >> bit & 1);
      crc = differs ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
    }
  return crc ^ 0xFFFFFFFF;
}
uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

template <class T>
T taken(std::string_view& bytes) {
  T x{};
  if (bytes.size() < sizeof x) throw std::runtime_error("the bytes end too soon");
  std::memcpy(&x, bytes.data(), sizeof x);
  bytes.remove_prefix(sizeof x);
  return x;
}
std::string_view taken(std::string_view& bytes, uint64_t n) {
  if (bytes.size() < n) throw std::runtime_error("the bytes end too soon");
  const std::string_view all = bytes.substr(0, n);
  bytes.remove_prefix(n);
  return all;
}

std::vector<std::string_view> records_of(std::string_view file) {
  std::vector<std::string_view> all;
  while (!file.empty()) {
    const std::string_view length = taken(file, 8);
    if (taken<uint32_t>(file) != masked(crc32c(length))) throw std::runtime_error("a length has another checksum");
    all.push_back(taken(file, std::bit_cast<uint64_t>(*reinterpret_cast<const std::array<char, 8>*>(length.data()))));
    if (taken<uint32_t>(file) != masked(crc32c(all.back()))) throw std::runtime_error("a record has another checksum");
  }
  return all;
}

uint64_t varint(std::string_view& bytes) {
  uint64_t n = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = taken<unsigned char>(bytes);
    n |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return n;
  }
  throw std::runtime_error("a number has no end");
}

struct Field {
  uint64_t number, wire, integer;  // what is fixed is an integer of its bits
  std::string_view bytes;
};
std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> all;
  while (!message.empty()) {
    const uint64_t key = varint(message);
    Field f{key >> 3, key & 7, 0, {}};
    if (f.wire == 0) f.integer = varint(message);
    else if (f.wire == 1) f.integer = taken<uint64_t>(message);
    else if (f.wire == 2) f.bytes = taken(message, varint(message));
    else if (f.wire == 5) f.integer = taken<uint32_t>(message);
    else throw std::runtime_error("no such wire type");
    all.push_back(f);
  }
  return all;
}

struct Event {
  double time = 0;
  int64_t step = 0;
  std::string version;
  bool starts = false;
  std::vector<std::pair<std::string, float>> scalars;
};
Event event_of(std::string_view message) {
  Event event;
  for (const Field& f : fields_of(message)) switch (f.number << 3 | f.wire) {
      case 1 << 3 | 1: event.time = std::bit_cast<double>(f.integer); break;
      case 2 << 3 | 0: event.step = static_cast<int64_t>(f.integer); break;
      case 3 << 3 | 2: event.version = f.bytes; break;
      case 5 << 3 | 2:
        for (const Field& v : fields_of(f.bytes)) {
          EXPECT_EQ(v.number << 3 | v.wire, 1u << 3 | 2);
          const std::vector<Field> value = fields_of(v.bytes);
          if (value.size() != 2 || value[0].number != 1 || value[0].wire != 2 || value[1].number != 2 ||
              value[1].wire != 5)
            throw std::runtime_error("a value is no tag and a float");
          event.scalars.emplace_back(value[0].bytes, std::bit_cast<float>(static_cast<uint32_t>(value[1].integer)));
        }
        break;
      case 7 << 3 | 2: {
        const std::vector<Field> log = fields_of(f.bytes);
        event.starts = log.size() == 1 && log[0].number == 1 && log[0].wire == 0 && log[0].integer == 1;
        break;
      }
      default: throw std::runtime_error("no field of an event");
    }
  return event;
}

// ---- the tests ----

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoard() { std::filesystem::create_directories(folder_); }
  ~TensorBoard() override { std::filesystem::remove_all(folder_); }

  FakeRecord run(int64_t step = 0) const {
    return FakeRecord("run").add("run", "a -> runs/a").add("dir", folder_.string()).add("step", step);
  }
  static FakeRecord step(int64_t number, double loss = 1) {
    return FakeRecord("step").add("step", number).add("of", 100).add("loss", loss).add("due", 1).add("skipped", 0);
  }
  // What is written for these, after the beginning; read while the plugin still has the file open.
  std::vector<Event> written(std::vector<FakeRecord> records) {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(plugin.notify("record", run()), MORTISE_OK);
    for (FakeRecord& record : records) EXPECT_EQ(plugin.notify("record", record), MORTISE_OK);
    std::vector<Event> all = events();
    EXPECT_EQ(all.at(0).version, "brain.Event:2");
    EXPECT_TRUE(all.at(1).starts);
    EXPECT_EQ(all.at(1).step, 0) << "a run that begins takes every step anew";
    all.erase(all.begin(), all.begin() + 2);
    return all;
  }
  std::filesystem::path file() const {
    std::filesystem::path found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_TRUE(found.empty()) << "two files";
      found = entry.path();
    }
    return found;
  }
  std::vector<Event> events() const {
    std::ifstream in(file(), std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    std::vector<Event> all;
    for (const std::string_view record : records_of(bytes)) all.push_back(event_of(record));
    return all;
  }
  using Scalars = std::vector<std::pair<std::string, float>>;

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("mortise_tensorboard_test_" + std::to_string(getpid()));
  FakeHost host_;
};

TEST_F(TensorBoard, ReadsBackWithTheChecksumOfTheStandard) { EXPECT_EQ(crc32c("123456789"), 0xE3069283); }

TEST_F(TensorBoard, HasTheNumbersOfAStepThatIsDue) {
  const auto all = written({FakeRecord("step")
                                .add("step", 1200)
                                .add("of", 5000)
                                .add("loss", 3.412)
                                .add("lr", 3e-4)
                                .add("tokens", int64_t{629145600})
                                .add("due", 1)
                                .add("skipped", 0)
                                .add("throughput_unit", "tok")
                                .add("gpu.power_w", 701.5)
                                .add("router.h.0.balance", 0.25)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].step, 1200);
  EXPECT_EQ(all[0].scalars, (Scalars{{"train/loss", 3.412f},
                                     {"train/lr", 3e-4f},
                                     {"train/tokens", 629145600.0f},
                                     {"gpu/power_w", 701.5f},
                                     {"router/h.0.balance", 0.25f}}));
}

TEST_F(TensorBoard, HasTheNumbersOfAnEvaluation) {
  const auto all = written({FakeRecord("eval")
                                .add("step", 7)
                                .add("eval.loss", 2.5)
                                .add("eval.accuracy", 0.5)
                                .add("samples", 64)
                                .add("best", 1)});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].step, 7);
  EXPECT_EQ(all[0].scalars, (Scalars{{"eval/loss", 2.5f}, {"eval/accuracy", 0.5f}}));
}

TEST_F(TensorBoard, HasNothingOfOtherRecordsAndOfStepsThatAreNotDueOrWereSkipped) {
  const auto all =
      written({FakeRecord("step").add("step", 1).add("loss", 2.0).add("due", 0).add("skipped", 0),
               FakeRecord("step").add("step", 2).add("loss", 2.0).add("due", 0).add("skipped", 1),
               FakeRecord("step").add("step", 2).add("loss", 2.0).add("due", 1).add("skipped", 1),
               FakeRecord("saved").add("step", 2).add("bytes", 3), FakeRecord("note").add("text", "a"),
               FakeRecord("eval").add("step", 2).add("samples", 3), FakeRecord("end").add("steps", 5).add("exit", 0)});
  EXPECT_TRUE(all.empty());
}

TEST_F(TensorBoard, KeepsWhatIsNoNumber) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto all = written({step(1, std::nan("")), step(2, -inf)});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(std::isnan(all[0].scalars.at(0).second));
  EXPECT_EQ(all[1].scalars.at(0).second, -std::numeric_limits<float>::infinity());
}

TEST_F(TensorBoard, TakesTagsAndStepsOfAnyLength) {
  const std::string name(300, 'x');
  const std::vector<int64_t> steps = {127, 128, 16383, 16384, int64_t{1} << 40};  // where a byte more is needed
  std::vector<FakeRecord> records;
  for (const int64_t step : steps) records.push_back(FakeRecord("step").add("step", step).add(name, 1.0));
  const auto all = written(records);
  ASSERT_EQ(all.size(), steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(all[i].step, steps[i]);
    EXPECT_EQ(all[i].scalars, (Scalars{{"train/" + name, 1.0f}}));
  }
}

TEST_F(TensorBoard, FindsTheFileByItsNameAndSeesWhenThingsWere) {
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const double before = now();
  const auto all = written({step(1)});
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string name = file().filename(), first = "events.out.tfevents.";
  ASSERT_TRUE(name.starts_with(first)) << name;
  size_t digits = 0;
  EXPECT_NEAR(std::stod(name.substr(first.size()), &digits), before, 10) << "started in this second";
  EXPECT_EQ(name.substr(name.find('.', first.size())), "." + std::string(host) + "." + std::to_string(getpid()) + ".0");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_GE(all[0].time, before);
  EXPECT_LE(all[0].time, now());
}

TEST_F(TensorBoard, HearsFromWhichStepARunGoesOn) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", run(10)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", step(11)), MORTISE_OK);
  const auto all = events();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[0].starts);
  EXPECT_TRUE(all[1].starts);
  EXPECT_EQ(all[1].step, 11) << "the first step that is taken again";
  EXPECT_EQ(all[2].step, 11);
}

TEST_F(TensorBoard, LeavesTheFileOfAnEarlierProcessAsItIs) {
  const std::filesystem::path earlier = folder_ / "events.out.tfevents.1.host.1.0";
  std::ofstream(earlier) << "whole";
  {
    Plugin plugin(host_, MORTISE_PLUGIN_FILE);
    EXPECT_EQ(plugin.notify("record", run(10)), MORTISE_OK);
  }
  EXPECT_EQ(std::filesystem::file_size(earlier), 5u);
  std::filesystem::remove(earlier);
  EXPECT_EQ(events().size(), 2u) << "and another file has this one's";
}

// A limit of the process stands for a full disk: it too writes half a record first.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit low = {bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  void (*before_)(int);
  rlimit limit_{};
};

TEST_F(TensorBoard, IsToldOnceThatTheDiskIsFullAndReadsWhatCameBeforeAndAfter) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", run()), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", step(1)), MORTISE_OK);
  const auto whole = std::filesystem::file_size(file());
  {
    const FullDisk full(whole + 20);
    for (int64_t i = 2; i < 5; ++i) EXPECT_EQ(plugin.notify("record", step(i)), MORTISE_OK);
    EXPECT_EQ(std::filesystem::file_size(file()), whole) << "no half record stays";
  }
  EXPECT_EQ(plugin.notify("record", step(5)), MORTISE_OK);
  const auto all = events();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[2].step, 1);
  EXPECT_EQ(all[3].step, 5);
  ASSERT_EQ(host_.log.size(), 1u);
  EXPECT_EQ(host_.log[0].level, static_cast<uint32_t>(MORTISE_LOG_WARNING));
  EXPECT_EQ(host_.log[0].text, "log.tensorboard cannot write " + file().string() +
                                   ": File too large; the run goes on without these numbers");
}

TEST_F(TensorBoard, SaysOnceThatAFolderIsNotThereAndGoesOn) {
  std::filesystem::remove_all(folder_);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", run(3)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", step(4)), MORTISE_OK);
  ASSERT_EQ(host_.log.size(), 1u);
  EXPECT_NE(host_.log[0].text.find(": No such file or directory; the run goes on"), std::string::npos)
      << host_.log[0].text;
}

TEST_F(TensorBoard, IsWrittenNothingWithoutARunDirectory) {
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", FakeRecord("run").add("dir", "").add("step", 0)), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", step(1)), MORTISE_OK);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const std::string ours = "." + std::to_string(getpid()) + ".0";
  for (const auto& entry : std::filesystem::directory_iterator("/"))
    EXPECT_FALSE(entry.path().filename().string().ends_with(ours)) << "not at the root either: " << entry.path();
  EXPECT_TRUE(host_.log.empty());
}

TEST_F(TensorBoard, IsNoReasonToFailWithoutALog) {
  host_.withhold("mortise.log/0");
  std::filesystem::remove_all(folder_);
  Plugin plugin(host_, MORTISE_PLUGIN_FILE);
  EXPECT_EQ(plugin.notify("record", run()), MORTISE_OK);
  EXPECT_EQ(plugin.notify("record", step(1)), MORTISE_OK);
}
}  // namespace
