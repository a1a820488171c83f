// Runs a kernel test once per instruction set that this CPU has and the kernels are compiled for.
//   each_target([] { EXPECT_EQ(sum(x), 3); });   // failures name the target
#pragma once

#include <gtest/gtest.h>

#include "kernel/simd/targets.h"

#include <hwy/highway.h>

namespace mge::simd {

template <class F>
void each_target(F body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace mge::simd
