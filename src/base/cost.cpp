#include "base/cost.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/named_numbers.h"

namespace mge {

constinit Costs g_costs;

namespace {
const bool g_read = [] {
  const char* text = std::getenv("MGE_COSTS");
  if (!text) return false;
  try {
    g_costs = parse_costs(text);
  } catch (const Error& e) {
    std::fprintf(stderr, "megengine: %s It is not used.\n", e.text().c_str());
  }
  return true;
}();
}  // namespace

void set_costs(const Costs& c) { g_costs = c; }

Costs parse_costs(const std::string& text, Costs c) {
  static constexpr std::pair<const char*, double Costs::*> kNames[] = {{"piece", &Costs::piece},
                                                                       {"fma", &Costs::fma},
                                                                       {"value", &Costs::value},
                                                                       {"byte", &Costs::byte},
                                                                       {"step", &Costs::step}};
  const std::string wrong = each_number(text, [&](const std::string& name, double ns) {
    auto row = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& r) { return name == r.first; });
    return row != std::end(kNames) && ns >= 0 && ns < 1e12 ? (c.*row->second = ns, true) : false;
  });
  MGE_CHECK(wrong.empty(), Value,
            "MGE_COSTS: expected piece, fma, value, byte or step = nanoseconds, separated by commas; got '{}'.", wrong);
  return c;
}

}  // namespace mge
