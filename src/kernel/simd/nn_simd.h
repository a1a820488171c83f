// float32 kernels of the neural-network ops: Highway where this folder's files say so, and the raw kernels wired to
// ops.
#pragma once
#include <array>

#include "kernel/kernel.h"
#include "kernel/simd/conv/conv2d_raw.h"
#include "op/conv/conv2d.h"

namespace mge {

namespace simd_nn {

/// The geometry of conv2d, conv2d_fused, conv2d_dx or conv2d_dw.
Conv2dGeom conv2d_geom_of(const KernelArgs& a);
/// What kernels on channels-last memory ask for: images in that order, the weight and operands per channel row-major.
/// And the second half of such a kernel: the epilogue over its sums.
void conv2d_last_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out);
void conv2d_last_epilogue(const KernelArgs& a);
/// Convolutions, and their adjoints, that transformed tiles serve best: 3x3, stride 1.
bool conv2d_is_winograd(const Conv2dGeom& g);
/// Adjoints of a convolution that a matrix product serves best: many weights, few pixels.
bool conv2d_is_product(const Conv2dGeom& g, bool of_weights);

/// Every floating argument must be float32.
const char* refuse_not_f32(const KernelArgs& a);

/// What a kernel has besides its function.
struct Extra {
  uint32_t flags = 0;
  size_t (*workspace)(const KernelArgs&) = nullptr;
  std::array<int8_t, 4> alias = {-1, -1, -1, -1};  // out[i] may be written over in[alias[i]]
  void (*layouts)(const KernelArgs&, TensorArg*, TensorArg*) = nullptr;
};
inline void add(KernelRegistry& r, const char* op, const char* name, void (*run)(const KernelArgs&),
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
