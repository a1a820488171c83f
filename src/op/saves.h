// What a backward pass must keep where only some inputs have a gradient. x * 0.5 keeps nothing of x.
//   Saves s = saves_for(op, all, wanted);   // bit i of wanted: the gradient of input i
#pragma once
#include "op/opdef.h"

namespace mge {

/// Those of `all`, which is what the rule of the op reads at most, that it reads for the wanted gradients.
Saves saves_for(const OpDef& op, Saves all, uint32_t wanted);

}  // namespace mge
