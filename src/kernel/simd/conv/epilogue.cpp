#include "kernel/simd/conv/epilogue.h"

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/conv/epilogue.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/nn_vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

// relu, and relu6 when act is 2.
HWY_INLINE VF activate(int act, VF v) {
  const VF six = hn::Set(DF(), 6.f);
  if (act == 2) v = hn::IfThenElse(hn::Gt(v, six), six, v);
  return hn::IfThenElseZero(hn::Or(hn::Gt(v, hn::Zero(DF())), hn::IsNaN(v)), v);
}

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
        if (e.act) v = activate(e.act, v);
        store_n(v, plane + i, k);
      });
      e.finish(plane, pixels);
    }
  });
}

void epilogue_last(const simd::Epilogue& e, int64_t b, int64_t end, int64_t oc, float* y) {
  const int64_t group = std::max<int64_t>(1, 1024 / std::max<int64_t>(1, oc));  // pixels that stay in the first cache
  for (int64_t next; b < end; b = next) {
    next = std::min(end, b + group);
    for (int64_t p = b; p < next; ++p) {
      float* pixel = y + p * oc;
      const float* add = e.add ? e.add + p * oc : nullptr;
      each_vector(oc, [&](int64_t c, int k) {
        VF v = load_n(pixel + c, k);
        if (e.bias) v = hn::Add(v, load_n(e.bias + c, k));
        if (e.scale) v = hn::Add(hn::Mul(v, load_n(e.scale + c, k)), load_n(e.shift + c, k));
        if (add) v = hn::Add(v, load_n(add + c, k));
        if (e.act) v = activate(e.act, v);
        store_n(v, pixel + c, k);
      });
    }
    e.finish(y + b * oc, (next - b) * oc);
  }
}

void sum_parts(const float* parts, int64_t n, int64_t count, float* to) {
  if (count == 1 && parts == to) return;
  parallel_for((n + 15) / 16, value_grain(16), [&](int64_t b, int64_t end) {
    const int64_t from = b * 16, len = std::min(n, end * 16) - from;
    each_vector(len, [&](int64_t i, int k) {
      VF v = load_n(parts + from + i, k);
      for (int64_t p = 1; p < count; ++p) v = hn::Add(v, load_n(parts + p * n + from + i, k));
      store_n(v, to + from + i, k);
    });
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {
HWY_EXPORT(epilogue_planes);
HWY_EXPORT(epilogue_last);
HWY_EXPORT(sum_parts);
void dispatch_epilogue_last(const simd::Epilogue& e, int64_t b, int64_t end, int64_t oc, float* y) {
  HWY_DYNAMIC_DISPATCH(epilogue_last)(e, b, end, oc, y);
}
void dispatch_sum_parts(const float* parts, int64_t n, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(sum_parts)(parts, n, count, to);
}
void dispatch_epilogue(const simd::Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y) {
  HWY_DYNAMIC_DISPATCH(epilogue_planes)(e, n, oc, pixels, y);
}
}  // namespace mge::simd_nn
void mge::simd::epilogue_pass(const Epilogue& e, int64_t n, int64_t oc, int64_t pixels, float* y) {
  simd_nn::dispatch_epilogue(e, n, oc, pixels, y);
}
void mge::simd::epilogue_last(const Epilogue& e, int64_t begin, int64_t end, int64_t oc, float* y) {
  simd_nn::dispatch_epilogue_last(e, begin, end, oc, y);
}
void mge::simd::epilogue_pass_last(const Epilogue& e, int64_t pixels, int64_t oc, float* y) {
  parallel_for(pixels, value_grain(oc), [&](int64_t b, int64_t end) { epilogue_last(e, b, end, oc, y); });
}
void mge::simd::add_parts(const float* parts, int64_t n, int64_t count, float* to) {
  simd_nn::dispatch_sum_parts(parts, n, count, to);
}
#endif
