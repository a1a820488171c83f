// Outputs beside those that a model's test case asks for, and, when one differs, the op where it begins.
//   Difference d = compare(meta, data, want, 1e-4);            d.ok, d.text()
//   OpDifference at = first_different_op(model, test);         at.found, at.text()
#pragma once
#include <memory>
#include <string>

#include "serial/model.h"

namespace lite {

struct Difference {
  bool ok = true;
  bool identical = true;
  double worst = 0;  // |a-b| / max(min(|a|,|b|),1), as the original's AssertEqual takes it
  int64_t at = -1;   // element that is the worst
  double got = 0, want = 0;
  std::string types;  // when shapes or dtypes differ: both
  /// "identical", or "maximum error 0.25, allowed 0.0001: element 3 is 1.5, expected 1.25".
  std::string text(double allowed) const;
};

/// max_error 0 asks for the same bits.
Difference compare(const mge::Meta& meta, const void* got, const mge::serial::TensorData& want, double max_error);

struct OpDifference {
  enum class Found {
    Nothing,   // every op gives what the reference kernels give: the case was recorded from another computation
    Kernel,    // an op alone gives something else than its reference kernel
    Optimised  // ops alone are right; the optimised program up to this op is not
  };
  Found found = Found::Nothing;
  std::string op, value, kernel, location;
  mge::Meta meta;
  Difference difference;
  std::string text() const;
};

/// Runs the graph op by op with the kernels it would choose and with the reference kernels, then the optimised program
/// up to each op. Slow: for models whose test case has failed.
OpDifference first_different_op(const std::shared_ptr<const mge::serial::LoadedModel>& model,
                                const mge::serial::TestCase& test, int opt_level = 2);

}  // namespace lite
