// How the ranks of a run stand to one another: what plugin.toml says of axes, and the groups that `comm` makes of them.
#pragma once
#include "core/declare/declared.hpp"

namespace mortise {

// Meets the other ranks, unless the run is only planned. Throws Failure: the axes do not fit the ranks.
void join_ranks(Declared& d, const DeclareRequest& request);
// What rank `number` says, on every rank; `key` once a run.
std::string said_by(const Services& services, int32_t number, std::string_view key, const std::string& own);
// What each says, in order of rank; likewise.
std::vector<std::string> said_by_each(const Services& services, const std::string& key, const std::string& own);
// What every parameter says of its replicas.
void count_replicas(Declaration& declaration, const Mesh& mesh);

// What holds of the sums of several ranks, by core/plan/proof.hpp; of one there is nothing. Throws Failure: it does not
// hold.
std::vector<std::string> proof_of(const Declared& d);

}  // namespace mortise
