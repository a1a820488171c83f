// Kernels of convolutions are templates over the op's attributes, which know its role:
//   template <class A> void run(const KernelArgs& a) { ConvGeom g = conv_geom_of<A>(a); … }
#pragma once
#include "kernel/kernel.h"
#include "op/conv/conv.h"

namespace mge {

/// x and the weight are operands or, for the role that computes them, the result.
template <class A>
ConvGeom conv_geom_of(const KernelArgs& a) {
  const TensorArg& x = A::kRole == ConvRole::InputGrad ? a.out[0] : a.in[0];
  const TensorArg& w = A::kRole == ConvRole::WeightGrad ? a.out[0] : a.in[1];
  return conv_geom(a.as<A>(), x.shape, w.shape);
}

}  // namespace mge
