#include "serial/mgb/blocked.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "compat/emit.h"
#include "op/quant/quantize.h"
#include "op/shape/shape_ops.h"

namespace mge::serial::mgb {
namespace {

using compat::emit;
using Kind = ImageFormat::Kind;

constexpr ImageFormat kPlain{}, kLast{Kind::Last, 1}, kBatchInside{Kind::BatchInside, 4}, kRows{Kind::RowBlocks, 4};
constexpr ImageFormat blocks(int64_t n) { return {Kind::Blocks, n}; }

/// By the number of the format: what goes in and what comes out. The weight goes with the first.
struct Formats {
  ImageFormat in, out;
  bool known = true;
};
constexpr Formats kFormats[] = {
    {kPlain, kPlain},
    {kLast, kLast},
    {kRows, kRows},
    {blocks(4), blocks(4)},      // NCHW4
    {blocks(8), blocks(8)},      // NCHW8
    {blocks(32), blocks(32)},    // NCHW32
    {blocks(8), blocks(8)},      // NCHW88
    {blocks(4), blocks(4)},      // NCHW44
    {blocks(4), blocks(4)},      // NCHW44_DOT
    {blocks(4), blocks(32)},     // NCHW4_NCHW32
    {blocks(32), blocks(4)},     // NCHW32_NCHW4
    {blocks(4), kPlain},         // NCHW4_NCHW
    {kLast, kPlain},             // NHWC_NCHW
    {kLast, blocks(4), false},   // NHWC_NCHW4_IC_SMALL
    {kPlain, blocks(4), false},  // NCHW_NCHW4_IC_SMALL
    {kBatchInside, kBatchInside},
    {blocks(64), blocks(64)},  // NCHW64
    {blocks(4), kLast},        // NCHW4_NHWC
};
constexpr int64_t kNchw88 = 6, kNchw44 = 7, kNchw44Dot = 8;

int64_t number(const Opr& o, std::string_view field) {
  for (auto& p : o.params)
    for (auto& f : p.fields)
      if (f.name == field)
        if (auto* v = std::get_if<int64_t>(&f.value)) return *v;
  return 0;
}

/// Which operands are images and which one is a weight; -1: none.
struct Operands {
  std::string_view type;
  bool rule_takes_last;  // its rule knows NHWC
  int weight;
  int images;  // the first so many of the others
};
constexpr Operands kOperands[] = {
    {"Convolution", false, 1, 1},
    {"ConvolutionV2", false, 1, 1},
    {"ConvBiasForward", false, 1, 3},
    {"ConvBiasForwardV4", false, 1, 3},
    {"ConvolutionBackwardData", false, 0, 2},
    {"ConvolutionBackwardDataV2", false, 0, 2},
    {"PoolingV1", false, -1, 1},
    {"AdaptivePoolingV1", false, -1, 1},
    {"ResizeV2", true, -1, 1},
    {"WarpPerspectiveV2", true, -1, 1},
    {"WarpAffineV2", true, -1, 1},
    {"RemapV1", true, -1, 1},
};
const Operands* operands(const Opr& o) {
  for (auto& x : kOperands)
    if (x.type == o.type) return &x;
  return nullptr;
}

/// From and to of RelayoutFormat, by the number of its mode; weights have other modes.
struct Relayout {
  int64_t mode;
  ImageFormat from, to;
};
constexpr Relayout kRelayouts[] = {
    {0, kLast, kRows},
    {1, kRows, kLast},
    {2, kLast, kRows},
    {3, kPlain, kRows},
    {4, kPlain, kRows},
    {5, kRows, kPlain},
    {6, kRows, kPlain},
    {15, blocks(4), kBatchInside},
    {16, kBatchInside, blocks(4)},
    {20, kPlain, blocks(8)},
    {21, blocks(8), kPlain},
    {22, kPlain, blocks(4)},
    {24, kPlain, blocks(4)},
    {25, blocks(4), kPlain},
    {27, kPlain, blocks(64)},
    {28, blocks(64), kPlain},
    {29, kPlain, kLast},
    {30, kLast, kPlain},
    {31, kRows, kLast},
};
const Relayout* relayout_of(const Opr& o) {
  for (auto& r : kRelayouts)
    if (r.mode == number(o, "mode")) return &r;
  return nullptr;
}

Val joined(const Val& x, int64_t axis) { return emit("flatten", {x}, RangeAttrs{axis, axis + 1}); }

// The order of axes in which blocks stand beside what they are blocks of, and which pairs are then joined, last first.
struct Unpack {
  Ints perm, joins;
};
Unpack unpack_image(ImageFormat f) {
  switch (f.kind) {
    case Kind::Last:
      return {{0, 3, 1, 2}, {}};
    case Kind::Blocks:
      return {{0, 1, 4, 2, 3}, {1}};
    case Kind::BatchInside:
      return {{3, 0, 4, 1, 2}, {1}};
    case Kind::RowBlocks:
      return {{0, 2, 4, 1, 3}, {1}};
    default:
      return {};
  }
}

Unpack unpack_weight(const Opr& o, const Val& w) {
  const int64_t format = number(o, "format");
  const bool group = number(o, "sparse") == 1;
  const int rank = w.rank();
  const ImageFormat f = kFormats[format].in;
  if (format == kNchw88 || format == kNchw44 || format == kNchw44Dot) {
    const bool dot = format == kNchw44Dot;
    if (!group && rank == 5) return {{0, 4, 3, 1, 2}, {0}};  // the first layer: [O/b,kh,kw,I,b]
    if (!group && rank == 6) return {dot ? Ints{0, 4, 1, 5, 2, 3} : Ints{0, 5, 1, 4, 2, 3}, {2, 0}};
    if (group && rank == 6) return {{0, 5, 1, 2, 3, 4}, {0}};  // one channel per group: [G/b,1,1,kh,kw,b]
    if (group && rank == 7) return {dot ? Ints{0, 1, 5, 2, 6, 3, 4} : Ints{0, 1, 6, 2, 5, 3, 4}, {3, 1}};
  } else if (f.kind == Kind::Blocks) {
    if (!group && rank == 5) return {{0, 1, 4, 2, 3}, {1}};
    if (group && rank == 6) return {{0, 1, 2, 5, 3, 4}, {2}};
  } else if (f.kind == Kind::BatchInside) {
    if (!group && rank == 5) return {{3, 0, 4, 1, 2}, {1}};
  } else if (f.kind == Kind::Last) {
    if (!group && rank == 4) return {{0, 3, 1, 2}, {}};
    if (group && rank == 5) return {{0, 1, 4, 2, 3}, {}};
  } else if (f.kind == Kind::RowBlocks) {
    if (!group && rank == 5) return {{0, 4, 3, 1, 2}, {0}};        // [O/4,kh,kw,I,4]
    if (!group && rank == 6) return {{0, 4, 3, 5, 1, 2}, {2, 0}};  // [O/4,kh,kw,I/4,4,4]
    if (group && rank == 6) return {{0, 1, 5, 4, 2, 3}, {1}};      // [G,O/4,kh,kw,I,4]
    if (group && rank == 5) return {{0, 4, 1, 2, 3}, {0}};         // [G/4,1,kh,kw,4]
  }
  fail(ErrorKind::NotImplemented, "{}: a weight {} in image format {} is not known.", o.type, compat::now(w).str(),
       format);
}

Val unpacked(const Val& x, const Unpack& u) {
  Val y = transpose(x, u.perm);
  for (int64_t a : u.joins) y = joined(y, a);
  return y;
}

}  // namespace

bool Blocked::is_blocked(const Opr& o) {
  const Operands* x = operands(o);
  const int64_t f = number(o, "format");
  return x && f > (x->rule_takes_last ? 1 : 0);
}
std::string Blocked::refuse(const Opr& o) {
  if (o.type == "RelayoutFormatV1")
    return relayout_of(o) ? std::string() : format("of weights, mode {}", number(o, "mode"));
  if (!is_blocked(o)) return {};
  const int64_t f = number(o, "format");
  return f < static_cast<int64_t>(std::size(kFormats)) && kFormats[f].known ? std::string()
                                                                            : format("image format {}", f);
}

Val Blocked::to_plain(const Val& x, ImageFormat f) {
  if (f.kind == Kind::Plain) return x;
  if (auto at = known_.find(ir::GraphBuilder::id(x)); at != known_.end() && at->second.format == f)
    return at->second.plain;
  if (f.kind != Kind::Last && x.rank() != 5) return x;  // the first layer takes its image as it comes
  return unpacked(x, unpack_image(f));
}

Val Blocked::from_plain(const Val& given, ImageFormat f) {
  if (f.kind == Kind::Plain) return given;
  Val x = given, plain = given;
  const Unpack u = unpack_image(f);
  if (f.kind != Kind::Last) {
    const int64_t c = compat::dim(x, 1), rest = (f.block - c % f.block) % f.block, n = (c + rest) / f.block;
    if (rest) {  // channels of zeros
      const SizeValues shape = compat::joined({{x, 0}, rest, {x, 2}, {x, 3}});
      const Val zero = x.em->constant(0, DType::F32, x);
      const Val zeros = compat::emit_sized("broadcast_to", {zero}, ShapeAttrs{shape.now}, "shape", shape);
      const Val parts[] = {x, quantized(zeros, x.meta().qtype())};
      x = plain = compat::concat(parts, 1);
    }
    x = compat::shaped_as(x, {{x, 0}, n, f.block, {x, 2}, {x, 3}});
  }
  Ints back(u.perm.size());
  for (size_t i = 0; i < u.perm.size(); ++i) back[static_cast<size_t>(u.perm[i])] = static_cast<int64_t>(i);
  const Val y = transpose(x, back);
  known_[ir::GraphBuilder::id(y)] = {plain, f};
  return y;
}

bool Blocked::enter(const Opr& o, std::vector<Val>& in) {
  if (is_blocked(o)) {
    const Operands& x = *operands(o);
    const Formats& f = kFormats[number(o, "format")];
    int images = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (static_cast<int>(i) == x.weight) {
        const bool channels = number(o, "sparse") == 1 && f.in.kind == Kind::RowBlocks && in[i].rank() == 5;
        in[i] = unpacked(in[i], unpack_weight(o, in[i]));
        if (channels) in[i] = compat::expand(in[i], {1});
      } else if (images++ < x.images) {
        in[i] = to_plain(in[i], images == 1 ? f.in : f.out);
      }
    }
    out_ = f.out;
    return true;
  }
  // What works element by element on images in blocks works on plain ones.
  const bool blind = o.type == "Softmax" || o.type == "LRN";
  if (o.type != "Elemwise" && o.type != "ElemwiseMultiType" && o.type != "TypeCvtV2" && !blind) return false;
  const Image* one = nullptr;
  for (auto& v : in)
    if (auto at = known_.find(ir::GraphBuilder::id(v)); at != known_.end()) one = &at->second;
  if (!one) return false;
  const ImageFormat f = one->format;
  // The original's layout passes leave these two behind an image in blocks, with the axes of a plain one. What it then
  // computes for a Softmax of channel blocks is what the file says; the others it cannot run, or not twice the same
  // way.
  if (o.type == "Softmax" && f.kind != Kind::RowBlocks) return false;
  std::vector<Val> plain = in;
  for (auto& v : plain) {
    auto at = known_.find(ir::GraphBuilder::id(v));
    if (at != known_.end() && at->second.format == f)
      v = at->second.plain;
    else if (f.kind != Kind::Last && v.rank() == 5 && compat::now(v).back() == f.block)  // a table in blocks
      v = unpacked(v, unpack_image(f));
    else if (compat::now(v).numel() != 1 || b_.any_size(v))
      return false;
    else
      v = reshape(v, Shape{});
  }
  in = plain;
  out_ = f;
  return true;
}

Val Blocked::leave(const Val& plain) { return from_plain(plain, out_); }

Val Blocked::relayout(const Opr& o, const Val& x) {
  const Relayout& r = *relayout_of(o);
  Val plain = to_plain(x, r.from);
  const int64_t channels = number(o, "oc");
  if (channels && r.to.kind == Kind::Plain && compat::dim(plain, 1) > channels)
    plain = compat::slice(plain, 1, 0, channels);
  return from_plain(plain, r.to);
}

}  // namespace mge::serial::mgb
