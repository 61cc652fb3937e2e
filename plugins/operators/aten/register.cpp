#include "common.hpp"
#include "mortise/cpp/plugin.hpp"

namespace aten = mortise::aten;

MORTISE_PLUGIN(mortise::Layers, mortise::provide("embedding", aten::embedding()),
               mortise::provide("norm", aten::norm()), mortise::provide("residual_norm", aten::residual_norm()),
               mortise::provide("dropout", aten::dropout()), mortise::provide("linear", aten::linear()),
               mortise::provide("mlp", aten::mlp()), mortise::provide("head_loss", aten::head_loss()))
