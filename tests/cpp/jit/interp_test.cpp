#include "jit/interp/interp.h"

#include <gmock/gmock.h>

#include <cstring>

#include "base/parallel.h"
#include "jit/interp/lower.h"
#include "kernel/run.h"
#include "op/elementwise/fused.h"
#include "op/elementwise/typecvt.h"

namespace mge {
namespace {

const OpDef& op(const char* name) { return OpRegistry::global().get(name); }

struct Tensor {
  Meta meta;
  Buffer buffer;
};

// Values in a range where every op of the tests is finite, and different everywhere.
Tensor make(DType t, const Shape& s, uint32_t seed) {
  Tensor x;
  x.meta.dtype = DType::F32;
  x.meta.shape = s;
  x.buffer = allocate_buffer(x.meta);
  auto* p = static_cast<float*>(x.buffer.storage->ptr);
  for (int64_t i = 0; i < s.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    p[i] = static_cast<float>(seed >> 8) / static_cast<float>(1 << 22) - 2.0f;  // [-2, 2)
  }
  if (t == DType::F32) return x;
  Tensor y;
  y.meta.dtype = t;
  y.meta.shape = s;
  OpInput in{&x.meta, &x.buffer};
  run_op(op("typecvt"), make_attrs(TypeCvtAttrs{t}).get(), {&in, 1}, {&y.meta, 1}, {&y.buffer, 1});
  return y;
}

Tensor transposed(Tensor t) {  // reversed axes as strides
  Shape s = t.meta.shape;
  Layout l = t.buffer.layout;
  for (int i = 0; i < s.rank; ++i) {
    t.meta.shape[i] = s[s.rank - 1 - i];
    t.buffer.layout.stride[i] = l.stride[s.rank - 1 - i];
  }
  return t;
}

std::vector<Tensor> run_all(const OpDef& o, const Attrs& attrs, std::span<const Tensor> in, bool ref) {
  SmallVec<OpInput, 8> inputs;
  SmallVec<const Meta*, 8> metas;
  for (auto& t : in) {
    inputs.push_back({&t.meta, &t.buffer});
    metas.push_back(&t.meta);
  }
  std::vector<Meta> out(o.n_out(attrs.get()));
  std::vector<Buffer> buffers(out.size());
  infer_op(o, attrs.get(), {metas.data(), metas.size()}, out);
  run_op(o, attrs.get(), {inputs.data(), inputs.size()}, out, buffers, {.ref_only = ref});
  std::vector<Tensor> y;
  for (size_t i = 0; i < out.size(); ++i) y.push_back({out[i], buffers[i]});
  return y;
}
Tensor run(const OpDef& o, const Attrs& attrs, std::span<const Tensor> in, bool ref) {
  return run_all(o, attrs, in, ref)[0];
}

/// The ops of the region one by one, with the kernels eager execution chooses.
std::vector<Tensor> run_steps(const FusedRegion& r, std::span<const Tensor> in) {
  std::vector<Tensor> steps;
  for (auto& s : r.steps) {
    std::vector<Tensor> args;
    for (int a : s.args) args.push_back(a >= 0 ? in[static_cast<size_t>(a)] : steps[static_cast<size_t>(-1 - a)]);
    steps.push_back(run(*s.op, s.attrs, args, false));
  }
  std::vector<Tensor> out;
  for (int o : r.outputs) out.push_back(steps[static_cast<size_t>(-1 - o)]);
  return out;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.meta.same_type(b.meta) && std::memcmp(a.buffer.storage->ptr, b.buffer.storage->ptr, a.meta.bytes()) == 0;
}

class Interp : public testing::Test {
 protected:
  void SetUp() override { install_interp(); }
  static void check(const std::string& region, std::span<const Tensor> in) {
    FusedRegion r = FusedRegion::parse(region);
    ASSERT_EQ(r.print(), region);
    Attrs attrs = make_attrs(r);
    const char* refusal = r.staged() ? nullptr : interp::lowered(attrs.get()).refusal;
    ASSERT_EQ(refusal, nullptr) << region;
    std::vector<Tensor> fused = run_all(op("fused"), attrs, in, false), single = run_steps(r, in),
                        ref = run_all(op("fused"), attrs, in, true);
    for (size_t o = 0; o < fused.size(); ++o) {
      EXPECT_TRUE(same_bits(fused[o], single[o])) << region << " result " << o << " on " << in[0].meta.str();
      ASSERT_TRUE(ref[o].meta.same_type(fused[o].meta));
      if (fused[o].meta.dtype == DType::F32)
        for (int64_t i = 0; i < fused[o].meta.shape.numel(); ++i) {
          float a = static_cast<float*>(fused[o].buffer.storage->ptr)[i],
                b = static_cast<float*>(ref[o].buffer.storage->ptr)[i];
          ASSERT_TRUE(a == b || std::abs(a - b) <= 1e-5f * (1 + std::abs(b)) || (a != a && b != b))
              << region << " at " << i << ": " << a << " vs " << b;
        }
    }
  }
};

const char kThree[] = "(float32,float32,float32) t0=mul(i0,i1) t1=add(t0,i2) t2=relu(t1) t3=sub(t2,t0)";

TEST_F(Interp, EveryTailLength) {
  for (int64_t n : {0, 1, 2, 7, 8, 63, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 100003}) {
    Tensor in[] = {make(DType::F32, Shape{n}, 1), make(DType::F32, Shape{n}, 2), make(DType::F32, Shape{n}, 3)};
    check(kThree, in);
  }
}

TEST_F(Interp, BroadcastsOfEveryKind) {
  const Shape shapes[] = {{4, 5, 6, 7}, {1, 5, 1, 1}, {7}, {}, {4, 1, 1, 7}, {6, 1}, {4, 5, 1, 1}, {1, 1, 6, 7}, {1}};
  for (auto& a : shapes)
    for (auto& b : shapes) {
      Tensor in[] = {make(DType::F32, {4, 5, 6, 7}, 1), make(DType::F32, a, 2), make(DType::F32, b, 3)};
      check(kThree, in);
    }
  Tensor big[] = {make(DType::F32, {3, 8, 40, 40}, 1), make(DType::F32, {1, 8, 1, 1}, 2), make(DType::F32, {40}, 3)};
  check(kThree, big);
}

TEST_F(Interp, StridedInputs) {
  Tensor in[] = {transposed(make(DType::F32, {37, 29}, 1)), make(DType::F32, {29, 37}, 2),
                 transposed(make(DType::F32, {1, 29}, 3))};
  check(kThree, in);
  Tensor in3[] = {transposed(make(DType::F32, {5, 6, 70}, 1)), transposed(make(DType::F32, {5, 1, 70}, 2)),
                  make(DType::F32, {70, 1, 1}, 3)};
  check(kThree, in3);
}

TEST_F(Interp, Dtypes) {
  Shape s{3, 311};
  Tensor f64[] = {make(DType::F64, s, 1), make(DType::F64, {311}, 2)};
  check("(float64,float64) t0=mul(i0,i1) t1=exp(t0) t2=add(t1,i1)", f64);
  for (DType t : {DType::F16, DType::BF16}) {
    std::string n(dtype_name(t));
    Tensor half[] = {make(t, s, 1), make(t, {311}, 2)};
    check("(" + n + "," + n + ") t0=mul(i0,i1) t1=add(t0,i1) t2=sigmoid(t1) t3=lt(t2,i0) t4=where(t3,t2,i1)", half);
  }
  Tensor mixed[] = {make(DType::F32, s, 1), make(DType::I32, s, 2), make(DType::Bool, {311}, 3)};
  check("(float32,int32,bool) t0=typecvt(i1){dtype=float32} t1=maximum(i0,t0) t2=where(i2,t1,i0)", mixed);
  check("(float32,int32,bool) t0=lt(i0,i0) t1=logical_or(t0,i2) t2=typecvt(t1){dtype=int32} t3=add(t2,i1)", mixed);
}

TEST_F(Interp, LongChainsReuseRegisters) {
  std::string region = "(float32)";
  for (int i = 0; i < 24; ++i)
    region += format(" t{}={}({})", i, i % 2 ? "neg" : "sin", i ? format("t{}", i - 1) : "i0");
  Tensor in[] = {make(DType::F32, {999}, 1)};
  check(region, in);
  EXPECT_LE(interp::lowered(make_attrs(FusedRegion::parse(region)).get()).registers, 2);
}

TEST_F(Interp, SameBitsForEveryThreadCount) {
  Tensor in[] = {make(DType::F32, {64, 3001}, 1), make(DType::F32, {3001}, 2), make(DType::F32, {64, 1}, 3)};
  Attrs attrs = make_attrs(FusedRegion::parse(kThree));
  int before = num_threads();
  set_num_threads(1);
  Tensor one = run(op("fused"), attrs, in, false);
  set_num_threads(4);
  Tensor four = run(op("fused"), attrs, in, false);
  set_num_threads(before);
  EXPECT_TRUE(same_bits(one, four));
}

TEST_F(Interp, MayWriteOverAnInput) {
  Tensor x = make(DType::F32, {1000}, 1), y = make(DType::F32, {1000}, 2);
  Attrs attrs = make_attrs(FusedRegion::parse("(float32,float32) t0=mul(i0,i1) t1=sub(i0,t0)"));
  Tensor in[] = {x, y};
  Tensor want = run(op("fused"), attrs, in, false);
  OpInput given[] = {{&x.meta, &x.buffer, true}, {&y.meta, &y.buffer}};
  Tensor got;
  got.meta = want.meta;
  void* memory = x.buffer.storage->ptr;
  run_op(op("fused"), attrs.get(), given, {&got.meta, 1}, {&got.buffer, 1});
  EXPECT_EQ(got.buffer.storage->ptr, memory);
  EXPECT_TRUE(same_bits(got, want));
}

TEST_F(Interp, SeveralResults) {
  for (int64_t n : {1, 255, 1024, 5003}) {
    Tensor in[] = {make(DType::F32, {3, n}, 1), make(DType::F32, {n}, 2), make(DType::F32, {3, 1}, 3)};
    check("(float32,float32,float32) t0=mul(i0,i1) t1=add(t0,i2) t2=relu(t1) t3=sub(t2,t0) -> t0,t3", in);
    check("(float32,float32,float32) t0=mul(i0,i1) t1=lt(t0,i2) t2=where(t1,t0,i0) t3=exp(t2) -> t1,t0,t3,t2", in);
    check("(float32,float32,float32) t0=mul(i0,i1) t1=typecvt(t0){dtype=float16} t2=neg(t1) t3=add(t0,i2) -> t1,t2,t3",
          in);
  }
  Tensor turned[] = {transposed(make(DType::F32, {37, 29}, 1)), make(DType::F32, {29, 37}, 2)};
  check("(float32,float32) t0=mul(i0,i1) t1=sub(t0,i0) -> t0,t1", turned);
}

TEST_F(Interp, SeveralResultsMayWriteOverTheInputs) {
  Tensor x = make(DType::F32, {5000}, 1), y = make(DType::F32, {5000}, 2);
  // t0 is a result, and both inputs are read after it.
  Attrs attrs = make_attrs(FusedRegion::parse("(float32,float32) t0=mul(i0,i1) t1=sub(i1,t0) t2=add(t1,i0) -> t0,t2"));
  Tensor in[] = {x, y};
  std::vector<Tensor> want = run_all(op("fused"), attrs, in, false);
  OpInput given[] = {{&x.meta, &x.buffer, true}, {&y.meta, &y.buffer, true}};
  Meta metas[] = {x.meta, x.meta};
  Buffer got[2];
  const void *mx = x.buffer.storage->ptr, *my = y.buffer.storage->ptr;
  run_op(op("fused"), attrs.get(), given, metas, got);
  EXPECT_EQ(got[0].storage->ptr, mx);
  EXPECT_EQ(got[1].storage->ptr, my);
  EXPECT_TRUE(same_bits({metas[0], got[0]}, want[0]) && same_bits({metas[1], got[1]}, want[1]));
}

TEST_F(Interp, AReductionHasTheBitsOfItsOp) {
  const int before = num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (Shape s :
         {Shape{1}, {1000}, {40000}, {3, 5000}, {70, 200}, {300, 129}, {4, 65, 33}, {2, 1, 700}, {0, 3}, {1, 6}})
      for (const char* mode : {"sum", "mean", "max", "min", "prod"})
        for (int axis = -1; axis < s.rank; ++axis) {
          if (s.numel() == 0 && (mode[1] == 'a' || mode[1] == 'i')) continue;  // an extreme of nothing
          std::string end = format("t2=reduce(t1){{mode=\"{}\",axes=[{}],keepdims={}}}", mode,
                                   axis < 0 ? "" : std::to_string(axis), axis % 2 ? "true" : "false");
          Tensor in[] = {make(DType::F32, s, 1), make(DType::F32, {s[s.rank - 1]}, 2)};
          check("(float32,float32) t0=mul(i0,i1) t1=sub(i0,t0) " + end, in);
          check("(float32,float32) t0=mul(i0,i1) t1=sub(i0,t0) " + end + " -> t2,t0,t1", in);
        }
  }
  set_num_threads(before);
}

TEST_F(Interp, ReductionsOfOtherDtypes) {
  for (DType t : {DType::F16, DType::BF16, DType::F64, DType::I32}) {
    std::string n(dtype_name(t));
    for (Shape s : {Shape{2000}, Shape{65, 300}})
      for (const char* mode : {"sum", "mean", "max"}) {
        Tensor in[] = {make(t, s, 1), make(t, {}, 2)};
        check(format("({},{}) t0=mul(i0,i1) t1=reduce(t0){{mode=\"{}\",axes=[0],keepdims=false}} -> t0,t1", n, n, mode),
              in);
      }
  }
  Tensor in[] = {make(DType::F32, {33, 200}, 1), make(DType::F32, {200}, 2)};
  check("(float32,float32) t0=lt(i0,i1) t1=reduce(t0){mode=\"sum\",axes=[1],keepdims=false}", in);
  // Of an input itself.
  check("(float32,float32) t0=mul(i0,i1) t1=reduce(i0){mode=\"sum\",axes=[1],keepdims=false} -> t0,t1", in);
}

/// The kernel that op `fused` gets for these operands.
std::string kernel_of(const std::string& region, std::span<const Tensor> in) {
  Attrs attrs = make_attrs(FusedRegion::parse(region));
  SmallVec<TensorArg, 8> args;
  SmallVec<const Meta*, 8> metas;
  for (auto& t : in) {
    args.push_back(make_arg(t.meta, t.buffer));
    metas.push_back(&t.meta);
  }
  std::vector<Meta> out(op("fused").n_out(attrs.get()));
  infer_op(op("fused"), attrs.get(), {metas.data(), metas.size()}, out);
  SmallVec<TensorArg, 8> results;
  for (auto& m : out) {
    TensorArg t;
    t.dtype = m.dtype, t.shape = m.shape, t.layout = Layout::contiguous(m.shape);
    results.push_back(t);
  }
  KernelArgs a{.op = &op("fused"), .attrs = attrs.get(), .in = {args.data(), args.size()}};
  a.out = {results.data(), results.size()};
  return KernelRegistry::global().choose(a).name;
}

// Written by hand, as users do: of rows of every length that is cut differently, in groups and alone.
const char kSoftmax[] =
    "(float32) t0=reduce(i0){mode=\"max\",axes=[-1],keepdims=true} t1=sub(i0,t0) t2=exp(t1) "
    "t3=reduce(t2){mode=\"sum\",axes=[-1],keepdims=true} t4=div(t2,t3)";
const char kLayerNorm[] =  // x, scale, shift, epsilon; the mean and the deviation are results, too
    "(float32,float32,float32,float32) t0=reduce(i0){mode=\"mean\",axes=[-1],keepdims=true} t1=sub(i0,t0) "
    "t2=square(t1) t3=reduce(t2){mode=\"mean\",axes=[-1],keepdims=true} t4=add(t3,i3) t5=rsqrt(t4) t6=mul(t1,t5) "
    "t7=mul(t6,i1) t8=add(t7,i2) -> t0,t5,t6,t8";
const char kLogSumExp[] =  // the axis is gone from the result
    "(float32,float32) t0=reduce(i0){mode=\"max\",axes=[-1],keepdims=true} t1=sub(i0,t0) t2=exp(t1) "
    "t3=mul(t2,i1) t4=reduce(t3){mode=\"sum\",axes=[-1],keepdims=false} -> t4,t1";

TEST_F(Interp, RowsHaveTheBitsOfTheSingleOps) {
  const int before = num_threads();
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (int64_t n : {2, 31, 32, 257, 1023, 1024, 1025, 2048, 5000, 16384})
      for (int64_t rows : {1, 3, 70}) {
        Tensor x = make(DType::F32, {rows, n}, 1);
        Tensor in[] = {x, make(DType::F32, {n}, 2), make(DType::F32, {1, n}, 3), make(DType::F32, {}, 4)};
        *static_cast<float*>(in[3].buffer.storage->ptr) = 1e-5f;
        check(kSoftmax, {in, 1});
        check(kLayerNorm, in);
        Tensor weighted[] = {x, make(DType::F32, {rows, 1}, 5)};
        check(kLogSumExp, weighted);
        EXPECT_EQ(kernel_of(kSoftmax, {in, 1}), "interp_fused_rows");
        EXPECT_EQ(kernel_of(kLayerNorm, in), "interp_fused_rows");
        EXPECT_EQ(kernel_of(kLogSumExp, weighted), "interp_fused_rows");
      }
  }
  set_num_threads(before);
}

