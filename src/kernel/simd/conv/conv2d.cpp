// conv2d and conv2d_fused reach the same convolution with an epilogue that rounds each step, so their bits agree.
#include <algorithm>
#include <type_traits>

#include "base/features.h"
#include "kernel/conv.h"
#include "kernel/cost.h"
#include "kernel/layouts.h"
#include "kernel/rows.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw.h"
#include "kernel/simd/conv/epilogue.h"
#include "kernel/simd/elementwise/rows.h"
#include "kernel/simd/nn_simd.h"
#include "op/in_build.h"

namespace mge::simd_nn {
namespace {

// What conv2d and conv2d_fused do with their sums.
template <class A>
simd::Epilogue epilogue_of(const KernelArgs& a) {
  if constexpr (std::is_same_v<A, Conv2dFusedAttrs>) {
    const auto& at = a.as<Conv2dFusedAttrs>();
    Conv2dExtras x = conv2d_extras(at);
    auto extra = [&](int i) -> const float* { return i < 0 ? nullptr : a.in[static_cast<size_t>(i)].data<float>(); };
    const int act = at.act == "relu" ? 1 : at.act == "relu6" ? 2 : 0;
    const bool other = !act && at.act != "none";
    return {extra(x.bias),
            extra(x.scale),
            extra(x.shift),
            extra(x.add),
            act,
            other ? find_row(OpRegistry::global().get(at.act), DType::F32, DType::F32) : nullptr,
            static_cast<float>(at.slope)};
  } else {
    const bool bias = A::kRole == ConvRole::Forward && a.in.size() == 3;
    return {.bias = bias ? a.in[2].data<float>() : nullptr};
  }
}

template <class A>
const char* refuse_plain(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const simd::FwdPaths may = simd::conv2d_fwd_paths(conv_geom_of<A>(a));
  if (may.channels) note("conv_channels");
  if (may.gemm) note("conv_gemm");
  return nullptr;
}

// A raw kernel on the operands as they come; what its sums go through then is a pass of its own.
using Raw = void (*)(const ConvGeom&, const float*, const float*, float*);
template <class A, Raw raw>
void run(const KernelArgs& a) {
  raw(conv_geom_of<A>(a), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>());
  conv2d_last_epilogue<A>(a);
}

// ---- plain memory

template <class A>
void run_fwd(const KernelArgs& a) {
  const simd::Epilogue e = epilogue_of<A>(a);
  simd::conv2d_fwd(conv_geom_of<A>(a), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>(),
                   e.any() ? &e : nullptr);
}

// ---- rows of the forward convolutions on channels-last memory

template <class A>
RowRange conv_needs(const KernelArgs& a, RowRange of) {
  const ConvGeom g = conv_geom_of<A>(a);
  const int64_t first = std::clamp<int64_t>(of.first * g.sh - g.ph, 0, g.h);
  return {first, std::clamp<int64_t>((of.last - 1) * g.sh - g.ph + (g.kh - 1) * g.dh + 1, first, g.h)};
}

// ---- depthwise on channels-last memory

template <class A>
const char* refuse_depthwise(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const ConvGeom g = conv_geom_of<A>(a);
  if (g.groups != g.c || g.groups != g.o) return "not one filter per channel";
  if (g.c < 16) return "few channels; plain memory is faster";
  if (g.kh * g.kw > 64) return "large filter";
  return g.empty() ? "empty" : nullptr;
}

// The forward pass keeps the order its image comes in, with the same bits in both.
template <class A>
void depthwise_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  if (in_channels_last(in[0])) return conv2d_last_layouts<A>(a, in, out);
  for (size_t i = 0; i < a.in.size(); ++i) ask_row_major(in[i]);
}
template <class A>
size_t depthwise_prepared(const KernelArgs& a) {
  return in_channels_last(a.in[0]) ? static_cast<size_t>(simd::depthwise_floats(conv_geom_of<A>(a))) * sizeof(float)
                                   : 0;
}
template <class A>
void prepare_depthwise(const KernelArgs& a, void* to) {
  simd::depthwise_last_weights(conv_geom_of<A>(a), a.in[1].data<float>(), static_cast<float*>(to));
}
template <class A>
void run_depthwise(const KernelArgs& a) {
  if (!in_channels_last(a.in[0])) return run_fwd<A>(a);
  const simd::Epilogue e = epilogue_of<A>(a), *done = e.any() ? &e : nullptr;
  const ConvGeom g = conv_geom_of<A>(a);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  if (a.prepared) return simd::depthwise_last_fwd_taps(g, x, static_cast<const float*>(a.prepared), y, done);
  simd::depthwise_last_fwd(g, x, a.in[1].data<float>(), y, done);
}
template <class A>
void depthwise_rows(const KernelArgs& a, int64_t image, RowRange of) {
  const simd::Epilogue e = epilogue_of<A>(a);
  const ConvGeom g = conv_geom_of<A>(a);
  simd::depthwise_last_rows(g, a.in[0].data<float>(), static_cast<const float*>(a.prepared), a.out[0].data<float>(),
                            e.any() ? &e : nullptr, image * g.oh + of.first, image * g.oh + of.last);
}
template <class A>
inline constexpr RowsKernel kDepthwiseRows{conv_needs<A>, depthwise_rows<A>};

// ---- adjoints as products, on channels-last memory

template <class A>
const char* refuse_product(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const ConvGeom g = conv_geom_of<A>(a);
  if (g.groups != 1) return "groups";
  if (g.empty()) return "empty";
  // One plain sum over all pixels; other kernels add up parts, which loses fewer digits.
  if (A::kRole == ConvRole::WeightGrad && g.n * g.oh * g.ow > cost::product_longest_sum(g)) return "sums too long";
  return nullptr;
}
template <class A>
const char* avoid_product(const KernelArgs& a) {
  return cost::product_pays(conv_geom_of<A>(a), A::kRole) ? nullptr : "not so few pixels";
}

// ---- 3x3 by transformed tiles, on channels-last memory

template <class A>
const char* refuse_winograd(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  if (!cost::winograd_can(conv_geom_of<A>(a))) return "not a 3x3 of stride 1 with channels in sixteens";
  note("winograd");
  return nullptr;
}
template <class A>
const char* avoid_winograd(const KernelArgs& a) {
  return cost::winograd_pays(conv_geom_of<A>(a), A::kRole) ? nullptr : "few channels or tiles";
}

template <class A, int kSide>
size_t winograd_prepared(const KernelArgs& a) {
  if (!has("winograd")) return 0;
  return static_cast<size_t>(simd::winograd_floats(conv_geom_of<A>(a), kSide)) * sizeof(float);
}
template <class A, int kSide>
void prepare_winograd(const KernelArgs& a, void* to) {
  if (!has("winograd")) return;
  simd::winograd_last_weights(conv_geom_of<A>(a), a.in[1].data<float>(), static_cast<float*>(to), kSide);
}
// Who never asked keeps the place in the list: where these tiles pay no other kernel is taken, which would round
// otherwise.
template <class A, int kSide>
void run_winograd(const KernelArgs& a) {
  require("winograd", "conv2d by transformed tiles");
  const simd::Epilogue e = epilogue_of<A>(a), *done = e.any() ? &e : nullptr;
  const ConvGeom g = conv_geom_of<A>(a);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  if (a.prepared) return simd::winograd_last_fwd_prepared(g, x, static_cast<const float*>(a.prepared), y, done, kSide);
  simd::winograd_last_fwd(g, x, a.in[1].data<float>(), y, done, kSide);
}

// ---- the same with tiles of 4x4

template <class A>
const char* refuse_winograd4(const KernelArgs& a) {
  if (cost::winograd_largest() < 4) return "MGE_WINOGRAD asks for smaller tiles";
  return refuse_winograd<A>(a);
}
template <class A>
const char* avoid_winograd4(const KernelArgs& a) {
  return cost::winograd4_pays(conv_geom_of<A>(a)) ? nullptr : "few channels or tiles";
}
// ---- a product over pixels, on channels-last memory

template <class A>
const char* refuse_lines(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  return cost::lines_can(conv_geom_of<A>(a)) ? nullptr : "groups or few channels";
}
template <class A>
const char* avoid_lines(const KernelArgs& a) {
  return cost::lines_pays(conv_geom_of<A>(a)) ? nullptr : "small";
}
template <class A>
size_t lines_prepared(const KernelArgs& a) {
  return static_cast<size_t>(simd::lines_floats(conv_geom_of<A>(a))) * sizeof(float);
}
template <class A>
void prepare_lines(const KernelArgs& a, void* to) {
  simd::lines_last_weights(conv_geom_of<A>(a), a.in[1].data<float>(), static_cast<float*>(to));
}
template <class A>
void run_lines(const KernelArgs& a) {
  const simd::Epilogue e = epilogue_of<A>(a), *done = e.any() ? &e : nullptr;
  const ConvGeom g = conv_geom_of<A>(a);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  if (a.prepared) return simd::lines_last_fwd_panels(g, x, static_cast<const float*>(a.prepared), y, done);
  simd::lines_last_fwd(g, x, a.in[1].data<float>(), y, done);
}
template <class A>
void lines_rows(const KernelArgs& a, int64_t image, RowRange of) {
  const simd::Epilogue e = epilogue_of<A>(a);
  const ConvGeom g = conv_geom_of<A>(a);
  simd::lines_last_rows(g, a.in[0].data<float>(), static_cast<const float*>(a.prepared), a.out[0].data<float>(),
                        e.any() ? &e : nullptr, image * g.oh + of.first, image * g.oh + of.last);
}
template <class A>
inline constexpr RowsKernel kLinesRows{conv_needs<A>, lines_rows<A>};

// ---- a first layer: planes in, channels-last out

template <class A>
const char* refuse_first(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  return cost::first_can(conv_geom_of<A>(a)) ? nullptr : "groups or more than four channels";
}
template <class A>
const char* avoid_first(const KernelArgs& a) {
  return cost::first_pays(conv_geom_of<A>(a)) ? nullptr : "small";
}
template <class A>
void first_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  conv2d_last_layouts<A>(a, in, out);
  ask_row_major(in[0]);
}
template <class A>
size_t first_prepared(const KernelArgs& a) {
  return static_cast<size_t>(simd::first_floats(conv_geom_of<A>(a))) * sizeof(float);
}
template <class A>
void prepare_first(const KernelArgs& a, void* to) {
  simd::first_last_weights(conv_geom_of<A>(a), a.in[1].data<float>(), static_cast<float*>(to));
}
template <class A>
void run_first(const KernelArgs& a) {
  const simd::Epilogue e = epilogue_of<A>(a), *done = e.any() ? &e : nullptr;
  const ConvGeom g = conv_geom_of<A>(a);
  const float* x = a.in[0].data<float>();
  float* y = a.out[0].data<float>();
  if (a.prepared) return simd::first_last_fwd_panels(g, x, static_cast<const float*>(a.prepared), y, done);
  simd::first_last_fwd(g, x, a.in[1].data<float>(), y, done);
}
template <class A>
void first_rows(const KernelArgs& a, int64_t image, RowRange of) {
  const simd::Epilogue e = epilogue_of<A>(a);
  simd::first_last_rows(conv_geom_of<A>(a), a.in[0].data<float>(), static_cast<const float*>(a.prepared),
                        a.out[0].data<float>(), e.any() ? &e : nullptr, image, of.first, of.last);
}
template <class A>
inline constexpr RowsKernel kFirstRows{conv_needs<A>, first_rows<A>};

