// Enums and parameters that several families share. A shared enum carries the name of the first class that has it, as
// the original's do.
#pragma once
#include "compat/params.h"

namespace mge::compat {

MGE_COMPAT_ENUM(Strategy, "BatchConvBias", "Strategy", HEURISTIC = 1, PROFILE = 2, REPRODUCIBLE = 4, OPTIMIZED = 8)
MGE_COMPAT_ENUM(Format, "AdaptivePooling", "Format", NCHW, NHWC, NHWCD4, NCHW4, NCHW8, NCHW32, NCHW88, NCHW44,
                NCHW44_DOT, NCHW4_NCHW32, NCHW32_NCHW4, NCHW4_NCHW, NHWC_NCHW, NHWC_NCHW4_IC_SMALL, NCHW_NCHW4_IC_SMALL,
                CHWN4, NCHW64, NCHW4_NHWC)
MGE_COMPAT_ENUM(ComputeMode, "BatchConvBias", "ComputeMode", DEFAULT, FLOAT32)
MGE_COMPAT_ENUM(PoolMode, "AdaptivePooling", "Mode", MAX, AVERAGE, AVERAGE_COUNT_EXCLUDE_PADDING)
MGE_COMPAT_ENUM(FwdMode, "BatchNorm", "FwdMode", TRAINING, INFERENCE)
MGE_COMPAT_ENUM(InterpolationMode, "Remap", "InterpolationMode", NEAREST, LINEAR, AREA, CUBIC, LANCZOS4)
MGE_COMPAT_ENUM(BorderMode, "Remap", "BorderMode", REPLICATE, REFLECT, REFLECT_101, WRAP, CONSTANT, TRANSPARENT,
                ISOLATED)

/// How the original chooses among algorithms; kept for files and Python, not used by rules.
struct Policy {
  Strategy strategy = Strategy::HEURISTIC;
  uint64_t workspace_limit = UINT64_MAX;
};
constexpr auto policy_fields() {
  return field_list("strategy", &Policy::strategy, "workspace_limit", &Policy::workspace_limit);
}

}  // namespace mge::compat
