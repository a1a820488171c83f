// Where dtypes meet: all rules are in promote.cpp. Tensors with tensors: promote_types, promote_op; autocast: amp_dtype
// (declared in opdef.h). A constant beside tensors, which follows them as NumPy's kinds rank:
//   number_beside(DType::F32, DType::I32) is F32: 2.5 beside an int32 tensor; 2 would become int32.
#pragma once
#include "op/opdef.h"

namespace mge {

/// The dtype of a number, whose own is `natural`, beside a tensor of `like`: its own when that is of a higher kind.
DType number_beside(DType natural, DType like);
/// Whether the kind of `t` ranks above that of `like`: floating point over integers over bool over the rest.
bool ranks_above(DType t, DType like);
/// The dtype of an array of `given` beside a tensor of `like` in an elementwise op; Bool, integer and floating only.
DType array_beside(DType given, DType like);
/// Whether constants follow tensors of this dtype at all: the low-bit, complex and quantised ones have no kind.
bool has_kind(DType t);
/// The dtype of constants beside several tensors and arrays (`strong`; arrays in_32_bits) and Python numbers (`weak`).
DType constant_dtype(std::span<const DType> strong, std::span<const DType> weak);
/// 64-bit elements are kept in 32 bits unless somebody asks for them.
inline DType in_32_bits(DType t) { return t == DType::F64 ? DType::F32 : t == DType::I64 ? DType::I32 : t; }

/// A normalisation that takes 16-bit images beside float32 parameters as they are: computed in float32, images given
/// in their dtype, statistics and gradients of parameters in float32.
bool takes_mixed(const OpDef& op);

}  // namespace mge
