// The steps of matmul_fused on blocks of a product that was just written, row by row with the vector code of the single
// ops, so that the bits are theirs.
//   const MatmulEpilogue steps(args, geom);
//   steps(0, 56, 0, 512);   // rows 0 to 55 of all batches one after the other, columns 0 to 511
#pragma once
#include <vector>

#include "kernel/kernel.h"
#include "op/elementwise/scalar_body.h"
#include "op/matmul/matmul.h"

namespace mge::simd_nn {

class MatmulEpilogue {
 public:
  /// Of a matmul_fused whose result is row-major float32.
  MatmulEpilogue(const KernelArgs& a, const MatmulGeom& g);
  void operator()(int64_t row, int64_t rows, int64_t column, int64_t columns) const;
  /// All of the result, for a product that cannot call it on the way.
  void pass() const;

 private:
  struct Operand {
    const float* data;  // null: the result itself
    StepOperand kind;
  };
  struct Step {
    RowFn row;
    SmallVec<Operand, 2> in;
  };
  SmallVec<Step, 4> steps_;
  std::vector<std::vector<float>> copies_;  // of operands that are not row-major
  float* y_;
  int64_t m_, n_, rows_;
  bool by_column_ = false;  // some operand is a row
};

}  // namespace mge::simd_nn
