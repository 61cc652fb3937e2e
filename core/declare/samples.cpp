#include "core/declare/samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/abi/fields.hpp"
#include "core/base/text.hpp"
#include "mortise/cpp/strings.hpp"
#include "mortise/philox.h"

namespace mortise {
namespace {

std::vector<int64_t> first(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// Fisher and Yates with Philox bits: the same order for a seed, a stream and an epoch, wherever it is made.
void shuffle(std::vector<int64_t>& numbers, uint64_t seed, std::string_view stream, int64_t epoch) {
  const uint64_t key64 = seed * 0x9E3779B97F4A7C15u ^ hash_text(stream);
  const uint32_t key[2] = {static_cast<uint32_t>(key64), static_cast<uint32_t>(key64 >> 32)};
  for (int64_t i = static_cast<int64_t>(numbers.size()) - 1; i > 0; --i) {
    uint32_t w[4];
    mortise_philox_words(key, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(epoch), 0,
                         w);
    const uint64_t bits = uint64_t{w[0]} << 32 | w[1];
    std::swap(numbers[static_cast<size_t>(i)], numbers[bits % static_cast<uint64_t>(i + 1)]);
  }
}

mortise_split describe(const Provided<mortise_data>& data, std::string_view name) {
  mortise_split s{};
  s.struct_size = sizeof s;
  data.call(&mortise_data::describe, "describe", str(name), &s);
  constexpr int64_t kMost = int64_t{1} << 33;      // their order alone takes 64 GiB
  constexpr int64_t kNoNumber = int64_t{1} << 40;  // so many nobody has: the plugin is wrong, not the data
  if (s.samples < 0 || s.samples > kMost)
    throw PluginError(s.samples < 0 || s.samples > kNoNumber ? MORTISE_E_PLUGIN : MORTISE_E_DATA,
                      data.by->id() + " says that `" + std::string(name) + "` has " + std::to_string(s.samples) +
                          " samples; 0 to " + std::to_string(kMost) + " can be put in order",
                      data.by->id());
  text_of(s.about, data.by->id());
  text_of(s.fingerprint, data.by->id());
  return s;
}

// What is evaluated on when only some of it is: drawn, in the order of their numbers.
void draw(std::vector<int64_t>& numbers, int64_t n, uint64_t seed) {
  if (n <= 0 || n >= static_cast<int64_t>(numbers.size())) return;
  shuffle(numbers, seed, "evaluated", 0);
  numbers.resize(static_cast<size_t>(n));
  std::ranges::sort(numbers);
}

[[noreturn]] void refuse_too_few(const std::string& id, int64_t samples, const SampleOptions& o) {
  std::string text = id + " has " + std::to_string(samples) + " samples to train on, too few for one micro-batch of " +
                     std::to_string(o.micro_batch_size);
  if (o.ranks > 1) text += " for each of " + std::to_string(o.ranks) + " ranks";
  if (const int64_t most = samples / o.ranks; most > 0)
    text += "\n  fix: --set data.micro_batch_size=" + std::to_string(most) + ", or less";
  if (samples > 0) text += "\n  fix: --set data.drop_last=false trains on what does not fill one";
  throw PluginError(MORTISE_E_DATA, text);
}

std::shared_ptr<const std::vector<int64_t>> shared(std::vector<int64_t> numbers) {
  return std::make_shared<const std::vector<int64_t>>(std::move(numbers));
}

}  // namespace

Samples::Samples(const Provided<mortise_data>& data, const SampleOptions& options) : options_(options) {
  const mortise_split validation = options.split.empty() ? mortise_split{} : describe(data, options.split);
  const bool hold_out = validation.samples == 0 && options.validation > 0 && options.split == "validation";
  const mortise_split train = options.train || hold_out ? describe(data, "train") : mortise_split{};
  train_ = {
      "train", {}, options.micro_batch_size, options.shuffle, options.drop_last, escape_control(view(train.about))};
  validation_ = {options.split, {},    options.eval_micro_batch_size,
                 false,         false, escape_control(view(validation.about))};
  train_.fingerprint = view(train.fingerprint);
  validation_.fingerprint = view(validation.fingerprint);
  std::vector<int64_t> to_train = first(train.samples), to_validate;
  if (hold_out) {
    validation_.name = "train";
    validation_.fingerprint = train_.fingerprint;
    validation_.about = train_.about + ", held out";
    shuffle(to_train, options.seed, "held out", 0);
    const auto share = std::llround(static_cast<double>(train.samples) * options.validation);
    const int64_t most = std::max<int64_t>(train.samples - 1, 0);  // one stays to train
    const auto held = to_train.begin() + std::min(std::max<int64_t>(share, 1), most);
    to_validate.assign(to_train.begin(), held);
    to_train.erase(to_train.begin(), held);
    std::ranges::sort(to_train);
    std::ranges::sort(to_validate);
  } else {
    to_validate = first(validation.samples);
  }
  draw(to_validate, options.eval_samples, options.seed);
  train_.numbers = shared(std::move(to_train));
  validation_.numbers = shared(std::move(to_validate));
  if (options.train && micros_per_epoch("train") == 0) refuse_too_few(data.by->id(), count("train"), options);
}

int64_t Samples::count(std::string_view name) const { return static_cast<int64_t>(split(name).numbers->size()); }

int64_t Samples::micros_per_epoch(std::string_view name) const {
  const Split& s = split(name);
  const int64_t together = s.micro_batch_size * options_.ranks, n = count(name);
  return s.drop_last ? n / together : (n + together - 1) / together;
}

// The groups that are left of the data's in `numbers`, which are in order.
static std::vector<mortise_group> groups_in(const Provided<mortise_data>& data, const std::vector<int64_t>& numbers) {
  std::vector<mortise_group> groups = groups_of(data, "train");
  int64_t end = 0;
  auto from = numbers.begin();
  for (mortise_group& group : groups) {
    end += group.samples;
    const auto to = std::lower_bound(from, numbers.end(), end);
    group.samples = to - from;
    from = to;
  }
  if (from == numbers.end()) return groups;
  throw PluginError(MORTISE_E_PLUGIN,
                    data.by->id() + " says that its groups have " + std::to_string(end) +
                        " samples, and it has a sample " + std::to_string(numbers.back()),
                    data.by->id());
}

void Samples::order_by(const Provided<mortise_data>& data, const Provided<mortise_order>& order, int64_t per_step) {
  std::vector<mortise_group> groups = groups_in(data, *train_.numbers);
  const int64_t all = count("train"), together = train_.micro_batch_size * options_.ranks;
  mortise_order_request ask{};
  ask.struct_size = sizeof ask;
  ask.n_groups = static_cast<uint32_t>(groups.size());
  ask.groups = groups.data();
  ask.samples = all;
  ask.per_epoch = train_.drop_last ? all / together * together : all;
  ask.per_step = per_step;
  ask.seed = options_.seed;
  ask.shuffle = train_.shuffle;
  order.call(&mortise_order::open, "open", static_cast<const mortise_order_request*>(&ask));
  per_epoch_ = ask.per_epoch;
  order_ = order;
}

Samples::Ordered Samples::provided_order(const Split& s, int64_t epoch) const {
  const auto n = static_cast<size_t>(per_epoch_);
  std::vector<int64_t> numbers(n, -1), before(n, -1);
  order_.call(&mortise_order::epoch, "epoch", epoch, numbers.data(), before.data());
  for (size_t i = 0; i < n; ++i) {
    if (numbers[i] < 0 || numbers[i] >= static_cast<int64_t>(s.numbers->size()) || before[i] < 0)
      throw PluginError(MORTISE_E_PLUGIN,
                        order_.by->id() + " put sample " + std::to_string(numbers[i]) + " in the order of epoch " +
                            std::to_string(epoch) + ", of " + std::to_string(s.numbers->size()),
                        order_.by->id());
    numbers[i] = (*s.numbers)[static_cast<size_t>(numbers[i])];
  }
  return {epoch, shared(std::move(numbers)), shared(std::move(before))};
}

Samples::Ordered Samples::order(const Split& s, int64_t epoch) {
  const bool is_provided = order_ && &s == &train_;
  if (!s.shuffle && !is_provided) return {epoch, s.numbers, nullptr};
  std::lock_guard lock(mutex_);
  Ordered& kept = ordered_[static_cast<size_t>(epoch) % ordered_.size()];
  if (kept.epoch != epoch && is_provided) kept = provided_order(s, epoch);
  if (kept.epoch != epoch) {
    std::vector<int64_t> numbers = *s.numbers;
    shuffle(numbers, options_.seed, "order", epoch);
    kept = {epoch, shared(std::move(numbers)), nullptr};
  }
  return kept;
}

std::vector<int64_t> Samples::Micro::epochs() const {
  if (!before) return std::vector<int64_t>(n, epoch);
  return {before->begin() + first, before->begin() + first + n};
}

Samples::Micro Samples::micro(std::string_view name, int64_t index) {
  const Split& s = split(name);
  const int64_t per_epoch = micros_per_epoch(name);
  Micro m;
  m.split = s.name;
  m.epoch = index / per_epoch;
  const Ordered ordered = order(s, m.epoch);
  m.order = ordered.numbers;
  m.before = ordered.before;
  const int64_t together = s.micro_batch_size * options_.ranks, from = index % per_epoch * together;
  const int64_t here = std::min(together, static_cast<int64_t>(m.order->size()) - from);
  m.first = from + here * options_.rank / options_.ranks;
  m.n = static_cast<uint32_t>(from + here * (options_.rank + 1) / options_.ranks - m.first);
  m.is_fill = m.n == 0;
  if (m.is_fill) m.first = from, m.n = 1;
  return m;
}

}  // namespace mortise
