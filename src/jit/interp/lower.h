// A region as row calls over registers. Registers hold one tile each and are reused as soon as their value is dead.
#pragma once
#include <memory>
#include <vector>

#include "op/elementwise/fused.h"
#include "op/elementwise/scalar_body.h"
#include "op/reduce/reduce.h"

namespace mge::interp {

struct Operand {
  enum Kind : uint8_t { Input, Register, Target } kind = Register;
  int16_t index = -1;
  bool per_row = false;  // one value for each row (lowered_rows)
  uint8_t size = 0;      // bytes of an element
};

struct RowCall {
  RowFn fn = nullptr;
  uint8_t n_in = 0;
  Operand in[3];
  Operand out;           // Register or Target
  bool reduces = false;  // instead of fn: every row of in[0] to one value, by `mode`
  ReduceMode mode = ReduceMode::Sum;
};

/// A target is where the elements of one value go: an output of the node, or what its reduction reads.
struct Target {
  int step = -1;
  DType dtype = DType::F32;
  Operand from;  // index >= 0: not written by a call but copied from here after the last one of a tile
  bool per_row = false;
};

struct Lowered {
  Attrs attrs;  // what it was made from: the cache compares it
  std::vector<RowCall> calls;
  std::vector<Target> targets;  // in the order of the outputs, without the reduction; then what the reduction reads
  int registers = 0;
  int64_t tile = 512;  // elements
  int reduction = -1;  // the step that reduces, and the output it is
  int reduced_output = -1;
  uint32_t row_inputs = 0;  // of lowered_rows
  const char* refusal = nullptr;
  const FusedRegion& region() const { return attrs_as<FusedRegion>(attrs.get()); }
};

/// The vector row of this machine, or the scalar body where the build has no vector code; null when neither exists.
RowFn row_of(const OpDef& op, DType in, DType out);
/// Cached by the region. The result lives as long as the process.
const Lowered& lowered(const AttrsBase* region);
/// Of a staged region whose reductions all go over the elements of a row: every step is done for some rows before the
/// next. Bit i of row_inputs: input i has one value for each row.
const Lowered& lowered_rows(const AttrsBase* region, uint32_t row_inputs);

/// A staged region with one reduction as two: up to it, and what follows, whose input 0 is what was reduced.
struct Split {
  Attrs attrs;  // what it was made from
  Attrs before, after;
  SmallVec<int, 8> before_in, after_in;    // inputs of the whole; after_in without that input 0
  SmallVec<int, 4> before_out, after_out;  // results of the whole, in the order of the parts'
  int reduced = -1;                        // the result of `before` that was reduced; it may be none of the whole
  const char* refusal = nullptr;
};
const Split& split(const AttrsBase* region);

}  // namespace mge::interp
