// Running an op that has no kernel here as its parts, and the switch that hides the kernels of composites: what a
// device with primitive kernels only sees.
#pragma once
#include "kernel/run.h"

namespace mge {

/// Runs op.decompose, each part with run_op, on the memory of the inputs. `out` has op.n_out(attrs) entries.
void run_decomposed(const OpDef& op, const AttrsBase* attrs, std::span<const OpInput> in,
                    std::span<const Meta> out_meta, std::span<Buffer> out, Work* work, const Aside* aside = nullptr);

/// With it no kernel of a composite op (one with a decomposition) is ever chosen. Process-wide, for tests.
void set_primitives_only(bool on);
bool primitives_only();

/// The fake device computes with the kernels of this kind of device: the CPU's at first. For tests.
void set_fake_kernels(DeviceKind k);

}  // namespace mge
