// float32 2-d convolution on plain NCHW memory, with its two adjoints. Raw pointers, no checks, all geometries.
//
//   conv2d_fwd({.n=64, .c=1, .h=28, .w=28, .o=6, .oh=28, .ow=28, .kh=5, .kw=5, .ph=2, .pw=2}, x, wt, y, nullptr);
//
// x [n,c,h,w], wt [o,c/groups,kh,kw], y [n,o,oh,ow]; the caller has computed oh and ow. Outputs are overwritten and
// must not overlap inputs. Zero-size dims are fine. Results do not depend on the number of threads: the order of every
// sum is a function of the geometry, of the instruction set in use and of the size of the second cache.
#pragma once

#include <cstdint>

#include "op/conv/conv_geom.h"
#include "op/elementwise/scalar_body.h"

namespace mge::simd {

// What to do with a finished sum `v` of channel c, each step rounded on its own, absent pointers skipped:
//   v + bias[c];  v * scale[c] + shift[c] (no fma; both or neither);  v + add[index of y];  act: see below; row(v)
// where there is one.
// relu(v) = v > 0 ? v : v is NaN ? v : +0; relu6 is the same below 6 and 6 above. The bits are those of running the
// steps as separate elementwise ops.
struct Epilogue {
  const float* bias = nullptr;   // [o]
  const float* scale = nullptr;  // [o]
  const float* shift = nullptr;  // [o]
  const float* add = nullptr;    // like y, not overlapping it
  int act = 0;                   // 0 none, 1 relu, 2 relu6
  RowFn row = nullptr;           // another activation, on floats
  float slope = 0;               // its second operand, if it has one (prelu)
  bool any() const { return bias || scale || add || act || row; }
  /// row on y[0, n).
  void finish(float* y, int64_t n) const {
    const void* in[] = {y, &slope};
    const int64_t stride[] = {1, 0};
    if (row) row(in, stride, y, n);
  }
};

/// Which of its ways a convolution may take, whatever the size of its images; rows in any case.
struct FwdPaths {
  bool channels, gemm;
};
FwdPaths conv2d_fwd_paths(const ConvGeom& geom);
void conv2d_fwd(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e);
void conv2d_bwd_data(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void conv2d_bwd_weight(const ConvGeom& geom, const float* x, const float* dy, float* dw);

}  // namespace mge::simd
