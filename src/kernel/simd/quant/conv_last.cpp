// qconv2d in channels-last order, and qmatmul, on CPUs with the dot product of bytes: the taps of an output lie in
// memory as a few runs of channels, so there are no columns to fill, and a row of sums is one position's channels. x is
// brought into unsigned bytes between zeros once; what that adds to each sum follows from the weight and is where the
// sum begins.
#include "kernel/simd/quant/conv_last.h"

#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/conv.h"
#include "kernel/layouts.h"
#include "kernel/quant_store.h"
#include "kernel/simd/quant/dots_raw.h"
#include "op/quant/product.h"

namespace mge::simd_nn {
namespace {

int64_t round_to(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Where the taps of a convolution lie in the image between zeros, and its weight in panels.
struct Taps {
  ConvGeom g;
  int64_t h, w;  // of the image: rows and columns that windows reach
  // Runs of bytes of a window, each `run` and then, to a whole word, what lies there, with zeros in the weight.
  int64_t parts, run, length, k;
  int64_t rows, row_length;  // of outputs
  int64_t lanes, columns;    // of all panels
  uint8_t flip;              // makes bytes unsigned
  int32_t zero;              // of the unsigned bytes

  Taps(const KernelArgs& a, const ConvGeom& geom) : g(geom) {
    const bool pixels = g.kh * g.kw == 1 && g.sh == 1 && g.sw == 1 && g.ph == 0 && g.pw == 0;
    h = pixels ? 1 : (g.oh - 1) * g.sh + (g.kh - 1) * g.dh + 1;
    w = pixels ? g.h * g.w : (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    rows = pixels ? 1 : g.oh;
    row_length = pixels ? g.oh * g.ow : g.ow;
    if (pixels) g.h = 1, g.w = w;
    parts = g.dw == 1 ? g.kh : g.kh * g.kw;
    run = g.dw == 1 ? g.kw * g.c : g.c;
    length = round_to(run, 4);
    k = parts * length;
    lanes = simd::dot_lanes();
    columns = round_to(g.o, lanes);
    flip = a.in[0].dtype == DType::QI8 ? 0x80 : 0;
    zero = a.in[0].quant.zero_point + flip;
  }
  size_t image_bytes() const { return static_cast<size_t>(g.n * h * w * g.c + 4); }
  size_t panel_bytes() const { return static_cast<size_t>(columns * k); }
  size_t prepared_bytes() const { return panel_bytes() + static_cast<size_t>(columns) * sizeof(int32_t); }
  std::vector<int64_t> offsets() const {
    std::vector<int64_t> at;
    for (int64_t r = 0; r < g.kh; ++r)
      for (int64_t s = 0; s < (g.dw == 1 ? 1 : g.kw); ++s) at.push_back((r * g.dh * w + s * g.dw) * g.c);
    return at;
  }
};

void flipped(const int8_t* x, int64_t n, uint8_t flip, uint8_t* to) {
  const uint64_t flips = 0x0101010101010101u * flip;
  int64_t i = 0;
  for (uint64_t word; i + 8 <= n; i += 8) {
    std::memcpy(&word, x + i, 8);
    word ^= flips;
    std::memcpy(to + i, &word, 8);
  }
  for (; i < n; ++i) to[i] = static_cast<uint8_t>(x[i]) ^ flip;
}

void fill_image(const Taps& t, const int8_t* x, uint8_t* to) {
  const ConvGeom& g = t.g;
  const int64_t row_bytes = t.w * g.c;
  std::memset(to + t.image_bytes() - 4, 0, 4);
  parallel_for(g.n * t.h, byte_grain(row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      uint8_t* y = to + row * row_bytes;
      const int64_t from = row % t.h - g.ph, before = std::min(g.pw, t.w),
                    count = std::clamp<int64_t>(t.w - before, 0, g.w);
      const bool outside = from < 0 || from >= g.h;
      if (outside || count < t.w) std::memset(y, t.zero, static_cast<size_t>(row_bytes));
      if (!outside) flipped(x + (row / t.h * g.h + from) * g.w * g.c, count * g.c, t.flip, y + before * g.c);
    }
  });
}

// A weight as it lies: distances of outputs, channels and taps.
struct Weight {
  const int8_t* w;
  int64_t output, channel, tap;
};

// As panels of two vectors of outputs, the last perhaps of one: [k/4][outputs][4], k by tap and channel; behind them
// where sums begin.
void pack(const Taps& t, const Weight& from, int8_t* panels) {
  const ConvGeom& g = t.g;
  auto* first = reinterpret_cast<int32_t*>(panels + t.panel_bytes());
  parallel_for(t.columns, byte_grain(8 * t.k), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t panel = o / (2 * t.lanes) * 2 * t.lanes, width = std::min(2 * t.lanes, t.columns - panel);
      int8_t* to = panels + panel * t.k + (o - panel) * 4;
      int32_t sum = 0;
      for (int64_t k = 0; k < t.k; ++k) {
        const int64_t in = k % t.length, of = k / t.length * t.run + in;  // of all taps and channels
        const int64_t at = o * from.output + of % g.c * from.channel + of / g.c * from.tap;
        const int8_t v = o < g.o && in < t.run ? from.w[at] : int8_t{0};
        to[k / 4 * width * 4 + k % 4] = v;
        sum += v;
      }
      first[o] = static_cast<int32_t>(-static_cast<uint32_t>(t.zero) * static_cast<uint32_t>(sum));
    }
  });
}

const char* refuse_types(const KernelArgs& a) {
  if (!simd::dot_lanes()) return "no dot product of bytes";
  if (a.in[0].dtype != DType::QI8 && a.in[0].dtype != DType::QU8) return "needs a qint8 or quint8 image";
  if (a.in[1].dtype != DType::QI8) return "needs a qint8 weight";
  return is_packed(a.out[0].dtype) ? "packed result" : nullptr;
}

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A few outputs of one row, all that one call of dots takes.
struct Block {
  int64_t at, count;  // the first output, of all positions
  simd::DotRows rows;
};

void run(const KernelArgs& a, const Taps& t, const Weight& weight, const QuantStore& store) {
  const ConvGeom& g = t.g;
  auto* image = static_cast<uint8_t*>(a.workspace);
  fill_image(t, a.in[0].data<int8_t>(), image);
  const auto* panels = static_cast<const int8_t*>(a.prepared);
  if (!panels) {
    int8_t* own = reinterpret_cast<int8_t*>(image + aligned(t.image_bytes()));
    pack(t, weight, own);
    panels = own;
  }
  const auto* first = reinterpret_cast<const int32_t*>(panels + t.panel_bytes());
  const std::vector<int64_t> offsets = t.offsets();

  const int64_t per_row = (t.row_length + simd::kDotRows - 1) / simd::kDotRows;
  const int64_t most = (t.row_length + per_row - 1) / per_row, blocks = g.n * t.rows * per_row;
  auto block = [&](int64_t i) {
    const int64_t row = i / per_row, x = i % per_row * most, n = row / t.rows, y = row % t.rows;
    return Block{
        row * t.row_length + x,
        std::min(most, t.row_length - x),
        {image + ((n * t.h + y * g.sh) * t.w + x * g.sw) * g.c, g.sw * g.c, offsets.data(), t.parts, t.length}};
  };
  const int64_t width = 2 * t.lanes, wide = (t.columns + width - 1) / width;
  auto panel = [&](const Block& b, int64_t p, int32_t* sums, int64_t ldc) {
    const int64_t o = p * width;
    simd::dots(b.rows, b.count, panels + o * t.k, t.columns - o > t.lanes ? 2 : 1, first + o, sums, ldc);
  };

  // A weight that stays in the second cache meets one block after the other, whose sums are stored together. Vectors of
  // the last panel may reach into the next row: it is taken first, and overwritten there.
  if (static_cast<int64_t>(t.panel_bytes()) <= machine().l2 / 2) {
    parallel_for(blocks, fma_grain(most * t.k * t.columns / 8 + 1), [&](int64_t begin, int64_t end) {
      std::vector<int32_t> sums(static_cast<size_t>(most * g.o + width));
      for (int64_t i = begin; i < end; ++i) {
        const Block b = block(i);
        for (int64_t p = wide - 1; p >= 0; --p) panel(b, p, sums.data() + p * width, g.o);
        store.pixels(sums.data(), b.at * g.o, b.count, g.o);
      }
    });
    return store.finish();
  }
  // Else a panel meets all blocks, or those of a thread's share.
  const int64_t shares = std::clamp<int64_t>(2 * num_threads() / wide, 1, blocks);
  parallel_for(wide * shares, fma_grain(blocks / shares * most * t.k * width / 8 + 1), [&](int64_t begin, int64_t end) {
    std::vector<int32_t> sums(static_cast<size_t>(most * width));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t p = i / shares, share = i % shares, o = p * width, n = std::min(width, g.o - o);
      for (int64_t j = blocks * share / shares; j < blocks * (share + 1) / shares; ++j) {
        const Block b = block(j);
        panel(b, p, sums.data(), width);
        for (int64_t r = 0; r < b.count; ++r) store.channels(sums.data() + r * width, (b.at + r) * g.o + o, n, o);
      }
    }
  });
  store.finish();
}

