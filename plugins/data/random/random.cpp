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
constexpr uint32_t kSampleBlock = 0xFFFFFFFF;  // where the draws for a whole sample stand; its elements count from 0

// To classify: ids, the class of the sample, and which ids are no padding where samples are of unlike lengths.
constexpr mortise_field kClassifiedFields[] = {
    sequence_of_ids(MORTISE_STR("input_ids"), {}, 0),
    {sizeof(mortise_field), MORTISE_I64, MORTISE_STR("labels"), {}, -100, nullptr, 0, 0},
    {sizeof(mortise_field), MORTISE_U8, MORTISE_STR("attention_mask"), {}, 0, kSequence, 1, 0}};

// One instance a library, so its object can be filled when it is known what a sample has.
extern mortise_data object;

class Random {
 public:
  Random() {
    object.fields = n_classes_ > 0 ? kClassifiedFields : kLanguageModelFields;
    object.n_fields = n_classes_ > 0 && !is_padded() ? 2 : 3;
    for (int64_t i = 0; i < n_classes_; ++i) class_names_.push_back(std::to_string(i));
    for (const std::string& name : class_names_) class_strs_.push_back(str(name));
  }

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
    if (n_classes_ > 0) about += ", " + with_commas(n_classes_) + (n_classes_ == 1 ? " class" : " classes");
    out->about = str(about);
    if (!MORTISE_HAS_ROOM(out, fingerprint)) return;
    // All that a sample is a function of.
    std::string& fingerprint = validation ? fingerprint_validation_ : fingerprint_train_;
    const std::string lengths = std::to_string(shortest_ > 0 ? shortest_ : length_) + " to " + std::to_string(length_);
    fingerprint = about + ", lengths " + lengths + ", seed " + std::to_string(uint64_t{key_[1]} << 32 | key_[0]);
    out->fingerprint = str(fingerprint);
  }

  void vocabulary(int64_t* size) { *size = high_; }

  void classes(const mortise_str** names, uint32_t* n) {
    *names = class_strs_.data();
    *n = static_cast<uint32_t>(class_strs_.size());
  }

  void get(mortise_str split, const int64_t* numbers, const int64_t*, uint32_t n, mortise_rows* rows) {
    const bool validation = view(split) == "validation";
    Sample s;
    for (uint32_t row = 0; row < n; ++row) {
      const int64_t sample = numbers[row];
      if (sample < 0 || sample >= (validation ? validation_samples_ : samples_))
        throw Error(MORTISE_E_ARGUMENT, "data.random has no sample " + std::to_string(sample));
      draw(sample, validation, s);
      put<int64_t>(rows, row, 0, {s.ids.data(), s.count});
      n_classes_ > 0 ? put_classified(rows, row, s) : put_continued(rows, row, s);
    }
  }

 private:
  // One id more than its length, so that the last one has a next one too.
  struct Sample {
    std::vector<int64_t> ids;
    size_t count = 0;
    int64_t label = 0;
  };

  bool is_padded() const { return shortest_ > 0; }

  void put_continued(mortise_rows* rows, uint32_t row, const Sample& s) const {
    put<int64_t>(rows, row, 1, {s.ids.data() + 1, s.count});
    put<int64_t>(rows, row, 2, {positions_.data(), s.count});
  }

  void put_classified(mortise_rows* rows, uint32_t row, const Sample& s) const {
    put<int64_t>(rows, row, 1, {&s.label, 1});
    if (is_padded()) put<uint8_t>(rows, row, 2, std::vector<uint8_t>(s.count, 1));
  }

  void draw(int64_t sample, bool validation, Sample& s) const {
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
    block(kSampleBlock);
    s.count = static_cast<size_t>(is_padded() ? uniform(words[0], shortest_, length_ + 1) : length_);
    s.label = uniform(words[1], 0, n_classes_);
    s.ids.resize(s.count + 1);
    for (size_t i = 0; i <= s.count; ++i) {
      if (i % 4 == 0) block(static_cast<uint32_t>(i / 4));
      s.ids[i] = uniform(words[i % 4], low_, high_);
    }
  }

  const int64_t samples_ = config::integer("samples"), validation_samples_ = config::integer("validation_samples");
  const int64_t low_ = config::integer("low"), high_ = config::integer("high"), shortest_ = config::integer("shortest");
  const int64_t n_classes_ = config::integer("classes");
  std::vector<std::string> class_names_;
  std::vector<mortise_str> class_strs_;
  int64_t length_ = 0;
  uint32_t key_[2] = {};
  std::vector<int64_t> positions_;
  std::string about_train_, about_validation_, fingerprint_train_, fingerprint_validation_;
};

mortise_data object = {.struct_size = sizeof(mortise_data),
                       .n_fields = std::size(kLanguageModelFields),
                       .fields = kLanguageModelFields,
                       .open = thunk<&Random::open>,
                       .describe = thunk<&Random::describe>,
                       .vocabulary = thunk<&Random::vocabulary>,
                       .get = thunk<&Random::get>,
                       .classes = thunk<&Random::classes>,
                       .groups = nullptr};
}  // namespace

MORTISE_PLUGIN(Random, mortise::provide("data", &object))
