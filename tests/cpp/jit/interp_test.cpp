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

Tensor run(const OpDef& o, const Attrs& attrs, std::span<const Tensor> in, bool ref) {
  SmallVec<OpInput, 8> inputs;
  SmallVec<const Meta*, 8> metas;
  for (auto& t : in) {
    inputs.push_back({&t.meta, &t.buffer});
    metas.push_back(&t.meta);
  }
  Tensor y;
  infer_op(o, attrs.get(), {metas.data(), metas.size()}, {&y.meta, 1});
  run_op(o, attrs.get(), {inputs.data(), inputs.size()}, {&y.meta, 1}, {&y.buffer, 1}, {.ref_only = ref});
  return y;
}

/// The ops of the region one by one, with the kernels eager execution chooses.
Tensor run_steps(const FusedRegion& r, std::span<const Tensor> in) {
  std::vector<Tensor> steps;
  for (auto& s : r.steps) {
    std::vector<Tensor> args;
    for (int a : s.args) args.push_back(a >= 0 ? in[static_cast<size_t>(a)] : steps[static_cast<size_t>(-1 - a)]);
    steps.push_back(run(*s.op, s.attrs, args, false));
  }
  return steps.back();
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
    Attrs attrs = make_attrs(FusedAttrs{region});
    ASSERT_EQ(interp::lowered(attrs.get()).refusal, nullptr) << region;
    Tensor fused = run(op("fused"), attrs, in, false);
    EXPECT_TRUE(same_bits(fused, run_steps(r, in))) << region << " on " << in[0].meta.str();
    Tensor ref = run(op("fused"), attrs, in, true);
    ASSERT_TRUE(ref.meta.same_type(fused.meta));
    if (fused.meta.dtype == DType::F32)
      for (int64_t i = 0; i < fused.meta.shape.numel(); ++i) {
        float a = static_cast<float*>(fused.buffer.storage->ptr)[i],
              b = static_cast<float*>(ref.buffer.storage->ptr)[i];
        ASSERT_TRUE(std::abs(a - b) <= 1e-5f * (1 + std::abs(b)) || (a != a && b != b))
            << region << " at " << i << ": " << a << " vs " << b;
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
  EXPECT_LE(interp::lowered(make_attrs(FusedAttrs{region}).get()).registers, 2);
}

TEST_F(Interp, SameBitsForEveryThreadCount) {
  Tensor in[] = {make(DType::F32, {64, 3001}, 1), make(DType::F32, {3001}, 2), make(DType::F32, {64, 1}, 3)};
  Attrs attrs = make_attrs(FusedAttrs{kThree});
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
  Attrs attrs = make_attrs(FusedAttrs{"(float32,float32) t0=mul(i0,i1) t1=sub(i0,t0)"});
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

TEST(FusedRegion, BadTextIsTheCallersError) {
  for (const char* bad : {"", "(float32)", "(float99) t0=neg(i0)", "(float32) t1=neg(i0)", "(float32) t0=neg(i1)",
                          "(float32) t0=neg(t0)", "(float32) t0=nope(i0)", "(float32) t0=reduce(i0)",
                          "(float32) t0=neg(i0", "(float32) t0=typecvt(i0){dtype=int32",
                          "(float32) t0=typecvt(i0){bad=1}", "(float32)t0=neg(i0)", "(float32,bool) t0=add(i0,i1)"}) {
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
