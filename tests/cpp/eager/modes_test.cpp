// The mode word: who sets which bit, autocast by it, and what rules emit.
#include "eager/eager_test_util.h"

namespace mge {
namespace {

class Modes : public EagerTest {
 protected:
  void SetUp() override {
    EagerTest::SetUp();
    EXPECT_EQ(mode::t_word, 0u);
  }
  void TearDown() override {
    EagerTest::TearDown();
    EXPECT_EQ(mode::t_word, 0u);
    mode::t_word = 0;
  }
};
using Autocast = mode::Scope;

TEST_F(Modes, DtypesAreZeroByDefault) {
  EXPECT_EQ(mode::low_dtype(0), DType::F16);
  EXPECT_EQ(mode::high_dtype(0), DType::F32);
  uint32_t w = mode::with_low_dtype(mode::with_high_dtype(mode::kAutocast, DType::BF16), DType::F32);
  EXPECT_EQ(mode::low_dtype(w), DType::F32);
  EXPECT_EQ(mode::high_dtype(w), DType::BF16);
  EXPECT_EQ(mode::with_low_dtype(mode::with_high_dtype(w, DType::F32), DType::F16), uint32_t{mode::kAutocast});
}

TEST_F(Modes, SettingsLeaveTheOtherBitsAlone) {
  mode::Scope open(0, mode::kGrad);
  mode::set_settings(~0u);
  EXPECT_EQ(mode::t_word & 0xff, uint32_t{mode::kGrad | mode::kAutocast | mode::kFloat32Sums});
  EXPECT_EQ(mode::settings(), mode::kSettings);
  mode::set_settings(0);
  EXPECT_EQ(mode::t_word, uint32_t{mode::kGrad});
}

TEST_F(Modes, SessionsSetTheirBitAndTakeItAway) {
  auto a = make_ref<GradSession>(), b = make_ref<GradSession>();
  a->start();
  b->start();
  EXPECT_TRUE(mode::t_word & mode::kGrad);
  a->stop();
  EXPECT_TRUE(mode::t_word & mode::kGrad);
  b->stop();
  EXPECT_FALSE(mode::t_word & mode::kGrad);
  std::thread([] { EXPECT_EQ(mode::t_word, 0u); }).join();
}

TEST_F(Modes, SessionStoppedByAnotherThread) {
  auto s = make_ref<GradSession>();
  s->start();
  std::thread([&] { s->stop(); }).join();
  EXPECT_EQ(apply("exp", {filled({2}, 0)})->meta().str(), "float32[2]");  // the next op finds that nobody listens
  EXPECT_FALSE(mode::t_word & mode::kGrad);
}

TEST_F(Modes, EveryOpCastsAsItsDefinitionSays) {
  TensorPtr x = filled({2, 2}, 0.5), i = tensor({2, 2}, {1, 2, 3, 4}, DType::I32);
  Autocast on(0, mode::kAutocast);
  EXPECT_EQ(apply("matmul", {x, x})->meta().dtype, DType::F16);
  TensorPtr h = apply("matmul", {x, x});
  EXPECT_EQ(apply("exp", {h})->meta().dtype, DType::F32);
  EXPECT_EQ(apply("div", {h, i})->meta().dtype, DType::F32);
  EXPECT_EQ(apply("add", {h, h})->meta().dtype, DType::F16);
  EXPECT_EQ(apply("add", {i, i})->meta().dtype, DType::I32);
  std::thread([&] { EXPECT_EQ(apply("matmul", {x, x})->meta().dtype, DType::F32); }).join();
  TensorPtr out;
  Tensor* in[] = {x.get(), x.get()};
  dispatch_uncast(op_of("matmul"), op_of("matmul").schema.build("matmul", {}), in, {&out, 1});
  EXPECT_EQ(out->meta().dtype, DType::F32);
  EXPECT_EQ(cast_dtype(op_of("div"), DType::F16), DType::F32);
  EXPECT_EQ(cast_dtype(op_of("div"), DType::I32), DType::I32);
  EXPECT_EQ(cast_dtype(op_of("add"), DType::F16), DType::F16);
}

TEST_F(Modes, RulesAreNeitherCastNorLabelled) {
  TensorPtr x = filled({1, 1, 2, 2}, 0.5);
  x->modes = mode::kNhwc;
  EXPECT_TRUE(apply("exp", {x})->modes & mode::kNhwc);
  Autocast on(0, mode::kAutocast);
  {
    mode::RuleScope rule;
    TensorPtr y = apply("matmul", {x, x});
    EXPECT_EQ(y->meta().dtype, DType::F32);
    EXPECT_EQ(apply("exp", {x})->modes, 0u);
  }
  EXPECT_EQ(apply("matmul", {x, x})->meta().dtype, DType::F16);
  EXPECT_TRUE(apply("exp", {x})->modes & mode::kNhwc);
}

TEST_F(Modes, LabelsGoToResultsWithTheSameAxes) {
  TensorPtr x = filled({1, 2, 2, 2}, 0.5), plain = filled({1, 2, 2, 2}, 1);
  x->modes = mode::kNhwc;
  auto label = [](const TensorPtr& t) { return t->modes & mode::kNhwc; };
  EXPECT_TRUE(label(apply("add", {plain, x})));
  EXPECT_FALSE(label(apply("lt", {plain, x}))) << "bool";
  EXPECT_FALSE(label(apply("matmul", {x, x}))) << "keeps no format";
  EXPECT_TRUE(label(apply("reshape", {x}, make_attrs(ShapeAttrs{{2, 1, 2, 2}}))));
  EXPECT_FALSE(label(apply("reshape", {x}, make_attrs(ShapeAttrs{{8}}))));
  EXPECT_TRUE(label(detach(*x)));
  assign(*plain, *x);
  EXPECT_FALSE(label(plain)) << "the label is the cell's";
}

}  // namespace
}  // namespace mge
