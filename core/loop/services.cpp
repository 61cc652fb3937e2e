#include "core/loop/services.hpp"

#include <algorithm>

#include "core/host/error.hpp"
#include "core/host/handle.hpp"

namespace mortise {
namespace {

Services& services_of(mortise_host* h) { return *static_cast<Services*>(host_of(h).loop); }

void only_in(Services& s, Filter filter, const char* what) {
  if (s.filter != filter) throw PluginError(MORTISE_E_ARGUMENT, what);
}

void loop_clock(mortise_host* h, mortise_clock* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "the clock was asked for with NULL to put it");
  *out = services_of(h).clock;
  out->struct_size = sizeof *out;
}
void loop_ledger(mortise_host* h, const mortise_ledger** out) {
  if (!services_of(h).ledger) throw PluginError(MORTISE_E_ARGUMENT, "there is no ledger before the run begins");
  *out = &services_of(h).ledger->c();
}
void loop_set_window(mortise_host* h, int32_t micros) {
  only_in(services_of(h), Filter::kWindow, "the window is set in step.window only");
  must_write(h, "micros");
  if (micros < 1) throw PluginError(MORTISE_E_ARGUMENT, "a step of " + std::to_string(micros) + " micro-batches");
  services_of(h).window = micros;
}
void loop_vote(mortise_host* h, mortise_tensor* ok) {
  only_in(services_of(h), Filter::kVerdict, "votes are cast in step.verdict only");
  services_of(h).ledger->vote(share(ok));
}
void loop_multiply(mortise_host* h, mortise_tensor* factor) {
  only_in(services_of(h), Filter::kTransform, "the multiplier is changed in grad.transform only");
  must_write(h, "multiplier");
  services_of(h).ledger->multiply(share(factor));
}
void loop_term(mortise_host*, mortise_str name, mortise_tensor* sum, mortise_str unit, double weight) {
  const Frame* f = current_frame();
  if (!f || !f->micro) throw PluginError(MORTISE_E_ARGUMENT, "a term of the loss is given inside `forward` only");
  if (f->call->flags & MORTISE_REPLAY) return;  // counted in the first pass
  const at::Tensor t = share(sum);
  if (!t.defined() || t.numel() != 1)
    throw PluginError(MORTISE_E_SHAPE,
                      "the term `" + std::string(view(name)) + "` is one number, summed over the micro-batch");
  static_cast<Terms*>(f->micro)->push_back({std::string(view(name)), std::string(view(unit)), weight, t});
}
void loop_request(mortise_host* h, uint32_t what, mortise_str reason) {
  Services& s = services_of(h);
  if (what != MORTISE_STOP && what != MORTISE_ABORT)
    throw PluginError(MORTISE_E_ARGUMENT, "there is no request " + std::to_string(what));
  if (s.requested >= what) return;
  s.requested = what;
  s.reason = view(reason);
  s.requested_by = plugin_of(h).id;
}

void model_forward(mortise_host* h, mortise_batch* batch, uint32_t mode, uint32_t want, mortise_value* results,
                   uint32_t n) {
  if (!services_of(h).forward) throw PluginError(MORTISE_E_ARGUMENT, "the model is not built yet");
  services_of(h).forward(batch, mode, want, results, n);
}

// The tokenizer's object gets its own `self`; others reach it through the host.
void tokenizer_size(mortise_host* h, int64_t* n) { services_of(h).tokenizer.call(&mortise_tokenizer::size, "size", n); }
void tokenizer_encode(mortise_host* h, mortise_str text, int64_t* ids, size_t room, size_t* needed) {
  services_of(h).tokenizer.call(&mortise_tokenizer::encode, "encode", text, ids, room, needed);
}
void tokenizer_decode(mortise_host* h, const int64_t* ids, size_t n, char* text, size_t room, size_t* needed) {
  services_of(h).tokenizer.call(&mortise_tokenizer::decode, "decode", ids, n, text, room, needed);
}

void state_keep(mortise_host* h, const mortise_blob* blob) {
  const PluginHost& by = plugin_of(h);
  if (!blob || blob->struct_size < sizeof *blob || !blob->save || !blob->load)
    throw PluginError(MORTISE_E_ARGUMENT, by.id + " keeps a state without its size, its `save` or its `load`", by.id);
  text_of(blob->name);
  std::vector<KeptBlob>& all = services_of(h).blobs;
  const std::string_view name = view(blob->name);
  if (name.empty() ||
      std::ranges::any_of(all, [&](const KeptBlob& b) { return b.host == &by && view(b.blob->name) == name; }))
    throw PluginError(MORTISE_E_ARGUMENT, by.id + " keeps `" + std::string(name) + "` twice, or without a name");
  all.push_back({&by, blob});
}

constexpr mortise_loop_api kLoopApi = {sizeof(mortise_loop_api), at_edge<loop_clock>,  at_edge<loop_ledger>,
                                       at_edge<loop_set_window>, at_edge<loop_vote>,   at_edge<loop_multiply>,
                                       at_edge<loop_term>,       at_edge<loop_request>};
constexpr mortise_model_api kModelApi = {sizeof(mortise_model_api), at_edge<model_forward>};
constexpr mortise_tokenizer_api kTokenizerApi = {sizeof(mortise_tokenizer_api), at_edge<tokenizer_size>,
                                                 at_edge<tokenizer_encode>, at_edge<tokenizer_decode>};
constexpr mortise_state_api kStateApi = {sizeof(mortise_state_api), at_edge<state_keep>};

}  // namespace

void register_services(Host& host, Services& services) {
  host.loop = &services;
  host.register_table("mortise.loop/0", &kLoopApi);
  host.register_table("mortise.model/0", &kModelApi);
  host.register_table("mortise.state/0", &kStateApi);
  if (services.tokenizer) host.register_table("mortise.tokenizer/0", &kTokenizerApi);
}

}  // namespace mortise
