#include "kernel/simd/conv/conv2d_raw.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/each_target.h"
#include "kernel/on_machine.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw_impl.h"
#include "kernel/simd/conv/epilogue.h"

namespace mge::simd {
namespace {

using testing_kernels::OnMachine;

// With tiles of `side` outputs, as the others are called.
template <int side>
void winograd_fwd(const ConvGeom& g, const float* x, const float* w, float* y, const Epilogue* e) {
  winograd_last_fwd(g, x, w, y, e, side);
}

ConvGeom geom(int64_t n, int64_t c, int64_t h, int64_t w, int64_t oc, int64_t kh, int64_t kw, int64_t sh = 1,
              int64_t sw = 1, int64_t ph = 0, int64_t pw = 0, int64_t dh = 1, int64_t dw = 1, int64_t groups = 1) {
  const int64_t oh = conv_outputs(h, kh, sh, ph, dh), ow = conv_outputs(w, kw, sw, pw, dw);
  return {.n = n,
          .c = c,
          .h = h,
          .w = w,
          .o = oc,
          .oh = oh,
          .ow = ow,
          .kh = kh,
          .kw = kw,
          .sh = sh,
          .sw = sw,
          .ph = ph,
          .pw = pw,
          .dh = dh,
          .dw = dw,
          .groups = groups};
}

std::string name(const ConvGeom& g) {
  const auto s = [](int64_t v) { return std::to_string(v); };
  return "n" + s(g.n) + "c" + s(g.c) + "x" + s(g.h) + "x" + s(g.w) + "o" + s(g.o) + "k" + s(g.kh) + "x" + s(g.kw) +
         "s" + s(g.sh) + "x" + s(g.sw) + "p" + s(g.ph) + "x" + s(g.pw) + "d" + s(g.dh) + "x" + s(g.dw) + "g" +
         s(g.groups);
}

std::vector<float> uniform(int64_t size, unsigned seed) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<float> dist(-1.f, 1.f);
  std::vector<float> v(static_cast<size_t>(size));
  for (float& x : v) x = dist(gen);
  return v;
}

// Calls f(x index, weight index, y index) for every product of the convolution.
template <class F>
void for_each_product(const ConvGeom& g, F f) {
  const int64_t cg = g.c / g.groups, og = g.o / g.groups;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t o = 0; o < g.o; ++o)
      for (int64_t oy = 0; oy < g.oh; ++oy)
        for (int64_t ox = 0; ox < g.ow; ++ox)
          for (int64_t c = 0; c < cg; ++c)
            for (int64_t r = 0; r < g.kh; ++r)
              for (int64_t s = 0; s < g.kw; ++s) {
                const int64_t iy = oy * g.sh - g.ph + r * g.dh, ix = ox * g.sw - g.pw + s * g.dw;
                if (iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
                f(((n * g.c + o / og * cg + c) * g.h + iy) * g.w + ix, ((o * cg + c) * g.kh + r) * g.kw + s,
                  ((n * g.o + o) * g.oh + oy) * g.ow + ox);
              }
}

struct Sum {
  double value = 0, size = 0;
  void add(double t) { value += t, size += std::abs(t); }
};

// Runs `kernel(out)` with 1, 2 and 3 threads: near the float64 sums, and the same bits each time.
template <class F>
void check(const std::vector<Sum>& want, F kernel, const char* what) {
  std::vector<float> first;
  for (int threads = 1; threads <= 3; ++threads) {
    set_num_threads(threads);
    std::vector<float> got(want.size(), 1e30f);
    kernel(got.data());
    if (threads == 1) {
      first = got;
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i].value, 2e-6 * want[i].size + 1e-30) << what << " at " << i;
    } else {
      ASSERT_EQ(got, first) << what << " with " << threads << " threads";
    }
  }
  set_num_threads(1);
}

// The same sums, each allowed the error of the largest: where sums share their intermediates.
std::vector<Sum> of_one_size(std::vector<Sum> sums) {
  double most = 0;
  for (const Sum& s : sums) most = std::max(most, s.size);
  for (Sum& s : sums) s.size = most;
  return sums;
}

