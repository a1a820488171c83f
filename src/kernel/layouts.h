// Which memory order kernels give their outputs. Tensors are values and strides are not seen by users, so a convolution
// may answer in channels-last (NHWC) order and everything after it keeps that order (docs/adr/0007-physical-layout.md).
#pragma once
#include "kernel/kernel.h"

namespace mge {

/// Channels-last and not also row-major.
inline bool in_channels_last(const TensorArg& t) {
  return t.shape.rank >= 3 && t.layout.is_channels_last(t.shape) && !t.contiguous();
}
/// In the order of channels-last, with or without gaps: a slice of such a tensor, too.
bool runs_along_channels(const TensorArg& t);
inline void ask_channels_last(TensorArg& t) { t.layout = Layout::channels_last(t.shape); }
inline void ask_row_major(TensorArg& t) { t.layout = Layout::contiguous(t.shape); }

/// The elements that a tensor's strides reach, counted from its first one: [low, high). low is below 0 where a stride
/// is negative; an empty tensor reaches none.
struct Reach {
  int64_t low = 0, high = 0;
};
inline Reach reach_of(const Shape& shape, const Layout& layout) {
  Reach r;
  if (shape.numel() == 0) return r;
  r.high = 1;
  for (int i = 0; i < shape.rank; ++i) {
    const int64_t far = layout.stride[i] * (shape[i] - 1);
    (far < 0 ? r.low : r.high) += far;
  }
  return r;
}

/// Kernel::layouts of elementwise kernels: outputs are channels-last when an input of their shape is.
void keep_channels_last(const KernelArgs& a, TensorArg* in, TensorArg* out);

/// The same tensors with the axes in the order of their memory: after it a dense `out` is row-major. Inputs are
/// broadcast to out's rank first (missing axes have size 1).
void sort_axes_by_output(TensorArg& out, std::span<TensorArg> in);

}  // namespace mge
