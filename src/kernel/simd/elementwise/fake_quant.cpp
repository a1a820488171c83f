// fake_quant in one pass over memory, with one scale and zero point or one per channel.
#include "op/elementwise/fake_quant.h"

#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/layouts.h"
#include "kernel/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/elementwise/fake_quant.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/elementwise/row_loops-inl.h"
#include "op/in_build.h"

HWY_BEFORE_NAMESPACE();
namespace mge::body::HWY_NAMESPACE {

struct FakeQuantRow {
  static constexpr int arity = 5;
  template <class V>
  static V eval(V x, V scale, V zero, V lo, V hi) {
    V q = Round::eval(x / scale) + zero;
    return (minimum(maximum(q, lo), hi) - zero) * scale;
  }
};
RowFn fake_quant_row() { return row_pair<FakeQuantRow, Lane<VF>, Lane<VF>>().row; }

}  // namespace mge::body::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge {
namespace body {
HWY_EXPORT(fake_quant_row);
static RowFn row_of_target() { return HWY_DYNAMIC_DISPATCH(fake_quant_row)(); }
}  // namespace body
namespace {

constexpr int64_t kPiece = 1 << 13;  // elements of a row done in one go

void run_fake_quant(const KernelArgs& a) {
  TensorArg out = a.out[0], in[] = {a.in[0], a.in[1], a.in[2]};
  if (out.numel() == 0) return;
  sort_axes_by_output(out, in);
  const TensorArg* operands[] = {&out, &in[0], &in[1], &in[2]};
  const LoopNest nest = make_loop_nest(out.shape, operands);
  const auto& at = a.as<FakeQuantAttrs>();
  const float lo = static_cast<float>(at.qmin), hi = static_cast<float>(at.qmax);
  const RowFn row = body::row_of_target();
  const int inner = nest.rank - 1;
  const int64_t len = inner < 0 ? 1 : nest.size[inner], pieces = (len + kPiece - 1) / kPiece;
  int64_t rows = 1, step[4] = {};
  for (int i = 0; i < inner; ++i) rows *= nest.size[i];
  for (int k = 0; k < 4 && inner >= 0; ++k) step[k] = nest.stride[k][inner];
  parallel_for(rows * pieces, value_grain(std::min(len, kPiece)), [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t at_row = item / pieces, from = item % pieces * kPiece, offset[4];
      for (int k = 0; k < 4; ++k) offset[k] = from * step[k];
      for (int i = inner - 1; i >= 0; --i) {
        const int64_t index = at_row % nest.size[i];
        at_row /= nest.size[i];
        for (int k = 0; k < 4; ++k) offset[k] += index * nest.stride[k][i];
      }
      const void* p[] = {in[0].data<float>() + offset[1], in[1].data<float>() + offset[2],
                         in[2].data<float>() + offset[3], &lo, &hi};
      const int64_t strides[] = {step[1], step[2], step[3], 0, 0};
      row(p, strides, out.data<float>() + offset[0], std::min(kPiece, len - from));
    }
  });
}

// A row-major operand with at most one axis is walked in steps of 0 or 1 in any order of the image's axes.
bool along_one_axis(const Shape& s) { return s.numel() == *std::max_element(s.d, s.d + std::max<int>(s.rank, 1)); }

const char* refuse_fake_quant(const KernelArgs& a) {
  if (a.in[0].dtype != DType::F32) return "not float32";
  if (!(a.in[0].shape == a.out[0].shape)) return "x is broadcast";
  for (size_t i = 1; i < 3; ++i)
    if (a.in[i].shape.numel() != 1 && !along_one_axis(a.in[i].shape)) return "a scale per element";
  return nullptr;
}

void keep_layout(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  keep_channels_last(a, in, out);
  in[0].layout = out[0].layout;
  ask_row_major(in[1]);
  ask_row_major(in[2]);
}

}  // namespace

void register_simd_fake_quant(KernelRegistry& r) {
  r.add("fake_quant", KernelTier::Simd,
        {.name = "simd_fake_quant",
         .refuse = refuse_fake_quant,
         .run = run_fake_quant,
         .flags = kInPlace0,
         .layouts = keep_layout});
}

}  // namespace mge
#endif
