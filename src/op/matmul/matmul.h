// matmul: [..,M,K] x [..,K,N] (+ [N]) -> [..,M,N], batch dimensions broadcast; ta/tb transpose the last two axes first.
// matmul_fused: the same, then elementwise steps on its result y, each rounded:
//   matmul_fused %a, %b, %bias, %scale, %rest {tb=true, has_bias=true, steps="mul(y,0) gelu(y) add(1,y)"}
// A number is an operand after the product's own: like y, a matrix [M,N] for every batch, a row [N], or one value.
#pragma once
#include <string>

#include "op/opdef.h"

namespace mge {

struct MatmulAttrs {
  bool ta = false, tb = false;
  static constexpr auto fields() { return field_list("ta", &MatmulAttrs::ta, "tb", &MatmulAttrs::tb); }
};

struct MatmulFusedAttrs : MatmulAttrs {
  bool has_bias = false;
  std::string steps;
  static constexpr auto fields() {
    using A = MatmulFusedAttrs;
    return std::tuple_cat(MatmulAttrs::fields(), field_list("has_bias", &A::has_bias, "steps", &A::steps));
  }
};
/// The product of either op, and how many inputs are its own.
const MatmulAttrs& matmul_attrs(const OpDef& op, const AttrsBase* attrs);
size_t matmul_inputs(const OpDef& op, const AttrsBase* attrs, size_t given);

struct MatmulStep {
  static constexpr int kProduct = -1;
  const OpDef* op;
  SmallVec<int, 2> args;  // kProduct or the number of an operand
};
using MatmulSteps = SmallVec<MatmulStep, 4>;
/// Whether the op gives a float for one or two floats, which is all a step may do.
bool fusable_step(const OpDef& op);
/// Value error naming the step when the text is malformed.
MatmulSteps parse_steps(std::string_view text);
std::string print_steps(const MatmulSteps& steps);

/// How an operand of a step lies under a result [..,M,N]; None: it does not fit.
enum class StepOperand { None, Like, Matrix, Row, One };
StepOperand step_operand(const Shape& operand, const Shape& y);

struct MatmulGeom {
  int64_t m, n, k;
  Shape batch;  // broadcast batch dims
};
/// Of inputs that infer has accepted.
MatmulGeom matmul_geom(const MatmulAttrs& at, const Shape& a, const Shape& b);

}  // namespace mge
