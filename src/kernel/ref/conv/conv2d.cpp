// Plain loops in NCHW; every sum in double, in the order channel, row, column.
#include "op/conv/conv2d.h"
#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/ref/nn_ref.h"
#include "op/elementwise/scalar_body.h"
#include "op/in_build.h"

namespace mge {
namespace {

template <class T>
T dot_window(const ConvGeom& g, const T* x, const T* w, int64_t n, int64_t o, int64_t oy, int64_t ox) {
  int64_t cg = g.c / g.groups, first = o / (g.o / g.groups) * cg;
  double sum = 0;
  for (int64_t c = 0; c < cg; ++c)
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s) {
        int64_t y = oy * g.sh - g.ph + r * g.dh, xx = ox * g.sw - g.pw + s * g.dw;
        if (y < 0 || y >= g.h || xx < 0 || xx >= g.w) continue;
        sum += static_cast<double>(x[((n * g.c + first + c) * g.h + y) * g.w + xx]) *
               static_cast<double>(w[((o * cg + c) * g.kh + r) * g.kw + s]);
      }
  return static_cast<T>(sum);
}

template <class T, class F>
void conv2d_forward(const ConvGeom& g, const KernelArgs& a, F finish) {
  const T *x = a.in[0].data<T>(), *w = a.in[1].data<T>();
  T* y = a.out[0].data<T>();
  parallel_for(g.n * g.o, step_grain(g.oh * g.ow * g.c / g.groups * g.kh * g.kw), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t oy = 0; oy < g.oh; ++oy)
        for (int64_t ox = 0; ox < g.ow; ++ox) {
          int64_t i = (p * g.oh + oy) * g.ow + ox;
          y[i] = finish(dot_window(g, x, w, p / g.o, p % g.o, oy, ox), p % g.o, i);
        }
  });
}

struct Conv2d {
  template <class T>
  static void run(const KernelArgs& a, DType store) {
    ConvGeom g = conv_geom_of<Conv2dAttrs>(a);
    const T* bias = a.in.size() == 3 ? a.in[2].data<T>() : nullptr;
    conv2d_forward<T>(g, a, [&](T v, int64_t o, int64_t) { return bias ? ref::rounded(v, store) + bias[o] : v; });
  }
};

struct Conv2dFused {
  template <class T>
  static void run(const KernelArgs& a, DType store) {
    const auto& at = a.as<Conv2dFusedAttrs>();
    ConvGeom g = conv_geom_of<Conv2dFusedAttrs>(a);
    Conv2dExtras e = conv2d_extras(at);
    auto extra = [&](int i) -> const T* { return i < 0 ? nullptr : a.in[static_cast<size_t>(i)].data<T>(); };
    const T *bias = extra(e.bias), *scale = extra(e.scale), *shift = extra(e.shift), *add = extra(e.add);
    const RowFn act = at.act == "none"
                          ? nullptr
                          : OpRegistry::global()
                                .get(at.act)
                                .scalar->row[static_cast<int>(std::is_same_v<T, double> ? Compute::F64 : Compute::F32)];
    const T slope = static_cast<T>(at.slope);  // what prelu reads beside the sum
    conv2d_forward<T>(g, a, [&](T v, int64_t o, int64_t i) {
      v = ref::rounded(v, store);
      if (bias) v = ref::rounded(v + bias[o], store);
      if (scale) v = ref::rounded(v * scale[o], store);
      if (shift) v = ref::rounded(v + shift[o], store);
      if (add) v = ref::rounded(v + add[i], store);
      const void* in[] = {&v, &slope};
      const int64_t stride[] = {1, 0};
      T y = v;
      if (act) act(in, stride, &y, 1);
      return y;
    });
  }
};

struct Conv2dDx {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    ConvGeom g = conv_geom_of<Conv2dDxAttrs>(a);
    const T *gy = a.in[0].data<T>(), *w = a.in[1].data<T>();
    T* gx = a.out[0].data<T>();
    int64_t cg = g.c / g.groups, og = g.o / g.groups;
    parallel_for(g.n * g.c, step_grain(g.h * g.w * og * g.kh * g.kw), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        for (int64_t y = 0; y < g.h; ++y)
          for (int64_t x = 0; x < g.w; ++x) {
            int64_t n = p / g.c, c = p % g.c, group = c / cg;
            double sum = 0;
            for (int64_t o = group * og; o < (group + 1) * og; ++o)
              for (int64_t r = 0; r < g.kh; ++r)
                for (int64_t s = 0; s < g.kw; ++s) {
                  int64_t ty = y + g.ph - r * g.dh, tx = x + g.pw - s * g.dw;  // = output position * stride
                  if (ty < 0 || tx < 0 || ty % g.sh || tx % g.sw || ty / g.sh >= g.oh || tx / g.sw >= g.ow) continue;
                  sum += static_cast<double>(gy[((n * g.o + o) * g.oh + ty / g.sh) * g.ow + tx / g.sw]) *
                         static_cast<double>(w[((o * cg + c % cg) * g.kh + r) * g.kw + s]);
                }
            gx[(p * g.h + y) * g.w + x] = static_cast<T>(sum);
          }
    });
  }
};

struct Conv2dDw {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
    const T *x = a.in[0].data<T>(), *gy = a.in[1].data<T>();
    T* gw = a.out[0].data<T>();
    int64_t cg = g.c / g.groups, og = g.o / g.groups;
    parallel_for(g.o * cg, step_grain(g.n * g.oh * g.ow * g.kh * g.kw), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        for (int64_t r = 0; r < g.kh; ++r)
          for (int64_t s = 0; s < g.kw; ++s) {
            int64_t o = p / cg, c = o / og * cg + p % cg;
            double sum = 0;
            for (int64_t n = 0; n < g.n; ++n)
              for (int64_t oy = 0; oy < g.oh; ++oy)
                for (int64_t ox = 0; ox < g.ow; ++ox) {
                  int64_t y = oy * g.sh - g.ph + r * g.dh, xx = ox * g.sw - g.pw + s * g.dw;
                  if (y < 0 || y >= g.h || xx < 0 || xx >= g.w) continue;
                  sum += static_cast<double>(x[((n * g.c + c) * g.h + y) * g.w + xx]) *
                         static_cast<double>(gy[((n * g.o + o) * g.oh + oy) * g.ow + ox]);
                }
            gw[(p * g.kh + r) * g.kw + s] = static_cast<T>(sum);
          }
    });
  }
};

}  // namespace

void register_ref_conv2d(KernelRegistry& r) {
  ref::add_floating<Conv2d>(r, "conv2d", "ref_conv2d");
  ref::add_floating<Conv2dFused>(r, "conv2d_fused", "ref_conv2d_fused");
  ref::add_floating<Conv2dDx>(r, "conv2d_dx", "ref_conv2d_dx");
  ref::add_floating<Conv2dDw>(r, "conv2d_dw", "ref_conv2d_dw");
}

}  // namespace mge
