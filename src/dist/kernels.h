// The collectives as kernels of the CPU.
#pragma once
#include "kernel/kernel.h"

namespace mge::dist {

void register_kernels(KernelRegistry& r);
/// Before a collective is queued: its group must be one of this process, and must not have failed.
void check_call(const OpDef& op, const AttrsBase* attrs);

}  // namespace mge::dist
