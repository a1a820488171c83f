// The rules through the IR builder: graphs as the reader of model files will make them, run by the oracle.
#include "compat/op_class.h"

#include <gmock/gmock.h>

#include <cstring>
#include <set>

#include "ir/builder.h"
#include "ir/verify.h"
#include "plan/evaluate.h"
#include "plan/oracle.h"

namespace mge::compat {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

class Rules : public testing::Test {
 protected:
  ir::Graph g{"rules"};
  ir::GraphBuilder b{&g, {}, kernel_evaluator()};
  std::vector<Buffer> fed;

  /// An input of the graph, with what it is fed.
  Val x(const Shape& s, const std::vector<float>& values) {
    Meta m;
    m.shape = s;
    Buffer buffer = allocate_buffer(m);
    std::memcpy(buffer.storage->ptr, values.data(), m.bytes());
    fed.push_back(buffer);
    return b.val(g.add_input("x" + std::to_string(fed.size()), m));
  }
  Val ints(const std::vector<int32_t>& values, bool scalar = false) {
    Meta m;
    m.dtype = DType::I32;
    m.shape = scalar ? Shape{} : Shape{static_cast<int64_t>(values.size())};
    return b.literal(m, values.data());
  }
  std::vector<Val> run(std::string_view name, std::vector<NamedParam> params, std::vector<Val> in) {
    const OpClass& c = get(name);
    return compat::run(b, c, c.build(params).get(), in);
  }
  struct Result {
    Shape shape;
    std::vector<float> values;
  };
  Result eval(const Val& v) {
    ir::Graph h = g.clone();
    h.add_output("y", ir::GraphBuilder::id(v));
    ir::verify(h);
    OracleResult r = interpret(h, fed);
    const Meta m = h.meta(h.outputs()[0].value);
    Buffer y = make_contiguous(m, r.outputs[0]);
    std::vector<float> out;
    for (int64_t i = 0; i < m.shape.numel(); ++i)
      out.push_back(m.dtype == DType::I32 ? static_cast<float>(static_cast<const int32_t*>(y.data(m.dtype))[i])
                                          : static_cast<const float*>(y.data(m.dtype))[i]);
    return {m.shape, out};
  }
};

TEST_F(Rules, Elemwise) {
  const Val a = x(Shape{3}, {-1, 2, 3}), c = x(Shape{3}, {5, -6, 7});
  EXPECT_THAT(eval(run("Elemwise", {{"mode", std::string("add")}}, {a, c})[0]).values, ElementsAre(4, -4, 10));
  EXPECT_THAT(eval(run("Elemwise", {{"mode", int64_t{37}}}, {a, c})[0]).values,
              ElementsAre(4, 0, 10));  // FUSE_ADD_RELU
  EXPECT_THAT(eval(run("Elemwise", {{"mode", std::string("LT")}}, {a, c})[0]).values, ElementsAre(1, 0, 1));
}

TEST_F(Rules, ReduceToAxisAndToShape) {
  const Val a = x(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  Result r = eval(run("Reduce", {{"mode", std::string("MAX")}, {"axis", int64_t{-1}}}, {a})[0]);
  EXPECT_EQ(r.shape, (Shape{2, 1}));
  EXPECT_THAT(r.values, ElementsAre(3, 6));
  r = eval(run("Reduce", {{"mode", std::string("SUM")}}, {a, ints({1})})[0]);  // a full reduction in files
  EXPECT_EQ(r.shape, (Shape{1}));
  EXPECT_THAT(r.values, ElementsAre(21));
}

TEST_F(Rules, MatrixMul) {
  const Val a = x(Shape{1, 2}, {1, 2}), c = x(Shape{2, 2}, {3, 4, 5, 6});
  EXPECT_THAT(eval(run("MatrixMul", {{"transposeB", true}}, {a, c})[0]).values, ElementsAre(11, 17));
}

TEST_F(Rules, ConvolutionPoolingAndBias) {
  const Val image = x(Shape{1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}), w = x(Shape{1, 1, 2, 2}, {1, 0, 0, 2});
  EXPECT_THAT(eval(run("Convolution", {}, {image, w})[0]).values, ElementsAre(11, 14, 20, 23));
  EXPECT_THAT(eval(run("Convolution", {{"mode", std::string("CONVOLUTION")}}, {image, w})[0]).values,
              ElementsAre(7, 10, 16, 19));
  const Val bias = x(Shape{1, 1, 1, 1}, {-12});
  EXPECT_THAT(eval(run("ConvBias", {{"nonlineMode", std::string("RELU")}}, {image, w, bias})[0]).values,
              ElementsAre(0, 2, 8, 11));
  const std::vector<NamedParam> pool = {{"stride_h", int64_t{1}}, {"stride_w", int64_t{1}}};
  EXPECT_THAT(eval(run("Pooling", pool, {image})[0]).values, ElementsAre(5, 6, 8, 9));
  EXPECT_THAT(eval(run("AdaptivePooling", {{"mode", std::string("AVERAGE")}}, {image, ints({1, 1})})[0]).values,
              ElementsAre(5));
  EXPECT_THROW(run("Convolution", {{"format", std::string("NHWC")}}, {image, w}), Error);
}

TEST_F(Rules, OutputShapeOfAnAdjointIsATensorInFilesAndNumbersInPython) {
  const Val w = x(Shape{1, 1, 1, 1}, {2}), dy = x(Shape{1, 1, 1, 2}, {1, 3}),
            like = x(Shape{1, 1, 2, 4}, std::vector<float>(8));
  const std::vector<NamedParam> params = {{"stride_h", int64_t{2}}, {"stride_w", int64_t{2}}};
  for (const Val& shape : {like, ints({2, 4}), ints({1, 1, 2, 4})}) {
    Result r = eval(run("ConvolutionBackwardData", params, {w, dy, shape})[0]);
    EXPECT_EQ(r.shape, (Shape{1, 1, 2, 4}));
    EXPECT_THAT(r.values, ElementsAre(2, 0, 6, 0, 0, 0, 0, 0));
  }
}

TEST_F(Rules, BatchNormInference) {
  const Val image = x(Shape{1, 2, 1, 1}, {3, 5});
  auto stat = [&](float u, float v) { return x(Shape{1, 2, 1, 1}, {u, v}); };
  const std::vector<Val> out = run(
      "BatchNorm", {{"fwd_mode", std::string("INFERENCE")}, {"epsilon", 0.0}, {"param_dim", std::string("DIM_1C11")}},
      {image, stat(2, 1), stat(1, 0), stat(1, 1), stat(4, 16)});
  ASSERT_EQ(out.size(), 6u);
  EXPECT_THAT(eval(out.back()).values, ElementsAre(3, 1));
}

TEST_F(Rules, NormsAndSoftmax) {
  const Val a = x(Shape{1, 2}, {1, 3});
  EXPECT_THAT(eval(run("LayerNorm", {{"affine", false}, {"eps", 0.0}}, {a})[0]).values, ElementsAre(-1, 1));
  EXPECT_THAT(eval(run("Softmax", {}, {x(Shape{2}, {0, 0})})[0]).values, ElementsAre(0.5f, 0.5f));
}

TEST_F(Rules, ShapesFollowFromConstants) {
  // What a file does for x.reshape(x.shape[0], -1): the shape of x, cut and joined, is the operand of Reshape.
  const Val a = x(Shape{2, 1, 3}, {1, 2, 3, 4, 5, 6});
  const Val shape = run("GetVarShape", {}, {a})[0];
  const Rows first = {{0, 0, 0, 0, 1}};
  const Val n = run("Subtensor", {{"items", first}}, {shape, ints({0}, true)})[0];
  const Val want = run("Concat", {}, {n, ints({3})})[0];
  EXPECT_EQ(eval(run("Reshape", {}, {a, want})[0]).shape, (Shape{2, 3}));
  EXPECT_EQ(eval(run("Reshape", {{"axis", int64_t{0}}}, {a, ints({0, 2})})[0]).shape, (Shape{3, 2}));
  EXPECT_EQ(eval(run("Broadcast", {}, {a, ints({2, 2, 3})})[0]).shape, (Shape{2, 2, 3}));
  EXPECT_EQ(eval(run("Dimshuffle", {{"pattern", Ints{2, -1, 0}}}, {a})[0]).shape, (Shape{3, 1, 2}));
  EXPECT_EQ(eval(run("AxisAddRemove", {{"desc", Rows{{1, 1}, {0, 0}}}}, {a})[0]).shape, (Shape{1, 2, 3}));
}

TEST_F(Rules, Indexing) {
  const Val a = x(Shape{3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Rows region = {{1, 0, 0, 0, 1}, {0, 1, 0, 0, 0}};  // x[1:, 2], axes descending as in files
  EXPECT_THAT(eval(run("Subtensor", {{"items", region}}, {a, ints({2}), ints({1})})[0]).values, ElementsAre(6, 10));
  const Val v = x(Shape{2}, {50, 60});
  EXPECT_THAT(eval(run("SetSubtensor", {{"items", region}}, {a, v, ints({2}), ints({1})})[0]).values,
              ElementsAre(0, 1, 2, 3, 4, 5, 50, 7, 8, 9, 60, 11));
  const Rows rows = {{0, 0, 0, 0, 1}};
  EXPECT_THAT(eval(run("IndexingMultiAxisVec", {{"items", rows}}, {a, ints({2, 0})})[0]).values,
              ElementsAre(8, 9, 10, 11, 0, 1, 2, 3));
  const Rows both = {{0, 0, 0, 0, 1}, {1, 0, 0, 0, 1}};
  EXPECT_THAT(eval(run("MeshIndexing", {{"items", both}}, {a, ints({2, 0}), ints({1, 3})})[0]).values,
              ElementsAre(9, 11, 1, 3));
}

TEST_F(Rules, MakingAndSelecting) {
  EXPECT_THAT(eval(run("Eye", {{"k", int64_t{1}}}, {ints({2, 3})})[0]).values, ElementsAre(0, 1, 0, 0, 0, 1));
  const Val zero = b.constant(0, DType::F32, Val{}), one = b.constant(1, DType::F32, Val{});
  EXPECT_THAT(eval(run("Linspace", {}, {zero, one, ints({3}, true)})[0]).values, ElementsAre(0, 0.5f, 1));
  const Val a = x(Shape{1, 3}, {3, 1, 2});
  const std::vector<Val> top = run("TopK", {{"mode", std::string("VALUE_IDX_SORTED")}}, {a, ints({-2}, true)});
  EXPECT_THAT(eval(top[0]).values, ElementsAre(3, 2));
  EXPECT_THAT(eval(top[1]).values, ElementsAre(0, 2));
  EXPECT_THAT(eval(run("Cumsum", {{"axis", int64_t{1}}, {"exclusive", false}}, {a})[0]).values, ElementsAre(3, 4, 6));
}

TEST_F(Rules, RandomStateIsAnOperand) {
  Meta m;
  m.dtype = DType::I32;
  m.shape = Shape{4};
  const int32_t words[] = {7, 0, 0, 0};
  const Val state = b.literal(m, words);
  const std::vector<Val> out = run("UniformRNG", {}, {ints({5}), state});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(eval(out[0]).shape, (Shape{5}));
  EXPECT_EQ(eval(out[1]).values[0], 7);
  EXPECT_GT(eval(out[1]).values[2], 0);  // the counter moved
}

TEST_F(Rules, RefusesWhatIsNotKnown) {
  const Val a = x(Shape{2, 2}, {1, 2, 3, 4});
  auto text = [&](auto f) {
    try {
      f();
    } catch (const Error& e) {
      return e.text();
    }
    return std::string("no error");
  };
  Meta m;
  m.dtype = DType::I32;
  m.shape = Shape{1};
  const Val given = b.val(g.add_input("shape", m));
  EXPECT_THAT(text([&] { run("Reshape", {}, {a, given}); }), HasSubstr("Reshape: the shape must be known"));
  EXPECT_EQ(text([&] { run("NonZero", {}, {a}); }), "no error");  // a size that is bound when the graph runs
  EXPECT_THAT(text([&] { run("NvOf", {}, {a}); }), HasSubstr("apply: NvOf is not there"));
  EXPECT_THAT(text([&] { run("Softmax", {}, {a, a}); }), HasSubstr("Softmax: needs 1 inputs; got 2"));
  EXPECT_THAT(text([&] { run("Softmax", {{"axes", int64_t{1}}}, {a}); }), HasSubstr("has no parameter 'axes'"));
  EXPECT_THAT(text([&] { run("Reduce", {{"mode", std::string("NOPE")}}, {a}); }), HasSubstr("one of SUM, SUM_SQR"));
  EXPECT_THAT(text([&] { run("Reduce", {{"mode", int64_t{6}}}, {a}); }), HasSubstr("has no member number 6"));
}

TEST(Table, EveryClassIsThereOnceAndEveryFileTypeMeansOneClass) {
  std::set<std::string_view> names;
  std::set<std::pair<std::string_view, int>> types;
  size_t python = 0;
  for (auto& c : op_classes()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_EQ(c.rule == nullptr, !c.absent.empty()) << c.name;
    python += c.in_python;
    for (auto& f : c.files) {
      EXPECT_TRUE(types.insert({f.name, f.version}).second) << f.name;
      EXPECT_EQ(find_file_type(f.name, f.version), &c);
    }
    EXPECT_NO_THROW(c.build({})) << c.name;
  }
  EXPECT_EQ(python, 128u);
}

// The types of MegEngine 1.13's own files that the golden models hold, as v2 files name them.
TEST(Table, TypesOfGoldenModelsAreKnown) {
  const char* const types[] = {"AdaptivePoolingV1",
                               "Alloc",
                               "Argmax",
                               "Argmin",
                               "Argsort",
                               "AssertEqual",
                               "AxisAddRemove",
                               "BatchNormV1",
                               "BatchedMatrixMulV2",
                               "BatchedMeshIndexing",
                               "BetaRNG",
                               "Broadcast",
                               "Concat",
                               "CondTake",
                               "ConvBiasForwardV4",
                               "Convolution3D",
                               "Convolution3DBackwardData",
                               "ConvolutionBackwardDataV2",
                               "ConvolutionV2",
                               "CumsumV1",
                               "DeformableConvForwardV1",
                               "Diag",
                               "Dimshuffle",
                               "Dot",
                               "Dropout",
                               "Elemwise",
                               "ElemwiseMultiType",
                               "Eye",
                               "FakeQuant",
                               "GammaRNG",
                               "GaussianRNGV1",
                               "GeneralNorm",
                               "GetVarShapeV1",
                               "GroupLocalV2",
                               "GroupNorm",
                               "Identity",
                               "Images2Neibs",
                               "IncrMeshIndexing",
                               "IncrSubtensor",
                               "IndexingIncrMultiAxisVec",
                               "IndexingMultiAxisVec",
                               "IndexingOneHot",
                               "IndexingSetMultiAxisVec",
                               "IndexingSetOneHot",
                               "InstanceNorm",
                               "LRN",
                               "LSTMCellForward",
                               "LSTMForward",
                               "LayerNorm",
                               "Linspace",
                               "MaskedFill",
                               "MatrixInverse",
                               "MatrixMulV2",
                               "MeshIndexing",
                               "Padding",
                               "PermutationRNG",
                               "PoissonRNG",
                               "PoolingV1",
                               "RNNCellForward",
                               "RNNForward",
                               "ROIAlignV1",
                               "ReduceV2",
                               "RegionRestrictedConvolution",
                               "RelayoutFormatV1",
                               "RemapV1",
                               "ReshapeV1",
                               "Resize3D",
                               "ResizeV2",
                               "SVD",
                               "SetMeshIndexing",
                               "SetSubtensor",
                               "SlidingWindowTranspose",
                               "Split",
                               "Subtensor",
                               "TQT",
                               "TopK",
                               "TypeCvtV2",
                               "UniformRNGV1",
                               "WarpPerspectiveV2"};
  for (auto* t : types) EXPECT_TRUE(find_file_type(t, 1)) << t;
  for (auto* t : {"Convolution", "ConvolutionBackwardData", "Convolution3D", "ConvBiasForward", "DeformableConvForward",
                  "GroupNorm", "InstanceNorm", "Softmax"})
    EXPECT_TRUE(find_file_type(t, 2)) << t;
  EXPECT_FALSE(find_file_type("Host2DeviceCopy", 2));  // an input, no op
}

TEST(Table, ParametersPrintHashAndParse) {
  const OpClass& c = get("Convolution");
  EXPECT_EQ(print_param(c.fields[0], c.fields[0].value), "CROSS_CORRELATION");
  const Field& strategy = *std::find_if(c.fields.begin(), c.fields.end(), [](auto& f) { return f.name == "strategy"; });
  EXPECT_EQ(print_param(strategy, int64_t{3}), "HEURISTIC|PROFILE");
  EXPECT_EQ(parse_member(*strategy.members, "profile|HEURISTIC"), 3);
  EXPECT_EQ(print_param(c.fields.back(), c.fields.back().value), "18446744073709551615");
  EXPECT_NE(hash_param(ParamValue(int64_t{1})), hash_param(ParamValue(1.0)));
  EXPECT_EQ(hash_param(ParamValue(Rows{{1, 2}})), hash_param(ParamValue(Rows{{1, 2}})));
}

}  // namespace
}  // namespace mge::compat
