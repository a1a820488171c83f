#include "kernel/simd/conv/conv2d_weights.h"

#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {
using DI = hn::RebindToSigned<DF>;

// Rows [b, e) of blocks x outs: the weights of one output channel and one block of channels, tap by tap.
void pack_input_rows(const InputBlocks& p, const float* weight, int64_t b, int64_t e, float* dst) {
  const DF d;
  const DI di;
  HWY_ALIGN int32_t steps[kLanes];
  for (int i = 0; i < kLanes; ++i) steps[i] = static_cast<int32_t>(i * p.taps);
  const auto index = hn::Load(di, steps);
  for (; b < e; ++b) {
    const int64_t o = b % p.outs, c0 = b / p.outs * p.block, channels = std::min(p.block, p.channels - c0);
    const float* HWY_RESTRICT src = weight + (o * p.channels + c0) * p.taps;
    float* HWY_RESTRICT to = dst + b / p.outs * p.channel_step + o * p.out_step;
    for (int64_t t = 0; t < p.taps; ++t, to += p.tap_step) {
      int64_t c = 0;
      for (; c + kLanes <= channels; c += kLanes)
        hn::StoreU(hn::GatherIndex(d, src + c * p.taps + t, index), d, to + c);
      for (; c < channels; ++c) to[c] = src[c * p.taps + t];
      std::fill(to + c, to + p.block, 0.f);
    }
  }
}

// Blocks [b, e) of 16 outputs x 16 channels x all taps.
void unpack_square_rows(const SquareBlocks& p, const float* src, int64_t b, int64_t e, float* weight) {
  const DF d;
  const DI di;
  const int64_t across = (p.channels + 15) / 16, length = 16 * p.taps;
  auto* from = reinterpret_cast<int32_t*>(scratch(Scratch::Col, length + kLanes));
  for (int64_t i = 0; i < length; ++i) from[i] = static_cast<int32_t>(i % p.taps * p.tap_step + i / p.taps * 16);
  for (; b < e; ++b) {
    const int64_t ob = b / across, cb = b % across;
    const int64_t outs = std::min<int64_t>(16, p.outs - ob * 16),
                  count = std::min<int64_t>(16, p.channels - cb * 16) * p.taps;
    const float* HWY_RESTRICT block = src + ob * p.out_step + cb * p.channel_step;
    for (int64_t o = 0; o < outs; ++o) {
      float* HWY_RESTRICT to = weight + ((ob * 16 + o) * p.channels + cb * 16) * p.taps;
      int64_t i = 0;
      for (; i + kLanes <= count; i += kLanes)
        hn::StoreU(hn::GatherIndex(d, block + o, hn::LoadU(di, from + i)), d, to + i);
      for (; i < count; ++i) to[i] = block[o + from[i]];
    }
  }
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(pack_input_rows);
HWY_EXPORT(unpack_square_rows);
}  // namespace

void pack_input_blocks(const InputBlocks& p, const float* weight, float* dst) {
  const int64_t rows = (p.channels + p.block - 1) / p.block * p.outs;
  parallel_for(rows, value_grain(p.block * p.taps), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(pack_input_rows)(p, weight, b, e, dst);
  });
}

void unpack_square_blocks(const SquareBlocks& p, const float* src, float* weight) {
  const int64_t blocks = (p.outs + 15) / 16 * ((p.channels + 15) / 16);
  parallel_for(blocks, value_grain(256 * p.taps), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(unpack_square_rows)(p, src, b, e, weight);
  });
}

}  // namespace mge::simd
#endif
