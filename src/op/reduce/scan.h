// Running sums, products and first-order recurrences along an axis.
#pragma once
#include "op/attrs.h"

namespace mge {

class OpRegistry;

struct CumsumAttrs {
  int64_t axis = 0;
  bool exclusive = false;  // element i sums what comes before it, without itself
  bool reverse = false;    // from the end
  static constexpr auto fields() {
    return field_list("axis", &CumsumAttrs::axis, "exclusive", &CumsumAttrs::exclusive, "reverse",
                      &CumsumAttrs::reverse);
  }
};
struct ScanAttrs {
  int64_t axis = 0;
  bool reverse = false;
  static constexpr auto fields() { return field_list("axis", &ScanAttrs::axis, "reverse", &ScanAttrs::reverse); }
};

void register_scan(OpRegistry& r);
void register_scan_grads(OpRegistry& r);

}  // namespace mge
