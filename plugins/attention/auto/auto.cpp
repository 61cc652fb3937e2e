// attention.auto has no code: plugin.toml says whom to ask, and the core asks each one's `supports` at each place.
#include "mortise/cpp/plugin.hpp"

namespace {
class Auto {};
}  // namespace

MORTISE_PLUGIN(Auto)
