// Fast-run (autotuning): how choose() picks among the kernels that accept. Heuristic takes the first of the list;
// profile measures them once on scratch memory and remembers the winner, in memory and in a file that processes share.
//   set_kernel_strategy(kProfile); set_tuning_file(default_tuning_file());
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel/kernel.h"

namespace mge {

enum KernelStrategy : uint32_t {
  kHeuristic = 1,
  kProfile = 2,
  kReproducible = 4,  // only kernels whose bits do not depend on the number of threads
  kAnyBatch = 8,      // one choice for all sizes of the first dimension: the winner of the first that was measured
};
/// A union of the flags above; profile with heuristic measures nothing: a winner that is known, else the first of the
/// list. Forgets all choices made so far.
void set_kernel_strategy(uint32_t flags);
uint32_t kernel_strategy();
/// Kernels that need more scratch memory than this are passed over, unless no other accepts. Forgets all choices.
void set_workspace_limit(size_t bytes);
size_t workspace_limit();

/// While it lives, the kernels that this thread chooses are chosen so; those of other threads as the process says.
class KernelPolicy {
 public:
  KernelPolicy(uint32_t flags, size_t workspace);
  ~KernelPolicy();
  KernelPolicy(const KernelPolicy&) = delete;
  KernelPolicy& operator=(const KernelPolicy&) = delete;

 private:
  const KernelPolicy* before_;
  friend uint32_t kernel_strategy();
  friend size_t workspace_limit();
  uint32_t strategy_;
  size_t workspace_;
};

/// Where winners are kept between processes; "" keeps them in memory only. Reading and appending are safe among
/// processes; a line that does not verify is ignored.
void set_tuning_file(std::string path);
std::string tuning_file();
/// $MGE_FASTRUN_CACHE_DIR, else $XDG_CACHE_HOME/megengine, else ~/.cache/megengine; "" with
/// MGE_FASTRUN_CACHE_TYPE=MEMORY.
std::string default_tuning_file();

/// Winners as (key, kernel) texts and times as (key, ns), for files of other forms: all that are known, and more to be
/// known.
std::vector<std::pair<std::string, std::string>> tuned_choices();
void add_tuned_choices(const std::vector<std::pair<std::string, std::string>>& choices);

struct TuningStats {
  uint64_t measured = 0;  // choices made by measuring
  uint64_t found = 0;     // choices found in memory or in the file
};
TuningStats tuning_stats();

/// The slow path of choose(): applies strategy, limits and tuning table.
Choice pick_kernel(const KernelRegistry& r, const KernelArgs& a, KernelTier from);
/// How long the kernel takes with inputs laid out as they are here; measured once and kept like the choices. Below 0:
/// nothing is to be measured, or there is no memory to do it with.
double measured_ns(const Kernel& k, const KernelArgs& a);
/// Set while a kernel is being measured: choose() returns it.
const Kernel* forced_kernel(const OpDef& op);

}  // namespace mge
