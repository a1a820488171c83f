// Reductions: vector code against the reference bit for bit for every axes pattern, instruction set and thread count;
// the reference against a plain double loop.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/parallel.h"
#include "core/half.h"
#include "kernel/each_target.h"
#include "kernel/kernel_args.h"
#include "kernel/simd/elementwise/rows.h"
#include "op/reduce/reduce.h"

namespace mge {
namespace {

using testing_kernels::Call;
using testing_kernels::TestTensor;

const char* const kModes[] = {"sum", "mean", "max", "min", "prod"};

void fill_random(TestTensor& t, float scale, float offset) {
  static std::mt19937 g(3);
  for (int64_t i = 0; i < t.arg.numel(); ++i) {
    float v = (static_cast<float>(g()) * 0x1p-32f - 0.5f) * scale + offset;
    switch (t.arg.dtype) {
      case DType::F32:
        t.data<float>()[i] = v;
        break;
      case DType::F64:
        t.data<double>()[i] = v;
        break;
      case DType::F16:
        t.data<uint16_t>()[i] = float_to_half(v);
        break;
      case DType::BF16:
        t.data<uint16_t>()[i] = float_to_bfloat(v);
        break;
      case DType::I32:
        t.data<int32_t>()[i] = static_cast<int32_t>(v * 100);
        break;
      case DType::U8:
        t.data<uint8_t>()[i] = static_cast<uint8_t>(std::fabs(v) * 10);
        break;
      case DType::Bool:
        t.data<uint8_t>()[i] = v > offset;
        break;
      default:
        t.data<int64_t>()[i] = static_cast<int64_t>(v * 100);
    }
  }
}
double value(const TestTensor& t, int64_t i) {
  switch (t.arg.dtype) {
    case DType::F32:
      return t.data<float>()[i];
    case DType::F64:
      return t.data<double>()[i];
    case DType::F16:
      return half_to_float(t.data<uint16_t>()[i]);
    case DType::BF16:
      return bfloat_to_float(t.data<uint16_t>()[i]);
    case DType::I32:
      return t.data<int32_t>()[i];
    case DType::U8:
    case DType::Bool:
      return t.data<uint8_t>()[i];
    default:
      return static_cast<double>(t.data<int64_t>()[i]);
  }
}
// Straight from the definition, in double.
std::vector<double> plain_reduce(const TestTensor& x, const std::string& mode, uint32_t mask) {
  const Shape& s = x.arg.shape;
  int64_t count = 1, per = 1;
  for (int i = 0; i < s.rank; ++i) (mask >> i & 1 ? per : count) *= s[i];
  double init = mode == "prod" ? 1 : mode == "max" ? -INFINITY : mode == "min" ? INFINITY : 0;
  std::vector<double> y(static_cast<size_t>(count), init);
  for (int64_t i = 0; i < s.numel(); ++i) {
    int64_t left = i, at = 0, step = 1;
    for (int d = s.rank - 1; d >= 0; --d) {
      if (!(mask >> d & 1)) {
        at += left % s[d] * step;
        step *= s[d];
      }
      left /= s[d];
    }
    double v = value(x, i), &a = y[static_cast<size_t>(at)];
    a = mode == "prod" ? a * v : mode == "max" ? std::fmax(a, v) : mode == "min" ? std::fmin(a, v) : a + v;
  }
  if (mode == "mean")
    for (double& a : y) a /= static_cast<double>(per);
  return y;
}

struct Case {
  Shape shape;
  Ints axes;
};
const Case kCases[] = {{{7}, {}},
                       {{1}, {0}},
                       {{}, {}},
                       {{31}, {0}},
                       {{32}, {0}},
                       {{33}, {0}},
                       {{4096}, {0}},
                       {{4097}, {0}},
                       {{70000}, {0}},
                       {{5, 37}, {1}},
                       {{5, 37}, {0}},
                       {{300, 3}, {1}},
                       {{300, 3}, {0}},
                       {{50, 8}, {1}},
                       {{50, 9}, {1}},
                       {{50, 16}, {1}},
                       {{50, 17}, {1}},
                       {{50, 47}, {1}},
                       {{65, 16}, {0}},
                       {{3, 64, 5}, {1}},
                       {{3, 4100, 5}, {1}},
                       {{40000, 2}, {0}},
                       {{20000, 7}, {0}},
                       {{3, 1300}, {0}},
                       {{130, 1300}, {0}},
                       {{4, 5, 6, 7}, {0, 2, 3}},
                       {{4, 5, 6, 7}, {1, 3}},
                       {{4, 5, 6, 7}, {0, 2}},
                       {{4, 5, 6, 7}, {-1}},
                       {{2, 3, 70, 90}, {0, 2, 3}},
                       {{1, 5, 1, 9}, {2}},
                       {{6, 1, 9}, {0, 1}},
                       {{2, 100000}, {1}},
                       {{3, 4, 5, 6, 2}, {1, 3}}};

TEST(Reduce, VectorEqualsReferenceForEveryIsaAndThreadCount) {
  const int before = num_threads();
  for (auto& c : kCases) {
    for (const char* mode : kModes) {
      for (DType t : {DType::F32, DType::F16, DType::I32, DType::U8}) {
        TestTensor x(t, c.shape, 1), want;
        fill_random(x, 0.01f, 1.f);
        Call call("reduce", make_attrs(ReduceAttrs{mode, c.axes, false}), {x.arg});
        set_num_threads(1);
        call.run(KernelTier::Ref, want);
        SCOPED_TRACE(format("{} of {}{} over {}", mode, dtype_name(t), c.shape.str(), print_attr(c.axes)));
        simd::each_target([&] {
          rebuild_rows_for_test();
          for (int threads : {1, 2, 3, 8}) {
            set_num_threads(threads);
            for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref}) {
              TestTensor got;
              call.run(tier, got);
              EXPECT_EQ(got.bytes(), want.bytes()) << threads << " threads";
            }
          }
        });
      }
    }
  }
  rebuild_rows_for_test();
  set_num_threads(before);
}

