// The order of a graph's nodes, chosen so that less memory is in use at once. An order of equal need is left alone.
//   gw = conv2d_dw x, gy          gw = conv2d_dw x, gy
//   ...                      ->   w1 = sgd_update w, gw      the gradient is gone before the next one is made
//   w1 = sgd_update w, gw         ...
// Dependencies hold, those of tokens too, so no random number and no communication changes places with another of its
// domain. What reads the result of a communication stays where it was: the time in between is what it overlaps with.
// Readers of a var stay before its new value, which may then take its memory. So does whatever may refuse a value, as
// far as it does not depend on that: a failed run then leaves state as it was without a copy of it.
#pragma once
#include "ir/graph.h"

namespace mge {

struct ScheduleReport {
  size_t before = 0, after = 0;  // most bytes of intermediates in use at once, as far as the graph tells
  bool changed = false;
};

ScheduleReport schedule_for_memory(ir::Graph& g);

}  // namespace mge
