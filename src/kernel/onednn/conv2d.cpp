// Convolutions on channels-last memory, the order oneDNN's kernels like best among those a tensor can have
// (docs/adr/0007-physical-layout.md): images are asked for and given in it, weights stay row-major and are reordered
// into the workspace. conv2d and conv2d_fused take the same path for the same geometry and apply the epilogue as a
// pass, so their bits agree. Weight gradients are in conv2d_dw.cpp.
#include "op/conv/conv2d.h"

#include <cstddef>

#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/onednn/conv2d.h"
#include "kernel/simd/conv/conv2d_weights.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"
#include "op/in_build.h"

namespace mge::onednn {
namespace {

// Whether a weight layout is blocks of output channels, those innermost.
bool output_blocks(const dnnl::memory::desc& d, simd::WeightBlocks* b) {
  const auto dims = d.get_dims(), strides = d.get_strides(), blks = d.get_inner_blks(), idxs = d.get_inner_idxs();
  const bool fits = blks.size() == 1 && idxs[0] == 0 && blks[0] <= 64 && strides[2] == strides[3] * dims[3];
  if (!fits) return false;
  *b = {dims[0], dims[1], dims[2] * dims[3], blks[0], strides[0], strides[1], strides[3]};
  return true;
}

// Whether a weight layout is blocks of input channels, those innermost.
bool input_blocks(const dnnl::memory::desc& d, simd::InputBlocks* b) {
  const auto dims = d.get_dims(), strides = d.get_strides(), blks = d.get_inner_blks(), idxs = d.get_inner_idxs();
  const bool fits = blks.size() == 1 && idxs[0] == 1 && blks[0] % 16 == 0 && strides[2] == strides[3] * dims[3];
  if (!fits) return false;
  *b = {dims[0], dims[1], dims[2] * dims[3], blks[0], strides[1], strides[3], strides[0]};
  return true;
}

// in x weight -> out; in and out as they lie, the weight through a copy in the layout oneDNN wants.
struct Conv {
  int parts;
  std::string impl;
  dnnl::primitive prim;
  int arg[3];  // in, weight, out
  dnnl::memory in, weight, packed, out;
  dnnl::reorder pack;
  bool packs = false;
  simd::WeightBlocks blocks{};  // block != 0: ours is faster, above all for many channels
  simd::InputBlocks inputs{};   // the same
  size_t workspace = 0;
  uint64_t order = 0;  // that the packed weight lies in