// [outer][first][last] with `first` along memory, read where it lies, against its row-major copy.
TEST(Reduce, TurnedMatricesHaveTheBitsOfTheirCopies) {
  const int before = num_threads();
  for (const Shape& s : {Shape{1, 17, 16}, Shape{3, 65, 70}, Shape{1, 200, 33}, Shape{2, 5, 1100}, Shape{1, 4200, 3}})
    for (const char* mode : kModes)
      for (int64_t axis : {1, 2}) {
        TestTensor copy(DType::F32, s), turned(DType::F32, s, 1), want;
        fill_random(copy, 0.01f, 1.f);
        for (int64_t o = 0; o < s[0]; ++o)
          for (int64_t i = 0; i < s[1]; ++i)
            for (int64_t j = 0; j < s[2]; ++j)
              turned.data<float>()[(o * s[2] + j) * s[1] + i] = copy.data<float>()[(o * s[1] + i) * s[2] + j];
        turned.arg.layout.stride[1] = 1, turned.arg.layout.stride[2] = s[1];
        const Attrs attrs = make_attrs(ReduceAttrs{mode, {axis}, false});
        set_num_threads(1);
        Call("reduce", attrs, {copy.arg}).run(KernelTier::Ref, want);
        const Call call("reduce", attrs, {turned.arg});
        SCOPED_TRACE(format("{} of {} over {}", mode, s.str(), axis));
        simd::each_target([&] {
          rebuild_rows_for_test();
          for (int threads : {1, 3, 8}) {
            set_num_threads(threads);
            TestTensor got;
            TensorArg in = turned.arg, out;
            const Kernel& k = call.run(KernelTier::Simd, got);
            k.layouts({&call.op, attrs.get(), {&turned.arg, 1}, {&got.arg, 1}, nullptr}, &in, &out);
            EXPECT_EQ(in.layout.stride[1], 1) << "was to be copied";
            EXPECT_EQ(got.bytes(), want.bytes()) << threads << " threads";
          }
        });
      }
  rebuild_rows_for_test();
  set_num_threads(before);
}

