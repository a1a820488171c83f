#include "base/cost.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/error.h"

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
  std::stringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t eq = item.find('=');
    const std::string name = item.substr(0, eq), value = eq == std::string::npos ? "" : item.substr(eq + 1);
    auto row = std::find_if(std::begin(kNames), std::end(kNames), [&](auto& r) { return name == r.first; });
    char* end = nullptr;
    const double ns = std::strtod(value.c_str(), &end);
    MGE_CHECK(row != std::end(kNames) && !value.empty() && *end == 0 && ns >= 0 && ns < 1e12, Value,
              "MGE_COSTS: expected piece, fma, value, byte or step = nanoseconds, separated by commas; got '{}'.",
              item);
    c.*row->second = ns;
  }
  return c;
}

}  // namespace mge
