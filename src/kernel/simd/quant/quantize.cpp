#include "op/quant/quantize.h"

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/layouts.h"
#include "kernel/simd/quant/product_raw.h"
#include "op/in_build.h"
#include "op/quant/numerics.h"

namespace mge::simd_nn {
namespace {

const char* refuse(const KernelArgs& a) {
  if (a.in[0].dtype != DType::F32) return "needs float32";
  return a.out[0].dtype == DType::QI8 || a.out[0].dtype == DType::QU8 ? nullptr : "needs an 8-bit result";
}

void run(const KernelArgs& a) {
  const TensorArg& y = a.out[0];
  const QuantRange range = quant_range(y.dtype);
  const quant::Channels channels(y.quant, y.shape);
  const float* x = a.in[0].data<float>();
  parallel_for(y.numel(), value_grain(4), [&](int64_t begin, int64_t end) {
    channels.each(begin, end, [&](int64_t b, int64_t e, float scale, int32_t zero) {
      if (y.dtype == DType::QI8)
        simd::quantize(x + b, e - b, scale, zero, range, y.data<int8_t>() + b);
      else
        simd::quantize(x + b, e - b, scale, zero, range, y.data<uint8_t>() + b);
    });
  });
}

const char* refuse_real(const KernelArgs& a) {
  return a.in[0].dtype == DType::QI8 || a.in[0].dtype == DType::QU8 ? nullptr : "needs an 8-bit input";
}
void run_real(const KernelArgs& a) {
  const TensorArg& x = a.in[0];
  const quant::Channels channels(x.quant, x.shape);
  float* y = a.out[0].data<float>();
  parallel_for(x.numel(), value_grain(2), [&](int64_t begin, int64_t end) {
    channels.each(begin, end, [&](int64_t b, int64_t e, float scale, int32_t zero) {
      if (x.dtype == DType::QI8)
        simd::dequantize(x.data<int8_t>() + b, e - b, scale, zero, y + b);
      else
        simd::dequantize(x.data<uint8_t>() + b, e - b, scale, zero, y + b);
    });
  });
}

// Elements one by one, in whatever order they lie; channels of scales are found by the row-major order.
void layouts(const KernelArgs&, TensorArg* in, TensorArg* out) {
  const bool any_order = in[0].quant.per_tensor() && out[0].quant.per_tensor();
  if (any_order && in_channels_last(in[0])) return ask_channels_last(out[0]);
  ask_row_major(in[0]);
}

}  // namespace

void register_simd_quantize(KernelRegistry& r) {
  r.add("quantize", KernelTier::Simd,
        Kernel{.name = "simd_quantize", .refuse = refuse, .run = run, .layouts = layouts});
  r.add("dequantize", KernelTier::Simd,
        Kernel{.name = "simd_dequantize", .refuse = refuse_real, .run = run_real, .layouts = layouts});
}

}  // namespace mge::simd_nn
