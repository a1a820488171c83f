// roi_align and roi_pooling in primitives. rois [K,5] become tensors of positions and masks with K in front.
#include "op/compose.h"
#include "op/nn.h"
#include "op/vision/vision.h"
#include "op/vision/vision_parts.h"

#include <cmath>

namespace mge {
namespace {

Val both(const Val& a, const Val& b) { return binary("logical_and", a, b); }
Val within(const Val& x, double lo, double hi) {  // lo <= x < hi
  return both(binary("le", scalar_like(x, lo), x), binary("lt", x, scalar_like(x, hi)));
}
Val zero_unless(const Val& cond, const Val& x) { return select(cond, x, scalar_like(x, 0)); }

// The image of each region [K]; a fraction below 0 names none.
Val images(const Val& rois, int64_t count, const char* who) {
  return checked_index(cast(unary("floor", element(rois, 1, 0)), DType::I32), count,
                       std::string(who) + ": image of a region");
}

// ---- roi_align: bilinear samples, [K, cells * samples] positions along each axis

struct Line {
  Val low, inside, fraction;  // pixel below a position (int32), whether the position counts, and what is above it
};
Line sample_line(const RoiAlignAttrs& at, const Val& rois, int64_t first, int64_t last, int64_t cells, int64_t samples,
                 int64_t size) {
  const Shape column{rois.shape()[0], 1, 1};
  double off = at.aligned ? 0.5 : 0;
  Val lo = reshape(element(rois, 1, first), column) * at.scale - off;
  Val hi = reshape(element(rois, 1, last), column) * at.scale - off;
  Val length = maximum(hi - lo, scalar_like(lo, 0)), cell = length / static_cast<double>(cells);
  Val i = cast(reshape(iota(rois, cells), Shape{1, cells, 1}), rois.dtype());
  Val j = cast(iota(rois, samples), rois.dtype());
  Val p = lo + i * cell + (j + 0.5) * cell / static_cast<double>(samples);
  p = reshape(p, Shape{column[0], cells * samples});
  Line l;
  l.inside = both(binary("lt", scalar_like(p, -1), p), binary("lt", p, scalar_like(p, static_cast<double>(size))));
  Val counted = zero_unless(l.inside, p), floor = unary("floor", counted);  // far ones have no pixel number
  l.low = cast(floor, DType::I32);
  l.fraction = counted - floor;
  return l;
}

// f(indices of x, weight [K,Y,X,1]) for the four pixels around every sample; what lies outside has weight 0.
template <class F>
void each_pixel(const RoiAlignAttrs& at, const Val& rois, const Shape& x, const char* who, F f) {
  nn::Pair size = nn::pair_of(at.size), n = nn::pair_of(at.samples);
  const int64_t k = rois.shape()[0];
  Line y = sample_line(at, rois, 2, 4, size.h, n.h, x[2]), c = sample_line(at, rois, 1, 3, size.w, n.w, x[3]);
  Val image = reshape(images(rois, x[0], who), Shape{k, 1, 1});
  struct Side {
    Val at, weight;
  };
  auto side = [&](const Line& l, bool upper, int64_t limit) {
    Val at_pixel = upper ? l.low + 1.0 : l.low;
    Val real = both(l.inside, within(at_pixel, 0, static_cast<double>(limit)));
    return Side{zero_unless(real, at_pixel), zero_unless(real, upper ? l.fraction : 1.0 - l.fraction)};
  };
  for (int i = 0; i < 4; ++i) {
    Side row = side(y, i / 2, x[2]), col = side(c, i % 2, x[3]);
    Val wy = reshape(row.weight, Shape{k, size.h * n.h, 1, 1}), wx = reshape(col.weight, Shape{k, 1, size.w * n.w, 1});
    f(std::vector<Val>{image, reshape(row.at, Shape{k, size.h * n.h, 1}), reshape(col.at, Shape{k, 1, size.w * n.w})},
      wy * wx);
  }
}

// [K,Y,X,C] -> [K,oh,ow,C,samples]: the samples of each cell in row-major order.
Val by_cell(const RoiAlignAttrs& at, const Val& v) {
  nn::Pair size = nn::pair_of(at.size), n = nn::pair_of(at.samples);
  const Shape& s = v.shape();
  Val parts = transpose(reshape(v, Shape{s[0], size.h, n.h, size.w, n.w, s[3]}), {0, 1, 3, 5, 2, 4});
  return reshape(parts, Shape{s[0], size.h, size.w, s[3], n.h * n.w});
}
Val by_sample(const RoiAlignAttrs& at, const Val& v) {  // back
  nn::Pair size = nn::pair_of(at.size), n = nn::pair_of(at.samples);
  const Shape& s = v.shape();
  Val parts = transpose(reshape(v, Shape{s[0], size.h, size.w, s[3], n.h, n.w}), {0, 1, 4, 2, 5, 3});
  return reshape(parts, Shape{s[0], size.h * n.h, size.w * n.w, s[3]});
}
Val sampled(const RoiAlignAttrs& at, const Val& x, const Val& rois, const char* who) {
  Val sum;
  each_pixel(at, rois, x.shape(), who, [&](const std::vector<Val>& index, const Val& weight) {
    Val v = weight * index_get(x, {0, 2, 3}, 0, index);
    sum = sum ? sum + v : v;
  });
  return by_cell(at, sum);
}

// ---- roi_pooling: which pixels belong to a cell, as masks

// [K,cells,size], true where a pixel of the axis belongs to the cell.
Val cell_mask(const RoiPoolAttrs& at, const Val& rois, int64_t first, int64_t last, int64_t cells, int64_t size) {
  const Shape column{rois.shape()[0], 1};
  auto edge = [&](int64_t i) {
    Val v = unary("round", cast(reshape(element(rois, 1, i), column), DType::F64) * at.scale);
    v = zero_unless(binary("eq", v, v), v);
    return minimum(maximum(v, scalar_like(v, -1e9)), scalar_like(v, 1e9));
  };
  Val lo = edge(first), hi = edge(last);
  Val cell = maximum(hi - lo + 1.0, scalar_like(lo, 1)) / static_cast<double>(cells);
  Val i = cast(iota(rois, cells), DType::F64), p = cast(iota(rois, size), DType::F64);
  const Shape deep{column[0], cells, 1};
  Val begin = reshape(unary("floor", i * cell) + lo, deep), end = reshape(unary("ceil", (i + 1.0) * cell) + lo, deep);
  return both(binary("le", begin, p), binary("lt", p, end));
}

struct Pooled {
  Val rows, cols;  // masks [K,1,oh,1,H] and [K,1,1,ow,W]
  Val image;       // [K]
  Val count;       // pixels of each cell [K,1,oh,ow]
  Val planes;      // x of each region [K,C,H,1,W]
};
Pooled pooled(const RoiPoolAttrs& at, const Val& x, const Val& rois, const char* who) {
  nn::Pair size = nn::pair_of(at.size);
  const Shape& s = x.shape();
  const int64_t k = rois.shape()[0];
  Pooled p;
  Val rows = cell_mask(at, rois, 2, 4, size.h, s[2]), cols = cell_mask(at, rois, 1, 3, size.w, s[3]);
  auto length = [&](const Val& mask) { return cast(reduce(cast(mask, DType::I32), "sum", {2}, false), x.dtype()); };
  p.count = reshape(length(rows), Shape{k, 1, size.h, 1}) * reshape(length(cols), Shape{k, 1, 1, size.w});
  p.rows = reshape(rows, Shape{k, 1, size.h, 1, s[2]});
  p.cols = reshape(cols, Shape{k, 1, 1, size.w, s[3]});
  p.image = images(rois, s[0], who);
  p.planes = reshape(take_rows(x, 0, p.image), Shape{k, s[1], s[2], 1, s[3]});
  return p;
}
// Of each row the pixels of each column of cells: [K,C,H,ow,W].
Val of_columns(const Pooled& p, double otherwise) { return select(p.cols, p.planes, scalar_like(p.planes, otherwise)); }
// What was reduced along W, [K,C,H,ow], as the rows of each cell: [K,C,oh,ow,H].
Val of_rows(const Pooled& p, const Val& v, double otherwise) {
  Val t = transpose(v, {0, 1, 3, 2});
  const Shape& s = t.shape();
  return select(p.rows, reshape(t, Shape{s[0], s[1], 1, s[2], s[3]}), scalar_like(t, otherwise));
}
Val some(const Pooled& p) { return binary("lt", scalar_like(p.count, 0), p.count); }

bool no_pixels(const Val& x) { return x.shape()[2] == 0 || x.shape()[3] == 0; }
Val nothing(const Val& x, const Val& rois, nn::Pair size) {
  return filled(x, 0, x.dtype(), Shape{rois.shape()[0], x.shape()[1], size.h, size.w});
}

Val argmax(const Val& x, int64_t axis) {
  static const OpDef& op = OpRegistry::global().get("argmax");
  NamedAttr a{"axis", axis};
  return x.em->emit1("argmax", {x}, op.schema.build("argmax", {&a, 1}));
}

}  // namespace

void decompose_roi_align(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RoiAlignAttrs>(attrs);
  if (no_pixels(in[0])) return void(out[0] = nothing(in[0], in[1], nn::pair_of(at.size)));
  Val all = sampled(at, wide(in[0]), wide(in[1]), "roi_align");
  out[0] = cast(transpose(reduce(all, at.max ? "max" : "mean", {4}, false), {0, 3, 1, 2}), in[0].dtype());
}

void decompose_roi_align_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RoiAlignAttrs>(attrs);
  if (no_pixels(in[0])) return void(out[0] = zeros_like(in[0]));
  Val x = wide(in[0]), rois = wide(in[1]), g = transpose(wide(in[2]), {0, 2, 3, 1});
  nn::Pair n = nn::pair_of(at.samples);
  Shape cells = g.shape();
  cells.push_back(1);
  g = reshape(g, cells);
  cells[4] = n.h * n.w;
  if (at.max) {
    Shape one = cells;
    one[4] = 1;
    Val best = reshape(argmax(sampled(at, x, rois, "roi_align_bwd"), 4), one);
    g = zero_unless(binary("eq", iota(x, cells[4]), best), broadcast_to(g, cells));
  } else {
    g = broadcast_to(g / static_cast<double>(cells[4]), cells);
  }
  g = by_sample(at, g);
  Val gx = zeros_like(x);
  each_pixel(at, rois, x.shape(), "roi_align_bwd", [&](const std::vector<Val>& index, const Val& weight) {
    gx = index_incr(gx, weight * g, {0, 2, 3}, 0, index);
  });
  out[0] = cast(gx, in[0].dtype());
}