TEST_F(Interp, RowsOfStridedAndBroadcastOperands) {
  Tensor turned[] = {transposed(make(DType::F32, {300, 5, 4}, 1))};
  check(kSoftmax, turned);
  const char kMixed[] =
      "(float32,float32,float32,bool) t0=mul(i0,i1) t1=reduce(t0){mode=\"max\",axes=[2],keepdims=true} t2=add(t1,i2) "
      "t3=lt(t0,t2) t4=logical_and(t3,i3) t5=where(t4,t0,t2) t6=reduce(t5){mode=\"prod\",axes=[2],keepdims=true} "
      "t7=typecvt(t6){dtype=float16} t8=neg(t7) -> t8,t5,t2,t4";
  for (const Shape& a : {Shape{4, 5, 300}, {5, 300}, {300}, {1}})
    for (const Shape& b : {Shape{4, 5, 1}, {5, 1}, {4, 1, 1}, {1}, {}}) {
      Tensor in[] = {make(DType::F32, {4, 5, 300}, 1), make(DType::F32, a, 2), make(DType::F32, b, 3),
                     make(DType::Bool, {5, 300}, 4)};
      check(kMixed, in);
      EXPECT_EQ(kernel_of(kMixed, in), "interp_fused_rows");
    }
  // Two axes, with one of size 1 in between.
  Tensor images[] = {make(DType::F32, {6, 9, 1, 40}, 1)};
  check("(float32) t0=reduce(i0){mode=\"mean\",axes=[1,3],keepdims=true} t1=sub(i0,t0) -> t0,t1", images);
  Tensor empty[] = {make(DType::F32, {0, 40}, 1)};
  check("(float32) t0=reduce(i0){mode=\"sum\",axes=[1],keepdims=true} t1=sub(i0,t0)", empty);
}