// The two ops: each says what its taps are and how its weight lies.
struct Conv {
  static const char* refuse(const KernelArgs& a) {
    if (const char* why = refuse_types(a)) return why;
    const ConvGeom g = conv_geom_of<QConv2dAttrs>(a);
    if (g.groups != 1) return "groups";
    return g.empty() || g.c == 0 || g.o == 0 ? "empty" : nullptr;
  }
  static Taps taps(const KernelArgs& a) { return {a, conv_geom_of<QConv2dAttrs>(a)}; }
  static Weight weight(const KernelArgs& a, const ConvGeom& g) {
    const int64_t window = g.kh * g.kw;
    return {a.in[1].data<int8_t>(), g.c * window, window, 1};
  }
  static const std::string& act(const KernelArgs& a) { return a.as<QConv2dAttrs>().act; }
  static void layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
    ask_channels_last(in[0]);
    for (size_t i = 1; i < a.in.size(); ++i) ask_row_major(in[i]);
    ask_channels_last(out[0]);
  }
};

// A product is a convolution of a row of pixels, its columns the channels.
struct Product {
  static const char* refuse(const KernelArgs& a) {
    if (const char* why = refuse_types(a)) return why;
    if (a.in[1].shape.rank != 2) return "a batch of second operands";
    if (a.as<QMatmulAttrs>().ta) return "a transposed first operand";
    if (!a.in[0].quant.per_tensor() || (a.in.size() == 3 && a.in[2].shape.rank == 2)) return "rows are the channels";
    return a.in[0].numel() && a.out[0].numel() ? nullptr : "empty";
  }
  static Taps taps(const KernelArgs& a) {
    const MatmulGeom m = matmul_geom(a.as<QMatmulAttrs>(), a.in[0].shape, a.in[1].shape);
    ConvGeom g{};
    g.n = g.h = g.oh = g.kh = g.kw = g.sh = g.sw = g.dh = g.dw = g.groups = 1;
    g.w = g.ow = m.batch.numel() * m.m;
    g.c = m.k, g.o = m.n;
    return {a, g};
  }
  static Weight weight(const KernelArgs& a, const ConvGeom& g) {
    const bool rows = a.as<QMatmulAttrs>().tb;
    return {a.in[1].data<int8_t>(), rows ? g.c : 1, rows ? 1 : g.o, 0};
  }
  static const std::string& act(const KernelArgs& a) { return a.as<QMatmulAttrs>().act; }
  static constexpr void (*layouts)(const KernelArgs&, TensorArg*, TensorArg*) = nullptr;
};

