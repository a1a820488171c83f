// Convolutions with what follows them, and with weights prepared before: the bits of the single ops, on whatever kernel
// takes the geometry and in both memory orders.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernel/each_target.h"
#include "kernel/run.h"
#include "op/conv/conv2d.h"

namespace mge {
namespace {

struct Tensor {
  Meta meta;
  Buffer buffer;
  OpInput input() const { return {&meta, &buffer}; }
};

Tensor uniform(const Shape& shape, bool last = false) {
  static std::mt19937 rng(5);
  std::uniform_real_distribution<float> draw(-1, 1);
  Tensor t;
  t.meta.shape = shape;
  t.buffer = allocate_buffer(t.meta);
  for (int64_t i = 0; i < shape.numel(); ++i) static_cast<float*>(t.buffer.storage->ptr)[i] = draw(rng);
  if (last) t.buffer = relayout(t.meta, t.buffer, Layout::channels_last(shape));
  return t;
}

Tensor run(std::string_view name, const Attrs& attrs, const std::vector<const Tensor*>& in) {
  const OpDef& op = OpRegistry::global().get(name);
  std::vector<const Meta*> metas;
  std::vector<OpInput> inputs;
  for (const Tensor* t : in) metas.push_back(&t->meta), inputs.push_back(t->input());
  Tensor y;
  infer_op(op, attrs.get(), metas, {&y.meta, 1});
  run_op(op, attrs.get(), inputs, {&y.meta, 1}, {&y.buffer, 1});
  return y;
}

std::vector<float> values(const Tensor& t) {
  const Buffer b = make_contiguous(t.meta, t.buffer);
  const auto* p = static_cast<const float*>(b.data(DType::F32));
  return {p, p + t.meta.shape.numel()};
}

struct Geometry {
  const char* name;
  Shape x, w;
  Conv2dAttrs at;
};
const Geometry kGeometries[] = {
    {"planes", {2, 3, 9, 8}, {5, 3, 3, 3}, {.pad = {1, 1}}},
    {"depthwise", {2, 40, 9, 11}, {40, 1, 1, 3, 3}, {.stride = {2, 2}, .pad = {1, 1}, .groups = 40}},
    {"winograd", {2, 64, 15, 14}, {64, 64, 3, 3}, {.pad = {1, 1}}},
    {"pointwise", {2, 64, 30, 31}, {96, 64, 1, 1}, {}},
    {"strided", {2, 64, 31, 31}, {64, 64, 3, 3}, {.stride = {2, 2}, .pad = {1, 1}}},
};

TEST(Conv2dFused, EveryActivationHasTheBitsOfItsOp) {
  for (const Geometry& g : kGeometries)
    for (bool last : {false, true}) {
      SCOPED_TRACE(testing::Message() << g.name << (last ? " last" : ""));
      const Tensor x = uniform(g.x, last), w = uniform(g.w);
      Tensor sums = run("conv2d", make_attrs<Conv2dAttrs>(g.at), {&x, &w});
      const Tensor bias = uniform({1, sums.meta.shape[1], 1, 1}), add = uniform(sums.meta.shape, last);
      sums = run("add", nullptr, {&sums, &bias});
      sums = run("add", nullptr, {&sums, &add});
      for (const char* act : {"relu", "relu6", "hswish", "silu", "sigmoid", "gelu"}) {
        Conv2dFusedAttrs at{g.at, true, false, true, act};
        const Tensor got = run("conv2d_fused", make_attrs(at), {&x, &w, &bias, &add});
        EXPECT_EQ(values(got), values(run(act, nullptr, {&sums}))) << act;
      }
    }
}

TEST(Conv2dFused, PreparedWeightsGiveTheSameBits) {
  int prepared = 0;
  for (const Geometry& g : kGeometries) {
    SCOPED_TRACE(g.name);
    const Tensor x = uniform(g.x, true), w = uniform(g.w);
    const Tensor want = run("conv2d", make_attrs<Conv2dAttrs>(g.at), {&x, &w});
    const Attrs attrs = make_attrs<Conv2dAttrs>(g.at);
    Tensor y{want.meta, allocate_buffer(want.meta)};
    std::vector<TensorArg> in{make_arg(x.meta, x.buffer), make_arg(w.meta, w.buffer)}, out{make_arg(y.meta, y.buffer)};
    KernelArgs a{&OpRegistry::global().get("conv2d"), attrs.get(), in, out, nullptr};
    const Kernel& k = KernelRegistry::global().choose(a);
    const size_t bytes = k.prepare.bytes ? k.prepare.bytes(a) : 0;
    if (!bytes) continue;
    ++prepared;
    k.layouts(a, in.data(), out.data());
    const RefPtr<Storage> there = allocate_storage({}, bytes);
    k.prepare.run(a, there->ptr);
    in[1].ptr = nullptr;  // not read any more
    a.prepared = there->ptr;
    EXPECT_EQ(k.workspace ? k.workspace(a) : 0, 0u);
    k.run(a);
    y.buffer.layout = out[0].layout;
    EXPECT_EQ(values(y), values(want)) << k.name;
  }
  EXPECT_GE(prepared, 1);
}

}  // namespace
}  // namespace mge