TEST_F(Interp, RowsMayWriteOverAnInput) {
  Tensor x = make(DType::F32, {9, 700}, 1), want = make(DType::F32, {9, 700}, 1);
  Attrs attrs = make_attrs(FusedRegion::parse(kSoftmax));
  want = run(op("fused"), attrs, {&want, 1}, false);
  OpInput given[] = {{&x.meta, &x.buffer, true}};
  Tensor got;
  got.meta = want.meta;
  const void* memory = x.buffer.storage->ptr;
  run_op(op("fused"), attrs.get(), given, {&got.meta, 1}, {&got.buffer, 1});
  EXPECT_EQ(got.buffer.storage->ptr, memory);
  EXPECT_TRUE(same_bits(got, want));
}

TEST_F(Interp, WhatFollowsAReductionHasTheBitsOfItsOps) {
  for (const char* keep : {"true", "false"})
    for (DType t : {DType::F32, DType::F16, DType::F64, DType::I32}) {
      const std::string n(dtype_name(t));
      for (int axis : {0, 1, 2}) {
        const Shape s{6, 130, 140};
        Shape left = s;
        left[axis] = 1;
        if (*keep == 'f') {
          left = {};
          for (int i = 0; i < 3; ++i)
            if (i != axis) left.push_back(s[i]);
        }
        const std::string region = format(
            "({0},{0},{0}) t0=mul(i0,i1) t1=reduce(t0){{mode=\"max\",axes=[{1}],keepdims={2}}} t2=mul(t1,i2) "
            "t3=add(t2,t1) t4=relu(t3)",
            n, axis, keep);
        Tensor in[] = {make(t, s, 1), make(t, {140}, 2), make(t, left, 3)};
        check(region, in);
        check(region + " -> t0,t4", in);
        check(region + " -> t4,t1,t3", in);
      }
    }
  // A whole tensor to a number, and the number further.
  Tensor in[] = {make(DType::F32, {300, 400}, 1), make(DType::F32, {}, 2)};
  check("(float32,float32) t0=square(i0) t1=reduce(t0){mode=\"mean\",axes=[],keepdims=false} t2=sqrt(t1) t3=mul(t2,i1)",
        in);
}

