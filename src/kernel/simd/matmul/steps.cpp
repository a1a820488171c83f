#include "kernel/simd/matmul/steps.h"

#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/simd/elementwise/rows.h"

namespace mge::simd_nn {

MatmulEpilogue::MatmulEpilogue(const KernelArgs& a, const MatmulGeom& g)
    : y_(a.out[0].data<float>()), m_(g.m), n_(g.n), rows_(g.batch.numel() * g.m) {
  const auto& at = a.as<MatmulFusedAttrs>();
  const size_t own = at.has_bias ? 3 : 2;
  auto operand = [&](int k) -> Operand {
    if (k == MatmulStep::kProduct) return {nullptr, StepOperand::Like};
    const TensorArg& t = a.in[own + static_cast<size_t>(k)];
    const float* data = t.data<float>();
    if (!t.contiguous()) {
      copies_.emplace_back(static_cast<size_t>(t.numel()));
      TensorArg to = t;
      to.ptr = copies_.back().data(), to.layout = Layout::contiguous(t.shape);
      copy_strided(t, to);
      data = copies_.back().data();
    }
    const StepOperand kind = step_operand(t.shape, a.out[0].shape);
    by_column_ |= kind == StepOperand::Row;
    return {data, kind};
  };
  for (const MatmulStep& s : parse_steps(at.steps)) {
    Step step{find_row(*s.op, DType::F32, DType::F32), {}};
    MGE_ASSERT(step.row, "matmul_fused: {} has no row function", s.op->name);
    for (int k : s.args) step.in.push_back(operand(k));
    steps_.push_back(std::move(step));
  }
}

void MatmulEpilogue::operator()(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
  // Short rows that lie one after the other, operands too, are one: a call takes as long as some vectors.
  constexpr int64_t kTogether = 1024;
  const int64_t most = columns == n_ && !by_column_ ? std::max<int64_t>(1, kTogether / columns) : 1;
  for (int64_t r = row, count; r < row + rows; r += count) {
    count = std::min({most, row + rows - r, m_ - r % m_});
    float* y = y_ + r * n_ + column;
    for (const Step& s : steps_) {
      const void* in[2];
      int64_t stride[2];
      for (size_t i = 0; i < s.in.size(); ++i) {
        const Operand& o = s.in[i];
        stride[i] = o.kind != StepOperand::One;
        if (!o.data)
          in[i] = y;
        else if (o.kind == StepOperand::One)
          in[i] = o.data;
        else
          in[i] = o.data + column +
                  (o.kind == StepOperand::Like     ? r
                   : o.kind == StepOperand::Matrix ? r % m_
                                                   : int64_t{0}) *
                      n_;
      }
      s.row(in, stride, y, count * columns);
    }
  }
}

void MatmulEpilogue::pass() const {
  const auto steps = static_cast<int64_t>(steps_.size());
  parallel_for(rows_, value_grain(n_ * steps), [&](int64_t b, int64_t e) { (*this)(b, e - b, 0, n_); });
}

}  // namespace mge::simd_nn
