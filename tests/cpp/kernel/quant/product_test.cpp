// Every kernel of the integer products against the plain loops, on every instruction set: no differing value, whole
// ranges and those operands that saturate 16-bit sums of products.
#include "op/quant/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernel/copy.h"
#include "kernel/each_target.h"
#include "kernel/simd/quant/product_raw.h"
#include "op/quant/quantize.h"

namespace mge {
namespace {

struct Operand {
  Meta meta;
  std::vector<char> bytes;
};

enum class Fill { Random, Least, Largest, Mixed };

Operand operand(DType t, Quant q, const Shape& shape, Fill fill, uint32_t seed) {
  Operand o;
  o.meta.dtype = t;
  o.meta.quant = q;
  o.meta.shape = shape;
  o.bytes.resize(static_cast<size_t>(shape.numel()) * dtype_size(t) + 64);
  const QuantRange r = quant_range(t);
  for (int64_t i = 0; i < shape.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    int64_t v = r.lo + static_cast<int64_t>(seed >> 8) % (r.hi - r.lo + 1);
    if (t == DType::QI32) v = static_cast<int32_t>(seed) >> 16;
    if (fill == Fill::Least) v = r.lo;
    if (fill == Fill::Largest) v = r.hi;
    if (fill == Fill::Mixed) v = i % 2 ? r.lo : r.hi;
    const auto n = static_cast<int32_t>(v);
    std::memcpy(o.bytes.data() + static_cast<size_t>(i) * dtype_size(t), &n, dtype_size(t));
  }
  return o;
}

// The elements in row-major order, whatever order the kernel gives them in.
std::vector<char> run(const Kernel& k, const OpDef& op, const AttrsBase* attrs, const std::vector<Operand>& in,
                      const Meta& out) {
  auto arg = [](const Meta& m, void* p) {
    return TensorArg{p, m.dtype, m.shape, Layout::contiguous(m.shape), m.quant};
  };
  std::vector<TensorArg> given, wanted;
  for (auto& o : in) given.push_back(arg(o.meta, const_cast<char*>(o.bytes.data())));
  wanted = given;
  std::vector<char> result(out.bytes() + 64), plain(out.bytes() + 64);
  std::vector<TensorArg> y{arg(out, result.data())};
  KernelArgs a{&op, attrs, wanted, y, nullptr};
  if (k.layouts) k.layouts(a, wanted.data(), y.data());
  std::vector<std::vector<char>> copies;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].layout.same_strides(wanted[i].shape, given[i].layout)) continue;
    wanted[i].ptr = copies.emplace_back(in[i].bytes.size()).data();
    copy_strided(given[i], wanted[i]);
  }
  std::vector<char> workspace;
  if (k.workspace) {
    workspace.resize(k.workspace(a) + 64);
    a.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  }
  k.run(a);
  copy_strided(y[0], arg(out, plain.data()));
  if (!k.prepare.bytes) return plain;
  // The same from the operand in the kernel's own order, which it then does not read.
  std::vector<int64_t> prepared(k.prepare.bytes(a) / 8 + 16);
  void* to = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(prepared.data()) + 63) / 64 * 64);
  k.prepare.run(a, to);
  a.prepared = to;
  wanted[static_cast<size_t>(k.prepare.operand)].ptr = nullptr;
  std::fill(result.begin(), result.end(), 0);
  k.run(a);
  std::vector<char> again(plain.size());
  copy_strided(y[0], arg(out, again.data()));
  EXPECT_EQ(again, plain) << k.name;
  return plain;
}

int check(const char* name, Attrs attrs, const std::vector<Operand>& in) {
  const OpDef& op = OpRegistry::global().get(name);
  std::vector<const Meta*> metas;
  for (auto& o : in) metas.push_back(&o.meta);
  Meta out;
  infer_op(op, attrs.get(), metas, {&out, 1});
  std::vector<TensorArg> shapes, y{{nullptr, out.dtype, out.shape, Layout::contiguous(out.shape), out.quant}};
  for (auto& o : in)
    shapes.push_back({nullptr, o.meta.dtype, o.meta.shape, Layout::contiguous(o.meta.shape), o.meta.quant});
  const KernelArgs a{&op, attrs.get(), shapes, y, nullptr};
  const auto kernels = KernelRegistry::global().list(op.id);
  const std::vector<char> want = run(*kernels.back(), op, attrs.get(), in, out);
  int compared = 0;
  for (auto& k : kernels) {
    if (k->refuse && k->refuse(a)) continue;
    EXPECT_EQ(run(*k, op, attrs.get(), in, out), want) << k->name << " " << (attrs ? attrs->print() : "");
    ++compared;
  }
  return compared;
}

