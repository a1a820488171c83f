// Connectionist temporal classification (Graves et al. 2006): -log of the probability that pred [T,N,C], which are
// probabilities, spells the labels with blanks between. Lengths are int32[N]; labels are [N,S] or, joined, [sum].
#pragma once
#include "op/attrs.h"

namespace mge {

struct CtcAttrs {
  int64_t blank = 0;
  static constexpr auto fields() { return field_list("blank", &CtcAttrs::blank); }
};

}  // namespace mge
