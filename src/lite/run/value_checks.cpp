#include "lite/run/value_checks.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace lite {
namespace {

std::string place(const DumpedValue& v) {
  return mge::format("'{}' {} of {}{}", v.name, v.meta.str(), v.op, v.location.empty() ? "" : " (" + v.location + ")");
}

}  // namespace

void ValueChecks::set_range(double limit) {
  MGE_CHECK(limit > 0, Value, "--range must be above 0; got {}.", limit);
  limit_ = limit;
}

void ValueChecks::set_repeat(const std::string& spec) {
  const char* end = spec.data() + spec.size();
  auto r = std::from_chars(spec.data(), end, interval_);
  if (r.ec == std::errc() && r.ptr != end && *r.ptr == ':') r = std::from_chars(r.ptr + 1, end, first_);
  MGE_CHECK(r.ec == std::errc() && r.ptr == end && interval_ > 0, Value,
            "--check_var_value takes INTERVAL or INTERVAL:FIRST, whole numbers, the interval above 0; got '{}'.", spec);
}

void ValueChecks::check_range(const DumpedValue& v) const {
  for (int64_t i = 0; i < v.meta.shape.numel(); ++i) {
    const double x = element_value(v.meta.dtype, v.data, i);
    MGE_CHECK(std::fabs(x) <= limit_, Value, "range: element {} of {} is {}; the limit is {}.", i, place(v), x, limit_);
  }
}

void ValueChecks::operator()(const std::vector<DumpedValue>& values) {
  if (limit_ > 0)
    for (const DumpedValue& v : values) check_range(v);
  if (interval_ == 0 || values.empty()) return;
  const DumpedValue& v = values[(first_ + runs_ / interval_) % values.size()];
  std::string now(static_cast<const char*>(v.data), v.meta.bytes());
  if (runs_ % interval_ != 0)
    MGE_CHECK(now == kept_, Value, "check_var_value: {} is not what it was in the run before, with the same inputs.",
              place(v));
  kept_ = std::move(now);
  ++runs_;
}

}  // namespace lite
