// CvtColor: every conversion is a matrix with a constant column, some after unpacking U and V of half the size.
#include <algorithm>
#include <cmath>

#include "compat/emit.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(ColourMode, "CvtColor", "Mode", RGB2GRAY, RGB2YUV, YUV2RGB, GRAY2RGB, RGBA2RGB, RGBA2BGR, RGBA2GRAY,
                RGB2BGR, BGR2GRAY, BGR2RGB, YUV2GRAY_NV21, YUV2RGB_NV21, YUV2BGR_NV21, YUV2GRAY_NV12, YUV2RGB_NV12,
                YUV2BGR_NV12, YUV2GRAY_YV12, YUV2RGB_YV12, YUV2BGR_YV12, YUV2GRAY_YU12, YUV2RGB_YU12, YUV2BGR_YU12,
                YCrCb2RGB, YCrCb2BGR, BT601_YUV2RGB_NV21, BT601_YUV2BGR_NV21, BT601_YUV2RGB_NV12, BT601_YUV2BGR_NV12,
                BT601_YUV2RGB_YV12, BT601_YUV2BGR_YV12, BT601_YUV2RGB_YU12, BT601_YUV2BGR_YU12)

struct CvtColor {
  ColourMode mode = ColourMode::RGB2GRAY;
  static constexpr auto fields() { return field_list("mode", &CvtColor::mode); }
};

// A row gives one output channel; the last column is a constant in parts of the full range.
using Matrix = std::vector<std::vector<double>>;

constexpr double kR = 0.299, kG = 0.587, kB = 0.114;

Matrix plain(ColourMode mode) {
  using M = ColourMode;
  switch (mode) {
    case M::RGB2GRAY:
      return {{kR, kG, kB, 0}};
    case M::BGR2GRAY:
      return {{kB, kG, kR, 0}};
    case M::RGBA2GRAY:
      return {{kR, kG, kB, 0, 0}};
    case M::RGB2BGR:
    case M::BGR2RGB:
      return {{0, 0, 1, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}};
    case M::RGBA2RGB:
      return {{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}};
    case M::RGBA2BGR:
      return {{0, 0, 1, 0, 0}, {0, 1, 0, 0, 0}, {1, 0, 0, 0, 0}};
    case M::GRAY2RGB:
      return {{1, 0}, {1, 0}, {1, 0}};
    case M::RGB2YUV:  // U = 0.492 * (B - Y) + 0.5, V = 0.877 * (R - Y) + 0.5
      return {{kR, kG, kB, 0},
              {-0.492 * kR, -0.492 * kG, 0.492 * 0.886, 0.5},
              {0.877 * 0.701, -0.877 * kG, -0.877 * kB, 0.5}};
    case M::YUV2RGB:
      return {{1, 0, 1.14, -0.5 * 1.14}, {1, -0.395, -0.581, 0.5 * (0.395 + 0.581)}, {1, 2.032, 0, -0.5 * 2.032}};
    default:
      return {};
  }
}
// Y, U and V (both around 0) to red, green and blue; BT.601 leaves out the ends of the range, and the original computes
// it with few bits: 2 stands for 2.018.
const Matrix kFull = {{1, 0, 1.402, 0}, {1, -0.344, -0.714, 0}, {1, 1.772, 0, 0}};
const Matrix kBt601 = {{1.164, 0, 1.59375, -1.164 * 16 / 255},
                       {1.164, -0.390625, -0.8125, -1.164 * 16 / 255},
                       {1.164, 2, 0, -1.164 * 16 / 255}};

// Of integers the original computes with integers: sums of these rows, in parts of 2^bits, rounded down.
struct Fixed {
  Matrix rows;
  int bits = 0;
};
constexpr double kOne = 16384, kHalf = 8192;  // at 14 bits
const Fixed kFixedFull = {{{256, 0, 359, 0}, {256, -88, -183, 255}, {256, 454, 0, 0}}, 8};
Fixed fixed(ColourMode mode) {
  using M = ColourMode;
  switch (mode) {
    case M::RGB2GRAY:
      return {{{4899, 9617, 1868, kHalf}}, 14};
    case M::BGR2GRAY:
      return {{{1868, 9617, 4899, kHalf}}, 14};
    case M::RGBA2GRAY:
      return {{{4899, 9617, 1868, 0, kHalf}}, 14};
    case M::RGB2YUV:  // of red, green, blue and the rounded Y
      return {{{0, 0, 0, kOne, 0}, {0, 0, 8061, -8061, 128 * kOne + kHalf}, {14369, 0, 0, -14369, 128 * kOne + kHalf}},
              14};
    case M::YUV2RGB:
      return {{{kOne, 0, 18678, kHalf - 128 * 18678.0},
               {kOne, -6472, -9519, kHalf + 128 * (6472.0 + 9519)},
               {kOne, 33292, 0, kHalf - 128 * 33292.0}},
              14};
    default:
      return {};
  }
}

/// Every pixel's channels, the last axis, through the matrix.
Val mixed(const Val& x, const Matrix& m, double full) {
  const int64_t rows = static_cast<int64_t>(m.size()), cols = static_cast<int64_t>(m[0].size()) - 1;
  std::vector<double> factors, constants;
  for (auto& row : m) {
    factors.insert(factors.end(), row.begin(), row.end() - 1);
    constants.push_back(row.back() * full);
  }
  return matmul(x, float_table(x, factors, Shape{rows, cols}), false, true) + float_table(x, constants, Shape{rows});
}