const Quant kPlain{0.037, 0, 0};
const QType kTypes[] = {{DType::QI32, {}}, {DType::F32, {}}, {DType::QI8, {3.1, 0, 0}}, {DType::QU8, {2.7, 99, 0}}};

TEST(QuantProductTest, Convolutions) {
  struct Case {
    Shape x, w;
    Ints stride, pad, dilate;
    int64_t groups;
  };
  const Case cases[] = {
      {{1, 16, 16, 15}, {32, 16, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},  // a convolution to oneDNN
      {{2, 37, 7, 9}, {65, 37, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},    // columns
      {{2, 33, 5, 6}, {17, 33, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},    // pixels
      {{1, 5, 9, 8}, {7, 5, 3, 2}, {2, 1}, {0, 2}, {1, 2}, 1},
      {{2, 12, 9, 30}, {24, 12, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},    // vectors that reach into the next position
      {{2, 3, 13, 29}, {40, 3, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1},     // few channels, rows that windows do not reach
      {{1, 20, 6, 17}, {33, 20, 1, 1}, {2, 3}, {0, 0}, {1, 1}, 1},    // 1x1 with a stride
      {{1, 260, 3, 5}, {530, 260, 2, 2}, {1, 1}, {2, 3}, {2, 3}, 1},  // a panel after the other; outputs of padding
                                                                      // alone
      {{2, 6, 6, 6}, {3, 4, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3},
      {{1, 8, 6, 6}, {8, 1, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 8},
      {{1, 2, 5, 75}, {2, 1, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},   // depthwise: several vectors and a rest
      {{1, 2, 71, 30}, {2, 1, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},  // rows stored together, in blocks
      {{2, 3, 7, 150}, {3, 1, 1, 3, 5}, {2, 2}, {1, 2}, {1, 1}, 3},
      {{2, 3, 9, 20}, {3, 2, 1, 3, 5}, {2, 3}, {2, 7}, {1, 2}, 3},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
  };
  simd::each_target([&] {
    for (auto& c : cases)
      for (auto [xt, xq] : {std::pair(DType::QI8, kPlain), std::pair(DType::QU8, Quant{0.02, 77, 0})})
        for (Fill f : {Fill::Random, Fill::Least, Fill::Largest, Fill::Mixed})
          for (const QType& type : kTypes) {
            QConv2dAttrs at;
            at.stride = c.stride, at.pad = c.pad, at.dilate = c.dilate, at.groups = c.groups;
            at.type = type;
            at.act = f == Fill::Mixed ? "relu" : "none";
            const int64_t o = c.w.rank == 5 ? c.w[0] * c.w[1] : c.w[0];
            std::vector<float> scales(static_cast<size_t>(o), 0.01f);
            for (size_t i = 0; i < scales.size(); ++i) scales[i] *= static_cast<float>(i + 1);
            const Quant wq = f == Fill::Mixed ? Quant::per_channel(scales, {}, 0, c.w.rank - 3) : kPlain;
            std::vector<Operand> in{operand(xt, xq, c.x, f, 1), operand(DType::QI8, wq, c.w, f, 2)};
            if (f == Fill::Random || f == Fill::Mixed)
              in.push_back(operand(DType::QI32, product_quant(xq, wq, 1), {1, o, 1, 1}, Fill::Random, 3));
            EXPECT_GE(check("qconv2d", make_attrs(at), in), 2);
          }
  });
}

// Along the channels: parts of a vector, one and a rest, whole ones; edges where every tap or none lies inside.
TEST(QuantProductTest, DepthwiseInChannelsLastOrder) {
  struct Case {
    int64_t n, c, h, w, kh, kw;
    Ints stride, pad, dilate;
  };
  const Case cases[] = {
      {1, 1, 5, 6, 3, 3, {1, 1}, {1, 1}, {1, 1}},   {2, 3, 6, 7, 3, 3, {1, 1}, {1, 1}, {1, 1}},
      {1, 8, 9, 9, 3, 3, {2, 2}, {1, 1}, {1, 1}},   {1, 17, 4, 11, 5, 5, {1, 1}, {2, 2}, {1, 1}},
      {2, 64, 7, 13, 3, 3, {2, 2}, {1, 1}, {1, 1}}, {1, 100, 6, 9, 3, 2, {1, 2}, {0, 1}, {2, 1}},
      {1, 37, 5, 5, 2, 3, {1, 1}, {4, 5}, {1, 2}},  {1, 32, 3, 40, 1, 1, {1, 1}, {2, 9}, {1, 1}},
      {1, 40, 2, 2, 7, 7, {1, 1}, {3, 3}, {1, 1}},  {1, 320, 3, 21, 3, 3, {1, 1}, {1, 1}, {1, 1}},
      {1, 24, 8, 8, 8, 8, {1, 1}, {0, 0}, {1, 1}},
  };
  simd::each_target([&] {
    for (auto& c : cases)
      for (auto [xt, xq] : {std::pair(DType::QI8, kPlain), std::pair(DType::QU8, Quant{0.02, 77, 0})})
        for (bool many : {false, true})
          for (bool bias : {false, true})
            for (Fill f : {Fill::Random, Fill::Largest})
              for (const QType& type : kTypes) {
                QConv2dAttrs at;
                at.stride = c.stride, at.pad = c.pad, at.dilate = c.dilate, at.groups = c.c;
                at.type = type;
                at.act = bias ? "relu" : "none";
                std::vector<float> scales(static_cast<size_t>(c.c));
                for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.003f * static_cast<float>(i % 9 + 1);
                const Shape w = c.c == 1 ? Shape{1, 1, c.kh, c.kw} : Shape{c.c, 1, 1, c.kh, c.kw};
                const Quant wq = many ? Quant::per_channel(scales, {}, 0, w.rank - 3) : Quant{0.01, 0, 0};
                std::vector<Operand> in{operand(xt, xq, {c.n, c.c, c.h, c.w}, f, 1), operand(DType::QI8, wq, w, f, 2)};
                if (bias) in.push_back(operand(DType::QI32, product_quant(xq, wq, 1), {1, c.c, 1, 1}, Fill::Random, 3));
                EXPECT_GE(check("qconv2d", make_attrs(at), in), 3);
              }
  });
}

TEST(QuantProductTest, TransposedConvolutions) {
  struct Case {
    Shape gy, w, x;
    Ints stride, pad, dilate;
    int64_t groups;
  };
  const Case cases[] = {
      {{2, 4, 5, 4}, {4, 6, 3, 2}, {2, 6, 10, 5}, {2, 1}, {1, 0}, {1, 1}, 1},
      {{1, 3, 4, 4}, {3, 5, 1, 1}, {1, 5, 6, 8}, {2, 3}, {1, 1}, {1, 1}, 1},  // padding beyond the kernel
      {{1, 6, 4, 5}, {2, 3, 4, 3, 3}, {1, 8, 4, 9}, {1, 1}, {1, 0}, {1, 2}, 2},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},
  };
  simd::each_target([&] {
    for (auto& c : cases)
      for (Fill f : {Fill::Random, Fill::Least})
        for (const QType& type : kTypes) {
          QConv2dDxAttrs at;
          at.stride = c.stride, at.pad = c.pad, at.dilate = c.dilate, at.groups = c.groups;
          at.x_shape = to_ints(c.x);
          at.type = type;
          std::vector<Operand> in{operand(DType::QU8, {0.02, 9, 0}, c.gy, f, 1),
                                  operand(DType::QI8, kPlain, c.w, f, 2)};
          if (f == Fill::Random)
            in.push_back(operand(DType::QI32, product_quant({0.02, 9, 0}, kPlain, 1), {1, c.x[1], 1, 1}, f, 3));
          EXPECT_EQ(check("qconv2d_dx", make_attrs(at), in), 2);
        }
  });
}

TEST(QuantProductTest, Matrices) {
  const Shape sizes[] = {{1, 1, 1}, {5, 33, 7}, {17, 40, 65}, {64, 256, 48}, {3, 130, 300}};  // m, k, n
  simd::each_target([&] {
    for (const Shape& s : sizes)
      for (int turned = 0; turned < 4; ++turned)
        for (Fill f : {Fill::Random, Fill::Least, Fill::Mixed})
          for (const QType& type : kTypes) {
            QMatmulAttrs at;
            at.ta = turned & 1, at.tb = turned & 2;
            at.type = type;
            std::vector<Operand> in{operand(DType::QI8, kPlain, at.ta ? Shape{s[1], s[0]} : Shape{s[0], s[1]}, f, 1),
                                    operand(DType::QI8, kPlain, at.tb ? Shape{s[2], s[1]} : Shape{s[1], s[2]}, f, 2)};
            if (f == Fill::Random)
              in.push_back(operand(DType::QI32, product_quant(kPlain, kPlain, 0), {s[2]}, Fill::Random, 3));
            EXPECT_GE(check("qmatmul", make_attrs(at), in), turned == 2 ? 3 : 2);
          }
  });
}

// Halves, ends, numbers beyond them and those that are none.
TEST(QuantProductTest, Rounding) {
  const Shape shape{3, 4, 37};
  Operand x;
  x.meta.shape = shape;
  x.bytes.resize(static_cast<size_t>(shape.numel()) * 4 + 64);
  const float special[] = {0.5f,  -0.5f,  1.5f,     -2.5f,     0.49999997f, -0.49999997f, 127.5f, -128.5f,
                           1e30f, -1e30f, INFINITY, -INFINITY, NAN,         0.f,          -0.f,   8388607.5f};
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const float v = i % 3 ? special[i % 16] : static_cast<float>(i - 200) * 0.25f;
    std::memcpy(x.bytes.data() + i * 4, &v, 4);
  }
  simd::each_target([&] {
    for (const QType& t : {QType{DType::QI8, {1, 0, 0}}, QType{DType::QU8, {1, 200, 0}}, QType{DType::QU8, {0.3, 0, 0}},
                           QType{DType::QI8, Quant::per_channel({1, 2, 0.5f, 0.1f}, {}, 1)}})
      EXPECT_EQ(check("quantize", make_attrs(QuantizeAttrs{t}), {x}), 2);
  });
}

TEST(QuantProductTest, RealNumbers) {
  simd::each_target([&] {
    for (auto [t, q] : {std::pair(DType::QI8, Quant{0.3, 0, 0}), std::pair(DType::QU8, Quant{1e-3, 201, 0}),
                        std::pair(DType::QI8, Quant::per_channel({1, 2, 0.5f, 0.1f}, {}, 1)),
                        std::pair(DType::QU8, Quant::per_channel({1, 2, 0.5f, 0.1f}, {0, 9, 255, 77}, 1))})
      EXPECT_EQ(check("dequantize", Attrs(), {operand(t, q, {3, 4, 37}, Fill::Random, 5)}), 2);
  });
}

// Numbers of one scale stay in channels-last order; those with a scale per channel do not.
TEST(QuantProductTest, OrderOfTheImageIsKept) {
  const Shape shape{2, 5, 4, 3};
  const Layout last = Layout::channels_last(shape);
  for (bool many : {false, true}) {
    const Quant q = many ? Quant::per_channel({1, 2, 0.5f, 0.1f, 3}, {}, 1) : Quant{0.4, 0, 0};
    const TensorArg real{nullptr, DType::F32, shape, last, {}}, number{nullptr, DType::QI8, shape, last, q};
    for (bool forth : {false, true}) {
      std::vector<TensorArg> in{forth ? real : number}, out{forth ? number : real};
      out[0].layout = Layout::contiguous(shape);
      const OpDef& op = OpRegistry::global().get(forth ? "quantize" : "dequantize");
      const Attrs attrs = forth ? make_attrs(QuantizeAttrs{QType{DType::QI8, q}}) : Attrs();
      const KernelArgs a{&op, attrs.get(), in, out, nullptr};
      const Kernel& k = *KernelRegistry::global().list(op.id).front();
      k.layouts(a, in.data(), out.data());
      EXPECT_EQ(in[0].layout.is_channels_last(shape), !many) << k.name;
      EXPECT_EQ(out[0].layout.is_channels_last(shape), !many) << k.name;
    }
  }
}

// Floats next to halves, and what has no neighbours to be rounded to, of either sign.
TEST(QuantProductTest, HalvesAndTheirNeighbours) {
  std::vector<float> x{0.f, 1e-45f, 8388607.5f, 8388609.f, 4194303.5f, 2.5e9f, 3e38f, INFINITY, NAN};
  for (int n = 0; n < 600; ++n) {
    float at = static_cast<float>(n) + 0.5f;
    for (int i = 0; i < 4; ++i) at = std::nextafterf(at, 0.f);
    for (int i = 0; i < 9; ++i, at = std::nextafterf(at, INFINITY)) x.push_back(at);
  }
  for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  const auto n = static_cast<int64_t>(x.size());
  simd::each_target([&] {
    for (float scale : {1.f, 0.25f, 3.f})
      for (int32_t zero : {0, 77}) {
        const QuantRange range{-128, 127}, bytes{0, 255};
        std::vector<float> scaled = x;
        for (float& v : scaled) v *= scale;
        std::vector<int8_t> i8(x.size());
        std::vector<uint8_t> u8(x.size());
        simd::quantize(scaled.data(), n, scale, zero, range, i8.data());
        simd::quantize(scaled.data(), n, scale, zero, bytes, u8.data());
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(i8[i], quant::quantise(scaled[i], scale, zero, range)) << scaled[i] << " by " << scale;
          ASSERT_EQ(u8[i], quant::quantise(scaled[i], scale, zero, bytes)) << scaled[i] << " by " << scale;
        }
      }
  });
}

// Quotients at halves and the floats around them, for scales all over the range of float32.
TEST(QuantProductTest, QuotientsNearHalves) {
  constexpr int kNear = 6, kHalves = 300;
  std::vector<float> scales{1.f,    0.5f,  3.f,   0x1.fffffep-1f, 0x1.000002p0f, 0x1p-126f, 1e-40f,
                            1e-45f, 3e38f, 1e36f, 0x1p-100f,      0x1p100f,      0x1.8p99f};
  uint32_t seed = 7;
  auto next = [&] { return seed = seed * 1664525u + 1013904223u; };
  for (int i = 0; i < 400; ++i)
    scales.push_back(
        std::ldexp(1.0f + static_cast<float>(next() >> 9) * 0x1p-23f, static_cast<int>(next() >> 24) % 200 - 120));
  simd::each_target([&] {
    std::vector<float> x;
    std::vector<int8_t> i8;
    std::vector<uint8_t> u8;
    for (float scale : scales) {
      x.clear();
      for (int h = -kHalves; h < kHalves; ++h) {
        float at = static_cast<float>((h + 0.5) * static_cast<double>(scale));
        for (int i = 0; i < kNear; ++i) at = std::nextafterf(at, -INFINITY);
        for (int i = 0; i <= 2 * kNear; ++i, at = std::nextafterf(at, INFINITY)) x.push_back(at);
      }
      for (float v : {0.f, -0.f, NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 1e-45f, -1e-45f}) x.push_back(v);
      i8.resize(x.size()), u8.resize(x.size());
      const auto n = static_cast<int64_t>(x.size());
      const QuantRange range{-128, 127}, bytes{0, 255};
      simd::quantize(x.data(), n, scale, 0, range, i8.data());
      simd::quantize(x.data(), n, scale, 131, bytes, u8.data());
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(i8[i], quant::quantise(x[i], scale, 0, range)) << x[i] << " by " << scale;
        ASSERT_EQ(u8[i], quant::quantise(x[i], scale, 131, bytes)) << x[i] << " by " << scale;
      }
    }
  });
}

}  // namespace
}  // namespace mge
