// Registration of the vector kernels. Every register_... function of a family's folder is called by
// register_simd_families, which the build writes (cmake/registration.cmake).
#pragma once
#include "kernel/kernel.h"

namespace mge {

void register_simd_families(KernelRegistry& r);
namespace simd_nn {
void register_through_float(KernelRegistry& r);  // through_float.cpp
}
void install_simd_moves();  // shape/moves.cpp

}  // namespace mge
