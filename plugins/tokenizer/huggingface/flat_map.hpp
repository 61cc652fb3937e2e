// Whole numbers to small values, in one block of memory: nothing is ever taken out.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace mortise::huggingface {

template <class Value>
class FlatMap {
 public:
  const Value* find(uint64_t key) const {
    if (slots_.empty()) return nullptr;
    for (size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key + 1) return &slots_[i].value;
      if (slots_[i].key == 0) return nullptr;
    }
  }
  // `key` is not the largest number of all.
  Value& operator[](uint64_t key) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    for (size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key + 1) return slots_[i].value;
      if (slots_[i].key != 0) continue;
      slots_[i].key = key + 1;
      ++size_;
      return slots_[i].value;
    }
  }

 private:
  struct Slot {
    uint64_t key = 0;  // one more than the key
    Value value{};
  };
  // The high bits of a product depend on all bits of the key.
  size_t home(uint64_t key) const { return static_cast<size_t>(key * 0x9E3779B97F4A7C15u >> shift_); }
  void grow() {
    std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 64 : 2 * slots_.size()));
    shift_ = slots_.size() == 64 ? 58 : shift_ - 1;
    size_ = 0;
    for (const Slot& s : old)
      if (s.key) (*this)[s.key - 1] = s.value;
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace mortise::huggingface
