// mortise.autograd/0: nodes of a plugin's own, and backward that nests.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>

#include "core/abi/error.hpp"
#include "core/host/handle.hpp"
#include "core/host/host.hpp"
#include "core/host/saving.hpp"
#include "core/host/tables.hpp"

namespace ta = torch::autograd;

// What a plugin's callbacks get: in forward the tensors to save, in backward the saved ones. `state` is dropped exactly
// once, with this.
struct mortise_node {
  mortise_node_fns fns;
  void* state;
  std::string plugin;
  std::vector<at::Tensor> to_save;
  std::vector<ta::SavedVariable> saved;
  std::shared_ptr<ta::Node> self;  // only while backward runs
  mortise_node(const mortise_node_fns& f, void* s, std::string p) : fns(f), state(s), plugin(std::move(p)) {}
  mortise_node(const mortise_node&) = delete;
  mortise_node& operator=(const mortise_node&) = delete;
  ~mortise_node() {
    if (fns.drop) fns.drop(state);
  }
  std::string name() const { return std::string(mortise::view(fns.name)); }
};

namespace mortise {
namespace {

struct ApplyNode final : ta::Node {
  std::unique_ptr<mortise_node> node;
  std::vector<int> edge_of_input, result_of_output;
  uint32_t n_results = 0;

  std::string name() const override { return label; }
  std::string label;
  void release_variables() override { node.reset(); }

  ta::variable_list apply(ta::variable_list&& grads) override {
    if (!node)
      throw PluginError(MORTISE_E_ARGUMENT,
                        "backward a second time through '" + label + "', whose saved tensors were freed");
    std::vector<mortise_tensor*> grad_out(n_results, nullptr), grad_in(edge_of_input.size(), nullptr);
    if (at::GradMode::is_enabled())
      throw PluginError(MORTISE_E_UNSUPPORTED,
                        "'" + label + "' of plugin " + node->plugin + " has no second derivative");
    for (size_t o = 0; o < grads.size(); ++o) grad_out[static_cast<size_t>(result_of_output[o])] = borrow(grads[o]);
    node->self = shared_from_this();
    clear_error();
    const mortise_status status =
        call_plugin({node->plugin, "backward", label}, node->fns.backward, node->state, node.get(), grad_out.data(),
                    n_results, grad_in.data(), static_cast<uint32_t>(grad_in.size()));
    node->self.reset();
    ta::variable_list out(static_cast<size_t>(num_outputs()));
    for (size_t i = 0; i < grad_in.size(); ++i) {
      at::Tensor g = take(grad_in[i]);
      if (edge_of_input[i] >= 0) out[static_cast<size_t>(edge_of_input[i])] = std::move(g);
    }
    if (status != MORTISE_OK) throw_status(status, node->plugin, "backward of '" + label + "'");
    return out;
  }
};

// Identity on its first input; the second gets a gradient that no result asked for.
struct RootNode final : ta::Node {
  std::function<at::Tensor()> seed;
  std::string name() const override { return "attached term"; }
  ta::variable_list apply(ta::variable_list&& grads) override {
    ta::variable_list out(static_cast<size_t>(num_outputs()));
    out[0] = std::move(grads[0]);
    out[1] = seed();
    return out;
  }
};

// What forward gave may be an input, a parameter's value or something that was kept: the graph hangs on a tensor of its
// own over the same bytes.
void part_from_others(mortise_value* out, uint32_t m) {
  for (uint32_t r = 0; r < m; ++r)
    if (out[r].tag == MORTISE_TENSOR) out[r] = value_of(take(out[r].v.t).tensor_data());
}

void apply(mortise_host* h, const mortise_node_fns* fns, void* state, const mortise_value* in, uint32_t n,
           mortise_value* out, uint32_t m) {
  if (!fns || !fns->forward) throw PluginError(MORTISE_E_ARGUMENT, "a node without its function `forward`");
  text_of(fns->name);
  auto node = std::make_unique<mortise_node>(*fns, state, plugin_of(h).id);
  bool graph = (fns->flags & MORTISE_NODE_REQUIRES_GRAD) != 0;
  graph = (graph || any_requires_grad(in, n)) && at::GradMode::is_enabled();
  mortise_status status;
  {
    at::NoGradGuard no_grad;
    clear_error();
    status = call_plugin({plugin_of(h).id, "forward", view(fns->name)}, fns->forward, state, node.get(), in, n, out, m);
  }
  if (status != MORTISE_OK) {
    release_results(out, m);
    throw_status(status, plugin_of(h).id, "forward of '" + node->name() + "'");
  }
  if (!graph) return;
  part_from_others(out, m);
  auto auto_node = std::shared_ptr<ApplyNode>(new ApplyNode(), ta::deleteNode);
  auto_node->label = node->name();
  auto_node->n_results = m;
  ta::edge_list edges;
  for (uint32_t i = 0; i < n; ++i) {
    const at::Tensor t = tensor_of(in[i]);
    const bool wanted = t.defined() && t.requires_grad();
    auto_node->edge_of_input.push_back(wanted ? static_cast<int>(edges.size()) : -1);
    if (wanted) edges.push_back(ta::impl::gradient_edge(t));
  }
  auto_node->set_next_edges(std::move(edges));
  for (uint32_t i = 0; i < m; ++i) {
    at::Tensor t = tensor_of(out[i]);
    if (!t.defined() || !ta::isDifferentiableType(t.scalar_type())) continue;
    ta::set_history(t, auto_node);
    auto_node->result_of_output.push_back(static_cast<int>(i));
  }
  for (const at::Tensor& t : node->to_save) node->saved.push_back(saved_for_backward(t, false));
  node->to_save.clear();
  auto_node->node = std::move(node);
}

void save(mortise_host*, mortise_node* node, mortise_tensor* const* tensors, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) node->to_save.push_back(share(tensors[i]));
}

void saved(mortise_host*, mortise_node* node, uint32_t index, mortise_tensor** out) {
  if (index >= node->saved.size())
    throw PluginError(MORTISE_E_ARGUMENT,
                      "saved tensor " + std::to_string(index) + " of " + std::to_string(node->saved.size()));
  *out = give(node->saved[index].unpack(node->self));
}

void detach(mortise_host*, mortise_tensor* t, int requires_grad, mortise_tensor** out) {
  at::Tensor d = share(t).detach();
  if (requires_grad) d.set_requires_grad(true);
  *out = give(std::move(d));
}

void backward(mortise_host* h, mortise_tensor* const* roots, mortise_tensor* const* seeds, uint32_t n,
              mortise_tensor* const* inputs, mortise_tensor** grads, uint32_t m, uint32_t flags) {
  std::vector<at::Tensor> from, with;
  for (uint32_t i = 0; i < n; ++i) {
    if (!roots[i] || !share(roots[i]).requires_grad()) continue;
    from.push_back(share(roots[i]));
    with.push_back(share(seeds[i]));
  }
  if (!from.empty()) run_backward(host_of(h), from, with, flags);
  for (uint32_t i = 0; i < m; ++i) {
    at::Tensor leaf = share(inputs[i]);
    grads[i] = nullptr;
    if (!leaf.defined() || !leaf.is_leaf() || !leaf.requires_grad()) continue;
    at::Tensor g = leaf.grad();
    leaf.mutable_grad() = at::Tensor();
    grads[i] = give(std::move(g));
  }
}

void next_saving(mortise_host* h, mortise_next* next, mortise_call* call, const mortise_saver* functions, void* self) {
  if (!functions || functions->struct_size < sizeof(mortise_saver) || !functions->take || !functions->give ||
      !functions->drop)
    throw PluginError(MORTISE_E_ARGUMENT, "next_saving: a saver without its size, or without a function");
  check_call(call);
  const Keeper keeper{functions, self, &plugin_of(h)};
  Frame frame = current_frame() ? *current_frame() : Frame{};
  frame.keeper = &keeper;
  invoke(next, *call, frame);
}

// `grads` is an array, which may be empty and NULL; at_edge would take it for a result without a place.
mortise_status backward_at_edge(mortise_host* h, mortise_tensor* const* roots, mortise_tensor* const* seeds, uint32_t n,
                                mortise_tensor* const* inputs, mortise_tensor** grads, uint32_t m,
                                uint32_t flags) noexcept {
  return guarded([&] {
    check_argument(h);
    if ((n > 0 && (!roots || !seeds)) || (m > 0 && (!inputs || !grads)))
      throw PluginError(MORTISE_E_ARGUMENT, "backward was called with NULL for an array that is not empty");
    backward(h, roots, seeds, n, inputs, grads, m, flags);
  });
}

}  // namespace

