// How many cores this process may use, and how many threads it was asked to start with.
#pragma once
#include <string>

namespace mge {

struct CpuLimit {
  int count;
  const char* from;  // "cores of the machine", "CPU affinity" or "cgroup CPU quota": what bounds it
};
/// Cores of the machine, of the affinity mask and of the cgroup's CPU quota, whichever is least. Read once.
const CpuLimit& cpus();
/// The quota of the cgroup that `membership` (text like /proc/self/cgroup) names, in whole cores, rounded up; 0: none.
/// `root` is where cgroups are mounted.
int cgroup_cpus(const std::string& root, const std::string& membership);

struct ThreadDefault {
  int count;
  std::string from;     // the variable, or what bounds the cores
  std::string warning;  // of a variable that says nothing usable
};
/// MGE_NUM_THREADS, else the first number of OMP_NUM_THREADS (a list for nested regions), else `limit`. Null: not set.
/// A Value error when MGE_NUM_THREADS is no number of threads.
ThreadDefault default_threads(const char* mge, const char* omp, const CpuLimit& limit);

}  // namespace mge
