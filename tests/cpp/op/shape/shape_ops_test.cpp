// Shape ops as meaning: inferred shapes, error texts, and views that address the right elements.
#include "op/shape/shape_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "op/shape/shape_cases.h"

namespace mge {
namespace {

Meta meta(Shape s, DType t = DType::F32) {
  Meta m;
  m.shape = s;
  m.dtype = t;
  return m;
}
Meta infer(const char* op, const Attrs& attrs, std::vector<Meta> in) {
  std::vector<const Meta*> p;
  for (auto& m : in) p.push_back(&m);
  Meta out;
  infer_op(OpRegistry::global().get(op), attrs.get(), p, {&out, 1});
  return out;
}
void expect_error(ErrorKind kind, const std::string& text, const char* op, const Attrs& attrs, std::vector<Meta> in) {
  try {
    Meta got = infer(op, attrs, std::move(in));
    ADD_FAILURE() << "accepted as " << got.str() << "; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.text();
    EXPECT_EQ(e.text(), text);
  }
}
Attrs shape(Ints s) { return make_attrs(ShapeAttrs{std::move(s)}); }
Attrs axes(Ints a) { return make_attrs(AxesAttrs{std::move(a)}); }
Attrs cut(Ints a, Ints start, Ints stop, Ints step) { return make_attrs(SliceAttrs{a, start, stop, step}); }

TEST(ShapeOps, InferAgreesWithNaiveShapes) {
  ShapeCases cases(11);
  for (int i = 0; i < 4000; ++i) {
    ShapeCase c = cases.next();
    Meta got = infer(c.op.c_str(), c.attrs, {meta(c.in, DType::I16)});
    ASSERT_EQ(got.shape.str(), c.out.str()) << c.str();
    ASSERT_EQ(got.dtype, DType::I16);
  }
}

TEST(ShapeOps, ViewsAddressTheRightElements) {
  ShapeCases cases(12);
  int views = 0, total = 0;
  for (int i = 0; i < 8000; ++i) {
    ShapeCase c = cases.next();
    int64_t extent;
    Layout in = cases.layout(c.in, &extent), out;
    const OpDef& op = OpRegistry::global().get(c.op);
    ++total;
    if (!op.view({c.attrs.get(), c.in, in, c.out, &out})) {
      ASSERT_FALSE(in.is_contiguous(c.in)) << "a contiguous tensor needs no copy: " << c.str();
      continue;
    }
    ++views;
    std::vector<int64_t> where;  // address of each element of x in row-major order
    for_each_index(c.in, [&](const Index& at) { where.push_back(address(in, at)); });
    for_each_index(c.out, [&](const Index& at) {
      ASSERT_EQ(address(out, at), where[static_cast<size_t>(c.source(at))]) << c.str() << " case " << i;
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(views, total / 2);
}

// Found by the test above: the junk stride of a size-1 dim made a transposed tensor look dense.
TEST(ShapeOps, ReshapeIgnoresStridesOfSizeOneDims) {
  const OpDef& op = OpRegistry::global().get("reshape");
  Layout in, out;
  in.stride[0] = 1, in.stride[1] = 1, in.stride[2] = 4;  // [4,2] transposed, then expand_dims(1)
  EXPECT_FALSE(op.view({nullptr, Shape{4, 1, 2}, in, Shape{8}, &out}));
  in.stride[0] = 2, in.stride[1] = 99, in.stride[2] = 1;  // dense whatever the middle says
  ASSERT_TRUE(op.view({nullptr, Shape{4, 1, 2}, in, Shape{8}, &out}));
  EXPECT_EQ(out.stride[0], 1);
  in.stride[0] = 6, in.stride[1] = 99, in.stride[2] = 3;  // every third element
  ASSERT_TRUE(op.view({nullptr, Shape{4, 1, 2}, in, Shape{8}, &out}));
  EXPECT_EQ(out.stride[0], 3);
}

TEST(ShapeOps, Reshape) {
  EXPECT_EQ(infer("reshape", shape({-1}), {meta({})}).shape.str(), "[1]");
  EXPECT_EQ(infer("reshape", shape({}), {meta({1, 1})}).shape.str(), "[]");
  EXPECT_EQ(infer("reshape", shape({0}), {meta({3, 0})}).shape.str(), "[0]");
  EXPECT_EQ(infer("reshape", shape({5, -1}), {meta({0, 3})}).shape.str(), "[5,0]");
  expect_error(ErrorKind::Value, "reshape: cannot turn [2,3,4] (24 elements) into [5,-1]; 24 is not a multiple of 5.",
               "reshape", shape({5, -1}), {meta({2, 3, 4})});
  expect_error(ErrorKind::Value, "reshape: cannot turn [2,3] (6 elements) into [4] (4 elements).", "reshape",
               shape({4}), {meta({2, 3})});
  expect_error(ErrorKind::Value, "reshape: only one dimension can be -1; got [-1,-1].", "reshape", shape({-1, -1}),
               {meta({4})});
  expect_error(ErrorKind::Value, "reshape: a dimension cannot be -2; got [-2,2]. Use -1 once to infer it.", "reshape",
               shape({-2, 2}), {meta({4})});
  expect_error(ErrorKind::Value,
               "reshape: the -1 in [0,-1] could be anything, since another dimension is 0; got x [0].", "reshape",
               shape({0, -1}), {meta({0})});
  expect_error(ErrorKind::Value, "reshape: the size of shape [1099511627776,1099511627776] overflows.", "reshape",
               shape({int64_t{1} << 40, int64_t{1} << 40}), {meta({4})});
  expect_error(ErrorKind::Value, "reshape: shape: at most 8 dimensions are supported; got 9.", "reshape",
               shape(Ints(9, int64_t{1})), {meta({1})});
}

TEST(ShapeOps, Transpose) {
  auto perm = [](Ints p) { return make_attrs(PermAttrs{std::move(p)}); };
  EXPECT_EQ(infer("transpose", perm({}), {meta({})}).shape.str(), "[]");
  for (Ints bad : {Ints{0}, Ints{0, 0}, Ints{0, 2}, Ints{0, -1}, Ints{0, 1, 2}})
    expect_error(ErrorKind::Value,
                 "transpose: perm " + print_attr(bad) + " must name each of the 2 axes of [2,3] once.", "transpose",
                 perm(bad), {meta({2, 3})});
}

TEST(ShapeOps, BroadcastTo) {
  EXPECT_EQ(infer("broadcast_to", shape({3, 0}), {meta({1})}).shape.str(), "[3,0]");
  for (auto [in, to] : {std::pair<Shape, Ints>{{2, 3}, {3}}, {{2}, {3}}, {{2, 3}, {2, 4}}, {{0}, {1}}})
    expect_error(ErrorKind::Value,
                 "broadcast_to: " + in.str() + " does not broadcast to " + print_attr(to) +
                     "; aligned from the right, each size must be equal or 1.",
                 "broadcast_to", shape(to), {meta(in)});
  expect_error(ErrorKind::Value, "broadcast_to: a dimension cannot be negative; got shape [2,-1].", "broadcast_to",
               shape({2, -1}), {meta({1})});
  expect_error(ErrorKind::Value, "broadcast_to: the size of shape [1099511627776,1099511627776] overflows.",
               "broadcast_to", shape({int64_t{1} << 40, int64_t{1} << 40}), {meta({1})});
}

TEST(ShapeOps, ExpandDimsAndSqueeze) {
  EXPECT_EQ(infer("expand_dims", axes({0, -1}), {meta({3})}).shape.str(), "[1,3,1]");
  EXPECT_EQ(infer("expand_dims", axes({0}), {meta({})}).shape.str(), "[1]");
  expect_error(ErrorKind::Value, "expand_dims: axis 3 is out of range for a tensor with 1 dimensions; valid are -2..1.",
               "expand_dims", axes({3}), {meta({2})});
  expect_error(ErrorKind::Value, "expand_dims: axis 1 is named twice.", "expand_dims", axes({1, -2}), {meta({2})});
  expect_error(ErrorKind::Value, "expand_dims: the result would have 9 dimensions; at most 8 are supported.",
               "expand_dims", axes({0}), {meta(Shape::filled(8, 1))});
  EXPECT_EQ(infer("squeeze", axes({}), {meta({1, 3, 1})}).shape.str(), "[3]");
  EXPECT_EQ(infer("squeeze", axes({-1}), {meta({1, 3, 1})}).shape.str(), "[1,3]");
  expect_error(ErrorKind::Value, "squeeze: axis 1 of [1,3] has size 3, not 1.", "squeeze", axes({1}), {meta({1, 3})});
  expect_error(ErrorKind::Value, "squeeze: axis 5 is out of range for a tensor with 2 dimensions; valid are -2..1.",
               "squeeze", axes({5}), {meta({1, 3})});
}

TEST(ShapeOps, SliceErrors) {
  Meta x = meta({4, 5});
  expect_error(ErrorKind::Index, "slice: axis 2 is out of range for [4,5].", "slice", cut({2}, {0}, {1}, {1}), {x});
  expect_error(ErrorKind::Index, "slice: axis -1 is out of range for [4,5].", "slice", cut({-1}, {0}, {1}, {1}), {x});
  expect_error(ErrorKind::Value, "slice: a slice step cannot be 0.", "slice", cut({0}, {0}, {1}, {0}), {x});
  expect_error(ErrorKind::Index, "slice: [0:6:1] leaves axis 1 of [4,5].", "slice", cut({1}, {0}, {6}, {1}), {x});
  expect_error(ErrorKind::Index, "slice: [-1:2:1] leaves axis 0 of [4,5].", "slice", cut({0}, {-1}, {2}, {1}), {x});
  expect_error(ErrorKind::Index, "slice: [3:-3:-2] leaves axis 0 of [4,5].", "slice", cut({0}, {3}, {-3}, {-2}), {x});
  expect_error(ErrorKind::Value, "slice: axes, starts, stops and steps must have one length; got 1, 1, 2, 1.", "slice",
               cut({0}, {0}, {1, 2}, {1}), {x});
  // A region is one interval per axis: twice the same axis would add up two offsets and leave the tensor.
  expect_error(ErrorKind::Value, "slice: axis 0 is named twice.", "slice", cut({0, 0}, {3, 3}, {4, 4}, {1, 1}), {x});
}

TEST(ShapeOps, SliceBoundsFromAFileCannotOverflow) {
  Meta x = meta({4, 5});
  for (int64_t start : {INT64_MIN, INT64_MAX, int64_t{0}, int64_t{3}})
    for (int64_t stop : {INT64_MIN, INT64_MAX, int64_t{2}})
      for (int64_t step : {INT64_MIN, INT64_MAX, int64_t{1}, int64_t{-1}, int64_t{2}}) {
        if ((start == 0 || start == 3) && stop == 2 && std::abs(static_cast<double>(step)) < 4) continue;
        try {
          Meta y = infer("slice", cut({0}, {start}, {stop}, {step}), {x});
          EXPECT_LE(y.shape[0], 4) << start << ":" << stop << ":" << step;
        } catch (const Error& e) {
          EXPECT_EQ(e.kind(), ErrorKind::Index) << e.text();
        }
      }
}

TEST(ShapeOps, SetSlice) {
  EXPECT_EQ(infer("set_slice", cut({0}, {3}, {-1}, {-2}), {meta({4, 5}), meta({2, 5})}).shape.str(), "[4,5]");
  expect_error(ErrorKind::Value, "set_slice: the value has shape [3,5] but the region [2,5].", "set_slice",
               cut({0}, {0}, {2}, {1}), {meta({4, 5}), meta({3, 5})});
  expect_error(ErrorKind::Type, "set_slice: the value is int32 but the tensor float32.", "set_slice",
               cut({0}, {0}, {2}, {1}), {meta({4, 5}), meta({2, 5}, DType::I32)});
  expect_error(ErrorKind::Index, "set_slice: [0:9:1] leaves axis 0 of [4,5].", "set_slice", cut({0}, {0}, {9}, {1}),
               {meta({4, 5}), meta({9, 5})});
}

TEST(ShapeOps, Concat) {
  auto axis = [](int64_t a) { return make_attrs(AxisAttrs{a}); };
  EXPECT_EQ(infer("concat", axis(-1), {meta({2, 3}), meta({2, 0}), meta({2, 4})}).shape.str(), "[2,7]");
  expect_error(ErrorKind::Value,
               "concat: needs tensors of at least one dimension; got a scalar. Use stack or expand_dims.", "concat",
               axis(0), {meta({}), meta({})});
  expect_error(ErrorKind::Value, "concat: shapes must agree except on axis 1; input 0 is [2,3], input 2 is [3,3].",
               "concat", axis(1), {meta({2, 3}), meta({2, 1}), meta({3, 3})});
  expect_error(ErrorKind::Value, "concat: axis 2 is out of range for a tensor with 2 dimensions; valid are -2..1.",
               "concat", axis(2), {meta({2, 3})});
  // Dispatch promotes first; a graph from a file does not.
  expect_error(ErrorKind::Type, "concat: inputs must share one dtype; got float32 and float64. Cast one with astype.",
               "concat", axis(0), {meta({2}), meta({2}, DType::F64)});
  std::vector<Meta> many(40, meta({int64_t{1} << 58, 0}));
  EXPECT_THROW(infer("concat", axis(0), many), Error) << "the sum of the sizes overflows";
}

TEST(ShapeOps, FullAndFillLike) {
  EXPECT_EQ(infer("full", make_attrs(FullAttrs{{2, 0}, 1.5, DType::I8}), {}).str(), "int8[2,0]");
  expect_error(ErrorKind::Value, "full: a dimension cannot be negative; got shape [-1].", "full",
               make_attrs(FullAttrs{{-1}, 0, DType::F32}), {});
  expect_error(ErrorKind::Value, "full: the size of shape [576460752303423488] overflows.", "full",
               make_attrs(FullAttrs{{INT64_MAX / 16 + 1}, 0, DType::F32}), {});
  EXPECT_EQ(infer("fill_like", make_attrs(ValueAttrs{1}), {meta({3}, DType::U16)}).str(), "uint16[3]");
}

TEST(ShapeOps, SliceLayout) {
  Shape s{4, 6};
  Layout base = Layout::contiguous(s);
  base.offset = 100;
  Layout l = slice_layout({{1, 0}, {5, 1}, {-1, 3}, {-2, 1}}, s, base);
  EXPECT_EQ(l.offset, 100 + 5 + 6);
  EXPECT_EQ(l.stride[0], 6);
  EXPECT_EQ(l.stride[1], -2);
  l = slice_layout({{1}, {6}, {6}, {1}}, s, base);
  EXPECT_EQ(l.offset, 100) << "an empty region must not point behind the tensor";
}

}  // namespace
}  // namespace mge
