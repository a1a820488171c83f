#include "plan/memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/features.h"
#include "base/function_ref.h"

namespace mge {
namespace {

size_t round_up(size_t n) { return (n + kMemAlign - 1) / kMemAlign * kMemAlign; }

size_t lower_bound_of(std::span<const MemInterval> v, int* peak) {
  std::map<int, int64_t> delta;
  for (auto& i : v) {
    delta[i.begin] += static_cast<int64_t>(round_up(i.bytes));
    delta[i.end + 1] -= static_cast<int64_t>(round_up(i.bytes));
  }
  int64_t live = 0, most = 0;
  for (auto& [t, d] : delta)
    if ((live += d) > most) most = live, *peak = t;
  return static_cast<size_t>(most);
}

MemPlan empty_plan(std::span<const MemInterval> v, const char* strategy) {
  MemPlan p;
  p.offset.assign(v.size(), 0);
  p.strategy = strategy;
  return p;
}

void finish(std::span<const MemInterval> v, MemPlan& p) {
  p.bytes = 0;
  for (size_t i = 0; i < v.size(); ++i) p.bytes = std::max(p.bytes, p.offset[i] + round_up(v[i].bytes));
  p.lower_bound = lower_bound_of(v, &p.peak);
}

// One copy of the sort serves all orders. What is equal stays by number; std::stable_sort is 2 kB for a buffer.
void sort_stably(std::vector<size_t>& order, FunctionRef<bool(size_t, size_t)> before) {
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return before(a, b) || (a < b && !before(b, a)); });
}

bool meet(const MemInterval& a, const MemInterval& b) { return a.begin <= b.end && b.begin <= a.end; }

// The placed intervals that share an instant with some interval, by offset: a list of (offset, end) to find gaps in.
std::vector<std::pair<size_t, size_t>> neighbours(std::span<const MemInterval> v, const MemPlan& p,
                                                  const std::vector<size_t>& placed, size_t i) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t j : placed)
    if (meet(v[i], v[j])) out.push_back({p.offset[j], p.offset[j] + round_up(v[j].bytes)});
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

// Walks the instructions like an allocator would: the smallest hole that fits, else grow.
MemPlan plan_best_fit(std::span<const MemInterval> v) {
  MemPlan p = empty_plan(v, "best_fit");
  std::vector<size_t> by_begin(v.size()), by_end;
  std::iota(by_begin.begin(), by_begin.end(), size_t{0});
  by_end = by_begin;
  // Larger first among those that start together: small ones then fill the rest.
  sort_stably(by_begin, [&](size_t a, size_t b) {
    return v[a].begin != v[b].begin ? v[a].begin < v[b].begin : v[a].bytes > v[b].bytes;
  });
  sort_stably(by_end, [&](size_t a, size_t b) { return v[a].end < v[b].end; });
  std::map<size_t, size_t> holes;  // offset -> size, merged, below `top`
  size_t top = 0, e = 0;
  auto free_block = [&](size_t off, size_t size) {
    auto it = holes.emplace(off, size).first;
    if (auto next = std::next(it); next != holes.end() && it->first + it->second == next->first) {
      it->second += next->second;
      holes.erase(next);
    }
    if (it != holes.begin()) {
      auto prev = std::prev(it);
      if (prev->first + prev->second == it->first) {
        prev->second += it->second;
        holes.erase(it);
        it = prev;
      }
    }
    if (it->first + it->second == top) {
      top = it->first;
      holes.erase(it);
    }
  };
  for (size_t i : by_begin) {
    for (; e < by_end.size() && v[by_end[e]].end < v[i].begin; ++e)
      if (size_t b = round_up(v[by_end[e]].bytes)) free_block(p.offset[by_end[e]], b);
    size_t need = round_up(v[i].bytes);
    if (need == 0) continue;
    auto best = holes.end();
    for (auto it = holes.begin(); it != holes.end(); ++it)
      if (it->second >= need && (best == holes.end() || it->second < best->second)) best = it;
    if (best == holes.end()) {
      p.offset[i] = top;
      top += need;
    } else {
      auto [off, size] = *best;
      p.offset[i] = off;
      holes.erase(best);
      if (size > need) holes.emplace(off + need, size - need);
    }
  }
  finish(v, p);
  return p;
}