TEST(Reduce, MatchesThePlainDefinition) {
  for (auto& c : kCases)
    for (const char* mode : kModes)
      for (DType t :
           {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64, DType::U8, DType::Bool}) {
        bool wraps = t == DType::U8 || ((t == DType::I32 || t == DType::I64) && mode == std::string("prod"));
        if (wraps && (mode == std::string("sum") || mode == std::string("prod"))) continue;
        TestTensor x(t, c.shape), y;
        fill_random(x, 0.01f, 1.f);
        Call call("reduce", make_attrs(ReduceAttrs{mode, c.axes, true}), {x.arg});
        call.run(KernelTier::Simd, y);
        auto want = plain_reduce(x, mode, reduced_axes(c.axes, c.shape.rank));
        double per = static_cast<double>(x.arg.numel()) / static_cast<double>(want.size());
        double eps = y.arg.dtype == DType::F32    ? 0x1p-24
                     : y.arg.dtype == DType::F16  ? 0x1p-11
                     : y.arg.dtype == DType::BF16 ? 0x1p-8
                                                  : 0x1p-53;
        // 1024/32 + log2 additions one after the other; a product multiplies relative errors of all factors.
        double tol = mode == std::string("prod") ? per + 4 : std::fmin(per, 200) + 4;
        for (size_t i = 0; i < want.size(); ++i) {
          double got = value(y, static_cast<int64_t>(i));
          if (std::fabs(want[i]) > 60000 && y.arg.dtype == DType::F16) continue;
          EXPECT_NEAR(got, want[i], eps * tol * std::fabs(want[i]) + 1e-30)
              << mode << " of " << dtype_name(t) << c.shape.str() << " over " << print_attr(c.axes);
        }
      }
}

TEST(Reduce, ResultDtypes) {
  auto dtype = [](const char* mode, DType t) {
    TestTensor x(t, {2, 3});
    return Call("reduce", make_attrs(ReduceAttrs{mode, {0}, false}), {x.arg}).infer().dtype;
  };
  EXPECT_EQ(dtype("mean", DType::I32), DType::F32);
  EXPECT_EQ(dtype("mean", DType::F16), DType::F32);
  EXPECT_EQ(dtype("mean", DType::F64), DType::F64);
  EXPECT_EQ(dtype("sum", DType::Bool), DType::I32);
  EXPECT_EQ(dtype("prod", DType::Bool), DType::I32);
  EXPECT_EQ(dtype("max", DType::Bool), DType::Bool);
  EXPECT_EQ(dtype("sum", DType::U8), DType::U8);
  EXPECT_EQ(dtype("sum", DType::F16), DType::F16);
}

TEST(Reduce, NothingToReduce) {
  TestTensor x(DType::F32, {2, 0}), whole(DType::I32, {2, 0}), sum, prod, mean, kept, least, most;
  Call("reduce", make_attrs(ReduceAttrs{"sum", {1}, false}), {x.arg}).run(KernelTier::Simd, sum);
  Call("reduce", make_attrs(ReduceAttrs{"prod", {}, false}), {x.arg}).run(KernelTier::Simd, prod);
  Call("reduce", make_attrs(ReduceAttrs{"mean", {1}, true}), {x.arg}).run(KernelTier::Simd, mean);
  Call("reduce", make_attrs(ReduceAttrs{"max", {0}, false}), {x.arg}).run(KernelTier::Simd, kept);
  EXPECT_EQ(sum.data<float>()[0], 0);
  EXPECT_EQ(sum.data<float>()[1], 0);
  EXPECT_EQ(prod.data<float>()[0], 1);
  EXPECT_TRUE(std::isnan(mean.data<float>()[1]));
  EXPECT_EQ(kept.arg.shape, Shape({0}));
  Call("reduce", make_attrs(ReduceAttrs{"max", {1}, false}), {x.arg}).run(KernelTier::Simd, least);
  Call("reduce", make_attrs(ReduceAttrs{"min", {1}, false}), {x.arg}).run(KernelTier::Ref, most);
  EXPECT_EQ(least.data<float>()[1], -INFINITY);
  EXPECT_EQ(most.data<float>()[1], INFINITY);
  try {
    Call("reduce", make_attrs(ReduceAttrs{"max", {1}, false}), {whole.arg}).infer();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(
        e.text(),
        "reduce: max over no elements has no value in int32; input shape [2,0], axes [1]. In floating point it is "
        "-inf: cast with astype(\"float32\").");
  }
}

