#include "kernel/simd/shape/moves.h"

#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/simd/register.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/shape/moves.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_past_cache(void* dst, const void* src, size_t bytes, const void* next, const void* next2) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t N = hn::MaxLanes(d);
  auto* to = static_cast<uint8_t*>(dst);
  auto *from = static_cast<const uint8_t*>(src), *n1 = static_cast<const uint8_t*>(next),
       *n2 = static_cast<const uint8_t*>(next2);
  const size_t head = std::min(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64) {  // whole lines
    if (n1) __builtin_prefetch(n1 + i);
    if (n2) __builtin_prefetch(n2 + i);
#pragma GCC unroll 4
    for (size_t k = 0; k < 64; k += N) hn::Stream(hn::LoadU(d, from + i + k), d, to + i + k);
  }
  std::memcpy(to + i, from + i, bytes - i);
}

using D4 = hn::CappedTag<uint32_t, 8>;
constexpr int64_t kBlock = static_cast<int64_t>(hn::MaxLanes(D4()));  // 8, or 4 on 128-bit vectors

// A square block of 4-byte elements, as large as a vector of D has lanes: 4, 8 or 16.
template <class D>
HWY_INLINE void load_transposed(D d, const uint32_t* HWY_RESTRICT s, int64_t stride, hn::Vec<D>* u) {
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(d));
  const hn::RepartitionToWide<D> d8;
  auto wide = [&](hn::Vec<D> v) HWY_ATTR { return hn::BitCast(d8, v); };
#pragma GCC unroll 4
  for (int64_t h = 0; h < N; h += 4) {  // rows h .. h+3: in each 128-bit part a 4 x 4 transpose
    const auto a = hn::LoadU(d, s + h * stride), b = hn::LoadU(d, s + (h + 1) * stride),
               c = hn::LoadU(d, s + (h + 2) * stride), e = hn::LoadU(d, s + (h + 3) * stride);
    const auto ab0 = hn::InterleaveLower(d, a, b), ab1 = hn::InterleaveUpper(d, a, b),
               ce0 = hn::InterleaveLower(d, c, e), ce1 = hn::InterleaveUpper(d, c, e);
    u[h] = hn::BitCast(d, hn::InterleaveLower(d8, wide(ab0), wide(ce0)));
    u[h + 1] = hn::BitCast(d, hn::InterleaveUpper(d8, wide(ab0), wide(ce0)));
    u[h + 2] = hn::BitCast(d, hn::InterleaveLower(d8, wide(ab1), wide(ce1)));
    u[h + 3] = hn::BitCast(d, hn::InterleaveUpper(d8, wide(ab1), wide(ce1)));
  }
  // Then the 128-bit parts change places.
  if constexpr (N == 8) {
    for (int i = 0; i < 4; ++i) {
      const auto lo = u[i], hi = u[i + 4];
      u[i] = hn::ConcatLowerLower(d, hi, lo);
      u[i + 4] = hn::ConcatUpperUpper(d, hi, lo);
    }
  }
  if constexpr (N == 16) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto even0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(u[i + 4]), u[i]),
                 odd0 = hn::OddEvenBlocks(u[i + 4], hn::SwapAdjacentBlocks(u[i])),
                 even1 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(u[i + 12]), u[i + 8]),
                 odd1 = hn::OddEvenBlocks(u[i + 12], hn::SwapAdjacentBlocks(u[i + 8]));
      u[i] = hn::ConcatLowerLower(d, even1, even0);
      u[i + 4] = hn::ConcatLowerLower(d, odd1, odd0);
      u[i + 8] = hn::ConcatUpperUpper(d, even1, even0);
      u[i + 12] = hn::ConcatUpperUpper(d, odd1, odd0);
    }
  }
}

template <class T>
void transpose_rest(const T* src, int64_t src_stride, T* dst, int64_t dst_stride, int64_t r0, int64_t rows, int64_t c0,
                    int64_t cols) {
  for (int64_t r = r0; r < rows; ++r)
    for (int64_t c = c0; c < cols; ++c) dst[r * dst_stride + c] = src[c * src_stride + r];
}

// Two rows into pairs: channels that are shuffled. The last vectors reach back and write some pairs a second time.
HWY_INLINE void interleave2(const uint32_t* HWY_RESTRICT x, const uint32_t* HWY_RESTRICT y, uint32_t* HWY_RESTRICT dst,
                            int64_t rows) {
  const D4 d;
  for (int64_t at = 0; at < rows; at += kBlock) {
    const int64_t r = std::min(at, rows - kBlock);
    hn::StoreInterleaved2(hn::LoadU(d, x + r), hn::LoadU(d, y + r), d, dst + 2 * r);
  }
}

