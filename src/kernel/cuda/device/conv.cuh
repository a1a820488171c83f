// Convolutions, a thread for each element of the result, summed in double: what no library takes, and what libraries are
// compared with. x [n,c,d,h,w], w [o,c/g,kd,kh,kw], y [n,o,od,oh,ow], row-major.
#pragma once
struct Args {
  i64 total;
  T* out;
  const T *p, *q, *bias;  // the operands in the op's order
  i64 n, c, d, h, w, o, od, oh, ow, kd, kh, kw, sd, sh, sw, pd, ph, pw, dd, dh, dw, groups;
};
__device__ inline double at(const T* p, i64 i) { return static_cast<double>(load(p[i])); }

// y = x * w
extern "C" __global__ void mge_conv(const __grid_constant__ Args g) {
  const i64 cg = g.c / g.groups, og = g.o / g.groups;
  for (i64 i = thread_number(); i < g.total; i += thread_count()) {
    const i64 x = i % g.ow, y = i / g.ow % g.oh, z = i / g.ow / g.oh % g.od, no = i / g.ow / g.oh / g.od;
    const i64 o = no % g.o, n = no / g.o, first = o / og * cg;
    double sum = 0;
    for (i64 c = 0; c < cg; ++c)
      for (i64 a = 0; a < g.kd; ++a)
        for (i64 b = 0; b < g.kh; ++b)
          for (i64 e = 0; e < g.kw; ++e) {
            const i64 iz = z * g.sd - g.pd + a * g.dd, iy = y * g.sh - g.ph + b * g.dh, ix = x * g.sw - g.pw + e * g.dw;
            if (iz < 0 || iz >= g.d || iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
            sum += at(g.p, (((n * g.c + first + c) * g.d + iz) * g.h + iy) * g.w + ix) *
                   at(g.q, (((o * cg + c) * g.kd + a) * g.kh + b) * g.kw + e);
          }
    g.out[i] = cast<T>(sum);
    if (g.bias) g.out[i] = cast<T>(load(g.out[i]) + load(g.bias[o]));
  }
}

// gx from gy (p) and w (q)
extern "C" __global__ void mge_conv_dx(const __grid_constant__ Args g) {
  const i64 cg = g.c / g.groups, og = g.o / g.groups;
  for (i64 i = thread_number(); i < g.total; i += thread_count()) {
    const i64 x = i % g.w, y = i / g.w % g.h, z = i / g.w / g.h % g.d, nc = i / g.w / g.h / g.d;
    const i64 c = nc % g.c, n = nc / g.c, group = c / cg;
    double sum = 0;
    for (i64 o = group * og; o < (group + 1) * og; ++o)
      for (i64 a = 0; a < g.kd; ++a)
        for (i64 b = 0; b < g.kh; ++b)
          for (i64 e = 0; e < g.kw; ++e) {
            const i64 tz = z + g.pd - a * g.dd, ty = y + g.ph - b * g.dh, tx = x + g.pw - e * g.dw;
            if (tz < 0 || ty < 0 || tx < 0 || tz % g.sd || ty % g.sh || tx % g.sw) continue;
            const i64 oz = tz / g.sd, oy = ty / g.sh, ox = tx / g.sw;
            if (oz >= g.od || oy >= g.oh || ox >= g.ow) continue;
            sum += at(g.p, (((n * g.o + o) * g.od + oz) * g.oh + oy) * g.ow + ox) *
                   at(g.q, (((o * cg + c % cg) * g.kd + a) * g.kh + b) * g.kw + e);
          }
    g.out[i] = cast<T>(sum);
  }
}

// gw from x (p) and gy (q)
extern "C" __global__ void mge_conv_dw(const __grid_constant__ Args g) {
  const i64 cg = g.c / g.groups, og = g.o / g.groups;
  for (i64 i = thread_number(); i < g.total; i += thread_count()) {
    const i64 e = i % g.kw, b = i / g.kw % g.kh, a = i / g.kw / g.kh % g.kd, oc = i / g.kw / g.kh / g.kd;
    const i64 o = oc / cg, c = o / og * cg + oc % cg;
    double sum = 0;
    for (i64 n = 0; n < g.n; ++n)
      for (i64 oz = 0; oz < g.od; ++oz)
        for (i64 oy = 0; oy < g.oh; ++oy)
          for (i64 ox = 0; ox < g.ow; ++ox) {
            const i64 iz = oz * g.sd - g.pd + a * g.dd, iy = oy * g.sh - g.ph + b * g.dh,
                      ix = ox * g.sw - g.pw + e * g.dw;
            if (iz < 0 || iz >= g.d || iy < 0 || iy >= g.h || ix < 0 || ix >= g.w) continue;
            sum += at(g.p, (((n * g.c + c) * g.d + iz) * g.h + iy) * g.w + ix) *
                   at(g.q, (((n * g.o + o) * g.od + oz) * g.oh + oy) * g.ow + ox);
          }
    g.out[i] = cast<T>(sum);
  }
}
