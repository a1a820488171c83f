// float32 kernels of the neural-network ops: Highway where this folder's files say so, and the raw kernels wired to
// ops.
#pragma once
#include <array>

#include "kernel/kernel.h"
#include "kernel/simd/conv/conv2d_raw.h"
#include "op/conv/conv2d.h"
#include "op/in_build.h"

namespace mge {

namespace simd_nn {

/// What kernels on channels-last memory ask for: images in that order, the weight and operands per channel row-major.
/// And the second half of a forward one: the epilogue over its sums. A: the attributes of the op.
template <class A>
void conv2d_last_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out);
template <class A>
void conv2d_last_epilogue(const KernelArgs& a);
/// Every floating argument must be float32.
const char* refuse_not_f32(const KernelArgs& a);

/// What a kernel has besides its function.
struct Extra {
  uint32_t flags = 0;
  size_t (*workspace)(const KernelArgs&) = nullptr;
  std::array<int8_t, 4> alias = {-1, -1, -1, -1};  // out[i] may be written over in[alias[i]]
  void (*layouts)(const KernelArgs&, TensorArg*, TensorArg*) = nullptr;
};
MGE_INLINED inline void add(KernelRegistry& r, OpName op, const char* name, void (*run)(const KernelArgs&),
                            const Extra& x = {}) {
  r.add(op, KernelTier::Simd,
        Kernel{.name = name,
               .refuse = refuse_not_f32,
               .run = run,
               .workspace = x.workspace,
               .flags = x.flags,
               .layouts = x.layouts,
               .alias = x.alias});
}

}  // namespace simd_nn
}  // namespace mge
