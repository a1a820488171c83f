// qconv2d and qmatmul as products of matrices of 16 or 8 bits (product_raw.h). Sums are exact, so neither tiles nor
// threads nor the width show.
#include "op/quant/product.h"

#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/quant_storage.h"
#include "kernel/quant_store.h"
#include "kernel/simd/quant/conv_last.h"
#include "kernel/simd/quant/depthwise_last.h"
#include "kernel/simd/quant/product_raw.h"
#include "op/in_build.h"

namespace mge::simd_nn {
namespace {

using Words = std::vector<int16_t>;

// f with the type of the elements, less their zero points: bytes where they fit and the CPU multiplies them.
template <class F>
void with_width(const KernelArgs& a, F f) {
  auto fits = [](const TensorArg& t) {
    const QuantRange range = quant_range(t.dtype);
    bool all = true;
    quant::Channels(t.quant, t.shape).each(0, t.numel(), [&](int64_t, int64_t, float, int32_t zero) {
      all = all && range.lo - zero >= -128 && range.hi - zero <= 127;
    });
    return all;
  };
  if (simd::igemm_takes_bytes() && fits(a.in[0]) && fits(a.in[1])) return f(int8_t());
  f(int16_t());
}

// Rows of k elements, padded with 0.
template <class T>
std::vector<T> padded_rows(std::vector<T> rows, int64_t k) {
  const int64_t kp = simd::padded_k<T>(k);
  if (k == kp) return rows;
  const size_t from = static_cast<size_t>(k), to = static_cast<size_t>(kp), n = rows.size() / from;
  std::vector<T> out(n * to);
  for (size_t i = 0; i < n; ++i) std::copy_n(rows.data() + i * from, from, out.data() + i * to);
  return out;
}

// Output positions [first, first + count) of one image and group, each a column of its taps.
template <class T>
class Columns {
 public:
  Columns(const ConvGeom& g, const simd::Panels<T>& p) : g_(g), p_(p) {}
  void fill(const T* planes, int64_t first, int64_t count, T* tile) const {
    const int64_t cg = g_.c / g_.groups;
    int64_t k = 0;
    for (int64_t c = 0; c < cg; ++c)
      for (int64_t r = 0; r < g_.kh; ++r)
        for (int64_t s = 0; s < g_.kw; ++s, ++k) tap(planes + c * g_.h * g_.w, r, s, first, count, k, tile);
    for (; k < p_.kp; ++k)
      for (int64_t j = 0; j < count; ++j) tile[p_.at(k, j)] = 0;
  }

 private:
  void tap(const T* plane, int64_t r, int64_t s, int64_t first, int64_t count, int64_t k, T* tile) const {
    for (int64_t j = 0; j < count;) {  // one row of the output at a time
      const int64_t oy = (first + j) / g_.ow, ox = (first + j) % g_.ow, n = std::min(count - j, g_.ow - ox);
      const int64_t y = oy * g_.sh - g_.ph + r * g_.dh, x0 = ox * g_.sw - g_.pw + s * g_.dw;
      const bool inside = y >= 0 && y < g_.h;
      const T* row = plane + y * g_.w;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t x = x0 + i * g_.sw;
        tile[p_.at(k, j + i)] = inside && x >= 0 && x < g_.w ? row[x] : T{0};
      }
      j += n;
    }
  }
  const ConvGeom& g_;
  const simd::Panels<T>& p_;
};

// x [n,c,h,w] with w [o, taps padded].
template <class T>
void convolve(const ConvGeom& g, const std::vector<T>& x, const std::vector<T>& w, const QuantStore& store) {
  const ConvDims d(g);
  const simd::Panels<T> panels{simd::padded_k<T>(d.taps), simd::igemm_columns()};
  const Columns<T> columns(g, panels);
  const int64_t width = 2 * panels.n, blocks = (d.out + width - 1) / width, tiles = g.n * g.groups * blocks;
  // Few positions and many channels: the channels are shared out too, each part with columns of its own.
  const int64_t parts = tiles >= 2 * num_threads() ? 1 : std::clamp<int64_t>(d.og / 24, 1, 2 * num_threads());
  const int64_t per_part = (d.og + parts - 1) / parts;
  parallel_for(tiles * parts, fma_grain(per_part * width * d.taps), [&](int64_t begin, int64_t end) {
    std::vector<T> tile(static_cast<size_t>(panels.kp * width));
    std::vector<int32_t> sums(static_cast<size_t>(per_part * width));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t part = item % parts, block = item / parts % blocks, plane = item / parts / blocks;
      const int64_t n = plane / g.groups, group = plane % g.groups, first = block * width;
      const int64_t count = std::min(width, d.out - first), o0 = part * per_part, rows = std::min(per_part, d.og - o0);
      if (rows <= 0) continue;
      columns.fill(x.data() + (n * g.c + group * d.cg) * d.in, first, count, tile.data());
      const int64_t used = (count + panels.n - 1) / panels.n * panels.n;
      simd::igemm(w.data() + (group * d.og + o0) * panels.kp, rows, panels.kp, tile.data(), used, sums.data(), width);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t o = group * d.og + o0 + i;
        store.same_channel(sums.data() + i * width, (n * g.o + o) * d.out + first, count, o);
      }
    }
  });
}

