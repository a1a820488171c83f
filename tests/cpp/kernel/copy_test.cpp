// copy_strided and the loop nests under it, against plain index arithmetic.
#include "kernel/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "kernel/each_target.h"
#include "op/shape/shape_cases.h"

namespace mge {
namespace {

constexpr DType kBySize[] = {DType::U8, DType::I16, DType::F32, DType::F64};

/// A tensor somewhere inside a block whose every byte is known.
struct Block {
  std::vector<uint8_t> bytes;
  TensorArg arg;
  Block(const Shape& s, const Layout& l, int64_t extent, DType t, uint32_t seed)
      : bytes(static_cast<size_t>(extent) * dtype_size(t)) {
    for (auto& b : bytes) b = static_cast<uint8_t>((seed = seed * 1664525u + 1013904223u) >> 24);
    arg.dtype = t;
    arg.shape = s;
    arg.layout = l;
    arg.ptr = bytes.data() + l.offset * static_cast<int64_t>(dtype_size(t));
  }
  const uint8_t* at(const Index& i) const {
    return bytes.data() + address(arg.layout, i) * static_cast<int64_t>(dtype_size(arg.dtype));
  }
};

void expect_copy(const Block& src, Block& dst, const std::string& what) {
  size_t size = dtype_size(src.arg.dtype);
  std::vector<uint8_t> want = dst.bytes;  // untouched outside the elements of dst
  for_each_index(src.arg.shape, [&](const Index& i) {
    std::memcpy(want.data() + address(dst.arg.layout, i) * static_cast<int64_t>(size), src.at(i), size);
  });
  copy_strided(src.arg, dst.arg);
  ASSERT_EQ(dst.bytes, want) << what;
}

TEST(CopyStrided, RandomLayouts) {
  ShapeCases cases(21);
  for (int i = 0; i < 6000; ++i) {
    Shape s = cases.shape(6);
    DType t = kBySize[cases.below(4)];
    int64_t se, de;
    Layout sl = cases.layout(s, &se), dl = cases.layout(s, &de, true);
    Block src(s, sl, se, t, 1), dst(s, dl, de, t, 2);
    expect_copy(src, dst, s.str() + " case " + std::to_string(i));
    if (HasFatalFailure()) return;
  }
}

// Channels that change places in pairs, as a shuffle of two groups on channels-last memory makes them.
TEST(CopyStrided, Pairs) {
  for (int64_t n : {2, 3, 4, 7, 8, 9, 16, 29, 58})
    for (DType t : kBySize) {
      const Shape s{3, n, 2};
      Layout groups = Layout::contiguous(s);
      groups.stride[1] = 1, groups.stride[2] = n;
      Block src(s, groups, 6 * n, t, 1), dst(s, Layout::contiguous(s), 6 * n, t, 2);
      expect_copy(src, dst, s.str());
      if (HasFatalFailure()) return;
    }
}

TEST(CopyStrided, LargeTransposesOnSeveralThreads) {
  int before = num_threads();
  simd::each_target([] {
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      for (Shape s : {Shape{65, 70}, Shape{7, 33, 129}, Shape{3, 64, 5, 31}, Shape{2, 40000}, Shape{300, 301}}) {
        for (DType t : kBySize) {
          Layout row = Layout::contiguous(s), col = row;  // column-major: both directions of the tile loop
          int64_t step = 1;
          for (int i = 0; i < s.rank; ++i) col.stride[i] = step, step *= s[i];
          Block a(s, row, s.numel(), t, 3), b(s, col, s.numel(), t, 4), c(s, row, s.numel(), t, 5);
          expect_copy(a, b, s.str());
          expect_copy(b, c, s.str());
          ASSERT_EQ(a.bytes, c.bytes) << "there and back";
        }
      }
    }
  });
  set_num_threads(before);
}

// A run without end on one side: cut between threads like any other.
TEST(CopyStrided, OneValueForALargeTensorIsWrittenBySeveralThreads) {
  const int before = num_threads();
  set_num_threads(3);
  const Shape s{3, 100'003};
  for (DType t : kBySize) {
    Layout one = Layout::contiguous(s), spread = one;
    one.stride[0] = one.stride[1] = 0;
    spread.stride[0] = 300'100, spread.stride[1] = 3;
    Block from(s, one, 1, t, 3), dense(s, Layout::contiguous(s), s.numel(), t, 4), wide(s, spread, 900'300, t, 5);
    expect_copy(from, dense, "dense");
    expect_copy(from, wide, "spread");
    expect_copy(wide, dense, "gathered");
  }
  set_num_threads(before);
}

TEST(CopyStrided, ScalarsAndEmpties) {
  for (DType t : kBySize) {
    Block a({}, Layout::contiguous({}), 1, t, 1), b({}, Layout::contiguous({}), 1, t, 2);
    expect_copy(a, b, "scalar");
    Block e({3, 0}, Layout::contiguous(Shape{3, 0}), 1, t, 1), f({3, 0}, Layout::contiguous(Shape{3, 0}), 1, t, 2);
    expect_copy(e, f, "empty");
    TensorArg none = e.arg;
    none.ptr = nullptr;
    copy_strided(none, none);
  }
}

TEST(CopyStrided, UnlikeTensorsAreOurBug) {
  Block a({2}, Layout::contiguous({2}), 2, DType::F32, 1), b({3}, Layout::contiguous({3}), 3, DType::F32, 1);
  Block c({2}, Layout::contiguous({2}), 2, DType::I32, 1);
  EXPECT_THROW(copy_strided(a.arg, b.arg), Error);
  EXPECT_THROW(copy_strided(a.arg, c.arg), Error);
}

TEST(LoopNest, MergesWhatIsDense) {
  Shape s{2, 1, 3, 4};
  TensorArg t;
  t.shape = s;
  t.layout = Layout::contiguous(s);
  const TensorArg* one[] = {&t};
  EXPECT_EQ(make_loop_nest(s, one).rank, 1);
  EXPECT_EQ(make_loop_nest(s, one).size[0], 24);
  TensorArg row;  // [4] against [2,1,3,4]
  row.shape = {4};
  row.layout = Layout::contiguous({4});
  const TensorArg* two[] = {&t, &row};
  LoopNest n = make_loop_nest(s, two);
  ASSERT_EQ(n.rank, 2);
  EXPECT_EQ(n.size[0], 6);
  EXPECT_EQ(n.stride[1][0], 0);
  EXPECT_EQ(n.stride[1][1], 1);
  TensorArg scalar;
  const TensorArg* with_scalar[] = {&t, &scalar};
  EXPECT_EQ(make_loop_nest(s, with_scalar).rank, 1);
  EXPECT_EQ(make_loop_nest({}, {with_scalar + 1, 1}).rank, 0);
}

// Random operands: walking the nest visits the same addresses as walking the indices.
TEST(LoopNest, VisitsTheRightAddresses) {
  ShapeCases cases(22);
  for (int i = 0; i < 2000; ++i) {
    ShapeCase c = cases.broadcast_to();
    if (c.out.numel() == 0) continue;
    int64_t e;
    TensorArg out, in;
    out.shape = c.out, out.layout = cases.layout(c.out, &e, true);
    in.shape = c.in, in.layout = cases.layout(c.in, &e);
    out.layout.offset = in.layout.offset = 0;
    const TensorArg* ops[] = {&out, &in};
    LoopNest n = make_loop_nest(c.out, ops);
    std::vector<std::pair<int64_t, int64_t>> got, want;
    Shape walk(n.size, static_cast<size_t>(n.rank));
    for_each_index(walk, [&](const Index& at) {
      int64_t a[2] = {};
      for (int d = 0; d < n.rank; ++d)
        for (int k = 0; k < 2; ++k) a[k] += at[static_cast<size_t>(d)] * n.stride[k][d];
      got.push_back({a[0], a[1]});
    });
    for_each_index(c.out, [&](const Index& at) {
      Index x(c.in.rank);
      for (int d = 0; d < c.in.rank; ++d)
        x[static_cast<size_t>(d)] = c.in[d] == 1 ? 0 : at[static_cast<size_t>(d + c.out.rank - c.in.rank)];
      want.push_back({address(out.layout, at), address(in.layout, x)});
    });
    ASSERT_EQ(got, want) << c.str();
  }
}

}  // namespace
}  // namespace mge
