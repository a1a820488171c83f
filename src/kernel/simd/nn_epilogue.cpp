#include "kernel/simd/nn_epilogue.h"

#include "base/parallel.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/nn_epilogue.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

void epilogue_planes(const simd::Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y) {
  parallel_for(n * oc, grain_for(pixels), [&](int64_t b, int64_t end) {
    for (; b < end; ++b) {
      int64_t c = b % oc;
      VF bias = set(e.bias ? e.bias[c] : 0), scale = set(e.scale ? e.scale[c] : 1),
         shift = set(e.scale ? e.shift[c] : 0);
      float* plane = y + b * pixels;
      const float* add = e.add ? e.add + b * pixels : nullptr;
      each_vector(pixels, [&](int64_t i, int k) {
        VF v = load_n(plane + i, k);
        if (e.bias) v = hn::Add(v, bias);
        if (e.scale) v = hn::Add(hn::Mul(v, scale), shift);
        if (add) v = hn::Add(v, load_n(add + i, k));
        if (e.act == 1) v = hn::IfThenElseZero(hn::Or(hn::Gt(v, hn::Zero(DF())), hn::IsNaN(v)), v);
        store_n(v, plane + i, k);
      });
    }
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {
HWY_EXPORT(epilogue_planes);
void dispatch_epilogue(const simd::Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y) {
  HWY_DYNAMIC_DISPATCH(epilogue_planes)(e, n, oc, pixels, y);
}
}  // namespace mge::simd_nn
void mge::simd::epilogue_pass(const Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y) {
  simd_nn::dispatch_epilogue(e, n, oc, pixels, y);
}
#endif