// [n][c][pixels] as [n][pixels][c], or back.
std::vector<float> channels_last(const float* v, int64_t n, int64_t c, int64_t pixels, bool back = false) {
  std::vector<float> out(static_cast<size_t>(n * c * pixels));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < c; ++k)
      for (int64_t p = 0; p < pixels; ++p) {
        const int64_t plain = (i * c + k) * pixels + p, last = (i * pixels + p) * c + k;
        out[static_cast<size_t>(back ? plain : last)] = v[back ? last : plain];
      }
  return out;
}

// The kernels of conv2d_last.h, given and asked for plain memory.
struct OnLast {
  ConvGeom g;
  std::vector<float> x, dy;
  const float* w;
  OnLast(const ConvGeom& geom, const std::vector<float>& px, const std::vector<float>& pw,
         const std::vector<float>& pdy)
      : g(geom),
        x(channels_last(px.data(), g.n, g.c, g.h * g.w)),
        dy(channels_last(pdy.data(), g.n, g.o, g.oh * g.ow)),
        w(pw.data()) {}
  template <class F>
  void fwd(F kernel, float* out) const {
    std::vector<float> y(dy.size());
    kernel(g, x.data(), w, y.data(), nullptr);
    y = channels_last(y.data(), g.n, g.o, g.oh * g.ow, true);
    std::copy(y.begin(), y.end(), out);
  }
  template <class F>
  void bwd_data(F kernel, float* out) const {
    std::vector<float> dx(x.size());
    kernel(g, dy.data(), w, dx.data());
    dx = channels_last(dx.data(), g.n, g.c, g.h * g.w, true);
    std::copy(dx.begin(), dx.end(), out);
  }
};

class Conv2dRaw : public testing::TestWithParam<ConvGeom> {};

TEST_P(Conv2dRaw, MatchesFloat64AndIsTheSameForAnyThreadCount) {
  each_target([&] {
    const ConvGeom g = GetParam();
    const int64_t nx = g.n * g.c * g.h * g.w, nw = g.o * (g.c / g.groups) * g.kh * g.kw, ny = g.n * g.o * g.oh * g.ow;
    const auto x = uniform(nx, 1), w = uniform(nw, 2), dy = uniform(ny, 3);
    std::vector<Sum> y(ny), dx(nx), dw(nw);
    for_each_product(g, [&](int64_t xi, int64_t wi, int64_t yi) {
      y[yi].add(double(x[xi]) * w[wi]);
      dx[xi].add(double(dy[yi]) * w[wi]);
      dw[wi].add(double(dy[yi]) * x[xi]);
    });
    check(
        y, [&](float* out) { conv2d_fwd(g, x.data(), w.data(), out, nullptr); }, "fwd");
    check(
        dx, [&](float* out) { conv2d_bwd_data(g, dy.data(), w.data(), out); }, "bwd_data");
    check(
        dw, [&](float* out) { conv2d_bwd_weight(g, x.data(), dy.data(), out); }, "bwd_weight");
    if (ny == 0 || nx == 0) return;
    // Every algorithm on every geometry it accepts, not only the chosen one.
    check(
        y, [&](float* out) { conv2d_fwd_gemm(g, x.data(), w.data(), out, nullptr); }, "fwd_gemm");
    check(
        y, [&](float* out) { conv2d_fwd_rows(g, x.data(), w.data(), out, nullptr); }, "fwd_rows");
    check(
        dx, [&](float* out) { conv2d_bwd_data_gemm(g, dy.data(), w.data(), out); }, "bwd_data_gemm");
    check(
        dx, [&](float* out) { conv2d_bwd_data_rows(g, dy.data(), w.data(), out); }, "bwd_data_rows");
    check(
        dw, [&](float* out) { conv2d_bwd_weight_gemm(g, x.data(), dy.data(), out); }, "bwd_weight_gemm");
    check(
        dw, [&](float* out) { conv2d_bwd_weight_rows(g, x.data(), dy.data(), out); }, "bwd_weight_rows");
    const OnLast last(g, x, w, dy);
    if (g.groups == 1) {
      check(
          y, [&](float* out) { last.fwd(lines_last_fwd, out); }, "lines_last_fwd");
      check(
          dx, [&](float* out) { last.bwd_data(product_last_bwd_data, out); }, "product_last_bwd_data");
      check(
          dw, [&](float* out) { product_last_bwd_weight(g, last.x.data(), last.dy.data(), out); },
          "product_last_bwd_weight");
      if (g.c <= 4)
        check(
            y,
            [&](float* out) {
              std::vector<float> in_last(y.size());
              first_last_fwd(g, x.data(), w.data(), in_last.data());
              in_last = channels_last(in_last.data(), g.n, g.o, g.oh * g.ow, true);
              std::copy(in_last.begin(), in_last.end(), out);
            },
            "first_last_fwd");
      if (g.o % 16 == 0)
        check(
            dw, [&](float* out) { few_channels_bwd_weight(g, x.data(), last.dy.data(), out); },
            "few_channels_bwd_weight");
    }
    if (g.groups == 1 && g.kh == 3 && g.kw == 3 && g.sh * g.sw * g.dh * g.dw == 1 && g.c % 16 == 0 && g.o % 16 == 0) {
      check(
          of_one_size(y), [&](float* out) { last.fwd(winograd_fwd<2>, out); }, "winograd_last_fwd, 2x2");
      check(
          of_one_size(y), [&](float* out) { last.fwd(winograd_fwd<4>, out); }, "winograd_last_fwd, 4x4");
      check(
          of_one_size(dx), [&](float* out) { last.bwd_data(winograd_last_bwd_data, out); }, "winograd_last_bwd_data");
      check(
          of_one_size(dw), [&](float* out) { winograd_last_bwd_weight(g, last.x.data(), last.dy.data(), out); },
          "winograd_last_bwd_weight");
    }
    if (g.groups == g.c && g.c == g.o && g.c > 1) {
      check(
          y, [&](float* out) { last.fwd(depthwise_last_fwd, out); }, "depthwise_last_fwd");
      check(
          dx, [&](float* out) { last.bwd_data(depthwise_last_bwd_data, out); }, "depthwise_last_bwd_data");
      check(
          dw, [&](float* out) { depthwise_last_bwd_weight(g, last.x.data(), last.dy.data(), out); },
          "depthwise_last_bwd_weight");
      std::vector<float> plain(y.size()), other(y.size());
      conv2d_fwd(g, x.data(), w.data(), plain.data(), nullptr);
      last.fwd(depthwise_last_fwd, other.data());
      ASSERT_EQ(plain, other) << "memory order changes the bits";
    }
    if (g.sw != 1) return;
    check(
        y, [&](float* out) { conv2d_fwd_channels(g, x.data(), w.data(), out, nullptr); }, "fwd_channels");
    if (g.dw == 1 && (g.kw == 3 || g.kw == 5))
      check(
          dw, [&](float* out) { conv2d_bwd_weight_channels(g, x.data(), dy.data(), out); }, "bwd_weight_channels");
  });
}

