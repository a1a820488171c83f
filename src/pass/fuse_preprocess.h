// Image bytes to what a network wants of them, in one op: the cast, and every elementwise step with numbers or with one
// constant per channel that follows, become a table of 256 results per channel (op byte_table), written with the
// kernels of the steps themselves; a transposition from [N,H,W,C] to [N,C,H,W] among them is done on the way. No bit
// changes. Runs when InferenceOptions::fuse_preprocess asks for it.
//   %0 = typecvt %img {dtype=float32}          |
//   %1 = sub %0, %mean                         |
//   %2 = div %1, %std                          |
//   %3 = transpose %2 {perm=[0,3,1,2]}         |  %3 = byte_table %img, %t {to_nchw=true}
#pragma once
#include "ir/evaluator.h"
#include "ir/graph.h"

namespace mge::pass {

bool fuse_preprocess(Graph& g, const ir::Evaluator& evaluate);

}  // namespace mge::pass
