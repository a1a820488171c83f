// batch_norm_fused and batch_norm_fused_bwd give the bits of the ops they stand for, in both memory orders, on every
// instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernel/each_target.h"
#include "kernel/run.h"
#include "op/norm/batch_norm.h"

namespace mge {
namespace {

struct Tensor {
  Meta meta;
  Buffer buffer;
};

Tensor uniform(const Shape& shape, float lo, float hi, bool last) {
  static std::mt19937 rng(3);
  std::uniform_real_distribution<float> draw(lo, hi);
  Tensor t;
  t.meta.shape = shape;
  t.buffer = allocate_buffer(t.meta);
  for (int64_t i = 0; i < shape.numel(); ++i) static_cast<float*>(t.buffer.storage->ptr)[i] = draw(rng);
  if (last && shape.rank == 4) t.buffer = relayout(t.meta, t.buffer, Layout::channels_last(shape));
  return t;
}

std::vector<Tensor> run(std::string_view name, const Attrs& attrs, const std::vector<const Tensor*>& in) {
  const OpDef& op = OpRegistry::global().get(name);
  std::vector<const Meta*> metas;
  std::vector<OpInput> inputs;
  for (const Tensor* t : in) metas.push_back(&t->meta), inputs.push_back({&t->meta, &t->buffer});
  std::vector<Meta> out(static_cast<size_t>(op.n_out(attrs.get())));
  std::vector<Buffer> buffers(out.size());
  infer_op(op, attrs.get(), metas, out);
  run_op(op, attrs.get(), inputs, out, buffers);
  std::vector<Tensor> results;
  for (size_t i = 0; i < out.size(); ++i) results.push_back({out[i], make_contiguous(out[i], buffers[i])});
  return results;
}

void expect_same_bits(const Tensor& a, const Tensor& b, const char* what) {
  ASSERT_TRUE(a.meta.shape == b.meta.shape);
  EXPECT_EQ(std::memcmp(a.buffer.data(a.meta.dtype), b.buffer.data(b.meta.dtype), a.meta.bytes()), 0) << what;
}

void compare(const Shape& xs, bool last) {
  const Shape stat = batch_norm_stat_shape(xs);
  const Tensor x = uniform(xs, -2, 5, last), add = uniform(xs, -2, 2, last), gy = uniform(xs, -1, 1, last),
               w = uniform(stat, 0.5, 6, false), b = uniform(stat, -1, 1, false);
  const Attrs plain = make_attrs(BatchNormAttrs{1e-5});
  for (const NormAct& act : kNormActs)
    for (bool sum : {false, true}) {
      SCOPED_TRACE(testing::Message() << act.name << (sum ? " of a sum " : " ") << xs.str() << (last ? " last" : ""));
      const std::string name(act.name), grad(act.grad);
      auto steps = run("batch_norm_train", plain, {&x, &w, &b});
      const Tensor normalised = steps[0];
      if (sum) steps[0] = run("add", nullptr, {&steps[0], &add})[0];
      steps[0] = run(name, nullptr, {&steps[0]})[0];
      const Attrs fused = make_attrs(BatchNormFusedAttrs{{1e-5}, sum, name});
      const auto at_once =
          sum ? run("batch_norm_fused", fused, {&x, &w, &b, &add}) : run("batch_norm_fused", fused, {&x, &w, &b});
      for (size_t o = 0; o < 4; ++o) expect_same_bits(at_once[o], steps[o], "forward");
      if (sum) continue;
      const Tensor g = run(grad, nullptr, {act.of_output ? &steps[0] : &normalised, &gy})[0];
      const auto back = run("batch_norm_bwd", nullptr, {&x, &g, &w, &steps[1], &steps[3]});
      const auto back_at_once = run("batch_norm_fused_bwd", make_attrs(BatchNormFusedBwdAttrs{name}),
                                    {&x, &gy, &w, &steps[1], &steps[3], &b});
      for (size_t o = 0; o < 3; ++o) expect_same_bits(back_at_once[o], back[o], "backward");
    }
}

TEST(BatchNormFused, SameBitsAsTheStepsOneByOne) {
  simd::each_target([] {
    forget_kernel_choices();
    for (bool last : {false, true}) {
      compare({3, 21, 9, 7}, last);
      compare({2, 70, 33, 31}, last);
      compare({5, 16, 2, 2}, last);
    }
    compare({33, 70}, false);
  });
}

}  // namespace
}  // namespace mge
