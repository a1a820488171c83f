// Connectionist temporal classification (Graves et al. 2006): -log of the probability that pred [T,N,C], which are
// probabilities, spells the labels with blanks between. Lengths are int32[N]; labels are [N,S] or, joined, [sum].
#pragma once
#include <cfloat>
#include <cmath>

#include "op/attrs.h"

namespace mge {

/// The loss of a label that no path spells is large, not infinite, so that the batch it is in stays trainable: its
/// states start with this logarithm of a probability instead of -inf. It has no gradient.
inline const double kCtcFloor = std::log(static_cast<double>(FLT_MIN));

struct CtcAttrs {
  int64_t blank = 0;
  static constexpr auto fields() { return field_list("blank", &CtcAttrs::blank); }
};

}  // namespace mge
