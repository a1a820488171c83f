// Convolutions with many channels. k x k: reorder to the blocked layout oneDNN asks for, convolve, reorder back. 1 x 1
// on one image: a product of matrices as they lie. Weight gradients stay with simd: oneDNN's depend on the number of
// threads. conv2d and conv2d_fused take the same path for the same geometry and apply the epilogue as a pass, so their
// bits agree.
#include "op/conv2d.h"
#include "base/parallel.h"
#include "kernel/onednn/leaf.h"
#include "kernel/simd/nn_epilogue.h"

namespace mge::onednn {
namespace {

// in x weight -> out, each through a blocked copy in the workspace unless the plain layout is what oneDNN wants.
struct Blocked {
  struct Side {
    dnnl::memory user, blocked;
    dnnl::reorder reorder;
    size_t offset = 0;
    bool copies = false;
  };
  dnnl::primitive conv;
  int arg[3];
  Side side[3];  // data in, weight, data out
  size_t workspace = 0;

  void set(int i, const dnnl::memory::desc& user, const dnnl::memory::desc& want, bool out) {
    Side& s = side[i];
    s.user = dnnl::memory(user, engine(), DNNL_MEMORY_NONE);
    s.copies = user != want;
    s.blocked = s.copies ? dnnl::memory(want, engine(), DNNL_MEMORY_NONE) : s.user;
    if (!s.copies) return;
    s.reorder = out ? dnnl::reorder(s.blocked, s.user) : dnnl::reorder(s.user, s.blocked);
    s.offset = workspace;
    workspace += (want.get_size() + 63) / 64 * 64;
  }
  void run(const float* in, const float* weight, float* out, void* memory) {
    void* ptr[] = {const_cast<float*>(in), const_cast<float*>(weight), out};
    for (int i = 0; i < 3; ++i) {
      side[i].user.set_data_handle(ptr[i]);
      if (side[i].copies) side[i].blocked.set_data_handle(static_cast<char*>(memory) + side[i].offset);
    }
    auto move = [](Side& s, bool back) {
      if (s.copies)
        execute(s.reorder, {{DNNL_ARG_FROM, back ? &s.blocked : &s.user}, {DNNL_ARG_TO, back ? &s.user : &s.blocked}});
    };
    move(side[0], false);
    move(side[1], false);
    execute(conv, {{arg[0], &side[0].blocked}, {arg[1], &side[1].blocked}, {arg[2], &side[2].blocked}});
    move(side[2], true);
  }
};

bool reproducible(const char* impl) {
  return std::strncmp(impl, "jit:", 4) == 0 || std::strncmp(impl, "brgconv", 7) == 0;
}

std::unique_ptr<Blocked> make_blocked(const Conv2dGeom& g, bool backward) {
  stream();  // sets the thread count the primitives are made for
  auto x = {g.n, g.c, g.h, g.w}, w = {g.o, g.c, g.kh, g.kw}, y = {g.n, g.o, g.oh, g.ow};
  dnnl::memory::dims stride{g.sh, g.sw}, dilate{g.dh - 1, g.dw - 1}, pad{g.ph, g.pw};
  auto direct = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc fwd(engine(), dnnl::prop_kind::forward_training, direct, any_desc(x),
                                                any_desc(w), any_desc(y), stride, dilate, pad, pad,
                                                dnnl::primitive_attr(), true);
  if (!fwd) return nullptr;
  auto p = std::make_unique<Blocked>();
  if (!backward) {
    if (!reproducible(fwd.impl_info_str())) return nullptr;
    p->conv = dnnl::convolution_forward(fwd);
    p->arg[0] = DNNL_ARG_SRC, p->arg[1] = DNNL_ARG_WEIGHTS, p->arg[2] = DNNL_ARG_DST;
    p->set(0, plain_desc(x), fwd.src_desc(), false);
    p->set(1, plain_desc(w), fwd.weights_desc(), false);
    p->set(2, plain_desc(y), fwd.dst_desc(), true);
    return p;
  }
  dnnl::convolution_backward_data::primitive_desc bwd(engine(), direct, any_desc(x), any_desc(w), any_desc(y), stride,
                                                      dilate, pad, pad, fwd, dnnl::primitive_attr(), true);
  if (!bwd || !reproducible(bwd.impl_info_str())) return nullptr;
  p->conv = dnnl::convolution_backward_data(bwd);
  p->arg[0] = DNNL_ARG_DIFF_DST, p->arg[1] = DNNL_ARG_WEIGHTS, p->arg[2] = DNNL_ARG_DIFF_SRC;
  p->set(0, plain_desc(y), bwd.diff_dst_desc(), false);
  p->set(1, plain_desc(w), bwd.weights_desc(), false);
  p->set(2, plain_desc(x), bwd.diff_src_desc(), true);
  return p;
}

Blocked* find_blocked(const Conv2dGeom& g, bool backward) {
  static thread_local Cache<Blocked> cache;
  Key key{{num_threads(), backward, g.n, g.c, g.h, g.w, g.o, g.kh, g.kw, g.sh, g.sw, g.ph, g.pw, g.dh, g.dw}};
  return cache.get(key, [&] { return make_blocked(g, backward); });
}

// ---- what the four ops have in common: geometry, and refusal by it ----

Conv2dGeom geom_of(const KernelArgs& a) {
  const std::string& op = a.op->name;
  if (op == "conv2d") return conv2d_geom(a.as<Conv2dAttrs>(), a.in[0].shape, a.in[1].shape);
  if (op == "conv2d_fused") return conv2d_geom(a.as<Conv2dFusedAttrs>(), a.in[0].shape, a.in[1].shape);
  return conv2d_geom(a.as<Conv2dDxAttrs>(), a.out[0].shape, a.in[1].shape);
}
bool is_backward(const KernelArgs& a) { return a.op->name == "conv2d_dx"; }

const char* refuse_common(const KernelArgs& a, const Conv2dGeom& g) {
  for (auto& t : a.in)
    if (t.dtype != DType::F32) return "needs float32";
  return g.groups != 1 ? "groups; simd is faster" : nullptr;
}

const char* refuse_blocked(const KernelArgs& a) {
  Conv2dGeom g = geom_of(a);
  if (const char* why = refuse_common(a, g)) return why;
  // NOTE(perf): 2 cores, AVX-512, time of simd over time here, forward / dx: 64-64 channels 0.97 / 0.99 at batch 8;
  // 128-128 1.00 / 1.04; 256-256 1.06 / 1.14; 512-512 1.59 / 1.65; at batch 1 1.05, 1.12, 1.22, 1.29; stride 2
  // 128-128 1.14 to 1.35. LeNet's layers (1-6, 6-16): 0.3 and 1.0. A pass for the epilogue costs some 5%, so a tie goes
  // to simd.
  int64_t pairs = g.c * g.o;
  if (pairs < (g.sh * g.sw > 1 ? 64 * 128 : 128 * 128) || g.c < 32 || g.o < 32) return "few channels; simd is faster";
  if (g.flops() < 5e7) return "small; simd is faster";
  if (g.kh * g.kw == 1) return "1x1; reorders do not pay";
  return find_blocked(g, is_backward(a)) ? nullptr : "no oneDNN kernel with reproducible bits";
}
size_t workspace_blocked(const KernelArgs& a) { return find_blocked(geom_of(a), is_backward(a))->workspace; }

// weight [O,C] times image [C,HW]
Gemm* product_of(const Conv2dGeom& g) { return find_gemm(1, 1, 1, g.o, g.h * g.w, g.c, false, false); }

const char* refuse_1x1(const KernelArgs& a) {
  Conv2dGeom g = geom_of(a);
  if (const char* why = refuse_common(a, g)) return why;
  bool plain = g.kh == 1 && g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0;
  if (!plain) return "not 1x1 with stride 1";
  // NOTE(perf): one image 64-256 at 56x56 1.09 times as fast as simd, 512-2048 at 7x7 2.1 times; batches of 8 are
  // level.
  if (g.n != 1) return "a batch; simd is as fast";
  if (g.flops() < 1e7) return "small; simd is faster";
  return product_of(g) ? nullptr : "no oneDNN kernel with reproducible bits";
}

simd::Epilogue epilogue_of(const KernelArgs& a) {
  simd::Epilogue e;
  if (a.op->name == "conv2d") {
    if (a.in.size() == 3) e.bias = a.in[2].data<float>();
  } else if (a.op->name == "conv2d_fused") {
    const auto& at = a.as<Conv2dFusedAttrs>();
    Conv2dExtras x = conv2d_extras(at);
    auto extra = [&](int i) -> const float* { return i < 0 ? nullptr : a.in[static_cast<size_t>(i)].data<float>(); };
    e = {extra(x.bias), extra(x.scale), extra(x.shift), extra(x.add), at.act == "relu" ? 1 : 0};
  }
  return e;
}

void finish(const KernelArgs& a, const Conv2dGeom& g) {
  simd::Epilogue e = epilogue_of(a);
  if (e.bias || e.scale || e.add || e.act) simd::epilogue_pass(e, g.n, g.o, g.oh * g.ow, a.out[0].data<float>());
}

void run_blocked(const KernelArgs& a) {
  Conv2dGeom g = geom_of(a);
  find_blocked(g, is_backward(a))
      ->run(a.in[0].data<float>(), a.in[1].data<float>(), a.out[0].data<float>(), a.workspace);
  finish(a, g);
}
void run_1x1(const KernelArgs& a) {
  Conv2dGeom g = geom_of(a);
  product_of(g)->run(a.in[1].data<float>(), a.in[0].data<float>(), a.out[0].data<float>());
  finish(a, g);
}

}  // namespace

void register_conv2d(KernelRegistry& r) {
  for (const char* op : {"conv2d", "conv2d_fused"})
    r.add(op, KernelTier::Library, Kernel{.name = "onednn_conv2d_1x1", .refuse = refuse_1x1, .run = run_1x1});
  for (const char* op : {"conv2d", "conv2d_fused", "conv2d_dx"})
    r.add(op, KernelTier::Library,
          Kernel{.name = "onednn_conv2d_blocked",
                 .refuse = refuse_blocked,
                 .run = run_blocked,
                 .workspace = workspace_blocked});
}

}  // namespace mge::onednn
