// Vector leaves of the reduction order that kernel/reduce_order.h defines.
#include "base/cost.h"
#include "base/features.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/reduce/reduce.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <limits>

#include "kernel/layouts.h"
#include "kernel/reduce_order.h"
#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::reduce::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using VF = hn::Vec<DF>;
constexpr int64_t kPixelChannels = 128;  // channels of a pixel_block; 16 KiB of partial results
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
constexpr int64_t kVectors = kRowLanes / kLanes;

struct SumOp {
  static constexpr float identity = 0;
  static constexpr bool kQuick = false;
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
  static float combine(float a, float b) { return a + b; }
};
struct ProdOp {
  static constexpr float identity = 1;
  static constexpr bool kQuick = false;
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
  static float combine(float a, float b) { return a * b; }
};
// x86's max(a, b) is a > b ? a : b, which is `apply` where a is a number.
struct MaxOp {  // NaN wins; of equals the later one, as in body::maximum
  static constexpr float identity = -std::numeric_limits<float>::infinity();
  static constexpr bool kQuick = HWY_ARCH_X86;
  template <class V>
  static HWY_INLINE V quick(V a, V b) {
    return hn::Max(a, b);
  }
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::Not(hn::Eq(a, a))), a, b);
  }
  static float combine(float a, float b) { return a > b || a != a ? a : b; }
};
struct MinOp {
  static constexpr float identity = std::numeric_limits<float>::infinity();
  static constexpr bool kQuick = HWY_ARCH_X86;
  template <class V>
  static HWY_INLINE V quick(V a, V b) {
    return hn::Min(a, b);
  }
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::Not(hn::Eq(a, a))), a, b);
  }
  static float combine(float a, float b) { return b > a || a != a ? a : b; }
};

// Lane l with lane l + half, down to one.
template <class Op, class D>
HWY_INLINE float fold(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> h;
    return fold<Op>(h, Op::apply(hn::LowerHalf(h, v), hn::UpperHalf(h, v)));
  }
}

// The first n lanes from x, the identity in the others.
template <class Op, class D>
HWY_INLINE hn::Vec<D> load_part(D d, const float* x, int64_t n) {
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(D()));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  if constexpr (N >= 4) {
    const auto m = hn::FirstN(d, static_cast<size_t>(n));
    return hn::IfThenElse(m, hn::MaskedLoad(m, d, x), hn::Set(d, Op::identity));
  }
#endif
  HWY_ALIGN float part[N];
  for (int64_t i = 0; i < N; ++i) part[i] = i < n ? x[i] : Op::identity;
  return hn::Load(d, part);
}
// Rows that fit one vector of D. The other lanes of the 32 would hold the identity, and combining with it changes no
// bit.
template <class Op, class D>
HWY_INLINE void short_rows(D d, const float* x, int64_t rows, int64_t n, float* y) {
  const auto identity = hn::Set(d, Op::identity);
  for (int64_t r = 0; r < rows; ++r, x += n) y[r] = fold<Op>(d, Op::apply(identity, load_part<Op>(d, x, n)));
}

// The elements [x, end), a multiple of the 32 lanes, without regard for NaN: false, and acc as it was, when there is
// one. Loops over vectors are unrolled by hand: -O2, which Lite has, keeps them, and with them the vectors in memory.
template <class Op>
HWY_INLINE bool whole_lanes(const float* x, const float* end, VF* acc) {
  if constexpr (Op::kQuick) {
    const DF d;
    VF quick[kVectors], sum[kVectors];  // a sum is NaN when an element is, or for inf - inf, which may go the long way
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) quick[v] = acc[v], sum[v] = hn::Zero(d);
    for (; x < end; x += kRowLanes)
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) {
        const VF e = hn::LoadU(d, x + v * kLanes);
        quick[v] = Op::quick(quick[v], e);
        sum[v] = hn::Add(sum[v], e);
      }
