#include "plan/prepared.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "op/conv/conv2d.h"

namespace mge {
namespace {

int g_runs = 0;
void write(int64_t v, void* to) { ++g_runs, std::memcpy(to, &v, sizeof v); }
void by_image(const KernelArgs& a, void* to) { write(a.in[0].shape[2], to); }
void by_weight(const KernelArgs& a, void* to) { write(a.in[1].shape[0], to); }

class Prepared : public testing::Test {
 protected:
  void SetUp() override { g_runs = 0; }
  RefPtr<Storage> get(KernelTier tier, int64_t image, const Shape& weight, const Ints& pad = {0, 0}) {
    Kernel k{.name = "k"};
    k.tier = tier;
    k.prepare = {1, nullptr, tier == KernelTier::Library ? by_image : by_weight};
    TensorArg in[2];
    in[0].shape = {1, 4, image, image}, in[0].layout = Layout::contiguous(in[0].shape);
    in[1].shape = weight, in[1].layout = Layout::contiguous(weight), in[1].ptr = weight_.data();
    const Attrs attrs = make_attrs(Conv2dAttrs{.pad = pad});
    KernelArgs args{&OpRegistry::global().get("conv2d"), attrs.get(), {in, 2}, {}, nullptr};
    return made_.get(k, args, 8);
  }

 private:
  std::vector<float> weight_ = std::vector<float>(32);
  PreparedWeights made_;
};

TEST_F(Prepared, AnotherImageSizeFindsWhatWasMade) {
  const auto first = get(KernelTier::Simd, 8, {8, 4, 1, 1});
  EXPECT_EQ(get(KernelTier::Simd, 16, {8, 4, 1, 1}).get(), first.get());
  EXPECT_EQ(g_runs, 1);
}

TEST_F(Prepared, OtherAttributesOrAnotherViewOfTheWeightAreMadeAnew) {
  const auto first = get(KernelTier::Simd, 8, {8, 4, 1, 1});
  EXPECT_NE(get(KernelTier::Simd, 8, {4, 8, 1, 1}).get(), first.get());
  EXPECT_NE(get(KernelTier::Simd, 8, {8, 4, 1, 1}, {1, 1}).get(), first.get());
  EXPECT_EQ(g_runs, 3);
}

TEST_F(Prepared, WhatALibraryMadeIsCompared) {
  const auto first = get(KernelTier::Library, 8, {8, 4, 1, 1});
  EXPECT_EQ(get(KernelTier::Library, 8, {8, 4, 1, 1}).get(), first.get());
  EXPECT_NE(get(KernelTier::Library, 16, {8, 4, 1, 1}).get(), first.get());
}

}  // namespace
}  // namespace mge
