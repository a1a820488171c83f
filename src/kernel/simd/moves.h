// Moving memory with vectors: transposed blocks and stores past the cache. See MoveKernels in kernel/copy.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace mge::simd {

void transpose(size_t size, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
               int64_t cols, bool stream);
void stream_copy(void* dst, const void* src, size_t bytes);

}  // namespace mge::simd