#pragma GCC unroll 8
    for (int64_t v = 1; v < kVectors; ++v) sum[0] = hn::Add(sum[0], sum[v]);
    if (!hn::AllFalse(d, hn::IsNaN(sum[0]))) return false;
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) acc[v] = quick[v];
    return true;
  } else {
    return false;
  }
}

// The same for any values. A whole block is part of a longer row: hardware stops fetching at the end of a page, so what
// lies a page on is asked for here.
template <class Op, bool kBlock>
HWY_INLINE void join_lanes(const float* x, const float* end, VF* acc) {
  const DF d;
  VF a[kVectors];  // of its own, or it would not stay in registers
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectors; ++v) a[v] = acc[v];
  for (; x < end; x += kRowLanes)
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) {
      if (kBlock) __builtin_prefetch(x + v * kLanes + kRowBlock, 0, 2);
      a[v] = Op::apply(a[v], hn::LoadU(d, x + v * kLanes));
    }
#pragma GCC unroll 8
  for (int64_t v = 0; v < kVectors; ++v) acc[v] = a[v];
}

template <class Op>
void row_leaf(const float* x, int64_t rows, int64_t n, float* y) {
  const DF d;
  if (n <= 4) return short_rows<Op>(hn::CappedTag<float, 4>(), x, rows, n, y);
  if (n <= 8 && kLanes > 8) return short_rows<Op>(hn::CappedTag<float, 8>(), x, rows, n, y);
  if (n <= kLanes) return short_rows<Op>(d, x, rows, n, y);
  const int64_t left = n % kRowLanes;
  for (int64_t r = 0; r < rows; ++r) {
    VF acc[kVectors];
    for (auto& a : acc) a = hn::Set(d, Op::identity);
    const float* const end = x + (n - left);
    if (!whole_lanes<Op>(x, end, acc))
      n == kRowBlock ? join_lanes<Op, true>(x, end, acc) : join_lanes<Op, false>(x, end, acc);
    x = end;
    for (int64_t v = 0; v * kLanes < left; ++v)
      acc[v] = Op::apply(acc[v], load_part<Op>(d, x + v * kLanes, std::min(kLanes, left - v * kLanes)));
    x += left;
    for (int64_t half = kVectors / 2; half > 0; half /= 2)
      for (int64_t v = 0; v < half; ++v) acc[v] = Op::apply(acc[v], acc[v + half]);
    y[r] = fold<Op>(d, acc[0]);
  }
}

// to[rows][n] from x[n][rows], whose rows are `stride` apart.
void turn(const float* x, int64_t stride, int64_t rows, int64_t n, float* to) {
  simd::HWY_NAMESPACE::transpose(x, stride, n, rows, to, n);
}

// Row blocks of channels-last images: y[c] = the pixels x[i*stride + c], i < n <= kRowBlock, combined as row_leaf does
// it for each channel. The 32 lanes of the order are pixels here: 32 rows of partial results, which memory runs past in
// the order it lies in.
template <class Op>
HWY_INLINE void pixel_block(const float* x, int64_t stride, int64_t n, int64_t channels, float* y) {
  const DF d;
  constexpr int64_t kMost = kPixelChannels;
  HWY_ALIGN float part[kRowLanes][kMost];
  const int64_t full = channels - channels % kLanes;
  auto join = [&](float* to, const float* from, int64_t m) HWY_ATTR {  // m lanes of to = to op from
    if (m == kLanes)
      hn::StoreU(Op::apply(hn::LoadU(d, to), hn::LoadU(d, from)), d, to);
    else
      hn::StoreU(Op::apply(hn::LoadU(d, to), load_part<Op>(d, from, m)), d, to);
  };
  const int64_t lanes = std::min<int64_t>(n, kRowLanes);
  for (int64_t l = 0; l < lanes; ++l) std::fill_n(part[l], (channels + kLanes - 1) / kLanes * kLanes, Op::identity);
  for (int64_t i = 0; i < n; ++i) {
    float* to = part[i % kRowLanes];
    const float* from = x + i * stride;
    for (int64_t c = 0; c < full; c += kLanes) join(to + c, from + c, kLanes);
    if (full < channels) join(to + full, from + full, channels - full);
  }
  // Lanes that no pixel fell to hold the identity, and combining with it changes no bit.
  for (int64_t half = kRowLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half && l + half < lanes; ++l)
      for (int64_t c = 0; c < channels; c += kLanes) join(part[l] + c, part[l + half] + c, kLanes);
  std::copy_n(part[0], channels, y);
}

