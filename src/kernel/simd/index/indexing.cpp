// Ops that put memory together. take on all cores: every output row is a copy of an input row; indices are checked
// before anything is written. concat and copy keep channels-last order.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/kernel.h"
#include "kernel/layouts.h"
#include "kernel/simd/shape/moves.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/loss/softmax.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

// The first index outside [-size, size), or -1.
int64_t first_bad(const int32_t* index, int64_t n, int64_t size) {
  const auto lo = static_cast<int32_t>(std::max<int64_t>(-size, INT32_MIN));
  const auto hi = static_cast<int32_t>(std::min<int64_t>(size - 1, INT32_MAX));
  constexpr int64_t kBlock = 1024;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t end = std::min(n, i + kBlock);
    int32_t bad = 0;
    for (int64_t k = i; k < end; ++k) bad |= static_cast<int32_t>(index[k] < lo) | static_cast<int32_t>(index[k] > hi);
    if (!bad) continue;
    for (int64_t k = i; k < end; ++k)
      if (index[k] < lo || index[k] > hi) return k;
  }
  return -1;
}

// Places of an index that are neighbours in x as well, as most of a padded or rolled axis are.
struct Run {
  int64_t to, from, n;
};
// Empty where runs are short: a third of their places begin one.
std::vector<Run> runs_of(const int32_t* index, int64_t count, int64_t size) {
  std::vector<Run> runs;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = index[i] < 0 ? index[i] + size : index[i];
    if (!runs.empty() && from == runs.back().from + runs.back().n) {
      ++runs.back().n;
      continue;
    }
    if (static_cast<int64_t>(runs.size()) * 3 > count) return {};
    runs.push_back({i, from, 1});
  }
  return runs;
}

// Rows [b, e) of the output, counted over outer and index.
struct Take {
  const char* x;
  char* y;
  const int32_t* index;
  int64_t count, size, row;  // row: bytes of an output row
  bool stream;               // long rows of a result that would not stay in the cache
  template <class T>
  void elements(int64_t b, int64_t e) const {
    auto* from = reinterpret_cast<const T*>(x);
    auto* to = reinterpret_cast<T*>(y);
    while (b < e) {
      const int64_t o = b / count, i0 = b % count, n = std::min(e - b, count - i0);
      const T* base = from + o * size;
      const int32_t* k = index + i0;
      T* d = to + b;
      for (int64_t i = 0; i < n; ++i) d[i] = base[k[i] < 0 ? k[i] + size : k[i]];
      b += n;
    }
  }
  // Whole outer rows [b, e), by runs.
  template <class T>
  void pieces(const std::vector<Run>& runs, int64_t b, int64_t e) const {
    auto* from = reinterpret_cast<const T*>(x) + b * size;
    auto* to = reinterpret_cast<T*>(y) + b * count;
    for (; b < e; ++b, from += size, to += count)
      for (const Run& r : runs) {
        if (r.n >= 16)
          std::memcpy(to + r.to, from + r.from, static_cast<size_t>(r.n) * sizeof(T));
        else  // less than a call
          for (int64_t i = 0; i < r.n; ++i) to[r.to + i] = from[r.from + i];
      }
  }
  const char* source(int64_t b) const {
    const int64_t k = index[b % count];
    return x + (b / count * size + (k < 0 ? k + size : k)) * row;
  }
  void rows(int64_t b, int64_t e) const {
    const auto bytes = static_cast<size_t>(row);
    if (!stream) {
      for (; b < e; ++b) std::memcpy(y + b * row, source(b), bytes);
      return;
    }
    for (; b < e; ++b) simd::stream_copy(y + b * row, source(b), bytes, b + 1 < e ? source(b + 1) : nullptr);
    simd::stream_end();
  }
  void run(int64_t b, int64_t e) const {
    switch (row) {
      case 1:
        return elements<uint8_t>(b, e);
      case 2:
        return elements<uint16_t>(b, e);
      case 4:
        return elements<uint32_t>(b, e);
      case 8:
        return elements<uint64_t>(b, e);
      default:
        return rows(b, e);
    }
  }
};

void run_take(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  AxisGeom g = axis_geom(s, normalize_axis("take", a.as<TakeAttrs>().axis, s.rank));
  const auto* index = a.in[1].data<int32_t>();
  const int64_t count = a.in[1].numel(), rows = g.outer * count;
  if (int64_t bad = first_bad(index, count, g.size); bad >= 0)
    throw_bad_index("take", "index", index[bad], -g.size, g.size, bad);
  const int64_t row = g.inner * static_cast<int64_t>(dtype_size(a.in[0].dtype));
  if (rows * row == 0) return;
  const Take t{
      a.in[0].data<char>(), a.out[0].data<char>(), index, count, g.size, row, row >= 512 && streams(rows * row)};
  if (row == 4 && g.outer >= 16) {  // runs pay where the index is walked often
    if (const std::vector<Run> runs = runs_of(index, count, g.size); !runs.empty()) {
      parallel_for(g.outer, byte_grain(2 * row * count), [&](int64_t b, int64_t e) { t.pieces<uint32_t>(runs, b, e); });
      return;
    }
  }
  parallel_for(rows, byte_grain(2 * row), [&](int64_t b, int64_t e) { t.run(b, e); });
}

