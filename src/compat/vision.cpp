// Images: sampling, warping, regions, turning, blurring, suppression.
#include "op/vision/vision.h"

#include <array>
#include <cmath>

#include "compat/emit.h"
#include "compat/enums.h"
#include "op/conv/conv2d.h"
#include "op/pool/pool.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(RoiMode, "ROIAlign", "Mode", MAX, AVERAGE)
// The numbering before Convolution's second version, which this class kept.
MGE_COMPAT_ENUM(FormatV0, "Correlation", "Format", NCHW, NHWC, NHWCD4, NCHW4, NCHW8, NCHW32, NCHW88, NCHW44, NCHW44_DOT,
                NCHW_WINOGRAD, NCHW88_WINOGRAD, NCHW44_WINOGRAD, NCHW4_NCHW32, NCHW32_NCHW4, NCHW4_NCHW, NHWC_NCHW,
                NHWC_NCHW4_IC_SMALL, NCHW_NCHW4_IC_SMALL, CHWN4, NCHW4_NHWC)
MGE_COMPAT_ENUM(VolumeFormat, "Resize3D", "Format", NCDHW, NDHWC)

struct RoiPooling {
  RoiMode mode = RoiMode::MAX;
  double scale = 1;
  static constexpr auto fields() { return field_list("mode", &RoiPooling::mode, "scale", &RoiPooling::scale); }
};
struct RoiAlign {
  RoiMode mode = RoiMode::MAX;
  Format format = Format::NCHW;
  double spatial_scale = 1, offset = 0;
  int64_t pooled_height = 1, pooled_width = 1, sample_height = 2, sample_width = 2;
  static constexpr auto fields() {
    using P = RoiAlign;
    return field_list("mode", &P::mode, "format", &P::format, "spatial_scale", &P::spatial_scale, "offset", &P::offset,
                      "pooled_height", &P::pooled_height, "pooled_width", &P::pooled_width, "sample_height",
                      &P::sample_height, "sample_width", &P::sample_width);
  }
};
struct Correlation {
  FormatV0 format = FormatV0::NCHW;
  int64_t kernel_size = 1, max_displacement = 1, stride1 = 1, stride2 = 1, pad_size = 0;
  bool is_multiply = true;
  static constexpr auto fields() {
    using P = Correlation;
    return field_list("format", &P::format, "kernel_size", &P::kernel_size, "max_displacement", &P::max_displacement,
                      "stride1", &P::stride1, "stride2", &P::stride2, "pad_size", &P::pad_size, "is_multiply",
                      &P::is_multiply);
  }
};
struct Warp {
  InterpolationMode imode = InterpolationMode::LINEAR;
  BorderMode bmode = BorderMode::REPLICATE;
  Format format = Format::NCHW;
  double border_val = 0;
  static constexpr auto fields() {
    using P = Warp;
    return field_list("imode", &P::imode, "bmode", &P::bmode, "format", &P::format, "border_val", &P::border_val);
  }
};
struct WarpAffine {
  InterpolationMode imode = InterpolationMode::LINEAR;
  BorderMode border_mode = BorderMode::REPLICATE;
  double border_val = 0;
  Format format = Format::NHWC;
  static constexpr auto fields() {
    using P = WarpAffine;
    return field_list("imode", &P::imode, "border_mode", &P::border_mode, "border_val", &P::border_val, "format",
                      &P::format);
  }
};
struct Remap {
  InterpolationMode imode = InterpolationMode::LINEAR;
  BorderMode border_type = BorderMode::REPLICATE;
  Format format = Format::NHWC;
  double scalar = 0;
  static constexpr auto fields() {
    using P = Remap;
    return field_list("imode", &P::imode, "border_type", &P::border_type, "format", &P::format, "scalar", &P::scalar);
  }
};
struct Resize {
  InterpolationMode imode = InterpolationMode::LINEAR;
  Format format = Format::NHWC;
  static constexpr auto fields() { return field_list("imode", &Resize::imode, "format", &Resize::format); }
};
struct Resize3D {
  InterpolationMode imode = InterpolationMode::LINEAR;
  VolumeFormat format = VolumeFormat::NDHWC;
  bool align_corners = false;
  static constexpr auto fields() {
    return field_list("imode", &Resize3D::imode, "format", &Resize3D::format, "align_corners",
                      &Resize3D::align_corners);
  }
};
struct Rotate {
  bool clockwise = true;
  static constexpr auto fields() { return field_list("clockwise", &Rotate::clockwise); }
};
struct Flip {
  bool vertical = false, horizontal = false;
  static constexpr auto fields() { return field_list("vertical", &Flip::vertical, "horizontal", &Flip::horizontal); }
};
struct GaussianBlur {
  BorderMode border_mode = BorderMode::REPLICATE;
  int64_t kernel_height = 0, kernel_width = 0;
  double sigma_x = 0, sigma_y = 0;
  static constexpr auto fields() {
    using P = GaussianBlur;
    return field_list("border_mode", &P::border_mode, "kernel_height", &P::kernel_height, "kernel_width",
                      &P::kernel_width, "sigma_x", &P::sigma_x, "sigma_y", &P::sigma_y);
  }
};
struct NmsKeep {
  double iou_thresh = 0;
  int64_t max_output = 0;
  static constexpr auto fields() {
    return field_list("iou_thresh", &NmsKeep::iou_thresh, "max_output", &NmsKeep::max_output);
  }
};

