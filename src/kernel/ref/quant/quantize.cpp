#include "op/quant/quantize.h"

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/quant_storage.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/quant/numerics.h"

namespace mge {
namespace {

struct Quantize {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const TensorArg& y = a.out[0];
    const QuantRange range = quant_range(y.dtype);
    const quant::Channels channels(y.quant, y.shape);
    const T* x = a.in[0].data<T>();
    with_storage(y.dtype, [&](auto storage) {
      using Q = decltype(storage);
      Unpacked wide(y);
      Q* q = wide.data<Q>();
      parallel_for(y.numel(), value_grain(1), [&](int64_t begin, int64_t end) {
        channels.each(begin, end, [&](int64_t b, int64_t e, float scale, int32_t zero) {
          for (; b < e; ++b) q[b] = static_cast<Q>(quant::quantise<T>(x[b], static_cast<T>(scale), zero, range));
        });
      });
      wide.pack(y);
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
  const TensorArg& x = a.in[0];
  const quant::Channels channels(x.quant, x.shape);
  with_storage(x.dtype, [&](auto storage) {
    using Q = decltype(storage);
    Unpacked wide(x, true);
    const Q* q = wide.data<Q>();
    float* y = a.out[0].data<float>();
    parallel_for(a.out[0].numel(), value_grain(1), [&](int64_t begin, int64_t end) {
      channels.each(begin, end, [&](int64_t b, int64_t e, float scale, int32_t zero) {
        for (; b < e; ++b) y[b] = quant::dequantise(q[b], zero, scale);
      });
    });
  });
}

}  // namespace

void register_ref_quantize(KernelRegistry& r) {
  r.add("quantize", KernelTier::Ref, Kernel{.name = "quantize", .run = run_quantize});
  r.add("dequantize", KernelTier::Ref, Kernel{.name = "dequantize", .run = run_dequantize});
}

}  // namespace mge
