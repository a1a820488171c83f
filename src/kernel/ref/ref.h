// Registration functions of the reference kernels.
#pragma once

namespace mge {

class KernelRegistry;
void register_ref_elementwise(KernelRegistry& r);
void register_ref_reduce(KernelRegistry& r);
void register_ref_nn(KernelRegistry& r);     // nn_ref.cpp
void register_ref_shape(KernelRegistry& r);  // shape.cpp

}  // namespace mge
