// Argument checks that the neural-network ops share.
//   nn::check_rank(c, 0, 4, 4);   "max_pool2d: x must have 4 dimensions; got float32[3,3]."
#pragma once
#include "op/opdef.h"

namespace mge {

namespace nn {

struct Pair {
  int64_t h, w;
};

void check_float(const InferCtx& c, size_t i);
void check_dtype(const InferCtx& c, size_t i, DType want);
void check_rank(const InferCtx& c, size_t i, int lo, int hi);
/// `why` ends the sentence: "... must have shape [1,8,1,1] {why}; got ...".
void check_shape_is(const InferCtx& c, size_t i, const Shape& want, std::string_view why);
/// One int for all axes or one for each; each at least `least`.
void check_axes(const InferCtx& c, const char* attr, const Ints& v, size_t axes, int64_t least);
/// Two ints from [h,w] or [both]; each at least `least`.
Pair pair_of(const InferCtx& c, const char* attr, const Ints& v, int64_t least);
Pair pair_of(const Ints& v);  // already checked
/// "x", or "inputs[3]" for a repeated one.
std::string input_name(const InferCtx& c, size_t i);

}  // namespace nn
}  // namespace mge