template <class Op, class T>
HWY_INLINE void columns_scalar(T* acc, const T* x, int64_t stride, int64_t rows, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    T a = acc[c];
    for (int64_t r = 0; r < rows; ++r) a = Op::combine(a, x[r * stride + c]);
    acc[c] = a;
  }
}
template <class Op, class T>
void column_leaf(T* acc, const T* x, int64_t stride, int64_t rows, int64_t n) {
  const hn::CappedTag<T, 16> d;
  const int64_t full = n - n % kLanes;
  int64_t r = 0;
  // Four rows per pass over acc: a quarter of its loads and stores.
  for (; r + 4 <= rows; r += 4) {
    const T* p = x + r * stride;
    const T* soon = r + 8 <= rows ? p + 4 * stride : p;  // more streams than a hardware prefetcher follows
    for (int64_t c = 0; c < full; c += kLanes) {
#pragma GCC unroll 4
      for (int64_t k = 0; k < 4; ++k) __builtin_prefetch(soon + k * stride + c, 0, 2);
      auto a = hn::LoadU(d, acc + c);
      a = Op::apply(a, hn::LoadU(d, p + c));
      a = Op::apply(a, hn::LoadU(d, p + stride + c));
      a = Op::apply(a, hn::LoadU(d, p + 2 * stride + c));
      a = Op::apply(a, hn::LoadU(d, p + 3 * stride + c));
      hn::StoreU(a, d, acc + c);
    }
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < full; c += kLanes)
      hn::StoreU(Op::apply(hn::LoadU(d, acc + c), hn::LoadU(d, x + r * stride + c)), d, acc + c);
  columns_scalar<Op>(acc + full, x + full, stride, rows, n - full);
}

// ---- int32, where the order changes nothing

struct IntSum {
  static constexpr int32_t identity = 0;
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
  static int32_t combine(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct IntProd {
  static constexpr int32_t identity = 1;
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
  static int32_t combine(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
  }
};
struct IntMax {
  static constexpr int32_t identity = std::numeric_limits<int32_t>::min();
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
  static int32_t combine(int32_t a, int32_t b) { return a > b ? a : b; }
};
struct IntMin {
  static constexpr int32_t identity = std::numeric_limits<int32_t>::max();
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Min(a, b);
  }
  static int32_t combine(int32_t a, int32_t b) { return a < b ? a : b; }
};

template <class Op>
void int_row_leaf(const int32_t* x, int64_t rows, int64_t n, int32_t* y) {
  const hn::CappedTag<int32_t, 16> d;
  const int64_t full = n - n % (4 * kLanes);
  for (int64_t r = 0; r < rows; ++r, x += n) {
    int32_t total = Op::identity;
    if (full > 0) {
      auto a = hn::Set(d, Op::identity), b = a, c = a, e = a;
      for (int64_t i = 0; i < full; i += 4 * kLanes) {
        a = Op::apply(a, hn::LoadU(d, x + i));
        b = Op::apply(b, hn::LoadU(d, x + i + kLanes));
        c = Op::apply(c, hn::LoadU(d, x + i + 2 * kLanes));
        e = Op::apply(e, hn::LoadU(d, x + i + 3 * kLanes));
      }
      HWY_ALIGN int32_t lanes[kLanes];
      hn::Store(Op::apply(Op::apply(a, b), Op::apply(c, e)), d, lanes);
      for (const int32_t v : lanes) total = Op::combine(total, v);
    }
    for (int64_t i = full; i < n; ++i) total = Op::combine(total, x[i]);
    y[r] = total;
  }
}

template <class Op>
ReduceLeaves<int32_t> make_int() {
  return {Op::identity, int_row_leaf<Op>, column_leaf<Op, int32_t>, Op::combine, nullptr};
}
ReduceLeaves<int32_t> int_leaves(ReduceMode mode) {
  switch (mode) {
    case ReduceMode::Max:
      return make_int<IntMax>();
    case ReduceMode::Min:
      return make_int<IntMin>();
    case ReduceMode::Prod:
      return make_int<IntProd>();
    default:
      return make_int<IntSum>();
  }
}

template <class Op>
ReduceLeaves<float> make() {
  return {Op::identity, row_leaf<Op>, column_leaf<Op, float>, Op::combine, nullptr};
}
ReduceLeaves<float> leaves(ReduceMode mode) {
  if (has("reduce_max") && mode == ReduceMode::Max) return make<MaxOp>();
  if (has("reduce_min") && mode == ReduceMode::Min) return make<MinOp>();
  if (has("reduce_prod") && mode == ReduceMode::Prod) return make<ProdOp>();
  return make<SumOp>();
}

using PixelLeaf = void (*)(const float*, int64_t, int64_t, int64_t, float*);
PixelLeaf pixel_leaf(ReduceMode mode) {
  if (has("reduce_max") && mode == ReduceMode::Max) return pixel_block<MaxOp>;
  if (has("reduce_min") && mode == ReduceMode::Min) return pixel_block<MinOp>;
  if (has("reduce_prod") && mode == ReduceMode::Prod) return pixel_block<ProdOp>;
  return pixel_block<SumOp>;
}

}  // namespace mge::simd::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernel/simd/elementwise/row_table.h"
#include "op/in_build.h"

