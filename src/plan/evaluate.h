// The evaluator of constant folding: runs the kernels a run would use, so folding changes no bit.
#pragma once
#include "ir/evaluator.h"

namespace mge {

ir::Evaluator kernel_evaluator();

}  // namespace mge
