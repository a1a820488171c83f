// conv2d and conv2d_fused reach the same convolution with an epilogue that rounds each step, so their bits agree.
#include "op/conv/conv2d.h"
#include "kernel/layouts.h"
#include "kernel/simd/conv/conv2d_last.h"
#include "kernel/simd/conv/conv2d_raw.h"
#include "kernel/simd/conv/epilogue.h"
#include "kernel/simd/nn_simd.h"

namespace mge::simd_nn {
namespace {

simd::Conv2dGeom raw(const Conv2dGeom& g) {
  return {.n = g.n,
          .c = g.c,
          .h = g.h,
          .w = g.w,
          .oc = g.o,
          .oh = g.oh,
          .ow = g.ow,
          .kh = g.kh,
          .kw = g.kw,
          .sh = g.sh,
          .sw = g.sw,
          .ph = g.ph,
          .pw = g.pw,
          .dh = g.dh,
          .dw = g.dw,
          .groups = g.groups};
}

// What conv2d and conv2d_fused do with their sums.
simd::Epilogue epilogue_of(const KernelArgs& a) {
  if (a.op->name == "conv2d") return {.bias = a.in.size() == 3 ? a.in[2].data<float>() : nullptr};
  if (a.op->name != "conv2d_fused") return {};
  const auto& at = a.as<Conv2dFusedAttrs>();
  Conv2dExtras x = conv2d_extras(at);
  auto extra = [&](int i) -> const float* { return i < 0 ? nullptr : a.in[static_cast<size_t>(i)].data<float>(); };
  return {extra(x.bias), extra(x.scale), extra(x.shift), extra(x.add), at.act == "relu" ? 1 : 0};
}

// ---- plain memory

void run_fwd(const KernelArgs& a) {
  const simd::Epilogue e = epilogue_of(a);
  const bool any = e.bias || e.scale || e.add || e.act;
  simd::conv2d_fwd(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>(),
                   any ? &e : nullptr);
}
void run_dx(const KernelArgs& a) {
  simd::conv2d_bwd_data(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>());
}
void run_dw(const KernelArgs& a) {
  simd::conv2d_bwd_weight(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>());
}

// ---- depthwise on channels-last memory

const char* refuse_depthwise(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const Conv2dGeom g = conv2d_geom_of(a);
  if (g.groups != g.c || g.groups != g.o) return "not one filter per channel";
  if (g.c < 16) return "few channels; plain memory is faster";
  if (g.kh * g.kw > 64) return "large filter";
  if (g.n * g.oh * g.ow * g.h * g.w == 0) return "empty";
  return nullptr;
}

// The forward pass keeps the order its image comes in, with the same bits in both.
void depthwise_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  if (in_channels_last(in[0])) return conv2d_last_layouts(a, in, out);
  for (size_t i = 0; i < a.in.size(); ++i) ask_row_major(in[i]);
}
void run_depthwise(const KernelArgs& a) {
  if (!in_channels_last(a.in[0])) return run_fwd(a);
  simd::depthwise_last_fwd(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                           a.out[0].data<float>());
  conv2d_last_epilogue(a);
}
void run_depthwise_dx(const KernelArgs& a) {
  simd::depthwise_last_bwd_data(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                                a.out[0].data<float>());
}
void run_depthwise_dw(const KernelArgs& a) {
  simd::depthwise_last_bwd_weight(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                                  a.out[0].data<float>());
}

// ---- adjoints as products, on channels-last memory

const char* refuse_product(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const Conv2dGeom g = conv2d_geom_of(a);
  if (g.groups != 1) return "groups";
  const int64_t pixels = g.n * g.oh * g.ow;
  if (pixels * g.h * g.w == 0) return "empty";
  // One plain sum over all pixels; other kernels add up parts, which loses fewer digits.
  const int64_t most = g.kh * g.kw == 1 ? 1 << 14 : g.sh * g.sw > 1 ? 4096 : 1024;
  if (a.op->name == "conv2d_dw" && pixels > most) return "sums too long";
  return nullptr;
}
const char* avoid_product(const KernelArgs& a) {
  return conv2d_is_product(conv2d_geom_of(a), a.op->name == "conv2d_dw") ? nullptr : "not so few pixels";
}
void run_product_dx(const KernelArgs& a) {
  simd::product_last_bwd_data(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                              a.out[0].data<float>());
}
void run_product_dw(const KernelArgs& a) {
  simd::product_last_bwd_weight(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                                a.out[0].data<float>());
}

// ---- 3x3 by transformed tiles, on channels-last memory

bool can_be_winograd(const Conv2dGeom& g) {
  return g.kh == 3 && g.kw == 3 && g.sh * g.sw == 1 && g.dh * g.dw == 1 && g.groups == 1 && g.ph <= 2 && g.pw <= 2 &&
         g.c > 0 && g.o > 0 && g.c % 16 == 0 && g.o % 16 == 0 && g.n * g.oh * g.ow * g.h * g.w > 0;
}
const char* refuse_winograd(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  return can_be_winograd(conv2d_geom_of(a)) ? nullptr : "not a 3x3 of stride 1 with channels in sixteens";
}
const char* avoid_winograd(const KernelArgs& a) {
  return conv2d_is_winograd(conv2d_geom_of(a)) ? nullptr : "few channels or tiles";
}
void run_winograd(const KernelArgs& a) {
  simd::winograd_last_fwd(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>());
  conv2d_last_epilogue(a);
}
void run_winograd_dx(const KernelArgs& a) {
  simd::winograd_last_bwd_data(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                               a.out[0].data<float>());
}
void run_winograd_dw(const KernelArgs& a) {
  simd::winograd_last_bwd_weight(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                                 a.out[0].data<float>());
}

// ---- weights of a first layer

const char* refuse_few(const KernelArgs& a) {
  if (const char* why = refuse_not_f32(a)) return why;
  const Conv2dGeom g = conv2d_geom_of(a);
  if (g.groups != 1 || g.c > 4 || g.c < 2) return "not two to four channels";
  if (g.o % 16) return "output channels are not a multiple of 16";
  if (g.n * g.oh * g.ow * g.h * g.w == 0) return "empty";
  return nullptr;
}
void few_layouts(const KernelArgs&, TensorArg* in, TensorArg*) {
  ask_row_major(in[0]);
  ask_channels_last(in[1]);
}
void run_few_dw(const KernelArgs& a) {
  simd::few_channels_bwd_weight(raw(conv2d_geom_of(a)), a.in[0].data<float>(), a.in[1].data<float>(),
                                a.out[0].data<float>());
}

void dx_layouts(const KernelArgs&, TensorArg* in, TensorArg* out) {
  ask_channels_last(in[0]);
  ask_channels_last(out[0]);
}
void dw_layouts(const KernelArgs&, TensorArg* in, TensorArg*) {
  ask_channels_last(in[0]);
  ask_channels_last(in[1]);
}

void add_last(KernelRegistry& r, const char* op, const char* name, const char* (*refuse)(const KernelArgs&),
              void (*run)(const KernelArgs&), void (*layouts)(const KernelArgs&, TensorArg*, TensorArg*),
              const char* (*avoid)(const KernelArgs&) = nullptr) {
  r.add(op, KernelTier::Simd, Kernel{.name = name, .refuse = refuse, .run = run, .layouts = layouts, .avoid = avoid});
}

}  // namespace

