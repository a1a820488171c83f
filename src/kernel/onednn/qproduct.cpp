// qconv2d and qmatmul of qint8 operands on CPUs whose 8-bit dot products are exact (VNNI): oneDNN adds up in 32 bits,
// and the sums become the result as everywhere (quant_store.h). Older CPUs add pairs of products in 16 bits, which
// saturates, so they are refused.
#include "op/quant/product.h"

#include <cstring>

#include "base/cost.h"
#include "kernel/cost.h"
#include "kernel/layouts.h"
#include "kernel/onednn/conv2d.h"
#include "kernel/quant_store.h"
#include "op/in_build.h"

namespace mge::onednn {
namespace {

using Type = dnnl::memory::data_type;
using dims = dnnl::memory::dims;

bool exact_dot_products() {
  using dnnl::cpu_isa;
  static const bool exact = [] {
    const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
    auto has = [&](cpu_isa i) { return (isa & static_cast<unsigned>(i)) == static_cast<unsigned>(i); };
    return has(cpu_isa::avx512_core_vnni) || has(cpu_isa::avx2_vnni);
  }();
  return exact;
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// a x b -> c in int32; b through a copy in the layout oneDNN wants.
struct Sums {
  int parts = 1;
  dnnl::primitive prim;
  dnnl::memory a, b, packed, c;
  dnnl::reorder pack;
  bool packs = false;
  size_t pack_bytes = 0, sum_bytes = 0;

  size_t workspace() const { return pack_bytes + sum_bytes; }
  int32_t* sums(void* memory) const { return reinterpret_cast<int32_t*>(static_cast<char*>(memory) + pack_bytes); }
  void set(const dnnl::memory::desc& plain, const dnnl::memory::desc& want, const dnnl::memory::desc& result) {
    b = none(plain), c = none(result);
    packs = plain != want;
    packed = packs ? none(want) : b;
    if (packs) pack_bytes = aligned(want.get_size()), pack = dnnl::reorder(b, packed);
    sum_bytes = aligned(result.get_size());
  }
  void run(const void* pa, const void* pb, void* memory) {
    a.set_data_handle(const_cast<void*>(pa));
    b.set_data_handle(const_cast<void*>(pb));
    c.set_data_handle(sums(memory));
    if (packs) {
      packed.set_data_handle(memory);
      execute(pack, parts, {{DNNL_ARG_FROM, &b}, {DNNL_ARG_TO, &packed}});
    }
    execute(prim, parts, {{DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &packed}, {DNNL_ARG_DST, &c}});
  }
};

bool compiled(const char* impl) { return std::strncmp(impl, "jit", 3) == 0 || std::strncmp(impl, "brg", 3) == 0; }

Sums* find_conv(const ConvGeom& g) {
  static thread_local Cache<Sums> cache;
  return cache.get(conv_key(g, {num_threads()}), [&]() -> std::unique_ptr<Sums> {
    const Entered entered(num_threads());
    const ConvDescs d(g, Type::s8);
    const dnnl::memory::desc y(dims{g.n, g.o, g.oh, g.ow}, Type::s32, dnnl::memory::format_tag::nhwc);
    dnnl::convolution_forward::primitive_desc pd(engine(), dnnl::prop_kind::forward_inference,
                                                 dnnl::algorithm::convolution_direct, d.x, d.w_any, y, d.stride,
                                                 d.dilate, d.pad_low, d.pad_high, dnnl::primitive_attr(), true);
    if (!pd || !compiled(pd.impl_info_str())) return nullptr;
    auto p = std::make_unique<Sums>();
    p->parts = num_threads();
    p->prim = dnnl::convolution_forward(pd);
    p->a = none(d.x);
    p->set(d.w_plain, pd.weights_desc(), y);
    return p;
  });
}

Sums* find_gemm(int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  static thread_local Cache<Sums> cache;
  return cache.get(Key{{num_threads(), m, n, k, ta, tb}}, [&]() -> std::unique_ptr<Sums> {
    const Entered entered(num_threads());
    const dnnl::memory::desc a(dims{m, k}, Type::s8, ta ? dims{1, m} : dims{k, 1});
    const dnnl::memory::desc b(dims{k, n}, Type::s8, tb ? dims{1, k} : dims{n, 1});
    const dnnl::memory::desc c(dims{m, n}, Type::s32, dims{n, 1});
    dnnl::matmul::primitive_desc pd(engine(), a, b, c, dnnl::primitive_attr(), true);
    if (!pd || !compiled(pd.impl_info_str())) return nullptr;
    auto p = std::make_unique<Sums>();
    p->parts = num_threads();
    p->prim = dnnl::matmul(pd);
    p->a = none(a);
    p->set(b, pd.weights_desc(), c);
    return p;
  });
}

const char* refuse_types(const KernelArgs& a) {
  if (!exact_dot_products()) return "the CPU's 8-bit products saturate (no VNNI)";
  if (a.in[0].dtype != DType::QI8 || a.in[1].dtype != DType::QI8) return "needs qint8 operands";
  if (is_packed(a.out[0].dtype)) return "packed result";
  return a.out[0].numel() ? nullptr : "empty";
}

// A convolution is oneDNN's own, or a product of the weight as it lies with a column of taps for each position.
enum class Way { Library, Columns, Pixels };  // Pixels: 1x1, where channels-last memory is those columns
// NOTE(perf): reordering a weight for oneDNN's convolution costs 7 ns an element, a tap 1 ns: 512 channels, 7x7 pixels,
// 3x3 on one core take 17 ms so and 2 as a product.
Way way_of(const ConvGeom& g) {
  if (g.kh * g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0) return Way::Pixels;
  return 7 * g.o < g.n * g.oh * g.ow ? Way::Library : Way::Columns;
}
Sums* sums_of(const ConvGeom& g, Way way) {
  if (way == Way::Library) return find_conv(g);
  return find_gemm(g.n * g.oh * g.ow, g.o, g.c * g.kh * g.kw, false, true);
}

void fill_columns(const ConvGeom& g, const int8_t* x, int8_t* columns) {
  const int64_t taps = g.c * g.kh * g.kw;
  parallel_for(g.n * g.oh * g.ow, byte_grain(16 * taps), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t n = p / (g.oh * g.ow), y0 = p / g.ow % g.oh * g.sh - g.ph, x0 = p % g.ow * g.sw - g.pw;
      int8_t* to = columns + p * taps;
      for (int64_t c = 0; c < g.c; ++c)
        for (int64_t r = 0; r < g.kh; ++r) {
          const int64_t y = y0 + r * g.dh;
          const bool inside = y >= 0 && y < g.h;
          const int64_t row = ((n * g.c + c) * g.h + y) * g.w;
          if (inside && g.kw == 3 && g.dw == 1 && x0 >= 0 && x0 + 3 <= g.w) {  // most of most images
            std::memcpy(to, x + row + x0, 3);
            to += 3;
            continue;
          }
          for (int64_t s = 0; s < g.kw; ++s) {
            const int64_t at = x0 + s * g.dw;
            *to++ = inside && at >= 0 && at < g.w ? x[row + at] : int8_t{0};
          }
        }
    }
  });
}
size_t column_bytes(const ConvGeom& g, Way way) {
  return way == Way::Columns ? aligned(static_cast<size_t>(g.n * g.oh * g.ow * g.c * g.kh * g.kw)) : 0;
}

const char* refuse_conv2d(const KernelArgs& a) {
  if (const char* why = refuse_types(a)) return why;
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  if (g.groups != 1) return "groups";
  if (g.empty()) return "empty";
  return sums_of(g, way_of(g)) ? nullptr : "no compiled oneDNN kernel";
}
const char* avoid_conv2d(const KernelArgs& a) {
  if (byte_rows().conv_dots && byte_rows().conv_dots(a)) return "simd multiplies bytes in channels-last order";
  return cost::library_pays(conv_geom_of<QConv2dAttrs>(a).flops(), 1) ? nullptr : "small; simd is faster";
}
size_t workspace_conv2d(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const Way way = way_of(g);
  return column_bytes(g, way) + sums_of(g, way)->workspace();
}
void conv2d_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  way_of(conv_geom_of<QConv2dAttrs>(a)) == Way::Columns ? ask_row_major(in[0]) : ask_channels_last(in[0]);
  for (size_t i = 1; i < a.in.size(); ++i) ask_row_major(in[i]);
  ask_channels_last(out[0]);
}
// Channels lie innermost: a row of the result is one position's.
void run_conv2d(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const Way way = way_of(g);
  Sums* s = sums_of(g, way);
  auto* columns = static_cast<int8_t*>(a.workspace);
  void* memory = columns + column_bytes(g, way);
  if (way == Way::Columns) fill_columns(g, a.in[0].data<int8_t>(), columns);
  s->run(way == Way::Columns ? columns : a.in[0].ptr, a.in[1].ptr, memory);
  const int32_t* sums = s->sums(memory);
  const QuantStore store(a, a.as<QConv2dAttrs>().act, g.c * g.kh * g.kw, true);
  parallel_for(g.n * g.oh * g.ow, value_grain(g.o), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store.matrix_row(sums + i * g.o, i * g.o, g.o, i);
  });
}