TEST(Reduce, AxesAreChecked) {
  auto text = [](Ints axes, const char* mode = "sum") -> std::string {
    TestTensor x(DType::F32, {2, 3});
    try {
      Call("reduce", make_attrs(ReduceAttrs{mode, axes, false}), {x.arg}).infer();
    } catch (const Error& e) {
      return e.text();
    }
    return "no error";
  };
  EXPECT_EQ(text({-1, 1}), "reduce: axis 1 is given twice.");
  EXPECT_EQ(text({2}), "reduce: axis 2 is out of range for a tensor with 2 dimensions; valid are -2..1.");
  EXPECT_EQ(text({0}, "median"), "reduce: unknown mode 'median'; known: sum, mean, max, min, prod.");
}

TEST(Reduce, NanWinsInMaxAndMin) {
  simd::each_target([] {
    for (int64_t n : {1, 5, 40, 5000})
      for (int64_t at : {int64_t{0}, n / 2, n - 1})
        for (const char* mode : {"max", "min"})
          for (int axis : {0, 1}) {
            TestTensor x(DType::F32, axis ? Shape{2, n} : Shape{n, 2}), y;
            fill_random(x, 2, 0);
            x.data<float>()[axis ? n + at : at * 2 + 1] = NAN;
            Call("reduce", make_attrs(ReduceAttrs{mode, {axis}, false}), {x.arg}).run(KernelTier::Simd, y);
            EXPECT_FALSE(std::isnan(y.data<float>()[0]));
            EXPECT_TRUE(std::isnan(y.data<float>()[1]));
          }
  });
}

TEST(Reduce, SumOfManyIsAccurate) {
  TestTensor x(DType::F32, {1 << 24}), y;
  for (int64_t i = 0; i < x.arg.numel(); ++i) x.data<float>()[i] = 0.1f;
  Call("reduce", make_attrs(ReduceAttrs{"sum", {}, false}), {x.arg}).run(KernelTier::Simd, y);
  EXPECT_NEAR(y.data<float>()[0], 0.1f * double{1 << 24}, 0.5);
}

TEST(ArgReduce, FindsTheFirstExtremeAndNan) {
  const float v[] = {1, 5, 5, -2, -2, 0, NAN, 9, NAN, -INFINITY, -INFINITY, -INFINITY};
  TestTensor x(DType::F32, {2, 6}), hi, lo, column;
  x.fill(v);
  Call("argmax", make_attrs(ArgReduceAttrs{1, false}), {x.arg}).run(KernelTier::Simd, hi);
  Call("argmin", make_attrs(ArgReduceAttrs{-1, true}), {x.arg}).run(KernelTier::Simd, lo);
  Call("argmax", make_attrs(ArgReduceAttrs{0, false}), {x.arg}).run(KernelTier::Simd, column);
  EXPECT_EQ(hi.data<int32_t>()[0], 1);
  EXPECT_EQ(hi.data<int32_t>()[1], 0);
  EXPECT_EQ(lo.data<int32_t>()[0], 3);
  EXPECT_EQ(lo.arg.shape, Shape({2, 1}));
  const int32_t want[] = {1, 1, 1, 0, 0, 0};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(column.data<int32_t>()[i], want[i]);
}

}  // namespace
}  // namespace mge
