// Operators as pairs: the host runs forward with autograd off and builds the node that calls backward.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/host/batch.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/saving.hpp"

namespace mortise {
namespace {

namespace ta = torch::autograd;

constexpr uint32_t kMostArguments = 64;  // as many as `wanted` has bits

// Inside a pair nothing is recorded, and ATen's autocast is off: pairs cast for themselves.
struct InsidePair {
  at::AutoDispatchBelowAutograd below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

// The node of one call of a pair. It remembers the call's record and place, what forward saved, and which parameters
// were used: when backward has returned, each of those uses has arrived.
struct PairNode final : ta::Node {
  const mortise_next& link;
  Host& host;
  mortise_call call;
  const CapturedFrame standing{current_frame()};
  std::vector<mortise_param*> uses;
  std::vector<ta::SavedVariable> saved;
  std::vector<int> edge_of_arg;       // arguments: index of the edge, or -1
  std::vector<int> result_of_output;  // outputs of the graph are the float results
  uint32_t n_results = 0;

  PairNode(const mortise_next& l, Host& h, const mortise_call& c) : link(l), host(h), call(c) {
    set_values(call, nullptr, 0, nullptr, 0);
    if (call.batch) retain(call.batch);
  }
  ~PairNode() override {
    if (call.batch) release(call.batch);
  }
  std::string name() const override { return describe(link, call) + " of plugin " + link.plugin->id; }
  void release_variables() override {
    saved.clear();
    released = true;
  }
  bool released = false;

  ta::variable_list apply(ta::variable_list&& grads) override {
    if (released)
      throw PluginError(MORTISE_E_ARGUMENT,
                        "backward a second time through " + describe(link, call) + ", whose saved tensors were freed");
    if (at::GradMode::is_enabled()) throw PluginError(MORTISE_E_UNSUPPORTED, name() + " has no second derivative");
    InsidePair inside;
    std::vector<at::Tensor> unpacked;
    std::vector<mortise_tensor*> saved_handles, grad_out(n_results, nullptr), grad_in(edge_of_arg.size(), nullptr);
    // Refused if one was written in place since.
    check(guarded([&] {
      for (auto& s : saved) unpacked.push_back(s.unpack(shared_from_this()));
    }));
    for (auto& t : unpacked) saved_handles.push_back(borrow(t));
    for (size_t o = 0; o < grads.size(); ++o) grad_out[static_cast<size_t>(result_of_output[o])] = borrow(grads[o]);

    const auto n_saved = static_cast<uint32_t>(saved_handles.size()), n_grad_in = static_cast<uint32_t>(grad_in.size());
    mortise_backward b{sizeof b,        n_saved,        n_results, n_grad_in, saved_handles.data(),
                       grad_out.data(), grad_in.data(), 0};
    for (size_t i = 0; i < edge_of_arg.size(); ++i)
      if (edge_of_arg[i] >= 0 && task_should_compute_output(static_cast<size_t>(edge_of_arg[i])))
        b.wanted |= uint64_t{1} << i;

    const mortise_status status = run_backward(b);
    ta::variable_list out(static_cast<size_t>(num_outputs()));
    for (size_t i = 0; i < grad_in.size(); ++i) {
      at::Tensor g = take(grad_in[i]);
      if (edge_of_arg[i] >= 0) out[static_cast<size_t>(edge_of_arg[i])] = std::move(g);
    }
    check(status);
    for (mortise_param* p : uses) host.parameters().arrive(*p);
    return out;
  }

  void check(mortise_status status) const {
    if (status != MORTISE_OK) throw_status(status, link.plugin->id, "backward of " + describe(link, call));
  }