// ---- weights of a first layer

const char* refuse_few(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
  if (g.groups != 1 || g.c > 4 || g.c < 2) return "not two to four channels";
  if (g.o % 16) return "output channels are not a multiple of 16";
  return g.empty() || g.o == 0 ? "empty" : nullptr;
}
void few_layouts(const KernelArgs&, TensorArg* in, TensorArg*) {
  ask_row_major(in[0]);
  ask_channels_last(in[1]);
}

// ---- the lists

using Why = const char* (*)(const KernelArgs&);
using Layouts = void (*)(const KernelArgs&, TensorArg*, TensorArg*);
template <class A>
MGE_INLINED inline void add_last(KernelRegistry& r, const char* name, Why refuse, void (*run)(const KernelArgs&),
                                 Why avoid = nullptr, Layouts layouts = conv2d_last_layouts<A>,
                                 Kernel::Prepare prepare = {}, const RowsKernel* rows = nullptr) {
  r.add(A::kOp, KernelTier::Simd,
        Kernel{.name = name, .refuse = refuse, .run = run, .layouts = layouts, .avoid = avoid, .prepare = prepare});
  if (rows && OpName(A::kOp).here) add_rows(run, *rows);
}

template <class A>
MGE_INLINED inline void add_forward(KernelRegistry& r) {
  add_last<A>(r, "simd_conv2d_winograd4", refuse_winograd4<A>, run_winograd<A, 4>, avoid_winograd4<A>,
              conv2d_last_layouts<A>, {1, winograd_prepared<A, 4>, prepare_winograd<A, 4>});
  add_last<A>(r, "simd_conv2d_winograd", refuse_winograd<A>, run_winograd<A, 2>, avoid_winograd<A>,
              conv2d_last_layouts<A>, {1, winograd_prepared<A, 2>, prepare_winograd<A, 2>});
  add_last<A>(r, "simd_conv2d_lines", refuse_lines<A>, run_lines<A>, avoid_lines<A>, conv2d_last_layouts<A>,
              {1, lines_prepared<A>, prepare_lines<A>}, &kLinesRows<A>);
  add_last<A>(r, "simd_conv2d_first", refuse_first<A>, run_first<A>, avoid_first<A>, first_layouts<A>,
              {1, first_prepared<A>, prepare_first<A>}, &kFirstRows<A>);
  add_last<A>(r, "simd_conv2d_depthwise", refuse_depthwise<A>, run_depthwise<A>, nullptr, depthwise_layouts<A>,
              {1, depthwise_prepared<A>, prepare_depthwise<A>}, &kDepthwiseRows<A>);
  r.add(A::kOp, KernelTier::Simd, Kernel{.name = "simd_conv2d", .refuse = refuse_plain<A>, .run = run_fwd<A>});
}

}  // namespace