const ConvGeom kCases[] = {
    geom(2, 1, 28, 28, 6, 5, 5, 1, 1, 2, 2),              // LeNet conv1
    geom(3, 1, 32, 32, 6, 5, 5),                          // LeNet conv1, no padding
    geom(5, 6, 14, 14, 16, 5, 5),                         // LeNet conv2
    geom(2, 3, 23, 21, 20, 7, 7, 2, 2, 3, 3),             // ResNet stem
    geom(2, 3, 23, 21, 80, 7, 7, 2, 2, 3, 3),             // its weight gradient: several tiles of outputs
    geom(3, 2, 40, 9, 16, 3, 2, 1, 3, 1, 1, 2, 1),        // one tile of outputs, dilated
    geom(1, 4, 61, 70, 144, 3, 3, 1, 1, 1, 1),            // several bands of rows
    geom(2, 20, 9, 11, 24, 3, 3, 1, 1, 1, 1),             //
    geom(2, 20, 10, 13, 24, 3, 3, 2, 2, 1, 1),            //
    geom(1, 50, 7, 7, 70, 3, 3, 1, 1, 1, 1),              // two k-blocks
    geom(2, 48, 9, 11, 32, 3, 3, 1, 1, 1, 1),             // tiles of 2x2 that stick out
    geom(1, 16, 8, 5, 16, 3, 3),                          // no padding
    geom(1, 16, 3, 2, 16, 3, 3, 1, 1, 2, 2),              // more padding than image
    geom(3, 16, 30, 28, 32, 3, 3, 1, 1, 1, 1),            // more tiles than one block of a sum
    geom(2, 33, 6, 5, 19, 1, 1),                          // 1x1
    geom(2, 40, 7, 8, 24, 1, 1),                          // 1x1, whole tiles of rows and half a vector at the end
    geom(1, 512, 3, 9, 40, 1, 1),                         // 1x1, pixels a page's part apart
    geom(1, 600, 4, 9, 33, 1, 1),                         // 1x1, two k-blocks
    geom(1, 3, 35, 61, 24, 3, 3, 2, 2, 1, 1),             // first layer, half a vector at the end
    geom(2, 12, 9, 9, 9, 1, 1, 2, 2),                     // 1x1, strided: pixels no tap reaches
    geom(2, 8, 12, 12, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8),     // depthwise
    geom(2, 8, 13, 40, 8, 3, 3, 2, 2, 1, 1, 1, 1, 8),     // depthwise, strided
    geom(2, 35, 9, 14, 35, 3, 3, 1, 1, 1, 1, 1, 1, 35),   // depthwise, whole vectors of channels and a rest
    geom(1, 16, 12, 11, 16, 5, 3, 2, 3, 1, 2, 2, 1, 16),  // depthwise, strided and dilated
    geom(2, 16, 9, 9, 16, 7, 7, 1, 1, 3, 3, 1, 1, 16),    // depthwise, many taps
    geom(1, 17, 4, 5, 17, 3, 3, 1, 1, 4, 3, 1, 1, 17),    // depthwise, rows and columns of padding only
    geom(1, 16, 70, 66, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16),  // depthwise, more than one band
    geom(1, 40, 7, 7, 40, 3, 3, 1, 1, 1, 1, 1, 1, 40),    // depthwise, a row is one tile with both edges
    geom(2, 24, 4, 22, 24, 3, 3, 1, 1, 1, 1, 1, 1, 24),   // depthwise, the last tile over the one before it
    geom(1, 16, 5, 18, 16, 3, 3, 1, 1, 0, 0, 1, 1, 16),   // depthwise, no edges
    geom(1, 32, 9, 29, 32, 3, 3, 2, 2, 1, 1, 1, 1, 32),   // depthwise, strided, both edges
    geom(1, 16, 8, 28, 16, 3, 3, 2, 2, 1, 1, 1, 1, 16),   // depthwise, strided, the left edge
    geom(1, 16, 6, 15, 16, 3, 3, 2, 2, 0, 0, 1, 1, 16),   // depthwise, strided, no edges
    geom(1, 16, 6, 12, 16, 3, 3, 1, 1, 2, 2, 1, 1, 16),   // depthwise, edges of two pixels
    geom(2, 16, 5, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16),   // depthwise, two rows at a time and one more
    geom(1, 32, 1, 9, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32),    // depthwise, one row, between rows of padding
    geom(2, 16, 2, 4, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16),    // depthwise, rows of a narrow tile
    geom(1, 16, 6, 3, 16, 3, 3, 1, 1, 1, 1, 1, 1, 16),    // depthwise, rows of no tile
    geom(1, 16, 9, 14, 16, 3, 3, 2, 1, 1, 1, 1, 1, 16),   // depthwise, rows that share one of the image
    geom(1, 16, 9, 14, 16, 3, 3, 1, 1, 2, 1, 2, 1, 16),   // depthwise, rows apart by two
    geom(1, 4, 9, 9, 12, 5, 5, 1, 1, 2, 2, 1, 1, 4),      // depthwise with multiplier 3
    geom(2, 12, 8, 8, 20, 3, 3, 1, 1, 1, 1, 1, 1, 4),     // grouped
    geom(1, 5, 17, 15, 18, 3, 2, 1, 1, 2, 1, 2, 3),       // dilated
    geom(2, 4, 15, 16, 3, 3, 3, 3, 2, 2, 4, 2, 1),        // strided, dilated, over-padded
    geom(1, 2, 3, 50, 5, 1, 3, 1, 3, 0, 0, 1, 2),         //
    geom(1, 3, 5, 5, 4, 5, 5),                            // one output pixel
    geom(2, 3, 4, 70, 17, 2, 3, 1, 1, 0, 1),              // wide
    geom(1, 2, 2, 2, 3, 1, 1, 1, 1, 3, 3),                // padding beyond the kernel: negative adjoint padding
    geom(0, 3, 8, 8, 4, 3, 3),                            // empty batch
    geom(17, 2, 6, 6, 10, 3, 3),                          // more images than parts
};
INSTANTIATE_TEST_SUITE_P(Shapes, Conv2dRaw, testing::ValuesIn(kCases),
                         [](const auto& info) { return name(info.param); });

