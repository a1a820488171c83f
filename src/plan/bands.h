// Several instructions run band by band: rows of one op's result are read by the next while they are in a cache, and
// what lies between the two never reaches memory. Ops stay what they are, with the kernels that were chosen for each,
// so no bit changes; only the order in which rows are computed does.
//   1x1 -> 112x112x96 -> depthwise 3x3 -> 56x56x96 -> 1x1    a band of 2 rows needs 5 and 2 of those in between
// Whether a chain runs so is decided anew in each run, by the number of threads: each thread takes rows of the last
// result, and computes those in between which it needs at its edges itself.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "kernel/rows.h"

namespace mge {

inline constexpr int kMostInChain = 16;

/// Instructions [first, first + count) of a program, each but the last with one result, which only the next one reads,
/// as its first operand.
struct Chain {
  int first = 0, count = 0;
  std::array<const RowsKernel*, kMostInChain> kernel{};
  int64_t rows = 0;                          // of the last result that make a band
  std::array<int64_t, kMostInChain> held{};  // most rows of each result that are there at once
};

/// One op of a chain.
struct ChainStage {
  const KernelArgs* args;
  const RowsKernel* kernel;
  double ns;  // of all its rows, estimated
};

/// Sets `rows` and `held`; false: there are no bands.
bool set_bands(std::span<const ChainStage> stages, Chain& c);

/// Runs them band by band, if that pays with this number of threads; else false, and nothing was done. `spent`: takes
/// how long each was at it, of the time that the caller waits.
bool run_bands(std::span<const ChainStage> stages, const Chain& c, int64_t* spent = nullptr);

}  // namespace mge
