// The fixed pipeline: promotion by ordinary ops, cells and values, scalars.
#include "eager/eager_test_util.h"

namespace mge {
namespace {

using testing::ElementsAre;

class Dispatch : public EagerTest {};

TEST_F(Dispatch, PromotesWithOrdinaryCasts) {
  TensorPtr i = tensor({2}, {1, 2}, DType::I32), f = tensor({2}, {0.5, 0.25});
  TensorPtr y = apply("add", {i, f});
  EXPECT_EQ(y->meta().str(), "float32[2]");
  EXPECT_THAT(values(y), ElementsAre(1.5, 2.25));
  EXPECT_EQ(apply("div", {i, i})->meta().str(), "float32[2]") << "int / int is float32";
  EXPECT_EQ(apply("add", {i, i})->meta().str(), "int32[2]");
  EXPECT_EQ(apply("exp", {i})->meta().str(), "float32[2]");
}

TEST_F(Dispatch, ResultsLiveOnTheDefaultDevice) {
  TensorPtr x = filled({2}, 1);
  EXPECT_EQ(x->meta().cn, CompNode::default_node());
  EXPECT_EQ(apply("exp", {x})->meta().cn, CompNode::default_node());
  EXPECT_EQ(apply("full", {}, make_attrs(FullAttrs{{2}, 1, DType::F32}))->meta().cn, CompNode::default_node());
}

TEST_F(Dispatch, DevicesMustAgree) {
  Meta m = meta_of({2});
  m.cn = CompNode::get("cpu0:1");
  TensorPtr x = filled({2}, 1), y = tensor_from_buffer(m, allocate_buffer(m));
  expect_error(ErrorKind::Value, "add: ambiguous device; inputs are on xpux:0 and cpu0:1. Move one with .to().", [&] {
    apply("add", {x, y});
  });
}

TEST_F(Dispatch, AssignReplacesTheValueOfOneCellOnly) {
  TensorPtr a = filled({2}, 1), b = detach(*a), c = filled({3}, 5);
  EXPECT_EQ(a->value, b->value);
  assign(*a, *c);
  EXPECT_EQ(a->meta().shape.str(), "[3]");
  EXPECT_EQ(b->meta().shape.str(), "[2]") << "value semantics: the other cell keeps its value";
  assign(*a, *a);
  EXPECT_EQ(item(a), 5);
}

TEST_F(Dispatch, AssignTakesTheGradientHistoryAlong) {
  TensorPtr x = filled({2}, 3, DType::F64), cell = filled({2}, 0, DType::F64), gx;
  GradSession s;
  s.start();
  s.attach(*x, [&](TensorPtr g) { gx = g; });
  assign(*cell, *apply("mul", {x, x}));
  TensorPtr dy = filled({2}, 1, DType::F64);
  Tensor *ys[] = {cell.get()}, *dys[] = {dy.get()};
  s.backward(ys, dys);
  EXPECT_THAT(values(gx), ElementsAre(6, 6));
}

TEST_F(Dispatch, ScalarsOfEveryDtypeConvertLikeTypecvt) {
  for (double v : {0.0, 1.0, -1.0, 2.75, -2.75, 300.0, -40000.0, 1e20, -1e20, double(NAN), double(INFINITY)})
    for (DType t : {DType::Bool, DType::U8, DType::I8, DType::U16, DType::I16, DType::I32, DType::I64, DType::F16,
                    DType::BF16, DType::F32, DType::F64, DType::C64}) {
      TensorPtr s = scalar_tensor(v, t, nullptr);
      NamedAttr to{"dtype", t};
      TensorPtr want = apply("typecvt", {scalar(v, DType::F64)}, op_of("typecvt").schema.build("typecvt", {&to, 1}));
      EXPECT_EQ(s->meta().shape.rank, 0);
      EXPECT_EQ(s->meta().dtype, t);
      EXPECT_EQ(bytes_of(*s), bytes_of(*want)) << dtype_name(t) << " of " << v;
    }
  expect_error(ErrorKind::Type, "tensor: a number cannot become qint8.", [] { scalar_tensor(1, DType::QI8, nullptr); });
  expect_error(ErrorKind::Type, "tensor: a number cannot become intb1.", [] { scalar_tensor(1, DType::IB1, nullptr); });
}

TEST_F(Dispatch, UpdateChecksItsCells) {
  TensorPtr x = filled({2}, 1), y = filled({2}, 1);
  Tensor *in[] = {x.get(), y.get()}, *cells[] = {x.get(), y.get()};
  expect_error(ErrorKind::Value, "add: 2 cells for 1 outputs.",
               [&] { dispatch_update(op_of("add"), nullptr, in, cells); });
  Tensor* bad[] = {x.get(), filled({3}, 1).get()};
  TensorPtr keep = filled({3}, 1);
  bad[1] = keep.get();
  EXPECT_THROW(dispatch_update(op_of("add"), nullptr, bad, {cells, 1}), Error);
  EXPECT_THAT(values(x), ElementsAre(1, 1)) << "an inference error changes nothing";
}

TEST_F(Dispatch, UpdateInsideASessionIsRecorded) {
  TensorPtr w = filled({2}, 3, DType::F64), two = filled({2}, 2, DType::F64), gw;
  GradSession s;
  s.start();
  s.attach(*w, [&](TensorPtr g) { gw = g; });
  Tensor *in[] = {w.get(), two.get()}, *cells[] = {w.get()};
  dispatch_update(op_of("mul"), nullptr, in, cells);
  EXPECT_EQ(item(w), 6);
  TensorPtr dy = filled({2}, 1, DType::F64);
  Tensor *ys[] = {w.get()}, *dys[] = {dy.get()};
  s.backward(ys, dys);
  EXPECT_THAT(values(gw), ElementsAre(2, 2));
}

}  // namespace
}  // namespace mge
