// What holds of every input of a parser, for the fuzzer and for the seeds alike. A property that does not hold ends the
// process.
#pragma once
#include <string_view>

namespace mortise::fuzz {

// True: taken.
bool try_safetensors(std::string_view file);
bool try_manifest(std::string_view text);
// A manifest of this body with the hash that belongs to it: what a hand would do that edits one.
bool try_manifest_body(std::string_view body);
// state.json, of the step that it says; and plugins/ID.json.
bool try_run_state(std::string_view text);
bool try_blobs(std::string_view text);

}  // namespace mortise::fuzz