namespace mge {
namespace simd::reduce {
HWY_EXPORT(leaves);
HWY_EXPORT(pixel_leaf);
HWY_EXPORT(int_leaves);
HWY_EXPORT(turn);

// An input whose last two runs of axes lie in memory the other way round: [outer][first][last] with `first` along
// memory. One of those two is reduced.
struct Across {
  int64_t outer = 1, first = 1, last = 1, outer_stride = 0, stride = 0;
  bool reduces_last = false;
};
bool lies_across(const KernelArgs& a, const TensorArg& in, Across* x) {
  const Shape& s = in.shape;
  if (in.dtype != DType::F32 || a.out[0].dtype != DType::F32 || s.numel() == 0 || in.contiguous()) return false;
  const uint32_t mask = reduced_axes(a.as<ReduceAttrs>().axes, s.rank);
  struct Run {
    int64_t size, stride;
    bool reduced;
  };
  SmallVec<Run, 4> runs;
  for (int i = 0; i < s.rank; ++i) {
    const bool reduced = mask >> i & 1;
    if (s[i] == 1) continue;
    Run* before = runs.size() ? &runs[runs.size() - 1] : nullptr;
    if (before && before->reduced == reduced && before->stride == in.layout.stride[i] * s[i])
      *before = {before->size * s[i], in.layout.stride[i], reduced};
    else if (before && before->reduced && reduced)
      return false;
    else
      runs.push_back({s[i], in.layout.stride[i], reduced});
  }
  const size_t n = runs.size();
  if (n < 2 || n > 3 || (n == 3 && runs[0].reduced)) return false;
  const Run &first = runs[n - 2], &last = runs[n - 1];
  if (first.reduced == last.reduced || first.stride != 1 || last.stride < first.size) return false;
  *x = {1, first.size, last.size, 0, last.stride, last.reduced};
  if (n == 3) x->outer = runs[0].size, x->outer_stride = runs[0].stride;
  return true;
}

// f(o, from, count) for pieces of what is kept, on many threads.
template <class F>
void each_piece(int64_t outer, int64_t kept, int64_t reduced, int64_t most, F f) {
  constexpr int64_t kLine = 16;
  const int64_t fair = (outer * kept / num_threads() + kLine - 1) / kLine * kLine;
  const int64_t wide = std::clamp(fair, kLine, most), pieces = (kept + wide - 1) / wide;
  parallel_for(outer * pieces, value_grain(reduced * wide), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) f(b / pieces, b % pieces * wide, std::min(wide, kept - b % pieces * wide));
  });
}

