// The last step of every integer product: 32-bit sums, plus bias, become the result's type (op/quant/numerics.h). All
// kernels of qconv2d, qconv2d_dx and qmatmul end here, so they differ in how they add up and in nothing else.
#pragma once
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "op/quant/numerics.h"

namespace mge {

/// A row of sums and what belongs to each: step 0, one value for the whole row; 1, one per element.
struct SumRow {
  const int32_t* sums;
  int64_t n;
  const float* scale;  // of the product
  int64_t scale_step;
  const int32_t* bias;  // may be null
  int64_t bias_step;
  int64_t rows = 1;  // so many such rows lie behind each other
};
/// How sums become 8-bit integers. Sums plus bias do not leave 32 bits.
struct ToBytes {
  float scale;
  int32_t zero;
  QuantRange range;
  bool relu;
};
/// Vector code for rows of int8_t (QI8) and uint8_t (QU8); installed by the simd kernels.
struct ByteRows {
  void (*i8)(const ToBytes&, const SumRow&, int8_t* y) = nullptr;
  void (*u8)(const ToBytes&, const SumRow&, uint8_t* y) = nullptr;
  // Whether a qconv2d, or a qmatmul, has a kernel by dot products of bytes.
  bool (*conv_dots)(const KernelArgs&) = nullptr;
  bool (*matmul_dots)(const KernelArgs&) = nullptr;
};
void install_byte_rows(const ByteRows& rows);
const ByteRows& byte_rows();

class QuantStore {
 public:
  /// Inputs are the two operands and, third, the bias; each sum has `terms` products. `vectors`: use the installed
  /// code.
  QuantStore(const KernelArgs& a, const std::string& act, int64_t terms, bool vectors);
  /// Elements [at, at+n) of the result, all of one channel.
  void same_channel(const int32_t* sums, int64_t at, int64_t n, int64_t channel) const;
  /// The same for a row of a matrix product, whose columns (or rows) are the channels.
  void matrix_row(const int32_t* sums, int64_t at, int64_t n, int64_t row) const;
  /// The same for channels [first, first+n) of one position, where channels lie innermost.
  void channels(const int32_t* sums, int64_t at, int64_t n, int64_t first) const;
  /// So many positions of a channels-last result behind each other: each is a row of all `channels`.
  void pixels(const int32_t* sums, int64_t at, int64_t count, int64_t channels) const;
  /// After all elements.
  void finish() const;

 private:
  template <class F>
  void each(const SumRow& r, F f) const;
  void run(const SumRow& r, int64_t at) const;

  const TensorArg& y_;
  std::vector<float> scale_;  // of the product: one, or one per channel
  bool row_scale_;            // of a matrix product: channels are rows
  const int32_t* bias_ = nullptr;
  bool row_bias_ = false, raw_, vectors_;
  ToBytes to_;
  mutable std::vector<uint8_t> wide_;  // of a packed result
};

}  // namespace mge
