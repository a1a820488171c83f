// Convolutions on channels-last memory, the order oneDNN's kernels like best among those a tensor can have
// (docs/adr/0007-physical-layout.md): images are asked for and given in it, weights stay row-major and are reordered
// into the workspace. conv2d and conv2d_fused take the same path for the same geometry and apply the epilogue as a
// pass, so their bits agree. Weight gradients are in conv2d_dw.cpp.
#include "op/conv/conv2d.h"
#include "base/parallel.h"
#include "kernel/onednn/conv2d.h"
#include "kernel/simd/conv/conv2d_weights.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"

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

  void set_weight(const dnnl::memory::desc& plain, const dnnl::memory::desc& want) {
    weight = none(plain);
    packs = plain != want;
    packed = packs ? none(want) : weight;
    if (!packs) return;
    workspace = (want.get_size() + 63) / 64 * 64;
    const bool ours = want.get_data_type() == dnnl::memory::data_type::f32 &&
                      (output_blocks(want, &blocks) || input_blocks(want, &inputs));
    if (!ours) pack = dnnl::reorder(weight, packed);
  }
  void run(const void* x, const void* w, void* y, void* memory) {
    in.set_data_handle(const_cast<void*>(x));
    weight.set_data_handle(const_cast<void*>(w));
    out.set_data_handle(y);
    if (packs) {
      packed.set_data_handle(memory);
      if (blocks.block)
        simd::pack_weight(blocks, static_cast<const float*>(w), static_cast<float*>(memory));
      else if (inputs.block)
        simd::pack_input_blocks(inputs, static_cast<const float*>(w), static_cast<float*>(memory));
      else
        execute(pack, parts, {{DNNL_ARG_FROM, &weight}, {DNNL_ARG_TO, &packed}});
    }
    execute(prim, parts, {{arg[0], &in}, {arg[1], &packed}, {arg[2], &out}});
  }
};

// These add up an output element on one thread.
bool reproducible(const char* impl) { return std::strncmp(impl, "jit", 3) == 0 || std::strncmp(impl, "brg", 3) == 0; }

std::unique_ptr<Conv> make_conv(const Conv2dGeom& g, bool backward, bool bfloat16, int parts) {
  const Entered entered(parts);
  ConvDescs d(g, bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32);
  auto direct = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc fwd(engine(), dnnl::prop_kind::forward_training, direct, d.x, d.w_any, d.y,
                                                d.stride, d.dilate, d.pad_low, d.pad_high, dnnl::primitive_attr(),
                                                true);
  if (!fwd) return nullptr;
  auto p = std::make_unique<Conv>();
  p->parts = parts;
  if (!backward) {
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

bool same_bits(const Conv2dGeom& g, bool backward, bool bfloat16, Conv& p, Conv& q) {
  if (g.kh * g.kw == 1 && p.impl == q.impl) return true;  // a sum over channels alone, in their order however it is cut
  const int64_t x = g.n * g.c * g.h * g.w, y = g.n * g.o * g.oh * g.ow, w = g.o * g.c * g.kh * g.kw;
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

Conv* find_conv(const Conv2dGeom& g, bool backward, bool bfloat16) {
  static thread_local Cache<Conv> cache;
  return cache.get(conv_key(g, {num_threads(), backward, bfloat16}), [&] {
    return made_like_for_one([&](int parts) { return make_conv(g, backward, bfloat16, parts); },
                             [&](Conv& p, Conv& q) { return same_bits(g, backward, bfloat16, p, q); });
  });
}

bool is_backward(const KernelArgs& a) { return a.op->name == "conv2d_dx"; }
bool is_bfloat16(const KernelArgs& a) { return a.in[0].dtype == DType::BF16; }
Conv* find_conv(const KernelArgs& a, const Conv2dGeom& g) { return find_conv(g, is_backward(a), is_bfloat16(a)); }

const char* refuse(const KernelArgs& a) {
  Conv2dGeom g = simd_nn::conv2d_geom_of(a);
  if (is_bfloat16(a)) {
    if (!has_bfloat16()) return "the CPU has no bfloat16";
    if (a.in.size() != 2) return "bfloat16 with a bias or an epilogue";
  }
  if (const char* why = refuse_conv(a, g, a.in[0].dtype)) return why;
  return find_conv(a, g) ? nullptr : "no oneDNN kernel with reproducible bits";
}
const char* avoid(const KernelArgs& a) {
  const Conv2dGeom g = simd_nn::conv2d_geom_of(a);
  if (const char* why = avoid_small(g)) return why;
  if (!is_bfloat16(a) && simd_nn::conv2d_is_winograd(g)) return "3x3; transformed tiles are faster";
  if (is_backward(a) && simd_nn::conv2d_is_product(g, false)) return "few pixels; a product is faster";
  return nullptr;
}
size_t workspace(const KernelArgs& a) { return find_conv(a, simd_nn::conv2d_geom_of(a))->workspace; }

void run(const KernelArgs& a) {
  find_conv(a, simd_nn::conv2d_geom_of(a))->run(a.in[0].ptr, a.in[1].ptr, a.out[0].ptr, a.workspace);
  simd_nn::conv2d_last_epilogue(a);
}

}  // namespace

ConvDescs::ConvDescs(const Conv2dGeom& g, int64_t pad_top, int64_t pad_bottom, dnnl::memory::data_type type) {
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

Key conv_key(const Conv2dGeom& g, std::initializer_list<int64_t> more) {
  Key key{{g.n, g.c, g.h, g.w, g.o, g.oh, g.ow, g.kh, g.kw, g.sh, g.sw, g.ph, g.pw, g.dh, g.dw}};
  std::copy(more.begin(), more.end(), key.v + 15);
  return key;
}

const char* refuse_conv(const KernelArgs& a, const Conv2dGeom& g, DType type) {
  if (type != DType::F32 && type != DType::BF16) return "needs float32 or bfloat16";
  for (auto& t : a.in)
    if (t.dtype != type) return "mixed dtypes";
  if (g.groups != 1) return "groups; simd is faster";
  if (g.n * g.oh * g.ow * g.h * g.w == 0) return "empty";
  // Few input channels: a first layer, whose gradient in x nobody asks for and oneDNN is slow at.
  const bool stem = g.c < 16;
  if (g.o < 16 || (stem && (g.o < 32 || g.c < 3 || !(a.op->name == "conv2d" || a.op->name == "conv2d_fused"))))
    return "few channels; simd is faster";
  return nullptr;
}

const char* avoid_small(const Conv2dGeom& g) {
  return g.flops() < (g.c < 16 ? 2e7 : 2e6) ? "small; simd is faster" : nullptr;
}

void register_conv2d(KernelRegistry& r) {
  for (const char* op : {"conv2d", "conv2d_fused", "conv2d_dx"})
    r.add(op, KernelTier::Library,
          Kernel{.name = "onednn_conv2d",
                 .refuse = refuse,
                 .run = run,
                 .workspace = workspace,
                 .layouts = simd_nn::conv2d_last_layouts,
                 .avoid = avoid});
  register_conv2d_dw(r);
}

}  // namespace mge::onednn
