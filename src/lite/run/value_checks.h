// Checks of every value of a graph, run by run: --range and --check_var_value.
#pragma once
#include <string>
#include <vector>

#include "lite/run/dump.h"

namespace lite {

class ValueChecks {
 public:
  /// No value may lie beyond ±limit, nor be NaN.
  void set_range(double limit);
  /// "interval[:first]": with the same inputs a value must have the same bits in each run. One value is looked at for
  /// `interval` runs, then the next one, beginning with number `first`.
  void set_repeat(const std::string& spec);
  bool any() const { return limit_ > 0 || interval_ > 0; }

  /// A Value error names the value, its op and its line.
  void operator()(const std::vector<DumpedValue>& values);

 private:
  void check_range(const DumpedValue& v) const;

  double limit_ = 0;
  size_t interval_ = 0, first_ = 0, runs_ = 0;
  std::string kept_;  // bytes of the value that is looked at
};

}  // namespace lite
