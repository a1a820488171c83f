// Sums of products of quantised numbers: qconv2d, qconv2d_dx (the transposed convolution) and qmatmul. The sum is an
// exact integer; the bias, quantised at the product's scale, is added to it as an integer; `type` says what comes out.
//   type qint32 without a scale   the sum itself, at scale sx * sw (the default)
//   type float32                  act(v), v its real value
//   any other quantised type      act(v) quantised
#pragma once
#include <string>

#include "op/conv/conv2d.h"
#include "op/matmul/matmul.h"

namespace mge {

struct QConv2dAttrs : Conv2dAttrs {
  static constexpr const char* kOp = "qconv2d";
  QType type{DType::QI32, {}};
  std::string act = "none";  // none, relu
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dAttrs::fields(), field_list("type", &QConv2dAttrs::type, "act", &QConv2dAttrs::act));
  }
};

struct QConv2dDxAttrs : Conv2dDxAttrs {
  static constexpr const char* kOp = "qconv2d_dx";
  QType type{DType::QI32, {}};
  std::string act = "none";
  static constexpr auto fields() {
    return std::tuple_cat(Conv2dDxAttrs::fields(),
                          field_list("type", &QConv2dDxAttrs::type, "act", &QConv2dDxAttrs::act));
  }
};

struct QMatmulAttrs : MatmulAttrs {
  QType type{DType::QI32, {}};
  std::string act = "none";
  static constexpr auto fields() {
    return std::tuple_cat(MatmulAttrs::fields(), field_list("type", &QMatmulAttrs::type, "act", &QMatmulAttrs::act));
  }
};

/// What scale the sums have: of the two operands, channels of the second counted along `axis` of the result.
Quant product_quant(const Quant& x, const Quant& w, int axis);
/// Whether a result of this quantisation is the sum itself (scales agree to a millionth, as those of biases must).
bool is_product_quant(const Quant& q, const Quant& product);

}  // namespace mge