void only_nchw(const char* who, Format f) {
  MGE_CHECK(f == Format::NCHW, NotImplemented, "{}: format must be NCHW; got {}.", who, name_of(f));
}
void check_image(const char* who, const Val& x) {
  MGE_CHECK(x.rank() == 4, Value, "{}: images need 4 dimensions; got {}.", who, x.shape().str());
}

Val to_nchw(const Val& x, Format f) { return f == Format::NHWC ? transpose(x, {0, 3, 1, 2}) : x; }
Val from_nchw(const Val& x, Format f) { return f == Format::NHWC ? transpose(x, {0, 2, 3, 1}) : x; }

/// A floating result as the dtype of the image: integers are rounded and kept in range.
Val as_image(const Val& y, DType t) {
  if (!is_int(t)) return cast(y, t);
  const bool is_signed = t == DType::I8 || t == DType::I16 || t == DType::I32 || t == DType::I64;
  const int bits = static_cast<int>(dtype_size(t)) * 8 - is_signed;
  const double top = std::ldexp(1.0, bits);
  return cast(clip(unary("round", y), is_signed ? -top : 0, top - 1), t);
}

/// `fn` on images in NCHW; integers pass through float32 and are rounded back.
template <class F>
Val in_nchw(const char* who, const Val& image, Format f, F fn) {
  MGE_CHECK(f == Format::NCHW || f == Format::NHWC, NotImplemented, "{}: format must be NCHW or NHWC; got {}.", who,
            name_of(f));
  check_image(who, image);
  const Val x = to_nchw(image, f);
  const Val y = fn(wide(is_int(x.dtype()) ? cast(x, DType::F32) : x));
  return from_nchw(as_image(y, image.dtype()), f);
}

RemapAttrs sampling(const char* who, InterpolationMode i, BorderMode b, double value) {
  MGE_CHECK(b <= BorderMode::CONSTANT, Value,
            "{}: the border mode must be REPLICATE, REFLECT, REFLECT_101, WRAP or CONSTANT; got {}.", who, name_of(b));
  MGE_CHECK(i <= InterpolationMode::LINEAR, Value, "{}: the interpolation mode must be LINEAR or NEAREST; got {}.", who,
            name_of(i));
  return {lower(name_of(b)), i == InterpolationMode::NEAREST, value};
}

/// Height and width from the operand that holds them.
std::pair<int64_t, int64_t> plane(const char* who, const Val& v) {
  const Ints s = known_ints(who, "the output shape", v);
  MGE_CHECK(s.size() == 1 || s.size() == 2, Value, "{}: the output shape is (height, width); got {} sizes.", who,
            s.size());
  return {s[0], s.back()};
}

/// Height and width; `operand` where later calls may have others.
SizeValues plane_sizes(const char* who, const Val& v) {
  SizeValues s = sizes_of(who, "the output shape", v);
  MGE_CHECK(s.now.size() == 1 || s.now.size() == 2, Value, "{}: the output shape is (height, width); got {} sizes.",
            who, s.now.size());
  if (s.now.size() == 1) {
    s.now.push_back(s.now[0]);
    if (s.operand) s.operand = concat(std::array{s.operand, s.operand}, 0);
  }
  return s;
}
/// Every output position (x, y, 1) through the matrices, for any output: [B, OH, OW, rows].
Val through_any(const Val& mat, const SizeValues& plane) {
  const Val x = cast(iota(mat, size_at(plane, 1)), DType::F32);
  const Val y = expand(cast(iota(mat, size_at(plane, 0)), DType::F32), {1});
  const Val xs = x + y * 0.0, ys = y + x * 0.0;
  return matmul(expand(stack(std::array{xs, ys, xs * 0.0 + 1.0}, 2), {0}), expand(wide(mat), {1}), false, true);
}

