// LibTorch's operators and tensors through the C tables.
#include <ATen/ATen.h>

#include "core/host/call.hpp"
#include "core/host/handle.hpp"
#include "core/host/tables.hpp"
#include "core/host/test_host.hpp"

namespace {

using namespace mortise;
using namespace mortise::testing;

class Ops : public ::testing::Test {
 protected:
  const mortise_op* find(const char* schema) {
    mortise_op* op = nullptr;
    if (const mortise_status s = kOpsApi.find(h, str(schema), &op)) throw PluginError(s, take_error(s));
    return op;
  }
  Tensors call(const char* schema, const Args& args, uint32_t room = 4) {
    const std::vector<mortise_value> values(args.begin(), args.end());
    std::vector<mortise_value> results(room);
    count = 0;
    if (const mortise_status s = kOpsApi.call(h, find(schema), values.data(), static_cast<uint32_t>(values.size()),
                                              results.data(), room, &count))
      throw PluginError(s, take_error(s));
    Tensors out;
    for (const auto& r : results) out.push_back(r.tag == MORTISE_TENSOR ? take(r.v.t) : at::Tensor());
    raw = results;
    return out;
  }
  at::Tensor call1(const char* schema, const Args& args) {
    const std::vector<mortise_value> values(args.begin(), args.end());
    mortise_tensor* out = nullptr;
    if (const mortise_status s =
            kOpsApi.call1(h, find(schema), values.data(), static_cast<uint32_t>(values.size()), &out))
      throw PluginError(s, take_error(s));
    return take(out);
  }
  std::string refusal(const char* schema, const Args& args) {
    const Thrown t = thrown([&] { call(schema, args); });
    EXPECT_EQ(t.status, MORTISE_E_ARGUMENT) << t.text;
    return t.text;
  }
  static Arg ints(const std::vector<int64_t>& l) {
    return mortise_value{MORTISE_INTS, static_cast<uint32_t>(l.size()), {.is = l.data()}};
  }
  static Arg floats(const std::vector<double>& l) {
    return mortise_value{MORTISE_FLOATS, static_cast<uint32_t>(l.size()), {.fs = l.data()}};
  }
  static Arg list(const std::vector<mortise_tensor*>& l) {
    return mortise_value{MORTISE_TENSORS, static_cast<uint32_t>(l.size()), {.ts = l.data()}};
  }
  static Arg dtype(uint32_t d) { return mortise_value{MORTISE_DTYPE, 0, {.i = d}}; }
  static Arg none() { return mortise_value{MORTISE_NONE, 0, {.i = 0}}; }

