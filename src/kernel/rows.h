// Kernels over images [n,c,h,w] that can give some rows of their result at a time: a program then computes several ops
// band by band, in memory that stays in a cache (plan/bands.h). A table by the function that gives the whole result,
// which has the same bits.
//   add_rows(run_lines, {conv_needs, lines_rows});     const RowsKernel* r = rows_of(*kernel);
#pragma once
#include "kernel/kernel.h"

namespace mge {

struct RowRange {
  int64_t first, last;  // [first, last)
};

/// Images that lie between two such kernels are channels-last. Of an operand that could be prepared (Kernel::prepare)
/// only what was made of it is read.
struct RowsKernel {
  /// Rows of in[0] that those of out[0] are made of.
  RowRange (*needs)(const KernelArgs&, RowRange of) = nullptr;
  /// Rows of one image, on this thread. Pointers are as if tensors were whole: no other row of out[0] is written, and
  /// of in[0] none but those, and up to 15 floats behind them, are read.
  void (*run)(const KernelArgs&, int64_t image, RowRange of) = nullptr;
};

/// While kernels are registered.
void add_rows(void (*whole)(const KernelArgs&), const RowsKernel& rows);
/// Null: only the whole result.
const RowsKernel* rows_of(const Kernel& k);

}  // namespace mge