/// Every output position (x, y, 1): [OH * OW, 3].
Val points(const Val& like, int64_t h, int64_t w) {
  std::vector<double> v;
  for (int64_t i = 0; i < h; ++i)
    for (int64_t j = 0; j < w; ++j) v.insert(v.end(), {static_cast<double>(j), static_cast<double>(i), 1.0});
  return float_table(like, v, Shape{h * w, 3});
}
Val through(const char* who, const Val& mat, int64_t rows, int64_t h, int64_t w) {
  const Shape s = now(mat);
  MGE_CHECK(s.rank == 3 && s[1] == rows && s[2] == 3, Value, "{}: the matrices must be (B, {}, 3); got {}.", who, rows,
            s.str());
  return matmul(points(mat, h, w), wide(mat), false, true);
}

struct Perspective {
  Val t, place;  // [B, OH * OW, 3]; [B, OH, OW, 2]
};
Perspective perspective(const char* who, const Val& mat, int64_t h, int64_t w) {
  const Val t = through(who, mat, 3, h, w);
  return {t, shaped(slice(t, 2, 0, 2) / slice(t, 2, 2, 3), {-1, h, w, 2})};
}

/// Linear sampling of images (N, H, W, C) of up to three channels takes positions in steps of 1/32 of a pixel.
bool in_steps(const Val& image, Format f, InterpolationMode mode) {
  return f == Format::NHWC && mode == InterpolationMode::LINEAR && image.rank() == 4 && now(image)[3] <= 3;
}
Val stepped(const Val& place) { return unary("round", place * 32.0) / 32.0; }
/// `place` with the values of another; the gradient is that of the position itself.
Val with_values_of(const Val& place, const Val& other) { return other + (place - place.em->detached(place)); }

void warp_perspective(Emitter&, const Warp& p, In in, Out& out) {
  const char* who = "WarpPerspective";
  const SizeValues size = plane_sizes(who, in.back());
  const Val& mat = in[1];
  Val place;
  if (size.operand) {
    const Val t = through_any(mat, size);
    place = slice(t, 3, 0, 2) / slice(t, 3, 2, 3);
  } else {
    place = perspective(who, mat, size.now[0], size.now[1]).place;
  }
  Val x = in[0];
  if (in.size() == 4) {  // the image that each matrix applies to
    MGE_CHECK(now(in[2]) == Shape{now(mat)[0]}, Assertion, "{}: mat_idx needs {} entries; got {}.", who, now(mat)[0],
              now(in[2]).str());
    x = take(x, cast(in[2], DType::I32), 0);
  }
  if (in_steps(x, p.format, p.imode)) place = with_values_of(place, stepped(place.em->detached(place)));
  const RemapAttrs at = sampling(who, p.imode, p.bmode, p.border_val);
  out.push_back(in_nchw(who, x, p.format, [&](const Val& v) { return emit("remap", {v, place}, at); }));
}

struct WarpBack {
  Perspective q;
  Val seen;  // where the image was sampled: the place, or that in steps
  Val dy;    // NCHW
};
WarpBack warp_back(const char* who, const Warp& p, const Val& mat, const Val& dy) {
  check_image(who, dy);
  const Val g = to_nchw(dy, p.format);
  const Perspective q = perspective(who, mat, g.shape()[2], g.shape()[3]);
  return {q, in_steps(dy, p.format, p.imode) ? stepped(q.place) : q.place, g};
}
void warp_backward_data(Emitter&, const Warp& p, In in, Out& out) {
  const char* who = "WarpPerspectiveBackwardData";
  const WarpBack b = warp_back(who, p, in[0], in[1]);
  const RemapAttrs at = sampling(who, p.imode, p.bmode, p.border_val);
  Ints shape = to_ints(in[2].shape());
  if (p.format == Format::NHWC) shape = {shape[0], shape[3], shape[1], shape[2]};
  out.push_back(from_nchw(emit("remap_dx", {b.dy, b.seen}, RemapDxAttrs{at.border, at.nearest, shape}), p.format));
}
// place = t[:2] / t[2], t = points * mat^T
void warp_backward_mat(Emitter&, const Warp& p, In in, Out& out) {
  const char* who = "WarpPerspectiveBackwardMat";
  const WarpBack b = warp_back(who, p, in[1], in[2]);
  const RemapAttrs at = sampling(who, p.imode, p.bmode, p.border_val);
  if (at.nearest) return out.push_back(zeros_like(in[1]));  // nearest pixels do not change with the matrix
  const Shape s = b.q.t.shape();
  const Val dplace = shaped(emit("remap_dmap", {to_nchw(in[0], p.format), b.seen, b.dy}, at), {s[0], s[1], 2});
  const Val dxy = dplace / slice(b.q.t, 2, 2, 3);
  const Val dt[] = {dxy, sum(-(dxy * shaped(b.q.place, {s[0], s[1], 2})), {2}, true)};
  const int64_t h = b.dy.shape()[2], w = b.dy.shape()[3];
  out.push_back(matmul(concat(dt, 2), points(in[1], h, w), true, false));
}

