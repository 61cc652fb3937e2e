// What of a run outlives it: parameters, optimizer states, the counts and the cursor, what plugins keep. Captured
// between steps, stored as a checkpoint, restored from one bit for bit.
//
//   model/model.EXT        masters, under their declared names
//   model/config.json      what Hugging Face makes the model of, if the model's plugin.toml has its names; beside it
//                          what else the folder had that the run began from, and the tokenizer's files
//   optimizer/rank-0.EXT   states, as PARAMETER/STATE, whole, of all ranks together
//   state.json             counts, cursor, scale, the best so far
//   data.json              which samples each split had
//   new.json               parameters that the weights of the run did not have, if there are any
//   fixed.json             what of the manifest is fixed for a run (changes.hpp)
//   plugins/ID.json        what plugins keep, as text
//   plugins/ID.rank-0.EXT  what plugins keep beside parameters, likewise
#pragma once
#include <map>
#include <optional>
#include <string>

#include "core/assemble/allocated.hpp"
#include "core/store/checkpoint.hpp"
#include "core/store/run_state.hpp"
#include "core/store/snapshot.hpp"
#include "formats/huggingface/config.hpp"

namespace mortise {

// How the run's format writes tensors; failures of the plugin are Failures.
TensorFormat tensor_format(const Declared& d);

// The text of data.json. Throws Failure (exit 65): it would be too large to be read back.
std::string data_text(const Declared& d);

// The names in new.json. Throws Failure (exit 65): they are none.
std::vector<std::string> parameters_begun_anew(const Found& checkpoint);

// A warning if what is evaluated on, `split` of the manifest, is not what the checkpoint's run had.
std::optional<Diagnostic> changed_data(const Declared& d, const Found& checkpoint, const std::string& split);

// What each rank has a part of, whole, by the file that it is saved in. On the first rank; the others get no tensors.
using Gathered = std::map<std::string, std::vector<NamedState>>;
// Every rank calls it.
Gathered gather(const Runnable& r);
// Of what every rank has whole the masters; and the name of the first of them, of states and of what plugins keep, that
// is not the same on every rank, of which the first rank's is saved. On every rank.
std::vector<std::pair<std::string, at::Tensor>> whole_masters(Host& host);
std::string first_unlike(const Runnable& r);

// Borrows the memory of what lies on the host; what does not is copied, into memory of `earlier` where it has some.
// `beside`: of the folder that the run began from. `gathered`: see above.
Snapshot capture(const Runnable& r, const RunState& state, const huggingface::Beside& beside = {},
                 const Gathered& gathered = {}, Snapshot&& earlier = {});

// From a checkpoint that was verified: parameters, and what plugins keep. Throws Failure (exit 65): it is of another
// model.
RunState restore(const Allocated& a, const Found& checkpoint);
// Everything. Throws Failure (exit 65): it is of another model, optimizer or seed, or of other data.
RunState restore(const Runnable& r, const Found& checkpoint);

}  // namespace mortise
