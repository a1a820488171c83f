// Ops that know nothing of quantised numbers still take them: they see the real numbers, in float32, and a
// floating-point result is quantised again as the input was. Products of quantised numbers become the integer ops.
#pragma once
#include "op/emitter.h"

namespace mge {

/// Whether `op` needs the help of emit_on_quantised for an input of dtype `t`.
inline bool takes_as_is(const OpDef& op, DType t) {
  return !is_quant(t) || (op.is(kQuantised) && (op.is(kPacked) || !is_packed(t)));
}
/// Emits what `op` means on quantised inputs, of which it does not take some as they are.
void emit_on_quantised(Emitter& em, const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out);

}  // namespace mge
