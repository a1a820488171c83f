// Moving memory with vectors: transposed blocks, stores past the cache (non-temporal). See MoveKernels in
// kernel/copy.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernel/simd/matmul/gemm_scratch.h"

namespace mge::simd {

void transpose(size_t size, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
               int64_t cols, bool stream);
/// to[r][2i] = x[r][i] and to[r][2i + 1] = y[r][i] for r < rows, i < n; rows are xs, ys and ts apart.
void interleave_rows(const uint32_t* x, int64_t xs, const uint32_t* y, int64_t ys, uint32_t* to, int64_t ts,
                     int64_t rows, int64_t n);
/// memcpy that writes past the cache. Meanwhile the same number of bytes from `next` and `next2` on (null: nothing) is
/// fetched: without it memory would read and write in turns, at half its speed. Other threads may read dst after
/// stream_end() on this one.
void stream_copy(void* dst, const void* src, size_t bytes, const void* next = nullptr, const void* next2 = nullptr);
/// The same, fetching its own source ahead.
void stream_memcpy(void* dst, const void* src, size_t bytes);
void stream_end();

/// A convolution weight [outs, channels, taps] with blocks of output channels innermost:
///   dst[o / block * out_step + c * channel_step + t * tap_step + o % block]; a last, partial block is filled with
///   zeros.
struct WeightBlocks {
  int64_t outs, channels, taps, block, out_step, channel_step, tap_step;
};
void pack_weight(const WeightBlocks& b, const float* weight, float* dst);
/// dst [outs, channels] from blocks of 16 channels x 16 outputs, the outputs innermost; steps as above, per block.
void unpack_weight_1x1(int64_t outs, int64_t channels, int64_t out_step, int64_t channel_step, const float* src,
                       float* dst);

/// The row starts with a cache line and ends with one.
inline bool whole_lines(const float* y, int64_t n) { return reinterpret_cast<uintptr_t>(y) % 64 == 0 && n % 16 == 0; }

/// A row of results that goes past the cache when the whole result would not stay there:
///   StreamedRow row(stream, y, n);  … write row.at[0..n) …  row.finish(x + n);   // where the next row is read
/// Rows longer than the buffer are written in place. A range ends with stream_end().
class StreamedRow {
 public:
  static constexpr int64_t kMost = 8192;
  StreamedRow(bool stream, float* y, int64_t n)
      : at(stream && n <= kMost ? scratch(Scratch::Out, kMost) : y), y_(y), n_(n) {}
  void finish(const float* next, const float* next2 = nullptr) {
    if (at != y_) stream_copy(y_, at, static_cast<size_t>(n_) * sizeof(float), next, next2);
  }
  float* const at;

 private:
  float* y_;
  int64_t n_;
};

}  // namespace mge::simd
