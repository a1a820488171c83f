// The tile interpreter: runs op `fused` without a compiler, with the bits of the single ops.
//   install_interp();                                        // once; the kernels are then chosen like any others
//   pass::optimize(g, {.evaluate = ..., .can_fuse = interp_can_fuse});
#pragma once
#include <span>

#include "kernel/kernel.h"

namespace mge {

/// Adds the tile interpreter (tier Simd) and the step-by-step reference (tier Ref) for op "fused".
void register_interp_kernels(KernelRegistry& r);
/// register_interp_kernels on the global registry, the first time it is called.
void install_interp();

/// There is a row function for this step. The answer pass::fuse_elementwise asks for.
bool interp_can_fuse(const OpDef& op, const AttrsBase* attrs, std::span<const DType> in, DType out);

}  // namespace mge
