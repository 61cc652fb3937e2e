// Wall time of every call, with and without the calls inside it. A chain's `next` is one point, layer and mode for the
// whole run, so it is the key; what it is called is asked once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <unordered_map>

#include "mortise/cpp/call.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;
using Clock = std::chrono::steady_clock;

constexpr const char* kModes[] = {"train", "eval", "sample"};

struct Spent {
  int64_t calls = 0;
  double seconds = 0, own = 0;
  void add(const Spent& other) {
    calls += other.calls;
    seconds += other.seconds;
    own += other.own;
  }
};
struct Row : Spent {
  std::string point, path, provider, mode;
};

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

thread_local double inside_s = 0;  // of the calls inside the one under way, so far

class Calls {
 public:
  void call(mortise_call* call, mortise_next* next) {
    const double outside_s = std::exchange(inside_s, 0);
    const uint32_t mode = call->mode;
    const Clock::time_point begun = Clock::now();
    const mortise_status status = api.call->next(api.host, next, call);
    const double seconds = seconds_since(begun);
    const Spent spent = {1, seconds, seconds - inside_s};
    inside_s = outside_s + seconds;
    check(status);
    const std::scoped_lock lock(mutex_);
    Row& row = rows_[next];
    if (row.calls == 0) name(row, call, next, mode);
    row.add(spent);
    if (row.path.empty() && mode == MORTISE_TRAIN) since_[row.point] += seconds;
  }

  void record(const mortise_event* event) {
    const Columns columns(*event->record);
    if (columns.kind() == "run") dir_ = columns.text("dir");
    if (columns.kind() == "step") step(columns);
  }

  // Also after a failure, then without a record.
  void end(const mortise_event* event) const {
    if (event->record) add_column("profile", value(std::string_view(summary())));
    if (dir_.empty()) return;
    const std::string path = dir_ + "/profile.txt", text = table();
    std::FILE* file = std::fopen(path.c_str(), "we");
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file && std::fclose(file) != 0) || !written) log_line(MORTISE_LOG_WARNING, path + " cannot be written");
  }

 private:
  static void name(Row& row, const mortise_call* call, const mortise_next* next, uint32_t mode) {
    row.point = name_of(call);
    row.path = view(call->path);
    row.provider = provider_of(next);
    if (row.provider.empty()) row.provider = "core";
    row.mode = kModes[mode];
  }

  static void add_column(const std::string& name, const mortise_value& v) {
    check(api.loop->column(api.host, str(name), v));
  }

  void step(const Columns& columns) {
    ++steps_;
    if (columns.integer("due", 1) == 0) return;
    std::map<std::string, double> since;
    {
      const std::scoped_lock lock(mutex_);
      since.swap(since_);
    }
    for (const auto& [point, seconds] : since)
      add_column(point + "_ms", value(1e3 * seconds / static_cast<double>(steps_)));
    steps_ = 0;
  }

  std::vector<Row> rows() const {
    const std::scoped_lock lock(mutex_);
    std::vector<Row> all;
    for (const auto& [next, row] : rows_) all.push_back(row);
    return all;
  }
  static double whole(const std::vector<Row>& rows) {
    double own = 0;
    for (const Row& row : rows) own += row.own;
    return own > 0 ? own : 1;
  }

  // Rows of one name put together, those that took longest first.
  static std::vector<std::pair<std::string, Spent>> by(const std::vector<Row>& rows, std::string (*title)(const Row&)) {
    std::map<std::string, Spent> together;
    for (const Row& row : rows) together[title(row)].add(row);
    std::vector<std::pair<std::string, Spent>> sorted(together.begin(), together.end());
    std::ranges::stable_sort(sorted, std::greater(), [](const auto& one) { return one.second.own; });
    return sorted;
  }

  // "linear 41%, attention 23%, backward 12%"
  std::string summary() const {
    constexpr size_t kMost = 5;
    const std::vector<Row> all = rows();
    std::string text;
    size_t n = 0;
    for (const auto& [point, spent] : by(all, [](const Row& row) { return row.point; })) {
      char part[64];
      std::snprintf(part, sizeof part, "%s%.40s %.0f%%", text.empty() ? "" : ", ", point.c_str(),
                    100 * spent.own / whole(all));
      text += part;
      if (++n == kMost) break;
    }
    return text;
  }

  static void append(std::string& text, const char* heading, const std::vector<std::pair<std::string, Spent>>& rows,
                     double whole) {
    char line[320];
    std::snprintf(line, sizeof line, "%-64s %10s %12s %12s %7s\n", heading, "calls", "ms", "own ms", "own");
    text += line;
    for (const auto& [title, spent] : rows) {
      std::snprintf(line, sizeof line, "%-64.240s %10lld %12.3f %12.3f %6.2f%%\n", title.c_str(),
                    static_cast<long long>(spent.calls), 1e3 * spent.seconds, 1e3 * spent.own, 100 * spent.own / whole);
      text += line;
    }
  }

  std::string table() const {
    const std::vector<Row> all = rows();
    std::string text;
    append(text, "point, provider, mode",
           by(all, [](const Row& row) { return row.point + "  " + row.provider + "  " + row.mode; }), whole(all));
    append(text += '\n', "layer, point, provider, mode",
           by(all,
              [](const Row& row) {
                return (row.path.empty() ? "-" : row.path) + "  " + row.point + "  " + row.provider + "  " + row.mode;
              }),
           whole(all));
    return text;
  }

  mutable std::mutex mutex_;
  std::unordered_map<const mortise_next*, Row> rows_;
  std::map<std::string, double> since_;  // seconds by point since the last record that was due
  int64_t steps_ = 0;
  std::string dir_;
};
}  // namespace

MORTISE_PLUGIN(Calls, mortise::wrap<&Calls::call>("*"), mortise::listen<&Calls::record>("record"),
               mortise::listen<&Calls::end>("run.end"))
