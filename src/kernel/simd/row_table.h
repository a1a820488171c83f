// Inside kernel/simd: the table behind find_row. Each elementwise_*.cpp fills its part for the instruction set in use.
#pragma once
#include <vector>

#include "op/opdef.h"
#include "op/scalar_body.h"

namespace mge::simd {

struct OpRows {
  RowFn f32 = nullptr, i32 = nullptr, b8 = nullptr;  // by input dtype
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