Conv2dGeom conv2d_geom_of(const KernelArgs& a) {
  const std::string& op = a.op->name;
  if (op == "conv2d") return conv2d_geom(a.as<Conv2dAttrs>(), a.in[0].shape, a.in[1].shape);
  if (op == "conv2d_fused") return conv2d_geom(a.as<Conv2dFusedAttrs>(), a.in[0].shape, a.in[1].shape);
  if (op == "conv2d_dx") return conv2d_geom(a.as<Conv2dDxAttrs>(), a.out[0].shape, a.in[1].shape);
  return conv2d_geom(a.as<Conv2dDwAttrs>(), a.in[0].shape, a.out[0].shape);
}

void conv2d_last_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  for (size_t i = 0; i < a.in.size(); ++i) ask_row_major(in[i]);
  ask_channels_last(in[0]);
  ask_channels_last(out[0]);
  if (a.op->name == "conv2d_fused")
    if (int add = conv2d_extras(a.as<Conv2dFusedAttrs>()).add; add >= 0) ask_channels_last(in[add]);
}

void conv2d_last_epilogue(const KernelArgs& a) {
  const Conv2dGeom g = conv2d_geom_of(a);
  const simd::Epilogue e = epilogue_of(a);
  if (e.bias || e.scale || e.add || e.act) simd::epilogue_pass_last(e, g.n * g.oh * g.ow, g.o, a.out[0].data<float>());
}

