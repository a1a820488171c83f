// sort and topk on 32-bit keys: key and position share a 64-bit word, so equal keys fall in order of position by
// themselves. Rows go to threads; long rows are sorted byte by byte (LSD radix), short ones by comparison.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/sort_key.h"
#include "op/in_build.h"
#include "op/index/sort.h"
#include "op/loss/softmax.h"

namespace mge::simd_nn {
namespace {

const char* refuse_not_32_bit(const KernelArgs& a) {
  bool ok = false;
  with_sort_key(a.in[0].dtype, [&](auto key) { ok = sizeof(key(nullptr, 0)) == 4; });
  return ok ? nullptr : "needs a dtype of at most 32 bits that has an order";
}

// NOTE(perf): one core, random float32: std::sort and radix meet near 400 elements.
constexpr int64_t kRadixFrom = 400;

// Sorts n words by their upper halves; equal ones stay in order. `other` is scratch of n words.
void radix_sort(uint64_t* words, uint64_t* other, int64_t n) {
  constexpr int kBits = 11, kDigits = 3, kBuckets = 1 << kBits;
  auto count = std::make_unique<int64_t[]>(kDigits * kBuckets);
  auto digit = [](uint64_t w, int d) { return static_cast<size_t>(w >> (32 + d * kBits)) & (kBuckets - 1); };
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < kDigits; ++d) ++count[static_cast<size_t>(d) * kBuckets + digit(words[i], d)];
  uint64_t *from = words, *to = other;
  for (int d = 0; d < kDigits; ++d) {
    int64_t* c = count.get() + d * kBuckets;
    if (c[digit(from[0], d)] == n) continue;  // all the same
    int64_t sum = 0;
    for (int b = 0; b < kBuckets; ++b) sum += std::exchange(c[b], sum);
    for (int64_t i = 0; i < n; ++i) to[c[digit(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != words) std::memcpy(words, from, static_cast<size_t>(n) * sizeof(uint64_t));
}

// The k smallest of next(0)..next(n-1), to the front of `words`, which has room for n. What is below the k-th smallest
// of those seen so far is gathered, and when there are twice k of them the k smallest stay: few words of a long row
// are looked at twice.
template <class F>
void gather_smallest(int64_t n, int64_t k, uint64_t* words, F next) {
  const int64_t room = 2 * std::max<int64_t>(k, 32);
  uint64_t bound = ~uint64_t{0};
  int64_t held = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t w = next(i);
    words[held] = w;
    held += w < bound;
    if (held < room) continue;
    std::nth_element(words, words + k - 1, words + held);
    bound = words[k - 1], held = k;
  }
  if (held > k) std::nth_element(words, words + k - 1, words + held);
}

template <size_t kBytes>
void copy_element(char* to, const char* from) {
  std::memcpy(to, from, kBytes);
}

void order_rows(const KernelArgs& a, int64_t axis_attr, bool descending, int64_t keep, bool by_place) {
  const TensorArg& x = a.in[0];
  AxisGeom g = axis_geom(x.shape, normalize_axis(a.op->name.c_str(), axis_attr, x.shape.rank));
  if (g.outer * g.inner * keep == 0) return;
  size_t bytes = dtype_size(x.dtype);
  auto* move = bytes == 4 ? copy_element<4> : bytes == 2 ? copy_element<2> : copy_element<1>;
  auto* place = a.out[1].data<int32_t>();
  uint64_t flip = descending ? 0xFFFFFFFF00000000u : 0;
  int64_t grain = value_grain(g.size);
  with_sort_key(x.dtype, [&](auto key_at) {
    parallel_for(g.outer * g.inner, grain, [&](int64_t row, int64_t end) {
      auto words = std::make_unique_for_overwrite<uint64_t[]>(static_cast<size_t>(2 * g.size));
      for (; row < end; ++row) {
        int64_t first = row / g.inner * g.size * g.inner + row % g.inner;
        auto word = [&](int64_t i) {
          return ((static_cast<uint64_t>(key_at(x.ptr, first + i * g.inner)) << 32) ^ flip) | static_cast<uint64_t>(i);
        };
        const bool few = keep * 4 < g.size;
        if (few)
          gather_smallest(g.size, keep, words.get(), word);
        else
          for (int64_t i = 0; i < g.size; ++i) words[static_cast<size_t>(i)] = word(i);
        if (few || g.size < kRadixFrom)
          std::sort(words.get(), words.get() + (few ? keep : g.size));
        else
          radix_sort(words.get(), words.get() + g.size, g.size);  // which leaves equal ones as they come
        auto position = [](uint64_t w) { return static_cast<int32_t>(static_cast<uint32_t>(w)); };
        if (by_place)
          std::sort(words.get(), words.get() + keep, [&](uint64_t p, uint64_t q) { return position(p) < position(q); });
        int64_t to = row / g.inner * keep * g.inner + row % g.inner;
        for (int64_t i = 0; i < keep; ++i) {
          int32_t from = position(words[static_cast<size_t>(i)]);
          int64_t dst = to + i * g.inner;
          place[dst] = from;
          move(a.out[0].data<char>() + static_cast<size_t>(dst) * bytes,
               x.data<char>() + static_cast<size_t>(first + from * g.inner) * bytes);
        }
      }
    });
  });
}

void run_sort(const KernelArgs& a) {
  const auto& at = a.as<SortAttrs>();
  int axis = normalize_axis("sort", at.axis, a.in[0].shape.rank);
  order_rows(a, at.axis, at.descending, a.in[0].shape[axis], false);
}

void run_topk(const KernelArgs& a) {
  const auto& at = a.as<TopkAttrs>();
  order_rows(a, at.axis, at.descending, at.k, !at.sorted);
}

}  // namespace

void register_sort(KernelRegistry& r) {
  r.add("sort", KernelTier::Simd, Kernel{.name = "keyed_sort", .refuse = refuse_not_32_bit, .run = run_sort});
  r.add("topk", KernelTier::Simd, Kernel{.name = "keyed_topk", .refuse = refuse_not_32_bit, .run = run_topk});
}

}  // namespace mge::simd_nn
