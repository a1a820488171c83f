// What the reference kernels of the neural-network ops share. A kernel is a struct K with
//   template <class T> static void run(const KernelArgs& a, DType store);
// written for float and double; float16 and bfloat16 pass through float copies. `store` is the dtype the caller sees,
// for kernels whose steps must be rounded one by one.
#pragma once
#include "core/half.h"
#include "kernel/kernel.h"
#include "op/in_build.h"

namespace mge {

namespace ref {

using FloatRun = void (*)(const KernelArgs&, DType store);
/// Runs a float kernel on float copies of all 16-bit arguments.
void through_float(const KernelArgs& a, FloatRun run);
/// out[0] must be floating, and floating inputs of its dtype.
const char* refuse_not_floating(const KernelArgs& a);
/// The same for optimizer steps, whose one-element inputs (lr, t) may be of another floating dtype.
const char* refuse_not_floating_step(const KernelArgs& a);
/// The one value of a floating tensor.
double read_scalar(const TensorArg& t);

template <class T>
T rounded(T v, DType store) {
  if (store == DType::F16) return static_cast<T>(half_to_float(float_to_half(static_cast<float>(v))));
  if (store == DType::BF16) return static_cast<T>(bfloat_to_float(float_to_bfloat(static_cast<float>(v))));
  return v;
}

template <class K>
void run_floating(const KernelArgs& a) {
  DType t = a.out[0].dtype;
  if (t == DType::F32) return K::template run<float>(a, t);
  if (t == DType::F64) return K::template run<double>(a, t);
  through_float(a, K::template run<float>);
}

template <class K>
MGE_INLINED inline void add_floating(KernelRegistry& r, OpName op, const char* name) {
  r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_not_floating, .run = run_floating<K>});
}

}  // namespace ref
}  // namespace mge