// Two tensors whose channels take turns (x[N,C,1,H,W] beside y[N,C,1,H,W]), channels being what memory runs along in
// all three. False: they are not that.
bool run_pairs(const KernelArgs& a, int axis) {
  const TensorArg& out = a.out[0];
  const int c = axis - 1;
  if (a.in.size() != 2 || c < 0 || dtype_size(out.dtype) != 4 || !(a.in[0].shape == a.in[1].shape) ||
      a.in[0].shape[axis] != 1 || out.layout.stride[axis] != 1 || out.layout.stride[c] != 2 || out.shape[c] < 2)
    return false;
  TensorArg y = out, from[2] = {a.in[0], a.in[1]};
  for (TensorArg& x : from) {
    if (x.layout.stride[c] != 1) return false;
    x.shape[c] = 1;
  }
  y.shape = from[0].shape;
  const TensorArg* const operands[] = {&y, &from[0], &from[1]};
  const LoopNest nest = make_loop_nest(y.shape, operands);
  if (nest.rank > 1) return false;
  const int64_t rows = nest.rank ? nest.size[0] : 1, n = out.shape[c];
  const auto step = [&](int i) { return nest.rank ? nest.stride[i][0] : 0; };
  // Pieces of 256 KB: less is in a cache, and done before other cores have begun.
  parallel_for(rows, std::max(byte_grain(16 * n), (int64_t{1} << 18) / (8 * n)), [&](int64_t b, int64_t e) {
    simd::interleave_rows(from[0].data<uint32_t>() + b * step(1), step(1), from[1].data<uint32_t>() + b * step(2),
                          step(2), y.data<uint32_t>() + b * step(0), step(0), e - b, n);
  });
  return true;
}

void run_concat(const KernelArgs& a) {
  const int axis = normalize_axis("concat", a.as<AxisAttrs>().axis, a.out[0].shape.rank);
  if (run_pairs(a, axis)) return;
  int64_t at = 0;
  for (auto& in : a.in) {
    TensorArg region = a.out[0];
    region.ptr = a.out[0].data<char>() + at * a.out[0].layout.stride[axis] * static_cast<int64_t>(dtype_size(in.dtype));
    region.shape = in.shape;
    if (in.ptr != region.ptr) copy_strided(in, region);  // a program may have had it written there
    at += in.shape[axis];
  }
}
// All of them: reading one of several in the other order costs more than it saves.
void concat_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  for (size_t i = 0; i < a.in.size(); ++i)
    if (!runs_along_channels(in[i])) return;
  ask_channels_last(out[0]);
  const Shape& s = out[0].shape;
  if (s.rank < 4 || s[2] != static_cast<int64_t>(a.in.size()) ||
      normalize_axis("concat", a.as<AxisAttrs>().axis, s.rank) != 2)
    return;
  for (size_t i = 0; i < a.in.size(); ++i)
    if (in[i].shape[2] != 1) return;
  // One channel of each in turn: with both axes as one, the result is channels-last.
  Shape merged = s;
  merged.erase(2);
  merged[1] = s[1] * s[2];
  const Layout last = Layout::channels_last(merged);
  for (int i = 0; i < s.rank; ++i)
    out[0].layout.stride[i] = i == 2 ? 1 : i == 1 ? s[2] : last.stride[i > 2 ? i - 1 : i];
}

void run_copy(const KernelArgs& a) { copy_strided(a.in[0], a.out[0]); }

// The result as if it had the shape of the input. False: its strides have none there.
bool as_input(const KernelArgs& a, const TensorArg& out, TensorArg* to) {
  *to = out;
  to->shape = a.in[0].shape;
  if (!a.op->view({a.attrs, out.shape, out.layout, a.in[0].shape, &to->layout})) return false;
  to->layout.offset = 0;
  return true;
}
// Elements keep their row-major order: one copy from however they lie.
void run_reshape(const KernelArgs& a) {
  TensorArg to;
  as_input(a, a.out[0], &to);
  copy_strided(a.in[0], to);
}
// Where neighbours in memory are channels of the result, it keeps them together: channels that were shuffled.
void reshape_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  const int rank = out[0].shape.rank;
  if (rank < 3 || rank > 5 || in[0].contiguous() || in[0].layout.overlaps(in[0].shape)) return;
  TensorArg last = out[0], to;
  ask_channels_last(last);
  if (!in_channels_last(last) || !as_input(a, last, &to)) return;
  int nearest = -1;
  for (int i = 0; i < in[0].shape.rank; ++i)
    if (in[0].shape[i] > 1 && (nearest < 0 || in[0].layout.stride[i] < in[0].layout.stride[nearest])) nearest = i;
  if (nearest >= 0 && to.layout.stride[nearest] < out[0].shape[1]) out[0].layout = last.layout;
}

}  // namespace

void register_simd_indexing(KernelRegistry& r) {
  r.add("take", KernelTier::Simd,
        {.name = "simd_take",
         .refuse = [](const KernelArgs& a) -> const char* {
           return dtype_size(a.in[0].dtype) ? nullptr : "packed dtype";
         },
         .run = run_take});
  r.add(
      "concat", KernelTier::Simd,
      {.name = "simd_concat", .run = run_concat, .flags = kStridedInputs | kStridedOutputs, .layouts = concat_layouts});
  for (OpName op : std::initializer_list<OpName>{"reshape", "expand_dims", "squeeze", "flatten"})
    r.add(op, KernelTier::Simd,
          {.name = "simd_reshape",
           .run = run_reshape,
           .flags = kStridedInputs | kStridedOutputs,
           .layouts = reshape_layouts});
  r.add(
      "copy", KernelTier::Simd,
      {.name = "simd_copy", .run = run_copy, .flags = kStridedInputs | kStridedOutputs, .layouts = keep_channels_last});
}

}  // namespace mge