// The row step: the 32 lanes of the order are rows of memory (pixel_block).
void rows_across(const ReduceLeaves<float>& ops, ReduceMode mode, const float* x, const Across& g, float* y) {
  const auto leaf = HWY_DYNAMIC_DISPATCH(pixel_leaf)(mode);
  const int64_t blocks = (g.last + kRowBlock - 1) / kRowBlock;
  each_piece(g.outer, g.first, g.last, 128, [&](int64_t o, int64_t c, int64_t n) {
    const float* from = x + o * g.outer_stride + c;
    detail::PairwiseTree<float> tree(ops, n, blocks);
    for (int64_t i = 0; i < blocks; ++i) {
      leaf(from + i * kRowBlock * g.stride, g.stride, std::min(kRowBlock, g.last - i * kRowBlock), n, tree.next());
      tree.push();
    }
    std::copy_n(tree.finish(), n, y + o * g.first + c);
  });
}

// The column step: blocks are turned around in the first cache.
void columns_across(const ReduceLeaves<float>& ops, const float* x, const Across& g, float* y) {
  constexpr int64_t kWide = 64;
  each_piece(g.outer, g.last, g.first, kWide, [&](int64_t o, int64_t c, int64_t n) {
    alignas(64) float turned[kColumnBlock * kWide];
    const float* from = x + o * g.outer_stride + c * g.stride;
    detail::PairwiseTree<float> tree(ops, n, (g.first + kColumnBlock - 1) / kColumnBlock);
    for (int64_t r = 0; r < g.first; r += kColumnBlock) {
      const int64_t rows = std::min(kColumnBlock, g.first - r);
      HWY_DYNAMIC_DISPATCH(turn)(from + r, g.stride, rows, n, turned);
      float* acc = tree.next();
      std::copy_n(turned, n, acc);
      ops.columns(acc, turned + n, n, rows - 1, n);
      tree.push();
    }
    std::copy_n(tree.finish(), n, y + o * g.last + c);
  });
}

void run_across(const KernelArgs& a, const ReduceLeaves<float>& ops, ReduceMode mode, const Across& g) {
  float* y = a.out[0].data<float>();
  if (g.reduces_last)
    rows_across(ops, mode, a.in[0].data<float>(), g, y);
  else
    columns_across(ops, a.in[0].data<float>(), g, y);
  if (mode != ReduceMode::Mean) return;
  const auto count = static_cast<float>(g.reduces_last ? g.last : g.first);
  for (int64_t i = 0; i < a.out[0].numel(); ++i) y[i] /= count;
}

// Over all pixels of each channel, or of each channel and image.
bool over_pixels(const KernelArgs& a, const Shape& s) {
  if (a.in[0].dtype != DType::F32 || a.out[0].dtype != DType::F32 || s.rank < 3) return false;
  const uint32_t mask = reduced_axes(a.as<ReduceAttrs>().axes, s.rank), pixels = ((1u << s.rank) - 1) & ~3u;
  return (mask & ~1u) == pixels;
}

// The steps run_reduce takes on row-major memory: pixels of each channel and image first, then images.
void run_channels_last(const KernelArgs& a, const ReduceLeaves<float>& ops, ReduceMode mode) {
  const TensorArg& in = a.in[0];
  const Shape& s = in.shape;
  const int64_t images = s[0], channels = s[1], pixels = in.numel() / (images * channels);
  const bool all_images = images > 1 && reduced_axes(a.as<ReduceAttrs>().axes, s.rank) & 1u;
  std::unique_ptr<float[]> part;
  float *y = a.out[0].data<float>(), *per_image = y;
  if (all_images) {
    part.reset(new float[static_cast<size_t>(images * channels)]);
    per_image = part.get();
  }
  rows_across(ops, mode, in.data<float>(), {images, channels, pixels, pixels * channels, channels, true}, per_image);
  if (all_images) detail::column_step<float>(ops, {per_image, DType::F32}, 1, images, channels, y);
  if (mode != ReduceMode::Mean) return;
  const auto count = static_cast<float>(in.numel() / a.out[0].numel());
  for (int64_t i = 0; i < a.out[0].numel(); ++i) y[i] /= count;
}

