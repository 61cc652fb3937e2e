#include "core/model/declaration.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "mortise/cpp/strings.hpp"
#include "mortise/dtype.h"

namespace mortise {
namespace {

mortise_str s(const char* t) { return {t, std::char_traits<char>::length(t)}; }

struct Declared : testing::Test {
  Declaration d;
  PointTable points;
  std::vector<std::string> provided;
  mortise_builder b{d, [this](mortise_layer& l, const mortise_layer_spec&) { provided.push_back(l.path); }};

  mortise_param* param(const char* name, int64_t rows = 2, mortise_param* tie = nullptr, const char* role = "matrix") {
    const int64_t sizes[] = {rows, 3};
    const mortise_str dims[] = {s("out"), s("in")};
    mortise_param_spec spec{};
    spec.rank = 2;
    spec.name = s(name);
    spec.role = s(role);
    spec.dims = dims;
    spec.sizes = sizes;
    spec.init = s("normal");
    spec.tie = tie;
    return add_param(b, spec);
  }
};

TEST_F(Declared, AParameterKnowsItsNameShapeAndDims) {
  add_segment(b, "embed", 0);
  mortise_param* p = param("wte.weight");
  EXPECT_EQ(p->info.numel, 6);
  EXPECT_EQ(std::string(p->info.dims[1].ptr, p->info.dims[1].len), "in");
  EXPECT_TRUE(p->info.trainable);
  EXPECT_EQ(d.find("wte.weight"), p);
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST_F(Declared, AParameterMayLieOnOneRankAlongAnAxis) {
  add_segment(b, "embed", 0);
  mortise_param *here = param("here"), *there = param("there");
  place(*here, {0, "experts", 1, 2}, int64_t{1});
  place(*there, {0, "experts", 1, 2}, int64_t{0});
  EXPECT_EQ(here->info.numel, 6);
  EXPECT_EQ(there->info.numel, 0);
  EXPECT_EQ(there->info.sizes[0], 0);
  EXPECT_EQ(there->whole_sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(view(there->info.axis), "experts");
  EXPECT_EQ(d.count(), 12) << "of the model";
  EXPECT_EQ(weights_and_gradients(d).weights, 24) << "of this rank";
  EXPECT_EQ(refusal([&] { place(*here, {0, "experts", 1, 2}, int64_t{1}); }),
            "parameter here lies along an axis of ranks already");
  EXPECT_EQ(refusal([&] { place(*param("third"), {0, "experts", 1, 2}, int64_t{2}); }),
            "parameter third is to be on rank 2 along `experts`, which has 2");
}

TEST_F(Declared, AParameterMayBeCutAlongADimension) {
  add_segment(b, "embed", 0);
  mortise_param *rows = param("rows", 4), *columns = param("columns", 4);
  place(*rows, {0, "tensor", 1, 2}, "out");
  place(*columns, {0, "tensor", 1, 3}, "in");
  EXPECT_EQ(rows->sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(columns->sizes, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(rows->whole_numel(), 12);
  EXPECT_EQ(refusal([&] { place(*param("uneven", 5), {0, "tensor", 0, 2}, "out"); }),
            "`out` of parameter uneven is 5, which 2 ranks along `tensor` do not share evenly");
  EXPECT_EQ(refusal([&] { place(*param("other"), {0, "tensor", 0, 2}, "heads"); }),
            "`heads` of parameter other is to be cut, and it has no such dimension");
}

TEST_F(Declared, TheInitValuesNeedsThem) {
  const int64_t sizes[] = {2};
  const float values[] = {1, 2};
  mortise_param_spec spec{};
  spec.struct_size = sizeof spec;
  spec.rank = 1;
  spec.name = s("w");
  spec.role = s("vector");
  spec.sizes = sizes;
  spec.init = s("values");
  EXPECT_THROW(add_param(b, spec), std::invalid_argument);
  spec.name = s("filled");
  spec.values = values;
  EXPECT_EQ(add_param(b, spec)->values, values);
  spec.name = s("older");
  spec.struct_size = offsetof(mortise_param_spec, values);
  EXPECT_THROW(add_param(b, spec), std::invalid_argument) << "of a plugin built with an older SDK";
}

// Why a 2 × 6 parameter with these parts is refused; empty: it is not.
std::string refused_parts(mortise_builder& b, uint32_t dim, const std::vector<int64_t>& parts) {
  const int64_t sizes[] = {2, 6};
  mortise_param_spec spec{};
  spec.struct_size = sizeof spec;
  spec.rank = 2;
  spec.name = s("qkv");
  spec.role = s("matrix");
  spec.sizes = sizes;
  spec.part_dim = dim;
  spec.n_parts = static_cast<uint32_t>(parts.size());
  spec.parts = parts.data();
  try {
    add_param(b, spec);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST_F(Declared, APackedParameterKeepsItsOwnParts) {
  EXPECT_EQ(param("w")->info.n_parts, 0u) << "without a size of the spec there are none";
  EXPECT_EQ(refused_parts(b, 1, {3, 1, 2}), "");
  d.find("qkv")->add_tag("packed");  // views are made again
  const mortise_param_info& info = d.find("qkv")->info;
  EXPECT_EQ(info.part_dim, 1u);
  EXPECT_EQ(std::vector<int64_t>(info.parts, info.parts + info.n_parts), (std::vector<int64_t>{3, 1, 2}));
}

TEST_F(Declared, PartsThatDoNotAddUpAreRefused) {
  constexpr const char* kWhy = " parts along dimension 1; they are above 0 and add up to its size, 6";
  EXPECT_EQ(refused_parts(b, 2, {6}), "parameter qkv has 1 parts along dimension 2, which it does not have");
  EXPECT_EQ(refused_parts(b, 1, {3, 2}), std::string("parameter qkv has 2") + kWhy);
  for (const std::vector<int64_t>& parts : {std::vector<int64_t>{3, 4}, {7, -1}, {6, 0}, {INT64_MAX, INT64_MAX, 8}})
    EXPECT_NE(refused_parts(b, 1, parts), "") << parts[0];
  EXPECT_EQ(refused_parts(b, 1, {0, 0, 0, 0, 0, 0, 6}), std::string("parameter qkv has 7") + kWhy);
  EXPECT_EQ(d.find("qkv"), nullptr) << "nothing of it is kept";
}

TEST_F(Declared, ABufferIsNotTrained) {
  add_segment(b, "embed", 0);
  EXPECT_FALSE(param("steps", 2, nullptr, "buffer")->info.trainable);
}

TEST_F(Declared, ATiedNameIsTheSameParameter) {
  add_segment(b, "embed", 0);
  mortise_param* p = param("wte.weight");
  EXPECT_EQ(param("lm_head.weight", 2, p), p);
  EXPECT_EQ(d.find("lm_head.weight"), p);
  EXPECT_EQ(d.params.size(), 1u);
}

TEST_F(Declared, OneNameWithTwoSizesIsRefused) {
  add_segment(b, "embed", 0);
  mortise_layer parent;
  parent.path = "h.0.mlp";
  b.declarer = {&parent, "mlp.one"};
  param("w");
  b.declarer = {&parent, "mlp.other"};  // of another mode
  EXPECT_NO_THROW(param("w"));
  EXPECT_THROW(param("w", 5), std::invalid_argument);
}

TEST_F(Declared, OneNameFromTwoPlacesIsRefusedWithBoth) {
  points.add_operator("scan", "x -> y", "", "test.scan");
  add_segment(b, "embed", 0);
  const auto refusal = [](const auto& declare) -> std::string {
    try {
      declare();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  const auto scan = [&] {
    const mortise_layer_spec spec = {sizeof spec, 0, s("scan"), s("h.0.scan"), nullptr};
    add_layer(b, points, spec);
  };
  mortise_layer parent, other;
  parent.path = "h.0.mlp";
  other.path = "h.1.mlp";
  b.declarer = {nullptr, "model.one"};
  param("w");
  scan();
  b.declarer = {&parent, "mlp.one"};
  EXPECT_EQ(refusal([&] { param("w"); }),
            "parameter w is declared twice: by model.one and by mlp.one at h.0.mlp; give one of them another name, or "
            "share it with `tie`");
  EXPECT_EQ(refusal(scan),
            "layer h.0.scan is declared twice: by model.one and by mlp.one at h.0.mlp; give one of them another path");
  param("v");
  b.declarer = {&other, "mlp.two"};
  EXPECT_NE(refusal([&] { param("v"); }), "");
  b.declarer = {nullptr, "model.one"};
  EXPECT_NE(refusal([&] { param("w"); }), "") << "also by the same one";
}

// Providers of `scan` at one path, each of which asks for the next one's layer there.
struct Nested : Declared {
  Nested() {
    points.add_operator("scan", "x -> y", "", "test.scan");
    add_segment(b, "h.0", MORTISE_BLOCK);
  }
  mortise_layer* scan() {
    const mortise_layer_spec spec = {sizeof spec, 0, s("scan"), s("h.0.scan"), nullptr};
    return add_layer(b, points, spec);
  }
  std::string refused(const std::function<void()>& declare) {
    try {
      declare();
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  }
};

TEST_F(Nested, ALayerAtThePlaceThatIsDeclaredStandsInsideIt) {
  mortise_layer* outer = scan();
  EXPECT_EQ(outer->around, nullptr);
  b.declarer = {outer, "scan.one"};
  mortise_layer* inner = scan();
  EXPECT_EQ(inner->around, outer);
  EXPECT_EQ(refused([&] { scan(); }),
            "layer h.0.scan is declared twice: by scan.one at h.0.scan and by scan.one at h.0.scan; give one of them "
            "another path");
  b.declarer = {inner, "scan.two"};
  EXPECT_EQ(scan()->around, inner);
  b.declarer = {outer, "scan.other"};  // in another mode
  EXPECT_EQ(scan()->around, outer);
  ASSERT_EQ(d.layer_elements().size(), 1u) << "selectors count one layer a place";
}

TEST_F(Nested, ParametersInsideAreOnesOwnInAModeAndSharedAcrossModes) {
  mortise_layer* outer = scan();
  b.declarer = {outer, "scan.one"};
  mortise_layer* inner = scan();
  b.declarer = {inner, "scan.two"};
  param("w");
  b.declarer = {outer, "scan.one"};
  EXPECT_NE(refused([&] { param("w"); }), "") << "of the wrapper itself";
  b.declarer = {outer, "scan.two"};  // of a mode that nobody wraps
  EXPECT_EQ(refused([&] { param("w"); }), "");
  EXPECT_EQ(d.params.size(), 1u);
}

// ---- what is merged on export ----

std::string refused_merge(mortise_builder& b, const char* into, mortise_param* left, mortise_param* right,
                          bool transposed) {
  const mortise_merge_spec spec = {sizeof spec, transposed, s(into), left, right, 2.0};
  try {
    add_merge(b, spec);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST_F(Declared, AMergeIsOfMatricesThatFit) {
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
    const int64_t sizes[] = {rows, columns};
    mortise_param_spec spec{};
    spec.rank = 2;
    spec.name = s(name);
    spec.role = s("matrix");
    spec.sizes = sizes;
    return add_param(b, spec);
  };
  matrix("w", 5, 4);
  mortise_param *left = matrix("left", 5, 2), *right = matrix("right", 2, 4);
  EXPECT_EQ(refused_merge(b, "v", left, right, false),
            "what is merged into parameter v has no such parameter to go into");
  EXPECT_EQ(refused_merge(b, "w", right, left, false), "what is merged into parameter w is no product of two matrices");
  EXPECT_EQ(refused_merge(b, "w", left, right, true), "what is merged into parameter w has another shape");
  EXPECT_TRUE(d.merges.empty());
  EXPECT_EQ(refused_merge(b, "w", left, right, false), "");
  EXPECT_EQ(refused_merge(b, "w", left, right, false), "") << "by the provider of another mode";
  ASSERT_EQ(d.merges.size(), 1u);
  EXPECT_EQ(d.merges[0].into, d.find("w"));
}

TEST_F(Declared, ARoleOutsideTheListIsRefused) {
  add_segment(b, "embed", 0);
  EXPECT_THROW(param("w", 2, nullptr, "kernel"), std::invalid_argument);
}

TEST_F(Declared, ANameIsOneThatALineCanShow) {
  add_segment(b, "embed", 0);
  for (const char* name : {"", "a\nb", "\xff\xfe", "\x1b[31mw"})
    EXPECT_THROW(param(name), std::invalid_argument) << name;
  EXPECT_NO_THROW(param("größe.0/w"));
}

TEST_F(Declared, ALayerKeepsItsOwnAttributes) {
  points.add_operator("scan", "x -> y", "", "test.scan");
  add_segment(b, "h.0", MORTISE_BLOCK);
  std::string text = "gelu";
  mortise_attr attr = {s("activation"), {MORTISE_TEXT, 0, {.s = {text.data(), text.size()}}}};
  const mortise_layer_spec spec = {sizeof spec, 1, s("scan"), s("h.0.scan"), &attr};
  mortise_layer* l = add_layer(b, points, spec);
  text = "xxxx";
  EXPECT_EQ(std::string(l->attrs[0].value.v.s.ptr, 4), "gelu");
  EXPECT_EQ(provided, std::vector<std::string>{"h.0.scan"});
}

TEST_F(Declared, ALayerSeesItsShareOfWhatTheOneAroundItSees) {
  points.add_operator("scan", "x -> y", "", "test.scan");
  add_segment(b, "embed", 0);
  const auto share_of = [&](const char* path, double share) {
    const mortise_layer_spec spec = {sizeof spec, 0, s("scan"), s(path), nullptr, share};
    return add_layer(b, points, spec);
  };
  EXPECT_EQ(share_of("all", 0)->share, 1);
  mortise_layer* expert = share_of("expert", 0.5);
  EXPECT_EQ(expert->share, 0.5);
  b.declarer = {expert, "mlp.one"};
  EXPECT_EQ(share_of("expert.up", 0)->share, 0.5);
  EXPECT_EQ(share_of("expert.choice", 0.25)->share, 0.125);
}

TEST_F(Declared, AnOperatorThatNobodyBringsIsRefused) {
  add_segment(b, "h.0", 0);
  const mortise_layer_spec spec = {sizeof spec, 0, s("scan"), s("h.0.scan"), nullptr};
  EXPECT_THROW(add_layer(b, points, spec), std::invalid_argument);
}

TEST_F(Declared, ParametersOfOneRateAndDecayShareAGroup) {
  add_segment(b, "embed", 0);
  param("a");
  param("b")->weight_decay = 0;
  param("c");
  const auto groups = make_groups(d, {1e-3}, {0.01});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(d.params[0].info.group, d.params[2].info.group);
  EXPECT_EQ(groups[static_cast<size_t>(d.params[1].info.group)].weight_decay, 0);
}

TEST_F(Declared, AFrozenParameterIsInNoGroup) {
  add_segment(b, "embed", 0);
  param("a")->lr = 1;  // else it would be the rate that is shown
  d.params[0].info.trainable = 0;
  param("b");
  const auto groups = make_groups(d, {1e-3}, {0.01});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].lr, 1e-3);
  EXPECT_EQ(d.params[0].info.group, -1);
  EXPECT_EQ(d.params[1].info.group, 0);
}

}  // namespace
}  // namespace mortise