// Products over pixels on random geometries: near float64, any number of threads, weights brought into order before or
// not, and with every epilogue the bits of separate steps.
TEST(Conv2dLines, RandomGeometries) {
  each_target([&] {
    std::mt19937 rng(11);
    auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng); };
    for (int round = 0; round < 25; ++round) {
      const int64_t kh = draw(1, 5), kw = draw(1, 5), dh = draw(1, 2), dw = draw(1, 2);
      const ConvGeom g = geom(draw(1, 3), draw(1, 90), draw(9, 20), draw(9, 20), draw(1, 100), kh, kw, draw(1, 3),
                              draw(1, 3), draw(0, 2), draw(0, 2), dh, dw);
      SCOPED_TRACE(name(g));
      const int64_t ny = g.n * g.o * g.oh * g.ow;
      const auto x = uniform(g.n * g.c * g.h * g.w, 1), w = uniform(g.o * g.c * kh * kw, 2), add = uniform(ny, 3),
                 bias = uniform(g.o, 4), scale = uniform(g.o, 5), shift = uniform(g.o, 6);
      std::vector<Sum> y(static_cast<size_t>(ny));
      for_each_product(
          g, [&](int64_t xi, int64_t wi, int64_t yi) { y[static_cast<size_t>(yi)].add(double(x[xi]) * w[wi]); });
      const OnLast last(g, x, w, add);
      check(
          y, [&](float* out) { last.fwd(lines_last_fwd, out); }, "lines_last_fwd");
      std::vector<float> sums(y.size()), want, got(y.size());
      lines_last_fwd(g, last.x.data(), w.data(), sums.data());
      std::vector<float> panels(static_cast<size_t>(lines_floats(g)) + 16);
      float* at = panels.data() + (64 - reinterpret_cast<uintptr_t>(panels.data()) % 64) % 64 / sizeof(float);
      lines_last_weights(g, w.data(), at);
      for (int act : {0, 1, 2}) {
        const Epilogue e{bias.data(), scale.data(), shift.data(), act ? last.dy.data() : nullptr, act};
        want = sums;
        epilogue_pass_last(e, g.n * g.oh * g.ow, g.o, want.data());
        for (int threads : {1, 4, 16}) {
          set_num_threads(threads);
          lines_last_fwd_panels(g, last.x.data(), at, got.data(), &e);
          ASSERT_EQ(got, want) << "act " << act << " threads " << threads;
        }
        set_num_threads(1);
      }
    }
  });
}

