// A layer of a recurrent network over a whole sequence. gates [L,N,G*H] is what the input adds to each step, w [G*H,H]
// what the state adds: pre = gates[t] + h · wᵀ. G is 1 for "tanh" and "relu" (h = act(pre)) and 4 for "lstm", whose
// gates are i, f, g, o: c = f*c + i*g, h = o*tanh(c).
#pragma once
#include <string>

#include "op/attrs.h"

namespace mge {

struct RecurrenceAttrs {
  std::string mode = "lstm";
  bool reverse = false;  // from the last step to the first
  static constexpr auto fields() {
    return field_list("mode", &RecurrenceAttrs::mode, "reverse", &RecurrenceAttrs::reverse);
  }
};

enum class CellKind { Tanh, Relu, Lstm };

struct RecurrenceGeom {
  int64_t steps, batch, hidden, gates;  // gates = G * hidden
  CellKind kind;
  bool reverse;
  /// The step of the sequence that is taken k-th, and the one before it; -1: the initial state.
  int64_t at(int64_t k) const { return reverse ? steps - 1 - k : k; }
  int64_t before(int64_t k) const { return k == 0 ? -1 : at(k - 1); }
};

/// Of shapes that infer has accepted: gates and w.
RecurrenceGeom recurrence_geom(const RecurrenceAttrs& at, const Shape& gates, const Shape& w);

// Inputs of recurrence_bwd; those from kActs on are there for "lstm" alone, kGradActs only for higher-order gradients.
enum RecurrenceBwdInput : size_t { kW, kHs, kGradHs, kActs, kCs, kC0, kGradCs, kGradActs };

}  // namespace mge
