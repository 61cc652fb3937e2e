// Which checkpoints stay: the rules, and the keys of [checkpoint] that they read. A new rule is a row of the schema
// (core/manifest/core_schema.toml) and these two files.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mortise {

// What [checkpoint] says.
struct Retention {
  int64_t keep = 1;        // so many of the newest stay
  int64_t keep_every = 0;  // and one of each such interval; 0: none
};
// The value of a key of [checkpoint], a length in steps; nothing if it has none.
using CheckpointKey = std::function<std::optional<int64_t>(const std::string& key)>;
Retention read_retention(const CheckpointKey& key);

// What stays whatever [checkpoint] says. -1: there is none.
struct Held {
  int64_t saved = -1;      // the last one that was announced
  int64_t resumed = -1;    // the one that this process went on from
  int64_t confirmed = -1;  // steps up to this one were followed by a good one; the newest checkpoint among them stays
  int64_t best = -1;
  int64_t best_before = -1;  // the best until `best` was; it stays until `best` is confirmed, as what knows it does
};

// The steps that may go, of those that are there, in any order. Ones newer than both `saved` and `resumed` do not
// belong to this run's past: they neither count as newest nor go. What a run resumed from or has just announced must
// not count as old because a damaged or abandoned one bears a higher number.
std::vector<int64_t> steps_to_remove(std::vector<int64_t> there, const Retention& retention, const Held& held);

}  // namespace mortise