  TestHost host;
  mortise_host* h = &host.window("test.ops");
  at::Tensor a = random({2, 3}, 1), b = random({2, 3}, 2);
  uint32_t count = 0;
  std::vector<mortise_value> raw;
};

TEST_F(Ops, TakeScalarsAsTheSchemaWantsThem) {
  EXPECT_TRUE(bitwise(call1("aten::add.Tensor", {a, b, 2}), at::add(a, b, 2)));      // an int for a Scalar
  EXPECT_TRUE(bitwise(call1("aten::add.Tensor", {a, b, 0.5}), at::add(a, b, 0.5)));  // a float for a Scalar
  const at::Tensor c = a.gt(0), d = b.gt(0);
  EXPECT_TRUE(bitwise(call1("aten::add.Tensor", {c, d, true}), at::add(c, d, true)));  // a bool for a Scalar
  EXPECT_TRUE(bitwise(call1("aten::gelu_backward", {a, b, "tanh"}), at::gelu_backward(a, b, "tanh")));
  EXPECT_TRUE(bitwise(call("aten::native_dropout", {a, 0, false})[0], a));  // an int for a float
  EXPECT_TRUE(bitwise(call1("aten::softmax.int", {a, 1, none()}), at::softmax(a, 1)));
  EXPECT_TRUE(bitwise(call1("aten::mean.dim", {a, ints({0}), 1, none()}), at::mean(a, 0, true)));  // an int for a bool
  EXPECT_TRUE(bitwise(call1("aten::sum.dim_IntList", {a, ints({1}), false, dtype(MORTISE_F64)}),
                      at::sum(a, 1, false, at::kDouble)));
  EXPECT_TRUE(bitwise(call1("aten::to.dtype", {a, dtype(MORTISE_BF16), false, false, none()}), a.to(at::kBFloat16)));
}

TEST_F(Ops, TakeOptionalTensorsAndListsOfThem) {
  EXPECT_TRUE(bitwise(call1("aten::linear", {a, random({4, 3}, 3), none()}), at::linear(a, random({4, 3}, 3))));
  const at::Tensor rows = random_ints({3}, 2, 1);
  EXPECT_TRUE(bitwise(call1("aten::index.Tensor", {a, list({borrow(rows)})}), a.index({rows})));
  const at::Tensor columns = random_ints({2}, 3, 1);
  EXPECT_TRUE(bitwise(call1("aten::index.Tensor", {a, list({nullptr, borrow(columns)})}),
                      a.index({at::indexing::Slice(), columns})));
  EXPECT_TRUE(bitwise(call1("aten::cat", {list({borrow(a), borrow(b)}), 0}), at::cat({a, b})));
  EXPECT_TRUE(bitwise(call1("aten::upsample_nearest1d.vec", {a.view({1, 2, 3}), none(), floats({2.0})}),
                      at::upsample_nearest1d(a.view({1, 2, 3}), {}, at::ArrayRef<double>{2.0})));
}

TEST_F(Ops, GiveListsOnePlaceAnElementAndSeveralResults) {
  const Tensors chunks = call("aten::chunk", {a, 3, 1});
  EXPECT_EQ(count, 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(bitwise(chunks[static_cast<size_t>(i)], a.narrow(1, i, 1)));
  call("aten::chunk", {a, 3, 1}, 2);  // the third has no room, and is not leaked
  EXPECT_EQ(count, 3u);
  const Tensors norm = call("aten::native_layer_norm", {a, ints({3}), none(), none(), 1e-5});
  EXPECT_EQ(count, 3u);
  EXPECT_TRUE(bitwise(norm[1], std::get<1>(at::native_layer_norm(a, {3}, {}, {}, 1e-5))));
  call("aten::size.int", {a, 1});
  EXPECT_EQ(raw[0].tag, uint32_t{MORTISE_INT});
  EXPECT_EQ(raw[0].v.i, 3);
  call("aten::equal", {a, a});
  EXPECT_EQ(raw[0].tag, uint32_t{MORTISE_LOGICAL});
  EXPECT_EQ(raw[0].v.i, 1);
}

TEST_F(Ops, GiveAbsentResultsAsNone) {
  const Tensors grads = call("aten::native_layer_norm_backward",
                             {a, b, ints({3}), a.mean(1, true), a.mean(1, true), none(), none(), ints({1, 0, 0})});
  EXPECT_EQ(count, 3u);
  EXPECT_TRUE(grads[0].defined());
  EXPECT_EQ(raw[1].tag, uint32_t{MORTISE_NONE});
}

TEST_F(Ops, WriteInPlaceAndIntoOut) {
  const at::Tensor before = a.clone();
  const at::Tensor same = call1("aten::add_.Tensor", {a, b, 1});
  EXPECT_TRUE(same.is_same(a));
  EXPECT_TRUE(bitwise(a, before + b));
  const at::Tensor out = at::empty({2, 2});
  EXPECT_TRUE(call1("aten::mm.out", {a, b.t(), out}).is_same(out));
  EXPECT_TRUE(bitwise(out, at::mm(a, b.t())));
}

TEST_F(Ops, AreFoundOnceAndNamedWhenThereIsNone) {
  EXPECT_EQ(find("aten::add.Tensor"), find("aten::add.Tensor"));
  EXPECT_NE(find("aten::add.Tensor"), find("aten::add.Scalar"));
  for (const char* name : {"aten::no_such", "aten::add.NoSuch", "add", ""}) {
    const Thrown t = thrown([&] { find(name); });
    EXPECT_EQ(t.status, MORTISE_E_NOT_FOUND) << name;
    EXPECT_NE(t.text.find("LibTorch 2.11"), std::string::npos) << t.text;
  }
}

TEST_F(Ops, RefuseArgumentsThatTheSchemaDoesNotTakeByNameAndType) {
  EXPECT_EQ(refusal("aten::add.Tensor", {a, b}), "aten::add.Tensor: 2 arguments given, the schema has 3");
  EXPECT_EQ(refusal("aten::add.Tensor", {a, "b", 1}),
            "aten::add.Tensor: argument 1 `other` takes Tensor; this is a text");
  EXPECT_EQ(refusal("aten::add.Tensor", {a, Arg(static_cast<mortise_param*>(nullptr)), 1}),
            "aten::add.Tensor: argument 1 `other` takes Tensor; this is a parameter");
  EXPECT_EQ(refusal("aten::add.Tensor", {a, b, none()}),
            "aten::add.Tensor: argument 2 `alpha` takes Scalar; this is nothing");
  EXPECT_EQ(refusal("aten::softmax.int", {a, 1.0, none()}),
            "aten::softmax.int: argument 1 `dim` takes int; this is a float");
  EXPECT_EQ(refusal("aten::softmax.int", {a, 1, 2.0}),
            "aten::softmax.int: argument 2 `dtype` takes ScalarType?; this is a float");
  EXPECT_EQ(refusal("aten::view", {a, 6}), "aten::view: argument 1 `size` takes SymInt[]; this is an int");
  EXPECT_EQ(refusal("aten::cat", {a, 0}), "aten::cat: argument 0 `tensors` takes Tensor[]; this is a tensor");
  EXPECT_EQ(thrown([&] { call("aten::add.Tensor", {a, none(), 1}); }).status,
            MORTISE_E_OPERATOR);  // an undefined tensor, as a result may be one
}

TEST_F(Ops, PassOnWhatLibTorchSays) {
  const Thrown t = thrown([&] { call1("aten::mm", {a, b}); });
  EXPECT_EQ(t.status, MORTISE_E_OPERATOR);
  EXPECT_EQ(t.text, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
  EXPECT_EQ(thrown([&] { call1("aten::chunk", {a, 3, 1}); }).text, "aten::chunk does not return one tensor");
}

TEST_F(Ops, RecordForAutogradOutsideOfPairs) {
  a.set_requires_grad(true);
  call1("aten::mul.Tensor", {a, b}).sum().backward();
  EXPECT_TRUE(bitwise(a.grad(), b));
}

TEST_F(Ops, LeakNothing) {
  const int64_t references = static_cast<int64_t>(a.use_count());
  for (int i = 0; i < 3; ++i) {
    call("aten::chunk", {a, 3, 1}, 1);
    thrown([&] { call1("aten::mm", {a, b}); });
    thrown([&] { call1("aten::chunk", {a, 3, 1}); });
    call1("aten::cat", {list({borrow(a), borrow(b)}), 0});
  }
  EXPECT_EQ(static_cast<int64_t>(a.use_count()), references);
}

// ---- tensors ----

TEST(Dtypes, EveryRowIsOneOfLibTorchs) {
  for (uint32_t dtype = 1; dtype < MORTISE_DTYPES; ++dtype) {
    const at::ScalarType type = scalar_type(dtype);
    EXPECT_EQ(dtype_of(type), dtype);
    EXPECT_EQ(at::elementSize(type), mortise_dtypes[dtype].bytes) << mortise_dtypes[dtype].safetensors;
    EXPECT_EQ(at::isFloatingType(type), mortise_dtype_is_float(dtype) != 0) << mortise_dtypes[dtype].safetensors;
  }
  EXPECT_EQ(scalar_type(MORTISE_DTYPES), at::ScalarType::Undefined);
  EXPECT_EQ(dtype_of(at::kChar), uint32_t{MORTISE_NO_DTYPE});
}

TEST_F(Ops, TensorsTellWhatTheyAre) {
  mortise_tensor_info info{};
  const at::Tensor view = a.t();
  EXPECT_EQ(kTensorApi.info(h, borrow(view), &info), MORTISE_E_ARGUMENT);  // it says no size
  info.struct_size = sizeof info;
  ASSERT_EQ(kTensorApi.info(h, borrow(view), &info), MORTISE_OK);
  EXPECT_EQ(info.rank, 2u);
  EXPECT_EQ(info.sizes[0], 3);
  EXPECT_EQ(info.strides[0], 1);
  EXPECT_EQ(info.numel, 6);
  EXPECT_EQ(info.dtype, uint32_t{MORTISE_F32});
  EXPECT_EQ(info.data, a.data_ptr());
  EXPECT_EQ(info.flags, 0u);
  float read[6];
  EXPECT_EQ(kTensorApi.read(h, borrow(view), read, sizeof read), MORTISE_OK);
  EXPECT_EQ(read[1], a[1][0].item().toFloat());
  EXPECT_EQ(kTensorApi.read(h, borrow(view), read, 4), MORTISE_E_ARGUMENT);
  EXPECT_EQ(kTensorApi.info(h, nullptr, &info), MORTISE_E_ARGUMENT);
  mortise_tensor* t = nullptr;
  const int64_t sizes[] = {2};
  EXPECT_EQ(kTensorApi.empty(h, 99, sizes, 1, 0, &t), MORTISE_E_ARGUMENT);
  kTensorApi.release(h, nullptr);
}

TEST_F(Ops, HandlesThatAreNullAreRefusedInEveryTable) {
  const auto refused = [](mortise_status status) {
    return status == MORTISE_E_ARGUMENT ? take_error(status) : "status " + std::to_string(status);
  };
  mortise_tensor* t = nullptr;
  mortise_kept* kept = nullptr;
  mortise_philox place{};
  mortise_value value{};
  EXPECT_EQ(refused(kGradsApi.target(h, nullptr, MORTISE_F32, &t, nullptr)), "called with NULL for the parameter");
  EXPECT_EQ(refused(kGradsApi.sum(h, nullptr, nullptr)), "called with NULL for the parameter");
  EXPECT_EQ(refused(kParamsApi.use(h, nullptr, &t)), "called with NULL for the parameter");
  EXPECT_EQ(refused(kCallApi.layer(h, nullptr, nullptr, 0, nullptr, 0)), "called with NULL for the layer");
  EXPECT_EQ(refused(kCallApi.run(h, nullptr, 0, nullptr, 0, nullptr, 0)),
            "called with NULL for the call that was kept");
  EXPECT_EQ(refused(kCallApi.keep(h, nullptr, nullptr, nullptr, 0, &kept)), "called with NULL for the call");
  EXPECT_EQ(refused(kCallApi.next(h, nullptr, nullptr)),
            "called with NULL for the rest of the chain: a provider has no next");
  EXPECT_EQ(refused(kOpsApi.call(h, nullptr, nullptr, 0, nullptr, 0, nullptr)), "called with NULL for the operator");
  EXPECT_EQ(refused(kOpsApi.call1(h, nullptr, nullptr, 0, &t)), "called with NULL for the operator");
  EXPECT_EQ(refused(kOpsApi.call1(h, find("aten::relu"), nullptr, 1, &t)), "called with NULL for an array of 1");
  EXPECT_EQ(refused(kOpsApi.call(h, find("aten::relu"), &value, 1, nullptr, 1, nullptr)),
            "called with NULL for an array of 1");
  EXPECT_EQ(refused(kAutogradApi.save(h, nullptr, nullptr, 0)), "called with NULL for the node");
  EXPECT_EQ(refused(kAutogradApi.saved(h, nullptr, 0, &t)), "called with NULL for the node");
  EXPECT_EQ(refused(kRandomApi.site(h, nullptr, 0, &place)), "called with NULL for the call");
  EXPECT_EQ(refused(kParallelApi.run(h, 1, 1, nullptr, nullptr)), "called with NULL for what is to run");
  EXPECT_EQ(refused(kParallelApi.threads(h, nullptr)), "called with NULL where a result is to be put");
}

// A wrapper may write the mode of its call, which chooses a chain.
TEST_F(Ops, ACallIsInAModeThatThereIs) {
  mortise_next end;
  end.core = [](mortise_call&) {};
  mortise_call call = make_call(nullptr, 0, {});
  call.mode = MORTISE_SAMPLE;
  EXPECT_EQ(kCallApi.next(h, &end, &call), MORTISE_OK);
  call.mode = 9;
  EXPECT_EQ(kCallApi.next(h, &end, &call), MORTISE_E_ARGUMENT);
  EXPECT_EQ(take_error(MORTISE_E_ARGUMENT), "a call in mode 9, which there is not");
}

TEST_F(Ops, TensorsThatWereWrittenThroughTheirBytesAreNoticedByAutograd) {
  at::Tensor w = random({3, 3}, 1).set_requires_grad(true), x = random({2, 3}, 2);
  const at::Tensor y = at::mm(x, w);
  x.mutable_data_ptr<float>()[0] = 7;
  kTensorApi.written(h, borrow(x));
  EXPECT_NE(thrown([&] { host.backward(y.sum()); }).text.find("inplace"), std::string::npos);
}

}  // namespace
