// What kernels of rows share.
#pragma once
#include "kernel/cuda/engine.h"

namespace mge::cuda {

/// log2 of the elements that are moved at once: 16 bytes at most, rows of whole packs, all at such places (`places`:
/// the addresses, or-ed).
inline int log_of_pack(DType t, int64_t row, Word places) {
  const auto bytes = static_cast<int64_t>(dtype_size(t));
  int log = 3;
  while (log > 0 && (row % (1 << log) || places % (bytes << log) || (bytes << log) > 16)) --log;
  return log;
}
/// "constexpr int V = …;" and the functions exp_body and log_body for t; lives for good.
const char* exp_and_log(DType t, int log);

}  // namespace mge::cuda
