// Tensors as safetensors. Reading and writing the format, with every check, is the core's own; so a file is what `model.weights` would take.
#include "mortise/cpp/plugin.hpp"

namespace {
using namespace mortise;

struct Safetensors {
  Safetensors() {
    if (!api.safetensors) throw Error(MORTISE_E_NOT_FOUND, "this host has no mortise.safetensors/0");
  }
  void write(const mortise_entry* entries, uint32_t n, const mortise_sink* sink) { check(api.safetensors->write(api.host, entries, n, sink)); }
  void read(const void* data, uint64_t bytes, const mortise_give* give) { check(api.safetensors->read(api.host, data, bytes, give)); }
};

const mortise_format kObject = {sizeof(mortise_format), 0, MORTISE_STR(".safetensors"), thunk<&Safetensors::write>, thunk<&Safetensors::read>};
}  // namespace

MORTISE_PLUGIN(Safetensors, mortise::provide("checkpoint.format", &kObject))
