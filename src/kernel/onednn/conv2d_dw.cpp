// Weight gradients of convolutions. oneDNN splits their sums between threads, so its result would depend on how many
// there are. Here the sum is cut by geometry alone (into groups of images, or bands of one image), each part is a
// one-thread primitive, parts run side by side and are added in order: the same bits for any number of threads.
#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/onednn/conv2d.h"
#include "kernel/simd/conv/conv2d_weights.h"
#include "kernel/simd/conv/epilogue.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/shape/moves.h"
#include "op/in_build.h"

namespace mge::onednn {
namespace {

struct Part {
  ConvGeom g;
  int64_t pad_top, pad_bottom;
  int64_t x_offset, y_offset;  // elements
};

int64_t count_parts(const ConvGeom& g) {
  const int64_t weights = g.o * g.c * g.kh * g.kw;
  if (g.flops() < 1e7) return 1;
  // Every part has its own copy of the gradient; adding large ones up costs more than threads save.
  if (g.n == 1) return weights <= 1 << 18 && g.oh >= 4 && g.ph < g.kh ? 2 : 1;  // padding must not swallow a band
  const int64_t most = weights <= 1 << 16 ? 8 : weights <= 1 << 18 ? 4 : 2;
  return std::min(g.n, most);
}

Part part_of(const ConvGeom& g, int64_t i, int64_t parts) {
  Part p{g, g.ph, g.ph, 0, 0};
  auto cut = [&](int64_t total, int64_t k) { return total * k / parts; };
  if (g.n > 1 || parts == 1) {
    const int64_t from = cut(g.n, i);
    p.g.n = cut(g.n, i + 1) - from;
    p.x_offset = from * g.c * g.h * g.w;
    p.y_offset = from * g.o * g.oh * g.ow;
    return p;
  }
  const int64_t from = cut(g.oh, i), to = cut(g.oh, i + 1);
  const int64_t first = from * g.sh - g.ph, last = (to - 1) * g.sh - g.ph + (g.kh - 1) * g.dh;  // rows of x, inclusive
  p.pad_top = std::max<int64_t>(0, -first);
  p.pad_bottom = std::max<int64_t>(0, last - g.h + 1);
  p.g.oh = to - from;
  p.g.h = std::min(last, g.h - 1) - std::max<int64_t>(0, first) + 1;
  p.g.ph = p.pad_top;
  p.x_offset = std::max<int64_t>(0, first) * g.w * g.c;
  p.y_offset = from * g.ow * g.o;
  return p;
}

struct WeightGrad {
  dnnl::primitive prim;
  dnnl::memory x, gy, packed, plain;
  dnnl::reorder unpack;
  int unpack_parts = 1;
  bool unpacks;
  simd::SquareBlocks square{};  // outs != 0: blocks of 16 channels x 16 outputs, which ours unpacks faster
  size_t bytes;                 // of the packed gradient
  void run(const float* px, const float* pgy, void* pgw) {
    x.set_data_handle(const_cast<float*>(px));
    gy.set_data_handle(const_cast<float*>(pgy));
    packed.set_data_handle(pgw);
    execute(prim, 1, {{DNNL_ARG_SRC, &x}, {DNNL_ARG_DIFF_DST, &gy}, {DNNL_ARG_DIFF_WEIGHTS, &packed}});
  }
};

std::unique_ptr<WeightGrad> make_part(const Part& part) {
  const Entered entered(1);
  ConvDescs d(part.g, part.pad_top, part.pad_bottom);
  auto direct = dnnl::algorithm::convolution_direct;
  dnnl::convolution_forward::primitive_desc fwd(engine(), dnnl::prop_kind::forward_training, direct, d.x, d.w_any, d.y,
                                                d.stride, d.dilate, d.pad_low, d.pad_high, dnnl::primitive_attr(),
                                                true);
  if (!fwd) return nullptr;
  dnnl::convolution_backward_weights::primitive_desc bwd(engine(), direct, d.x, d.w_any, d.y, d.stride, d.dilate,
                                                         d.pad_low, d.pad_high, fwd, dnnl::primitive_attr(), true);
  if (!bwd || std::strncmp(bwd.impl_info_str(), "jit", 3) != 0) return nullptr;
  auto p = std::make_unique<WeightGrad>();
  p->prim = dnnl::convolution_backward_weights(bwd);
  p->x = none(d.x), p->gy = none(d.y), p->packed = none(bwd.diff_weights_desc()), p->plain = none(d.w_plain);
  p->unpacks = bwd.diff_weights_desc() != d.w_plain;
  p->bytes = (bwd.diff_weights_desc().get_size() + 63) / 64 * 64;
  if (!p->unpacks) return p;
  const auto packed = bwd.diff_weights_desc();
  const auto blks = packed.get_inner_blks(), idxs = packed.get_inner_idxs();
  using dims = dnnl::memory::dims;
  const auto steps = packed.get_strides();
  if (blks == dims{16, 16} && idxs == dims{1, 0} && steps[2] == steps[3] * part.g.kw) {
    p->square = {part.g.o, part.g.c, part.g.kh * part.g.kw, steps[0], steps[1], steps[3]};
  } else {
    const Entered on_all(p->unpack_parts = num_threads());
    p->unpack = dnnl::reorder(p->packed, p->plain);
  }
  return p;
}

WeightGrad* find_part(const Part& p) {
  static thread_local Cache<WeightGrad> cache;  // each thread of the team has its own
  return cache.get(conv_key(p.g, {num_threads(), p.pad_top, p.pad_bottom}), [&] { return make_part(p); });
}

const char* refuse(const KernelArgs& a) {
  ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
  if (const char* why = refuse_conv(a, g, ConvRole::WeightGrad)) return why;
  const int64_t parts = count_parts(g);
  WeightGrad* first = find_part(part_of(g, 0, parts));
  if (!first) return "no oneDNN kernel that works on one thread";
  for (int64_t i = 1; i < parts; ++i) {  // partial sums are added as they lie
    WeightGrad* other = find_part(part_of(g, i, parts));
    if (!other || other->packed.get_desc() != first->packed.get_desc()) return "parts of unlike layouts";
  }
  return nullptr;
}

const char* avoid(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
  if (const char* why = avoid_conv(g)) return why;
  if (cost::winograd_pays(g, ConvRole::WeightGrad)) return "3x3; transformed tiles are faster";
  if (cost::product_pays(g, ConvRole::WeightGrad)) return "few pixels; a product is faster";
  return nullptr;
}

size_t workspace(const KernelArgs& a) {
  ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
  const int64_t parts = count_parts(g);
  WeightGrad* p = find_part(part_of(g, 0, parts));
  return parts == 1 && !p->unpacks ? 0 : static_cast<size_t>(parts) * p->bytes;
}

void run(const KernelArgs& a) {
  ConvGeom g = conv_geom_of<Conv2dDwAttrs>(a);
  const float *x = a.in[0].data<float>(), *gy = a.in[1].data<float>();
  float* gw = a.out[0].data<float>();
  const int64_t parts = count_parts(g);
  WeightGrad* first = find_part(part_of(g, 0, parts));
  char* memory = static_cast<char*>(a.workspace);
  parallel_for(parts, 1, [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      Part p = part_of(g, b, parts);
      find_part(p)->run(x + p.x_offset, gy + p.y_offset,
                        memory ? memory + static_cast<size_t>(b) * first->bytes : reinterpret_cast<char*>(gw));
    }
  });
  if (!memory) return;
  auto* sum = reinterpret_cast<float*>(memory);
  simd::add_parts(sum, static_cast<int64_t>(first->bytes / sizeof(float)), parts, first->unpacks ? sum : gw);
  if (!first->unpacks) return;
  if (const simd::SquareBlocks& b = first->square; b.outs)
    return b.taps == 1 ? simd::unpack_weight_1x1(b.outs, b.channels, b.out_step, b.channel_step, sum, gw)
                       : simd::unpack_square_blocks(b, sum, gw);
  first->packed.set_data_handle(sum);
  first->plain.set_data_handle(gw);
  execute(first->unpack, first->unpack_parts, {{DNNL_ARG_FROM, &first->packed}, {DNNL_ARG_TO, &first->plain}});
}

}  // namespace

void register_conv2d_dw(KernelRegistry& r) {
  r.add(Conv2dDwAttrs::kOp, KernelTier::Library,
        Kernel{.name = "onednn_conv2d_dw",
               .refuse = refuse,
               .run = run,
               .workspace = workspace,
               .layouts = simd_nn::conv2d_last_layouts<Conv2dDwAttrs>,
               .avoid = avoid});
}

}  // namespace mge::onednn
