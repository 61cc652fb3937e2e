#include "core/loop/feed.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/initial.hpp"
#include "mortise/philox.h"

namespace mortise {
namespace {

std::vector<int64_t> first(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// Fisher and Yates with Philox bits: the same order for a seed, a stream and an epoch, wherever it is made.
std::vector<int64_t> permutation(int64_t n, uint64_t seed, std::string_view stream, int64_t epoch) {
  std::vector<int64_t> p = first(n);
  const uint64_t key64 = seed * 0x9E3779B97F4A7C15u ^ hash_text(stream);
  const uint32_t key[2] = {static_cast<uint32_t>(key64), static_cast<uint32_t>(key64 >> 32)};
  for (int64_t i = n - 1; i > 0; --i) {
    uint32_t w[4];
    mortise_philox_words(key, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(epoch), 0,
                         w);
    const uint64_t bits = uint64_t{w[0]} << 32 | w[1];
    std::swap(p[static_cast<size_t>(i)], p[bits % static_cast<uint64_t>(i + 1)]);
  }
  return p;
}

mortise_split describe(const Provided<mortise_data>& data, std::string_view name) {
  mortise_split s{};
  s.struct_size = sizeof s;
  data.call(&mortise_data::describe, "describe", str(name), &s);
  constexpr int64_t kMostSamples = int64_t{1} << 40;
  if (s.samples < 0 || s.samples > kMostSamples)
    throw PluginError(
        MORTISE_E_PLUGIN,
        data.by->id() + " says that it has " + std::to_string(s.samples) + " samples of `" + std::string(name) + "`",
        data.by->id());
  text_of(s.about, data.by->id());
  return s;
}

void check_fields(const Provided<mortise_data>& data) {
  constexpr uint32_t kMostFields = 64;
  const mortise_data& object = *data.object;
  if (object.n_fields == 0 || object.n_fields > kMostFields || !object.fields)
    throw PluginError(MORTISE_E_PLUGIN,
                      data.by->id() + " says that a sample has " + std::to_string(object.n_fields) +
                          (object.fields ? " fields" : " fields, at NULL"),
                      data.by->id());
  for (uint32_t f = 0; f < object.n_fields; ++f) {
    text_of(object.fields[f].name, data.by->id());
    text_of(object.fields[f].unit, data.by->id());
  }
}

}  // namespace

Feed::Feed(Provided<mortise_data> data, const FeedOptions& options) : data_(data), options_(options) {
  if (const Value* threads = fact_of(*data.by->member->info, "data", "threads"))
    one_thread_ = threads->as_text() == "one";
  check_fields(data);

  const mortise_split validation = options.split.empty() ? mortise_split{} : describe(data, options.split);
  const bool held_out = validation.samples == 0 && options.validation > 0 && options.split == "validation";
  const mortise_split train = options.train || held_out ? describe(data, "train") : mortise_split{};
  train_ = {"train", {}, options.micro_batch_size, options.shuffle, options.drop_last, std::string(view(train.about))};
  validation_ = {options.split, {}, options.eval_micro_batch_size, false, false, std::string(view(validation.about))};
  std::vector<int64_t> to_train, to_validate;
  if (held_out) {
    validation_.name = "train";
    validation_.about = train_.about + ", held out";
    auto p = permutation(train.samples, options.seed, "held out", 0);
    const auto share = std::llround(static_cast<double>(train.samples) * options.validation);
    const auto held = p.begin() + std::clamp<int64_t>(share, 1, std::max<int64_t>(train.samples - 1, 0));
    to_validate.assign(p.begin(), held);
    to_train.assign(held, p.end());
    std::sort(to_train.begin(), to_train.end());
    std::sort(to_validate.begin(), to_validate.end());
  } else {
    to_train = first(train.samples);
    to_validate = first(validation.samples);
  }
  if (options.eval_samples > 0 && static_cast<int64_t>(to_validate.size()) > options.eval_samples)
    to_validate.resize(static_cast<size_t>(options.eval_samples));
  train_.numbers = std::make_shared<const std::vector<int64_t>>(std::move(to_train));
  validation_.numbers = std::make_shared<const std::vector<int64_t>>(std::move(to_validate));
  if (options.train && micros_per_epoch("train") == 0)
    throw PluginError(MORTISE_E_DATA, data.by->id() + " has " + std::to_string(samples("train")) +
                                          " samples to train on, too few for one micro-batch of " +
                                          std::to_string(options.micro_batch_size));
}

int64_t Feed::samples(std::string_view name) const { return static_cast<int64_t>(split(name).numbers->size()); }

int64_t Feed::micros_per_epoch(std::string_view name) const {
  const Split& s = split(name);
  const int64_t together = s.micro_batch_size * options_.ranks, n = samples(name);
  return s.drop_last ? n / together : (n + together - 1) / together;
}

Feed::Numbers Feed::order(const Split& s, int64_t epoch) {
  if (!s.shuffle) return s.numbers;
  std::lock_guard lock(order_mutex_);
  if (ordered_epoch_ != epoch) {
    auto numbers = permutation(static_cast<int64_t>(s.numbers->size()), options_.seed, "order", epoch);
    for (auto& i : numbers) i = (*s.numbers)[static_cast<size_t>(i)];
    ordered_ = std::make_shared<const std::vector<int64_t>>(std::move(numbers));
    ordered_epoch_ = epoch;
  }
  return ordered_;
}

mortise_batch* Feed::load(std::string_view name, int64_t index) {
  const Split& s = split(name);
  const int64_t per_epoch = micros_per_epoch(name), epoch = index / per_epoch;
  const Numbers all = order(s, epoch);
  const int64_t begin = ((index % per_epoch) * options_.ranks + options_.rank) * s.micro_batch_size;
  const int64_t n = std::clamp<int64_t>(static_cast<int64_t>(all->size()) - begin, 0, s.micro_batch_size);

  mortise_rows rows;
  rows.rows.assign(static_cast<size_t>(n), std::vector<std::vector<int64_t>>(data_.object->n_fields));
  {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (one_thread_) lock.lock();
    data_.call(&mortise_data::get, "get", str(s.name), all->data() + begin, static_cast<uint32_t>(n), &rows);
  }
  const auto is_empty = [](const auto& row) { return std::ranges::all_of(row, &std::vector<int64_t>::empty); };
  if (n > 0 && std::ranges::all_of(rows.rows, is_empty))
    throw PluginError(MORTISE_E_PLUGIN,
                      data_.by->id() + " gave " + std::to_string(n) + " samples of `" + s.name + "` without an element",
                      data_.by->id());
  for (const auto& row : rows.rows)
    for (const auto& field : row)
      if (options_.sequence_length > 0 && static_cast<int64_t>(field.size()) > options_.sequence_length) {
        if (!options_.truncate)
          throw PluginError(MORTISE_E_DATA, "a sample is " + std::to_string(field.size()) +
                                                " long, data.sequence_length is " +
                                                std::to_string(options_.sequence_length) + " and data.truncate is off");
        ++cut_;
        break;
      }
  return collate(rows, data_.object->fields, data_.object->n_fields, options_.sequence_length,
                 options_.pad_to_multiple);
}

}  // namespace mortise