// Largest first, each into the tightest gap between the placed ones it meets in time.
MemPlan plan_greedy_by_size(std::span<const MemInterval> v) {
  MemPlan p = empty_plan(v, "greedy_by_size");
  std::vector<size_t> order(v.size()), placed;
  std::iota(order.begin(), order.end(), size_t{0});
  sort_stably(order, [&](size_t a, size_t b) {
    if (v[a].bytes != v[b].bytes) return v[a].bytes > v[b].bytes;
    return v[a].end - v[a].begin > v[b].end - v[b].begin;
  });
  for (size_t i : order) {
    size_t need = round_up(v[i].bytes), at = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    if (need == 0) continue;
    for (auto& [off, end] : neighbours(v, p, placed, i)) {
      if (off > at && off - at >= need && off - at < best_gap) best = at, best_gap = off - at;
      at = std::max(at, end);
    }
    p.offset[i] = best == SIZE_MAX ? at : best;
    placed.push_back(i);
  }
  finish(v, p);
  return p;
}

MemPlan plan_pushdown(std::span<const MemInterval> v, const MemPlan& from) {
  MemPlan p = empty_plan(v, "pushdown");
  std::vector<size_t> order(v.size()), placed;
  std::iota(order.begin(), order.end(), size_t{0});
  sort_stably(order, [&](size_t a, size_t b) { return from.offset[a] < from.offset[b]; });
  for (size_t i : order) {
    size_t need = round_up(v[i].bytes), at = 0;
    if (need == 0) continue;
    for (auto& [off, end] : neighbours(v, p, placed, i)) {
      if (off >= at + need) break;
      at = std::max(at, end);
    }
    p.offset[i] = at;
    placed.push_back(i);
  }
  finish(v, p);
  return p;
}

MemPlan plan_memory(std::span<const MemInterval> v) {
  size_t all = 0;
  for (auto& i : v)
    MGE_CHECK(!__builtin_add_overflow(all, round_up(i.bytes), &all) && all <= PTRDIFF_MAX, Memory,
              "memory plan: the values of this program have more bytes than any machine. Use smaller inputs.");
  MemPlan best = plan_best_fit(v);
  if (!has("tight")) return best;
  const size_t first = best.bytes;
  auto push_down = [&](MemPlan p) {
    while (p.bytes > p.lower_bound) {
      MemPlan q = plan_pushdown(v, p);
      if (q.bytes == p.bytes) break;
      p = std::move(q);
    }
    if (p.bytes < best.bytes) best = std::move(p);
  };
  if (best.bytes > best.lower_bound) push_down(best);
  if (best.bytes > best.lower_bound) push_down(plan_greedy_by_size(v));
  if (best.bytes < first) note("tight");
  return best;
}

void verify_mem_plan(std::span<const MemInterval> v, const MemPlan& plan) {
  MGE_ASSERT(plan.offset.size() == v.size(), "memory plan: {} offsets for {} buffers", plan.offset.size(), v.size());
  struct Event {
    int time;
    bool start;
    size_t i;
  };
  std::vector<Event> events;
  for (size_t i = 0; i < v.size(); ++i) {
    MGE_ASSERT(v[i].begin <= v[i].end, "memory plan: buffer {} ends at {} before it begins at {}", i, v[i].end,
               v[i].begin);
    MGE_ASSERT(plan.offset[i] % kMemAlign == 0, "memory plan: buffer {} at {} is not aligned", i, plan.offset[i]);
    MGE_ASSERT(plan.offset[i] + v[i].bytes <= plan.bytes, "memory plan: buffer {} at {}+{} leaves the arena of {}", i,
               plan.offset[i], v[i].bytes, plan.bytes);
    if (v[i].bytes == 0) continue;
    events.push_back({v[i].begin, true, i});
    events.push_back({v[i].end + 1, false, i});
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return a.time != b.time ? a.time < b.time : a.start < b.start; });
  std::set<std::pair<size_t, size_t>> live;  // (offset, index): disjoint, so only neighbours can collide
  auto check = [&](size_t a, size_t b) {
    MGE_ASSERT(plan.offset[a] + v[a].bytes <= plan.offset[b],
               "memory plan: buffers {} [{},{}] at {}+{} and {} [{},{}] at {}+{} overlap while both are alive", a,
               v[a].begin, v[a].end, plan.offset[a], v[a].bytes, b, v[b].begin, v[b].end, plan.offset[b], v[b].bytes);
  };
  for (auto& e : events) {
    std::pair<size_t, size_t> key{plan.offset[e.i], e.i};
    if (!e.start) {
      live.erase(key);
      continue;
    }
    auto it = live.insert(key).first;
    if (it != live.begin()) check(std::prev(it)->second, e.i);
    if (auto next = std::next(it); next != live.end()) check(e.i, next->second);
  }
}

}  // namespace mge
