// What all convolutions share: attributes, roles, geometry, inference. An op of the family is a struct of attributes
// that knows its name and its role, so code that serves several of them is a template over that struct:
//   template <class A> void run(const KernelArgs& a) { ConvGeom g = conv_geom_of<A>(a); … }    // kernel/conv.h
//   add<Conv2dAttrs>(r), add<Conv2dDxAttrs>(r);
#pragma once
#include "op/conv/conv_geom.h"
#include "op/in_build.h"
#include "op/opdef.h"

namespace mge {

/// A convolution is linear in x and in its weight; each adjoint is made of the other two operands.
enum class ConvRole : uint8_t {
  Forward,     // (x, weight) -> y
  InputGrad,   // (gy, weight) -> gx, of shape x_shape; also the transposed convolution
  WeightGrad,  // (x, gy) -> gw, of shape w_shape
};

/// conv2d or conv3d: D axes. Attributes of the others are these and more.
template <size_t D>
struct ConvAttrs {
  static constexpr size_t kAxes = D;
  static constexpr ConvRole kRole = ConvRole::Forward;
  static constexpr const char* kOp = D == 2 ? "conv2d" : "conv3d";
  Ints stride = each(1), pad = each(0), dilate = each(1);
  int64_t groups = 1;
  static constexpr auto fields() {
    using A = ConvAttrs;
    return field_list("stride", &A::stride, "pad", &A::pad, "dilate", &A::dilate, "groups", &A::groups);
  }

 private:
  static Ints each(int64_t v) { return Ints(D, v); }
};

template <size_t D>
struct ConvDxAttrs : ConvAttrs<D> {
  static constexpr ConvRole kRole = ConvRole::InputGrad;
  static constexpr const char* kOp = D == 2 ? "conv2d_dx" : "conv3d_dx";
  Ints x_shape = {};
  static constexpr auto fields() {
    return std::tuple_cat(ConvAttrs<D>::fields(), field_list("x_shape", &ConvDxAttrs::x_shape));
  }
};

template <size_t D>
struct ConvDwAttrs : ConvAttrs<D> {
  static constexpr ConvRole kRole = ConvRole::WeightGrad;
  static constexpr const char* kOp = D == 2 ? "conv2d_dw" : "conv3d_dw";
  Ints w_shape = {};
  static constexpr auto fields() {
    return std::tuple_cat(ConvAttrs<D>::fields(), field_list("w_shape", &ConvDwAttrs::w_shape));
  }
};

/// Of shapes that infer has accepted: x and weight as the forward convolution takes them.
template <size_t D>
ConvGeom conv_geom(const ConvAttrs<D>& at, const Shape& x, const Shape& w);

/// Checks x against w; the shape of y.
template <size_t D>
Shape conv_output(const InferCtx& c, const ConvAttrs<D>& at, const Shape& x, const Shape& w);

/// Inference and cost of the three roles. A = any of the structs above.
template <class A>
void infer_conv(InferCtx& c);
template <class A>
double cost_conv(const InferCtx& c);

/// What all of them are registered with.
template <class A>
MGE_INLINED inline OpBuilder conv_op(OpRegistry& r) {
  OpBuilder b = r.op(A::kOp);
  b.template attrs<A>().infer(infer_conv<A>).cost(cost_conv<A>).promote(Promote::Float).traits(kComputeBound);
  return b;
}

}  // namespace mge
