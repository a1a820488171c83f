// batch_norm_train, batch_norm_bwd and batch_norm_infer; how they sum is in batch_norm-inl.h.
#include "kernel/simd/norm/batch_norm.h"

#include <cmath>

#include "base/cost.h"
#include "base/parallel.h"
#include "core/half.h"
#include "kernel/simd/elementwise/rows.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/norm/batch_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/norm/batch_norm-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

void batch_norm_train(const KernelArgs& a) { train<NoAct>(a, a.as<BatchNormAttrs>().eps, nullptr); }
void batch_norm_bwd(const KernelArgs& a) { bwd<NoAct>(a, nullptr); }

// Each step rounded: the bits of the decomposition.
void batch_norm_infer(const KernelArgs& a) {
  BnPlan p(a.in[0]);
  float eps = static_cast<float>(a.as<BatchNormAttrs>().eps);
  const float *x = a.in[0].data<float>(), *w = a.in[1].data<float>(), *b = a.in[2].data<float>(),
              *mean = a.in[3].data<float>(), *var = a.in[4].data<float>();
  float *y = a.out[0].data<float>(), *scale = static_cast<float*>(a.workspace), *shift = scale + p.g.channels;
  each_vector(p.g.channels, [&](int64_t c, int k) {
    VF s = hn::Div(load_n(w + c, k), hn::Sqrt(hn::Add(load_n(var + c, k), set(eps))));
    store_n(s, scale + c, k);
    store_n(hn::Sub(load_n(b + c, k), hn::Mul(load_n(mean + c, k), s)), shift + c, k);
  });
  each_element(p, x, nullptr, y, [&](auto of) HWY_ATTR {
    return [x, s = of(scale), t = of(shift)](int64_t i, int k)
               HWY_ATTR { return hn::Add(hn::Mul(load_n(x + i, k), s), t); };
  });
}

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {

void batch_norm_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const bool last = in_channels_last(in[0]);
  for (size_t i = 0; i < a.in.size(); ++i) {
    if (last && in[i].shape == in[0].shape)
      ask_channels_last(in[i]);
    else
      ask_row_major(in[i]);
  }
  if (last) ask_channels_last(out[0]);
}

namespace {

// Evaluation in 16 bits, each step rounded by the rows of its op: the bits of the decomposition.
struct Infer16 {
  explicit Infer16(DType t) : half(t == DType::F16) {
    auto row = [](const char* op, DType from, DType to) {
      const OpDef* d = OpRegistry::global().find(op);  // a build for given models may be without it
      return d ? find_row(*d, from, to) : nullptr;
    };
    widen = row("typecvt", t, DType::F32), narrow = row("typecvt", DType::F32, t);
    mul = row("mul", DType::F32, DType::F32), add = row("add", DType::F32, DType::F32);
  }
  bool all() const { return widen && narrow && mul && add; }
  float wide(uint16_t v) const { return half ? half_to_float(v) : bfloat_to_float(v); }
  float rounded(float v) const { return wide(half ? float_to_half(v) : float_to_bfloat(v)); }
  // y = x * scale + shift; those are one number each, or one for each element.
  void row(const uint16_t* x, const float* scale, const float* shift, int64_t step, int64_t n, uint16_t* y) const {
    constexpr int64_t kTile = 512;
    HWY_ALIGN float wide[kTile];
    HWY_ALIGN uint16_t product[kTile];
    const int64_t one[] = {1}, two[] = {1, step};
    for (; n > 0; n -= kTile, x += kTile, y += kTile, scale += step * kTile, shift += step * kTile) {
      const int64_t now = std::min(n, kTile);
      const void *from[] = {x}, *by[] = {wide, scale}, *back[] = {product}, *plus[] = {wide, shift}, *last[] = {wide};
      widen(from, one, wide, now);
      mul(by, two, wide, now);
      narrow(last, one, product, now);
      widen(back, one, wide, now);
      add(plus, two, wide, now);
      narrow(last, one, y, now);
    }
  }
  bool half;
  RowFn widen, narrow, mul, add;
};

void batch_norm_infer_16(const KernelArgs& a) {
  const BatchNormGeom g = batch_norm_geom(a.in[0].shape);
  const Infer16 steps(a.out[0].dtype);
  const float eps = steps.rounded(static_cast<float>(a.as<BatchNormAttrs>().eps));
  auto *scale = static_cast<float*>(a.workspace), *shift = scale + g.channels;
  for (int64_t c = 0; c < g.channels; ++c) {
    auto at = [&](size_t i) { return steps.wide(a.in[i].data<uint16_t>()[c]); };
    auto r = [&](float v) { return steps.rounded(v); };
    scale[c] = r(at(1) / r(std::sqrt(r(at(4) + eps))));
    shift[c] = r(at(2) - r(at(3) * scale[c]));
  }
  const auto* x = a.in[0].data<uint16_t>();
  auto* y = a.out[0].data<uint16_t>();
  if (g.inner == 1)  // rows of all channels
    return parallel_for(g.outer, value_grain(4 * g.channels), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) steps.row(x + b * g.channels, scale, shift, 1, g.channels, y + b * g.channels);
    });
  parallel_for(g.outer * g.channels, value_grain(4 * g.inner), [&](int64_t b, int64_t e) {
    for (; b < e; ++b)
      steps.row(x + b * g.inner, scale + b % g.channels, shift + b % g.channels, 0, g.inner, y + b * g.inner);
  });
}
const char* refuse_not_16(const KernelArgs& a) {
  const DType t = a.out[0].dtype;
  if (t != DType::F16 && t != DType::BF16) return "needs 16-bit floats";
  for (const TensorArg& x : a.in)
    if (x.dtype != t) return "operands of several dtypes";
  return Infer16(t).all() ? nullptr : "no rows of its steps";
}
const char* avoid_few_pixels(const KernelArgs& a) {
  const int64_t pixels = batch_norm_geom(a.in[0].shape).inner;
  return pixels > 1 && pixels < 16 ? "few pixels; rows are not worth their calls" : nullptr;
}

}  // namespace

HWY_EXPORT(batch_norm_train);
HWY_EXPORT(batch_norm_bwd);
HWY_EXPORT(batch_norm_infer);

void register_batch_norm(KernelRegistry& r) {
  add(r, "batch_norm_train", "simd_batch_norm_train",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_train)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
  add(r, "batch_norm_bwd", "simd_batch_norm_bwd",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_bwd)
        (a);
      },
      {.workspace = bn_workspace, .alias = {1, -1, -1, -1}, .layouts = batch_norm_layouts});
  add(r, "batch_norm_infer", "simd_batch_norm_infer",
      [](const KernelArgs& a) {
        HWY_DYNAMIC_DISPATCH(batch_norm_infer)
        (a);
      },
      {.flags = kInPlace0, .workspace = bn_workspace, .layouts = batch_norm_layouts});
  if constexpr (dtype_in_build(DType::F16) || dtype_in_build(DType::BF16))
    r.add("batch_norm_infer", KernelTier::Simd,
          Kernel{.name = "simd_batch_norm_infer_16bit",
                 .refuse = refuse_not_16,
                 .run = batch_norm_infer_16,
                 .workspace = [](const KernelArgs& a) -> size_t {
                   return static_cast<size_t>(2 * a.in[0].shape[1]) * sizeof(float);
                 },
                 .flags = kInPlace0,
                 .avoid = avoid_few_pixels});
}

}  // namespace mge::simd_nn
#endif