void run_qconv2d(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const ConvDims d(g);
  if (a.out[0].numel() == 0) return;
  const QuantStore store(a, a.as<QConv2dAttrs>().act, d.taps, true);
  with_width(a, [&]<class T>(T) { convolve(g, centred<T>(a.in[0]), padded_rows(centred<T>(a.in[1]), d.taps), store); });
  store.finish();
}

// A plane with the zeros around its rows in place, so that no tap asks whether it is inside. Columns whose distance is
// the stride lie side by side: the outputs of a row take neighbours from each tap.
class DepthPlane {
 public:
  explicit DepthPlane(const ConvGeom& g)
      : g_(g),
        columns_((g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1),
        pitch_((columns_ + g.sw - 1) / g.sw),
        x_(static_cast<size_t>(g.h * g.sw * pitch_ + simd::kTapSlack)) {
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < g.kw; ++s)
        place_.push_back((r * g.dh * g.sw + s * g.dw % g.sw) * pitch_ + s * g.dw / g.sw);
  }
  void fill(const int16_t* plane) {
    const int64_t end = std::min(columns_, g_.pw + g_.w);
    for (int64_t y = 0; y < g_.h; ++y)
      for (int64_t phase = 0; phase < g_.sw; ++phase) {
        const int64_t skipped = std::max<int64_t>(0, g_.pw - phase + g_.sw - 1) / g_.sw;
        int16_t* to = x_.data() + (y * g_.sw + phase) * pitch_;
        const int64_t row = y * g_.w - g_.pw;
        if (g_.sw == 1)
          std::copy(plane + row + skipped, plane + row + std::max(skipped, end), to + skipped);
        else
          for (int64_t k = skipped, j = phase + k * g_.sw; j < end; ++k, j += g_.sw) to[k] = plane[row + j];
      }
  }
  void sums(int64_t oy, const int16_t* filter, int32_t* to) {
    const int64_t y = oy * g_.sh - g_.ph;  // rows of taps [r, end) are inside
    const int64_t r = y < 0 ? (-y + g_.dh - 1) / g_.dh : 0;
    const int64_t end = y < g_.h ? std::min(g_.kh, (g_.h - y + g_.dh - 1) / g_.dh) : 0,
                  rows = std::max<int64_t>(0, end - r);
    const int16_t* from = x_.data() + (rows ? (y + r * g_.dh) * g_.sw * pitch_ : 0);
    simd::tap_sums(from, place_.data(), filter + (rows ? r * g_.kw : 0), rows * g_.kw, g_.ow, to);
  }

 private:
  const ConvGeom& g_;
  int64_t columns_, pitch_;
  Words x_;
  std::vector<int64_t> place_;  // of each tap, from the first
};

