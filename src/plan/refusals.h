// Which nodes may fail by the values they are given (OpDef::refuses): an index out of range, a singular matrix. What a
// backward pass does with an index that its forward op has looked at, at the same line, fails no more.
#pragma once
#include "ir/graph.h"

namespace mge {

class Refusals {
 public:
  explicit Refusals(const ir::Graph& g);
  bool refuse(ir::NodeId n) const { return may_[static_cast<size_t>(n)]; }
  const std::vector<ir::NodeId>& all() const { return all_; }

 private:
  std::vector<bool> may_;
  std::vector<ir::NodeId> all_;
};

}  // namespace mge
