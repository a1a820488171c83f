// A region as row calls over registers. Registers hold one tile each and are reused as soon as their value is dead.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "op/elementwise/fused.h"
#include "op/elementwise/scalar_body.h"

namespace mge::interp {

struct Operand {
  int16_t input = -1;  // >= 0: input of the node; else register
  int16_t reg = -1;
};

struct RowCall {
  RowFn fn = nullptr;
  uint8_t n_in = 0;
  Operand in[3];
  int16_t out = -1;  // register; -1 = the node's result
};

struct Lowered {
  std::string region;  // what it was made from: the cache compares it
  std::vector<RowCall> calls;
  int registers = 0;
  int64_t tile = 512;  // elements
  const char* refusal = nullptr;
};

/// The vector row of this machine, or the scalar body where the build has no vector code; null when neither exists.
RowFn row_of(const OpDef& op, DType in, DType out);
/// Cached by the attributes' content. The result lives as long as the process.
const Lowered& lowered(const AttrsBase* fused_attrs);

}  // namespace mge::interp