const char* refuse_matmul(const KernelArgs& a) {
  if (const char* why = refuse_types(a)) return why;
  const auto& at = a.as<QMatmulAttrs>();
  if (a.in[1].shape.rank != 2) return "a batch of second operands";
  if (a.in[0].shape.rank != 2 && at.ta) return "a batch of transposed operands";
  return nullptr;
}
Sums* gemm_of(const KernelArgs& a) {
  const auto& at = a.as<QMatmulAttrs>();
  const MatmulGeom g = matmul_geom(at, a.in[0].shape, a.in[1].shape);
  return find_gemm(g.batch.numel() * g.m, g.n, g.k, at.ta, at.tb);
}
const char* refuse_gemm(const KernelArgs& a) {
  if (const char* why = refuse_matmul(a)) return why;
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  if (g.k == 0) return "empty";
  return gemm_of(a) ? nullptr : "no compiled oneDNN kernel";
}
const char* avoid_gemm(const KernelArgs& a) {
  if (byte_rows().matmul_dots && byte_rows().matmul_dots(a)) return "simd packs the weight once";
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  const auto& at = a.as<QMatmulAttrs>();
  if (at.tb && !at.ta && g.batch.numel() * g.m < 4) return "few rows; simd reads the weight as it lies";
  const double flops = 2.0 * static_cast<double>(a.out[0].numel()) * static_cast<double>(g.k);
  return cost::library_pays(flops, 1) ? nullptr : "small; simd is faster";
}
size_t workspace_gemm(const KernelArgs& a) { return gemm_of(a)->workspace(); }
void run_gemm(const KernelArgs& a) {
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  Sums* s = gemm_of(a);
  s->run(a.in[0].ptr, a.in[1].ptr, a.workspace);
  const int32_t* sums = s->sums(a.workspace);
  const QuantStore store(a, a.as<QMatmulAttrs>().act, g.k, true);
  parallel_for(g.batch.numel() * g.m, value_grain(g.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) store.matrix_row(sums + i * g.n, i * g.n, g.n, i % g.m);
  });
}

}  // namespace

void register_qproduct(KernelRegistry& r) {
  r.add("qconv2d", KernelTier::Library,
        Kernel{.name = "onednn_qconv2d",
               .refuse = refuse_conv2d,
               .run = run_conv2d,
               .workspace = workspace_conv2d,
               .layouts = conv2d_layouts,
               .avoid = avoid_conv2d});
  r.add("qmatmul", KernelTier::Library,
        Kernel{.name = "onednn_qmatmul",
               .refuse = refuse_gemm,
               .run = run_gemm,
               .workspace = workspace_gemm,
               .avoid = avoid_gemm});
}

}  // namespace mge::onednn
