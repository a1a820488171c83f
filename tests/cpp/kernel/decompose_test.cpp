// Running an op as its parts: what choose() says with the kernels of composites hidden, and what run_op makes of it.
#include "kernel/decompose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "op/loss/softmax.h"
#include "op/reduce/reduce.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

struct Hidden {
  Hidden() { set_primitives_only(true); }
  ~Hidden() { set_primitives_only(false); }
};

Meta meta(const Shape& s, DType t = DType::F32) {
  Meta m;
  m.shape = s;
  m.dtype = t;
  return m;
}
Buffer buffer(const Meta& m, std::vector<float> v) {
  Buffer b = allocate_buffer(m);
  std::copy(v.begin(), v.end(), static_cast<float*>(b.storage->ptr));
  return b;
}

TEST(Decompose, ChooseHidesKernelsOfCompositesOnly) {
  const OpDef &softmax = OpRegistry::global().get("softmax"), &reduce = OpRegistry::global().get("reduce");
  TensorArg t;
  t.shape = Shape{2, 2};
  t.layout = Layout::contiguous(t.shape);
  Attrs axis = make_attrs(SoftmaxAttrs{1}), sum = make_attrs(ReduceAttrs{"sum", {1}, true});
  KernelArgs composite{&softmax, axis.get(), {&t, 1}, {&t, 1}}, primitive{&reduce, sum.get(), {&t, 1}, {&t, 1}};
  KernelRegistry& r = KernelRegistry::global();
  const Kernel& before = r.choose(composite);
  {
    Hidden h;
    EXPECT_TRUE(primitives_only());
    r.choose(primitive);
    try {
      r.choose(composite);
      FAIL() << "a kernel was chosen";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::NotImplemented);
      EXPECT_THAT(e.text(), testing::HasSubstr("only kernels of primitives are in use"));
    }
    // The oracle judges by kernels, whatever is hidden from the engines.
    EXPECT_STREQ(r.find(composite, KernelTier::Ref).kernel->name, "ref_softmax");
  }
  EXPECT_EQ(&r.choose(composite), &before);
}

TEST(Decompose, RunOpRunsThePartsAndLeavesInputsAlone) {
  const OpDef& op = OpRegistry::global().get("softmax");
  Meta m = meta({2, 2});
  Buffer x = buffer(m, {0, 0, 1, 1}), y;
  OpInput in{&m, &x, true};
  Attrs axis = make_attrs(SoftmaxAttrs{1});
  Hidden h;
  run_op(op, axis.get(), {&in, 1}, {&m, 1}, {&y, 1});
  const auto *p = static_cast<float*>(y.data(DType::F32)), *q = static_cast<float*>(x.data(DType::F32));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(p[i], 0.5f);
  EXPECT_EQ(std::vector<float>(q, q + 4), (std::vector<float>{0, 0, 1, 1}));
}

// An op made from nothing has its parts where its result is to be.
TEST(Decompose, WhatHasNoInputsIsMadeOnTheDeviceOfItsResult) {
  const OpDef& op = OpRegistry::global().get("eye");
  Meta m = meta({2, 2});
  m.cn = CompNode::get("cpu1");
  Buffer y;
  NamedAttr rows{"rows", int64_t{2}}, cols{"cols", int64_t{2}};
  NamedAttr given[] = {rows, cols};
  Attrs at = op.schema.build("eye", {given, 2});
  Hidden h;
  run_op(op, at.get(), {}, {&m, 1}, {&y, 1});
  EXPECT_EQ(y.storage->device, m.cn->device);
}

}  // namespace
}  // namespace mge