// First layers: weights brought into order before or not, threads, and the bits of separate steps.
TEST(Conv2dFirst, PreparedWeightsThreadsAndEpilogues) {
  each_target([&] {
    for (const ConvGeom& g : {geom(1, 3, 45, 61, 24, 3, 3, 2, 2, 1, 1), geom(2, 3, 30, 28, 64, 7, 7, 2, 2, 3, 3),
                              geom(1, 1, 20, 19, 40, 5, 5), geom(1, 4, 9, 12, 16, 3, 3, 1, 1, 1, 1)}) {
      SCOPED_TRACE(name(g));
      const int64_t ny = g.n * g.o * g.oh * g.ow;
      const auto x = uniform(g.n * g.c * g.h * g.w, 1), w = uniform(g.o * g.c * g.kh * g.kw, 2), add = uniform(ny, 3),
                 scale = uniform(g.o, 4), shift = uniform(g.o, 5);
      std::vector<float> sums(static_cast<size_t>(ny)), want, got(sums);
      set_num_threads(1);
      first_last_fwd(g, x.data(), w.data(), sums.data());
      std::vector<float> panels(static_cast<size_t>(first_floats(g)) + 16);
      float* at = panels.data() + (64 - reinterpret_cast<uintptr_t>(panels.data()) % 64) % 64 / sizeof(float);
      first_last_weights(g, w.data(), at);
      for (int act : {0, 1, 2}) {
        const Epilogue e{nullptr, scale.data(), shift.data(), act ? add.data() : nullptr, act};
        want = sums;
        epilogue_pass_last(e, g.n * g.oh * g.ow, g.o, want.data());
        for (int threads : {1, 2, 16}) {
          set_num_threads(threads);
          first_last_fwd_panels(g, x.data(), at, got.data(), &e);
          ASSERT_EQ(got, want) << "act " << act << " threads " << threads;
        }
        set_num_threads(1);
      }
    }
  });
}

