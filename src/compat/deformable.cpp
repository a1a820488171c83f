// Convolution and pooling at learned positions, composed of bilinear samples.
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

/// Bilinear samples of image [N,G,C,H,W] at y, x [N,G,P] as [N,G,P,C]; what lies outside counts as 0.
Val samples_at(const Val& image, const Val& y, const Val& x) {
  const Shape s = image.shape();
  const int64_t n = s[0], g = s[1], height = s[3], width = s[4];
  const Val rows = transpose(image, {0, 1, 3, 4, 2});
  const Val ni = range(image, n, Shape{n, 1, 1}), gi = range(image, g, Shape{1, g, 1});
  const Val y0 = unary("floor", y), x0 = unary("floor", x), fy = y - y0, fx = x - x0;
  auto inside = [](const Val& c, int64_t size) {
    return binary("logical_and", binary("le", scalar_like(c, 0), c),
                  less(c, scalar_like(c, static_cast<double>(size))));
  };
  auto index = [](const Val& c, int64_t size) {  // what is clipped has weight 0
    return cast(clip(c, 0, static_cast<double>(size - 1)), DType::I32);
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

void deformable_conv(Emitter&, const ConvPolicy& p, In in, Out& out) {
  check_format("DeformableConv", p);
  const Val &image = in[0], &weight = in[1], &offset = in[2], &mask = in[3];
  const Shape xs = image.shape(), w = weight.shape(), o = offset.shape();
  MGE_CHECK(xs.rank == 4, Value, "DeformableConv: the input needs 4 dimensions (N, C, H, W); got {}.", xs.str());
  MGE_CHECK(w.rank == 4 || w.rank == 5, Value, "DeformableConv: the weight needs 4 or 5 dimensions; got {}.", w.str());
  const int64_t n = xs[0], c = xs[1], kh = w[w.rank - 2], kw = w[w.rank - 1], taps = kh * kw;
  const int64_t groups = p.sparse == Sparse::GROUP ? w[0] : 1;
  const int64_t oh = conv_outputs(xs[2], kh, p.stride_h, p.pad_h, p.dilate_h);
  const int64_t ow = conv_outputs(xs[3], kw, p.stride_w, p.pad_w, p.dilate_w);
  const int64_t parts = o.rank == 4 ? o[1] / (2 * taps) : 0;
  MGE_CHECK(
      parts >= 1 && c % parts == 0 && o == (Shape{n, 2 * parts * taps, oh, ow}), Value,
      "DeformableConv: the offset must be (N, 2 * D * kh * kw, OH, OW) = ({}, {} * D, {}, {}) with D a divisor of "
      "{} channels; got {}.",
      n, 2 * taps, oh, ow, c, o.str());
  MGE_CHECK(mask.shape() == (Shape{n, parts * taps, oh, ow}), Value, "DeformableConv: the mask must be {}; got {}.",
            (Shape{n, parts * taps, oh, ow}).str(), mask.shape().str());
  MGE_CHECK(w[w.rank - 3] * groups == c, Value, "DeformableConv: the weight {} does not fit {} channels in {} groups.",
            w.str(), c, groups);
  std::vector<double> base;  // where each tap would lie without offsets: its rows, then its columns
  for (int64_t t = 0; t < taps; ++t)
    for (const bool rows : {true, false})
      for (int64_t i = 0; i < oh; ++i)
        for (int64_t j = 0; j < ow; ++j)
          base.push_back(static_cast<double>(rows ? t / kw * p.dilate_h + i * p.stride_h - p.pad_h
                                                  : t % kw * p.dilate_w + j * p.stride_w - p.pad_w));
  const Val at = shaped(offset, {n, parts, taps, 2, oh, ow}) + float_table(image, base, Shape{taps, 2, oh, ow});
  const Val y = pick(at, 3, 0), x = pick(at, 3, 1);
  const int64_t points = taps * oh * ow;
  Val seen = samples_at(shaped(image, {n, parts, c / parts, xs[2], xs[3]}), shaped(y, {n, parts, points}),
                        shaped(x, {n, parts, points}));
  seen = seen * shaped(mask, {n, parts, points, 1});
  // (N, D, taps, OH*OW, C/D) -> (N, groups, C/groups * taps, OH*OW)
  const Val cols = transpose(shaped(seen, {n, parts, taps, oh * ow, c / parts}), {0, 1, 4, 2, 3});
  const Val y_out = shaped(matmul(shaped(weight, {groups, -1, c / groups * taps}),
                                  shaped(cols, {n, groups, c / groups * taps, oh * ow}), false, false),
                           {n, -1, oh, ow});
  out.push_back(dtype_size(image.dtype()) == 2 ? cast(y_out, image.dtype()) : y_out);
}

void psroi_pooling(Emitter& em, const PsRoi& p, In in, Out& out) {
  const char* who = "DeformablePSROIPooling";
  const Val &image = in[0], &rois = in[1], &trans = in[2];
  const Shape xs = image.shape(), rs = rois.shape();
  MGE_CHECK(xs.rank == 4 && rs.rank == 2 && rs[1] == 5, Value,
            "{}: needs images (N, C, H, W) and rois (K, 5); got {} and {}.", who, xs.str(), rs.str());
  const int64_t c = xs[1], height = xs[2], width = xs[3], count = rs[0], samples = p.sample_per_part;
  const int64_t ph = p.pooled_h, pw = p.pooled_w, part = p.part_size;
  const int64_t classes = p.no_trans ? 1 : trans.rank() == 4 ? trans.shape()[1] / 2 : 0;
  MGE_CHECK(p.no_trans || (classes > 0 && trans.shape() == (Shape{count, 2 * classes, part, part}) && c % classes == 0),
            Value,
            "{}: trans must be (K, 2 * classes, {}, {}) for {} rois, with classes a divisor of {} channels; got {}.",
            who, part, part, count, c, trans.shape().str());
  const Val edges = unary("round", em.detached(slice(rois, 1, 1, 5)));
  const Val start = slice(edges, 1, 0, 2) * p.spatial_scale - 0.5;  // x, y
  const Val far = (slice(edges, 1, 2, 4) + 1.0) * p.spatial_scale - 0.5 - start;
  const Val size = binary("maximum", far, scalar_like(far, 0.1));

  // Samples along x (axis 0) or y, (K, classes, PH, PW, S), and whether they count.
  auto positions = [&](int64_t axis, int64_t pooled, int64_t limit) {
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
    const Val side = shaped(pick(size, 1, axis), {count, 1, 1, 1, 1});
    Val place = shaped(pick(start, 1, axis), {count, 1, 1, 1, 1}) +
                side * float_table(image, within, Shape{1, 1, ph, pw, samples});
    if (!p.no_trans) {
      const Val by_axis = pick(shaped(trans, {count, classes, 2, part, part}), 2, axis);
      const Val at[] = {int_table(image, part_y, Shape{ph, pw}), int_table(image, part_x, Shape{ph, pw})};
      place = place + expand(index_get(by_axis, at, {2, 3}, 2), {-1}) * side * p.trans_std;
    }
    const double last = static_cast<double>(limit);
    const Val counts = binary("logical_and", binary("le", scalar_like(place, -0.5), place),
                              binary("le", place, scalar_like(place, last - 0.5)));
    return std::pair(clip(place, 0, last - 1), counts);
  };
  const auto [x, use_x] = positions(0, pw, width);
  const auto [y, use_y] = positions(1, ph, height);
  const Shape shape{count, classes, ph, pw, samples, samples};
  const Val use =
      cast(broadcast_to(binary("logical_and", expand(use_x, {-2}), expand(use_y, {-1})), shape), image.dtype());
  const Val of_roi =
      shaped(take(image, cast(pick(rois, 1, 0), DType::I32), 0), {count, classes, c / classes, height, width});
  const int64_t points = ph * pw * samples * samples;
  const Val seen = samples_at(of_roi, shaped(broadcast_to(expand(y, {-1}), shape), {count, classes, points}),
                              shaped(broadcast_to(expand(x, {-2}), shape), {count, classes, points}));
  const Val weighted = shaped(seen, {count, classes, ph, pw, samples * samples, c / classes}) *
                       shaped(use, {count, classes, ph, pw, samples * samples, 1});
  const Val used = sum(shaped(use, {count, classes, ph, pw, samples * samples, 1}), {4});
  const Val average = sum(weighted, {4}) / binary("maximum", used, scalar_like(used, 1));
  for (const Val& v : {average, broadcast_to(used, average.shape())})
    out.push_back(shaped(transpose(v, {0, 1, 4, 2, 3}), {count, c, ph, pw}));
}

}  // namespace

void add_deformable(Table& t) {
  t.add<ConvPolicy, deformable_conv>("DeformableConv", {4, 4}, "DeformableConvForwardV1@1 DeformableConvForward@2");
  t.leave_uncast();
  t.add<PsRoi, psroi_pooling>("DeformablePSROIPooling", {3, 3}, "DeformablePSROIPoolingForward@1");
}

}  // namespace mge::compat
