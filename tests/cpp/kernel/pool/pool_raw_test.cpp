#include "kernel/simd/pool/pool_raw.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernel/each_target.h"

namespace mge::simd {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Pool2dGeom geom(int64_t planes, int64_t h, int64_t w, int64_t kh, int64_t kw, int64_t sh, int64_t sw, int64_t ph = 0,
                int64_t pw = 0) {
  return {planes, h, w, (h + 2 * ph - kh) / sh + 1, (w + 2 * pw - kw) / sw + 1, kh, kw, sh, sw, ph, pw};
}

std::string name(const Pool2dGeom& g) {
  const auto s = [](int64_t v) { return std::to_string(v); };
  return "n" + s(g.planes) + "x" + s(g.h) + "x" + s(g.w) + "k" + s(g.kh) + "x" + s(g.kw) + "s" + s(g.sh) + "x" +
         s(g.sw) + "p" + s(g.ph) + "x" + s(g.pw);
}

// Few distinct values, so that windows hold ties; some NaN and -inf when asked.
std::vector<float> values(int64_t size, bool special) {
  std::mt19937 gen(7);
  std::vector<float> v(static_cast<size_t>(size));
  for (float& x : v) {
    const int r = static_cast<int>(gen() % 40);
    x = special && r == 0 ? kNan : special && r < 12 ? -kInf : static_cast<float>(r % 5) - 2.f;
  }
  return v;
}

// Calls f(x index) over the pixels of window (p, oy, ox) inside the image, row-major.
template <class F>
void window(const Pool2dGeom& g, int64_t p, int64_t oy, int64_t ox, F f) {
  for (int64_t r = 0; r < g.kh; ++r)
    for (int64_t s = 0; s < g.kw; ++s) {
      const int64_t iy = oy * g.sh - g.ph + r, ix = ox * g.sw - g.pw + s;
      if (iy >= 0 && iy < g.h && ix >= 0 && ix < g.w) f((p * g.h + iy) * g.w + ix);
    }
}

void expect_same(const std::vector<float>& got, const std::vector<double>& want, double tol, const char* what) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " at " << i;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << what << " at " << i;
    } else {
      ASSERT_NEAR(got[i], want[i], tol) << what << " at " << i;
    }
  }
}

class PoolRaw : public testing::TestWithParam<Pool2dGeom> {};

TEST_P(PoolRaw, MatchesPlainLoops) {
  each_target([&] {
    const Pool2dGeom g = GetParam();
    const int64_t nx = g.planes * g.h * g.w, ny = g.planes * g.oh * g.ow;
    for (const bool special : {false, true})
      for (int threads = 1; threads <= 2; ++threads) {
        set_num_threads(threads);
        const auto x = values(nx, special), dy = values(ny, false);
        std::vector<double> max_y(ny), max_dx(nx), avg_y[2], avg_dx[2];
        for (int i = 0; i < 2; ++i) avg_y[i].resize(ny), avg_dx[i].resize(nx);
        for (int64_t o = 0; o < ny; ++o) {
          const int64_t p = o / (g.oh * g.ow), oy = o / g.ow % g.oh, ox = o % g.ow;
          double best = -kInf, sum = 0;
          int64_t first = -1, count = 0;
          window(g, p, oy, ox, [&](int64_t i) {
            if (first < 0 || x[i] > best || (std::isnan(x[i]) && !std::isnan(best))) best = x[i], first = i;
            sum += x[i];
            ++count;
          });
          max_y[o] = best;
          if (first >= 0) max_dx[first] += dy[o];
          for (int include = 0; include < 2; ++include) {
            const double n =
                include ? static_cast<double>(g.kh * g.kw) : static_cast<double>(std::max<int64_t>(1, count));
            avg_y[include][o] = sum / n;
            window(g, p, oy, ox, [&](int64_t i) { avg_dx[include][i] += dy[o] / n; });
          }
        }
        std::vector<float> y(ny, 99.f), dx(nx, 99.f);
        max_pool2d_fwd(g, x.data(), y.data());
        expect_same(y, max_y, 0, "max");
        max_pool2d_bwd(g, x.data(), y.data(), dy.data(), dx.data());
        expect_same(dx, max_dx, 0, "max gradient");
        for (int include = 0; include < 2; ++include) {
          std::fill(y.begin(), y.end(), 99.f), std::fill(dx.begin(), dx.end(), 99.f);
          avg_pool2d_fwd(g, x.data(), y.data(), include);
          expect_same(y, avg_y[include], 1e-5, "avg");
          avg_pool2d_bwd(g, dy.data(), dx.data(), include);
          expect_same(dx, avg_dx[include], 1e-5, "avg gradient");
        }
      }
    set_num_threads(1);
  });
}

// Channels-last images have the bits of planes: zeros of both signs, infinities and NaNs too, whole or by rows.
TEST_P(PoolRaw, ChannelsLastHasTheBitsOfPlanes) {
  each_target([&] {
    for (int64_t c : {1, 16, 24, 37})
      for (int special = 0; special < 3; ++special) {
        Pool2dGeom g = GetParam();
        const int64_t images = std::min<int64_t>(g.planes, 2), in = g.h * g.w, out = g.oh * g.ow;
        g.planes = images * c;
        auto x = values(g.planes * in, special == 2);
        for (size_t i = 0; special && i < x.size(); ++i)
          if (x[i] == 0 && i % 3) x[i] = -0.f;
        std::vector<float> last(x.size()), want(static_cast<size_t>(g.planes * out)), got(want.size()),
            rows(want.size());
        auto turn = [&](const std::vector<float>& from, int64_t pixels, std::vector<float>& to, bool to_last) {
          for (int64_t n = 0; n < images; ++n)
            for (int64_t i = 0; i < c; ++i)
              for (int64_t p = 0; p < pixels; ++p) {
                const auto plane = static_cast<size_t>((n * c + i) * pixels + p);
                const auto pixel = static_cast<size_t>((n * pixels + p) * c + i);
                to[to_last ? pixel : plane] = from[to_last ? plane : pixel];
              }
        };
        turn(x, in, last, true);
        max_pool2d_fwd(g, x.data(), want.data());
        max_pool2d_fwd_last(g, c, last.data(), rows.data());
        turn(rows, out, got, false);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << c << " " << special;
        std::fill(rows.begin(), rows.end(), 7.f);
        for (int64_t r = images * g.oh; r-- > 0;) max_pool2d_last_rows(g, c, last.data(), rows.data(), r, r + 1);
        turn(rows, out, got, false);
        EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << c << " rows " << special;
      }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PoolRaw,
    testing::Values(geom(5, 28, 28, 2, 2, 2, 2), geom(3, 10, 10, 2, 2, 2, 2), geom(3, 7, 9, 2, 2, 2, 2),
                    geom(2, 5, 71, 2, 2, 2, 2), geom(2, 2, 2, 2, 2, 2, 2), geom(3, 15, 13, 3, 3, 2, 2, 1, 1),
                    geom(3, 15, 40, 3, 3, 1, 1, 1, 1), geom(2, 9, 11, 3, 2, 3, 1), geom(2, 9, 50, 1, 4, 1, 3, 0, 2),
                    geom(2, 8, 8, 8, 8, 1, 1), geom(2, 6, 7, 2, 2, 2, 2, 1, 1), geom(1, 9, 9, 1, 1, 3, 3),
                    geom(1, 3, 3, 2, 2, 1, 1, 3, 3), geom(0, 4, 4, 2, 2, 2, 2), geom(40, 33, 35, 3, 3, 2, 2)),
    [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace mge::simd
