// Convolution as matrix products on cache-sized pieces: the path for any geometry. See conv2d_raw_impl.h.
#include <algorithm>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/conv2d_raw_gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/conv/conv2d_raw_planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Floats of a packed piece of the im2col matrix: half of the second cache.
inline int64_t piece_floats() { return machine().l2 / 2 / int64_t{sizeof(float)}; }

// Output rows per piece: at most `pixels` of them, at least one row; equal pieces.
inline int64_t rows_per_piece(const ConvGeom& g, int64_t pixels) {
  const int64_t most = std::clamp<int64_t>(pixels / g.ow, 1, g.oh);
  const int64_t pieces = (g.oh + most - 1) / most;
  return (g.oh + pieces - 1) / pieces;
}

// Packed panels (see pack_columns) of the im2col matrix: taps off[0..kc), pixels of the output rows [oy0, oy1).
inline void pack_im2col(const Planes& p, const float* planes, const int64_t* off, int64_t kc, int64_t oy0, int64_t oy1,
                        float* dst) {
  const int64_t ow = p.g.ow, n = (oy1 - oy0) * ow;
  for (int64_t j = 0; j < n; j += kNR) {
    const int64_t ds = panel_stride(n, j), cols = std::min<int64_t>(kNR, n - j);
    float* HWY_RESTRICT panel = dst + j * kc;
    for (int64_t i = 0; i < cols;) {  // runs of one output row
      const int64_t oy = oy0 + (j + i) / ow, ox = (j + i) % ow, run = std::min(cols - i, ow - ox);
      const float* HWY_RESTRICT src = planes + p.at(oy) + ox;
      // A run is copied in whole vectors where the surplus lands on columns that a later run writes.
      const DF d;
      if (i + 2 * kLanes <= ds && run > kLanes) {
        for (int64_t k = 0; k < kc; ++k) {
          hn::StoreU(hn::LoadU(d, src + off[k]), d, panel + k * ds + i);
          hn::StoreU(hn::LoadU(d, src + off[k] + kLanes), d, panel + k * ds + i + kLanes);
        }
      } else if (i + kLanes <= ds && run <= kLanes) {
        for (int64_t k = 0; k < kc; ++k) hn::StoreU(hn::LoadU(d, src + off[k]), d, panel + k * ds + i);
      } else {
        for (int64_t k = 0; k < kc; ++k) copy_n(src + off[k], run, panel + k * ds + i);
      }
      i += run;
    }
  }
}

void fwd_gemm(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  const ConvDims dim(g);
  const int64_t kc_max = k_block(dim.taps);
  float* weights = scratch(Scratch::Weight, g.o * dim.taps + kLanes);
  parallel_for(g.groups, value_grain(dim.og * dim.taps / 8), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t k = 0; k < dim.taps; k += kc_max)
        pack_rows(wt + i * dim.og * dim.taps + k, dim.taps, dim.og, std::min(kc_max, dim.taps - k),
                  weights + i * dim.og * dim.taps + dim.og * k);
  });
  const int64_t rows = rows_per_piece(g, std::min<int64_t>(piece_floats() / kc_max, 4096)),
                pieces = (g.oh + rows - 1) / rows;
  // A small batch of small images is cut by output channels too; each cut packs the image again.
  const RowTiles tiles(dim.og);
  const int64_t images = g.n * g.groups * pieces, most = std::max(8, 2 * num_threads()),
                cuts = std::clamp<int64_t>(std::min(most / images, dim.og / 32), 1, tiles.count);
  const int64_t work = dim.og * dim.taps * rows * g.ow / cuts;
  parallel_for(images * cuts, fma_grain(work), [&](int64_t begin, int64_t end) {
    float* col = scratch(Scratch::PackB, kc_max * (rows * g.ow + kNR));
    int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::Col, 2 * dim.taps));
    int64_t filled = -1;
    for (int64_t job = begin; job < end; ++job) {
      const int64_t t = job / cuts, t0 = tiles.count * (job % cuts) / cuts, t1 = tiles.count * (job % cuts + 1) / cuts;
      const int64_t image = t / pieces / g.groups, group = t / pieces % g.groups;
      const int64_t oy0 = t % pieces * rows, oy1 = std::min(g.oh, oy0 + rows), pixels = (oy1 - oy0) * g.ow;
      if (pixels <= 0) continue;
      const float* xg = x + (image * g.c + group * dim.cg) * dim.in;
      const bool pointwise = g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0;
      const Planes p(g, oy0, oy1);
      float* planes = nullptr;
      if (!pointwise) {
        planes = scratch(Scratch::Planes, p.size(dim.cg));
        p.fill(xg, dim.cg, planes);
        if (filled != p.rows) p.offsets(dim.cg, off), filled = p.rows;
      }
      float* yg = y + (image * g.o + group * dim.og) * dim.out + oy0 * g.ow;
      for (int64_t k = 0; k < dim.taps; k += kc_max) {
        const int64_t kc = std::min(kc_max, dim.taps - k);
        if (pointwise) {
          pack_columns(false, xg + k * dim.in + oy0 * g.ow, dim.in, pixels, kc, col);
        } else {
          pack_im2col(p, planes, off + k, kc, oy0, oy1, col);
        }
        multiply_tiles(tiles, t0, t1, pixels, kc, {weights + group * dim.og * dim.taps + dim.og * k, 0}, {col, 0}, yg,
                       dim.out, k > 0);
      }
      if (e)
        for (int64_t o = group * dim.og + tiles.begin(t0); o < group * dim.og + tiles.begin(t1); ++o)
          apply_epilogue(*e, o, (image * g.o + o) * dim.out + oy0 * g.ow, pixels, y);
    }
  });
}

