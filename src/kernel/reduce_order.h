// The order in which a reduction combines elements, defined once: ref and simd differ only in the leaves they plug in,
// so they agree bit for bit, for every instruction set and every number of threads.
//
//   Axes of size 1 are dropped and neighbouring axes of one kind (reduced or kept) merged; the input is contiguous.
//   Runs of reduced axes are reduced one after the other, innermost first:
//   - row step [A,L] -> [A], when the innermost run is reduced. A row is cut into blocks of 1024; in a block, lane l of
//   32
//     takes elements l, l+32, … in turn starting from the identity, then lanes are folded: l with l+16, l+8, l+4, l+2,
//     l+1.
//   - column step [A,R,C] -> [A,C]. Rows are cut into blocks of 64; a block is combined row after row.
//   Block results are combined pairwise (pairwise summation): blocks 2i and 2i+1, then pairs of those, … and the
//   left-overs from the right. float16 and bfloat16 accumulate in float32, integers in int64 (wrapping when stored),
//   mean divides the sum by the count.
#pragma once
#include <algorithm>
#include <memory>

#include "base/cost.h"
#include "base/function_ref.h"
#include "base/parallel.h"
#include "kernel/kernel.h"
#include "kernel/row_io.h"
#include "op/reduce/reduce.h"

namespace mge {

constexpr int64_t kRowBlock = 1024;
constexpr int64_t kColumnBlock = 64;
constexpr int kRowLanes = 32;

/// The leaves for one operation on accumulator type A (float, double, int64_t, or int32_t for int32 alone, whose sums
/// and products wrap to the same bits).
template <class A>
struct ReduceLeaves {
  A identity;
  /// y[r] = the elements x[r*n .. r*n+n) combined in the order above; n <= kRowBlock.
  void (*rows)(const A* x, int64_t rows, int64_t n, A* y);
  /// acc[c] = acc[c] op x[r*stride + c] for r = 0, 1, … rows-1 in turn.
  void (*columns)(A* acc, const A* x, int64_t stride, int64_t rows, int64_t n);
  A (*combine)(A, A);
  /// dst[i] = src[i] converted from `t`; called only for other dtypes than A's own.
  void (*load)(DType t, const void* src, A* dst, int64_t n);
};

template <class A>
constexpr DType kDTypeOf = std::is_same_v<A, float>     ? DType::F32
                           : std::is_same_v<A, double>  ? DType::F64
                           : std::is_same_v<A, int32_t> ? DType::I32
                                                        : DType::I64;
template <class A>
constexpr Compute kComputeOf = std::is_same_v<A, float>    ? Compute::F32
                               : std::is_same_v<A, double> ? Compute::F64
                                                           : Compute::I64;

/// ReduceLeaves::load by way of kernel/row_io.h.
template <class A>
void load_accumulators(DType t, const void* src, A* dst, int64_t n) {
  if constexpr (std::is_same_v<A, int32_t>) {
    MGE_ASSERT(t == DType::I32, "accumulators of 32 bits are for int32 alone");
    std::copy_n(static_cast<const A*>(src), n, dst);
    return;
  }
  const int64_t size = static_cast<int64_t>(dtype_size(t));
  for (int64_t i = 0; i < n; i += kRowTile)
    load_row(t, static_cast<const char*>(src) + i * size, 1, kComputeOf<A>, dst + i, std::min(kRowTile, n - i));
}

/// Elements that are computed when a reduction asks for them (a fused region): dst[i] = element at+i of the row-major
/// input, n <= kRowBlock. Each is asked for once, by any thread.
template <class A>
using MakeElements = FunctionRef<void(int64_t at, int64_t n, A* dst)>;

namespace detail {

// Elements of any dtype as accumulators; `buffer` is used when they need conversion or are made.
template <class A>
struct Source {
  const void* ptr;
  DType dtype;
  const MakeElements<A>* make = nullptr;
  bool direct() const { return dtype == kDTypeOf<A> && !make; }
  const A* get(const ReduceLeaves<A>& ops, int64_t at, int64_t n, A* buffer) const {
    if (make) {
      (*make)(at, n, buffer);
      return buffer;
    }
    const char* p = static_cast<const char*>(ptr) + at * static_cast<int64_t>(dtype_size(dtype));
    if (direct()) return reinterpret_cast<const A*>(p);
    ops.load(dtype, p, buffer, n);
    return buffer;
  }
};

// The pairwise tree over a sequence of equally sized parts, each a vector of `n` accumulators, fed from left to right.
template <class A>
class PairwiseTree {
 public:
  PairwiseTree(const ReduceLeaves<A>& ops, int64_t n, int64_t parts) : ops_(ops), n_(n) {
    int levels = 1;
    while (parts >>= 1) ++levels;
    if (levels * n > kInline) heap_.reset(new A[static_cast<size_t>(levels * n)]);
  }
  /// Where the next part is to be written.
  A* next() { return level(top_); }
  /// The part at next() is complete.
  void push() {
    ++top_;
    for (uint64_t i = ++count_; !(i & 1); i >>= 1) fold();
  }
  /// After the last push: the combined vector.
  const A* finish() {
    while (top_ > 1) fold();
    return level(0);
  }