void warp_affine(Emitter&, const WarpAffine& p, In in, Out& out) {
  const char* who = "WarpAffine";
  const SizeValues size = plane_sizes(who, in[2]);
  const int64_t h = size.now[0], w = size.now[1];
  Val place = size.operand ? through_any(in[1], size) : shaped(through(who, in[1], 2, h, w), {-1, h, w, 2});
  if (in_steps(in[0], p.format, p.imode)) {
    // What a column and what a row adds, each to 1/1024, then their sum to 1/32.
    const Val m = place.em->detached(wide(in[1]));
    auto factor = [&](int64_t i) { return slice(m, 2, i, i + 1) * 1024.0; };  // [B, 2, 1]
    const Val x = cast(iota(m, size_at(size, 1)), DType::F32), y = cast(iota(m, size_at(size, 0)), DType::F32);
    const Val columns = unary("round", factor(0) * x), rows = unary("round", factor(1) * y + factor(2)) + 16.0;
    const Val nearest = unary("floor", (expand(rows, {3}) + expand(columns, {2})) / 32.0) / 32.0;  // [B, 2, OH, OW]
    place = with_values_of(place, transpose(nearest, {0, 2, 3, 1}));
  }
  const RemapAttrs at = sampling(who, p.imode, p.border_mode, p.border_val);
  out.push_back(in_nchw(who, in[0], p.format, [&](const Val& v) { return emit("remap", {v, place}, at); }));
}
void remap(Emitter&, const Remap& p, In in, Out& out) {
  const RemapAttrs at = sampling("Remap", p.imode, p.border_type, p.scalar);
  out.push_back(in_nchw("Remap", in[0], p.format, [&](const Val& v) { return emit("remap", {v, in[1]}, at); }));
}

void resize(Emitter&, const Resize& p, In in, Out& out) {
  const SizeValues given = plane_sizes("Resize", in[1]);
  static const char* const kModes[] = {"nearest", "linear", nullptr, "cubic", nullptr};
  const char* mode = kModes[static_cast<int>(p.imode)];
  MGE_CHECK(mode, NotImplemented, "Resize: imode must be LINEAR, CUBIC or NEAREST; got {}.", name_of(p.imode));
  out.push_back(in_nchw("Resize", in[0], p.format, [&](const Val& v) {
    return emit_sized("resize", {v}, ResizeAttrs{given.now, mode, false}, "size", given);
  }));
}
void resize3d(Emitter&, const Resize3D& p, In in, Out& out) {
  MGE_CHECK(p.format == VolumeFormat::NCDHW && p.imode == InterpolationMode::LINEAR, NotImplemented,
            "Resize3D: needs format NCDHW and imode LINEAR; got {} and {}.", name_of(p.format), name_of(p.imode));
  const SizeValues size = sizes_of("Resize3D", "the output shape", in[1]);
  MGE_CHECK(in[0].rank() == 5 && size.now.size() == 3, Value,
            "Resize3D: needs an input (N, C, D, H, W) and three sizes; got {} and {} sizes.", in[0].shape().str(),
            size.now.size());
  out.push_back(emit_sized("resize", {wide(in[0])}, ResizeAttrs{size.now, "linear", p.align_corners}, "size", size));
}

