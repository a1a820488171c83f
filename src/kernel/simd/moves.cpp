#include "kernel/simd/moves.h"

#include <algorithm>
#include <cstring>

#include "kernel/copy.h"
#include "kernel/simd/register.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/moves.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_past_cache(void* dst, const void* src, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t N = hn::MaxLanes(d);
  auto* to = static_cast<uint8_t*>(dst);
  auto* from = static_cast<const uint8_t*>(src);
  const size_t head = std::min(bytes, (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  size_t i = 0;
  for (; i + 64 <= bytes; i += 64)  // whole lines
#pragma GCC unroll 4
    for (size_t k = 0; k < 64; k += N) hn::Stream(hn::LoadU(d, from + i + k), d, to + i + k);
  std::memcpy(to + i, from + i, bytes - i);
  hwy::FlushStream();
}

using D4 = hn::CappedTag<uint32_t, 8>;
constexpr int64_t kBlock = static_cast<int64_t>(hn::MaxLanes(D4()));  // 8, or 4 on 128-bit vectors

// A kBlock x kBlock block of 4-byte elements.
HWY_INLINE void load_transposed(const uint32_t* HWY_RESTRICT s, int64_t stride, hn::Vec<D4>* u) {
  const D4 d;
  const hn::RepartitionToWide<D4> d8;
  auto wide = [&](hn::Vec<D4> v) HWY_ATTR { return hn::BitCast(d8, v); };
  for (int64_t h = 0; h < kBlock; h += 4) {  // rows h .. h+3: in each 128-bit part a 4 x 4 transpose
    const auto a = hn::LoadU(d, s + h * stride), b = hn::LoadU(d, s + (h + 1) * stride),
               c = hn::LoadU(d, s + (h + 2) * stride), e = hn::LoadU(d, s + (h + 3) * stride);
    const auto ab0 = hn::InterleaveLower(d, a, b), ab1 = hn::InterleaveUpper(d, a, b),
               ce0 = hn::InterleaveLower(d, c, e), ce1 = hn::InterleaveUpper(d, c, e);
    u[h] = hn::BitCast(d, hn::InterleaveLower(d8, wide(ab0), wide(ce0)));
    u[h + 1] = hn::BitCast(d, hn::InterleaveUpper(d8, wide(ab0), wide(ce0)));
    u[h + 2] = hn::BitCast(d, hn::InterleaveLower(d8, wide(ab1), wide(ce1)));
    u[h + 3] = hn::BitCast(d, hn::InterleaveUpper(d8, wide(ab1), wide(ce1)));
  }
  if constexpr (kBlock == 8) {
    for (int i = 0; i < 4; ++i) {
      const auto lo = u[i], hi = u[i + 4];
      u[i] = hn::ConcatLowerLower(d, hi, lo);
      u[i + 4] = hn::ConcatUpperUpper(d, hi, lo);
    }
  }
}

template <class T>
void transpose_rest(const T* src, int64_t src_stride, T* dst, int64_t dst_stride, int64_t r0, int64_t rows, int64_t c0,
                    int64_t cols) {
  for (int64_t r = r0; r < rows; ++r)
    for (int64_t c = c0; c < cols; ++c) dst[r * dst_stride + c] = src[c * src_stride + r];
}

void transpose4(const uint32_t* HWY_RESTRICT src, int64_t src_stride, uint32_t* HWY_RESTRICT dst, int64_t dst_stride,
                int64_t rows, int64_t cols, bool stream) {
  const D4 d;
  constexpr int64_t kLine = 16;  // elements of a cache line: a row of the destination is written line by line
  const int64_t full_rows = rows - rows % kBlock, full_cols = cols - cols % kLine;
  stream = stream && reinterpret_cast<uintptr_t>(dst) % 64 == 0 && dst_stride % kLine == 0;
  for (int64_t c = 0; c < full_cols; c += kLine)
    for (int64_t r = 0; r < full_rows; r += kBlock) {
      hn::Vec<D4> u[kLine / kBlock][kBlock];
#pragma GCC unroll 4
      for (int64_t k = 0; k < kLine / kBlock; ++k)
        load_transposed(src + (c + k * kBlock) * src_stride + r, src_stride, u[k]);
      for (int64_t i = 0; i < kBlock; ++i)
        for (int64_t k = 0; k < kLine / kBlock; ++k) {
          uint32_t* to = dst + (r + i) * dst_stride + c + k * kBlock;
          if (stream)
            hn::Stream(u[k][i], d, to);
          else
            hn::StoreU(u[k][i], d, to);
        }
    }
  if (stream) hwy::FlushStream();
  transpose_rest(src, src_stride, dst, dst_stride, full_rows, rows, 0, full_cols);
  transpose_rest(src, src_stride, dst, dst_stride, 0, rows, full_cols, cols);
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge {
namespace simd {
HWY_EXPORT(copy_past_cache);
HWY_EXPORT(transpose4);

void stream_copy(void* dst, const void* src, size_t bytes) { HWY_DYNAMIC_DISPATCH(copy_past_cache)(dst, src, bytes); }

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
      return plain(uint8_t());
    case 2:
      return plain(uint16_t());
    case 4:
      return HWY_DYNAMIC_DISPATCH(transpose4)(static_cast<const uint32_t*>(src), src_stride,
                                              static_cast<uint32_t*>(dst), dst_stride, rows, cols, stream);
    default:
      return plain(uint64_t());
  }
}
}  // namespace simd

void install_simd_moves() { set_move_kernels({simd::transpose, simd::stream_copy}); }

}  // namespace mge
#endif
