// remap and resize in primitives: where each result samples, with which weights, as tensors.
#include <algorithm>

#include "op/compose.h"
#include "op/index/indexing.h"
#include "op/vision/vision.h"
#include "op/vision/vision_parts.h"

namespace mge {
namespace {

Val both(const Val& a, const Val& b) { return binary("logical_and", a, b); }
Val not_below(const Val& x, double lo) { return binary("le", scalar_like(x, lo), x); }
Val below(const Val& x, double hi) { return binary("lt", x, scalar_like(x, hi)); }
Val clamped(const Val& x, double lo, double hi) { return minimum(maximum(x, scalar_like(x, lo)), scalar_like(x, hi)); }

// The pixel of 0..n-1 that an int32 position stands for; *inside is empty when every position stands for one.
Val bordered(const std::string& mode, const Val& p, int64_t n, Val* inside) {
  auto size = static_cast<double>(n);
  if (mode == "wrap") return binary("mod", p, scalar_like(p, size));
  if ((mode == "reflect" || mode == "reflect_101") && n > 1) {
    double edge = mode == "reflect_101" ? 1 : 0, period = 2 * (size - edge);
    Val q = binary("mod", p, scalar_like(p, period));
    return select(below(q, size), q, (period - 1 + edge) - q);
  }
  if (mode == "constant") *inside = both(not_below(p, 0), below(p, size));
  return clamped(p, 0, size - 1);
}

// One pixel under each position of a map [N,OH,OW]: where, how much, and the derivative of that along x and y.
struct Corner {
  Val row, col, inside;  // int32; inside is empty: always
  Val weight, dx, dy;    // empty: 1 and 0, the nearest pixel
};
std::vector<Corner> corners(const std::string& border, bool nearest, const Val& map, int64_t height, int64_t width) {
  // Positions so far away that they are no int32 any more mean nothing; NaN goes to the first pixel.
  auto coordinate = [&](int64_t i) {
    Val v = element(map, 3, i);
    constexpr double kFar = 1 << 30;
    return clamped(select(unary("isnan", v), scalar_like(v, 0), v), -kFar, kFar);
  };
  Val x = coordinate(0), y = coordinate(1);
  auto corner = [&](const Val& row, const Val& col) {
    Corner c;
    Val in_rows, in_cols;
    c.row = bordered(border, row, height, &in_rows), c.col = bordered(border, col, width, &in_cols);
    if (in_rows) c.inside = both(in_rows, in_cols);
    return c;
  };
  auto whole = [](const char* op, const Val& v) { return cast(unary(op, v), DType::I32); };
  if (nearest) return {corner(whole("round", y), whole("round", x))};
  Val x0 = unary("floor", x), y0 = unary("floor", y), wx = x - x0, wy = y - y0;
  Val col = cast(x0, DType::I32), row = cast(y0, DType::I32);
  std::vector<Corner> all;
  for (int i = 0; i < 4; ++i) {
    bool down = i / 2, right = i % 2;
    Corner c = corner(down ? row + 1.0 : row, right ? col + 1.0 : col);
    Val fy = down ? wy : 1.0 - wy, fx = right ? wx : 1.0 - wx;
    c.weight = fy * fx;
    c.dx = right ? fy : -fy;
    c.dy = down ? fx : -fx;
    all.push_back(c);
  }
  return all;
}

// [N,C,OH,OW] <-> [N,OH,OW,C], which is how x[n, :, row, col] comes.
Val channels_last(const Val& x) { return transpose(x, {0, 2, 3, 1}); }
Val channels_first(const Val& x) { return transpose(x, {0, 3, 1, 2}); }
Val last_axis(const Val& x) {  // [N,OH,OW] -> [N,OH,OW,1]
  Shape s = x.shape();
  s.push_back(1);
  return reshape(x, s);
}
std::vector<Val> at_pixels(const Corner& c) {
  Shape s{c.row.shape()[0], 1, 1};
  return {reshape(iota(c.row, s[0]), s), c.row, c.col};
}
Val pixels(const Val& x, const Corner& c, double outside) {
  Val v = index_get(x, {0, 2, 3}, 0, at_pixels(c));
  return c.inside ? select(last_axis(c.inside), v, scalar_like(v, outside)) : v;
}

// ---- resize: each output element of one axis is a sum of a few input elements

struct Taps {
  std::vector<Val> at, weight;  // int32 and float64, one per output element
};
Taps axis_taps(const Val& like, const std::string& mode, bool corners, int64_t in, int64_t out) {
  Taps t;
  auto add = [&](const Val& position, const Val& weight) {
    t.at.push_back(cast(clamped(position, 0, static_cast<double>(in - 1)), DType::I32));
    t.weight.push_back(weight);
  };
  auto n = static_cast<double>(in), m = static_cast<double>(out);
  Val j = cast(iota(like, out), DType::F64);
  if (mode == "nearest") {
    add(unary("floor", j * n / m), filled(j, 1, DType::F64, j.shape()));
    return t;
  }
  Val pos = corners ? (out > 1 ? j * (n - 1) / (m - 1) : j * 0.0) : (j + 0.5) * (n / m) - 0.5;
  Val base = unary("floor", pos), f = pos - base;
  if (mode == "linear") {
    add(base, 1.0 - f);
    add(base + 1.0, f);
    return t;
  }
  constexpr double a = -0.75;
  auto inner = [](const Val& d) { return (d * (a + 2) - (a + 3)) * d * d + 1.0; };
  auto outer = [](const Val& d) { return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a; };
  add(base - 1.0, outer(f + 1.0));
  add(base, inner(f));
  add(base + 1.0, inner(1.0 - f));
  add(base + 2.0, outer(2.0 - f));
  return t;
}
Val weight_along(const Val& w, const Val& x, int axis) {
  Shape s = Shape::filled(x.shape().rank, 1);
  s[axis] = w.shape()[0];
  return reshape(cast(w, x.dtype()), s);
}

}  // namespace

void decompose_remap(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RemapAttrs>(attrs);
  Val x = wide(in[0]), y;
  for (const Corner& c : corners(at.border, at.nearest, wide(in[1]), x.shape()[2], x.shape()[3])) {
    Val v = pixels(x, c, at.value);
    if (c.weight) v = last_axis(c.weight) * v;
    y = y ? y + v : v;
  }
  out[0] = cast(channels_first(y), in[0].dtype());
}

void decompose_remap_dx(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RemapDxAttrs>(attrs);
  Shape x = to_shape(at.x_shape);
  Val gy = channels_last(wide(in[0])), gx = filled(gy, 0, gy.dtype(), x);
  for (const Corner& c : corners(at.border, at.nearest, wide(in[1]), x[2], x[3])) {
    Val v = c.weight ? last_axis(c.weight) * gy : gy;
    if (c.inside) v = select(last_axis(c.inside), v, scalar_like(v, 0));
    gx = index_incr(gx, v, {0, 2, 3}, 0, at_pixels(c));
  }
  out[0] = cast(gx, in[0].dtype());
}

void decompose_remap_dmap(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RemapAttrs>(attrs);
  Val x = wide(in[0]), map = wide(in[1]), gy = channels_last(wide(in[2])), gcol, grow;
  if (at.nearest) {
    out[0] = zeros_like(in[1]);
    return;
  }
  for (const Corner& c : corners(at.border, false, map, x.shape()[2], x.shape()[3])) {
    Val g = reduce(gy * pixels(x, c, at.value), "sum", {3}, false);
    gcol = gcol ? gcol + g * c.dx : g * c.dx;
    grow = grow ? grow + g * c.dy : g * c.dy;
  }
  out[0] = cast(concat({last_axis(gcol), last_axis(grow)}, 3), in[0].dtype());
}

void decompose_resize(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<ResizeAttrs>(attrs);
  Val x = wide(in[0]);
  for (int axis = x.shape().rank - 1; axis >= 2; --axis) {
    Taps t = axis_taps(x, at.mode, at.align_corners, x.shape()[axis], at.size[static_cast<size_t>(axis - 2)]);
    Val y;
    for (size_t k = 0; k < t.at.size(); ++k) {
      Val v = take_rows(x, axis, t.at[k]) * weight_along(t.weight[k], x, axis);
      y = y ? y + v : v;
    }
    x = y;
  }
  out[0] = cast(x, in[0].dtype());
}

void decompose_resize_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<ResizeBwdAttrs>(attrs);
  Val g = wide(in[0]);
  for (int axis = 2; axis < g.shape().rank; ++axis) {
    Shape to = g.shape();
    to[axis] = at.x_size[static_cast<size_t>(axis - 2)];
    Taps t = axis_taps(g, at.mode, at.align_corners, to[axis], g.shape()[axis]);
    Val sum = filled(g, 0, g.dtype(), to);
    for (size_t k = 0; k < t.at.size(); ++k)
      sum = index_incr(sum, g * weight_along(t.weight[k], g, axis), {axis}, axis, {t.at[k]});
    g = sum;
  }
  out[0] = cast(g, in[0].dtype());
}

}  // namespace mge
