#include "op/elementwise/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"

namespace mge {
namespace {

template <class F>
void with_storage(DType t, F f) {
  switch (t) {
    case DType::QU8:
      return f(uint8_t());
    case DType::QI8:
    case DType::QI4:
    case DType::QI1:
      return f(int8_t());
    case DType::QU4:
      return f(uint8_t());
    case DType::QI16:
      return f(int16_t());
    default:
      return f(int32_t());
  }
}

struct Quantize {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const auto& at = a.as<QuantizeAttrs>();
    const QuantRange range = quant_range(at.dtype);
    const T scale = static_cast<T>(at.scale);
    const double zero = static_cast<double>(at.zero_point), lo = static_cast<double>(range.lo),
                 hi = static_cast<double>(range.hi);
    const T* x = a.in[0].data<T>();
    with_storage(at.dtype, [&](auto storage) {
      using Q = decltype(storage);
      Q* q = a.out[0].data<Q>();
      parallel_for(a.out[0].numel(), value_grain(1), [&](int64_t b, int64_t e) {
        for (; b < e; ++b) {
          double v = static_cast<double>(std::nearbyint(x[b] / scale)) + zero;
          q[b] = static_cast<Q>(v >= lo ? std::min(v, hi) : lo);  // NaN takes the least value
        }
      });
    });
  }
};

void run_quantize(const KernelArgs& a) {
  DType t = a.in[0].dtype;
  if (t == DType::F32) return Quantize::run<float>(a, t);
  if (t == DType::F64) return Quantize::run<double>(a, t);
  ref::through_float(a, Quantize::run<float>);
}

void run_dequantize(const KernelArgs& a) {
  const auto& at = a.as<QuantizeAttrs>();
  const float scale = static_cast<float>(at.scale);
  with_storage(at.dtype, [&](auto storage) {
    using Q = decltype(storage);
    const Q* q = a.in[0].data<Q>();
    float* x = a.out[0].data<float>();
    parallel_for(a.out[0].numel(), value_grain(1), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) x[b] = static_cast<float>(static_cast<int64_t>(q[b]) - at.zero_point) * scale;
    });
  });
}

}  // namespace

void register_ref_quantize(KernelRegistry& r) {
  r.add("quantize", KernelTier::Ref, Kernel{.name = "quantize", .run = run_quantize});
  r.add("dequantize", KernelTier::Ref, Kernel{.name = "dequantize", .run = run_dequantize});
}

}  // namespace mge
