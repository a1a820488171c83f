// sort and topk by keys against the stable sort of the reference, bit for bit: every dtype, lengths on both sides of
// each change of method, ties, NaN, signed zeros, axes inside. gather and its adjoint likewise.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernel/kernel_args.h"
#include "op/index/indexing.h"
#include "op/index/sort.h"

namespace mge::testing_kernels {
namespace {

constexpr DType kTypes[] = {DType::Bool, DType::U8,  DType::I8,   DType::U16, DType::I16,
                            DType::I32,  DType::F16, DType::BF16, DType::F32};

// Random bytes give every value of a dtype, NaN among them; few distinct ones give ties.
TestTensor draw(DType t, const Shape& s, int distinct) {
  static std::mt19937 gen(5);
  TestTensor x(t, s);
  for (size_t i = 0; i < x.size; ++i) x.data<uint8_t>()[i] = static_cast<uint8_t>(gen());
  size_t bytes = dtype_size(t);
  for (size_t i = static_cast<size_t>(distinct); distinct && i < static_cast<size_t>(s.numel()); ++i)
    std::memcpy(x.data<char>() + i * bytes, x.data<char>() + gen() % static_cast<unsigned>(distinct) * bytes, bytes);
  if (t == DType::Bool)
    for (size_t i = 0; i < x.size; ++i) x.data<uint8_t>()[i] &= 1;
  return x;
}

struct Ordered {
  TestTensor y, index;
  const char* kernel;
};
Ordered run(const char* op, const Attrs& attrs, const TestTensor& x, const Shape& out, KernelTier tier) {
  Ordered r{TestTensor(x.arg.dtype, out), TestTensor(DType::I32, out), nullptr};
  TensorArg outs[] = {r.y.arg, r.index.arg};
  KernelArgs a{&OpRegistry::global().get(op), attrs.get(), {&x.arg, 1}, outs, nullptr};
  const Kernel& k = *KernelRegistry::global().find(a, tier).kernel;
  k.run(a);
  r.kernel = k.name;
  return r;
}

void expect_same(const char* op, const Attrs& attrs, const TestTensor& x, const Shape& out) {
  Ordered want = run(op, attrs, x, out, KernelTier::Ref);
  for (int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Ordered got = run(op, attrs, x, out, KernelTier::Simd);
    EXPECT_EQ(std::string(got.kernel).substr(0, 5), "keyed");
    EXPECT_EQ(got.index.bytes(), want.index.bytes()) << op << attrs->print() << " " << x.arg.shape.str();
    EXPECT_EQ(got.y.bytes(), want.y.bytes());
  }
  set_num_threads(1);
}

TEST(Order, SortIsTheStableSort) {
  for (DType t : kTypes)
    for (int64_t n : {0, 1, 2, 33, 399, 400, 401, 2500})
      for (bool down : {false, true})
        for (int distinct : {0, 3})
          expect_same("sort", make_attrs(SortAttrs{1, down}), draw(t, {3, n}, n > 3 ? distinct : 0), {3, n});
}

TEST(Order, TopkIsTheBeginningOfTheSort) {
  for (DType t : {DType::U8, DType::I32, DType::F32})
    for (int64_t n : {1, 40, 129, 1700})
      for (int64_t k : {int64_t{0}, int64_t{1}, int64_t{32}, int64_t{33}, n / 2, n})
        for (bool down : {false, true})
          for (bool sorted : {false, true})
            if (k <= n) expect_same("topk", make_attrs(TopkAttrs{k, 1, down, sorted}), draw(t, {2, n}, 0), {2, k});
}

TEST(Order, AxesInside) {
  TestTensor x = draw(DType::F32, {3, 50, 4}, 7);
  for (int64_t axis : {0, 1, 2}) expect_same("sort", make_attrs(SortAttrs{axis, true}), x, x.arg.shape);
  expect_same("topk", make_attrs(TopkAttrs{5, 1, true, true}), x, {3, 5, 4});
}

TEST(Order, NanIsLargestAndZerosAreEqual) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const float values[] = {nan, 1, -0.0f, 0.0f, -inf, -nan, inf, -2};
  TestTensor x(DType::F32, {8});
  x.fill(values);
  Ordered up = run("sort", make_attrs(SortAttrs{0, false}), x, {8}, KernelTier::Simd);
  const int32_t want[] = {4, 7, 2, 3, 1, 6, 0, 5};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(up.index.data<int32_t>()[i], want[i]);
}

TEST(Order, WideNumbersGoToTheReference) {
  for (DType t : {DType::I64, DType::F64}) {
    TestTensor x = draw(t, {2, 9}, 0);
    EXPECT_STREQ(run("sort", make_attrs(SortAttrs{1, false}), x, {2, 9}, KernelTier::Simd).kernel, "ref_sort");
  }
}

// Runs of indices against the element-wise walk of the reference: every element size, each axis, index shapes that end
// before x does, more indices than are checked at once, and adjoints with several indices for one place.
struct GatherCase {
  Shape x, index;
  int64_t axis;
};
const GatherCase kGathers[] = {
    {{7}, {0}, 0},
    {{7}, {2600}, 0},
    {{5, 3}, {9, 3}, 0},
    {{5, 3}, {9, 2}, 0},
    {{600, 9}, {600, 4}, 1},
    {{3, 2}, {3, 3000}, 1},
    {{2, 5, 3}, {2, 4, 3}, 1},
    {{4, 5, 3}, {3, 40, 2}, 1},
    {{4, 5, 3}, {4, 1, 3}, 2},
    {{6, 4, 5, 3}, {9, 4, 5, 3}, 0},
    {{6, 4, 5, 3}, {9, 3, 5, 3}, 0},
    {{6, 4, 50, 30}, {6, 2, 49, 30}, 1},
};

TestTensor draw_places(const Shape& s, int64_t size) {
  static std::mt19937 gen(11);
  TestTensor t(DType::I32, s);
  for (int64_t i = 0; i < s.numel(); ++i)
    t.data<int32_t>()[i] = static_cast<int32_t>(static_cast<int64_t>(gen() % (2 * static_cast<uint64_t>(size))) - size);
  return t;
}

TEST(Gather, RunsPickWhatTheReferencePicks) {
  for (const GatherCase& c : kGathers)
    for (DType t : {DType::U8, DType::F16, DType::F32, DType::C64}) {
      TestTensor x = draw(t, c.x, 0), index = draw_places(c.index, c.x[static_cast<int>(c.axis)]);
      Call call("gather", make_attrs(GatherAttrs{c.axis}), {x.arg, index.arg});
      TestTensor want;
      call.run(KernelTier::Ref, want);
      for (int threads : {1, 2, 3}) {
        set_num_threads(threads);
        TestTensor got;
        EXPECT_STREQ(call.run(KernelTier::Simd, got).name, "simd_gather");
        EXPECT_EQ(got.bytes(), want.bytes()) << c.x.str() << c.index.str() << " axis " << c.axis;
      }
      set_num_threads(1);
    }
}

// A result that would not stay in the cache is written past it, row by row, whatever the rows' alignment.
TEST(Gather, TakeOfLongRows) {
  for (int64_t row : {4099, 4096}) {
    TestTensor x = draw(DType::F32, {37, row}, 0), index = draw_places({2100}, 37);
    Call call("take", make_attrs(TakeAttrs{0}), {x.arg, index.arg});
    TestTensor want;
    call.run(KernelTier::Ref, want);
    for (int threads : {1, 3}) {
      set_num_threads(threads);
      TestTensor got;
      EXPECT_STREQ(call.run(KernelTier::Simd, got).name, "simd_take");
      EXPECT_TRUE(got.bytes() == want.bytes()) << row;
    }
    set_num_threads(1);
  }
}

TEST(Gather, AdjointAddsInTheOrderOfTheReference) {
  std::mt19937 gen(3);
  for (const GatherCase& c : kGathers) {
    TestTensor gy(DType::F32, c.index), index = draw_places(c.index, c.x[static_cast<int>(c.axis)]);
    for (int64_t i = 0; i < c.index.numel(); ++i) gy.data<float>()[i] = std::normal_distribution<float>()(gen);
    Ints shape;
    for (int i = 0; i < c.x.rank; ++i) shape.push_back(c.x[i]);
    Call call("gather_bwd", make_attrs(GatherBwdAttrs{c.axis, shape}), {gy.arg, index.arg});
    TestTensor want;
    call.run(KernelTier::Ref, want);
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      TestTensor got;
      EXPECT_STREQ(call.run(KernelTier::Simd, got).name, "simd_gather_bwd");
      EXPECT_EQ(got.bytes(), want.bytes()) << c.x.str() << c.index.str() << " axis " << c.axis;
    }
    set_num_threads(1);
  }
}

TEST(Gather, BadIndexIsNamedWithItsPosition) {
  TestTensor x(DType::F32, {2, 1500}), index(DType::I32, {2, 1500});
  for (int32_t bad : {1500, -1501}) {
    index.data<int32_t>()[1500 + 1234] = bad;
    Call call("gather", make_attrs(GatherAttrs{1}), {x.arg, index.arg});
    TestTensor y;
    try {
      call.run(KernelTier::Simd, y);
      ADD_FAILURE() << "accepted " << bad;
    } catch (const std::exception& e) {
      EXPECT_NE(std::string(e.what()).find(format("{}", bad)), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("2734"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace mge::testing_kernels
