// Which memory order kernels give their outputs. Tensors are values and strides are not seen by users, so a convolution
// may answer in channels-last order and everything after it keeps that order (docs/adr/0007-physical-layout.md).
#pragma once
#include "kernel/kernel.h"

namespace mge {

/// Channels-last and not also row-major.
inline bool in_channels_last(const TensorArg& t) {
  return t.shape.rank >= 3 && t.layout.is_channels_last(t.shape) && !t.contiguous();
}
inline void ask_channels_last(TensorArg& t) { t.layout = Layout::channels_last(t.shape); }
inline void ask_row_major(TensorArg& t) { t.layout = Layout::contiguous(t.shape); }

/// Kernel::layouts of elementwise kernels: outputs are channels-last when an input of their shape is.
void keep_channels_last(const KernelArgs& a, TensorArg* in, TensorArg* out);

/// The same tensors with the axes in the order of their memory: after it a dense `out` is row-major. Inputs are
/// broadcast to out's rank first (missing axes have size 1).
void sort_axes_by_output(TensorArg& out, std::span<TensorArg> in);

}  // namespace mge
