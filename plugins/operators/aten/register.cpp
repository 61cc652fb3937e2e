#include "common.hpp"
#include "mortise/cpp/plugin.hpp"

namespace aten = mortise::aten;
using mortise::provide;

MORTISE_PLUGIN(mortise::Layers, provide("embedding", aten::embedding()), provide("norm", aten::norm()),
               provide("residual_norm", aten::residual_norm()), provide("dropout", aten::dropout()),
               provide("linear", aten::linear()), provide("gated", aten::gated()), provide("mlp", aten::mlp()),
               provide("rope", aten::rope()), provide("self_attention", aten::self_attention()),
               provide("embedding_norm", aten::embedding_norm()), provide("head_loss", aten::head_loss()),
               provide("loss", aten::loss()))
