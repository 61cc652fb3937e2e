#include "core/cli/bench/measure.hpp"

#include <algorithm>

#include "core/base/text.hpp"

namespace mortise::cli {
namespace {

// null is a number that JSON has no word for.
template <class T>
std::optional<T> number(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found == record.end() || !found->is_number() ? std::nullopt : std::optional(found->get<T>());
}

template <class T>
void raise(std::optional<T>& most, std::optional<T> one) {
  if (one) most = std::max(most.value_or(*one), *one);
}

template <class T>
Json json_of(const std::optional<T>& number) {
  return number ? Json(*number) : Json();
}

}  // namespace

void Meter::take(std::string_view line) {
  const Json record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return;
  const std::string event = record.value("event", "");
  if (event == "run") found_.device = record.value("device", "");
  if (event == "step") take_step(record);
  if (event != "end") return;
  ended_ = true;
  found_.seconds = number<double>(record, "seconds").value_or(0);
  found_.loss_first = number<double>(record, "loss_first");
  found_.loss_last = number<double>(record, "loss_last");
}

// A rate is of the steps since the last record that had one.
void Meter::take_step(const Json& record) {
  raise(found_.memory_peak_bytes, number<int64_t>(record, "memory_peak_bytes"));
  raise(found_.nvml_peak_bytes, number<int64_t>(record, "gpu.memory_bytes"));
  samples_ = std::max(samples_, number<int64_t>(record, "samples").value_or(0));
  const auto rate = number<double>(record, "samples_per_s"), tokens = number<double>(record, "tokens_per_s"),
             flop = number<double>(record, "flop_per_s"), mfu = number<double>(record, "mfu");
  const int64_t step = number<int64_t>(record, "step").value_or(0);
  if (!rate || *rate <= 0 || step <= step_) return;
  if (step_ >= warmup_) {
    const auto n = static_cast<double>(step - step_);
    steps_ += n;
    seconds_a_sample_ += n / *rate;
    if (tokens && *tokens > 0) seconds_a_token_ += n / *tokens;
    else counts_tokens_ = false;
    if (flop && *flop > 0) seconds_a_flop_ += n / *flop;
    if (flop && mfu) mfu_per_flop_ = *mfu / *flop;
  }
  step_ = step;
  of_ = number<int64_t>(record, "of").value_or(0);
  rate_ = *rate;
  found_.loss_last = number<double>(record, "loss");
}

bool Meter::finish(Measure& row) const {
  row.device = found_.device;
  row.memory_peak_bytes = found_.memory_peak_bytes;
  row.nvml_peak_bytes = found_.nvml_peak_bytes;
  if (!ended_ || step_ == 0) return false;
  row.steps = step_;
  row.samples = samples_;
  row.seconds = found_.seconds;
  row.loss_first = found_.loss_first;
  row.loss_last = found_.loss_last;
  if (row.seconds > 0) row.samples_per_s = static_cast<double>(samples_) / row.seconds;
  if (steps_ > 0) row.steady_samples_per_s = steps_ / seconds_a_sample_;
  if (steps_ > 0 && counts_tokens_) row.tokens_per_s = steps_ / seconds_a_token_;
  if (seconds_a_flop_ > 0) row.flop_per_s = steps_ / seconds_a_flop_;
  if (row.flop_per_s && mfu_per_flop_) row.mfu = *row.flop_per_s * *mfu_per_flop_;
  return true;
}

std::string Meter::progress() const {
  if (step_ == 0) return "";
  return "step " + with_commas(step_) + "/" + with_commas(of_) + "  " + short_count(rate_) + " samples/s" +
         (found_.loss_last ? formatted("  loss %.3f", *found_.loss_last) : "");
}

double rate_of(const Measure& row) { return row.steady_samples_per_s.value_or(row.samples_per_s.value_or(0)); }

std::optional<double> ratio(const Measure& row, const Measure& first) {
  if (!row.is_measured() || !first.is_measured() || rate_of(first) <= 0) return std::nullopt;
  return rate_of(row) / rate_of(first);
}

Json json_of(const Measure& row, const Measure& first) {
  return {{"name", row.name},
          {"state", row.state.empty() ? "missing" : row.state},
          {"error", row.why.empty() ? Json() : Json(row.why)},
          {"exit", row.exit},
          {"steps", row.steps},
          {"samples", row.samples},
          {"seconds", row.seconds},
          {"process_seconds", row.process_seconds},
          {"samples_per_s", json_of(row.samples_per_s)},
          {"steady_samples_per_s", json_of(row.steady_samples_per_s)},
          {"ratio", json_of(ratio(row, first))},
          {"tokens_per_s", json_of(row.tokens_per_s)},
          {"flop_per_s", json_of(row.flop_per_s)},
          {"mfu", json_of(row.mfu)},
          {"memory_peak_bytes", json_of(row.memory_peak_bytes)},
          {"nvml_peak_bytes", json_of(row.nvml_peak_bytes)},
          {"loss_first", json_of(row.loss_first)},
          {"loss_last", json_of(row.loss_last)},
          {"device", row.device},
          {"manifest", "rows/" + row.file + ".toml"},
          {"key", row.key},
          {"build", row.build},
          {"machine", row.machine}};
}

Measure measure_of(const Json& json) {
  Measure row;
  row.name = json.at("name");
  row.state = json.at("state");
  if (row.state == "missing") row.state.clear();
  if (const Json& why = json.at("error"); why.is_string()) row.why = why;
  row.exit = json.at("exit");
  row.steps = json.at("steps");
  row.samples = json.at("samples");
  row.seconds = json.at("seconds");
  row.process_seconds = json.at("process_seconds");
  row.samples_per_s = number<double>(json, "samples_per_s");
  row.steady_samples_per_s = number<double>(json, "steady_samples_per_s");
  row.tokens_per_s = number<double>(json, "tokens_per_s");
  row.flop_per_s = number<double>(json, "flop_per_s");
  row.mfu = number<double>(json, "mfu");
  row.memory_peak_bytes = number<int64_t>(json, "memory_peak_bytes");
  row.nvml_peak_bytes = number<int64_t>(json, "nvml_peak_bytes");
  row.loss_first = number<double>(json, "loss_first");
  row.loss_last = number<double>(json, "loss_last");
  row.device = json.at("device");
  row.key = json.at("key");
  row.build = json.at("build");
  row.machine = json.at("machine");
  return row;
}

}  // namespace mortise::cli