bool conv2d_is_winograd(const Conv2dGeom& g) {
  const int64_t tiles = g.n * ((g.oh + 1) / 2) * ((g.ow + 1) / 2);
  return can_be_winograd(g) && g.c >= 32 && g.o >= 32 && tiles >= (g.c * g.o < 1 << 16 ? 48 : 128);
}

bool conv2d_is_product(const Conv2dGeom& g, bool of_weights) {
  const int64_t pixels = g.n * g.oh * g.ow, weights = g.o * g.c * g.kh * g.kw;
  if (g.groups != 1 || pixels == 0 || g.h * g.w == 0) return false;
  const bool strided = g.sh * g.sw > 1, one_tap = g.kh * g.kw == 1;
  // NOTE(perf): GFLOP/s on 2 cores of the product against oneDNN. Weights, batch 16: 512 3x3 on 7x7 193/121, 512 3x3 s2
  // on 14x14 179/90, 1024 to 2048 1x1 s2 192/157, 256 to 1024 1x1 on 14x14 192/144; data: 512 to 2048 1x1 on 7x7
  // 207/148. With more taps per pixel oneDNN reads the image less often: 256 3x3 on 14x14 173/220.
  if (one_tap && !strided && g.ph == 0 && g.pw == 0) return weights >= 1 << 15 && pixels <= 1 << 14;
  if (weights < 1 << 18) return false;
  if (of_weights) return pixels <= (strided ? 4096 : 1024);
  return pixels <= (strided && one_tap ? 4096 : 512);
}

void register_conv2d(KernelRegistry& r) {
  for (const char* op : {"conv2d", "conv2d_fused"})
    add_last(r, op, "simd_conv2d_winograd", refuse_winograd, run_winograd, conv2d_last_layouts, avoid_winograd);
  add_last(r, "conv2d_dx", "simd_conv2d_dx_winograd", refuse_winograd, run_winograd_dx, dx_layouts, avoid_winograd);
  add_last(r, "conv2d_dw", "simd_conv2d_dw_winograd", refuse_winograd, run_winograd_dw, dw_layouts, avoid_winograd);
  for (const char* op : {"conv2d", "conv2d_fused"})
    add_last(r, op, "simd_conv2d_depthwise", refuse_depthwise, run_depthwise, depthwise_layouts);
  add_last(r, "conv2d_dx", "simd_conv2d_dx_depthwise", refuse_depthwise, run_depthwise_dx, dx_layouts);
  add_last(r, "conv2d_dw", "simd_conv2d_dw_depthwise", refuse_depthwise, run_depthwise_dw, dw_layouts);
  add_last(r, "conv2d_dx", "simd_conv2d_dx_product", refuse_product, run_product_dx, dx_layouts, avoid_product);
  add_last(r, "conv2d_dw", "simd_conv2d_dw_product", refuse_product, run_product_dw, dw_layouts, avoid_product);
  add_last(r, "conv2d_dw", "simd_conv2d_dw_few", refuse_few, run_few_dw, few_layouts);
  for (const char* op : {"conv2d", "conv2d_fused"}) add(r, op, "simd_conv2d", run_fwd);
  add(r, "conv2d_dx", "simd_conv2d_dx", run_dx);
  add(r, "conv2d_dw", "simd_conv2d_dw", run_dw);
}

}  // namespace mge::simd_nn