 private:
  static constexpr int64_t kInline = 512;
  A* level(int i) { return (heap_ ? heap_.get() : inline_) + i * n_; }
  // Combines the last vector into the one before it.
  void fold() {
    --top_;
    A *a = level(top_ - 1), *b = level(top_);
    if (n_ == 1)
      *a = ops_.combine(*a, *b);
    else
      ops_.columns(a, b, n_, 1, n_);
  }
  const ReduceLeaves<A>& ops_;
  int64_t n_;
  int top_ = 0;
  uint64_t count_ = 0;
  A inline_[kInline];
  std::unique_ptr<A[]> heap_;
};

// The same tree over n single values, in place.
template <class A>
A pairwise(const ReduceLeaves<A>& ops, A* v, int64_t n) {
  for (; n > 1; n = (n + 1) / 2) {
    for (int64_t i = 0; i < n / 2; ++i) v[i] = ops.combine(v[2 * i], v[2 * i + 1]);
    if (n % 2) v[n / 2] = v[n - 1];
  }
  return v[0];
}

// x [rows, len] -> y [rows]
template <class A>
void row_step(const ReduceLeaves<A>& ops, const Source<A>& x, int64_t rows, int64_t len, A* y) {
  const int64_t blocks = (len + kRowBlock - 1) / kRowBlock;
  auto reduce_rows = [&](int64_t first, int64_t last) {  // len <= kRowBlock
    if (x.direct()) return ops.rows(x.get(ops, first * len, 0, nullptr), last - first, len, y + first);
    A buffer[kRowBlock];
    const int64_t at_once = kRowBlock / len;
    for (int64_t r = first; r < last; r += at_once) {
      const int64_t n = std::min(at_once, last - r);
      ops.rows(x.get(ops, r * len, n * len, buffer), n, len, y + r);
    }
  };
  if (blocks <= 1) {
    const int64_t grain = value_grain(len);
    return rows <= grain ? reduce_rows(0, rows) : parallel_for(rows, grain, reduce_rows);
  }
  // Groups of blocks are whole subtrees, combined where they were computed.
  constexpr int64_t kGroup = 16, kGroupLength = kGroup * kRowBlock;
  const int64_t groups = (blocks + kGroup - 1) / kGroup;
  std::unique_ptr<A[]> part(groups > 1 ? new A[static_cast<size_t>(rows * groups)] : nullptr);
  A* to = groups > 1 ? part.get() : y;
  parallel_for(rows * groups, value_grain(std::min(len, kGroupLength)), [&](int64_t b, int64_t e) {
    A buffer[kRowBlock], result[kGroup];
    for (int64_t i = b; i < e; ++i) {
      const int64_t at = i % groups * kGroupLength, n = std::min(kGroupLength, len - at), first = i / groups * len + at;
      const int64_t full = n / kRowBlock, left = n % kRowBlock;
      if (x.direct())
        ops.rows(x.get(ops, first, 0, nullptr), full, kRowBlock, result);
      else
        for (int64_t k = 0; k < full; ++k)
          ops.rows(x.get(ops, first + k * kRowBlock, kRowBlock, buffer), 1, kRowBlock, result + k);
      if (left) ops.rows(x.get(ops, first + full * kRowBlock, left, buffer), 1, left, result + full);
      to[i] = pairwise(ops, result, full + (left != 0));
    }
  });
  if (groups > 1)
    for (int64_t r = 0; r < rows; ++r) y[r] = pairwise(ops, to + r * groups, groups);
}

// Rows [first, last) and columns [c, c+n) of one matrix of width `width` starting at element `at`; first is a block
// start.
template <class A>
void column_range(const ReduceLeaves<A>& ops, const Source<A>& x, int64_t at, int64_t width, int64_t first,
                  int64_t last, int64_t c, int64_t n, A* y) {
  PairwiseTree<A> tree(ops, n, (last - first + kColumnBlock - 1) / kColumnBlock);
  A buffer[kRowTile];
  for (int64_t r = first; r < last; r += kColumnBlock) {
    A* acc = tree.next();
    int64_t rows = std::min(kColumnBlock, last - r), from = at + r * width + c;
    std::copy_n(x.get(ops, from, n, buffer), n, acc);
    if (x.direct())
      ops.columns(acc, x.get(ops, from, n, nullptr) + width, width, rows - 1, n);
    else
      for (int64_t i = 1; i < rows; ++i) ops.columns(acc, x.get(ops, from + i * width, n, buffer), n, 1, n);
    tree.push();
  }
  std::copy_n(tree.finish(), n, y);
}

// x [outer, rows, width] -> y [outer, width]
template <class A>
void column_step(const ReduceLeaves<A>& ops, const Source<A>& x, int64_t outer, int64_t rows, int64_t width, A* y) {
  // Wide tiles are read as they lie; narrow ones give every thread some where there are few rows.
  constexpr int64_t kWideTile = 4096;
  const int64_t threads = num_threads(), row_blocks = (rows + kColumnBlock - 1) / kColumnBlock;
  const bool wide = x.direct() && outer * ((width + kWideTile - 1) / kWideTile) * row_blocks >= 2 * threads;
  const int64_t tile = wide ? kWideTile : kRowTile, tiles = (width + tile - 1) / tile;
  // Few columns and many rows: also split the rows, into whole subtrees of the pairwise tree (a power of two of
  // blocks).
  int64_t chunk = kColumnBlock;
  while (chunk < rows && outer * tiles * ((rows + chunk - 1) / chunk) > 4 * threads) chunk *= 2;
  const int64_t chunks = outer * tiles < 2 * threads && threads > 1 ? (rows + chunk - 1) / chunk : 1;
  if (chunks == 1) chunk = rows;
  std::unique_ptr<A[]> part;
  A* to = y;
  if (chunks > 1) {
    part.reset(new A[static_cast<size_t>(outer * chunks * width)]);
    to = part.get();
  }
  const int64_t work = std::min(tile, width) * chunk;
  parallel_for(outer * chunks * tiles, value_grain(work), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      int64_t c = i % tiles * tile, k = i / tiles % chunks, o = i / tiles / chunks;
      column_range(ops, x, o * rows * width, width, k * chunk, std::min(rows, (k + 1) * chunk), c,
                   std::min(tile, width - c), to + (o * chunks + k) * width + c);
    }
  });
  if (chunks == 1) return;
  for (int64_t o = 0; o < outer; ++o) {
    PairwiseTree<A> tree(ops, width, chunks);
    for (int64_t k = 0; k < chunks; ++k) {
      std::copy_n(to + (o * chunks + k) * width, width, tree.next());
      tree.push();
    }
    std::copy_n(tree.finish(), width, y + o * width);
  }
}