template <class A>
void conv2d_last_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  for (size_t i = 0; i < a.in.size(); ++i) ask_row_major(in[i]);
  ask_channels_last(in[0]);
  ask_channels_last(A::kRole == ConvRole::WeightGrad ? in[1] : out[0]);
  if constexpr (std::is_same_v<A, Conv2dFusedAttrs>)
    if (int add = conv2d_extras(a.as<A>()).add; add >= 0) ask_channels_last(in[add]);
}

template <class A>
void conv2d_last_epilogue(const KernelArgs& a) {
  if constexpr (A::kRole == ConvRole::Forward) {
    const ConvGeom g = conv_geom_of<A>(a);
    const simd::Epilogue e = epilogue_of<A>(a);
    if (e.any()) simd::epilogue_pass_last(e, g.n * g.oh * g.ow, g.o, a.out[0].data<float>());
  }
}

#define MGE_CONV2D(A)                                                              \
  template void conv2d_last_layouts<A>(const KernelArgs&, TensorArg*, TensorArg*); \
  template void conv2d_last_epilogue<A>(const KernelArgs&);
MGE_CONV2D(Conv2dAttrs)
MGE_CONV2D(Conv2dFusedAttrs)
MGE_CONV2D(Conv2dDxAttrs)
MGE_CONV2D(Conv2dDwAttrs)
#undef MGE_CONV2D

