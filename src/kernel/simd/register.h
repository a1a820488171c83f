// Registration functions of the vector kernels.
#pragma once

namespace mge {

class KernelRegistry;
void register_simd_elementwise(KernelRegistry& r);
void register_simd_reduce(KernelRegistry& r);
void register_simd_indexing(KernelRegistry& r);
void register_simd_gather(KernelRegistry& r);
void install_simd_moves();                 // moves.cpp
void register_simd_nn(KernelRegistry& r);  // nn_simd.cpp

}  // namespace mge
