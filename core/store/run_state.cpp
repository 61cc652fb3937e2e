#include "core/store/run_state.hpp"

#include <spdlog/fmt/fmt.h>

#include <nlohmann/json.hpp>

#include "core/base/diagnostic.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

using Json = nlohmann::json;

// Counts are exact in every reader of JSON, and sums of two of them do not overflow.
constexpr int64_t kMaxCount = int64_t{1} << 53;
constexpr size_t kMaxNames = 4096;

[[noreturn]] void refuse(const std::string& path, const std::string& message) {
  Diagnostic d = trouble(kExitData, "other_state", message, path);
  d.effect = "nothing was restored";
  throw Failure(d);
}

// An object of at most `depth` brackets and `values` values: a tree of JSON takes far more memory than its text, so it
// is refused while it is read.
Json parse_object(std::string_view text, const std::string& path, int depth, size_t values) {
  if (text.find('\0') != text.npos) refuse(path, "it has a NUL, where its parser would stop");
  size_t seen = 0;
  const auto count = [&](int at, Json::parse_event_t event, const Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && at >= depth) refuse(path, "it is nested deeper than states are");
    if (++seen > values) refuse(path, "it has more values than states have");
    return true;
  };
  Json j = Json::parse(text, count, /*allow_exceptions=*/false);
  if (!j.is_object()) refuse(path, "it is no JSON object");
  return j;
}

class Fields {
 public:
  Fields(const Json& object, const std::string& path) : object_(object), path_(path) {}

  int64_t count(const char* key, int64_t least = 0) const {
    const Json& j = at(key);
    // An unsigned one may be larger than int64_t holds.
    const bool fits = j.is_number_unsigned() ? j.get<uint64_t>() <= uint64_t{kMaxCount} : j.is_number_integer();
    const int64_t n = fits ? j.get<int64_t>() : -1;
    if (!fits || n < least) wrong(key, fmt::format("a whole number from {} to 2^53", least));
    return n;
  }
  uint64_t seed(const char* key) const {
    if (!at(key).is_number_unsigned()) wrong(key, "a whole number that is not negative");
    return at(key).get<uint64_t>();
  }
  double number(const char* key) const {
    if (!at(key).is_number() || !std::isfinite(at(key).get<double>())) wrong(key, "a finite number");
    return at(key).get<double>();
  }
  double number_or_null(const char* key) const { return at(key).is_null() ? NAN : number(key); }
  // Of what states of before do not have.
  int64_t count_or(const char* key, int64_t least, int64_t otherwise) const {
    return object_.contains(key) ? count(key, least) : otherwise;
  }
  std::string text_or(const char* key, const char* otherwise) const {
    if (!object_.contains(key)) return otherwise;
    if (!at(key).is_string()) wrong(key, "a text");
    return at(key).get<std::string>();
  }

 private:
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(path_, fmt::format("it has no `{}`", key));
    return *found;
  }
  [[noreturn]] void wrong(const char* key, const std::string& wanted) const {
    refuse(path_, fmt::format("`{}` is not {}", key, wanted));
  }
  const Json& object_;
  const std::string& path_;
};

void must_agree(const RunState& s, int64_t step, const std::string& path) {
  if (s.applied != step) refuse(path, fmt::format("it is of step {}, in a checkpoint of step {}", s.applied, step));
  if (s.attempted < s.applied)
    refuse(path, fmt::format("{} steps were applied, but only {} attempted", s.applied, s.attempted));
  // Each attempt takes one micro-batch at least.
  if (s.cursor < s.attempted)
    refuse(path, fmt::format("{} steps were attempted, with {} micro-batches", s.attempted, s.cursor));
  if (s.scale <= 0) refuse(path, "`scale` is not greater than 0");
  if (s.best_step > s.applied) refuse(path, "`best_step` is later than the checkpoint");
  if (s.evaluated > s.applied) refuse(path, "`evaluated` is later than the checkpoint");
  if (s.confirmed > s.applied) refuse(path, "`confirmed` is later than the checkpoint");
  if (s.best_step > s.evaluated) refuse(path, "`best_step` is later than the last evaluation");
  if (std::isnan(s.best) != (s.best_step < 0)) refuse(path, "`best` and `best_step` contradict each other");
}

