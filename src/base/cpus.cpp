#include "base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/small_file.h"
#include "base/team.h"

namespace mge {
namespace {

// Quota over period, rounded up; 0 when there is none.
int whole_cpus(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  return static_cast<int>(std::min(1e6, (quota + period - 1) / period));
}
int quota_of(const std::string& folder) {
  double quota = 0, period = 0;  // "max" is no number
  if (std::sscanf(read_small_file(folder + "/cpu.max").c_str(), "%lf %lf", &quota, &period) == 2)
    return whole_cpus(quota, period);
  const std::string v1 =
      first_word(read_small_file(folder + "/cpu.cfs_quota_us")) + " " + read_small_file(folder + "/cpu.cfs_period_us");
  return std::sscanf(v1.c_str(), "%lf %lf", &quota, &period) == 2 ? whole_cpus(quota, period) : 0;
}

// Cores of the affinity mask; a machine may have more than a cpu_set_t holds.
int affinity_cpus() {
  for (int room = 1024; room <= 1 << 16; room *= 4) {
    cpu_set_t* set = CPU_ALLOC(room);
    if (!set) return 0;
    const size_t bytes = CPU_ALLOC_SIZE(room);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count) return count;
  }
  return 0;
}

// The first number of a list like "4,2"; 0 when it is none of 1..256.
int first_number(const char* text) {
  while (std::isspace(static_cast<unsigned char>(*text))) ++text;
  int n = 0;
  auto [end, error] = std::from_chars(text, text + std::strlen(text), n);
  while (std::isspace(static_cast<unsigned char>(*end))) ++end;
  return error == std::errc() && (*end == 0 || *end == ',') && n >= 1 && n <= kMaxThreads ? n : 0;
}

}  // namespace

int cgroup_cpus(const std::string& root, const std::string& membership) {
  int least = 0;
  auto look = [&](const std::string& mount, std::string path) {
    // Each level bounds those below it. In a container the path may be the host's, and only the top is there to see.
    for (;; path.resize(std::min(path.size(), path.rfind('/')))) {
      if (const int n = quota_of(mount + path); n) least = least ? std::min(least, n) : n;
      if (path.empty() || path.find('/') == std::string::npos) return;
    }
  };
  for (size_t at = 0; at < membership.size();) {  // number:controllers:path
    const size_t end = std::min(membership.find('\n', at), membership.size());
    const std::string line = membership.substr(at, end - at);
    at = end + 1;
    const size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    std::string controllers = line.substr(a + 1, b - a - 1), path = line.substr(b + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {  // version 2
      look(root, path);
      look(root + "/unified", path);
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      look(root + "/" + controllers, path);
      look(root + "/cpu", path);
    }
  }
  return least;
}

const CpuLimit& cpus() {
  static const CpuLimit limit = [] {
    CpuLimit l{static_cast<int>(std::max(std::thread::hardware_concurrency(), 1u)), "cores of the machine"};
    // hardware_concurrency() is the affinity mask already
    const std::string online = read_small_file("/sys/devices/system/cpu/online");
    int last = 0;
    if (std::sscanf(online.c_str(), "0-%d", &last) == 1) l.count = std::max(l.count, last + 1);
    if (const int n = affinity_cpus(); n && n < l.count) l = {n, "CPU affinity"};
    const int n = cgroup_cpus("/sys/fs/cgroup", read_small_file("/proc/self/cgroup"));
    if (n && n < l.count) l = {n, "cgroup CPU quota"};
    return l;
  }();
  return limit;
}

ThreadDefault default_threads(const char* mge, const char* omp, const CpuLimit& limit) {
  ThreadDefault d{std::clamp(limit.count, 1, kMaxThreads), limit.from, ""};
  for (auto [name, value] : {std::pair{"MGE_NUM_THREADS", mge}, std::pair{"OMP_NUM_THREADS", omp}}) {
    if (!value || !*value) continue;
    if (const int n = first_number(value); n) return {n, name, d.warning};
    // Ours asks for something of us alone; the other is for all OpenMP programs, some of which know more forms.
    MGE_CHECK(value != mge, Value, "{}: the number of threads must be 1..{}; got '{}'. Unset it or mend it.", name,
              kMaxThreads, value);
    d.warning += format("{}{}: the number of threads must be 1..{}; got '{}'. It is not used.",
                        d.warning.empty() ? "" : " ", name, kMaxThreads, value);
  }
  return d;
}

}  // namespace mge
