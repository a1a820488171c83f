#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/pool/pool.h"

namespace mge {
namespace {

struct Window {
  int64_t y0, y1, x0, x1;  // the part of the window that lies inside the image
  Window(const PoolGeom& g, int64_t oy, int64_t ox)
      : y0(std::max<int64_t>(0, oy * g.sh - g.ph)),
        y1(std::min(g.h, oy * g.sh - g.ph + g.kh)),
        x0(std::max<int64_t>(0, ox * g.sw - g.pw)),
        x1(std::min(g.w, ox * g.sw - g.pw + g.kw)) {}
  int64_t count() const { return (y1 - y0) * (x1 - x0); }
};

// f(plane, output index inside the plane, window)
template <class F>
void each_window(const PoolGeom& g, F f) {
  parallel_for(g.n * g.c, step_grain(g.oh * g.ow * g.kh * g.kw), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t oy = 0; oy < g.oh; ++oy)
        for (int64_t ox = 0; ox < g.ow; ++ox) f(p, oy * g.ow + ox, Window(g, oy, ox));
  });
}

// Where the window has its first maximum; a NaN beats every number.
template <class T>
int64_t argmax(const PoolGeom& g, const T* plane, const Window& win) {
  int64_t best = win.y0 * g.w + win.x0;
  for (int64_t y = win.y0; y < win.y1; ++y)
    for (int64_t x = win.x0; x < win.x1; ++x) {
      T v = plane[y * g.w + x], b = plane[best];
      if (v > b || (v != v && b == b)) best = y * g.w + x;
    }
  return best;
}

struct MaxPool {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    PoolGeom g = pool_geom(a.as<PoolAttrs>(), a.in[0].shape);
    const T* x = a.in[0].data<T>();
    T* y = a.out[0].data<T>();
    each_window(g, [&](int64_t p, int64_t o, const Window& win) {
      const T* plane = x + p * g.h * g.w;
      y[p * g.oh * g.ow + o] = plane[argmax(g, plane, win)];
    });
  }
};

struct MaxPoolBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    PoolGeom g = pool_geom(a.as<PoolAttrs>(), a.in[0].shape);
    const T *x = a.in[0].data<T>(), *gy = a.in[2].data<T>();
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    each_window(g, [&](int64_t p, int64_t o, const Window& win) {
      int64_t plane = p * g.h * g.w;
      gx[plane + argmax(g, x + plane, win)] += gy[p * g.oh * g.ow + o];
    });
  }
};

struct MaxPoolTake {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    PoolGeom g = pool_geom(a.as<PoolAttrs>(), a.in[0].shape);
    const T *x = a.in[0].data<T>(), *v = a.in[2].data<T>();
    T* y = a.out[0].data<T>();
    each_window(g, [&](int64_t p, int64_t o, const Window& win) {
      int64_t plane = p * g.h * g.w;
      y[p * g.oh * g.ow + o] = v[plane + argmax(g, x + plane, win)];
    });
  }
};

struct AvgPool {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<AvgPoolAttrs>();
    PoolGeom g = pool_geom(at, a.in[0].shape);
    const T* x = a.in[0].data<T>();
    T* y = a.out[0].data<T>();
    each_window(g, [&](int64_t p, int64_t o, const Window& win) {
      double sum = 0;
      for (int64_t iy = win.y0; iy < win.y1; ++iy)
        for (int64_t ix = win.x0; ix < win.x1; ++ix) sum += static_cast<double>(x[(p * g.h + iy) * g.w + ix]);
      y[p * g.oh * g.ow + o] = static_cast<T>(sum / static_cast<double>(at.include_pad ? g.kh * g.kw : win.count()));
    });
  }
};

struct AvgPoolBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<AvgPoolBwdAttrs>();
    PoolGeom g = pool_geom(at, a.out[0].shape);
    const T* gy = a.in[0].data<T>();
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    each_window(g, [&](int64_t p, int64_t o, const Window& win) {
      T share = gy[p * g.oh * g.ow + o] / static_cast<T>(at.include_pad ? g.kh * g.kw : win.count());
      for (int64_t iy = win.y0; iy < win.y1; ++iy)
        for (int64_t ix = win.x0; ix < win.x1; ++ix) gx[(p * g.h + iy) * g.w + ix] += share;
    });
  }
};

}  // namespace

void register_ref_pool(KernelRegistry& r) {
  ref::add_floating<MaxPool>(r, "max_pool2d", "ref_max_pool2d");
  ref::add_floating<MaxPoolBwd>(r, "max_pool2d_bwd", "ref_max_pool2d_bwd");
  ref::add_floating<MaxPoolTake>(r, "max_pool2d_take", "ref_max_pool2d_take");
  ref::add_floating<AvgPool>(r, "avg_pool2d", "ref_avg_pool2d");
  ref::add_floating<AvgPoolBwd>(r, "avg_pool2d_bwd", "ref_avg_pool2d_bwd");
}

}  // namespace mge