  void set_weight(const dnnl::memory::desc& plain, const dnnl::memory::desc& want) {
    weight = none(plain);
    packs = plain != want;
    packed = packs ? none(want) : weight;
    if (!packs) return;
    workspace = (want.get_size() + 63) / 64 * 64;
    auto mix = [&](const auto& list) {
      for (auto v : list) order = hash_mix(order, static_cast<uint64_t>(v));
    };
    mix(want.get_padded_dims()), mix(want.get_strides()), mix(want.get_inner_blks()), mix(want.get_inner_idxs());
    const bool ours = want.get_data_type() == dnnl::memory::data_type::f32 &&
                      (output_blocks(want, &blocks) || input_blocks(want, &inputs));
    if (!ours) pack = dnnl::reorder(weight, packed);
  }
  void pack_to(const void* w, void* memory) {
    weight.set_data_handle(const_cast<void*>(w));
    packed.set_data_handle(memory);
    if (blocks.block)
      simd::pack_weight(blocks, static_cast<const float*>(w), static_cast<float*>(memory));
    else if (inputs.block)
      simd::pack_input_blocks(inputs, static_cast<const float*>(w), static_cast<float*>(memory));
    else
      execute(pack, parts, {{DNNL_ARG_FROM, &weight}, {DNNL_ARG_TO, &packed}});
  }
  void run(const void* x, const void* w, void* y, void* memory) {
    if (packs)
      pack_to(w, memory);
    else
      weight.set_data_handle(const_cast<void*>(w));
    multiply(x, y);
  }
  // With a weight packed before.
  void run_packed(const void* x, const void* w, void* y) {
    packed.set_data_handle(const_cast<void*>(w));
    multiply(x, y);
  }
  void multiply(const void* x, void* y) {
    in.set_data_handle(const_cast<void*>(x));
    out.set_data_handle(y);
    execute(prim, parts, {{arg[0], &in}, {arg[1], &packed}, {arg[2], &out}});
  }
};

// These add up an output element on one thread.
bool reproducible(const char* impl) { return std::strncmp(impl, "jit", 3) == 0 || std::strncmp(impl, "brg", 3) == 0; }

std::unique_ptr<Conv> make_conv(const ConvGeom& g, ConvRole role, bool bfloat16, int parts) {
  const Entered entered(parts);
  ConvDescs d(g, bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32);
  auto direct = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc fwd(engine(), dnnl::prop_kind::forward_training, direct, d.x, d.w_any, d.y,
                                                d.stride, d.dilate, d.pad_low, d.pad_high, dnnl::primitive_attr(),
                                                true);
  if (!fwd) return nullptr;
  auto p = std::make_unique<Conv>();
  p->parts = parts;
  if (role == ConvRole::Forward) {
    p->impl = fwd.impl_info_str();
    if (!reproducible(fwd.impl_info_str())) return nullptr;
    p->prim = dnnl::convolution_forward(fwd);
    p->arg[0] = DNNL_ARG_SRC, p->arg[1] = DNNL_ARG_WEIGHTS, p->arg[2] = DNNL_ARG_DST;
    p->in = none(d.x), p->out = none(d.y);
    p->set_weight(d.w_plain, fwd.weights_desc());
    return p;
  }
  dnnl::convolution_backward_data::primitive_desc bwd(engine(), direct, d.x, d.w_any, d.y, d.stride, d.dilate,
                                                      d.pad_low, d.pad_high, fwd, dnnl::primitive_attr(), true);
  if (!bwd || !reproducible(bwd.impl_info_str())) return nullptr;
  p->impl = bwd.impl_info_str();
  p->prim = dnnl::convolution_backward_data(bwd);
  p->arg[0] = DNNL_ARG_DIFF_DST, p->arg[1] = DNNL_ARG_WEIGHTS, p->arg[2] = DNNL_ARG_DIFF_SRC;
  p->in = none(d.y), p->out = none(d.x);
  p->set_weight(d.w_plain, bwd.weights_desc());
  return p;
}

bool same_bits(const ConvGeom& g, ConvRole role, bool bfloat16, Conv& p, Conv& q) {
  if (g.kh * g.kw == 1 && p.impl == q.impl) return true;  // a sum over channels alone, in their order however it is cut
  const int64_t x = g.n * g.c * g.h * g.w, y = g.n * g.o * g.oh * g.ow, w = g.o * g.c * g.kh * g.kw;
  const bool backward = role == ConvRole::InputGrad;
  const int64_t in = backward ? y : x, out = backward ? x : y;
  const size_t size = bfloat16 ? 2 : 4, bytes = static_cast<size_t>(out) * size;
  const Room from(static_cast<size_t>(in) * size), weight(static_cast<size_t>(w) * size), r0(bytes), r1(bytes),
      memory(std::max(p.workspace, q.workspace));
  fill_random(from.get(), in, bfloat16);
  fill_random(weight.get(), w, bfloat16);
  p.run(from.get(), weight.get(), r0.get(), memory.get());
  q.run(from.get(), weight.get(), r1.get(), memory.get());
  return std::memcmp(r0.get(), r1.get(), bytes) == 0;
}

Conv* find_conv(const ConvGeom& g, ConvRole role, bool bfloat16) {
  static thread_local Cache<Conv> cache;
  return cache.get(conv_key(g, {num_threads(), static_cast<int64_t>(role), bfloat16}), [&] {
    return made_like_for_one([&](int parts) { return make_conv(g, role, bfloat16, parts); },
                             [&](Conv& p, Conv& q) { return same_bits(g, role, bfloat16, p, q); });
  });
}

bool is_bfloat16(const KernelArgs& a) { return a.in[0].dtype == DType::BF16; }
template <class A>
Conv* conv_of(const KernelArgs& a, const ConvGeom& g) {
  return find_conv(g, A::kRole, is_bfloat16(a));
}

template <class A>
const char* refuse(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<A>(a);
  if (is_bfloat16(a)) {
    if (!has_bfloat16()) return "the CPU has no bfloat16";
    if (a.in.size() != 2) return "bfloat16 with a bias or an epilogue";
  }
  if (const char* why = refuse_conv(a, g, A::kRole, a.in[0].dtype)) return why;
  return conv_of<A>(a, g) ? nullptr : "no oneDNN kernel with reproducible bits";
}
template <class A>
const char* avoid(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<A>(a);
  if (const char* why = avoid_conv(g)) return why;
  if (!is_bfloat16(a) && cost::winograd_pays(g, A::kRole)) return "3x3; transformed tiles are faster";
  if (!is_bfloat16(a) && A::kRole == ConvRole::Forward && cost::lines_pays(g)) return "a product over pixels is faster";
  if (!is_bfloat16(a) && A::kRole == ConvRole::Forward && cost::first_pays(g)) return "few channels; planes are faster";
  if (A::kRole == ConvRole::InputGrad && cost::product_pays(g, A::kRole)) return "few pixels; a product is faster";
  return nullptr;
}
template <class A>
size_t workspace(const KernelArgs& a) {
  return a.prepared ? 0 : conv_of<A>(a, conv_geom_of<A>(a))->workspace;
}

// A prepared weight: the order it lies in, then itself. Another number of threads may want another order.
struct PackedWeight {
  alignas(64) uint64_t order;
  alignas(64) char data[1];
};
constexpr size_t kPackedHead = offsetof(PackedWeight, data);
template <class A>
size_t prepared_bytes(const KernelArgs& a) {
  const Conv* c = conv_of<A>(a, conv_geom_of<A>(a));
  return c && c->packs ? kPackedHead + c->workspace : 0;
}
template <class A>
void prepare(const KernelArgs& a, void* to) {
  Conv* c = conv_of<A>(a, conv_geom_of<A>(a));
  auto* w = static_cast<PackedWeight*>(to);
  w->order = c->order;
  c->pack_to(a.in[1].ptr, w->data);
}
template <class A>
void run_conv(const KernelArgs& a) {
  Conv* c = conv_of<A>(a, conv_geom_of<A>(a));
  const auto* w = static_cast<const PackedWeight*>(a.prepared);
  if (!w) return c->run(a.in[0].ptr, a.in[1].ptr, a.out[0].ptr, a.workspace);
  if (c->packs && c->order == w->order) return c->run_packed(a.in[0].ptr, w->data, a.out[0].ptr);
  const Room memory(c->workspace);
  c->run(a.in[0].ptr, a.in[1].ptr, a.out[0].ptr, memory.get());
}
template <class A>
void run(const KernelArgs& a) {
  run_conv<A>(a);
  simd_nn::conv2d_last_epilogue<A>(a);
}

template <class A>
void add_one(KernelRegistry& r) {
  Kernel k{.name = "onednn_conv2d",
           .refuse = refuse<A>,
           .run = run<A>,
           .workspace = workspace<A>,
           .layouts = simd_nn::conv2d_last_layouts<A>,
           .avoid = avoid<A>};
  if (A::kRole == ConvRole::Forward) k.prepare = {1, prepared_bytes<A>, prepare<A>};
  r.add(A::kOp, KernelTier::Library, k);
}
template <class... A>
void add(KernelRegistry& r) {
  (add_one<A>(r), ...);
}

}  // namespace

ConvDescs::ConvDescs(const ConvGeom& g, int64_t pad_top, int64_t pad_bottom, dnnl::memory::data_type type) {
  using dims = dnnl::memory::dims;
  const dims xs{g.n, g.c, g.h, g.w}, ws{g.o, g.c, g.kh, g.kw}, ys{g.n, g.o, g.oh, g.ow};
  x = {xs, type, dnnl::memory::format_tag::nhwc};
  y = {ys, type, dnnl::memory::format_tag::nhwc};
  w_plain = {ws, type, dnnl::memory::format_tag::oihw};
  w_any = {ws, type, dnnl::memory::format_tag::any};
  stride = {g.sh, g.sw};
  dilate = {g.dh - 1, g.dw - 1};
  pad_low = {pad_top, g.pw};
  pad_high = {pad_bottom, g.pw};
}

Key conv_key(const ConvGeom& g, std::initializer_list<int64_t> more) {
  Key key{{g.n, g.c, g.h, g.w, g.o, g.oh, g.ow, g.kh, g.kw, g.sh, g.sw, g.ph, g.pw, g.dh, g.dw}};
  std::copy(more.begin(), more.end(), key.v + 15);
  return key;
}

const char* refuse_conv(const KernelArgs& a, const ConvGeom& g, ConvRole role, DType type) {
  if (type != DType::F32 && type != DType::BF16) return "needs float32 or bfloat16";
  for (auto& t : a.in)
    if (t.dtype != type) return "mixed dtypes";
  if (g.groups != 1) return "groups";
  if (g.empty()) return "empty";
  // Not only slow: oneDNN adds the weight gradient of a first layer up in long plain sums, which lose digits (1.4e-5 of
  // 28x28 pixels, where other kernels stay within 4e-6).
  if (g.o < 16 || (g.c < 16 && (g.o < 32 || g.c < 3 || role != ConvRole::Forward))) return "few channels";
  return nullptr;
}

const char* avoid_conv(const ConvGeom& g) {
  // Few input channels: a first layer, whose image is small as it lies. Our kernels for it lose little.
  return cost::library_pays(g.flops(), g.c < 16 ? 0.1 : 1) ? nullptr : "small; simd is faster";
}

void register_conv2d(KernelRegistry& r) {
  add<Conv2dAttrs, Conv2dFusedAttrs, Conv2dDxAttrs>(r);
  register_conv2d_dw(r);
}

}  // namespace mge::onednn
