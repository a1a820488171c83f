// What the optional inputs of optimizer steps (op/optim/optim.h) mean to a kernel.
#pragma once
#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/kernel.h"
#include "op/optim/optim.h"

namespace mge {

/// out[i] replaces in[alias[i]], and may be written over it.
using StepAlias = std::array<int8_t, 4>;
inline constexpr StepAlias kSgdAlias{0, -1, -1, -1}, kSgdMomentumAlias{0, 3, -1, -1}, kAdamAlias{0, 2, 3, -1},
    kAdagradAlias{0, 2, -1, -1}, kAdadeltaAlias{0, 2, 3, -1}, kLambAlias{1, 2, 3, -1};

/// The attributes with the numbers of `hyper`, when it is given, in their place.
template <class A>
A step_attrs(const KernelArgs& a) {
  A at = a.as<A>();
  const size_t hyper = static_cast<size_t>(a.op->required);
  if (a.in.size() <= hyper) return at;
  double numbers[A::kNumbers];
  const TensorArg& t = a.in[hyper];
  for (int64_t i = 0; i < A::kNumbers; ++i)
    numbers[i] = t.dtype == DType::F64 ? t.data<double>()[i] : static_cast<double>(t.data<float>()[i]);
  at.take(numbers);
  return at;
}

/// Whether `skip` says so; then the outputs hold what their inputs did.
inline bool step_skipped(const KernelArgs& a, const StepAlias& alias) {
  const size_t skip = static_cast<size_t>(a.op->required) + 1;
  if (a.in.size() <= skip || !*a.in[skip].data<bool>()) return false;
  for (size_t i = 0; i < a.out.size(); ++i) {
    const void* from = a.in[static_cast<size_t>(alias[i])].ptr;
    size_t bytes = static_cast<size_t>(a.out[i].numel()) * dtype_size(a.out[i].dtype);
    if (from != a.out[i].ptr && bytes) std::memcpy(a.out[i].ptr, from, bytes);
  }
  return true;
}

/// Only the required inputs have to share a dtype.
inline std::span<const TensorArg> step_inputs(const KernelArgs& a) {
  return a.in.first(std::min(a.in.size(), static_cast<size_t>(a.op->required)));
}

}  // namespace mge
