#include "kernel/quant_store.h"

#include "op/quant/product.h"

namespace mge {

QuantStore::QuantStore(const KernelArgs& a, const std::string& act) : y_(a.out[0]), relu_(act == "relu") {
  const Quant &x = a.in[0].quant, &w = a.in[1].quant;
  row_scale_ = !x.per_tensor();
  const Quant product = row_scale_ ? product_quant(w, x, 0) : product_quant(x, w, 0);
  if (product.per_tensor())
    scale_ = {static_cast<float>(product.scale)};
  else
    scale_ = product.channels().scale;
  if (a.in.size() == 3) {
    bias_ = a.in[2].data<int32_t>();
    row_bias_ = a.in[2].shape.rank == 2;
  }
  raw_ = y_.dtype == DType::QI32 && is_product_quant(y_.quant, product);
  out_scale_ = static_cast<float>(y_.quant.scale);
  range_ = is_quant(y_.dtype) ? quant_range(y_.dtype) : QuantRange{0, 0};
  if (is_packed(y_.dtype)) wide_.resize(static_cast<size_t>(y_.numel()));
}

template <class F>
void QuantStore::each(const int32_t* sums, int64_t n, const float* scale, int64_t scale_step, const int32_t* bias,
                      int64_t bias_step, F f) const {
  for (int64_t i = 0; i < n; ++i) {
    const int32_t a = bias ? quant::saturate32(int64_t{sums[i]} + bias[i * bias_step]) : sums[i];
    const float v = static_cast<float>(a) * scale[i * scale_step];
    f(i, relu_ && v < 0 ? 0.0f : v);
  }
}

void QuantStore::run(const int32_t* sums, int64_t at, int64_t n, const float* scale, int64_t scale_step,
                     const int32_t* bias, int64_t bias_step) const {
  if (raw_) {
    int32_t* y = y_.data<int32_t>() + at;
    for (int64_t i = 0; i < n; ++i) {
      const int32_t a = bias ? quant::saturate32(int64_t{sums[i]} + bias[i * bias_step]) : sums[i];
      y[i] = relu_ && a < 0 ? 0 : a;
    }
    return;
  }
  auto store = [&](auto* y) {
    using Q = std::remove_pointer_t<decltype(y)>;
    each(sums, n, scale, scale_step, bias, bias_step, [&](int64_t i, float v) {
      y[i] = static_cast<Q>(quant::quantise(v, out_scale_, y_.quant.zero_point, range_));
    });
  };
  switch (y_.dtype) {
    case DType::F32: {
      float* y = y_.data<float>() + at;
      return each(sums, n, scale, scale_step, bias, bias_step, [&](int64_t i, float v) { y[i] = v; });
    }
    case DType::QU8:
      return store(y_.data<uint8_t>() + at);
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
  run(sums, at, n, &scale_[scale_.size() > 1 ? static_cast<size_t>(channel) : 0], 0, bias_ ? bias_ + channel : nullptr,
      0);
}

void QuantStore::matrix_row(const int32_t* sums, int64_t at, int64_t n, int64_t row) const {
  const bool many = scale_.size() > 1;
  run(sums, at, n, &scale_[many && row_scale_ ? static_cast<size_t>(row) : 0], many && !row_scale_,
      bias_ && row_bias_ ? bias_ + row : bias_, bias_ && !row_bias_);
}

void QuantStore::finish() const {
  if (is_packed(y_.dtype)) pack4(wide_.data(), y_.ptr, y_.numel());
}

}  // namespace mge
