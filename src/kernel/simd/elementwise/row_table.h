// Inside kernel/simd: the table behind find_row. Each elementwise_*.cpp fills its part for the instruction set in use.
#pragma once
#include <vector>

#include "op/elementwise/scalar_body.h"
#include "op/opdef.h"

namespace mge::simd {

/// A row, and the same row with stores past the cache for results that would not stay there: `out` is then 64-byte
/// aligned (non-temporal stores), and the caller ends with stream_end(). Null where there is none.
struct RowPair {
  RowFn row = nullptr, streamed = nullptr;
};
struct OpRows {
  RowPair f32, i32, b8;  // by input dtype
  RowPair f16, bf16;     // of a few simple ops; the others go through tiles of float32
};

struct RowTable {
  std::vector<OpRows> by_op;  // index: OpId
  RowFn where[3] = {};        // elements of 1, 2, 4 bytes
  RowFn cast[12][12] = {};    // [from][to], DType::Bool..F64

  void set(const char* op, OpRows rows);
};

void fill_cheap_rows(RowTable& t);
void fill_exp_rows(RowTable& t);
void fill_trig_rows(RowTable& t);
void fill_binary_rows(RowTable& t);
void fill_move_rows(RowTable& t);  // bool ops, where, typecvt

const RowTable& row_table();

}  // namespace mge::simd
