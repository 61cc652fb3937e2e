#include "core/abi/states.hpp"

#include <algorithm>
#include <charconv>

#include "core/abi/error.hpp"
#include "core/abi/fields.hpp"
#include "core/base/dtype.hpp"
#include "core/base/text.hpp"
#include "mortise/cpp/strings.hpp"

namespace mortise {
namespace {

// N of "blocks:N"; 0: the text is no such relation.
int64_t block_of(std::string_view relation) {
  constexpr std::string_view kBlocks = "blocks:";
  if (!relation.starts_with(kBlocks)) return 0;
  const std::string_view number = relation.substr(kBlocks.size());
  int64_t n = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
  return error == std::errc() && end == number.data() + number.size() && n > 0 ? n : 0;
}

int64_t numel_of(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

// Of a parameter of these sizes.
std::vector<int64_t> state_sizes(const mortise_param& p, std::vector<int64_t> sizes, std::string_view relation,
                                 const std::string& plugin) {
  if (relation == "same" || relation == "copy") return sizes;
  if (relation == "scalar") return {};
  if (relation == "rows" && !sizes.empty()) {
    sizes.pop_back();
    return sizes;
  }
  if (relation == "columns" && sizes.size() > 1) {
    sizes.erase(sizes.end() - 2);
    return sizes;
  }
  if (const int64_t n = block_of(relation)) return {numel_of(sizes) / n + (numel_of(sizes) % n != 0)};
  throw PluginError(MORTISE_E_ARGUMENT,
                    plugin + " has a state of " + p.name + " with the relation `" + std::string(relation) +
                        "`; relations are same, copy, rows, columns, scalar, blocks:N",
                    plugin);
}

}  // namespace

void add_state(ParamStates& beside, const mortise_state_spec& s, const std::string& plugin) {
  const mortise_param& p = *beside.param;
  const auto refuse = [&](const std::string& what) {
    throw PluginError(MORTISE_E_PLUGIN, plugin + " " + what, plugin);
  };
  const std::string name(text_of(s.name, plugin));
  if (beside.states.size() >= MORTISE_MAX_STATES)
    refuse("keeps more than " + std::to_string(MORTISE_MAX_STATES) + " states of " + p.name);
  if (name.empty() || std::ranges::any_of(beside.states, [&](const StateSpec& other) { return other.name == name; }))
    refuse("names a state of " + p.name + " `" + name + "` twice, or not at all");
  if (const std::string shown = escape_control(name); shown != name)  // no file of a checkpoint could hold it
    refuse("names a state of " + p.name + " `" + shown + "`, with characters that a line cannot show");
  if (dtype_bytes(s.dtype) == 0)
    refuse("keeps the state `" + name + "` in the element type " + std::to_string(s.dtype) + ", which is none");
  if (std::byte element[8]; !put_element(s.dtype, s.fill, element))
    refuse("fills the state `" + name + "` with " + formatted("%g", s.fill) + ", which its element type cannot hold");
  const std::string_view relation = text_of(s.relation, plugin);
  const int64_t per = relation == "same" || relation == "copy" ? 1 : block_of(relation);
  StateSpec& added = beside.states.emplace_back(
      StateSpec{name, state_sizes(p, p.sizes, relation, plugin), s.dtype, s.fill, relation == "copy", per});
  if (!p.is_placed()) return;
  added.whole = state_sizes(p, p.placement.whole, relation, plugin);
  if (p.placement.owner < 0 && per != 1)
    refuse("keeps `" + name + "` (" + std::string(relation) + ") of " + p.name + ", of which ranks along `" +
           std::string(view(p.info.axis)) + "` have parts: it can keep what has the parameter's shape alone");
  if (p.info.numel == 0 && numel_of(added.sizes) > 0) added.sizes = {0};  // columns of no rows, a number of nothing
}

Piece piece_of(const StateSpec& state, const Piece& piece) {
  if (state.per > 0) return {piece.offset / state.per, (piece.length + state.per - 1) / state.per};
  return {0, piece.length > 0 ? numel_of(state.sizes) : 0};
}

int64_t bytes_of(const std::vector<ParamStates>& all) {
  int64_t bytes = 0;
  for (const ParamStates& beside : all)
    for (const StateSpec& s : beside.states) {
      int64_t n = numel_of(s.sizes);
      if (!beside.pieces.empty()) n = piece_of(s, beside.own()).length;
      bytes += n * dtype_bytes(s.dtype);
    }
  return bytes;
}

int64_t update_at_most(const ParamStates& beside, int64_t cut) {
  const int64_t n = kUpdateBytes / dtype_bytes(beside.param->info.grad_dtype);
  const auto is_bad = [&](const StateSpec& s) { return s.per == 0 || s.per > n || n % (s.per * MORTISE_STORE_BLOCK); };
  return cut > n || n % cut != 0 || std::ranges::any_of(beside.states, is_bad) ? 0 : n;
}

std::vector<Piece> parts_of(const ParamStates& beside) {
  const Piece own = beside.own();
  const int64_t at_most = beside.at_most > 0 ? beside.at_most : own.length;
  std::vector<Piece> parts;
  for (int64_t done = 0; done < own.length; done += at_most)
    parts.push_back({own.offset + done, std::min(at_most, own.length - done)});
  return parts;
}

Stored stored_of(const std::vector<ParamStates>& all) {
  Stored found;
  UpdatePieces pieces;
  int64_t piece = 0;
  for (const ParamStates& beside : all) {
    if (!beside.param->is_updated_on_host()) continue;
    for (const Piece& part : parts_of(beside)) {
      if (pieces.begins(part.length * dtype_bytes(beside.param->info.grad_dtype))) piece = 0;
      if (!beside.param->is_stored()) continue;
      for (const StateSpec& s : beside.states) {
        const int64_t bytes = in_blocks(piece_of(s, part).length * dtype_bytes(s.dtype));
        found.bytes += bytes;
        piece += bytes;
      }
      found.largest_piece = std::max(found.largest_piece, piece);
    }
  }
  return found;
}

}  // namespace mortise