void roi_align(Emitter&, const RoiAlign& p, In in, Out& out) {
  only_nchw("ROIAlign", p.format);
  Val rois = in[1];
  if (p.offset != 0 && p.offset != 0.5) {  // the op knows these two; any other moves the regions
    const double shift = p.offset / p.spatial_scale, row[] = {0, shift, shift, shift, shift};
    rois = rois - float_table(rois, row, Shape{5});
  }
  out.push_back(emit("roi_align", {wide(in[0]), rois},
                     RoiAlignAttrs{{p.pooled_height, p.pooled_width},
                                   {p.sample_height, p.sample_width},
                                   p.spatial_scale,
                                   p.offset == 0.5,
                                   p.mode == RoiMode::MAX}));
  out.push_back(nothing(in[0], DType::I32));
}
void roi_pooling(Emitter&, const RoiPooling& p, In in, Out& out) {
  const auto [h, w] = plane("ROIPooling", in[2]);
  out.push_back(emit("roi_pooling", {wide(in[0]), in[1]}, RoiPoolAttrs{{h, w}, p.scale, p.mode == RoiMode::MAX}));
  out.push_back(nothing(in[0], DType::I32));
}

// How well patches of two images agree at each displacement: FlowNet's correlation layer.
void correlation(Emitter&, const Correlation& p, In in, Out& out) {
  MGE_CHECK(p.format == FormatV0::NCHW, NotImplemented, "Correlation: format must be NCHW; got {}.", name_of(p.format));
  const Shape s = now(in[0]);
  MGE_CHECK(s.rank == 4 && s == now(in[1]), Value,
            "Correlation: needs two images (N, C, H, W) of one shape; got {} and {}.", s.str(), now(in[1]).str());
  MGE_CHECK(p.kernel_size % 2 == 1 && p.stride1 > 0 && p.stride2 > 0, Value,
            "Correlation: kernel_size must be odd and strides at least 1; got {}, {} and {}.", p.kernel_size, p.stride1,
            p.stride2);
  const int64_t most = p.max_displacement, lost = 2 * (most + p.kernel_size / 2 - p.pad_size);
  MGE_CHECK(s[2] > lost && s[3] > lost, Value,
            "Correlation: displacement and kernel leave nothing of {}; raise pad_size.", s.str());
  const std::pair<int64_t, int64_t> widths[] = {{0, 0}, {0, 0}, {p.pad_size, p.pad_size}, {p.pad_size, p.pad_size}};
  const Val a = padded(in[0], widths), b = padded(in[1], widths);
  auto seen = [&](const Val& x, int64_t dy, int64_t dx) {
    return trimmed(trimmed(x, 2, most + dy, most - dy), 3, most + dx, most - dx);
  };
  const Val still = seen(a, 0, 0);
  const int64_t reach = p.max_displacement / p.stride2;
  Out maps;
  for (int64_t i = -reach; i <= reach; ++i)
    for (int64_t j = -reach; j <= reach; ++j) {
      const Val moved_b = seen(b, i * p.stride2, j * p.stride2);
      const Val one = mean(p.is_multiply ? still * moved_b : unary("abs", still - moved_b), {1}, true);
      maps.push_back(p.kernel_size > 1 || p.stride1 > 1
                         ? emit("avg_pool2d", {one},
                                AvgPoolAttrs{{p.kernel_size, p.kernel_size}, {p.stride1, p.stride1}, {0, 0}, false})
                         : one);
    }
  out.push_back(concat(maps, 1));
}

void rotate(Emitter&, const Rotate& p, In in, Out& out) {
  check_image("Rotate", in[0]);
  out.push_back(flipped(transpose(in[0], {0, 2, 1, 3}), p.clockwise ? 2 : 1));
}
void flip(Emitter&, const Flip& p, In in, Out& out) {
  check_image("Flip", in[0]);
  Val x = in[0];
  if (p.vertical) x = flipped(x, 1);
  if (p.horizontal) x = flipped(x, 2);
  out.push_back(p.vertical || p.horizontal ? x : unary("copy", x));
}

