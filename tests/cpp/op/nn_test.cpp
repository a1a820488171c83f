// Shapes, dtypes and every error text of the neural-network ops.
#include <gtest/gtest.h>

#include "op/conv/conv2d.h"
#include "op/conv/conv_geom.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"
#include "op/matmul/matmul.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"
#include "op/opdef.h"
#include "op/optim/optim.h"
#include "op/pool/pool.h"
#include "op/rng/rng.h"

namespace mge {
namespace {

TEST(ConvGeomTest, SizesBesideZeroMayBeAnything) {
  ConvGeom g{.n = int64_t{1} << 32, .c = 8, .h = int64_t{1} << 31, .w = 0, .o = 4, .oh = int64_t{1} << 31, .ow = 0};
  EXPECT_TRUE(g.empty());
  EXPECT_EQ(g.flops(), 0);
  g.w = g.ow = 2;  // 2^32 * 2^31 * 2 wraps to zero
  EXPECT_FALSE(g.empty());
  EXPECT_EQ(g.flops(), 2.0 * 0x1p32 * 4 * 0x1p31 * 2 * 8);
}

Meta f32(const Shape& s) {
  Meta m;
  m.shape = s;
  return m;
}
Meta i32(const Shape& s) {
  Meta m = f32(s);
  m.dtype = DType::I32;
  return m;
}
Meta f64(const Shape& s) {
  Meta m = f32(s);
  m.dtype = DType::F64;
  return m;
}

std::string infer(const char* name, Attrs attrs, const std::vector<Meta>& in) {
  const OpDef& op = OpRegistry::global().get(name);
  std::vector<const Meta*> p;
  for (auto& m : in) p.push_back(&m);
  std::vector<Meta> out(op.outputs.size());
  infer_op(op, attrs.get(), p, out);
  std::string s;
  for (auto& m : out) s += (s.empty() ? "" : " ") + m.str();
  return s;
}
std::string error(const char* name, Attrs attrs, const std::vector<Meta>& in, ErrorKind kind = ErrorKind::Value) {
  try {
    return "no error: " + infer(name, attrs, in);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    return e.text();
  }
}

TEST(NnInfer, Matmul) {
  Attrs nn = make_attrs(MatmulAttrs{}), nt = make_attrs(MatmulAttrs{false, true});
  EXPECT_EQ(infer("matmul", nn, {f32({3, 4}), f32({4, 5})}), "float32[3,5]");
  EXPECT_EQ(infer("matmul", nt, {f32({2, 1, 3, 4}), f32({7, 5, 4})}), "float32[2,7,3,5]");
  EXPECT_EQ(infer("matmul", make_attrs(MatmulAttrs{true, false}), {f64({4, 3}), f64({4, 0})}), "float64[3,0]");
  EXPECT_EQ(error("matmul", nn, {f32({64, 400}), f32({120, 400})}),
            "matmul: inner sizes differ, 400 against 120; got a [64,400], b [120,400]. transpose_b=True would match.");
  EXPECT_EQ(
      error("matmul", nt, {f32({2, 3}), f32({3, 5})}),
      "matmul: inner sizes differ, 3 against 5; got a [2,3], b [3,5] (transposed). transpose_b=False would match.");
  EXPECT_EQ(error("matmul", nn, {f32({2, 3}), f32({4, 5})}),
            "matmul: inner sizes differ, 3 against 4; got a [2,3], b [4,5].");
  EXPECT_EQ(error("matmul", nn, {f32({3}), f32({3, 5})}), "matmul: a must have 2 or more dimensions; got float32[3].");
  EXPECT_EQ(error("matmul", nn, {i32({3, 3}), f32({3, 5})}, ErrorKind::Type),
            "matmul: b must be int32; got float32[3,5]. Cast it with astype(\"int32\").");
  EXPECT_EQ(error("matmul", nn, {Meta{{3, 3}, DType::U8}, f32({3, 5})}, ErrorKind::Type),
            "matmul: a must be a floating-point tensor; got uint8[3,3]. Cast it with astype(\"float32\").");
}

TEST(NnInfer, Conv2d) {
  Attrs one = make_attrs(Conv2dAttrs{});
  EXPECT_EQ(
      infer("conv2d", make_attrs(Conv2dAttrs{{2, 2}, {3, 3}, {1, 1}, 1}), {f32({8, 3, 224, 224}), f32({64, 3, 7, 7})}),
      "float32[8,64,112,112]");
  EXPECT_EQ(infer("conv2d", make_attrs(Conv2dAttrs{{2}, {1}, {2}, 2}), {f32({1, 4, 9, 9}), f32({2, 3, 2, 3, 3})}),
            "float32[1,6,4,4]");
  EXPECT_EQ(
      infer("conv2d", make_attrs(Conv2dAttrs{.groups = 2}), {f32({1, 4, 9, 9}), f32({6, 2, 3, 3}), f32({1, 6, 1, 1})}),
      "float32[1,6,7,7]");
  EXPECT_EQ(
      error("conv2d", one, {f32({4, 16, 32, 32}), f32({32, 8, 3, 3})}),
      "conv2d: input has 16 channels but weight expects 8 (weight.shape[1] 8 x groups 1); input [4,16,32,32], weight "
      "[32,8,3,3]. groups=2 would match.");
  EXPECT_EQ(error("conv2d", one, {f32({4, 15, 32, 32}), f32({32, 8, 3, 3})}),
            "conv2d: input has 15 channels but weight expects 8 (weight.shape[1] 8 x groups 1); input [4,15,32,32], "
            "weight [32,8,3,3].");
  EXPECT_EQ(error("conv2d", one, {f32({4, 6, 8, 8}), f32({2, 4, 3, 3, 3})}),
            "conv2d: weight [2,4,3,3,3] is laid out for 2 groups but groups is 1. groups=2 would match.");
  EXPECT_EQ(error("conv2d", one, {f32({4, 6, 2, 8}), f32({4, 6, 3, 3})}),
            "conv2d: kernel 3x3 (dilated 3x3) is larger than the padded input 2x8; input [4,6,2,8], weight [4,6,3,3]. "
            "Raise the padding or use a smaller kernel.");
  EXPECT_EQ(error("conv2d", one, {f32({6, 8, 8}), f32({4, 6, 3, 3})}), "conv2d: input must be [N,C,H,W]; got [6,8,8].");
  EXPECT_EQ(error("conv2d", one, {f32({1, 6, 8, 8}), f32({4, 6, 9})}),
            "conv2d: weight must be [O,C/groups,kh,kw] or [groups,O/groups,C/groups,kh,kw]; got [4,6,9].");
  EXPECT_EQ(error("conv2d", one, {f32({1, 6, 8, 8}), f32({4, 6, 3, 3}), f32({4})}),
            "conv2d: bias must have shape [1,4,1,1] (one value per output channel); got [4]. Reshape it.");
  EXPECT_EQ(error("conv2d", make_attrs(Conv2dAttrs{.stride = {0, 1}}), {f32({1, 6, 8, 8}), f32({4, 6, 3, 3})}),
            "conv2d: stride must be at least 1; got [0,1].");
  EXPECT_EQ(error("conv2d", make_attrs(Conv2dAttrs{.pad = {1, 1, 1}}), {f32({1, 6, 8, 8}), f32({4, 6, 3, 3})}),
            "conv2d: pad takes one or two ints; got [1,1,1].");
  EXPECT_EQ(error("conv2d", make_attrs(Conv2dAttrs{.groups = 0}), {f32({1, 6, 8, 8}), f32({4, 6, 3, 3})}),
            "conv2d: groups must be at least 1; got 0.");
  EXPECT_EQ(error("conv2d", make_attrs(Conv2dAttrs{.groups = 3}), {f32({1, 6, 8, 8}), f32({4, 2, 3, 3})}),
            "conv2d: 4 output channels cannot be split into 3 groups; weight [4,2,3,3].");
}

TEST(NnInfer, Conv2dAdjointsAndFused) {
  EXPECT_EQ(infer("conv2d_dx", make_attrs(Conv2dDxAttrs{{{2, 2}, {1, 1}, {1, 1}, 1}, {2, 3, 8, 8}}),
                  {f32({2, 5, 4, 4}), f32({5, 3, 3, 3})}),
            "float32[2,3,8,8]");
  EXPECT_EQ(error("conv2d_dx", make_attrs(Conv2dDxAttrs{{{2, 2}, {1, 1}, {1, 1}, 1}, {2, 3, 9, 9}}),
                  {f32({2, 5, 4, 4}), f32({5, 3, 3, 3})}),
            "conv2d_dx: gy must have shape [2,5,5,5] (the output of conv2d on x_shape [2,3,9,9]); got [2,5,4,4].");
  EXPECT_EQ(infer("conv2d_dw", make_attrs(Conv2dDwAttrs{{{1, 1}, {0, 0}, {1, 1}, 1}, {5, 3, 3, 3}}),
                  {f32({2, 3, 8, 8}), f32({2, 5, 6, 6})}),
            "float32[5,3,3,3]");
  EXPECT_EQ(error("conv2d_dw", make_attrs(Conv2dDwAttrs{{{1, 1}, {0, 0}, {1, 1}, 1}, {5, 3, 3, 3}}),
                  {f32({2, 3, 8, 8}), f32({2, 5, 5, 6})}),
            "conv2d_dw: gy must have shape [2,5,6,6] (the output of conv2d on x [2,3,8,8] and w_shape [5,3,3,3]); got "
            "[2,5,5,6].");
  Conv2dFusedAttrs at{{}, true, true, true, "relu"};
  Meta ch = f32({1, 5, 1, 1});
  EXPECT_EQ(
      infer("conv2d_fused", make_attrs(at), {f32({2, 3, 8, 8}), f32({5, 3, 3, 3}), ch, ch, ch, f32({2, 5, 6, 6})}),
      "float32[2,5,6,6]");
  EXPECT_EQ(error("conv2d_fused", make_attrs(Conv2dFusedAttrs{{}, false, true}),
                  {f32({2, 3, 8, 8}), f32({5, 3, 3, 3}), ch}, ErrorKind::Type),
            "conv2d_fused: attributes {stride=[1,1], pad=[0,0], dilate=[1,1], groups=1, has_bias=false, "
            "has_scale=true, has_add=false, "
            "act=\"none\", tile=0, slope=0.0} need 4 inputs; got 3.");
  EXPECT_EQ(error("conv2d_fused", make_attrs(Conv2dFusedAttrs{{}, false, false, false, "add"}),
                  {f32({2, 3, 8, 8}), f32({5, 3, 3, 3})}),
            "conv2d_fused: act must be none, prelu or an elementwise op of one operand, such as relu; got \"add\".");
  EXPECT_EQ(error("conv2d_fused", make_attrs(Conv2dFusedAttrs{{}, false, false, true}),
                  {f32({2, 3, 8, 8}), f32({5, 3, 3, 3}), ch}),
            "conv2d_fused: extra0 must have shape [2,5,6,6] (that of the convolution); got [1,5,1,1].");
}

TEST(NnInfer, MatmulFused) {
  const Meta a = f32({2, 3, 4}), b = f32({4, 5});
  auto attrs = [](const char* steps, bool bias = false) { return make_attrs(MatmulFusedAttrs{{}, bias, steps}); };
  EXPECT_EQ(infer("matmul_fused", attrs("mul(y,0) add(1,y) gelu(y)", true), {a, b, f32({5}), f32({}), f32({3, 5})}),
            "float32[2,3,5]");
  EXPECT_EQ(
      error("matmul_fused", attrs("gelu(y)", true), {a, b}, ErrorKind::Type),
      "matmul_fused: attributes {ta=false, tb=false, has_bias=true, steps=\"gelu(y)\"} need 3 inputs or more; got "
      "2.");
  EXPECT_EQ(error("matmul_fused", attrs("add(y,1)"), {a, b, f32({5})}, ErrorKind::Type),
            "matmul_fused: steps \"add(y,1)\" need 2 operands after the product's; got 1.");
  EXPECT_EQ(error("matmul_fused", attrs("gelu(y)"), {a, b, f32({5})}, ErrorKind::Type),
            "matmul_fused: steps \"gelu(y)\" use some of the 1 operands that follow the product's, not all.");
  EXPECT_EQ(error("matmul_fused", attrs("add(y,0)"), {a, b, f32({2, 1, 5})}),
            "matmul_fused: operand 0 of the steps must be like the result [2,3,5], one of its matrices, a row, or one "
            "value; got [2,1,5].");
  for (const char* bad : {"gelu", "gelu()", "gelu(x)", "add(y)", "add(0,1)", "nothing(y)", "where(y,y,y)", "softmax(y)",
                          "add(y,-1)", "add(y,1x)", "add(y,0,0)", "lt(y,0)"})
    EXPECT_EQ(error("matmul_fused", attrs(bad), {a, b, f32({5})}),
              format("matmul_fused: steps are elementwise ops of y, the result so far, such as \"mul(y,0) gelu(y)\", "
                     "where 0 is the first operand after the product's; got \"{}\".",
                     bad));
}

TEST(NnInfer, Pooling) {
  Attrs two = make_attrs(PoolAttrs{});
  EXPECT_EQ(infer("max_pool2d", two, {f32({2, 3, 9, 8})}), "float32[2,3,4,4]");
  EXPECT_EQ(infer("max_pool2d", make_attrs(PoolAttrs{{3}, {2}, {1}}), {f32({1, 1, 112, 112})}), "float32[1,1,56,56]");
  EXPECT_EQ(infer("max_pool2d_bwd", two, {f32({2, 3, 9, 8}), f32({2, 3, 4, 4}), f32({2, 3, 4, 4})}),
            "float32[2,3,9,8]");
  EXPECT_EQ(infer("max_pool2d_take", two, {f32({2, 3, 9, 8}), f32({2, 3, 4, 4}), f32({2, 3, 9, 8})}),
            "float32[2,3,4,4]");
  EXPECT_EQ(infer("avg_pool2d_bwd", make_attrs(AvgPoolBwdAttrs{{2, 2}, {}, {0, 0}, false, {2, 3, 9, 8}}),
                  {f32({2, 3, 4, 4})}),
            "float32[2,3,9,8]");
  EXPECT_EQ(
      error("max_pool2d", make_attrs(PoolAttrs{{2, 2}, {}, {2, 0}}), {f32({1, 1, 8, 8})}),
      "max_pool2d: pad must be smaller than the kernel, or a window would hold padding only; got kernel 2x2, pad 2x0.");
  EXPECT_EQ(error("avg_pool2d", make_attrs(AvgPoolAttrs{{9, 2}}), {f32({1, 1, 8, 8})}),
            "avg_pool2d: window 9x2 is larger than the padded input 8x8; input [1,1,8,8]. Use a smaller kernel.");
  EXPECT_EQ(error("max_pool2d", two, {f32({8, 8})}), "max_pool2d: input must be [N,C,H,W]; got [8,8].");
  EXPECT_EQ(error("max_pool2d_bwd", two, {f32({1, 1, 8, 8}), f32({1, 1, 4, 4}), f32({1, 1, 4, 5})}),
            "max_pool2d_bwd: gy must have shape [1,1,4,4] (max_pool2d of x [1,1,8,8]); got [1,1,4,5].");
}

TEST(NnInfer, Normalisation) {
  Attrs eps = make_attrs(BatchNormAttrs{});
  EXPECT_EQ(infer("batch_norm_train", eps, {f32({2, 3, 4, 5}), f32({1, 3, 1, 1}), f32({3})}),
            "float32[2,3,4,5] float32[1,3,1,1] float32[1,3,1,1] float32[1,3,1,1]");
  EXPECT_EQ(infer("batch_norm_train", eps, {f32({2, 3}), f32({1, 3, 1, 1}), f32({1, 3, 1, 1})}),
            "float32[2,3] float32[1,3] float32[1,3] float32[1,3]");
  EXPECT_EQ(infer("batch_norm_bwd", nullptr, {f32({2, 3}), f32({2, 3}), f32({1, 3, 1, 1}), f32({1, 3}), f32({1, 3})}),
            "float32[2,3] float32[1,3,1,1] float32[1,3,1,1]");
  EXPECT_EQ(
      error("batch_norm_infer", eps, {f32({2, 3, 4, 5}), f32({4}), f32({3}), f32({3}), f32({3})}),
      "batch_norm_infer: weight must have shape [1,3,1,1] or [3], one value per channel of input [2,3,4,5]; got [4].");
  EXPECT_EQ(error("batch_norm_train", make_attrs(BatchNormAttrs{-1}), {f32({2, 3}), f32({3}), f32({3})}),
            "batch_norm_train: eps must not be negative; got -1.");
  EXPECT_EQ(error("batch_norm_train", eps, {f32({3}), f32({3}), f32({3})}),
            "batch_norm_train: x must have 2 or more dimensions; got float32[3].");
  Attrs ln = make_attrs(LayerNormAttrs{2});
  EXPECT_EQ(infer("layer_norm", ln, {f32({2, 3, 4}), f32({3, 4}), f32({3, 4})}),
            "float32[2,3,4] float32[2,1,1] float32[2,1,1]");
  EXPECT_EQ(infer("layer_norm_bwd", make_attrs(LayerNormBwdAttrs{2}),
                  {f32({2, 3, 4}), f32({2, 3, 4}), f32({2, 1, 1}), f32({2, 1, 1})}),
            "float32[2,3,4] float32[0] float32[0]");
  EXPECT_EQ(error("layer_norm", ln, {f32({2, 3, 4}), f32({4}), f32({4})}),
            "layer_norm: weight must have shape [3,4] (the last 2 axes of x [2,3,4]); got [4].");
  EXPECT_EQ(error("layer_norm", make_attrs(LayerNormAttrs{3}), {f32({3, 4})}),
            "layer_norm: n_axes must be 1..2 for input [3,4]; got 3.");
  EXPECT_EQ(error("layer_norm", ln, {f32({3, 4}), f32({3, 4})}, ErrorKind::Type),
            "layer_norm: weight and bias come together; got only one of them.");
}

TEST(NnInfer, SoftmaxLossIndexing) {
  EXPECT_EQ(infer("softmax", make_attrs(SoftmaxAttrs{-1}), {f32({2, 3})}), "float32[2,3]");
  EXPECT_EQ(error("softmax", make_attrs(SoftmaxAttrs{2}), {f32({2, 3})}),
            "softmax: axis 2 is out of range for a tensor with 2 dimensions; valid are -2..1.");
  Attrs xe = make_attrs(XentAttrs{});
  EXPECT_EQ(infer("softmax_xent", xe, {f32({8, 10, 4}), i32({8, 4})}), "float32[8,4] float32[8,10,4]");
  EXPECT_EQ(error("softmax_xent", xe, {f32({8, 10}), i32({8, 1})}),
            "softmax_xent: label must have shape [8] (x [8,10] without the class axis 1); got [8,1]. Reshape it.");
  EXPECT_EQ(error("softmax_xent", xe, {f32({8, 10}), f32({8})}, ErrorKind::Type),
            "softmax_xent: label must be int32; got float32[8]. Cast it with astype(\"int32\").");
  EXPECT_EQ(infer("indexing_one_hot", make_attrs(OneHotAttrs{}), {f32({8, 10}), i32({8})}), "float32[8]");
  EXPECT_EQ(error("indexing_one_hot", make_attrs(OneHotAttrs{0}), {f32({8, 10}), i32({8})}),
            "indexing_one_hot: index must have shape [10] (x [8,10] without axis 0); got [8].");
  EXPECT_EQ(infer("set_one_hot", make_attrs(OneHotAttrs{}), {f32({8, 10}), i32({8}), f32({8})}), "float32[8,10]");
  EXPECT_EQ(error("set_one_hot", make_attrs(OneHotAttrs{}), {f32({8, 10}), i32({8}), f64({8})}, ErrorKind::Type),
            "set_one_hot: v must be float32; got float64[8]. Cast it with astype(\"float32\").");
  EXPECT_EQ(infer("take", make_attrs(TakeAttrs{}), {i32({100, 16}), i32({4, 7})}), "int32[4,7,16]");
  EXPECT_EQ(error("take", make_attrs(TakeAttrs{}), {f32({2, 2, 2, 2, 2}), i32({1, 1, 1, 1, 1})}),
            "take: the result would have 9 dimensions, more than 8; x [2,2,2,2,2], index [1,1,1,1,1].");
  EXPECT_EQ(infer("take_bwd", make_attrs(TakeBwdAttrs{0, {100, 16}}), {f32({4, 7, 16}), i32({4, 7})}),
            "float32[100,16]");
  EXPECT_EQ(error("take_bwd", make_attrs(TakeBwdAttrs{0, {100, 16}}), {f32({4, 16}), i32({4, 7})}),
            "take_bwd: gy must have shape [4,7,16] (take of x_shape [100,16] by index [4,7]); got [4,16].");
}

TEST(NnInfer, OptimizersAndRandom) {
  EXPECT_EQ(infer("sgd_momentum_update", make_attrs(SgdMomentumAttrs{}), {f32({3}), f32({3}), f32({}), f32({3})}),
            "float32[3] float32[3]");
  EXPECT_EQ(error("sgd_update", make_attrs(SgdAttrs{}), {f32({3}), f32({4}), f32({})}),
            "sgd_update: g must have shape [3] (that of w); got [4].");
  EXPECT_EQ(error("sgd_update", make_attrs(SgdAttrs{}), {f32({3}), f32({3}), f32({2})}),
            "sgd_update: lr must hold one value; got float32[2].");
  EXPECT_EQ(error("sgd_update", make_attrs(SgdAttrs{-1}), {f32({3}), f32({3}), f32({})}),
            "sgd_update: weight_decay must not be negative; got -1.");
  EXPECT_EQ(error("sgd_momentum_update", make_attrs(SgdMomentumAttrs{-1}), {f32({3}), f32({3}), f32({}), f32({3})}),
            "sgd_momentum_update: momentum must not be negative; got -1.");
  EXPECT_EQ(
      error("adam_update", make_attrs(AdamAttrs{1.0}), {f32({3}), f32({3}), f32({3}), f32({3}), f32({}), f32({})}),
      "adam_update: betas must lie in [0,1); got 1 and 0.999.");
  EXPECT_EQ(infer("rng_normal", make_attrs(RngNormalAttrs{{2, 0}}), {i32({4})}), "float32[2,0] int32[4]");
  EXPECT_EQ(error("rng_uniform", make_attrs(RngUniformAttrs{{2}, 1, 1}), {i32({4})}),
            "rng_uniform: lo must be below hi; got 1 and 1.");
  EXPECT_EQ(error("rng_uniform", make_attrs(RngUniformAttrs{{-2}}), {i32({4})}),
            "rng_uniform: a dimension cannot be negative; got shape [-2].");
  EXPECT_EQ(error("rng_normal", make_attrs(RngNormalAttrs{{2}, 0, -1}), {i32({4})}),
            "rng_normal: std must not be negative; got -1.");
  EXPECT_EQ(error("rng_uniform", make_attrs(RngUniformAttrs{{2}}), {i32({2})}),
            "rng_uniform: state must have shape [4] (seed and counter, two words each); got [2].");
  EXPECT_EQ(infer("dropout", make_attrs(DropoutAttrs{}), {f64({2, 3}), i32({4})}),
            "float64[2,3] float64[2,3] int32[4]");
  EXPECT_EQ(error("dropout", make_attrs(DropoutAttrs{1}), {f32({2}), i32({4})}),
            "dropout: p must lie in [0,1); got 1.");
}

// What the rest of the engine may rely on without naming an op.
#ifndef MGE_LITE_ONLY
TEST(NnRegistry, EveryOpIsDifferentiableOrSaysWhyNot) {
  for (const char* name : {"matmul",           "conv2d",          "conv2d_dx",  "conv2d_dw",      "max_pool2d",
                           "max_pool2d_bwd",   "max_pool2d_take", "avg_pool2d", "avg_pool2d_bwd", "batch_norm_train",
                           "batch_norm_infer", "layer_norm",      "softmax",    "logsoftmax",     "softmax_xent",
                           "indexing_one_hot", "set_one_hot",     "take",       "take_bwd",       "dropout"})
    EXPECT_TRUE(OpRegistry::global().get(name).vjp) << name;
  for (const char* name : {"batch_norm_bwd", "layer_norm_bwd", "softmax_bwd", "logsoftmax_bwd", "softmax_xent_bwd"})
    EXPECT_TRUE(OpRegistry::global().get(name).decompose) << name;
  for (const char* name : {"conv2d_fused", "matmul_fused", "batch_norm_fused", "batch_norm_fused_bwd", "sgd_update",
                           "sgd_momentum_update", "adam_update", "rng_uniform", "rng_normal"})
    EXPECT_TRUE(OpRegistry::global().get(name).is(kNoGrad)) << name;
}
#endif

}  // namespace
}  // namespace mge
