// A region as row calls over registers. Registers hold one tile each and are reused as soon as their value is dead.
#pragma once
#include <memory>
#include <vector>

#include "op/elementwise/fused.h"
#include "op/elementwise/scalar_body.h"

namespace mge::interp {

struct Operand {
  enum Kind : uint8_t { Input, Register, Target } kind = Register;
  int16_t index = -1;
};

struct RowCall {
  RowFn fn = nullptr;
  uint8_t n_in = 0;
  Operand in[3];
  Operand out;  // Register or Target
};

/// A target is where the elements of one value go: an output of the node, or what its reduction reads.
struct Target {
  int step = -1;
  DType dtype = DType::F32;
  Operand from;  // index >= 0: not written by a call but copied from here after the last one of a tile
};

struct Lowered {
  Attrs attrs;  // what it was made from: the cache compares it
  std::vector<RowCall> calls;
  std::vector<Target> targets;  // in the order of the outputs, without the reduction; then what the reduction reads
  int registers = 0;
  int64_t tile = 512;  // elements
  int reduction = -1;  // the step that reduces, and the output it is
  int reduced_output = -1;
  const char* refusal = nullptr;
  const FusedRegion& region() const { return attrs_as<FusedRegion>(attrs.get()); }
};

/// The vector row of this machine, or the scalar body where the build has no vector code; null when neither exists.
RowFn row_of(const OpDef& op, DType in, DType out);
/// Cached by the region. The result lives as long as the process.
const Lowered& lowered(const AttrsBase* region);

}  // namespace mge::interp
