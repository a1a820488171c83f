// A recorded or edited function that draws random numbers has the state of its generator as a constant, and would draw
// the same numbers in every run. In a file the state is a var: each run goes on where the one before it stopped.
//   %y, %s1 = rng_uniform %c   becomes   vars(%generator0) %y, %s1 = rng_uniform %generator0  commits(%generator0 <-
//   %s1)
#pragma once
#include <string>
#include <vector>

#include "ir/graph.h"

namespace mge::pass {

struct GeneratorVar {
  std::string name;
  ir::Constant start;  // of which the var holds the value before the first run
};

/// Only draws that some output needs count, and only states with one way on: where two ops draw from one state they
/// would have to agree on what comes next.
std::vector<GeneratorVar> own_generators(Graph& g);
/// The way back, for a graph that is to be edited: the var of a generator becomes a constant again.
void freeze_generator(Graph& g, size_t var, const Meta& m, RefPtr<Storage> start, size_t offset);

}  // namespace mge::pass
