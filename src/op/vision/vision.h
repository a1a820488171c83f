// Ops on images [N,C,H,W]: sampling at given positions (remap), resizing, pooling of regions, and choosing boxes.
#pragma once
#include <string>

#include "op/attrs.h"

namespace mge {

struct RemapAttrs {
  std::string border = "replicate";  // replicate, reflect (cba|abc), reflect_101 (dcb|abc), wrap, constant
  bool nearest = false;              // otherwise bilinear
  double value = 0;                  // of everything outside, for border constant
  static constexpr auto fields() {
    return field_list("border", &RemapAttrs::border, "nearest", &RemapAttrs::nearest, "value", &RemapAttrs::value);
  }
};

struct RemapDxAttrs {
  std::string border = "replicate";
  bool nearest = false;
  Ints x_shape{};
  static constexpr auto fields() {
    using A = RemapDxAttrs;
    return field_list("border", &A::border, "nearest", &A::nearest, "x_shape", &A::x_shape);
  }
};

/// Over all axes after the first two.
struct ResizeAttrs {
  Ints size{};
  std::string mode = "linear";  // linear, cubic (a = -0.75), nearest
  bool align_corners = false;   // the outermost elements are met exactly; otherwise centres of equal cells
  static constexpr auto fields() {
    using A = ResizeAttrs;
    return field_list("size", &A::size, "mode", &A::mode, "align_corners", &A::align_corners);
  }
};

struct ResizeBwdAttrs {
  Ints x_size{};
  std::string mode = "linear";
  bool align_corners = false;
  static constexpr auto fields() {
    using A = ResizeBwdAttrs;
    return field_list("x_size", &A::x_size, "mode", &A::mode, "align_corners", &A::align_corners);
  }
};

struct RoiAlignAttrs {
  Ints size{1, 1}, samples{2, 2};  // of the result; samples per cell
  double scale = 1;                // from the coordinates of the regions to those of x
  bool aligned = true;             // coordinates name corners of pixels: half a pixel is taken off
  bool max = false;                // the largest sample instead of the mean
  static constexpr auto fields() {
    using A = RoiAlignAttrs;
    return field_list("size", &A::size, "samples", &A::samples, "scale", &A::scale, "aligned", &A::aligned, "max",
                      &A::max);
  }
};

struct RoiPoolAttrs {
  Ints size{1, 1};
  double scale = 1;
  bool max = true;  // otherwise the mean
  static constexpr auto fields() {
    return field_list("size", &RoiPoolAttrs::size, "scale", &RoiPoolAttrs::scale, "max", &RoiPoolAttrs::max);
  }
};

struct NmsAttrs {
  double iou_thresh = 0.5;
  int64_t max_output = 1;
  static constexpr auto fields() {
    return field_list("iou_thresh", &NmsAttrs::iou_thresh, "max_output", &NmsAttrs::max_output);
  }
};

}  // namespace mge