void interleave_rows2(const uint32_t* x, int64_t xs, const uint32_t* y, int64_t ys, uint32_t* to, int64_t ts,
                      int64_t rows, int64_t n) {
  for (; rows > 0; --rows, x += xs, y += ys, to += ts) {
    if (n >= kBlock) {
      interleave2(x, y, to, n);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) to[2 * i] = x[i], to[2 * i + 1] = y[i];
  }
}

// Three planes into pixels of three values: colour images.
HWY_INLINE int64_t interleave3(const uint32_t* HWY_RESTRICT src, int64_t src_stride, uint32_t* HWY_RESTRICT dst,
                               int64_t rows) {
  const hn::CappedTag<uint32_t, 8> d;
  constexpr int64_t N = static_cast<int64_t>(hn::MaxLanes(d));
  int64_t r = 0;
  for (; r + N <= rows; r += N)
    hn::StoreInterleaved3(hn::LoadU(d, src + r), hn::LoadU(d, src + src_stride + r),
                          hn::LoadU(d, src + 2 * src_stride + r), d, dst + 3 * r);
  return r;
}

void transpose4(const uint32_t* HWY_RESTRICT src, int64_t src_stride, uint32_t* HWY_RESTRICT dst, int64_t dst_stride,
                int64_t rows, int64_t cols, bool stream) {
  if (cols == 2 && dst_stride == 2 && rows >= kBlock) return interleave2(src, src + src_stride, dst, rows);
  if (cols == 3 && dst_stride == 3) {
    const int64_t done = interleave3(src, src_stride, dst, rows);
    return transpose_rest(src, src_stride, dst, dst_stride, done, rows, 0, cols);
  }
  const D4 d;
  constexpr int64_t kLine = 16;  // elements of a cache line: a row of the destination is written line by line
  using DLine = hn::CappedTag<uint32_t, 16>;
  constexpr int64_t kAcross = static_cast<int64_t>(hn::MaxLanes(DLine()));
  stream = stream && reinterpret_cast<uintptr_t>(dst) % 64 == 0 && dst_stride % kLine == 0;
  const int64_t full_rows = rows - rows % (stream ? kAcross : kBlock), full_cols = cols - cols % kLine;
  for (int64_t c = 0; c < full_cols; c += kLine)
    for (int64_t r = 0; r < full_rows;) {
      if (stream) {  // whole lines of the destination
        hn::Vec<DLine> u[kLine / kAcross][kAcross];
#pragma GCC unroll 4
        for (int64_t k = 0; k < kLine / kAcross; ++k)
          load_transposed(DLine(), src + (c + k * kAcross) * src_stride + r, src_stride, u[k]);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kAcross; ++i)
          for (int64_t k = 0; k < kLine / kAcross; ++k)
            hn::Stream(u[k][i], DLine(), dst + (r + i) * dst_stride + c + k * kAcross);
        r += kAcross;
        continue;
      }
      // Whole lines of the source: rows a power of two apart share few places in the cache.
      const int64_t end = std::min(full_rows, r + kLine);
      for (int64_t k = 0; k < kLine; k += kBlock)
        for (int64_t q = r; q < end; q += kBlock) {
          hn::Vec<D4> u[kBlock];
          load_transposed(d, src + (c + k) * src_stride + q, src_stride, u);
#pragma GCC unroll 8
          for (int64_t i = 0; i < kBlock; ++i) hn::StoreU(u[i], d, dst + (q + i) * dst_stride + c + k);
        }
      r = end;
    }
  if (stream) hwy::FlushStream();
  transpose_rest(src, src_stride, dst, dst_stride, full_rows, rows, 0, full_cols);
  transpose_rest(src, src_stride, dst, dst_stride, 0, rows, full_cols, cols);
}

