// Kernels of regions: where the elements of the operands lie, and the loops around the body that emit.h writes.
#pragma once
#include "kernel/cuda/emit.h"
#include "kernel/cuda/engine.h"

namespace mge::cuda {

/// Operands broadcast to one shape, with axes of size 1 dropped and neighbours merged; operand 0 is first. At least one
/// axis is left.
struct Nest {
  int rank = 0;
  int64_t size[kMaxRank];
  std::vector<std::array<int64_t, kMaxRank>> stride;  // per operand, in elements
};
Nest make_nest(const Shape& shape, std::span<const TensorArg* const> operands);

/// Members of a kernel's arguments and the words for them: addresses, then sizes and strides of the nest.
std::string operand_members(const FusedRegion& r, size_t results, int rank);
void push_operands(Words& w, const KernelArgs& a, std::span<void* const> results, const Nest& n);
/// "element(a, at)": reads the inputs at place `at` of the row-major full shape, calls body, writes results [0,
/// written) and gives the rest by reference. `index` is the type of places.
std::string element_text(const FusedRegion& r, size_t written, size_t results, int rank, bool strided_results,
                         const char* index);

/// A number that stands for the region in keys.
uint64_t region_number(const AttrsBase* region);

/// Runs a region without a reduction.
void run_region(const KernelArgs& a, const FusedRegion& r, const Key& key, const char* name);

/// Runs one elementwise op on the operands of `a`; it may be a part of another op's call.
void run_elementwise(const KernelArgs& a);

}  // namespace mge::cuda
