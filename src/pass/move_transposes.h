// Takes transpositions from results of elementwise ops to their operands, where elementwise ops read them, so that both
// sides of a transposition become one region (`jit_fuse_dimshuffle`). A region reads operands of any strides, so the
// transposition costs no pass over memory of its own.
//   %0 = relu %x                      |
//   %1 = transpose %0 {perm=[1,0]}    |  %0 = transpose %x {perm=[1,0]}
//   %2 = add %1, %y                   |  %1 = fused %0, %y {region="... t0=relu(i0) t1=add(t0,i1) -> t1"}
#pragma once
#include "ir/graph.h"

namespace mge::pass {

bool move_transposes(Graph& g);

}  // namespace mge::pass
