// The algorithms behind conv2d_raw.h, and the numbers they share. conv2d_raw.cpp chooses.
#pragma once

#include "kernel/simd/conv/conv2d_raw.h"

namespace mge::simd {

// Any geometry: im2col straight into packed panels, then the GEMM tile.
void conv2d_fwd_gemm(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e);
// Any geometry: Wᵀ·dy by blocks of channels and rows, added into a padded image.
void conv2d_bwd_data_gemm(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void conv2d_bwd_weight_gemm(const ConvGeom& geom, const float* x, const float* dy, float* dw);

// Lanes along the output row, no im2col. Any geometry; pays when a group has few output channels (depthwise, first
// layers).
void conv2d_fwd_rows(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e);
void conv2d_bwd_data_rows(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void conv2d_bwd_weight_rows(const ConvGeom& geom, const float* x, const float* dy, float* dw);

// Lanes along 16 output channels, the input broadcast from where it lies. Needs sw == 1; weight also dw == 1 and kw 3
// or 5.
void conv2d_fwd_channels(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e);
void conv2d_bwd_weight_channels(const ConvGeom& geom, const float* x, const float* dy, float* dw);

// dst[groups][c/g][oc/g][kh][kw] from wt, taps reversed: the weight of the convolution that is the adjoint of a
// stride-1 one.
void conv2d_flip_weight(const ConvGeom& geom, const float* wt, float* dst);

// dw = sum over parts of partial[part][size], in the order of parts.
void conv2d_sum_parts(const float* partial, int64_t parts, int64_t size, float* dw);

}  // namespace mge::simd