// dx[channels,h,w] from col[channels * kh * kw][ld], stride 1: each row of dx is summed in registers over its taps.
// Columns outside the row of col are masked off, so nothing is padded. Needs kw <= kMaxGatherTaps and masks that do not
// touch memory.
constexpr int64_t kMaxGatherTaps = 16;
template <int KW>  // 0: any
void gather_taps(const ConvGeom& g, const float* HWY_RESTRICT col, int64_t ld, int64_t channels,
                 float* HWY_RESTRICT dx) {
  const DF d;
  const int64_t kw = KW ? KW : g.kw;
  for (int64_t x = 0; x < g.w; x += kLanes) {
    MF masks[KW ? KW : kMaxGatherTaps];
    for (int64_t s = 0; s < kw; ++s) {  // lanes whose output column x + lane + pw - s * dw is in [0, ow)
      const int64_t first = x + g.pw - s * g.dw;
      const auto clamp = [](int64_t v) { return static_cast<size_t>(std::clamp<int64_t>(v, 0, kLanes)); };
      masks[s] = hn::AndNot(hn::FirstN(d, clamp(-first)), hn::FirstN(d, clamp(g.ow - first)));
    }
    const int lanes = static_cast<int>(std::min<int64_t>(kLanes, g.w - x));
    const MF m = hn::FirstN(d, lanes);
    const int64_t next_row = ld - g.dw, channel = g.kh * kw * ld;
    for (int64_t c = 0; c < channels; c += 2) {  // two channels: two chains of additions
      const int64_t second = c + 1 < channels ? channel : 0;
      for (int64_t y = 0; y < g.h; ++y) {
        VF sum0 = hn::Zero(d), sum1 = hn::Zero(d);
        for (int64_t r = 0; r < g.kh; ++r) {
          const int64_t oy = y + g.ph - r * g.dh;
          if (oy < 0 || oy >= g.oh) continue;
          const float* src = col + (c * g.kh + r) * kw * ld + oy * g.ow + x + g.pw;
#pragma GCC unroll 5
          for (int64_t s = 0; s < kw; ++s, src += next_row) {
            sum0 = hn::Add(sum0, hn::MaskedLoad(masks[s], d, src));
            sum1 = hn::Add(sum1, hn::MaskedLoad(masks[s], d, src + second));
          }
        }
        float* to = dx + (c * g.h + y) * g.w + x;
        store_n(sum0, m, to, lanes);
        if (second) store_n(sum1, m, to + g.h * g.w, lanes);
      }
    }
  }
}

// One image at a time for small stride-1 layers whose whole column matrix stays in L2.
void bwd_data_gather(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const ConvDims dim(g);
  const int64_t kk = g.kh * g.kw, channels = std::clamp<int64_t>(piece_floats() / 2 / (kk * dim.out), 1, dim.cg);
  const int64_t blocks = (dim.cg + channels - 1) / channels, work = channels * kk * dim.og * dim.out;
  parallel_for(g.n * g.groups * blocks, fma_grain(work), [&](int64_t begin, int64_t end) {
    const int64_t ld = (dim.out + 15) / 16 * 16;
    float* col = scratch(Scratch::Col, channels * kk * ld);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / blocks / g.groups, group = t / blocks % g.groups;
      const int64_t c0 = t % blocks * channels, nc = std::min(channels, dim.cg - c0);
      multiply_block(nc * kk, dim.out, dim.og, {wt + group * dim.og * dim.taps + c0 * kk, dim.taps},
                     {dy + (image * g.o + group * dim.og) * dim.out, dim.out}, col, ld, false);
      const auto gather = g.kw == 3 ? gather_taps<3> : g.kw == 5 ? gather_taps<5> : gather_taps<0>;
      gather(g, col, ld, nc, dx + (image * g.c + group * dim.cg + c0) * dim.in);
    }
  });
}

