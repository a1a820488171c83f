// Calls of kernels on memory of the host, for texts that the emulator runs or a recorder collects.
#pragma once
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/row_io.h"
#include "op/conv/conv2d.h"
#include "op/elementwise/fused.h"
#include "op/elementwise/typecvt.h"
#include "op/index/indexing.h"
#include "op/index/multi_index.h"
#include "op/index/sort.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"
#include "op/matmul/matmul.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"
#include "op/optim/optim.h"
#include "op/pool/pool.h"
#include "op/reduce/reduce.h"
#include "op/rng/rng.h"
#include "op/shape/shape_ops.h"

namespace mge::cuda_test {

/// A tensor with memory of its own. Values by number of the element, written by the rules of typecvt.
struct Array {
  TensorArg arg;
  std::vector<char> memory;
  Array(DType t, const Shape& s, const std::function<double(int64_t)>& value = nullptr)
      : memory(static_cast<size_t>(s.numel()) * dtype_size(t) + 64) {
    arg.dtype = t;
    arg.shape = s;
    arg.layout = Layout::contiguous(s);
    arg.ptr = memory.data();
    for (int64_t i = 0; i < s.numel() && value; ++i)
      write_scalar(memory.data() + static_cast<size_t>(i) * dtype_size(t), t, value(i));
  }
};

/// Normal numbers with zeros of both signs, infinities and NaN; whole ones for integers.
inline double special(DType t, int64_t i) {
  static std::mt19937 bits(1);
  double v = std::normal_distribution<double>(0, 2)(bits);
  if (t == DType::Bool) return v > 0;
  if (!is_float(t)) return static_cast<double>(static_cast<int>(v * 20));
  return i % 29 == 8 ? INFINITY : i % 31 == 9 ? NAN : i % 7 == 3 ? 0 : i % 11 == 5 ? -0.0 : v;
}
/// Small whole numbers: sums of products are exact in any order.
inline double whole(int64_t i) { return static_cast<double>(i * 7 % 13 - 6); }

struct Case {
  const char* op;
  Attrs attrs;
  std::vector<Array> in;
};
using Cases = std::vector<Case>;

Cases elementwise_cases(std::span<const DType> dtypes);
Cases cast_cases(std::span<const DType> dtypes);
Cases reduce_cases(std::span<const DType> dtypes);
Cases region_cases();
/// Rows that are normalised: sums in another order than the reference's, in double.
Cases row_cases(DType t);
/// Everything else, for one dtype.
Cases other_cases(DType t);

}  // namespace mge::cuda_test
