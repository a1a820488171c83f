#include "kernel/ref/nn_ref.h"

#include <vector>

namespace mge {

namespace ref {
namespace {

bool is_16_bit(const TensorArg& t) { return t.dtype == DType::F16 || t.dtype == DType::BF16; }

}  // namespace

void through_float(const KernelArgs& a, FloatRun run) {
  SmallVec<std::vector<float>, 6> memory;
  memory.reserve(a.in.size() + a.out.size());
  auto as_float = [&](const TensorArg& t) {
    TensorArg f = t;
    f.ptr = memory.emplace_back(static_cast<size_t>(t.numel())).data();
    f.dtype = DType::F32;
    return f;
  };
  SmallVec<TensorArg, 6> in(a.in.begin(), a.in.end()), out(a.out.begin(), a.out.end());
  for (auto& t : in) {
    if (!is_16_bit(t)) continue;
    const auto* src = t.data<uint16_t>();
    bool half = t.dtype == DType::F16;
    t = as_float(t);
    for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = half ? half_to_float(src[i]) : bfloat_to_float(src[i]);
  }
  for (auto& t : out)
    if (is_16_bit(t)) t = as_float(t);
  KernelArgs f = a;
  f.in = {in.data(), in.size()};
  f.out = {out.data(), out.size()};
  run(f, a.out[0].dtype);
  for (size_t o = 0; o < out.size(); ++o) {
    if (!is_16_bit(a.out[o])) continue;
    bool half = a.out[o].dtype == DType::F16;
    const float* src = out[o].data<float>();
    auto* dst = a.out[o].data<uint16_t>();
    for (int64_t i = 0; i < out[o].numel(); ++i) dst[i] = half ? float_to_half(src[i]) : float_to_bfloat(src[i]);
  }
}

const char* refuse_not_floating(const KernelArgs& a) {
  for (auto& t : a.in)
    if (is_float(t.dtype) && t.dtype != a.out[0].dtype) return "mixed floating dtypes";
  return is_float(a.out[0].dtype) ? nullptr : "needs a floating dtype";
}

const char* refuse_not_floating_step(const KernelArgs& a) {
  for (auto& t : a.in)
    if (is_float(t.dtype) && t.dtype != a.out[0].dtype && t.numel() != 1) return "mixed floating dtypes";
  return is_float(a.out[0].dtype) ? nullptr : "needs a floating dtype";
}

double read_scalar(const TensorArg& t) {
  switch (t.dtype) {
    case DType::F64:
      return *t.data<double>();
    case DType::F16:
      return half_to_float(*t.data<uint16_t>());
    case DType::BF16:
      return bfloat_to_float(*t.data<uint16_t>());
    default:
      return *t.data<float>();
  }
}

}  // namespace ref
}  // namespace mge
