#include "core/host/call.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/abi/error.hpp"
#include "core/host/batch.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"

// A call that was kept: the record, the rest of its chain and its frame.
struct mortise_kept {
  mortise_call call{};
  mortise_next* next = nullptr;
  mortise::CapturedFrame standing;
  mortise::Tape tape;
};

namespace mortise {
namespace {

thread_local Frame* frame_of_thread = nullptr;

mortise_status run_link(const mortise_next& link, mortise_call& call) {
  const PluginCall charged{link.plugin ? std::string_view(link.plugin->id) : std::string_view(), link.point,
                           view(call.path)};
  if (link.wrap) return call_plugin(charged, link.wrap, link.self, &call, link.next);
  if (link.call) return call_plugin(charged, link.call, link.self, &call);
  const PluginScope scope(charged.plugin, charged.what, charged.where);
  return guarded([&] { link.op ? run_operator(link, call) : link.core(call); });
}

void call_next(mortise_host*, mortise_next* next, mortise_call* call) {
  check_call(call);
  invoke(next, *call);
}

void call_layer(mortise_host* h, mortise_layer* layer, const mortise_value* args, uint32_t n, mortise_value* results,
                uint32_t m) {
  Frame* outer = current_frame();
  if (!outer || !outer->call)
    throw PluginError(MORTISE_E_ARGUMENT, "layer " + layer->path + " is called outside of any call");
  if (outer->uses)
    throw PluginError(MORTISE_E_ARGUMENT,
                      "layer " + layer->path + " is called inside an operator pair; a composite has no backward");
  check_call(outer->call);
  mortise_call call = make_call(outer, static_cast<uint32_t>(layer->point), str(layer->path));
  const mortise_next* chain = host_of(h).layer_chain(*layer, call.mode);
  if (!chain)
    throw PluginError(MORTISE_E_INTERNAL,
                      "layer " + layer->path + " has no provider in mode " + std::to_string(call.mode));
  call.layer = layer;
  call.layer_data = layer->data[call.mode];
  set_values(call, args, n, results, m);
  Frame frame = *outer;
  frame.nth = outer->segment ? outer->segment->count(layer->index) : 0;
  invoke(chain, call, frame);
}

void call_keep(mortise_host* h, const mortise_call* call, mortise_next* next, const mortise_str* keep, uint32_t n,
               mortise_kept** out) {
  check_call(call);
  std::unique_ptr<mortise_kept> kept(new mortise_kept{*call, next, CapturedFrame(current_frame()), {}});
  set_values(kept->call, nullptr, 0, nullptr, 0);
  for (uint32_t i = 0; i < n; ++i) {
    const int point = host_of(h).points().find(view(keep[i]));
    if (point < 0)
      throw PluginError(MORTISE_E_CONFIG, "keep: there is no operator `" + std::string(view(keep[i])) + "`");
    kept->tape.points.push_back(point);
  }
  if (kept->call.batch) retain(kept->call.batch);
  *out = kept.release();
}

void call_run(mortise_host*, mortise_kept* kept, uint32_t flags, const mortise_value* args, uint32_t n,
              mortise_value* results, uint32_t m) {
  mortise_call call = kept->call;
  call.flags = flags | (kept->call.flags & MORTISE_LAST_MICRO);
  set_values(call, args, n, results, m);
  SegmentFrame segment;
  Frame frame = kept->standing.frame(segment);
  frame.tape = kept->tape.points.empty() ? nullptr : &kept->tape;
  {
    at::AutoGradMode mode((flags & MORTISE_GRAD) != 0);
    invoke(kept->next, call, frame);
  }
  // The pass that stands in the segment, not one that repeats it later, moves the count of calls on for those that
  // follow.
  const bool stands_here = !(flags & MORTISE_REPLAY) || (flags & MORTISE_FIRST_PASS);
  if (const Frame* around = current_frame(); stands_here && kept->standing.in_segment && around && around->segment)
    *around->segment = segment;
}

void call_name(mortise_host* h, const mortise_call* call, mortise_str* out) {
  const PointTable& points = host_of(h).points();
  if (call->point >= points.size())  // a wrapper may have written it
    throw PluginError(MORTISE_E_ARGUMENT, "a call of point " + std::to_string(call->point) + ", which there is not");
  *out = str(points[call->point].name);
}

void call_provider(mortise_host*, const mortise_next* next, mortise_str* out) {
  while (next->next) next = next->next;
  *out = next->plugin ? str(next->plugin->id) : mortise_str{"", 0};
}

void call_attribute(mortise_host*, const mortise_layer* layer, mortise_str key, mortise_value* out) {
  if (!out) throw PluginError(MORTISE_E_ARGUMENT, "called with NULL where an attribute is to be put");
  for (const mortise_attr& attr : layer->attrs)
    if (view(attr.key) == view(key)) {
      *out = attr.value;
      return;
    }
  throw PluginError(MORTISE_E_NOT_FOUND,
                    "layer " + layer->path + " was declared without the attribute " + std::string(view(key)));
}

void call_drop(mortise_host*, mortise_kept* kept) noexcept {
  if (!kept) return;
  if (kept->call.batch) release(kept->call.batch);
  delete kept;
}

}  // namespace

void check_call(const mortise_call* call) {
  if (call->struct_size < sizeof(mortise_call)) throw PluginError(MORTISE_E_ARGUMENT, "a call without its size");
  if (call->mode >= MORTISE_MODES)  // a wrapper may have written it
    throw PluginError(MORTISE_E_ARGUMENT, "a call in mode " + std::to_string(call->mode) + ", which there is not");
}

uint32_t SegmentFrame::count(uint32_t layer) {
  for (auto& [id, n] : calls)
    if (id == layer) return ++n;
  calls.emplace_back(layer, 0);
  return 0;
}

bool Tape::keeps(int point) const { return std::find(points.begin(), points.end(), point) != points.end(); }

Frame* current_frame() { return frame_of_thread; }

CapturedFrame::CapturedFrame(const Frame* f) {
  if (!f) return;
  if (f->segment) segment = *f->segment;
  in_segment = f->segment != nullptr;
  nth = f->nth;
  terms = f->terms;
}
Frame CapturedFrame::frame(SegmentFrame& counts) const {
  counts = segment;
  Frame f;
  f.segment = in_segment ? &counts : nullptr;
  f.nth = nth;
  f.terms = terms;
  return f;
}

FrameScope::FrameScope(Frame& f) : previous_(frame_of_thread) {
  f.outer = previous_;
  frame_of_thread = &f;
}
FrameScope::~FrameScope() { frame_of_thread = previous_; }

void release_results(mortise_value* results, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) {
    if (results[i].tag == MORTISE_TENSOR) take(results[i].v.t);
    if (results[i].tag == MORTISE_BATCH) release(results[i].v.b);
    results[i] = {MORTISE_NONE, 0, {.i = 0}};
  }
}

