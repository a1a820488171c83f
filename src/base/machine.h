// What is known of the machine's cores: the constants of the model that chooses between kernels (kernel/cost.h) and the
// sizes of the pieces that stay in a cache. They are read once and do not depend on the number of threads.
//   const int64_t piece = machine().l2 / 2;
#pragma once
#include <cstdint>
#include <string>

namespace mge {

/// The defaults are those of the machine on which the model was fitted. MGE_MACHINE="l2=2097152,gflops=80" overrides
/// some of them: to try out a machine, or to have the choices, and so the bits, of another one.
struct Machine {
  int64_t l1 = 32 << 10, l2 = 1 << 20, l3 = 32 << 20;  // bytes of data cache: of a core, of a core, shared
  double gflops = 100;                                 // float32 operations per ns of a core in a tiled product
  double gbytes = 6.25;                                // bytes per ns that a core moves from and to memory
  bool operator==(const Machine&) const = default;
};

const Machine& machine();
/// For tests, followed by forget_kernel_choices() where kernels are chosen. No kernel may be running.
void set_machine(const Machine& m);

/// Sizes of the caches that `folder` (like /sys/devices/system/cpu/cpu0/cache) lists, over `m`.
Machine read_caches(const std::string& folder, Machine m = {});
/// Reads "name=number,..." over `m`; a Value error names what is wrong with it.
Machine parse_machine(const std::string& text, Machine m = {});
/// The instruction set that `gflops` stands for.
const char* instruction_set();
/// "L1 32 KiB, L2 1024 KiB, L3 32768 KiB; AVX-512, 100 GFLOP/s and 6.25 GB/s of a core"
std::string describe(const Machine& m);

}  // namespace mge
