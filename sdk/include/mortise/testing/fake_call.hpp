// The rest of a chain, for tests of wrappers: mortise.call/0 over a function of the test's.
//
//   FakeHost host;
//   FakeChain chain(host, [&](mortise_call& call) { call.results[0] = …; return MORTISE_OK; });   // before the plugin
//   Plugin plugin(host, MORTISE_PLUGIN_FILE);
//   FakeCall call({value(x)}, 1);                  // arguments, number of results
//   EXPECT_EQ(chain.wrap(plugin, "block", call), MORTISE_OK);   // also of who wraps "*"
#pragma once
#include "mortise/testing/fake_host.hpp"

namespace mortise::testing {

// A call with room for its results; releases what is left in them.
struct FakeCall : mortise_call {
  FakeCall(std::vector<mortise_value> a, uint32_t results_wanted)
      : mortise_call{}, arguments(std::move(a)), room(results_wanted, none()) {
    struct_size = sizeof(mortise_call);
    args = arguments.data();
    n_args = static_cast<uint32_t>(arguments.size());
    results = room.data();
    n_results = results_wanted;
  }
  FakeCall(const FakeCall&) = delete;
  FakeCall& operator=(const FakeCall&) = delete;
  ~FakeCall() {
    for (mortise_value& v : room) {
      if (v.tag == MORTISE_BATCH) Batch::own(v.v.b);
      take(v);
    }
  }
  std::vector<mortise_value> arguments, room;
};

// A layer that was asked for with these, for call.layer.
struct FakeLayer {
  std::vector<mortise_attr> attributes;
  const mortise_layer* handle() const { return reinterpret_cast<const mortise_layer*>(this); }
};

class FakeChain {
 public:
  using Rest = std::function<mortise_status(mortise_call&)>;
  FakeChain(FakeHost& host, Rest rest) : host_(host), rest_(std::move(rest)) {
    static const mortise_call_api table = {
        .struct_size = sizeof(mortise_call_api),
        .next = [](mortise_host*, mortise_next* next, mortise_call* call) noexcept { return of(next).rest_(*call); },
        .keep = keep,
        .run = run,
        .drop =
            [](mortise_host*, mortise_kept* handle) noexcept {
              const auto k = reinterpret_cast<Kept*>(handle);
              --k->chain->kept;
              delete k;
            },
        .name = [](mortise_host* h, const mortise_call* call, mortise_str* out) noexcept -> mortise_status {
          if (!call || !out) return h->fail(h, MORTISE_E_ARGUMENT, MORTISE_STR("called with NULL"));
          *out = str(static_cast<FakeHost*>(h)->point);
          return MORTISE_OK;
        },
        .provider = [](mortise_host* h, const mortise_next* next, mortise_str* out) noexcept -> mortise_status {
          if (!next || !out) return h->fail(h, MORTISE_E_ARGUMENT, MORTISE_STR("called with NULL"));
          *out = str(reinterpret_cast<const FakeChain*>(next)->provider);
          return MORTISE_OK;
        },
        .attribute = attribute,
    };
    host.offer("mortise.call/0", &table);
    api.call = &table;
  }
  mortise_next* next() { return reinterpret_cast<mortise_next*>(this); }
  mortise_status wrap(const Plugin& plugin, std::string_view point, mortise_call& call) {
    for (const mortise_attachment& a : plugin.attachments())
      if ((view(a.point) == point || view(a.point) == "*") && a.wrap) {
        const std::string_view before = std::exchange(host_.point, point);
        const mortise_status status = a.wrap(plugin.self(), &call, next());
        host_.point = before;
        return status;
      }
    throw PluginError(MORTISE_E_NOT_FOUND, "it does not wrap " + std::string(point));
  }

  std::string provider;                   // the id at its end; "" for the core
  std::atomic<int> kept = 0;              // alive now
  std::vector<std::string> kept_results;  // the operators that the newest `keep` named

 private:
  struct Kept {
    FakeChain* chain;
    mortise_call call;
    std::string path;
  };
  static FakeChain& of(mortise_next* n) { return *reinterpret_cast<FakeChain*>(n); }
  static mortise_status keep(mortise_host*, const mortise_call* call, mortise_next* next, const mortise_str* names,
                             uint32_t n, mortise_kept** out) noexcept {
    FakeChain& chain = of(next);
    ++chain.kept;
    chain.kept_results.clear();
    for (uint32_t i = 0; i < n; ++i) chain.kept_results.emplace_back(view(names[i]));
    const auto k = new Kept{&chain, *call, std::string(view(call->path))};
    k->call.path = str(k->path);
    *out = reinterpret_cast<mortise_kept*>(k);
    return MORTISE_OK;
  }
  static mortise_status attribute(mortise_host* h, const mortise_layer* layer, mortise_str key,
                                  mortise_value* out) noexcept {
    if (!layer || !out) return h->fail(h, MORTISE_E_ARGUMENT, MORTISE_STR("an attribute of no layer"));
    const std::vector<mortise_attr>& attrs = reinterpret_cast<const FakeLayer*>(layer)->attributes;
    const mortise_value* found = find_attr(attrs.data(), static_cast<uint32_t>(attrs.size()), view(key));
    if (!found) return h->fail(h, MORTISE_E_NOT_FOUND, MORTISE_STR("it was declared without that attribute"));
    *out = *found;
    return MORTISE_OK;
  }
  static mortise_status run(mortise_host*, mortise_kept* handle, uint32_t flags, const mortise_value* args,
                            uint32_t n_args, mortise_value* results, uint32_t n_results) noexcept {
    const Kept& k = *reinterpret_cast<Kept*>(handle);
    mortise_call call = k.call;
    call.flags = flags | (k.call.flags & MORTISE_LAST_MICRO);
    call.args = args;
    call.n_args = n_args;
    call.results = results;
    call.n_results = n_results;
    return k.chain->rest_(call);
  }
  FakeHost& host_;
  Rest rest_;
};

}  // namespace mortise::testing