at::Tensor with_root(const at::Tensor& carrier, const at::Tensor& root, std::function<at::Tensor()> seed) {
  auto node = std::shared_ptr<RootNode>(new RootNode(), ta::deleteNode);
  node->seed = std::move(seed);
  node->set_next_edges(ta::collect_next_edges(carrier, root));
  // A tensor of its own for the graph, which still notices that the bytes were written.
  c10::TensorImpl* impl = carrier.unsafeGetTensorImpl();
  at::Tensor out(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
  ta::set_history(out, node);
  return out;
}

static std::atomic<int> backwards{0};  // under way
bool is_backward_under_way() { return backwards > 0; }

void run_backward(Host& host, const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& seeds,
                  uint32_t flags) {
  // Asked of the engine, which knows on every thread: a device's nodes, and deep nesting, run on threads of their own.
  const bool outermost = ta::get_current_graph_task_id() == -1;
  const struct UnderWay {
    UnderWay() { ++backwards; }
    ~UnderWay() { --backwards; }
  } under_way;
  ta::edge_list edges;
  for (const auto& r : roots) edges.push_back(ta::impl::gradient_edge(r));
  ta::Engine::get_default_engine().execute(edges, seeds, (flags & (MORTISE_RETAIN_GRAPH | MORTISE_CREATE_GRAPH)) != 0,
                                           (flags & MORTISE_CREATE_GRAPH) != 0,
                                           /*accumulate_grad=*/true);
  if (outermost) host.parameters().end_backward();
}

const mortise_autograd_api kAutogradApi = {
    sizeof(mortise_autograd_api), at_edge<apply>, at_edge<save>, at_edge<saved>, at_edge<detach>, backward_at_edge,
    at_edge<next_saving>};

}  // namespace mortise