void bwd_data_gemm(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  const ConvDims dim(g);
  const int64_t kk = g.kh * g.kw, kc_max = k_block(dim.og);
  if (kMaskIsSafe && g.sh == 1 && g.sw == 1 && g.kw <= kMaxGatherTaps && dim.og <= 64 &&
      kk * dim.out <= piece_floats() / 2)
    return bwd_data_gather(g, dy, wt, dx);
  const Planes p(g, 0, g.oh);
  // A task is some input channels of one image: all their taps, added up in one padded image.
  const int64_t channels = std::clamp<int64_t>(112 / kk, 1, dim.cg), blocks = (dim.cg + channels - 1) / channels;
  const int64_t rows = rows_per_piece(g, std::max<int64_t>(kNR, 64 * 1024 / (channels * kk + dim.og)));
  const int64_t work = channels * kk * dim.og * dim.out;
  parallel_for(g.n * g.groups * blocks, fma_grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t image = t / blocks / g.groups, group = t / blocks % g.groups;
      const int64_t c0 = t % blocks * channels, nc = std::min(channels, dim.cg - c0), m = nc * kk;
      float* planes = scratch(Scratch::Planes, p.size(nc));
      std::memset(planes, 0, nc * p.plane * sizeof(float));
      const float* dyg = dy + (image * g.o + group * dim.og) * dim.out;
      const float* wg = wt + group * dim.og * dim.taps + c0 * kk;
      for (int64_t oy0 = 0; oy0 < g.oh; oy0 += rows) {
        const int64_t oy1 = std::min(g.oh, oy0 + rows), pixels = (oy1 - oy0) * g.ow;
        float* col = scratch(Scratch::Col, m * pixels);
        for (int64_t k = 0; k < dim.og; k += kc_max) {
          const int64_t kc = std::min(kc_max, dim.og - k);
          float* packed = scratch(Scratch::PackB, kc * (pixels + kLanes));
          pack_columns(false, dyg + k * dim.out + oy0 * g.ow, dim.out, pixels, kc, packed);
          multiply_block(m, pixels, kc, {wg + k * dim.taps, dim.taps}, {packed, 0}, col, pixels, k > 0);
        }
        for (int64_t c = 0, i = 0; c < nc; ++c)
          for (int64_t r = 0; r < g.kh; ++r)
            for (int64_t s = 0; s < g.kw; ++s, ++i)
              for (int64_t oy = oy0; oy < oy1; ++oy)
                add_n(col + i * pixels + (oy - oy0) * g.ow, g.ow, planes + p.at(oy) + p.offset(c, r, s));
      }
      p.unfill(planes, nc, dx + (image * g.c + group * dim.cg + c0) * dim.in);
    }
  });
}

// dst[pixel][tap], row distance ds, zero from taps to ds: a packed panel of the transposed im2col matrix.
inline void pack_im2col_transposed(const Planes& p, const float* planes, const int64_t* off, int64_t taps, int64_t oy0,
                                   int64_t oy1, float* dst, int64_t ds) {
  const hn::FixedTag<float, 4> d4;
  const hn::Repartition<Pair, decltype(d4)> d2;
  const int64_t ow = p.g.ow;
  for (int64_t oy = oy0; oy < oy1; ++oy) {
    const float* HWY_RESTRICT row = planes + p.at(oy);
    float* HWY_RESTRICT out = dst + (oy - oy0) * ow * ds;
    int64_t i = 0;
    for (; i + 4 <= taps; i += 4) {
      const float *s0 = row + off[i], *s1 = row + off[i + 1], *s2 = row + off[i + 2], *s3 = row + off[i + 3];
      // The last step may write up to 3 pixels of the next row, which are then written again; dst has room after the
      // last.
      for (int64_t ox = 0; ox < ow; ox += 4) {
        const auto r0 = hn::LoadU(d4, s0 + ox), r1 = hn::LoadU(d4, s1 + ox), r2 = hn::LoadU(d4, s2 + ox),
                   r3 = hn::LoadU(d4, s3 + ox);
        const auto lo01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1)),
                   hi01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
        const auto lo23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3)),
                   hi23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
        float* HWY_RESTRICT o = out + ox * ds + i;
        hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, lo01, lo23)), d4, o);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, lo01, lo23)), d4, o + ds);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, hi01, hi23)), d4, o + 2 * ds);
        hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, hi01, hi23)), d4, o + 3 * ds);
      }
    }
    for (; i < taps; ++i)
      for (int64_t ox = 0; ox < ow; ++ox) out[ox * ds + i] = row[off[i] + ox];
    for (; i < ds; ++i)
      for (int64_t ox = 0; ox < ow; ++ox) out[ox * ds + i] = 0.f;
  }
}

