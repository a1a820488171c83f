// mge-lite verify: test cases compared, and the op where a difference begins.
#include "lite/run/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernel/kernel.h"
#include "lite/engine.h"
#include "lite/models.h"
#include "op/in_build.h"

namespace lite::test {
namespace {

using mge::Kernel;
using mge::KernelArgs;
using mge::KernelRegistry;
using mge::serial::LoadedModel;
using mge::serial::TensorData;
using testing::AllOf;
using testing::HasSubstr;

const char* g_broken = "";  // op whose kernel is wrong at the moment

/// Zeros, where the named op is to be computed wrongly.
void break_kernel(const char* op) {
  Kernel k;
  k.name = "broken";
  k.refuse = [](const KernelArgs& a) -> const char* {
    return std::string(a.op->name) == g_broken ? nullptr : "all is well";
  };
  k.run = [](const KernelArgs& a) {
    for (auto& out : a.out) std::memset(out.ptr, 0, mge::dtype_bytes(out.dtype, out.shape.numel()));
  };
  KernelRegistry::global().add(std::string(op), mge::KernelTier::Library, k);
}

class Verify : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    break_kernel("max_pool2d");
    break_kernel("conv2d_fused");
  }
  void TearDown() override { broken(""); }
  static void broken(const char* op) {
    g_broken = op;
    mge::forget_kernel_choices();
  }
  static std::shared_ptr<const LoadedModel> model() {
    return std::make_shared<const LoadedModel>(mge::serial::read_model_file(net_path(), read_options()));
  }
  static TensorData tensor(std::vector<float> v) {
    mge::Meta m;
    m.shape = {static_cast<int64_t>(v.size())};
    TensorData t{"t", m, mge::allocate_storage({}, m.bytes()), 0};
    std::memcpy(t.storage->ptr, v.data(), m.bytes());
    return t;
  }
};

TEST_F(Verify, Comparison) {
  const TensorData want = tensor({1, 2, 100});
  float got[3] = {1, 2, 100};
  EXPECT_TRUE(compare(want.meta, got, want, 0).identical);
  got[2] = 101;
  const Difference d = compare(want.meta, got, want, 1e-3);
  EXPECT_FALSE(d.ok);
  EXPECT_NEAR(d.worst, 0.01, 1e-9);
  EXPECT_EQ(d.text(1e-3), "maximum error 0.01, allowed 0.001: element 2 is 101, expected 100");
  EXPECT_TRUE(compare(want.meta, got, want, 0.02).ok);
  EXPECT_FALSE(compare(want.meta, got, want, 0).ok);  // the same bits were asked for
  got[2] = NAN;
  EXPECT_FALSE(compare(want.meta, got, want, 0.02).ok);
  mge::Meta other = want.meta;
  other.shape = {3, 1};
  EXPECT_EQ(compare(other, got, want, 1).text(1), "is float32[3,1], expected float32[3]");
}

TEST_F(Verify, NothingDiffers) {
  const auto m = model();
  EXPECT_EQ(first_different_op(m, m->info.tests[0]).found, OpDifference::Found::Nothing);
}

TEST_F(Verify, AKernelThatIsWrong) {
  broken("max_pool2d");
  const auto m = model();
  const OpDifference at = first_different_op(m, m->info.tests[0]);
  EXPECT_EQ(at.found, OpDifference::Found::Kernel);
  EXPECT_EQ(at.op, "max_pool2d");
  EXPECT_EQ(at.kernel, "broken");
  EXPECT_THAT(at.text(), AllOf(HasSubstr("net.py:24"), HasSubstr("float32[2,4,4,4]"), HasSubstr("maximum error")));
}

TEST_F(Verify, AFusionThatIsWrong) {
  broken("conv2d_fused");
  const auto m = model();
  const OpDifference at = first_different_op(m, m->info.tests[0]);
  EXPECT_EQ(at.found, OpDifference::Found::Optimised);
  EXPECT_THAT(at.text(), AllOf(HasSubstr("net.py:2"), HasSubstr("the optimised program up to it")));
}

}  // namespace
}  // namespace lite::test
