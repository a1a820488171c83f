// Plain loops in NCDHW; every sum in double. One function runs over the pairs (x element, y element) that a tap joins.
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/ref/nn_ref.h"
#include "op/conv/conv3d.h"
#include "op/in_build.h"

namespace mge {
namespace {

// f(offset in the input image, offset in the output image, tap) for all taps that stay inside, of output row-major
// order.
template <class F>
void each_pair(const ConvGeom& g, F f) {
  const int64_t taps = ConvDims(g).window;
  int64_t at = 0;
  for (int64_t oz = 0; oz < g.od; ++oz)
    for (int64_t oy = 0; oy < g.oh; ++oy)
      for (int64_t ox = 0; ox < g.ow; ++ox, ++at)
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t z = oz * g.sd - g.pd + tap / g.kw / g.kh * g.dd;
          const int64_t y = oy * g.sh - g.ph + tap / g.kw % g.kh * g.dh;
          const int64_t x = ox * g.sw - g.pw + tap % g.kw * g.dw;
          if (z < 0 || z >= g.d || y < 0 || y >= g.h || x < 0 || x >= g.w) continue;
          f((z * g.h + y) * g.w + x, at, tap);
        }
}

struct Conv3d {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    ConvGeom g = conv_geom_of<Conv3dAttrs>(a);
    ConvDims s(g);
    const T *x = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* y = a.out[0].data<T>();
    parallel_for(g.n * g.o, step_grain(s.out * s.taps), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.out));
        int64_t n = p / g.o, o = p % g.o;
        for (int64_t c = 0; c < s.cg; ++c) {
          const T* image = x + (n * g.c + o / s.og * s.cg + c) * s.in;
          const T* weight = w + (o * s.cg + c) * s.window;
          each_pair(g, [&](int64_t i, int64_t j, int64_t tap) {
            sum[static_cast<size_t>(j)] += static_cast<double>(image[i]) * static_cast<double>(weight[tap]);
          });
        }
        for (int64_t j = 0; j < s.out; ++j) y[p * s.out + j] = static_cast<T>(sum[static_cast<size_t>(j)]);
      }
    });
  }
};

struct Conv3dDx {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    ConvGeom g = conv_geom_of<Conv3dDxAttrs>(a);
    ConvDims s(g);
    const T *gy = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* gx = a.out[0].data<T>();
    parallel_for(g.n * g.c, step_grain(s.out * s.og * s.window), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.in));
        int64_t n = p / g.c, c = p % g.c, group = c / s.cg;
        for (int64_t o = group * s.og; o < (group + 1) * s.og; ++o) {
          const T* image = gy + (n * g.o + o) * s.out;
          const T* weight = w + (o * s.cg + c % s.cg) * s.window;
          each_pair(g, [&](int64_t i, int64_t j, int64_t tap) {
            sum[static_cast<size_t>(i)] += static_cast<double>(image[j]) * static_cast<double>(weight[tap]);
          });
        }
        for (int64_t i = 0; i < s.in; ++i) gx[p * s.in + i] = static_cast<T>(sum[static_cast<size_t>(i)]);
      }
    });
  }
};

struct Conv3dDw {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    ConvGeom g = conv_geom_of<Conv3dDwAttrs>(a);
    ConvDims s(g);
    const T *x = a.in[0].data<T>(), *gy = a.in[1].data<T>();
    T* gw = a.out[0].data<T>();
    parallel_for(g.o * s.cg, step_grain(g.n * s.out * s.window), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.window));
        int64_t o = p / s.cg, c = o / s.og * s.cg + p % s.cg;
        for (int64_t n = 0; n < g.n; ++n) {
          const T *from = x + (n * g.c + c) * s.in, *to = gy + (n * g.o + o) * s.out;
          each_pair(g, [&](int64_t i, int64_t j, int64_t tap) {
            sum[static_cast<size_t>(tap)] += static_cast<double>(from[i]) * static_cast<double>(to[j]);
          });
        }
        for (int64_t t = 0; t < s.window; ++t) gw[p * s.window + t] = static_cast<T>(sum[static_cast<size_t>(t)]);
      }
    });
  }
};

}  // namespace

void register_ref_conv3d(KernelRegistry& r) {
  ref::add_floating<Conv3d>(r, "conv3d", "ref_conv3d");
  ref::add_floating<Conv3dDx>(r, "conv3d_dx", "ref_conv3d_dx");
  ref::add_floating<Conv3dDw>(r, "conv3d_dw", "ref_conv3d_dw");
}

}  // namespace mge
