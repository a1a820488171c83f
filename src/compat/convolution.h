// The parameters that all two-dimensional convolutions have.
#pragma once
#include "compat/enums.h"
#include "compat/windows.h"
#include "op/conv/conv2d.h"

namespace mge::compat {

MGE_COMPAT_ENUM(ConvMode, "BatchConvBias", "Mode", CROSS_CORRELATION, CONVOLUTION)
MGE_COMPAT_ENUM(Sparse, "BatchConvBias", "Sparse", DENSE, GROUP)

struct Conv {
  ConvMode mode = ConvMode::CROSS_CORRELATION;
  int64_t pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilate_h = 1, dilate_w = 1;
  Sparse sparse = Sparse::DENSE;
  Format format = Format::NCHW;
  ComputeMode compute_mode = ComputeMode::DEFAULT;
  static constexpr auto fields() {
    using P = Conv;
    return field_list("mode", &P::mode, "pad_h", &P::pad_h, "pad_w", &P::pad_w, "stride_h", &P::stride_h, "stride_w",
                      &P::stride_w, "dilate_h", &P::dilate_h, "dilate_w", &P::dilate_w, "sparse", &P::sparse, "format",
                      &P::format, "compute_mode", &P::compute_mode);
  }
  Conv2dAttrs attrs(int64_t groups) const {
    return {{stride_h, stride_w}, {pad_h, pad_w}, {dilate_h, dilate_w}, groups};
  }
  Window window(int64_t kh, int64_t kw) const { return {kh, kw, pad_h, pad_w, stride_h, stride_w, dilate_h, dilate_w}; }
};
struct ConvPolicy : Conv, Policy {
  static constexpr auto fields() { return std::tuple_cat(Conv::fields(), policy_fields()); }
};

/// Only NCHW has rules.
void check_format(const char* who, const Conv& p);

}  // namespace mge::compat
