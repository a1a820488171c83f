// Batch normalisation over every axis but 1. Statistics have shape [1,C,1,..] with the rank of x; weight, bias and
// given statistics may also come as [C] or [1,C,1,1]. Variance is the biased one.
#pragma once
#include <string>
#include <string_view>

#include "op/opdef.h"

namespace mge {

struct BatchNormAttrs {
  double eps = 1e-5;
  static constexpr auto fields() { return field_list("eps", &BatchNormAttrs::eps); }
};

// Batch normalisation with what follows it, made by pass fuse_batch_norm from those ops: the same bits.
struct BatchNormFusedAttrs : BatchNormAttrs {
  bool has_add = false;
  std::string act = "none";  // or one of kNormActs
  static constexpr auto fields() {
    using A = BatchNormFusedAttrs;
    return std::tuple_cat(BatchNormAttrs::fields(), field_list("has_add", &A::has_add, "act", &A::act));
  }
};
struct BatchNormFusedBwdAttrs {
  std::string act = "none";
  static constexpr auto fields() { return field_list("act", &BatchNormFusedBwdAttrs::act); }
};
/// An activation that can be fused, and the op of its gradient, whose first operand is the output or the input.
struct NormAct {
  std::string_view name, grad;
  bool of_output;
};
inline constexpr NormAct kNormActs[] = {{"relu", "relu_grad", true},
                                        {"relu6", "relu6_grad", true},
                                        {"hswish", "hswish_grad", false},
                                        {"silu", "silu_grad", false}};

/// x [outer, channels, inner] as the kernels see it.
struct BatchNormGeom {
  int64_t outer, channels, inner;
  int64_t count() const { return outer * inner; }
};
BatchNormGeom batch_norm_geom(const Shape& x);
/// [1,C,1,..]: what broadcasts against x.
Shape batch_norm_stat_shape(const Shape& x);
/// x is [N,C,..] and floating, operands [first, last) have one value per channel.
void check_batch_norm(const InferCtx& c, size_t first, size_t last);
/// Every axis but 1.
Ints batch_norm_axes(const Shape& x);

}  // namespace mge