TEST_F(Interp, StagesThatNoKernelTakesRunInParts) {
  // Over the first axis and back: neither rows nor a tail.
  Tensor in[] = {make(DType::F32, {30, 40}, 1)};
  check("(float32) t0=reduce(i0){mode=\"sum\",axes=[0],keepdims=true} t1=sub(i0,t0)", in);
  check(
      "(float32) t0=reduce(i0){mode=\"sum\",axes=[0],keepdims=false} "
      "t1=reduce(i0){mode=\"sum\",axes=[1],keepdims=false}"
      " -> t0,t1",
      in);
}

TEST(FusedRegion, IsComparedByWhatItHolds) {
  auto attrs = [](const char* text) { return make_attrs(FusedRegion::parse(text)); };
  Attrs a = attrs("(float32) t0=neg(i0) t1=abs(t0) -> t0,t1"), b = attrs("(float32) t0=neg(i0) t1=abs(t0) -> t0,t1");
  EXPECT_TRUE(a->equal(*b));
  EXPECT_EQ(a->hash(), b->hash());
  for (const char* other :
       {"(float32) t0=neg(i0) t1=abs(t0)", "(float32) t0=neg(i0) t1=abs(i0) -> t0,t1",
        "(float32) t0=neg(i0) t1=neg(t0) -> t0,t1", "(float32,float32) t0=neg(i0) t1=abs(t0) -> t0,t1",
        "(float32) t0=neg(i0) t1=abs(t0) -> t1,t0"})
    EXPECT_FALSE(a->equal(*attrs(other))) << other;
  EXPECT_FALSE(attrs("(float32) t0=typecvt(i0){dtype=int32}")->equal(*attrs("(float32) t0=typecvt(i0){dtype=int8}")));
}

TEST(FusedRegion, BadTextIsTheCallersError) {
  for (const char* bad :
       {"", "(float32)", "(float99) t0=neg(i0)", "(float32) t1=neg(i0)", "(float32) t0=neg(i1)", "(float32) t0=neg(t0)",
        "(float32) t0=nope(i0)", "(float32) t0=matmul(i0,i0)", "(float32) t0=neg(i0",
        "(float32) t0=typecvt(i0){dtype=int32", "(float32) t0=typecvt(i0){bad=1}", "(float32)t0=neg(i0)",
        "(float32,bool) t0=add(i0,i1)", "(float32) t0=neg(i0) -> t1", "(float32) t0=neg(i0) -> i0",
        "(float32) t0=neg(i0) -> t0,t0", "(float32) t0=neg(i0) -> ", "(float32) t0=neg(i0) -> t0 t1=neg(i0)",
        "(float32) t0=argmax(i0)"}) {
    try {
      FusedRegion r = FusedRegion::parse(bad);
      ADD_FAILURE() << bad << " parsed";
    } catch (const Error& e) {
      EXPECT_TRUE(e.kind() == ErrorKind::Value || e.kind() == ErrorKind::Type) << e.text();
    }
  }
}

}  // namespace
}  // namespace mge