  mortise_status run_backward(mortise_backward& b) {
    SegmentFrame counts;
    std::vector<mortise_param*> ignored;
    Frame frame = standing.frame(counts);
    frame.call = &call;
    frame.uses = &ignored;  // a value used again by backward is no new use
    FrameScope scope(frame);
    clear_error();
    return call_plugin({link.plugin->id, "backward", view(call.path)}, link.op->backward, link.self, &call, &b);
  }
};

using ForwardResult = Tape::Record;  // its `results` only when it is kept

// Runs forward and collects what it saved.
ForwardResult forward(const mortise_next& link, mortise_call& call) {
  ForwardResult r;
  mortise_saved saved[MORTISE_MAX_SAVED] = {};
  uint32_t n = 0;
  mortise_status status;
  {
    InsidePair inside;
    Frame frame = *current_frame();
    frame.uses = &r.uses;
    FrameScope scope(frame);
    status = call_plugin({link.plugin->id, link.point, view(call.path)}, link.op->forward, link.self, &call,
                         static_cast<mortise_saved*>(saved), &n);
  }
  if (status == MORTISE_OK && n > MORTISE_MAX_SAVED)
    throw PluginError(MORTISE_E_ARGUMENT, describe(link, call) + " saves " + std::to_string(n) + " tensors; at most " +
                                              std::to_string(MORTISE_MAX_SAVED));
  for (uint32_t i = 0; i < n && i < MORTISE_MAX_SAVED; ++i) {
    SavedEntry e{saved[i].from, saved[i].index, take(saved[i].tensor), {}};
    if (e.from == MORTISE_SAVE_CAST && e.tensor.defined()) e.cast = e.tensor.scalar_type();
    r.saved.push_back(std::move(e));
  }
  if (status != MORTISE_OK) throw as_thrown(status);
  return r;
}

void check_entries(const mortise_next& link, const mortise_call& call, const std::vector<SavedEntry>& saved) {
  for (const auto& e : saved) {
    const uint32_t limit = e.from == MORTISE_SAVE_OUTPUT ? call.n_results : call.n_args;
    if (e.from > MORTISE_SAVE_CAST || (e.from != MORTISE_SAVE_OWN && e.index >= limit))
      throw PluginError(MORTISE_E_ARGUMENT,
                        describe(link, call) + " saves something that is neither an argument, a result nor its own");
  }
}

// A result must be memory of its own: with that of an argument it would carry two histories, with that of a parameter
// give it one.
void check_results(const mortise_next& link, Host& host, const mortise_call& call, const ForwardResult& r) {
  const auto refuse = [&](const std::string& what) {
    throw PluginError(MORTISE_E_ARGUMENT, describe(link, call) + " returned " + what +
                                              " or a view of it; an operator pair returns new tensors");
  };
  for (uint32_t i = 0; i < call.n_results; ++i) {
    const at::Tensor out = tensor_of(call.results[i]);
    if (!out.defined() || !out.has_storage() || out.numel() == 0) continue;
    const auto alias_of = [&](const at::Tensor& t) { return t.defined() && t.has_storage() && out.is_alias_of(t); };
    for (uint32_t a = 0; a < call.n_args; ++a)
      if (alias_of(tensor_of(call.args[a]))) refuse("argument " + std::to_string(a));
    for (uint32_t before = 0; before < i; ++before)
      if (alias_of(tensor_of(call.results[before]))) refuse("result " + std::to_string(before));
    for (const mortise_param* p : r.uses)
      if (alias_of(host.parameters().state(*p).value)) refuse("parameter " + p->name);
  }
}

void build_node(const mortise_next& link, Host& host, mortise_call& call, ForwardResult r) {
  if (call.n_args > kMostArguments)
    throw PluginError(MORTISE_E_ARGUMENT, describe(link, call) + " has " + std::to_string(call.n_args) +
                                              " arguments; a pair has at most " + std::to_string(kMostArguments));
  auto node = std::shared_ptr<PairNode>(new PairNode(link, host, call), ta::deleteNode);
  node->uses = std::move(r.uses);
  node->n_results = call.n_results;

  ta::edge_list edges;
  for (uint32_t a = 0; a < call.n_args; ++a) {
    const at::Tensor t = tensor_of(call.args[a]);
    const bool wanted = t.defined() && t.requires_grad();
    node->edge_of_arg.push_back(wanted ? static_cast<int>(edges.size()) : -1);
    if (wanted) edges.push_back(ta::impl::gradient_edge(t));
  }
  node->set_next_edges(std::move(edges));

  for (uint32_t i = 0; i < call.n_results; ++i) {
    at::Tensor t = tensor_of(call.results[i]);
    if (!t.defined() || !ta::isDifferentiableType(t.scalar_type())) continue;
    if (t.is_view()) {  // of memory of its own; a model that writes it in place must find our history, not that of the
                        // base
      t = t.tensor_data();
      take(call.results[i].v.t);
      call.results[i] = value_of(t);
    }
    ta::set_history(t, node);
    node->result_of_output.push_back(static_cast<int>(i));
  }
  for (auto& e : r.saved) {
    switch (e.from) {
      case MORTISE_SAVE_INPUT: node->saved.push_back(saved_for_backward(tensor_of(call.args[e.index]), false)); break;
      case MORTISE_SAVE_OUTPUT:
        node->saved.push_back(saved_for_backward(tensor_of(call.results[e.index]), true));
        break;
      // Its own tensor may be a result all the same; as an input it would keep the node alive for ever.
      default: node->saved.push_back(saved_for_backward(e.tensor, e.tensor.defined() && e.tensor.grad_fn() == node));
    }
  }
}

bool wants_graph(const mortise_call& call, const ForwardResult& r) {
  if (!(call.flags & MORTISE_GRAD) || !at::GradMode::is_enabled()) return false;
  return any_requires_grad(call.args, call.n_args) ||
         std::ranges::any_of(r.uses, [](const mortise_param* p) { return p->info.trainable; });
}

// The replay of a kept operator: its kernel is skipped, its inputs are the fresh ones.
ForwardResult replay(const mortise_next& link, const Tape::Record& record, mortise_call& call) {
  for (size_t i = 0; i < record.results.size(); ++i)
    if (record.results[i].defined() && record.results[i]._version() != record.versions[i])
      throw PluginError(MORTISE_E_ARGUMENT,
                        describe(link, call) + " was kept, and what it gave was written in place afterwards");
  for (const SavedEntry& e : record.saved)
    if (e.tensor.defined() && e.tensor._version() != e.version)
      throw PluginError(MORTISE_E_ARGUMENT,
                        describe(link, call) + " was kept, and what it saved was written in place afterwards");
  ForwardResult r{{}, {}, record.saved, record.uses};
  for (auto& e : r.saved)
    if (e.from == MORTISE_SAVE_CAST) {
      at::NoGradGuard no_grad;
      e.tensor = tensor_of(call.args[e.index]).to(e.cast);
    }
  for (uint32_t i = 0; i < call.n_results && i < record.results.size(); ++i)
    call.results[i] = value_of(record.results[i].defined() ? record.results[i].tensor_data() : at::Tensor());
  return r;
}

void record_results(Tape& tape, uint64_t key, const mortise_call& call, const ForwardResult& r) {
  Tape::Record record = r;
  for (uint32_t i = 0; i < call.n_results; ++i) {
    const at::Tensor t = tensor_of(call.results[i]);
    record.results.push_back(t);
    record.versions.push_back(t.defined() ? t._version() : 0);
  }
  for (auto& e : record.saved) {
    if (e.from == MORTISE_SAVE_CAST) e.tensor = at::Tensor();  // made again from the new argument
    if (e.tensor.defined()) e.version = e.tensor._version();
  }
  tape.records[key] = std::move(record);
}

}  // namespace

void run_operator(const mortise_next& link, mortise_call& call) {
  const Frame& frame = *current_frame();
  Host& host = static_cast<Host&>(*link.plugin->owner);
  const bool kept = frame.tape && call.layer && frame.tape->keeps(static_cast<int>(call.point));
  if (!MORTISE_HAS(link.op, backward)) {  // a composite: made of points and ATen operators, under autograd
    if (kept)
      throw PluginError(MORTISE_E_UNSUPPORTED,
                        describe(link, call) +
                            " cannot be kept: it has no backward of its own; keep the operators that it is made of");
    mortise_saved saved[MORTISE_MAX_SAVED] = {};
    uint32_t n = 0;
    const mortise_status status = call_plugin({link.plugin->id, link.point, view(call.path)}, link.op->forward,
                                              link.self, &call, static_cast<mortise_saved*>(saved), &n);
    for (uint32_t i = 0; i < n && i < MORTISE_MAX_SAVED; ++i) take(saved[i].tensor);
    if (status != MORTISE_OK) throw as_thrown(status);
    if (n > 0)
      throw PluginError(MORTISE_E_ARGUMENT, describe(link, call) + " saves " + std::to_string(n) +
                                                " tensors, and has no backward that they could be for");
    if (host.checks_dtypes) check_result_dtypes(link, host, call, nullptr);
    return;
  }
  Tape* tape = kept ? frame.tape : nullptr;
  const uint64_t key = call.layer ? Tape::key(call.layer->index, frame.nth) : 0;

  ForwardResult r;
  const Tape::Record* recorded = nullptr;
  if (tape && (call.flags & MORTISE_REPLAY))
    if (const auto found = tape->records.find(key); found != tape->records.end()) recorded = &found->second;
  if (recorded) {
    r = replay(link, *recorded, call);
  } else {
    r = forward(link, call);
    check_entries(link, call, r.saved);
    check_results(link, host, call, r);
    if (host.checks_dtypes) check_result_dtypes(link, host, call, &r.uses);
    for (mortise_param* p : r.uses) host.parameters().count_use(*p, call.flags);
    if (tape && (call.flags & MORTISE_FIRST_PASS)) record_results(*tape, key, call, r);
  }
  if (wants_graph(call, r)) build_node(link, host, call, std::move(r));
}

}  // namespace mortise
