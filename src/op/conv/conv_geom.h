// All sizes of one convolution, whatever its role and its number of axes: what infer, cost and every kernel work with.
//   ConvGeom g{.n = 64, .c = 1, .h = 28, .w = 28, .o = 6, .oh = 28, .ow = 28, .kh = 5, .kw = 5, .ph = 2, .pw = 2};
#pragma once
#include <cstdint>
#include <initializer_list>

namespace mge {

/// x [n,c,d,h,w] with weight [o,c/groups,kd,kh,kw] gives y [n,o,od,oh,ow]; c and o count all groups. Stride s, padding
/// p and dilation d of each axis. Without depth (2-d) that axis has size 1.
struct ConvGeom {
  int64_t n = 1, c = 1, d = 1, h = 1, w = 1, o = 1, od = 1, oh = 1, ow = 1;
  int64_t kd = 1, kh = 1, kw = 1, sd = 1, sh = 1, sw = 1, pd = 0, ph = 0, pw = 0, dd = 1, dh = 1, dw = 1;
  int64_t groups = 1;
  bool operator==(const ConvGeom&) const = default;
  double flops() const {
    double product = 2.0;  // beside a size of zero the others may be anything, also too large for an integer
    for (int64_t size : {n, o, od, oh, ow, c / groups, kd, kh, kw}) product *= static_cast<double>(size);
    return product;
  }
  /// Nothing to add up, or nothing to write.
  bool empty() const { return !(n && od && oh && ow && d && h && w); }
};

/// What follows from it.
struct ConvDims {
  int64_t cg, og;   // channels per group, in and out
  int64_t window;   // places of the kernel
  int64_t taps;     // cg * window: length of one output's sum
  int64_t in, out;  // pixels per plane
  explicit ConvDims(const ConvGeom& g)
      : cg(g.c / g.groups),
        og(g.o / g.groups),
        window(g.kd * g.kh * g.kw),
        taps(cg * window),
        in(g.d * g.h * g.w),
        out(g.od * g.oh * g.ow) {}
};

/// Outputs along an axis of `in` inputs; and the least inputs that give `out` outputs.
inline int64_t conv_outputs(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilate) {
  return (in + 2 * pad - dilate * (kernel - 1) - 1) / stride + 1;
}
inline int64_t conv_inputs(int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t dilate) {
  return (out - 1) * stride - 2 * pad + dilate * (kernel - 1) + 1;
}

}  // namespace mge
