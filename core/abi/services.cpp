#include "core/abi/services.hpp"

#include <algorithm>

#include "core/abi/edge.hpp"
#include "core/abi/error.hpp"
#include "core/abi/tables.hpp"
#include "core/base/text.hpp"

namespace mortise {
namespace {

Services& services_of(mortise_host* h) { return edge_of(h).services; }

LoopServices& loop_of(mortise_host* h, const char* what) {
  LoopServices* loop = edge_of(h).loop;
  if (!loop) throw PluginError(MORTISE_E_ARGUMENT, std::string("there is no ") + what + " before the run begins");
  return *loop;
}

void only_in(mortise_host* h, Filter filter, const char* what) {
  if (services_of(h).filter != filter) throw PluginError(MORTISE_E_ARGUMENT, what);
}

void loop_clock(mortise_host* h, mortise_clock* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "the clock was asked for with NULL to put it");
  fill_struct(out, services_of(h).clock);
}
void loop_ledger(mortise_host* h, const mortise_ledger** out) { *out = &loop_of(h, "ledger").ledger(); }
void loop_set_window(mortise_host* h, int32_t micros) {
  only_in(h, Filter::kWindow, "the window is set in step.window only");
  must_write(h, "micros");
  if (micros < 1) throw PluginError(MORTISE_E_ARGUMENT, "a step of " + std::to_string(micros) + " micro-batches");
  services_of(h).window = micros;
}
void loop_vote(mortise_host* h, mortise_tensor* ok) {
  only_in(h, Filter::kVerdict, "votes are cast in step.verdict only");
  must_write(h, "votes");
  loop_of(h, "verdict").vote(ok);
}
void loop_multiply(mortise_host* h, mortise_tensor* factor) {
  only_in(h, Filter::kTransform, "the multiplier is changed in grad.transform only");
  must_write(h, "multiplier");
  loop_of(h, "multiplier").multiply(factor);
}
void loop_set_scale(mortise_host* h, mortise_tensor* scale) {
  only_in(h, Filter::kScale, "the factor of the loss is set in run.begin and step.commit only");
  must_write(h, "scale");
  loop_of(h, "scale").set_scale(scale);
}
void loop_report(mortise_host* h, mortise_str name, mortise_tensor* number, mortise_str unit) {
  loop_of(h, "step").report(view(name), number, view(unit));
}
void loop_metric(mortise_host* h, mortise_str name, double number) {
  loop_of(h, "evaluation").metric(view(name), number);
}
void loop_term(mortise_host* h, mortise_str name, mortise_tensor* sum, mortise_str unit, double weight) {
  loop_of(h, "loss").term(view(name), sum, view(unit), weight);
}
void loop_attach_term(mortise_host* h, mortise_str name, mortise_tensor* carrier, mortise_tensor* sum, mortise_str unit,
                      double weight, mortise_tensor** out) {
  loop_of(h, "loss").attach_term(view(name), carrier, sum, view(unit), weight, out);
}
void loop_recorded(mortise_host* h, uint64_t* token) {
  if (!token) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where a result is to be put");
  *token = loop_of(h, "step").recorded();
}
void loop_replayed(mortise_host* h, uint64_t token) { loop_of(h, "step").replayed(token); }
void loop_request(mortise_host* h, uint32_t what, mortise_str reason) {
  if (what != MORTISE_STOP && what != MORTISE_ABORT)
    throw PluginError(MORTISE_E_ARGUMENT, "there is no request " + std::to_string(what));
  services_of(h).requests.add({what, std::string(view(reason)), plugin_of(h).id});
}

void loop_column(mortise_host* h, mortise_str name, mortise_value value) {
  if (!services_of(h).add_column)
    throw PluginError(MORTISE_E_ARGUMENT, "columns are added in a listener of `record` only");
  if (value.tag != MORTISE_FLOAT && value.tag != MORTISE_INT && value.tag != MORTISE_TEXT)
    throw PluginError(MORTISE_E_ARGUMENT,
                      "the column `" + std::string(view(name)) + "` is neither a number nor a text");
  if (value.tag == MORTISE_TEXT) text_of(value.v.s);
  // At `run.begin` and `run.end` nobody has been told of the record yet.
  const PluginCall* call = current_call();
  const std::vector<std::string>& late = plugin_of(h).told_before;
  if (!late.empty() && call && call->what == "record")
    throw PluginError(MORTISE_E_PLUGIN,
                      plugin_of(h).id + " adds the column `" + std::string(view(name)) + "` to a record after " +
                          join(late, ", ") + " got it: where it is to appear, it would not\n  fix: in plugin.toml of " +
                          plugin_of(h).id + ": listens = [{ point = \"record\", writes = [\"columns\"] }]");
  services_of(h).add_column(view(name), value);
}

void model_forward(mortise_host* h, mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results,
                   uint32_t n) {
  if (!batch) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL for the batch");
  if (mode >= MORTISE_MODES) throw PluginError(MORTISE_E_ARGUMENT, "there is no mode " + std::to_string(mode));
  loop_of(h, "model").forward(batch, mode, want, results, n);
}

// The tokenizer's object gets its own `self`; others reach it through the host.
void tokenizer_size(mortise_host* h, int64_t* n) { services_of(h).tokenizer.call(&mortise_tokenizer::size, "size", n); }
void tokenizer_encode(mortise_host* h, mortise_str text, int64_t* ids, size_t room, size_t* needed) {
  services_of(h).tokenizer.call(&mortise_tokenizer::encode, "encode", text, ids, room, needed);
}
void tokenizer_decode(mortise_host* h, const int64_t* ids, size_t n, char* text, size_t room, size_t* needed) {
  services_of(h).tokenizer.call(&mortise_tokenizer::decode, "decode", ids, n, text, room, needed);
}
void tokenizer_special(mortise_host* h, mortise_str role, int64_t* id) {
  const Provided<mortise_tokenizer>& tokenizer = services_of(h).tokenizer;
  if (!tokenizer.has(&mortise_tokenizer::special))
    throw PluginError(MORTISE_E_NOT_FOUND, "the tokenizer has no special tokens");
  tokenizer.call(&mortise_tokenizer::special, "special", role, id);
}

void state_keep(mortise_host* h, const mortise_blob* blob) {
  const PluginHost& by = plugin_of(h);
  if (!blob || blob->struct_size < sizeof *blob || !blob->save || !blob->load)
    throw PluginError(MORTISE_E_ARGUMENT, by.id + " keeps a state without its size, its `save` or its `load`", by.id);
  text_of(blob->name);
  std::vector<KeptBlob>& all = services_of(h).blobs;
  const std::string_view name = view(blob->name);
  const auto same = [&](const KeptBlob& b) { return b.host == &by && view(b.blob->name) == name; };
  if (name.empty() || std::ranges::any_of(all, same))
    throw PluginError(MORTISE_E_ARGUMENT, by.id + " keeps `" + std::string(name) + "` twice, or without a name");
  all.push_back({&by, blob});
}

}  // namespace

const mortise_loop_api kLoopApi = {sizeof(mortise_loop_api),  at_edge<loop_clock>,    at_edge<loop_ledger>,
                                   at_edge<loop_set_window>,  at_edge<loop_vote>,     at_edge<loop_multiply>,
                                   at_edge<loop_term>,        at_edge<loop_request>,  at_edge<loop_column>,
                                   at_edge<loop_set_scale>,   at_edge<loop_report>,   at_edge<loop_metric>,
                                   at_edge<loop_attach_term>, at_edge<loop_recorded>, at_edge<loop_replayed>};
const mortise_model_api kModelApi = {sizeof(mortise_model_api), at_edge<model_forward>};
const mortise_tokenizer_api kTokenizerApi = {sizeof(mortise_tokenizer_api), at_edge<tokenizer_size>,
                                             at_edge<tokenizer_encode>, at_edge<tokenizer_decode>,
                                             at_edge<tokenizer_special>};
const mortise_state_api kStateApi = {sizeof(mortise_state_api), at_edge<state_keep>};

}  // namespace mortise
