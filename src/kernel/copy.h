// Strided copies of any dtype: the move behind reshape, transpose, contiguous() and export.
#pragma once
#include "kernel/kernel.h"

namespace mge {

/// dst[i] = src[i] over dst.shape (== src.shape); dtypes equal; either side may be strided, dst without overlap.
void copy_strided(const TensorArg& src, const TensorArg& dst);
/// The same as a part of `work` (null: now). Both are memory of its device and outlive the work by the order of
/// streams.
void copy_strided(const TensorArg& src, const TensorArg& dst, Work* work);

/// How memory of a kind of device is copied by work of its streams; whoever has its kernels installs it.
using StridedCopy = void (*)(const TensorArg& src, const TensorArg& dst, Work& work);
void set_strided_copy(DeviceKind kind, StridedCopy copy);

/// Whether a result of that many bytes is written past the cache: it would not stay there, and a plain store reads the
/// line it overwrites first (non-temporal, or streaming, stores).
inline bool streams(int64_t bytes) { return bytes >= 32 << 20; }

/// The inner loops of copies; a leaf with vector code installs its own.
struct MoveKernels {
  /// dst[r*dst_stride + c] = src[c*src_stride + r] for r < rows, c < cols; strides in elements of `size` bytes.
  void (*transpose)(size_t size, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                    int64_t cols, bool stream);
  /// memcpy that writes past the cache. Other threads may read dst after stream_end() on this one.
  void (*stream_copy)(void* dst, const void* src, size_t bytes);
  void (*stream_end)();
};
void set_move_kernels(const MoveKernels& k);

/// Strided iteration with adjacent dims merged. Operand 0 is usually the output.
struct LoopNest {
  int rank = 0;
  int operands = 0;
  int64_t size[kMaxRank];
  int64_t stride[4][kMaxRank];  // per operand, in elements
};
/// Operands broadcast to `shape` (missing leading dims and size-1 dims get stride 0); dims of size 1 dropped, mergeable
/// neighbours merged, so a contiguous case has rank 1 (0 for a single element).
LoopNest make_loop_nest(const Shape& shape, std::span<const TensorArg* const> operands);

}  // namespace mge