void decompose_roi_pooling(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RoiPoolAttrs>(attrs);
  if (no_pixels(in[0])) return void(out[0] = nothing(in[0], in[1], nn::pair_of(at.size)));
  Pooled p = pooled(at, wide(in[0]), wide(in[1]), "roi_pooling");
  const char* mode = at.max ? "max" : "sum";
  double none = at.max ? -INFINITY : 0;
  Val y = reduce(of_rows(p, reduce(of_columns(p, none), mode, {4}, false), none), mode, {4}, false);
  if (!at.max) y = y / p.count;
  out[0] = cast(zero_unless(some(p), y), in[0].dtype());
}

void decompose_roi_pooling_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<RoiPoolAttrs>(attrs);
  if (no_pixels(in[0])) return void(out[0] = zeros_like(in[0]));
  Val x = wide(in[0]), g = wide(in[2]);
  Pooled p = pooled(at, x, wide(in[1]), "roi_pooling_bwd");
  const Shape s = g.shape();  // [K,C,oh,ow]
  if (!at.max) {
    g = zero_unless(some(p), g / p.count);
    Val wide_cells = reduce(zero_unless(p.cols, reshape(g, Shape{s[0], s[1], s[2], s[3], 1})), "sum", {3}, false);
    Val rows = reshape(transpose(p.rows, {0, 1, 2, 4, 3}), Shape{s[0], 1, s[2], x.shape()[2], 1});
    Val cells = reshape(wide_cells, Shape{s[0], s[1], s[2], 1, x.shape()[3]});
    out[0] = cast(index_incr(zeros_like(x), reduce(zero_unless(rows, cells), "sum", {2}, false), {0}, 0, {p.image}),
                  in[0].dtype());
    return;
  }
  // The first row that has the maximum, and the first such pixel of that row.
  Val columns = of_columns(p, -INFINITY), best_col = argmax(columns, 4);
  Val row = argmax(of_rows(p, reduce(columns, "max", {4}, false), -INFINITY), 4);
  Val k = iota_along(x, s, 0), c = iota_along(x, s, 1), cell = iota_along(x, s, 3);
  Val col = index_get(best_col, {0, 1, 2, 3}, 0, {k, c, row, cell});
  Val image = reshape(p.image, Shape{s[0], 1, 1, 1});
  out[0] =
      cast(index_incr(zeros_like(x), zero_unless(some(p), g), {0, 1, 2, 3}, 0, {image, c, row, col}), in[0].dtype());
}

}  // namespace mge