struct AxisRun {
  int64_t size;
  bool reduced;
};
// Drops axes of size 1 and merges neighbours of one kind; returns the number of runs.
inline int merge_axes(const Shape& s, uint32_t mask, AxisRun* runs) {
  int n = 0;
  for (int i = 0; i < s.rank; ++i) {
    bool reduced = mask >> i & 1;
    if (s[i] == 1) continue;
    if (n && runs[n - 1].reduced == reduced)
      runs[n - 1].size *= s[i];
    else
      runs[n++] = {s[i], reduced};
  }
  return n;
}

}  // namespace detail

/// Reduces the axes of `mask` of a row-major input of this shape into `out`. `mean` divides by the element count at the
/// end.
template <class A>
void reduce_elements(const Shape& shape, uint32_t mask, detail::Source<A> x, const TensorArg& out,
                     const ReduceLeaves<A>& ops, bool mean) {
  using namespace detail;
  const int64_t total = shape.numel(), count = out.numel();
  if (count == 0) return;
  const bool same = out.dtype == kDTypeOf<A>;
  A small[64];
  std::unique_ptr<A[]> heap[2];
  auto room = [&](int which, int64_t n) {
    if (which == 0 && n <= 64) return static_cast<A*>(small);
    heap[which].reset(new A[static_cast<size_t>(n)]);
    return heap[which].get();
  };

  AxisRun runs[kMaxRank];
  int n_runs = total ? merge_axes(shape, mask, runs) : 0;
  int left = 0;
  for (int i = 0; i < n_runs; ++i) left += runs[i].reduced;
  A* result = same ? out.data<A>() : nullptr;
  if (left == 0) {  // nothing to combine: copy, or the identity of an empty reduction
    if (!result) result = room(0, count);
    if (total == 0)
      std::fill_n(result, count, ops.identity);
    else if (x.direct())
      std::copy_n(static_cast<const A*>(x.ptr), count, result);
    else if (!x.make)
      load_accumulators(x.dtype, x.ptr, result, count);
    else
      for (int64_t i = 0; i < count; i += kRowBlock) (*x.make)(i, std::min(kRowBlock, count - i), result + i);
  }
  int64_t width = 1, size = total;
  for (int i = n_runs - 1, step = 0; i >= 0; --i) {
    if (!runs[i].reduced) {
      width *= runs[i].size;
      continue;
    }
    int64_t outer = size / width / runs[i].size;
    size = outer * width;
    A* to = --left == 0 && result ? result : room(step & 1, size);
    if (width == 1)
      row_step(ops, x, outer, runs[i].size, to);
    else
      column_step(ops, x, outer, runs[i].size, width, to);
    x = {to, kDTypeOf<A>};
    if (left == 0) result = to;
    ++step;
  }
  if (mean) {
    const A n = static_cast<A>(total / count);
    for (int64_t i = 0; i < count; ++i) result[i] /= n;
  }
  if (!same)
    for (int64_t i = 0; i < count; i += kRowTile)
      store_row(out.dtype, static_cast<char*>(out.ptr) + i * static_cast<int64_t>(dtype_size(out.dtype)), 1,
                kComputeOf<A>, result + i, std::min(kRowTile, count - i));
}

/// Runs op `reduce` on a contiguous input.
template <class A>
void run_reduce(const KernelArgs& a, const ReduceLeaves<A>& ops, bool mean) {
  const TensorArg& in = a.in[0];
  reduce_elements<A>(in.shape, reduced_axes(a.as<ReduceAttrs>().axes, in.shape.rank), {in.ptr, in.dtype}, a.out[0], ops,
                     mean);
}

/// The leaves of the reference kernel, and of the vector kernel, for a mode (mean takes those of sum). Either gives the
/// same bits.
template <class A>
ReduceLeaves<A> ref_reduce_leaves(ReduceMode mode);
#ifdef MGE_WITH_SIMD
ReduceLeaves<float> simd_reduce_leaves(ReduceMode mode);
#endif

}  // namespace mge
