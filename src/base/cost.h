// What work costs, so that one rule decides how finely it is split. Only the order of magnitude matters: a piece is
// large against handing it over (about a microsecond) and small against the whole.
//   parallel_for(rows, value_grain(row_length), body);
#pragma once
#include <cstdint>
#include <string>

namespace mge {

/// Nanoseconds on one core. MGE_COSTS="piece=4000,fma=0.02" overrides some of them on another machine.
struct Costs {
  double piece = 2000;    // the least work worth a thread of its own
  double fma = 0.02;      // a multiply-add of a tiled product
  double value = 0.125;   // a number that passes through SIMD code: read, combined, written
  double byte = 0.03125;  // a byte moved
  double step = 1;        // a step of scalar code: one multiply-add, one comparison of a sort, one random number
};
extern Costs g_costs;
inline const Costs& costs() { return g_costs; }
/// For tests: {.piece = 0} splits everything. No kernel may be running.
void set_costs(const Costs& c);
/// Reads "name=number,..." over `c`; a Value error names what is wrong with it.
Costs parse_costs(const std::string& text, Costs c = {});

/// How many items make a piece, each of which takes `ns`.
inline int64_t grain_of(double ns) {
  const double items = g_costs.piece / (ns > 1e-6 ? ns : 1e-6);
  return items > 1 ? static_cast<int64_t>(items) : 1;
}
/// The same for items of so many multiply-adds, values, bytes or steps each.
template <class N>
int64_t fma_grain(N each) {
  return grain_of(g_costs.fma * static_cast<double>(each));
}
template <class N>
int64_t value_grain(N each) {
  return grain_of(g_costs.value * static_cast<double>(each));
}
template <class N>
int64_t byte_grain(N each) {
  return grain_of(g_costs.byte * static_cast<double>(each));
}
template <class N>
int64_t step_grain(N each) {
  return grain_of(g_costs.step * static_cast<double>(each));
}

}  // namespace mge