// Bytes in squares of 16: each round of pairs turns the 8 bits of a place by one, so four make columns of rows.
void transpose1(const uint8_t* HWY_RESTRICT src, int64_t src_stride, uint8_t* HWY_RESTRICT dst, int64_t dst_stride,
                int64_t rows, int64_t cols) {
  const hn::FixedTag<uint8_t, 16> d;
  constexpr int N = 16;
  const int64_t full_rows = rows - rows % N, full_cols = cols - cols % N;
  for (int64_t c = 0; c < full_cols; c += N)
    for (int64_t r = 0; r < full_rows; r += N) {
      hn::Vec<decltype(d)> u[N], v[N];
      auto round = [&](const auto& from, auto& to) HWY_ATTR {
#pragma GCC unroll 8
        for (int i = 0; i < N / 2; ++i) {
          to[2 * i] = hn::InterleaveLower(d, from[i], from[i + N / 2]);
          to[2 * i + 1] = hn::InterleaveUpper(d, from[i], from[i + N / 2]);
        }
      };
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) u[i] = hn::LoadU(d, src + (c + i) * src_stride + r);
      round(u, v);
      round(v, u);
      round(u, v);
      round(v, u);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) hn::StoreU(u[i], d, dst + (r + i) * dst_stride + c);
    }
  transpose_rest(src, src_stride, dst, dst_stride, full_rows, rows, 0, full_cols);
  transpose_rest(src, src_stride, dst, dst_stride, 0, rows, full_cols, cols);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge {
namespace simd {
HWY_EXPORT(copy_past_cache);
HWY_EXPORT(transpose1);
HWY_EXPORT(transpose4);
HWY_EXPORT(interleave_rows2);

void stream_copy(void* dst, const void* src, size_t bytes, const void* next, const void* next2) {
  HWY_DYNAMIC_DISPATCH(copy_past_cache)(dst, src, bytes, next, next2);
}
void stream_memcpy(void* dst, const void* src, size_t bytes) {
  constexpr size_t kPage = 4096;  // where hardware stops fetching
  stream_copy(dst, src, bytes, static_cast<const char*>(src) + kPage);
}
void interleave_rows(const uint32_t* x, int64_t xs, const uint32_t* y, int64_t ys, uint32_t* to, int64_t ts,
                     int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(interleave_rows2)(x, xs, y, ys, to, ts, rows, n);
}
void stream_end() { hwy::FlushStream(); }

void transpose(size_t size, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
               int64_t cols, bool stream) {
  auto plain = [&](auto t) {
    using T = decltype(t);
    auto *s = static_cast<const T*>(src), *end = s + rows;
    auto* d = static_cast<T*>(dst);
    for (; s < end; ++s, d += dst_stride)
      for (int64_t c = 0; c < cols; ++c) d[c] = s[c * src_stride];
  };
  switch (size) {
    case 1:
      return HWY_DYNAMIC_DISPATCH(transpose1)(static_cast<const uint8_t*>(src), src_stride, static_cast<uint8_t*>(dst),
                                              dst_stride, rows, cols);
    case 2:
      return plain(uint16_t());
    case 4:
      return HWY_DYNAMIC_DISPATCH(transpose4)(static_cast<const uint32_t*>(src), src_stride,
                                              static_cast<uint32_t*>(dst), dst_stride, rows, cols, stream);
    default:
      return plain(uint64_t());
  }
}

void pack_weight(const WeightBlocks& b, const float* weight, float* dst) {
  constexpr int64_t kRows = 256, kMaxBlock = 64;  // long pieces of each output channel's row: they start a page each
  const int64_t length = b.channels * b.taps, chunks = (length + kRows - 1) / kRows,
                blocks = (b.outs + b.block - 1) / b.block;
  MGE_ASSERT(b.block <= kMaxBlock, "weight blocks of {} outputs", b.block);
  parallel_for(blocks * chunks, value_grain(kRows * b.block), [&](int64_t i, int64_t e) {
    for (; i < e; ++i) {
      const int64_t block = i / chunks, from = i % chunks * kRows, rows = std::min(kRows, length - from);
      const int64_t outs = std::min(b.block, b.outs - block * b.block);
      const float* src = weight + block * b.block * length + from;
      float* to = dst + block * b.out_step;
      const bool direct = b.channel_step == b.taps * b.block && (b.taps == 1 || b.tap_step == b.block);
      alignas(64) float tile[kRows * kMaxBlock];
      float* rows_at = direct ? to + from * b.block : tile;
      transpose(4, src, length, rows_at, b.block, rows, outs, false);
      if (outs < b.block)
        for (int64_t r = 0; r < rows; ++r) std::fill_n(rows_at + r * b.block + outs, b.block - outs, 0.f);
      if (direct) continue;
      int64_t c = from / b.taps, t = from % b.taps;
      for (int64_t r = 0; r < rows; ++r) {
        std::memcpy(to + c * b.channel_step + t * b.tap_step, tile + r * b.block,
                    static_cast<size_t>(b.block) * sizeof(float));
        if (++t == b.taps) t = 0, ++c;
      }
    }
  });
}

void unpack_weight_1x1(int64_t outs, int64_t channels, int64_t out_step, int64_t channel_step, const float* src,
                       float* dst) {
  const int64_t across = (channels + 15) / 16;
  parallel_for((outs + 15) / 16 * across, value_grain(256), [&](int64_t i, int64_t e) {
    for (; i < e; ++i) {
      const int64_t o = i / across, c = i % across;
      transpose(4, src + o * out_step + c * channel_step, 16, dst + o * 16 * channels + c * 16, channels,
                std::min<int64_t>(16, outs - o * 16), std::min<int64_t>(16, channels - c * 16), false);
    }
  });
}
}  // namespace simd

void install_simd_moves() { set_move_kernels({simd::transpose, simd::stream_memcpy, simd::stream_end}); }

}  // namespace mge
#endif