std::string describe(const mortise_next& link, const mortise_call& call) {
  std::string what = link.point;
  if (call.path.len) what.append(" at ").append(view(call.path));
  return what;
}

mortise_call make_call(const Frame* from, uint32_t point, mortise_str path) {
  mortise_call call{};
  if (from && from->call) call = *from->call;
  call.struct_size = sizeof call;
  call.point = point;
  call.path = path;
  call.layer = nullptr;
  call.layer_data = nullptr;
  set_values(call, nullptr, 0, nullptr, 0);
  return call;
}

void set_values(mortise_call& call, const mortise_value* args, uint32_t n_args, mortise_value* results,
                uint32_t n_results) {
  call.args = args;
  call.n_args = n_args;
  call.results = results;
  call.n_results = n_results;
}

void invoke(const mortise_next* link, mortise_call& call) {
  invoke(link, call, current_frame() ? *current_frame() : Frame{});
}

void invoke(const mortise_next* link, mortise_call& call, Frame frame) {
  frame.call = &call;
  mortise_status status;
  {
    FrameScope scope(frame);
    clear_error();
    status = run_link(*link, call);
  }
  if (status == MORTISE_OK) [[likely]]
    return clear_error();
  release_results(call.results, call.n_results);
  if (link->plugin) throw_status(status, link->plugin->id, describe(*link, call));
  throw as_thrown(status);
}

const mortise_call_api kCallApi = {sizeof(mortise_call_api), at_edge<call_next>,     at_edge<call_layer>,
                                   at_edge<call_keep>,       at_edge<call_run>,      call_drop,
                                   at_edge<call_name>,       at_edge<call_provider>, at_edge<call_attribute>};

}  // namespace mortise