// Tiles of 2x2 and 4x4 with prepared weights and an epilogue, on few and many tiles and threads; with weights kept as
// points and, where the second cache is said to be too small for them, as taps.
TEST(Conv2dWinograd, PreparedWeightsThreadsAndEpilogues) {
  each_target([&] {
    constexpr int64_t kRoomy = 1 << 30;
    int taps = 0;
    for (const ConvGeom& g : {geom(1, 48, 7, 9, 80, 3, 3, 1, 1, 1, 1), geom(2, 32, 29, 30, 16, 3, 3, 1, 1, 0, 2),
                              geom(1, 528, 6, 5, 32, 3, 3, 1, 1, 1, 1), geom(1, 16, 14, 13, 112, 3, 3, 1, 1, 1, 1)})
      for (int64_t side : {2, 4}) {
        SCOPED_TRACE(name(g) + " side " + std::to_string(side));
        const int64_t ny = g.n * g.o * g.oh * g.ow;
        const auto x = uniform(g.n * g.c * g.h * g.w, 1), w = uniform(g.o * g.c * 9, 2), add = uniform(ny, 3),
                   bias = uniform(g.o, 4);
        const Epilogue e{.bias = bias.data(), .add = add.data(), .act = 2};
        std::vector<float> want(static_cast<size_t>(ny)), got(want);
        set_num_threads(1);
        std::optional<OnMachine> other(Machine{.l2 = kRoomy});
        winograd_last_fwd(g, x.data(), w.data(), want.data(), nullptr, side);
        epilogue_pass_last(e, g.n * g.oh * g.ow, g.o, want.data());
        for (int64_t l2 : {kRoomy, int64_t{1}}) {
          other.emplace(Machine{.l2 = l2});
          taps += cost::winograd_keeps_taps(g, side);
          std::vector<float> weight(static_cast<size_t>(winograd_floats(g, side)) + 16);
          float* at = weight.data() + (64 - reinterpret_cast<uintptr_t>(weight.data()) % 64) % 64 / sizeof(float);
          winograd_last_weights(g, w.data(), at, side);
          for (int threads : {1, 2, 3, 16}) {
            set_num_threads(threads);
            winograd_last_fwd_prepared(g, x.data(), at, got.data(), &e, side);
            ASSERT_EQ(got, want) << threads << " threads, l2 " << l2;
            winograd_last_fwd(g, x.data(), w.data(), got.data(), &e, side);
            ASSERT_EQ(got, want) << threads << " threads, l2 " << l2 << ", weights as they come";
          }
          set_num_threads(1);
        }
      }
    EXPECT_EQ(taps, 6);
  });
}

// Sums that vanish below zero are -0 where multiply-adds are one step; with a shift or a bias of -0 they stay so, and
// an activation makes them +0.
TEST(Conv2dRawEpilogue, NegativeZeros) {
  each_target([&] {
    const ConvGeom one = geom(1, 16, 5, 9, 40, 1, 1), each = geom(1, 24, 5, 11, 24, 3, 3, 1, 1, 0, 0, 1, 1, 24);
    for (const ConvGeom& g : {one, each})
      for (int act : {0, 1, 2})
        for (bool scaled : {false, true})
          for (bool adds : {false, true}) {
            const std::vector<float> x(static_cast<size_t>(g.c * g.h * g.w), -1e-30f),
                w(static_cast<size_t>(g.o * (g.c / g.groups) * g.kh * g.kw), 1e-30f),
                minus(static_cast<size_t>(g.o * g.oh * g.ow), -0.f), ones(static_cast<size_t>(g.o), 1.f);
            std::vector<float> y(minus.size());
            const Epilogue e{.bias = scaled ? nullptr : minus.data(),
                             .scale = scaled ? ones.data() : nullptr,
                             .shift = scaled ? minus.data() : nullptr,
                             .add = adds ? minus.data() : nullptr,
                             .act = act};
            (g.groups == 1 ? lines_last_fwd : depthwise_last_fwd)(g, x.data(), w.data(), y.data(), &e);
            for (size_t i = 0; i < y.size(); ++i) {
              ASSERT_EQ(y[i], 0.f);
              ASSERT_FALSE(act && std::signbit(y[i])) << name(g) << " act " << act << " at " << i;
            }
          }
  });
}

