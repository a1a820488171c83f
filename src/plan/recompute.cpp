// What could be computed again instead of being kept: for the report, which says whether it would be worth it.
#include "plan/program_impl.h"

namespace mge {

size_t recomputable_bytes(const Program::Impl& p, int home) {
  const int peak = p.homes[static_cast<size_t>(home)].peak, end = static_cast<int>(p.code.size());
  if (peak < 0) return 0;
  auto touches = [&](int t, int buffer) {
    const Instr& c = p.code[static_cast<size_t>(t)];
    for (size_t i = 0; i < size_t{c.n_in} + c.n_out; ++i)
      if (p.refs[c.first_arg + i].buffer == buffer) return true;
    return false;
  };
  size_t bytes = 0;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const PlanBuffer& b = p.buffers[i];
    const int buffer = static_cast<int>(i);
    if (b.where != Where::Arena || b.home != home || b.first >= peak || b.last <= peak || touches(peak, buffer))
      continue;
    const Instr& maker = p.code[static_cast<size_t>(b.first)];
    const OpDef* op = maker.args.op;
    if (!maker.kernel || !(op->is(kElementwise) || op->count_outputs) || !touches(b.first, buffer)) continue;
    int next = peak + 1;
    while (next < end && !touches(next, buffer)) ++next;
    bool there = true;  // all that it is made of, when it is needed again
    for (size_t k = 0; k < maker.n_in; ++k) {
      const ArgRef& r = p.refs[maker.first_arg + k];
      const PlanBuffer& from = p.buffers[static_cast<size_t>(r.buffer)];
      there &= r.buffer != buffer && (from.where != Where::Arena || from.last >= next);
    }
    if (there) bytes += b.bytes;
  }
  return bytes;
}

}  // namespace mge
