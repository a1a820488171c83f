// matmul_fused gives the bits of the ops it stands for, and prepared operands those of plain ones: all kernels that
// take a product, all transposes, instruction sets and numbers of threads, and operands of every kind.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "base/parallel.h"
#include "kernel/each_target.h"
#include "kernel/run.h"
#include "op/matmul/matmul.h"
#include "op/recurrence/recurrence.h"

namespace mge {
namespace {

struct Tensor {
  Meta meta;
  Buffer buffer;
};

Tensor uniform(const Shape& shape) {
  static std::mt19937 rng(7);
  std::uniform_real_distribution<float> draw(-1, 1);
  Tensor t;
  t.meta.shape = shape;
  t.buffer = allocate_buffer(t.meta);
  for (int64_t i = 0; i < shape.numel(); ++i) static_cast<float*>(t.buffer.storage->ptr)[i] = draw(rng);
  return t;
}

Tensor run(std::string_view name, const Attrs& attrs, const std::vector<const Tensor*>& in) {
  const OpDef& op = OpRegistry::global().get(name);
  std::vector<const Meta*> metas;
  std::vector<OpInput> inputs;
  for (const Tensor* t : in) metas.push_back(&t->meta), inputs.push_back({&t->meta, &t->buffer});
  Tensor y;
  infer_op(op, attrs.get(), metas, {&y.meta, 1});
  run_op(op, attrs.get(), inputs, {&y.meta, 1}, {&y.buffer, 1});
  y.buffer = make_contiguous(y.meta, y.buffer);
  return y;
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_TRUE(a.meta.shape == b.meta.shape);
  EXPECT_EQ(std::memcmp(a.buffer.data(DType::F32), b.buffer.data(DType::F32), a.meta.bytes()), 0);
}

// The whole chain, a part of it, a slope whose second operand is the product, and a chain of rows that lie one after
// the other.
void compare(const Shape& batch, int64_t m, int64_t n, int64_t k) {
  for (int mode = 0; mode < 8; ++mode) {
    const bool ta = mode & 1, tb = mode & 2, has_bias = mode & 4;
    SCOPED_TRACE(testing::Message() << batch.str() << " " << m << "x" << n << "x" << k << " mode " << mode);
    Shape as = batch, ys = batch;
    as.push_back(ta ? k : m), as.push_back(ta ? m : k);
    ys.push_back(m), ys.push_back(n);
    const Tensor a = uniform(as), b = uniform(tb ? Shape{n, k} : Shape{k, n}), bias = uniform({n}), one = uniform({1}),
                 mask = uniform({m, n}), row = uniform({1, n}), like = uniform(ys);
    std::vector<const Tensor*> in{&a, &b};
    if (has_bias) in.push_back(&bias);
    const MatmulAttrs at{ta, tb};
    Tensor y = run("matmul", make_attrs(at), in);
    Tensor slope = run("gelu_grad", nullptr, {&like, &y});
    const Tensor scaled = run("mul", nullptr, {&y, &one}), masked = run("add", nullptr, {&mask, &scaled});
    for (const Tensor* t : {&one, &row}) y = run("mul", nullptr, {&y, t});
    y = run("add", nullptr, {&mask, &y});
    y = run("silu", nullptr, {&y});
    y = run("sub", nullptr, {&like, &y});
    auto with = in;
    with.insert(with.end(), {&one, &row, &mask, &like});
    MatmulFusedAttrs fused{at, has_bias, "mul(y,0) mul(y,1) add(2,y) silu(y) sub(3,y)"};
    expect_same_bits(run("matmul_fused", make_attrs(fused), with), y);
    with = in;
    with.push_back(&like);
    fused.steps = "gelu_grad(0,y)";
    expect_same_bits(run("matmul_fused", make_attrs(fused), with), slope);
    with = in;
    with.insert(with.end(), {&one, &mask});
    fused.steps = "mul(y,0) add(1,y)";
    expect_same_bits(run("matmul_fused", make_attrs(fused), with), masked);
  }
}

TEST(MatmulFused, SameBitsAsTheStepsOneByOne) {
  simd::each_target([] {
    forget_kernel_choices();
    for (int threads : {1, 3, 16}) {
      set_num_threads(threads);
      compare({}, 1, 40, 33);
      compare({}, 3, 70, 600);
      compare({}, 60, 100, 20);
      compare({}, 200, 90, 530);  // turned round
      compare({}, 8, 520, 500);   // the library's
      compare({}, 300, 70, 40);
      compare({2, 3}, 9, 17, 5);
      compare({4}, 1, 1, 1);
      compare({}, 0, 4, 3);
      compare({}, 4, 0, 3);
      compare({2}, 5, 4, 0);
    }
    set_num_threads(1);
  });
  forget_kernel_choices();
}

TEST(MatmulFused, OperandsOfOtherStrides) {
  const Tensor a = uniform({2, 6, 9}), b = uniform({2, 9, 5});
  Tensor like = uniform({2, 6, 5});
  const Tensor want = run("matmul_fused", make_attrs(MatmulFusedAttrs{{}, false, "add(y,0)"}), {&a, &b, &like});
  Layout turned = Layout::contiguous(like.meta.shape);
  turned.stride[0] = 1, turned.stride[1] = 2, turned.stride[2] = 12;
  like.buffer = relayout(like.meta, like.buffer, turned);
  expect_same_bits(run("matmul_fused", make_attrs(MatmulFusedAttrs{{}, false, "add(y,0)"}), {&a, &b, &like}), want);
}

// A constant operand in its kernel's order gives the same bits without being read again. Results are all outputs.
void compare_prepared(const char* op, const Attrs& attrs, std::vector<Tensor> in, bool expected = true) {
  const OpDef& def = OpRegistry::global().get(op);
  std::vector<const Meta*> metas;
  for (const Tensor& t : in) metas.push_back(&t.meta);
  std::vector<Meta> out(def.n_out(attrs.get()));
  infer_op(def, attrs.get(), metas, out);
  std::string results[2];
  for (bool prepared : {false, true}) {
    std::vector<TensorArg> args, outs;
    std::vector<Buffer> made;
    for (const Tensor& t : in) args.push_back(make_arg(t.meta, t.buffer));
    for (const Meta& m : out) made.push_back(allocate_buffer(m)), outs.push_back(make_arg(m, made.back()));
    KernelArgs a{&def, attrs.get(), args, outs, nullptr};
    const Kernel& k = *KernelRegistry::global().find(a, KernelTier::Simd).kernel;
    RefPtr<Storage> there;
    if (prepared) {
      const size_t bytes = k.prepare.bytes(a);
      ASSERT_EQ(bytes > 0, expected);
      if (!expected) return;
      there = allocate_storage({}, bytes);
      k.prepare.run(a, there->ptr);
      args[1].ptr = nullptr;
      a.prepared = there->ptr;
    }
    k.run(a);
    for (size_t o = 0; o < out.size(); ++o)
      results[prepared].append(static_cast<const char*>(outs[o].ptr), out[o].bytes());
  }
  EXPECT_EQ(results[0] == results[1], true);
}

TEST(MatmulPrepared, SameBits) {
  simd::each_target([] {
    for (int threads : {1, 2, 5, 16}) {
      set_num_threads(threads);
      for (const auto& [m, n, k] : {std::array{1, 1, 1},
                                    {1, 100, 600},
                                    {3, 33, 17},
                                    {7, 31, 40},
                                    {64, 65, 513},
                                    {130, 300, 70},
                                    {40, 1000, 130}})
        for (int mode = 0; mode < 4; ++mode) {
          const bool ta = mode & 1, tb = mode & 2;
          SCOPED_TRACE(testing::Message() << m << "x" << n << "x" << k << " mode " << mode << " threads " << threads);
          const Tensor a = uniform(ta ? Shape{k, m} : Shape{m, k}), b = uniform(tb ? Shape{n, k} : Shape{k, n});
          compare_prepared("matmul", make_attrs(MatmulAttrs{ta, tb}), {a, b, uniform({n})});
          compare_prepared("matmul_fused", make_attrs(MatmulFusedAttrs{{ta, tb}, false, "gelu(y) add(y,0)"}),
                           {a, b, uniform({m, n})});
        }
      compare_prepared("matmul", make_attrs(MatmulAttrs{false, true}), {uniform({2, 3, 5, 40}), uniform({70, 40})});
      compare_prepared("matmul", make_attrs(MatmulAttrs{}), {uniform({6, 1, 40}), uniform({1, 40, 70})});
      compare_prepared("matmul", make_attrs(MatmulAttrs{true}), {uniform({2, 40, 5}), uniform({40, 70})}, false);
      compare_prepared("matmul", make_attrs(MatmulAttrs{}), {uniform({2, 5, 40}), uniform({2, 40, 70})}, false);
      compare_prepared("matmul", make_attrs(MatmulAttrs{}), {uniform({5, 0}), uniform({0, 70})}, false);
      for (int64_t rows : {1, 2, 20})
        for (int64_t hidden : {5, 40, 130}) {
          SCOPED_TRACE(testing::Message() << rows << " rows of " << hidden << " threads " << threads);
          const Tensor state = uniform({rows, hidden});
          compare_prepared("recurrence", make_attrs(RecurrenceAttrs{"lstm", threads == 2}),
                           {uniform({4, rows, 4 * hidden}), uniform({4 * hidden, hidden}), state, state});
          compare_prepared("recurrence", make_attrs(RecurrenceAttrs{"tanh"}),
                           {uniform({3, rows, hidden}), uniform({hidden, hidden}), state});
        }
    }
    set_num_threads(1);
  });
}

}  // namespace
}  // namespace mge
