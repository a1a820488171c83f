#include "base/machine.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/named_numbers.h"
#include "base/small_file.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace mge {
namespace {

// Nominal figures for each instruction set, best first: a clock that changes, or a measurement, would give other
// choices, and so other bits, from one run to the next.
struct Isa {
  const char* name;
  double gflops;
};
#if defined(__x86_64__) || defined(__i386__)
// Of leaf 7, where the system keeps the registers (XCR0). NOTE(size): __builtin_cpu_supports brings 4.5 kB of a table.
bool cpu_has(unsigned feature, unsigned registers) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return false;
  unsigned kept = 0, high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  return (kept & registers) == registers && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & feature);
}
#endif

Isa isa() {
#if defined(__x86_64__) || defined(__i386__)
  if (cpu_has(bit_AVX512F, 0xe6)) return {"AVX-512", 100};
  if (cpu_has(bit_AVX2, 0x6)) return {"AVX2", 80};
  return {"SSE", 24};
#elif defined(__aarch64__)
  return {"NEON", 32};
#else
  return {"scalar", 4};
#endif
}

// What the C library knows, where /sys has nothing.
Machine ask_library(Machine m) {
#ifdef _SC_LEVEL2_CACHE_SIZE
  auto take = [](int name, int64_t* to) {
    if (const long n = sysconf(name); n >= 4096) *to = n;
  };
  take(_SC_LEVEL1_DCACHE_SIZE, &m.l1);
  take(_SC_LEVEL2_CACHE_SIZE, &m.l2);
  take(_SC_LEVEL3_CACHE_SIZE, &m.l3);
#endif
  return m;
}

Machine read_machine() {
  Machine m = read_caches("/sys/devices/system/cpu/cpu0/cache", ask_library({}));
  m.gflops = isa().gflops;
  const char* text = std::getenv("MGE_MACHINE");
  if (!text) return m;
  try {
    return parse_machine(text, m);
  } catch (const Error& e) {
    std::fprintf(stderr, "megengine: %s It is not used.\n", e.text().c_str());
    return m;
  }
}

Machine& current() {
  static Machine m = read_machine();
  return m;
}

}  // namespace

const Machine& machine() { return current(); }
void set_machine(const Machine& m) { current() = m; }
const char* instruction_set() { return isa().name; }

Machine read_caches(const std::string& folder, Machine m) {
  bool has_l2 = false, has_l3 = false;
  for (int i = 0; i < 16; ++i) {
    const std::string at = folder + "/index" + std::to_string(i);
    const auto word = [&](const char* name) { return first_word(read_small_file(at + name)); };
    const std::string of = word("/level"), type = word("/type"), size = word("/size");
    if (of.empty() || type.empty() || size.empty()) break;
    const int level = std::atoi(of.c_str());
    char* unit = nullptr;
    int64_t bytes = std::strtoll(size.c_str(), &unit, 10);
    if (*unit == 'K') bytes <<= 10;
    if (*unit == 'M') bytes <<= 20;
    if (type == "Instruction" || bytes < 4096) continue;
    if (level == 1) m.l1 = bytes;
    if (level == 2) m.l2 = bytes, has_l2 = true;
    if (level == 3) m.l3 = bytes, has_l3 = true;
  }
  if (has_l2 && !has_l3) m.l3 = 4 * m.l2;  // virtual machines hide it, small cores have none
  return m;
}

Machine parse_machine(const std::string& text, Machine m) {
  const std::string wrong = each_number(text, [&](const std::string& name, double v) {
    if (!(v > 0) || !(v < 1e15)) return false;
    int64_t* bytes = name == "l1" ? &m.l1 : name == "l2" ? &m.l2 : name == "l3" ? &m.l3 : nullptr;
    double* rate = name == "gflops" ? &m.gflops : name == "gbytes" ? &m.gbytes : nullptr;
    if (bytes && v >= 4096 && v == std::floor(v)) return *bytes = static_cast<int64_t>(v), true;
    return rate ? (*rate = v, true) : false;
  });
  MGE_CHECK(
      wrong.empty(), Value,
      "MGE_MACHINE: expected l1, l2, l3 (bytes, at least 4096), gflops or gbytes (per second, of a core) = number, "
      "separated by commas; got '{}'.",
      wrong);
  return m;
}

std::string describe(const Machine& m) {
  return format("L1 {} KiB, L2 {} KiB, L3 {} KiB; {}, {} GFLOP/s and {} GB/s of a core", m.l1 >> 10, m.l2 >> 10,
                m.l3 >> 10, instruction_set(), m.gflops, m.gbytes);
}

}  // namespace mge
