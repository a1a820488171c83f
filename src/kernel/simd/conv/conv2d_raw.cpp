#include "kernel/simd/conv/conv2d_raw.h"

#include <algorithm>

#include "base/features.h"
#include "base/machine.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"

namespace mge::simd {
namespace {

// True when there is nothing to multiply; `size` outputs are then zero.
bool empty(const ConvGeom& g) {
  return g.n == 0 || g.c == 0 || g.o == 0 || g.oh <= 0 || g.ow <= 0 || g.kh == 0 || g.kw == 0 || g.h == 0 || g.w == 0;
}

// Which path wins was measured on Zen 4 (AVX-512), 64..512 channels at 56x56..7x7, LeNet and a ResNet stem; see each
// file's head. A first layer: so few input channels that packing them would cost as much as the sums, on rows of many
// vectors.
bool is_stem(const ConvGeom& g, const ConvDims& dim) { return dim.cg <= 4 && dim.taps <= 256 && g.ow >= 32; }
// At most a tenth of the lanes of 16-channel blocks idle.
bool fills_lanes(int64_t channels) { return channels > 8 && (channels + 15) / 16 * 16 * 10 <= channels * 11; }

// The convolution over dy that gives dx when the stride is 1 (wt flipped by conv2d_flip_weight).
ConvGeom adjoint(const ConvGeom& g) {
  ConvGeom t = g;
  std::swap(t.c, t.o);
  std::swap(t.h, t.oh);
  std::swap(t.w, t.ow);
  t.ph = (g.kh - 1) * g.dh - g.ph;
  t.pw = (g.kw - 1) * g.dw - g.pw;
  return t;
}

}  // namespace

void conv2d_flip_weight(const ConvGeom& g, const float* wt, float* dst) {
  const ConvDims dim(g);
  const int64_t kk = g.kh * g.kw;
  for (int64_t group = 0; group < g.groups; ++group)
    for (int64_t c = 0; c < dim.cg; ++c)
      for (int64_t o = 0; o < dim.og; ++o) {
        const float* from = wt + ((group * dim.og + o) * dim.cg + c) * kk;
        float* to = dst + ((group * dim.cg + c) * dim.og + o) * kk;
        for (int64_t k = 0; k < kk; ++k) to[k] = from[kk - 1 - k];
      }
}

FwdPaths conv2d_fwd_paths(const ConvGeom& g) {
  const ConvDims dim(g);
  if (dim.og <= 8 || dim.taps == 0) return {};
  const bool channels = g.sw == 1 && g.kh * g.kw > 1 && fills_lanes(dim.og);
  return {channels, !channels};
}

void conv2d_fwd(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  const ConvDims dim(g);
  if (g.n == 0 || g.o == 0 || g.oh <= 0 || g.ow <= 0) return;
  // A sum over nothing is 0 and still goes through the epilogue, so only truly absent outputs return early.
  const FwdPaths may = conv2d_fwd_paths(g);
  if (!(may.channels || may.gemm) || is_stem(g, dim)) return conv2d_fwd_rows(g, x, wt, y, e);
  if (may.channels) {
    require("conv_channels", "conv2d on plain memory");
    return conv2d_fwd_channels(g, x, wt, y, e);
  }
  require("conv_gemm", "conv2d on plain memory");
  conv2d_fwd_gemm(g, x, wt, y, e);
}

void conv2d_bwd_data(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const ConvDims dim(g);
  if (empty(g)) {
    std::fill_n(dx, g.n * g.c * dim.in, 0.f);
    return;
  }
  const ConvGeom t = adjoint(g);
  // Stride 1: a forward convolution over dy, unless its padding (zeros multiplied in vain) is large.
  const bool flip = g.sh == 1 && g.sw == 1 && t.ph >= 0 && t.pw >= 0 && t.oh * t.ow <= dim.out * 5 / 4;
  if (flip) {
    float* flipped = scratch(Scratch::Partial, g.o * dim.taps);
    conv2d_flip_weight(g, wt, flipped);
    return conv2d_fwd(t, dy, flipped, dx, nullptr);
  }
  if (dim.og <= 2) return conv2d_bwd_data_rows(g, dy, wt, dx);
  conv2d_bwd_data_gemm(g, dy, wt, dx);
}

void conv2d_bwd_weight(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const ConvDims dim(g);
  if (empty(g)) {
    std::fill_n(dw, g.o * dim.taps, 0.f);
    return;
  }
  if ((dim.og <= 6 && dim.taps <= 512) || is_stem(g, dim)) return conv2d_bwd_weight_rows(g, x, dy, dw);
  // Every part of the sum keeps its own copy of the weights.
  if (g.sw == 1 && g.dw == 1 && (g.kw == 3 || g.kw == 5) && fills_lanes(dim.og) &&
      g.o * dim.taps * int64_t{sizeof(float)} <= machine().l2 / 4)
    return conv2d_bwd_weight_channels(g, x, dy, dw);
  conv2d_bwd_weight_gemm(g, x, dy, dw);
}

}  // namespace mge::simd