void run_depthwise(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  const ConvDims d(g);
  if (a.out[0].numel() == 0) return;
  const Words x = centred<int16_t>(a.in[0]), w = centred<int16_t>(a.in[1]);
  const QuantStore store(a, a.as<QConv2dAttrs>().act, d.taps, true);
  parallel_for(g.n * g.o, value_grain(d.out * d.window), [&](int64_t begin, int64_t end) {
    DepthPlane plane(g);
    // Several rows are stored together: a short one fills no vectors.
    constexpr int64_t kTogether = 1024;
    const int64_t most = std::clamp<int64_t>(kTogether / g.ow, 1, g.oh);
    std::vector<int32_t> sums(static_cast<size_t>(most * g.ow + simd::kTapSlack));
    for (int64_t p = begin; p < end; ++p) {
      const int64_t n = p / g.o, o = p % g.o;
      if (p == begin || o % d.og == 0) plane.fill(x.data() + (n * g.c + o / d.og) * d.in);
      for (int64_t oy = 0, rows; oy < g.oh; oy += rows) {
        rows = std::min(most, g.oh - oy);
        for (int64_t r = 0; r < rows; ++r) plane.sums(oy + r, w.data() + o * d.window, sums.data() + r * g.ow);
        store.same_channel(sums.data(), (p * g.oh + oy) * g.ow, rows * g.ow, o);
      }
    }
  });
  store.finish();
}
const char* refuse_not_depthwise(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
  return g.c == g.groups && g.groups > 1 ? nullptr : "needs one input channel to a group";
}

// The transposed convolution is a plain one: of x with zeros between its elements, with the weight turned round.
void run_qconv2d_dx(const KernelArgs& a) {
  const ConvGeom g = conv_geom_of<QConv2dDxAttrs>(a);
  const ConvDims d(g);
  if (a.out[0].numel() == 0) return;
  ConvGeom t = g;
  t.c = g.o, t.o = g.c, t.h = (g.oh - 1) * g.sh + 1, t.w = (g.ow - 1) * g.sw + 1, t.oh = g.h, t.ow = g.w;
  t.sh = t.sw = 1, t.ph = g.dh * (g.kh - 1) - g.ph, t.pw = g.dw * (g.kw - 1) - g.pw;
  const int64_t taps = d.og * d.window;
  const QuantStore store(a, a.as<QConv2dDxAttrs>().act, taps, true);
  with_width(a, [&]<class T>(T) {
    const std::vector<T> gy = centred<T>(a.in[0]), w = centred<T>(a.in[1]);
    std::vector<T> x(static_cast<size_t>(t.n * t.c * t.h * t.w));
    for (int64_t p = 0; p < g.n * g.o; ++p)
      for (int64_t i = 0; i < d.out; ++i)
        x[static_cast<size_t>((p * t.h + i / g.ow * g.sh) * t.w + i % g.ow * g.sw)] =
            gy[static_cast<size_t>(p * d.out + i)];
    const int64_t kp = simd::padded_k<T>(taps);
    std::vector<T> turned(static_cast<size_t>(g.c * kp));
    for (int64_t c = 0; c < g.c; ++c)
      for (int64_t o = 0; o < d.og; ++o)
        for (int64_t k = 0; k < d.window; ++k)
          turned[static_cast<size_t>(c * kp + o * d.window + d.window - 1 - k)] =
              w[static_cast<size_t>(((c / d.cg * d.og + o) * d.cg + c % d.cg) * d.window + k)];
    convolve(t, x, turned, store);
  });
  store.finish();
}

// [rows, k] of a matrix that lies so, or transposed.
template <class T>
std::vector<T> matrix(const T* m, int64_t rows, int64_t k, bool turned) {
  const int64_t kp = simd::padded_k<T>(k);
  std::vector<T> out(static_cast<size_t>(rows * kp));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < k; ++j) out[static_cast<size_t>(i * kp + j)] = turned ? m[j * rows + i] : m[i * k + j];
  return out;
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