TEST(Conv2dRawEpilogue, SameBitsAsSeparateSteps) {
  each_target([&] {
    for (const ConvGeom& g : kCases) {
      const int64_t nx = g.n * g.c * g.h * g.w, nw = g.o * (g.c / g.groups) * g.kh * g.kw, out = g.oh * g.ow,
                    ny = g.n * g.o * out;
      auto x = uniform(nx, 1);
      const auto w = uniform(nw, 2), bias = uniform(g.o, 3), scale = uniform(g.o, 4), shift = uniform(g.o, 5);
      auto add = uniform(ny, 6);
      if (ny > 3)
        add[ny / 2] = std::numeric_limits<float>::quiet_NaN(), add[ny / 3] = -std::numeric_limits<float>::infinity();
      std::vector<float> plain(ny);
      conv2d_fwd(g, x.data(), w.data(), plain.data(), nullptr);
      for (int mode = 0; mode < 16; ++mode) {
        Epilogue e;
        if (mode & 1) e.bias = bias.data();
        if (mode & 2) e.scale = scale.data(), e.shift = shift.data();
        if (mode & 4) e.add = add.data();
        if (mode & 8) e.act = 1;
        std::vector<float> want = plain, got(ny);
        for (int64_t i = 0; i < ny; ++i) {
          volatile float v = want[i];  // volatile: one rounding per step
          const int64_t c = i / out % g.o;
          if (e.bias) v = v + bias[c];
          if (e.scale) {
            v = v * scale[c];
            v = v + shift[c];
          }
          if (e.add) v = v + add[i];
          if (e.act) v = v > 0 ? v : v != v ? v : 0.f;
          want[i] = v;
        }
        for (int threads = 1; threads <= 2; ++threads) {
          set_num_threads(threads);
          conv2d_fwd(g, x.data(), w.data(), got.data(), &e);
          ASSERT_TRUE(ny == 0 || std::memcmp(got.data(), want.data(), ny * sizeof(float)) == 0)
              << name(g) << " mode " << mode;
        }
        set_num_threads(1);
      }
    }
  });
}

TEST(Conv2dRawEpilogue, SumOverNoChannelsStillGetsBias) {
  ConvGeom g = geom(1, 0, 4, 4, 2, 3, 3);
  const float bias[] = {1.5f, -2.f};
  Epilogue e;
  e.bias = bias;
  std::vector<float> y(8, 9.f);
  conv2d_fwd(g, nullptr, nullptr, y.data(), &e);
  EXPECT_EQ(y, (std::vector<float>{1.5f, 1.5f, 1.5f, 1.5f, -2.f, -2.f, -2.f, -2.f}));
}

// A NaN in the input reaches the outputs whose window holds it and no other.
TEST(Conv2dRaw, NanStaysInItsWindow) {
  each_target([&] {
    for (const ConvGeom& g : kCases) {
      if (g.n == 0) continue;
      const int64_t nx = g.n * g.c * g.h * g.w, nw = g.o * (g.c / g.groups) * g.kh * g.kw, ny = g.n * g.o * g.oh * g.ow;
      auto x = uniform(nx, 1), w = uniform(nw, 2), dy = uniform(ny, 3);
      x[nx / 2] = std::numeric_limits<float>::quiet_NaN();
      std::vector<char> nan_y(ny), nan_w(nw);
      for_each_product(g, [&](int64_t xi, int64_t wi, int64_t yi) {
        if (xi == nx / 2) nan_y[yi] = nan_w[wi] = 1;
      });
      std::vector<float> y(ny), dw(nw);
      conv2d_fwd(g, x.data(), w.data(), y.data(), nullptr);
      conv2d_bwd_weight(g, x.data(), dy.data(), dw.data());
      for (int64_t i = 0; i < ny; ++i) ASSERT_EQ(std::isnan(y[i]), nan_y[i] != 0) << name(g) << " y " << i;
      for (int64_t i = 0; i < nw; ++i) ASSERT_EQ(std::isnan(dw[i]), nan_w[i] != 0) << name(g) << " dw " << i;
    }
  });
}

}  // namespace
}  // namespace mge::simd