template <class Op>
Kernel kernel(const char* name) {
  constexpr auto prepared = [](const KernelArgs& a) { return Op::taps(a).prepared_bytes(); };
  return {.name = name,
          .refuse = Op::refuse,
          .run =
              [](const KernelArgs& a) {
                const Taps t = Op::taps(a);
                run(a, t, Op::weight(a, t.g), QuantStore(a, Op::act(a), t.g.c * t.g.kh * t.g.kw, true));
              },
          .workspace =
              [](const KernelArgs& a) {
                const Taps t = Op::taps(a);
                return aligned(t.image_bytes()) + aligned(t.prepared_bytes());
              },
          .layouts = Op::layouts,
          .prepare = {1, prepared, [](const KernelArgs& a, void* to) {
                        const Taps t = Op::taps(a);
                        pack(t, Op::weight(a, t.g), static_cast<int8_t*>(to));
                      }}};
}

}  // namespace

bool conv_takes_dots(const KernelArgs& a) { return !Conv::refuse(a); }
bool matmul_takes_dots(const KernelArgs& a) { return !Product::refuse(a); }
Kernel qconv2d_last() { return kernel<Conv>("simd_qconv2d_last"); }
Kernel qmatmul_dots() { return kernel<Product>("simd_qmatmul_dots"); }

}  // namespace mge::simd_nn
