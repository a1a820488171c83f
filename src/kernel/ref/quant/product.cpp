// Plain loops: sums in 64 bits, in the order of the float kernels.
#include "op/quant/product.h"

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/quant_storage.h"
#include "kernel/quant_store.h"
#include "op/in_build.h"

namespace mge {
namespace {

int64_t at(const std::vector<int32_t>& v, int64_t i) { return v[static_cast<size_t>(i)]; }

void run_qconv2d(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const std::vector<int32_t> x = centred<int32_t>(a.in[0]), w = centred<int32_t>(a.in[1]);
  const QuantStore store(a, a.as<QConv2dAttrs>().act, g.c / g.groups * g.kh * g.kw, false);
  const int64_t cg = g.c / g.groups, og = g.o / g.groups;
  parallel_for(g.n * g.o, step_grain(g.oh * g.ow * cg * g.kh * g.kw), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> row(static_cast<size_t>(g.ow));
    for (int64_t p = begin; p < end; ++p)
      for (int64_t oy = 0; oy < g.oh; ++oy) {
        const int64_t n = p / g.o, o = p % g.o, first = o / og * cg;
        for (int64_t ox = 0; ox < g.ow; ++ox) {
          int64_t sum = 0;
          for (int64_t c = 0; c < cg; ++c)
            for (int64_t r = 0; r < g.kh; ++r)
              for (int64_t s = 0; s < g.kw; ++s) {
                const int64_t y = oy * g.sh - g.ph + r * g.dh, xx = ox * g.sw - g.pw + s * g.dw;
                if (y < 0 || y >= g.h || xx < 0 || xx >= g.w) continue;
                sum +=
                    at(x, ((n * g.c + first + c) * g.h + y) * g.w + xx) * at(w, ((o * cg + c) * g.kh + r) * g.kw + s);
              }
          row[static_cast<size_t>(ox)] = static_cast<int32_t>(sum);
        }
        store.same_channel(row.data(), (p * g.oh + oy) * g.ow, g.ow, o);
      }
  });
  store.finish();
}

void run_qconv2d_dx(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dDxAttrs>(a);
  const std::vector<int32_t> gy = centred<int32_t>(a.in[0]), w = centred<int32_t>(a.in[1]);
  const QuantStore store(a, a.as<QConv2dDxAttrs>().act, g.o / g.groups * g.kh * g.kw, false);
  const int64_t cg = g.c / g.groups, og = g.o / g.groups;
  parallel_for(g.n * g.c, step_grain(g.h * g.w * og * g.kh * g.kw), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> row(static_cast<size_t>(g.w));
    for (int64_t p = begin; p < end; ++p)
      for (int64_t y = 0; y < g.h; ++y) {
        const int64_t n = p / g.c, c = p % g.c, group = c / cg;
        for (int64_t x = 0; x < g.w; ++x) {
          int64_t sum = 0;
          for (int64_t o = group * og; o < (group + 1) * og; ++o)
            for (int64_t r = 0; r < g.kh; ++r)
              for (int64_t s = 0; s < g.kw; ++s) {
                const int64_t ty = y + g.ph - r * g.dh, tx = x + g.pw - s * g.dw;  // = output position * stride
                if (ty < 0 || tx < 0 || ty % g.sh || tx % g.sw || ty / g.sh >= g.oh || tx / g.sw >= g.ow) continue;
                sum += at(gy, ((n * g.o + o) * g.oh + ty / g.sh) * g.ow + tx / g.sw) *
                       at(w, ((o * cg + c % cg) * g.kh + r) * g.kw + s);
              }
          row[static_cast<size_t>(x)] = static_cast<int32_t>(sum);
        }
        store.same_channel(row.data(), (p * g.h + y) * g.w, g.w, c);
      }
  });
  store.finish();
}

int64_t batch_offset(const Shape& batch, int64_t b, const TensorArg& t) {
  int64_t offset = 0;
  for (int i = batch.rank - 1; i >= 0; --i) {
    const int64_t ix = b % batch[i];
    b /= batch[i];
    const int ax = i - (batch.rank - (t.shape.rank - 2));
    if (ax >= 0 && t.shape[ax] != 1) offset += ix * t.layout.stride[ax];
  }
  return offset;
}

void run_qmatmul(const KernelArgs& a) {
  const auto& at_ = a.as<QMatmulAttrs>();
  const MatmulGeom g = matmul_geom(at_, a.in[0].shape, a.in[1].shape);
  const std::vector<int32_t> va = centred<int32_t>(a.in[0]), vb = centred<int32_t>(a.in[1]);
  const QuantStore store(a, at_.act, g.k, false);
  const int64_t as_m = at_.ta ? 1 : g.k, as_k = at_.ta ? g.m : 1, bs_k = at_.tb ? 1 : g.n, bs_n = at_.tb ? g.k : 1;
  parallel_for(g.batch.numel() * g.m, step_grain(g.n * g.k), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> row(static_cast<size_t>(g.n));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t pa = batch_offset(g.batch, r / g.m, a.in[0]) + r % g.m * as_m;
      const int64_t pb = batch_offset(g.batch, r / g.m, a.in[1]);
      for (int64_t j = 0; j < g.n; ++j) {
        int64_t sum = 0;
        for (int64_t k = 0; k < g.k; ++k) sum += at(va, pa + k * as_k) * at(vb, pb + k * bs_k + j * bs_n);
        row[static_cast<size_t>(j)] = static_cast<int32_t>(sum);
      }
      store.matrix_row(row.data(), r * g.n, g.n, r % g.m);
    }
  });
  store.finish();
}

}  // namespace

void register_ref_quant_product(KernelRegistry& r) {
  r.add("qconv2d", KernelTier::Ref, Kernel{.name = "ref_qconv2d", .run = run_qconv2d});
  r.add("qconv2d_dx", KernelTier::Ref, Kernel{.name = "ref_qconv2d_dx", .run = run_qconv2d_dx});
  r.add("qmatmul", KernelTier::Ref, Kernel{.name = "ref_qmatmul", .run = run_qmatmul});
}

}  // namespace mge