void bwd_weight_gemm(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  const ConvDims dim(g);
  const int64_t size = g.o * dim.taps;
  // Work is cut by taps and, when that gives too few tasks, by images; both by the geometry alone.
  const int64_t cut = 192, tap_blocks = (dim.taps + cut - 1) / cut;
  const int64_t fair = std::max<int64_t>(1, 16 / (g.groups * tap_blocks));
  const int64_t parts = std::clamp<int64_t>(std::min(fair, (4 << 20) / std::max<int64_t>(1, size)), 1, g.n);
  float* partial = parts == 1 ? dw : scratch(Scratch::Partial, parts * size);
  const int64_t rows = rows_per_piece(g, kMaxKC), kc_max = rows * g.ow;
  parallel_for(parts * g.groups * tap_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t part = t / tap_blocks / g.groups, group = t / tap_blocks % g.groups;
      const int64_t t0 = t % tap_blocks * cut, nt = std::min(cut, dim.taps - t0);
      // Whole channels that hold the taps [t0, t0 + nt).
      const int64_t kk = g.kh * g.kw, c0 = t0 / kk, nc = (t0 + nt - 1) / kk + 1 - c0;
      float* out = partial + part * size + group * dim.og * dim.taps + t0;
      bool first = true;
      for (int64_t image = g.n * part / parts; image < g.n * (part + 1) / parts; ++image)
        for (int64_t oy0 = 0; oy0 < g.oh; oy0 += rows) {
          const int64_t oy1 = std::min(g.oh, oy0 + rows), kc = (oy1 - oy0) * g.ow;
          const Planes p(g, oy0, oy1);
          float* planes = scratch(Scratch::Planes, p.size(nc));
          p.fill(x + (image * g.c + group * dim.cg + c0) * dim.in, nc, planes);
          int64_t* off = reinterpret_cast<int64_t*>(scratch(Scratch::Col, 2 * nc * kk));
          p.offsets(nc, off);
          float* col = scratch(Scratch::PackB, kc_max * (nt + kNR) + 4 * kNR);
          for (int64_t j = 0; j < nt; j += kNR)
            pack_im2col_transposed(p, planes, off + t0 - c0 * kk + j, std::min<int64_t>(kNR, nt - j), oy0, oy1,
                                   col + j * kc, panel_stride(nt, j));
          float* rows_of_dy = scratch(Scratch::PackA, dim.og * kc + kLanes);
          pack_rows(dy + (image * g.o + group * dim.og) * dim.out + oy0 * g.ow, dim.out, dim.og, kc, rows_of_dy);
          multiply_block(dim.og, nt, kc, {rows_of_dy, 0}, {col, 0}, out, dim.taps, !first);
          first = false;
        }
    }
  });
  if (parts > 1) conv2d_sum_parts(partial, parts, size, dw);
}

void sum_parts(const float* partial, int64_t parts, int64_t size, float* dw) {
  parallel_for(size, value_grain(0.5), [&](int64_t begin, int64_t end) {
    copy_n(partial + begin, end - begin, dw + begin);
    for (int64_t i = 1; i < parts; ++i) add_n(partial + i * size + begin, end - begin, dw + begin);
  });
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(fwd_gemm);
HWY_EXPORT(bwd_data_gemm);
HWY_EXPORT(bwd_weight_gemm);
HWY_EXPORT(sum_parts);
}  // namespace

void conv2d_fwd_gemm(const ConvGeom& g, const float* x, const float* wt, float* y, const Epilogue* e) {
  HWY_DYNAMIC_DISPATCH(fwd_gemm)(g, x, wt, y, e);
}
void conv2d_bwd_data_gemm(const ConvGeom& g, const float* dy, const float* wt, float* dx) {
  HWY_DYNAMIC_DISPATCH(bwd_data_gemm)(g, dy, wt, dx);
}
void conv2d_bwd_weight_gemm(const ConvGeom& g, const float* x, const float* dy, float* dw) {
  HWY_DYNAMIC_DISPATCH(bwd_weight_gemm)(g, x, dy, dw);
}
void conv2d_sum_parts(const float* partial, int64_t parts, int64_t size, float* dw) {
  HWY_DYNAMIC_DISPATCH(sum_parts)(partial, parts, size, dw);
}

}  // namespace mge::simd
#endif
