// What a replayed call returns: a plan of tuples, made by jit/tree.py, and the tensors of this call.
#pragma once
#include "trace_key.h"

namespace mge::py {

/// The kinds of parts of a plan; jit/tree.py has the same list. Containers have the number of the slot, from which the
/// same object is taken where it occurs again.
enum class Part : int {
  New,       // (i): a tensor that the replay gave
  Argument,  // (i)
  Same,      // (object)
  Size,      // (i): a tensor that the replay gave, as sizes
  Grad,      // (tensor): its gradient
  Copy,      // (array): a copy of it
  Again,     // (slot)
  Tuple,     // (slot, parts)
  List,      // (slot, parts)
  Dict,      // (slot, parts, keys)
  Filled,    // (slot, parts, keys, make): make() gives an empty mapping
  Made,      // (slot, parts, make): make([...])
  Fields,    // (slot, parts, names, class): an object with these attributes
  Called,    // (slot, parts, fn): fn(...)
  Named,     // (slot, parts, class): a named tuple
};

class ResultBuilder {
 public:
  ResultBuilder(std::span<const Obj> made, const ArgTensors& args) : new_(made), args_(args) {}
  /// New reference.
  Obj build(PyObject* plan);

 private:
  Obj part(PyObject* plan);
  Obj container(Part kind, PyObject* plan);
  std::span<const Obj> new_;
  const ArgTensors& args_;
  SmallVec<PyObject*, 8> slots_;  // kept by what is being built
};

}  // namespace mge::py
