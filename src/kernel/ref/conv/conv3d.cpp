// Plain loops in NCDHW; every sum in double. One function runs over the pairs (x element, y element) that a tap joins.
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/conv/conv3d.h"

namespace mge {
namespace {

// f(offset in the input image, offset in the output image, tap) for all taps that stay inside, of output row-major
// order.
template <class F>
void each_pair(const Conv3dGeom& g, F f) {
  int64_t at = 0;
  for (int64_t z = 0; z < g.out[0]; ++z)
    for (int64_t y = 0; y < g.out[1]; ++y)
      for (int64_t x = 0; x < g.out[2]; ++x, ++at)
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          int64_t t[3] = {tap / g.kernel[2] / g.kernel[1], tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]};
          int64_t o[3] = {z, y, x}, p[3];
          bool inside = true;
          for (int i = 0; i < 3; ++i) {
            p[i] = o[i] * g.stride[i] - g.pad[i] + t[i] * g.dilate[i];
            inside = inside && p[i] >= 0 && p[i] < g.in[i];
          }
          if (inside) f((p[0] * g.in[1] + p[1]) * g.in[2] + p[2], at, tap);
        }
}

struct Sizes {
  int64_t cg, og, in, out, taps;
  explicit Sizes(const Conv3dGeom& g)
      : cg(g.c / g.groups), og(g.o / g.groups), in(g.in_size()), out(g.out_size()), taps(g.taps()) {}
};

struct Conv3d {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    Conv3dGeom g = conv3d_geom(a.as<Conv3dAttrs>(), a.in[0].shape, a.in[1].shape);
    Sizes s(g);
    const T *x = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* y = a.out[0].data<T>();
    parallel_for(g.n * g.o, step_grain(s.out * s.cg * s.taps), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.out));
        int64_t n = p / g.o, o = p % g.o;
        for (int64_t c = 0; c < s.cg; ++c) {
          const T* image = x + (n * g.c + o / s.og * s.cg + c) * s.in;
          const T* weight = w + (o * s.cg + c) * s.taps;
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
    Conv3dGeom g = conv3d_geom(a.as<Conv3dDxAttrs>(), a.out[0].shape, a.in[1].shape);
    Sizes s(g);
    const T *gy = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* gx = a.out[0].data<T>();
    parallel_for(g.n * g.c, step_grain(s.out * s.og * s.taps), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.in));
        int64_t n = p / g.c, c = p % g.c, group = c / s.cg;
        for (int64_t o = group * s.og; o < (group + 1) * s.og; ++o) {
          const T* image = gy + (n * g.o + o) * s.out;
          const T* weight = w + (o * s.cg + c % s.cg) * s.taps;
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
    Conv3dGeom g = conv3d_geom(a.as<Conv3dDwAttrs>(), a.in[0].shape, a.out[0].shape);
    Sizes s(g);
    const T *x = a.in[0].data<T>(), *gy = a.in[1].data<T>();
    T* gw = a.out[0].data<T>();
    parallel_for(g.o * s.cg, step_grain(g.n * s.out * s.taps), [&](int64_t p, int64_t end) {
      for (; p < end; ++p) {
        std::vector<double> sum(static_cast<size_t>(s.taps));
        int64_t o = p / s.cg, c = o / s.og * s.cg + p % s.cg;
        for (int64_t n = 0; n < g.n; ++n) {
          const T *from = x + (n * g.c + c) * s.in, *to = gy + (n * g.o + o) * s.out;
          each_pair(g, [&](int64_t i, int64_t j, int64_t tap) {
            sum[static_cast<size_t>(tap)] += static_cast<double>(from[i]) * static_cast<double>(to[j]);
          });
        }
        for (int64_t t = 0; t < s.taps; ++t) gw[p * s.taps + t] = static_cast<T>(sum[static_cast<size_t>(t)]);
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
