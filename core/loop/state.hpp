// What of a run outlives it: parameters, optimizer states, the clock and the cursor, what plugins keep. Captured
// between steps, stored as a checkpoint, restored from one bit for bit.
//
//   model/model.EXT        masters, under their declared names
//   model/config.json      what Hugging Face makes the model of, if the model's plugin.toml says it
//   optimizer/rank-N.EXT   states, as PARAMETER/STATE, each with its place in the whole
//   state.json             counts, cursor, scale, the best so far
//   plugins/ID.json        the blobs of mortise.state
#pragma once
#include <map>
#include <string>
#include <vector>

#include "core/loop/format.hpp"
#include "core/loop/run.hpp"
#include "core/store/checkpoint.hpp"

namespace mortise {

struct Snapshot {
  std::map<std::string, std::vector<StoredTensor>> tensors;  // by file, without the format's extension
  std::map<std::string, std::string> texts;                  // by file
  int64_t bytes() const;
};

// Borrows the memory of what lies on the host.
Snapshot capture(Run::Parts& p);
// Copies the tensors, into the memory of an earlier snapshot of the same run where there is one.
void copy_to_host(Snapshot& s, const Snapshot& earlier);
// Throws Failure (exit 74) or PluginError.
CheckpointManifest store(const Snapshot& s, const Format& format, const std::string& root, int64_t step,
                         const std::map<std::string, SavedPlugin>& plugins);
// From the folder of a checkpoint that was verified. Throws Failure (exit 65): it is of another model, optimizer or
// seed.
void restore(Run::Parts& p, const std::string& folder);

}  // namespace mortise