Json finite_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(); }

[[noreturn]] void refuse_plugin(const std::string& plugin, const std::string& message) {
  Diagnostic d = trouble(kExitPlugin, "plugin_state", message, "plugin " + plugin);
  d.plugin = plugin;
  d.effect = "nothing was saved";
  throw Failure(d);
}

}  // namespace

std::string state_text(const RunState& s) {
  const Json j = {{"attempted", s.attempted},
                  {"applied", s.applied},
                  {"samples", s.samples},
                  {"tokens", s.tokens},
                  {"cursor", s.cursor},
                  {"ranks", s.ranks},
                  {"step_samples", s.step_samples},
                  {"seed", s.seed},
                  {"scale", finite_or_null(s.scale)},
                  {"loss_first", finite_or_null(s.loss_first)},
                  {"best", finite_or_null(s.best)},
                  {"best_step", s.best_step},
                  {"best_by", s.best_by},
                  {"evaluated", s.evaluated},
                  {"confirmed", s.confirmed}};
  std::string text = j.dump(1) + "\n";
  parse_state(text, kStateFile, s.applied);
  return text;
}

RunState parse_state(std::string_view text, const std::string& path, int64_t step) {
  const Json j = parse_object(text, path, 1, 256);
  const Fields fields(j, path);
  RunState s;
  s.attempted = fields.count("attempted");
  s.applied = fields.count("applied");
  s.samples = fields.count("samples");
  s.tokens = fields.count("tokens");
  s.cursor = fields.count("cursor");
  s.ranks = fields.count_or("ranks", 1, 1);
  s.step_samples = fields.count_or("step_samples", 0, 0);
  s.seed = fields.seed("seed");
  s.scale = fields.number("scale");
  s.loss_first = fields.number_or_null("loss_first");
  s.best = fields.number_or_null("best");
  s.best_step = fields.count("best_step", -1);
  s.best_by = fields.text_or("best_by", "eval.loss");
  s.evaluated = fields.count("evaluated", -1);
  s.confirmed = fields.count("confirmed", -1);
  must_agree(s, step, path);
  return s;
}

std::string blobs_file(const std::string& plugin) { return fmt::format("plugins/{}.json", plugin); }

std::string blobs_text(const std::string& plugin, const PluginBlobs& blobs) {
  Json all = Json::object();
  for (const auto& [name, blob] : blobs) {
    if (!is_utf8(name)) refuse_plugin(plugin, "the name of a state that it keeps is not UTF-8");
    if (!is_utf8(blob.text)) refuse_plugin(plugin, fmt::format("the state `{}` that it keeps is not UTF-8", name));
    all[name] = {{"version", blob.version}, {"text", blob.text}};
  }
  std::string text = all.dump(1) + "\n";
  if (text.size() > kMaxBlobs || blobs.size() > kMaxNames)
    refuse_plugin(plugin, fmt::format("it keeps {} states of {} as text; at most {} of {} are saved", blobs.size(),
                                      byte_size(static_cast<int64_t>(text.size())), kMaxNames,
                                      byte_size(static_cast<int64_t>(kMaxBlobs))));
  return text;
}

PluginBlobs parse_blobs(std::string_view text, const std::string& path) {
  // Of each: its key, its object's begin and end, two keys, two values.
  Json all = parse_object(text, path, 2, 8 * kMaxNames);
  PluginBlobs blobs;
  for (const auto& item : all.items()) {
    const auto wrong = [&](const char* what) {
      refuse(path, fmt::format("`{}` {}", escape_control(item.key()), what));
    };
    Json& j = item.value();
    if (!j.is_object()) wrong("is not a state with `version` and `text`");
    const auto version = j.find("version"), content = j.find("text");
    if (version == j.end() || !version->is_number_unsigned() || version->get<uint64_t>() > UINT32_MAX)
      wrong("has no `version` that is a whole number below 2^32");
    if (content == j.end() || !content->is_string()) wrong("has no `text`");
    blobs[item.key()] = {version->get<uint32_t>(), std::move(content->get_ref<std::string&>())};
  }
  return blobs;
}

}  // namespace mortise