/// The same in integers: sums stay below 2^24, so float32 holds them.
Val mixed(const Val& x, const Fixed& f) { return unary("floor", mixed(x, f.rows, 1) / std::ldexp(1.0, f.bits)); }

/// Images (N, 3H/2, W, 1) with U and V of half the size below Y as (N, H, W, 3), U and V around 0.
Val unpacked(const Val& image, std::string_view name, std::string_view layout) {
  const Shape s = now(image);
  const bool planes = layout == "YU12" || layout == "YV12";
  MGE_CHECK(s[3] == 1 && s[1] % (planes ? 6 : 3) == 0 && s[2] % 2 == 0, Value,
            "CvtColor: {} takes (N, 3H/2, W, 1) with even H and W; got {}.", name, s.str());
  auto divided = [](const SizeValue& size, int64_t by) {
    SizeValue part{size.now / by, {}};
    if (size.operand)
      part.operand = binary("floor_div", size.operand, scalar_like(size.operand, static_cast<double>(by)));
    return part;
  };
  const SizePart n(image, 0), width(image, 2), h = divided(size_at(image, 1), 3), w = divided(width, 2);
  const Val thirds = shaped_as(cast(image, DType::F32), {n, 3, h, width});  // two of Y, one of U and V
  const Val below = slice(thirds, 1, 2, 3);
  const Val parts = planes ? shaped_as(below, {n, 2, h, w}) : shaped_as(below, {n, h, w, 2});
  const int64_t axis = planes ? 1 : 3;
  const bool u_first = layout == "NV12" || layout == "YU12";
  const SizeValues twice = joined({n, h, 2, w, 2});
  auto doubled = [&](const Val& p) {
    return shaped_as(broadcast_as(expand(p, {2, 4}), twice), {n, -1, width}) - 128.0;
  };
  const Val yuv[] = {shaped_as(slice(thirds, 1, 0, 2), {n, -1, width}), doubled(pick(parts, axis, u_first ? 0 : 1)),
                     doubled(pick(parts, axis, u_first ? 1 : 0))};
  return stack(yuv, 3);
}

void cvt_color(Emitter&, const CvtColor& p, In in, Out& out) {
  const Val& image = in[0];
  const Shape s = now(image);
  const std::string_view name = name_of(p.mode);
  MGE_CHECK(s.rank == 4, Value, "CvtColor: images need 4 dimensions (N, H, W, C); got {}.", s.str());
  const bool integer = is_int(image.dtype());
  auto finished = [&](const Val& y) { return integer ? cast(clip(unary("round", y), 0, 255), image.dtype()) : y; };
  const Matrix m = plain(p.mode);
  if (m.empty()) {  // the conversion and the layout: BT601_YUV2RGB, NV21; YCrCb is laid out like NV21
    const bool crcb = name.starts_with("YCrCb");
    const std::string_view layout = crcb ? "NV21" : name.substr(name.size() - 4);
    const std::string_view what = crcb ? name : name.substr(0, name.size() - 5);
    const Val yuv = unpacked(image, name, layout);
    if (what.ends_with("GRAY")) return out.push_back(finished(slice(yuv, 3, 0, 1)));
    const bool narrow = what.starts_with("BT601");
    const Val rgb = integer && !narrow ? mixed(yuv, kFixedFull) : mixed(yuv, narrow ? kBt601 : kFull, 255);
    return out.push_back(finished(what.ends_with("RGB") ? rgb : flipped(rgb, 3)));
  }
  MGE_CHECK(s[3] == static_cast<int64_t>(m[0].size()) - 1, Value, "CvtColor: {} takes {} channels; got {}.", name,
            m[0].size() - 1, s.str());
  dim(image, 3);
  std::vector<int64_t> source;  // where channels move and nothing is computed
  for (auto& row : m) {
    const auto one = std::ranges::find(row, 1.0);
    const bool moves = one != row.end() && std::ranges::count(row, 0.0) == static_cast<int64_t>(row.size()) - 1;
    if (moves) source.push_back(one - row.begin());
  }
  if (source.size() == m.size())
    return out.push_back(take(image, int_table(image, source, Shape{static_cast<int64_t>(source.size())}), 3));
  Val x = cast(image, DType::F32);
  if (!integer) return out.push_back(mixed(x, m, 1));
  if (p.mode == ColourMode::RGB2YUV) {
    const Val rgby[] = {x, mixed(x, fixed(ColourMode::RGB2GRAY))};
    x = concat(rgby, 3);
  }
  out.push_back(finished(mixed(x, fixed(p.mode))));
}

// In files these two mean what the original computes, which has blue in front whatever they are called.
void cvt_color_of_file(Emitter& em, const CvtColor& p, In in, Out& out) {
  const bool from = p.mode == ColourMode::RGB2YUV, to = p.mode == ColourMode::YUV2RGB;
  const Val image = from && in[0].rank() == 4 ? flipped(in[0], 3) : in[0];
  cvt_color(em, p, {&image, 1}, out);
  if (to) out[0] = flipped(out[0], 3);
}

}  // namespace

void add_colours(Table& t) {
  t.add<CvtColor, cvt_color>("CvtColor", {1, 1});
  t.leave_uncast();
  t.add_file_type<CvtColor, cvt_color_of_file>("CvtColorOfFile", {1, 1}, "CvtColor@1");
}

}  // namespace mge::compat
