#include "original.h"

#include "plan/evaluate.h"
#include "serial/mgb/read.h"

namespace mge::py {

serial::ReadOptions read_options() {
  serial::ReadOptions o;
  o.foreign = serial::mgb::read;
  o.evaluate = kernel_evaluator();
  return o;
}

}  // namespace mge::py