std::vector<double> bell(int64_t k, double sigma) {
  if (sigma == 0) sigma = 0.3 * (static_cast<double>(k - 1) * 0.5 - 1) + 0.8;
  std::vector<double> line;
  double total = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double at = static_cast<double>(i) - static_cast<double>(k - 1) / 2;
    line.push_back(std::exp(-(at * at) / (2 * sigma * sigma)));
    total += line.back();
  }
  for (double& v : line) v /= total;
  return line;
}
void gaussian_blur(Emitter&, const GaussianBlur& p, In in, Out& out) {
  check_image("GaussianBlur", in[0]);
  const int64_t kh = p.kernel_height, kw = p.kernel_width;
  MGE_CHECK(kh > 0 && kw > 0 && kh % 2 && kw % 2, Value, "GaussianBlur: the kernel must be odd; got {} x {}.", kh, kw);
  MGE_CHECK(p.border_mode == BorderMode::REPLICATE || p.border_mode == BorderMode::REFLECT_101 ||
                p.border_mode == BorderMode::CONSTANT,
            NotImplemented, "GaussianBlur: border_mode must be one of REPLICATE, REFLECT_101, CONSTANT; got {}.",
            name_of(p.border_mode));
  const Val x = cast(to_nchw(in[0], Format::NHWC), DType::F32);
  const int64_t c = x.shape()[1];
  const std::vector<double> col = bell(kh, p.sigma_y != 0 ? p.sigma_y : p.sigma_x), row = bell(kw, p.sigma_x);
  std::vector<double> kernel;
  for (int64_t i = 0; i < c; ++i)
    for (double a : col)
      for (double b : row) kernel.push_back(a * b);
  const std::pair<int64_t, int64_t> widths[] = {{0, 0}, {0, 0}, {kh / 2, kh / 2}, {kw / 2, kw / 2}};
  const Val around = p.border_mode == BorderMode::CONSTANT
                         ? padded(x, widths)
                         : padded_by_index(x, widths, p.border_mode == BorderMode::REPLICATE ? "replicate" : "reflect");
  const Val y =
      emit("conv2d", {around, float_table(x, kernel, Shape{c, 1, 1, kh, kw})}, Conv2dAttrs{{1, 1}, {0, 0}, {1, 1}, c});
  out.push_back(from_nchw(as_image(y, in[0].dtype()), Format::NHWC));
}

// Of boxes (B, N, 4) sorted by score the kept ones, the last repeated, and how many there are.
void nms_keep(Emitter& em, const NmsKeep& p, In in, Out& out) {
  const Shape s = now(in[0]);
  MGE_CHECK(s.rank == 3 && s[2] == 4, Value, "NMSKeep: needs boxes (B, N, 4); got {}.", s.str());
  MGE_CHECK(s[0] > 0, Value, "NMSKeep: needs at least one image; got {}.", s.str());
  // Of equal scores the first is better.
  const Val scores = emit("fill_like", {cast(pick(pick(in[0], 0, 0), 1, 0), DType::F32)}, ValueAttrs{0});
  const int64_t images = dim(in[0], 0);
  Out kept, counts;
  for (int64_t i = 0; i < images; ++i) {
    const Val args[] = {cast(pick(in[0], 0, i), DType::F32), scores};
    const Out r = emit_all(em, "nms", args, make_attrs(NmsAttrs{p.iou_thresh, p.max_output}));
    const Val& index = r[0];
    kept.push_back(p.max_output ? select(less(index, scalar_like(index, 0)), reduce(index, "max", {}, false), index)
                                : index);
    counts.push_back(r[1]);
  }
  out = {stack(kept, 0), stack(counts, 0)};
}

}  // namespace

void add_vision(Table& t) {
  t.add<RoiPooling, roi_pooling>("ROIPooling", {3, 3}, "ROIPooling@1");
  t.add<RoiAlign, roi_align>("ROIAlign", {2, 2}, "ROIAlignV1@1");
  t.add<Correlation, correlation>("Correlation", {2, 2}, "CorrelationForward@1");
  t.add<Warp, warp_perspective>("WarpPerspective", {3, 4}, "WarpPerspectiveV2@1");
  t.leave_uncast();
  t.add<Warp, warp_backward_data>("WarpPerspectiveBackwardData", {3, 3}, "WarpPerspectiveBackwardDataV2@1");
  t.leave_uncast();
  t.add<Warp, warp_backward_mat>("WarpPerspectiveBackwardMat", {3, 3}, "WarpPerspectiveBackwardMatV2@1");
  t.leave_uncast();
  t.add<WarpAffine, warp_affine>("WarpAffine", {3, 3}, "WarpAffineV2@1");
  t.leave_uncast();
  t.add<Remap, remap>("Remap", {2, 2}, "RemapV1@1");
  t.add<Resize, resize>("Resize", {2, 2}, "ResizeV2@1");
  t.add<Resize3D, resize3d>("Resize3D", {2, 2}, "Resize3D@1");
  t.add<Rotate, rotate>("Rotate", {1, 1}, "Rotate@1");
  t.add<Flip, flip>("Flip", {1, 1}, "Flip@1");
  t.add<GaussianBlur, gaussian_blur>("GaussianBlur", {1, 1}, "GaussianBlur@1");
  t.add<NmsKeep, nms_keep>("NMSKeep", {1, 1}, "NMSKeepMGB@1");
}

}  // namespace mge::compat
