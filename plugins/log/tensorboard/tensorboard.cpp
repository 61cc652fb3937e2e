// The numbers of steps and evaluations as event files of TensorBoard: records of TFRecord, each a message of protobuf,
// both written by hand, since scalars need six fields of them.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

// ---- protobuf ----

// The fields that are written, as event.proto and summary.proto number them.
enum Event { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum Summary { kValue = 1 };
enum Value { kTag = 1, kSimpleValue = 2 };
enum SessionLog { kStatus = 1 };
constexpr int kStart = 1;  // a status

// How a field's bytes are read.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_varint(std::string& out, uint64_t n) {
  for (; n >= 0x80; n >>= 7) out += static_cast<char>(n | 0x80);
  out += static_cast<char>(n);
}
// Both formats are little-endian.
template <class T>
void append_fixed(std::string& out, T x) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof x];
  std::memcpy(bytes, &x, sizeof x);
  out.append(bytes, sizeof x);
}
void append_key(std::string& out, int field, Wire wire) {
  append_varint(out, static_cast<uint32_t>(field) << 3 | wire);
}
void append_integer(std::string& out, int field, int64_t n) {
  append_key(out, field, kVarint);
  append_varint(out, static_cast<uint64_t>(n));
}
void append_bytes(std::string& out, int field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(int64_t step) {
  std::string event;
  append_key(event, kWallTime, kFixed64);
  append_fixed(event, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
  append_integer(event, kStep, step);
  return event;
}

void append_scalar(std::string& summary, std::string_view tag, double x) {
  std::string value;
  append_bytes(value, kTag, tag);
  append_key(value, kSimpleValue, kFixed32);
  append_fixed(value, static_cast<float>(x));
  append_bytes(summary, kValue, value);
}

// ---- TFRecord ----

// CRC-32C, the lowest bit first, a byte at a time.
constexpr std::array<uint32_t, 256> kCrcOfByte = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    table[byte] = crc;
  }
  return table;
}();

// Masked, because a checksum of bytes that hold checksums of themselves says little.
uint32_t checksum(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcOfByte[(crc ^ static_cast<unsigned char>(byte)) & 0xFF];
  return std::rotr(~crc, 15) + 0xA282EAD8;
}

std::string framed(std::string_view event) {
  std::string record;
  append_fixed(record, uint64_t{event.size()});
  append_fixed(record, checksum(record));
  record += event;
  append_fixed(record, checksum(event));
  return record;
}

// ---- records as scalars ----

// TensorBoard groups tags by what stands before "/": loss -> train/loss, eval.loss -> eval/loss.
std::string tag_of(std::string_view column) {
  std::string tag(column);
  if (const size_t dot = tag.find('.'); dot != tag.npos) tag[dot] = '/';
  else tag.insert(0, "train/");
  return tag;
}

// Where a step stands, and not what it measured.
bool is_place(std::string_view column) {
  return column == "step" || column == "of" || column == "due" || column == "skipped";
}

std::string scalars_of(const Columns& columns) {
  const bool is_step = columns.kind() == "step";
  std::string summary;
  for (const mortise_column& column : columns.all()) {
    const std::string_view name = view(column.name);
    const bool is_number = column.value.tag == MORTISE_FLOAT || column.value.tag == MORTISE_INT;
    if (is_number && (is_step ? !is_place(name) : name.starts_with("eval.")))
      append_scalar(summary, tag_of(name), columns.number(name));
  }
  return summary;
}

// ---- the file ----

class TensorBoard {
 public:
  TensorBoard() = default;
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;
  ~TensorBoard() {
    if (file_ >= 0) close(file_);
  }

  void record(const mortise_event* event) {
    const Columns columns(*event->record);
    const std::string_view kind = columns.kind();
    if (kind == "run") begin(columns.text("dir"), columns.integer("step"));
    // A skipped step has the number of the next one, and its numbers are not those of any update.
    if (kind == "eval" || (kind == "step" && columns.integer("due", 1) != 0 && columns.integer("skipped") == 0))
      write_scalars(columns);
  }

 private:
  void begin(std::string_view dir, int64_t step) {
    if (dir.empty() || file_ >= 0) return;
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') std::strcpy(host, "localhost");
    path_ = std::string(dir) + "/events.out.tfevents." + std::to_string(std::time(nullptr)) + "." + host + "." +
            std::to_string(getpid()) + ".0";
    file_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) return complain(errno);
    std::string version = event_at(0);
    append_bytes(version, kFileVersion, "brain.Event:2");
    write_event(version);
    write_start(step > 0 ? step + 1 : 0);
  }

  // What earlier files say of this step and of later ones holds no more: they are taken again. A new run says it too:
  // the first start that TensorBoard meets is no restart for it.
  void write_start(int64_t step) {
    std::string event = event_at(step), log;
    append_integer(log, kStatus, kStart);
    append_bytes(event, kSessionLog, log);
    write_event(event);
  }

  void write_scalars(const Columns& columns) {
    const std::string summary = scalars_of(columns);
    if (summary.empty()) return;
    std::string event = event_at(columns.integer("step"));
    append_bytes(event, kSummary, summary);
    write_event(event);
  }

  // At once: a line is due seldom, and whoever looks sees it.
  void write_event(std::string_view event) {
    if (file_ < 0) return;
    const std::string record = framed(event);
    size_t written = 0;
    while (written < record.size()) {
      const ssize_t n = write(file_, record.data() + written, record.size() - written);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      written += static_cast<size_t>(n);
    }
    if (written == record.size()) return;
    complain(errno);
    if (written > 0) take_back(written);
  }

  // Behind half a record TensorBoard would read nothing any more.
  void take_back(size_t bytes) {
    const off_t end = lseek(file_, 0, SEEK_END);
    if (end >= 0 && ftruncate(file_, end - static_cast<off_t>(bytes)) == 0) return;
    close(file_);
    file_ = -1;
  }

  // Once: a full disk is said, and does not end the training.
  void complain(int error) {
    if (!std::exchange(complained_, true))
      log_line(MORTISE_LOG_WARNING, "log.tensorboard cannot write " + path_ + ": " + std::strerror(error) +
                                        "; the run goes on without these numbers");
  }

  bool complained_ = false;
  int file_ = -1;
  std::string path_;
};
}  // namespace

MORTISE_PLUGIN(TensorBoard, mortise::listen<&TensorBoard::record>("record"))
