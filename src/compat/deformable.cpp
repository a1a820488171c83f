// Convolution and pooling at learned positions, composed of bilinear samples.
#include <array>

#include "compat/convolution.h"

namespace mge::compat {
namespace {

struct PsRoi {
  bool no_trans = true;
  double spatial_scale = 1, trans_std = 1;
  int64_t pooled_h = 1, pooled_w = 1, part_size = 1, sample_per_part = 1;
  static constexpr auto fields() {
    using P = PsRoi;
    return field_list("no_trans", &P::no_trans, "spatial_scale", &P::spatial_scale, "trans_std", &P::trans_std,
                      "pooled_h", &P::pooled_h, "pooled_w", &P::pooled_w, "part_size", &P::part_size, "sample_per_part",
                      &P::sample_per_part);
  }
};

/// The size as a number beside `like`.
Val beside(const Val& like, const SizeValue& size) {
  return size.operand ? cast(size.operand, like.dtype()) : scalar_like(like, static_cast<double>(size.now));
}
Val between(const Val& c, const Val& last) { return binary("minimum", binary("maximum", c, scalar_like(c, 0)), last); }

/// Bilinear samples of image [N,G,C,H,W] at y, x [N,G,P] as [N,G,P,C]; what lies outside counts as 0.
Val samples_at(const Val& image, const Val& y, const Val& x) {
  const int64_t g = now(image)[1];
  const Val rows = transpose(image, {0, 1, 3, 4, 2});
  const Val ni = expand(iota(image, size_at(image, 0)), {1, 2}), gi = range(image, g, Shape{1, g, 1});
  const Val height = beside(y, size_at(image, 3)), width = beside(x, size_at(image, 4));
  const Val y0 = unary("floor", y), x0 = unary("floor", x), fy = y - y0, fx = x - x0;
  auto inside = [](const Val& c, const Val& size) {
    return binary("logical_and", binary("le", scalar_like(c, 0), c), less(c, size));
  };
  auto index = [](const Val& c, const Val& size) {  // what is clipped has weight 0
    return cast(between(c, size - 1.0), DType::I32);
  };
  Val total;
  for (int dy = 0; dy < 2; ++dy)
    for (int dx = 0; dx < 2; ++dx) {
      const Val cy = y0 + dy, cx = x0 + dx;
      const Val weight = (dy ? fy : 1.0 - fy) * (dx ? fx : 1.0 - fx);
      const Val used = where0(binary("logical_and", inside(cy, height), inside(cx, width)), weight);
      const Val at[] = {ni, gi, index(cy, height), index(cx, width)};
      const Val part = index_get(rows, at, {0, 1, 2, 3}, 0) * expand(used, {-1});
      total = total ? total + part : part;
    }
  return total;
}

/// How many windows fit, in every call.
SizeValue windows_in(const SizeValue& n, int64_t k, int64_t stride, int64_t pad, int64_t dilate) {
  SizeValue out{conv_outputs(n.now, k, stride, pad, dilate), {}};
  if (!n.operand) return out;
  const Val room = n.operand + static_cast<double>(2 * pad - dilate * (k - 1) - 1);
  out.operand = binary("floor_div", room, scalar_like(room, static_cast<double>(stride))) + 1.0;
  return out;
}

void deformable_conv(Emitter&, const ConvPolicy& p, In in, Out& out) {
  check_format("DeformableConv", p);
  const Val &image = in[0], &weight = in[1], &offset = in[2], &mask = in[3];
  const Shape xs = now(image), w = weight.shape(), o = now(offset);
  MGE_CHECK(xs.rank == 4, Value, "DeformableConv: the input needs 4 dimensions (N, C, H, W); got {}.", xs.str());
  MGE_CHECK(w.rank == 4 || w.rank == 5, Value, "DeformableConv: the weight needs 4 or 5 dimensions; got {}.", w.str());
  const int64_t c = dim(image, 1), kh = w[w.rank - 2], kw = w[w.rank - 1], taps = kh * kw;
  const int64_t groups = p.sparse == Sparse::GROUP ? w[0] : 1;
  const SizePart n(image, 0), height(image, 2), width(image, 3);
  const SizePart oh = windows_in(height, kh, p.stride_h, p.pad_h, p.dilate_h);
  const SizePart ow = windows_in(width, kw, p.stride_w, p.pad_w, p.dilate_w);
  const int64_t parts = o.rank == 4 ? dim(offset, 1) / (2 * taps) : 0;
  MGE_CHECK(
      parts >= 1 && c % parts == 0 && o == (Shape{n.now, 2 * parts * taps, oh.now, ow.now}), Value,
      "DeformableConv: the offset must be (N, 2 * D * kh * kw, OH, OW) = ({}, {} * D, {}, {}) with D a divisor of "
      "{} channels; got {}.",
      n.now, 2 * taps, oh.now, ow.now, c, o.str());
  MGE_CHECK(now(mask) == (Shape{n.now, parts * taps, oh.now, ow.now}), Value,
            "DeformableConv: the mask must be {}; got {}.", (Shape{n.now, parts * taps, oh.now, ow.now}).str(),
            now(mask).str());
  MGE_CHECK(w[w.rank - 3] * groups == c, Value, "DeformableConv: the weight {} does not fit {} channels in {} groups.",
            w.str(), c, groups);
  std::vector<double> rows, columns;  // where each tap of the first window would lie without offsets
  for (int64_t t = 0; t < taps; ++t) {
    rows.push_back(static_cast<double>(t / kw * p.dilate_h - p.pad_h));
    columns.push_back(static_cast<double>(t % kw * p.dilate_w - p.pad_w));
  }
  auto steps = [&](const SizeValue& count, int64_t stride) {
    return cast(iota(image, count), DType::F32) * static_cast<double>(stride);
  };
  const Val at = shaped_as(offset, {n, parts, taps, 2, oh, ow});
  const Val y = pick(at, 3, 0) + (float_table(image, rows, Shape{taps, 1, 1}) + expand(steps(oh, p.stride_h), {1}));
  const Val x = pick(at, 3, 1) + (float_table(image, columns, Shape{taps, 1, 1}) + steps(ow, p.stride_w));
  Val seen = samples_at(shaped_as(image, {n, parts, c / parts, height, width}), shaped_as(y, {n, parts, -1}),
                        shaped_as(x, {n, parts, -1}));
  seen = seen * shaped_as(mask, {n, parts, -1, 1});
  // (N, D, taps, OH*OW, C/D) -> (N, groups, C/groups * taps, OH*OW)
  const Val cols = transpose(shaped_as(seen, {n, parts, taps, -1, c / parts}), {0, 1, 4, 2, 3});
  const int64_t each = c / groups * taps;
  const Val product = matmul(shaped(weight, {groups, -1, each}), shaped_as(cols, {n, groups, each, -1}), false, false);
  const Val y_out = shaped_as(product, {n, w.rank == 5 ? w[0] * w[1] : w[0], oh, ow});
  out.push_back(dtype_size(image.dtype()) == 2 ? cast(y_out, image.dtype()) : y_out);
}

void psroi_pooling(Emitter& em, const PsRoi& p, In in, Out& out) {
  const char* who = "DeformablePSROIPooling";
  const Val &image = in[0], &rois = in[1], &trans = in[2];
  const Shape xs = now(image), rs = now(rois);
  MGE_CHECK(xs.rank == 4 && rs.rank == 2 && rs[1] == 5, Value,
            "{}: needs images (N, C, H, W) and rois (K, 5); got {} and {}.", who, xs.str(), rs.str());
  const int64_t c = dim(image, 1), samples = p.sample_per_part;
  const SizePart height(image, 2), width(image, 3), count(rois, 0);
  const int64_t ph = p.pooled_h, pw = p.pooled_w, part = p.part_size;
  const int64_t classes = p.no_trans ? 1 : trans.rank() == 4 ? dim(trans, 1) / 2 : 0;
  MGE_CHECK(
      p.no_trans || (classes > 0 && now(trans) == (Shape{count.now, 2 * classes, part, part}) && c % classes == 0),
      Value, "{}: trans must be (K, 2 * classes, {}, {}) for {} rois, with classes a divisor of {} channels; got {}.",
      who, part, part, count.now, c, now(trans).str());
  const Val edges = unary("round", em.detached(slice(rois, 1, 1, 5)));
  const Val start = slice(edges, 1, 0, 2) * p.spatial_scale - 0.5;  // x, y
  const Val far = (slice(edges, 1, 2, 4) + 1.0) * p.spatial_scale - 0.5 - start;
  const Val size = binary("maximum", far, scalar_like(far, 0.1));

  // Samples along x (axis 0) or y, (K, classes, PH, PW, S), and whether they count.
  auto positions = [&](int64_t axis, int64_t pooled, const SizeValue& limit) {
    std::vector<double> within;
    std::vector<int64_t> part_y, part_x;
    for (int64_t i = 0; i < ph; ++i)
      for (int64_t j = 0; j < pw; ++j) {
        part_y.push_back(i * part / ph);
        part_x.push_back(j * part / pw);
        for (int64_t k = 0; k < samples; ++k)
          within.push_back(
              (static_cast<double>(axis == 0 ? j : i) + static_cast<double>(k) / static_cast<double>(samples)) /
              static_cast<double>(pooled));
      }
    const Val side = expand(pick(size, 1, axis), {1, 2, 3, 4});
    Val place =
        expand(pick(start, 1, axis), {1, 2, 3, 4}) + side * float_table(image, within, Shape{1, 1, ph, pw, samples});
    if (!p.no_trans) {
      const Val by_axis = pick(shaped_as(trans, {count, classes, 2, part, part}), 2, axis);
      const Val at[] = {int_table(image, part_y, Shape{ph, pw}), int_table(image, part_x, Shape{ph, pw})};
      place = place + expand(index_get(by_axis, at, {2, 3}, 2), {-1}) * side * p.trans_std;
    }
    const Val last = beside(place, limit);
    const Val counts =
        binary("logical_and", binary("le", scalar_like(place, -0.5), place), binary("le", place, last - 0.5));
    return std::pair(between(place, last - 1.0), counts);
  };
  const auto [x, use_x] = positions(0, pw, width);
  const auto [y, use_y] = positions(1, ph, height);
  const SizeValues shape = joined({count, classes, ph, pw, samples, samples});
  auto spread = [&](const Val& v) { return broadcast_as(v, shape); };
  const Val use = cast(spread(binary("logical_and", expand(use_x, {-2}), expand(use_y, {-1}))), image.dtype());
  const Val of_roi =
      shaped_as(take(image, cast(pick(rois, 1, 0), DType::I32), 0), {count, classes, c / classes, height, width});
  const Val seen = samples_at(of_roi, shaped_as(spread(expand(y, {-1})), {count, classes, -1}),
                              shaped_as(spread(expand(x, {-2})), {count, classes, -1}));
  const Val flags = shaped_as(use, {count, classes, ph, pw, samples * samples, 1});
  const Val weighted = shaped_as(seen, {count, classes, ph, pw, samples * samples, c / classes}) * flags;
  const Val used = sum(flags, {4});
  const Val average = sum(weighted, {4}) / binary("maximum", used, scalar_like(used, 1));
  const SizeValues whole = joined({count, classes, ph, pw, c / classes});
  for (const Val& v : std::array{average, broadcast_as(used, whole)})
    out.push_back(shaped_as(transpose(v, {0, 1, 4, 2, 3}), {count, c, ph, pw}));
}

}  // namespace

void add_deformable(Table& t) {
  t.add<ConvPolicy, deformable_conv>("DeformableConv", {4, 4}, "DeformableConvForwardV1@1 DeformableConvForward@2");
  t.leave_uncast();
  t.add<PsRoi, psroi_pooling>("DeformablePSROIPooling", {3, 3}, "DeformablePSROIPoolingForward@1");
}

}  // namespace mge::compat
