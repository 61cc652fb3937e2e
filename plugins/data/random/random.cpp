// Random token ids, a pure function of (run.seed, split, sample, element): nothing is kept, and any thread may ask for
// any sample.
#include <numeric>

#include "mortise/cpp/data.hpp"
#include "mortise/cpp/plugin.hpp"
#include "mortise/cpp/text.hpp"

namespace {
using namespace mortise;

// As plugin.toml has them: the product of a 32-bit word and the number of ids is to fit 64 bits, and the positions of
// the longest sample are kept.
constexpr int64_t kHighestId = 2147483647, kLongest = 16'777'216;
constexpr uint32_t kLengthBlock = 0xFFFFFFFF;  // where the draw for a sample's length stands; its elements count from 0

class Random {
 public:
  void open(const mortise_data_request* request) {
    need(api.batch, "mortise.batch/0");
    length_ = request->sequence_length;
    key_[0] = static_cast<uint32_t>(request->seed);
    key_[1] = static_cast<uint32_t>(request->seed >> 32);
    if (length_ < 1)
      throw Error(MORTISE_E_CONFIG, "data.random makes samples and needs a length", "[data] sequence_length = 128");
    if (length_ > kLongest)
      throw Error(MORTISE_E_CONFIG,
                  "data.random makes samples of at most " + with_commas(kLongest) + " ids, data.sequence_length is " +
                      with_commas(length_),
                  "[data] sequence_length = 128");
    if (high_ > kHighestId)
      config::refuse("high", "an id has 31 bits, " + with_commas(high_ - 1) + " has more", "high = 50257");
    if (low_ >= high_)
      config::refuse("low", "no id lies from " + with_commas(low_) + " to below " + with_commas(high_),
                     "low must be less than high");
    if (shortest_ > length_)
      config::refuse("shortest",
                     with_commas(shortest_) + " is longer than data.sequence_length, " + with_commas(length_),
                     "shortest = " + std::to_string(length_));
    positions_.resize(static_cast<size_t>(length_));
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  void describe(mortise_str split, mortise_split* out) {
    const bool validation = view(split) == "validation";
    std::string& about = validation ? about_validation_ : about_train_;
    out->samples = validation ? validation_samples_ : samples_;
    about =
        with_commas(out->samples) + " samples of random ids, " + with_commas(low_) + " to " + with_commas(high_ - 1);
    out->about = str(about);
    if (!MORTISE_HAS_ROOM(out, fingerprint)) return;
    // All that a sample is a function of.
    std::string& fingerprint = validation ? fingerprint_validation_ : fingerprint_train_;
    const std::string lengths = std::to_string(shortest_ > 0 ? shortest_ : length_) + " to " + std::to_string(length_);
    fingerprint = about + ", lengths " + lengths + ", seed " + std::to_string(uint64_t{key_[1]} << 32 | key_[0]);
    out->fingerprint = str(fingerprint);
  }

  void vocabulary(int64_t* size) { *size = high_; }

  void get(mortise_str split, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) {
    const bool validation = view(split) == "validation";
    std::vector<int64_t> ids;
    for (uint32_t row = 0; row < n; ++row) {
      const int64_t sample = numbers[row];
      if (sample < 0 || sample >= (validation ? validation_samples_ : samples_))
        throw Error(MORTISE_E_ARGUMENT, "data.random has no sample " + std::to_string(sample));
      const size_t count = draw(sample, validation, ids);
      put<int64_t>(rows, row, 0, {ids.data(), count});
      put<int64_t>(rows, row, 1, {ids.data() + 1, count});
      put<int64_t>(rows, row, 2, {positions_.data(), count});
    }
  }

 private:
  // Makes the ids of a sample, one more than its length, so that the last one has a next one too. Returns the length.
  size_t draw(int64_t sample, bool validation, std::vector<int64_t>& ids) const {
    uint32_t words[4];
    const auto block = [&](uint32_t index) {
      mortise_philox_words(key_, index, static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32), validation,
                           words);
    };
    // A word as a number from `from` to below `to`; the highest 32 bits of a product, uneven by less than (to - from) /
    // 2^32.
    const auto uniform = [&](uint32_t word, int64_t from, int64_t to) {
      return from + static_cast<int64_t>((uint64_t{word} * static_cast<uint64_t>(to - from)) >> 32);
    };
    size_t count = static_cast<size_t>(length_);
    if (shortest_ > 0) {
      block(kLengthBlock);
      count = static_cast<size_t>(uniform(words[0], shortest_, length_ + 1));
    }
    ids.resize(count + 1);
    for (size_t i = 0; i <= count; ++i) {
      if (i % 4 == 0) block(static_cast<uint32_t>(i / 4));
      ids[i] = uniform(words[i % 4], low_, high_);
    }
    return count;
  }

  const int64_t samples_ = config::integer("samples"), validation_samples_ = config::integer("validation_samples");
  const int64_t low_ = config::integer("low"), high_ = config::integer("high"), shortest_ = config::integer("shortest");
  int64_t length_ = 0;
  uint32_t key_[2] = {};
  std::vector<int64_t> positions_;
  std::string about_train_, about_validation_, fingerprint_train_, fingerprint_validation_;
};

const mortise_data kObject = {sizeof(mortise_data), std::size(kLanguageModelFields), kLanguageModelFields,
                              thunk<&Random::open>, thunk<&Random::describe>,        thunk<&Random::vocabulary>,
                              thunk<&Random::get>};
}  // namespace

MORTISE_PLUGIN(Random, mortise::provide("data", &kObject))
