// float32 2-d convolutions on channels-last memory (x [n,h,w,c], y [n,oh,ow,oc]; the weight stays [oc,c/groups,kh,kw]),
// for the geometries where the kernels of conv2d_raw.h would need their images reordered or a library is slow.
// Raw pointers, no checks. Results do not depend on the number of threads.
#pragma once

#include "kernel/simd/conv/conv2d_raw.h"

namespace mge::simd {

/// One filter for each channel: groups == c == oc. The forward pass gives the bits of conv2d_fwd on plain memory.
void depthwise_last_fwd(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e = nullptr);
/// The same in two steps: the weight by taps, depthwise_floats of them, once, and with it rows [first, last) of all the
/// images' outputs, on this thread, or all of them.
int64_t depthwise_floats(const ConvGeom& geom);
void depthwise_last_weights(const ConvGeom& geom, const float* wt, float* by_tap);
void depthwise_last_rows(const ConvGeom& geom, const float* x, const float* by_tap, float* y, const Epilogue* e,
                         int64_t first, int64_t last);
void depthwise_last_fwd_taps(const ConvGeom& geom, const float* x, const float* by_tap, float* y,
                             const Epilogue* e = nullptr);
void depthwise_last_bwd_data(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void depthwise_last_bwd_weight(const ConvGeom& geom, const float* x, const float* dy, float* dw);

/// Adjoints as one matrix product over the whole batch, the weight read and written as it lies: for so few pixels that
/// reordering the weight would take longer than the sums. One group.
void product_last_bwd_data(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void product_last_bwd_weight(const ConvGeom& geom, const float* x, const float* dy, float* dw);

/// 3x3, stride 1, no dilation, one group, padding at most 2, c and oc multiples of 16: products of transformed tiles
/// with 4/9 of the multiplications. A NaN or infinity spreads to all four outputs of the tiles that read it.
/// `side` 4: tiles of 4x4 outputs need 1/4 of the multiplications and round more; a NaN spreads to sixteen outputs.
void winograd_last_fwd(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e = nullptr,
                       int64_t side = 2);
/// The same in two steps: the weight in the order of the products, winograd_floats of them, once, and the rest with it.
int64_t winograd_floats(const ConvGeom& geom, int64_t side = 2);
void winograd_last_weights(const ConvGeom& geom, const float* wt, float* to, int64_t side = 2);
void winograd_last_fwd_prepared(const ConvGeom& geom, const float* x, const float* weight, float* y,
                                const Epilogue* e = nullptr, int64_t side = 2);
void winograd_last_bwd_data(const ConvGeom& geom, const float* dy, const float* wt, float* dx);
void winograd_last_bwd_weight(const ConvGeom& geom, const float* x, const float* dy, float* dw);

/// The forward pass as a product over pixels, with any window. One group.
void lines_last_fwd(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e = nullptr);
/// The same in two steps: the weight in the order of the product, lines_floats of them, once, and the rest with it.
int64_t lines_floats(const ConvGeom& geom);
void lines_last_weights(const ConvGeom& geom, const float* wt, float* panels);
void lines_last_fwd_panels(const ConvGeom& geom, const float* x, const float* panels, float* y,
                           const Epilogue* e = nullptr);
/// Rows [first, last) of all the images' outputs, on this thread.
void lines_last_rows(const ConvGeom& geom, const float* x, const float* panels, float* y, const Epilogue* e,
                     int64_t first, int64_t last);

/// x [n,c,h,w] in planes, y channels-last: a first layer, whose image has few channels. One group. In one step or two.
void first_last_fwd(const ConvGeom& geom, const float* x, const float* wt, float* y, const Epilogue* e = nullptr);
int64_t first_floats(const ConvGeom& geom);
void first_last_weights(const ConvGeom& geom, const float* wt, float* panels);
void first_last_fwd_panels(const ConvGeom& geom, const float* x, const float* panels, float* y,
                           const Epilogue* e = nullptr);
void first_last_rows(const ConvGeom& geom, const float* x, const float* panels, float* y, const Epilogue* e,
                     int64_t image, int64_t first, int64_t last);
/// x [n,c,h,w] in planes, dy channels-last: for images of few channels. One group, oc a multiple of 16.
void few_channels_bwd_weight(const ConvGeom& geom, const float* x, const float* dy, float* dw);

}  // namespace mge::simd
