// fused: a cluster of elementwise ops run as one, tile by tile, with the intermediates held in cache; a step may be a
// reduction. Made by the pass fuse_elementwise. The region is the node's attributes: a small graph, hashed and
// compared as such, shared by clones of the node. Text is what prints and files show of it:
//   (float32,float32) t0=mul(i0,i1) t1=add(t0,i0) t2=reduce(t1){mode="sum",axes=[0],keepdims=false} -> t0,t2
// i<k> are the node's inputs, which broadcast against each other to the shape of every step but the reduction; what
// follows the arrow are the node's results, without one the last step is. Where steps go on with what was reduced
// (`staged`), each step has the shape that its op gives for its operands (ADR 0065).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "op/opdef.h"

namespace mge {

struct FusedStep {
  const OpDef* op = nullptr;
  Attrs attrs;
  SmallVec<int, 3> args;  // k >= 0: input k; k < 0: result of step -1-k
  DType dtype = DType::F32;
  bool operator==(const FusedStep& o) const {
    return op == o.op && args == o.args && attrs_equal(attrs.get(), o.attrs.get());
  }
};

struct FusedRegion {
  std::vector<DType> inputs;
  std::vector<FusedStep> steps;
  SmallVec<int, 2> outputs;  // steps, coded as in FusedStep::args

  /// Appends a step, inferring its dtype: an elementwise op with one result, or `reduce`. Returns the code that later
  /// steps and outputs use.
  int add(const OpDef& op, Attrs attrs, std::span<const int> args);
  /// A Value error when it is no step, or a result already.
  void add_output(int step);
  /// Number of the last step that reduces, or -1.
  int reduction() const;
  /// A step reads the result of a reduction, or there are several reductions.
  bool staged() const;
  DType dtype_of(int arg) const {
    return arg >= 0 ? inputs[static_cast<size_t>(arg)] : steps[static_cast<size_t>(-1 - arg)].dtype;
  }
  bool operator==(const FusedRegion&) const = default;
  uint64_t hash() const;
  std::string print() const;
  /// Value error naming the column when the text is malformed.
  static FusedRegion parse(std::string_view text);
};

/// The shape of every step of a staged region for these inputs.
std::vector<Shape> step_shapes(const FusedRegion& r, std::span<const Meta* const> in);

/// The region as attributes: attribute `region` is its text.
template <>
class AttrsOf<FusedRegion> final : public AttrsBase {
 public:
  explicit AttrsOf(FusedRegion r);
  bool equal(const AttrsBase& o) const override;
  std::vector<NamedAttr> values() const override;
  const FusedRegion value;
};
template <>
AttrSchema make_schema<FusedRegion>();
/// Null when they are another op's. Lite has no typeinfo to ask (cmake/room.cmake).
inline const FusedRegion* fused_region(const AttrsBase* a) {
  return a && a->type() == &detail::type_tag<FusedRegion> ? &static_cast<const AttrsOf<FusedRegion>*>(a)->value
                                                          : nullptr;
}

}  // namespace mge
