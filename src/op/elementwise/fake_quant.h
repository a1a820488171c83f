// Simulated quantisation: real numbers take the values that integers qmin..qmax stand for, and stay real numbers.
// docs/numerics.md says which values; quantised ops give the same.
#pragma once
#include <cstdint>

#include "op/attrs.h"

namespace mge {

struct FakeQuantAttrs {
  int64_t qmin = INT32_MIN, qmax = INT32_MAX;
  static constexpr auto fields() { return field_list("qmin", &FakeQuantAttrs::qmin, "qmax", &FakeQuantAttrs::qmax); }
  double lo() const { return static_cast<double>(qmin); }
  double hi() const { return static_cast<double>(qmax); }
};

}  // namespace mge
