#include "kernel/quant_store.h"

#include <cstdlib>

#include "op/quant/product.h"

namespace mge {
namespace {

ByteRows g_rows;

int64_t reach(DType t) {  // of any zero point
  const QuantRange r = quant_range(t);
  return r.hi - r.lo;
}

}  // namespace

void install_byte_rows(const ByteRows& rows) { g_rows = rows; }
const ByteRows& byte_rows() { return g_rows; }

QuantStore::QuantStore(const KernelArgs& a, const std::string& act, int64_t terms, bool vectors) : y_(a.out[0]) {
  const Quant &x = a.in[0].quant, &w = a.in[1].quant;
  row_scale_ = !x.per_tensor();
  const Quant product = row_scale_ ? product_quant(w, x, 0) : product_quant(x, w, 0);
  if (product.per_tensor())
    scale_ = {static_cast<float>(product.scale)};
  else
    scale_ = product.channels().scale;
  int64_t most = terms * reach(a.in[0].dtype) * reach(a.in[1].dtype);  // that a sum and a bias reach together
  if (a.in.size() == 3) {
    bias_ = a.in[2].data<int32_t>();
    row_bias_ = a.in[2].shape.rank == 2;
    int64_t largest = 0;
    for (int64_t i = 0; i < a.in[2].numel(); ++i) largest = std::max(largest, std::abs(int64_t{bias_[i]}));
    most += largest;
  }
  raw_ = y_.dtype == DType::QI32 && is_product_quant(y_.quant, product);
  vectors_ = vectors && g_rows.i8 && most <= INT32_MAX;
  to_ = {static_cast<float>(y_.quant.scale), y_.quant.zero_point,
         is_quant(y_.dtype) ? quant_range(y_.dtype) : QuantRange{0, 0}, act == "relu"};
  if (is_packed(y_.dtype)) wide_.resize(static_cast<size_t>(y_.numel()));
}

template <class F>
void QuantStore::each(const SumRow& r, F f) const {
  for (int64_t i = 0; i < r.n; ++i) {
    const int32_t a = r.bias ? quant::saturate32(int64_t{r.sums[i]} + r.bias[i * r.bias_step]) : r.sums[i];
    const float v = static_cast<float>(a) * r.scale[i * r.scale_step];
    f(i, to_.relu && v < 0 ? 0.0f : v);
  }
}

void QuantStore::run(const SumRow& r, int64_t at) const {
  if (raw_) {
    int32_t* y = y_.data<int32_t>() + at;
    for (int64_t i = 0; i < r.n; ++i) {
      const int32_t a = r.bias ? quant::saturate32(int64_t{r.sums[i]} + r.bias[i * r.bias_step]) : r.sums[i];
      y[i] = to_.relu && a < 0 ? 0 : a;
    }
    return;
  }
  auto store = [&](auto* y) {
    using Q = std::remove_pointer_t<decltype(y)>;
    each(r, [&](int64_t i, float v) { y[i] = static_cast<Q>(quant::quantise(v, to_.scale, to_.zero, to_.range)); });
  };
  switch (y_.dtype) {
    case DType::F32: {
      float* y = y_.data<float>() + at;
      return each(r, [&](int64_t i, float v) { y[i] = v; });
    }
    case DType::QU8:
      return vectors_ ? g_rows.u8(to_, r, y_.data<uint8_t>() + at) : store(y_.data<uint8_t>() + at);
    case DType::QI8:
      return vectors_ ? g_rows.i8(to_, r, y_.data<int8_t>() + at) : store(y_.data<int8_t>() + at);
    case DType::QI16:
      return store(y_.data<int16_t>() + at);
    case DType::QI32:
      return store(y_.data<int32_t>() + at);
    case DType::QU4:
    case DType::QI4:
      return store(reinterpret_cast<int8_t*>(wide_.data()) + at);
    default:
      return store(y_.data<int8_t>() + at);
  }
}

void QuantStore::same_channel(const int32_t* sums, int64_t at, int64_t n, int64_t channel) const {
  const size_t one = scale_.size() > 1 ? static_cast<size_t>(channel) : 0;
  run({sums, n, &scale_[one], 0, bias_ ? bias_ + channel : nullptr, 0}, at);
}

void QuantStore::matrix_row(const int32_t* sums, int64_t at, int64_t n, int64_t row) const {
  const bool many = scale_.size() > 1;
  const size_t first = many && row_scale_ ? static_cast<size_t>(row) : 0;
  run({sums, n, &scale_[first], many && !row_scale_, bias_ && row_bias_ ? bias_ + row : bias_, !row_bias_}, at);
}

void QuantStore::channels(const int32_t* sums, int64_t at, int64_t n, int64_t first) const {
  const bool many = scale_.size() > 1;
  run({sums, n, &scale_[many ? static_cast<size_t>(first) : 0], many, bias_ ? bias_ + first : nullptr, 1}, at);
}

void QuantStore::pixels(const int32_t* sums, int64_t at, int64_t count, int64_t channels) const {
  SumRow r{sums, channels, scale_.data(), scale_.size() > 1, bias_, bias_ != nullptr};
  if (!r.scale_step && !bias_) r.n *= count, count = 1;
  if (vectors_ && (y_.dtype == DType::QI8 || y_.dtype == DType::QU8)) {
    r.rows = count;
    return run(r, at);
  }
  for (; count > 0; --count, r.sums += r.n, at += r.n) run(r, at);
}

void QuantStore::finish() const {
  if (is_packed(y_.dtype)) pack4(wide_.data(), y_.ptr, y_.numel());
}

}  // namespace mge
