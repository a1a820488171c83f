// The vector kernel of fake_quant against the formula, each instruction set, lengths around those of vectors.
#include "op/elementwise/fake_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernel/each_target.h"
#include "kernel/kernel_args.h"

namespace mge {
namespace {

using testing_kernels::Call;
using testing_kernels::TestTensor;

float formula(float x, float scale, float zero) {
  float q = std::round(x / scale) + zero;
  q = q < -8 ? -8.f : q > 7 ? 7.f : q;  // NaN stays
  return (q - zero) * scale;
}

// x [rows,len], scale and zero point [rows,1] or [1,len] or [1].
void check(int64_t rows, int64_t len, const Shape& per) {
  TestTensor x(DType::F32, {rows, len}, 1), scale(DType::F32, per), zero(DType::F32, per), out;
  const float odd[] = {0.5f, -0.5f, 1.5f, -2.5f, NAN, INFINITY, -INFINITY, -0.f, 3e38f, 0x1p-149f};
  for (int64_t i = 0; i < rows * len; ++i)
    x.data<float>()[i] = i % 3 ? static_cast<float>(i % 41 - 20) * 0.37f : odd[static_cast<size_t>(i / 3) % 10];
  for (int64_t i = 0; i < scale.arg.numel(); ++i) {
    scale.data<float>()[i] = 0.25f + 0.1f * static_cast<float>(i % 7);
    zero.data<float>()[i] = static_cast<float>(i % 5 - 2);
  }
  Call call("fake_quant", make_attrs(FakeQuantAttrs{-8, 7}), {x.arg, scale.arg, zero.arg});
  ASSERT_STREQ(call.run(KernelTier::Simd, out, 1).name, "simd_fake_quant");
  for (int64_t i = 0; i < rows * len; ++i) {
    const int64_t c = per.numel() == 1 ? 0 : per[per.rank - 1] == 1 ? i / len : i % len;
    const float want = formula(x.data<float>()[i], scale.data<float>()[c], zero.data<float>()[c]);
    const float got = out.data<float>()[i];
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << i;
    } else {
      ASSERT_EQ(got, want) << "at " << i << " of " << rows << "x" << len << ", x " << x.data<float>()[i];
    }
  }
}

TEST(FakeQuantKernel, EveryInstructionSetGivesTheFormula) {
  simd::each_target([] {
    for (int64_t len : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 8192, 8200}) {
      check(1, len, {1});
      check(3, len, {3, 1});
      check(3, len, {1, len});
    }
  });
}

TEST(FakeQuantKernel, AScalePerElementIsLeftToItsParts) {
  TestTensor x(DType::F32, {3, 4}), scale(DType::F32, {3, 4}), zero(DType::F32, {1});
  KernelArgs a{&OpRegistry::global().get("fake_quant"), nullptr, {}, {}, nullptr};
  const TensorArg in[] = {x.arg, scale.arg, zero.arg};
  const Attrs attrs = make_attrs(FakeQuantAttrs{-8, 7});
  a.attrs = attrs.get();
  a.in = in;
  a.out = {&x.arg, 1};
  const Choice c = KernelRegistry::global().find(a, KernelTier::Simd);
  EXPECT_EQ(c.kernel, nullptr);
  EXPECT_NE(c.refusals.find("a scale per element"), std::string::npos);
}

}  // namespace
}  // namespace mge
