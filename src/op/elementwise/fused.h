// fused: a cluster of elementwise ops run as one, tile by tile, with the intermediates held in cache. Made by the pass
// fuse_elementwise. Its region is text, so it prints, parses and serialises like any attribute:
//   (float32,float32,float32) t0=mul(i0,i1) t1=add(t0,i2) t2=typecvt(t1){dtype=float16}
// i<k> are the node's inputs, which broadcast against each other; the last step is the result.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "op/opdef.h"

namespace mge {

struct FusedAttrs {
  std::string region;
  static constexpr auto fields() { return field_list("region", &FusedAttrs::region); }
};

struct FusedStep {
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVec<int, 3> args;  // k >= 0: input k; k < 0: result of step -1-k
  DType dtype = DType::F32;
};

struct FusedRegion {
  std::vector<DType> inputs;
  std::vector<FusedStep> steps;

  /// Appends a step, inferring its dtype; only elementwise ops with one result. Returns the code later steps use in
  /// args.
  int add(const OpDef& op, Attrs attrs, std::span<const int> args);
  DType dtype_of(int arg) const {
    return arg >= 0 ? inputs[static_cast<size_t>(arg)] : steps[static_cast<size_t>(-1 - arg)].dtype;
  }
  std::string print() const;
  /// Value error naming the column when the text is malformed.
  static FusedRegion parse(std::string_view text);
};

}  // namespace mge
