// Places buffers with known lifetimes into one arena. Tries several strategies and keeps the smallest.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace mge {

/// Alive (liveness) from instruction `begin` to `end`, both inclusive.
struct MemInterval {
  int begin = 0, end = 0;
  size_t bytes = 0;
};

struct MemPlan {
  std::vector<size_t> offset;  // per interval, 64-byte aligned
  size_t bytes = 0;            // arena size
  size_t lower_bound = 0;      // most bytes alive at one instruction
  int peak = -1;               // that instruction, the first of them
  const char* strategy = "";
};

constexpr size_t kMemAlign = 64;

MemPlan plan_best_fit(std::span<const MemInterval> v);
MemPlan plan_greedy_by_size(std::span<const MemInterval> v);
/// Lowers every interval of `from` as far as the ones below it allow; never larger than `from`.
MemPlan plan_pushdown(std::span<const MemInterval> v, const MemPlan& from);
/// The smallest of the above.
MemPlan plan_memory(std::span<const MemInterval> v);

/// Internal error when two intervals alive at the same time overlap, or one leaves the arena.
void verify_mem_plan(std::span<const MemInterval> v, const MemPlan& plan);

}  // namespace mge
