#include "compat/windows.h"

#include <array>

#include "op/conv/conv_geom.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

/// The elements of x that tap (i, j) of each window meets.
SliceAttrs tap(const Window& w, int64_t i, int64_t j, int64_t oh, int64_t ow) {
  const int64_t top = i * w.dh, left = j * w.dw;
  return {{2, 3}, {top, left}, {top + oh * w.sh, left + ow * w.sw}, {w.sh, w.sw}};
}

}  // namespace

Val sliding_window(const char* who, const Val& image, const Window& w) {
  const Shape s = now(image);
  MGE_CHECK(s.rank == 4, Value, "{}: the input needs 4 dimensions (N, C, H, W); got {}.", who, s.str());
  MGE_CHECK(w.sh > 0 && w.sw > 0 && w.dh > 0 && w.dw > 0 && w.kh > 0 && w.kw > 0, Value,
            "{}: window, stride and dilation must be at least 1.", who);
  const std::pair<int64_t, int64_t> widths[] = {{0, 0}, {0, 0}, {w.ph, w.ph}, {w.pw, w.pw}};
  const Val x = padded(image, widths);
  MGE_CHECK(now(x)[2] > w.dh * (w.kh - 1) && now(x)[3] > w.dw * (w.kw - 1), Value,
            "{}: a window of {} x {} with dilation {} x {} does not fit into {}.", who, w.kh, w.kw, w.dh, w.dw,
            now(x).str());
  // The last tap of a window ends where the image does, each one before it that much earlier: for any size.
  auto stop = [](int64_t tap, int64_t taps, int64_t dilation) {
    const int64_t after = (taps - 1 - tap) * dilation;
    return after ? -after : SliceAttrs::kOpen;
  };
  Out rows;
  for (int64_t i = 0; i < w.kh; ++i) {
    Out row;
    for (int64_t j = 0; j < w.kw; ++j)
      row.push_back(emit(
          "slice", {x},
          SliceAttrs{{2, 3}, {i * w.dh, j * w.dw}, {stop(i, w.kh, w.dh), stop(j, w.kw, w.dw)}, {w.sh, w.sw}, true}));
    rows.push_back(stack(row, 4));
  }
  return stack(rows, 4);  // [N, C, OH, OW, kh, kw]
}

Val add_windows(const char* who, const Val& windows, int64_t height, int64_t width, const Window& w) {
  const Shape s = now(windows);
  const int64_t h = height + 2 * w.ph, wd = width + 2 * w.pw;
  const int64_t oh = conv_outputs(h, w.kh, w.sh, 0, w.dh), ow = conv_outputs(wd, w.kw, w.sw, 0, w.dw);
  MGE_CHECK(s.rank == 6 && s[2] == oh && s[3] == ow && s[4] == w.kh && s[5] == w.kw, Assertion,
            "{}: windows of shape (N, C, {}, {}, {}, {}) are needed; got {}.", who, oh, ow, w.kh, w.kw, s.str());
  SizeValues image{{s[0], s[1], h, wd}, {}};
  if (windows.em->any_size(windows)) {
    const Val parts[] = {slice(windows.em->size_operand(windows), 0, 0, 2),
                         int_table(windows, std::array{h, wd}, Shape{2})};
    image.operand = concat(parts, 0);
  }
  const Val zero = windows.em->constant(0, windows.dtype(), windows);
  Val y = emit_sized("broadcast_to", {zero}, ShapeAttrs{image.now}, "shape", image);
  // Each pixel takes its windows row by row: the first one has it at its end.
  for (int64_t i = w.kh - 1; i >= 0; --i)
    for (int64_t j = w.kw - 1; j >= 0; --j) {
      SliceAttrs at = tap(w, i, j, oh, ow);
      at.stops[0] -= w.sh - 1;
      at.stops[1] -= w.sw - 1;
      const Val part = pick(pick(windows, 5, j), 4, i);
      const Attrs attrs = make_attrs(std::move(at));
      y = y.em->emit1("set_slice", {y, y.em->emit1("slice", {y}, attrs) + part}, attrs);
    }
  return slice(slice(y, 2, w.ph, w.ph + height), 3, w.pw, w.pw + width);
}

}  // namespace mge::compat