template <class T>
void multiply(const KernelArgs& a, const MatmulGeom& g, const QuantStore& store) {
  const auto& at = a.as<QMatmulAttrs>();
  const simd::Panels<T> panels{simd::padded_k<T>(g.k), simd::igemm_columns()};
  const std::vector<T> all_a = centred<T>(a.in[0]), all_b = centred<T>(a.in[1]);
  const int64_t width = (g.n + panels.n - 1) / panels.n * panels.n;
  std::vector<T> b(static_cast<size_t>(panels.kp * width));
  int64_t packed = -1;
  for (int64_t batch = 0; batch < g.batch.numel(); ++batch) {
    const int64_t from = batch_offset(g.batch, batch, a.in[1]);
    const T* pb = all_b.data() + from;
    if (from != packed)
      parallel_for(g.n, value_grain(g.k), [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j)
          for (int64_t k = 0; k < g.k; ++k)
            b[static_cast<size_t>(panels.at(k, j))] = at.tb ? pb[j * g.k + k] : pb[k * g.n + j];
      });
    packed = from;
    const std::vector<T> rows = matrix(all_a.data() + batch_offset(g.batch, batch, a.in[0]), g.m, g.k, at.ta);
    constexpr int64_t kRows = sizeof(T) == 1 ? 8 : 6;  // of a tile of igemm
    parallel_for((g.m + kRows - 1) / kRows, fma_grain(kRows * g.n * g.k), [&](int64_t begin, int64_t end) {
      std::vector<int32_t> sums(static_cast<size_t>(kRows * width));
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kRows, count = std::min(kRows, g.m - first);
        simd::igemm(rows.data() + first * panels.kp, count, panels.kp, b.data(), width, sums.data(), width);
        for (int64_t i = 0; i < count; ++i)
          store.matrix_row(sums.data() + i * width, (batch * g.m + first + i) * g.n, g.n, first + i);
      }
    });
  }
}

void run_qmatmul(const KernelArgs& a) {
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  if (a.out[0].numel() == 0) return;
  const QuantStore store(a, a.as<QMatmulAttrs>().act, g.k, true);
  with_width(a, [&]<class T>(T) { multiply<T>(a, g, store); });
  store.finish();
}

// A few rows with a weight that lies in rows: each is read as it lies.
const char* refuse_dots(const KernelArgs& a) {
  const auto& at = a.as<QMatmulAttrs>();
  if (a.in[1].dtype != DType::QI8) return "needs a qint8 weight";
  return at.ta || !at.tb || a.in[1].shape.rank != 2 ? "needs rows of both operands" : nullptr;
}
const char* avoid_many_rows(const KernelArgs& a) {
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  return g.batch.numel() * g.m >= 4 ? "many rows" : nullptr;
}
void run_dots(const KernelArgs& a) {
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  if (a.out[0].numel() == 0) return;
  const QuantStore store(a, a.as<QMatmulAttrs>().act, g.k, true);
  const Words x = centred<int16_t>(a.in[0]);
  std::vector<int32_t> sums(static_cast<size_t>(g.n));
  for (int64_t r = 0; r < g.batch.numel() * g.m; ++r) {
    parallel_for(g.n, fma_grain(g.k), [&](int64_t begin, int64_t end) {
      simd::byte_dots(x.data() + r * g.k, a.in[1].data<int8_t>() + begin * g.k, end - begin, g.k, sums.data() + begin);
    });
    store.matrix_row(sums.data(), r * g.n, g.n, r % g.m);
  }
  store.finish();
}

// Packing costs as much as a product with a few rows.
const char* avoid_few_rows(const KernelArgs& a) {
  const MatmulGeom g = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
  return g.m < 4 ? "few rows" : nullptr;
}
}  // namespace

void register_simd_quant_product(KernelRegistry& r) {
  if constexpr (in_build("qconv2d") || in_build("qconv2d_dx") || in_build("qmatmul"))
    install_byte_rows({simd::to_bytes, simd::to_bytes, conv_takes_dots, matmul_takes_dots});
  if constexpr (in_build("qconv2d")) {
    r.add("qconv2d", KernelTier::Simd, qconv2d_last());
    r.add("qconv2d", KernelTier::Simd, qconv2d_depthwise_last());
  }
  r.add("qconv2d", KernelTier::Simd,
        Kernel{.name = "simd_qconv2d_depthwise", .refuse = refuse_not_depthwise, .run = run_depthwise});
  r.add("qconv2d", KernelTier::Simd, Kernel{.name = "simd_qconv2d", .run = run_qconv2d});
  r.add("qconv2d_dx", KernelTier::Simd, Kernel{.name = "simd_qconv2d_dx", .run = run_qconv2d_dx});
  r.add("qmatmul", KernelTier::Simd,
        Kernel{.name = "simd_qmatmul_rows", .refuse = refuse_dots, .run = run_dots, .avoid = avoid_many_rows});
  if constexpr (in_build("qmatmul")) r.add("qmatmul", KernelTier::Simd, qmatmul_dots());
  r.add("qmatmul", KernelTier::Simd, Kernel{.name = "simd_qmatmul", .run = run_qmatmul, .avoid = avoid_few_rows});
}

}  // namespace mge::simd_nn
