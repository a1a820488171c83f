// The last step of every integer product: 32-bit sums, plus bias, become the result's type (op/quant/numerics.h). All
// kernels of qconv2d, qconv2d_dx and qmatmul end here, so they differ in how they add up and in nothing else.
#pragma once
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "op/quant/numerics.h"

namespace mge {

class QuantStore {
 public:
  /// Inputs are the two operands and, third, the bias.
  QuantStore(const KernelArgs& a, const std::string& act);
  /// Elements [at, at+n) of the result, all of one channel.
  void same_channel(const int32_t* sums, int64_t at, int64_t n, int64_t channel) const;
  /// The same for a row of a matrix product, whose columns (or rows) are the channels.
  void matrix_row(const int32_t* sums, int64_t at, int64_t n, int64_t row) const;
  /// After all elements.
  void finish() const;

 private:
  template <class F>
  void each(const int32_t* sums, int64_t n, const float* scale, int64_t scale_step, const int32_t* bias,
            int64_t bias_step, F f) const;
  void run(const int32_t* sums, int64_t at, int64_t n, const float* scale, int64_t scale_step, const int32_t* bias,
           int64_t bias_step) const;

  const TensorArg& y_;
  std::vector<float> scale_;  // of the product: one, or one per channel
  bool row_scale_;            // of a matrix product: channels are rows
  const int32_t* bias_ = nullptr;
  bool row_bias_ = false, raw_, relu_;
  float out_scale_;
  QuantRange range_;
  mutable std::vector<uint8_t> wide_;  // of a packed result
};

}  // namespace mge