void register_conv2d(KernelRegistry& r) {
  add_forward<Conv2dAttrs>(r);
  add_forward<Conv2dFusedAttrs>(r);

  using Dx = Conv2dDxAttrs;
  add_last<Dx>(r, "simd_conv2d_dx_winograd", refuse_winograd<Dx>, run<Dx, simd::winograd_last_bwd_data>,
               avoid_winograd<Dx>);
  add_last<Dx>(r, "simd_conv2d_dx_depthwise", refuse_depthwise<Dx>, run<Dx, simd::depthwise_last_bwd_data>);
  add_last<Dx>(r, "simd_conv2d_dx_product", refuse_product<Dx>, run<Dx, simd::product_last_bwd_data>,
               avoid_product<Dx>);
  add(r, Dx::kOp, "simd_conv2d_dx", run<Dx, simd::conv2d_bwd_data>);

  using Dw = Conv2dDwAttrs;
  add_last<Dw>(r, "simd_conv2d_dw_winograd", refuse_winograd<Dw>, run<Dw, simd::winograd_last_bwd_weight>,
               avoid_winograd<Dw>);
  add_last<Dw>(r, "simd_conv2d_dw_depthwise", refuse_depthwise<Dw>, run<Dw, simd::depthwise_last_bwd_weight>);
  add_last<Dw>(r, "simd_conv2d_dw_product", refuse_product<Dw>, run<Dw, simd::product_last_bwd_weight>,
               avoid_product<Dw>);
  add_last<Dw>(r, "simd_conv2d_dw_few", refuse_few, run<Dw, simd::few_channels_bwd_weight>, nullptr, few_layouts);
  add(r, Dw::kOp, "simd_conv2d_dw", run<Dw, simd::conv2d_bwd_weight>);
}

}  // namespace mge::simd_nn