void layouts(const KernelArgs& a, TensorArg* in, TensorArg*) {
  if (in[0].contiguous()) return;
  Across x;
  if (in_channels_last(in[0]) && over_pixels(a, in[0].shape)) return;
  if (!lies_across(a, in[0], &x)) ask_row_major(in[0]);
}

void load(DType t, const void* src, float* dst, int64_t n) {
  RowFn row = row_table().cast[static_cast<int>(t)][static_cast<int>(DType::F32)];
  const int64_t one = 1;
  if (row)
    row(&src, &one, dst, n);
  else
    load_accumulators(t, src, dst, n);
}

void run(const KernelArgs& a) {
  ReduceMode mode = parse_reduce_mode(a.as<ReduceAttrs>().mode);
  const ReduceLeaves<float> ops = simd_reduce_leaves(mode);
  if (!a.in[0].contiguous()) {
    if (in_channels_last(a.in[0]) && over_pixels(a, a.in[0].shape)) return run_channels_last(a, ops, mode);
    Across across;
    if (lies_across(a, a.in[0], &across)) return run_across(a, ops, mode, across);
  }
  run_reduce<float>(a, ops, mode == ReduceMode::Mean);
}

// Whether this build has it; the reference kernel adds up in the same order.
bool here(ReduceMode mode) {
  switch (mode) {
    case ReduceMode::Max:
      note("reduce_max");
      return has("reduce_max");
    case ReduceMode::Min:
      note("reduce_min");
      return has("reduce_min");
    case ReduceMode::Prod:
      note("reduce_prod");
      return has("reduce_prod");
    default:
      return true;
  }
}

const char* refuse(const KernelArgs& a) {
  DType t = a.in[0].dtype;
  if (!here(parse_reduce_mode(a.as<ReduceAttrs>().mode))) return "left out of this runtime";
  if (t == DType::F32 || t == DType::F16 || t == DType::BF16) return nullptr;
  if (reduces_in_double(parse_reduce_mode(a.as<ReduceAttrs>().mode), t)) return "accumulates in double";
  if (t != DType::F64 && a.as<ReduceAttrs>().mode == "mean") return nullptr;
  return "vector code accumulates in float32 only";
}

void run_int(const KernelArgs& a) {
  run_reduce<int32_t>(a, HWY_DYNAMIC_DISPATCH(int_leaves)(parse_reduce_mode(a.as<ReduceAttrs>().mode)), false);
}
const char* refuse_int(const KernelArgs& a) {
  if (a.in[0].dtype != DType::I32 || a.out[0].dtype != DType::I32) return "needs int32";
  const ReduceMode mode = parse_reduce_mode(a.as<ReduceAttrs>().mode);
  if (mode == ReduceMode::Mean || reduces_in_double(mode, DType::I32)) return "accumulates in double";
  return nullptr;
}

}  // namespace simd::reduce

ReduceLeaves<float> simd_reduce_leaves(ReduceMode mode) {
  using namespace simd::reduce;
  MGE_CHECK(here(mode), NotImplemented, "reduce: was left out of this runtime for this mode; see tools/trim --with.");
  ReduceLeaves<float> ops = HWY_DYNAMIC_DISPATCH(leaves)(mode);
  ops.load = load;
  return ops;
}

void register_simd_reduce(KernelRegistry& r) {
  r.add("reduce", KernelTier::Simd,
        {.name = "simd_reduce",
         .refuse = simd::reduce::refuse,
         .run = simd::reduce::run,
         .layouts = simd::reduce::layouts});
  if constexpr (dtype_in_build(DType::I32))
    r.add("reduce", KernelTier::Simd,
          {.name = "simd_reduce_int32", .refuse = simd::reduce::refuse_int, .run = simd::reduce::run_int});
}

}  // namespace mge
#endif
