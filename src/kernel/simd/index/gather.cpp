// gather and its adjoint by runs: the elements of one innermost row of `index` have a common base in x, so that the
// walk over dimensions is paid once for each row. Each row of indices is checked while it is in the first cache.
#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/kernel.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/index/sort.h"
#include "op/loss/softmax.h"

namespace mge {
namespace {

constexpr int64_t kBlock = 1024;  // indices checked at once

// Where the runs of an index lie in x.
struct Runs {
  int64_t length = 1;                  // indices of a run
  int64_t size = 1;                    // of the gathered axis
  int64_t step = 1;                    // elements of x between two places on that axis
  int64_t across = 0;                  // 1: neighbours in a run are also neighbours in x (another axis is innermost)
  int rank = 0;                        // dimensions outside the run
  int64_t count = 1, before_axis = 1;  // runs in all; those of them that share no place of x, counted in groups
  int64_t dim[kMaxRank], stride[kMaxRank];

  Runs(const Shape& x, int axis, const Shape& index) {
    const Layout l = Layout::contiguous(x);
    size = x[axis];
    step = l.stride[axis];
    int last = x.rank - 1;
    length = index[last];
    if (axis < last) {
      across = 1;
      for (; last - 1 > axis && index[last] == x[last]; --last) length *= index[last - 1];
    }
    for (int i = 0; i < last; ++i) {
      dim[rank] = index[i];
      stride[rank++] = i == axis ? 0 : l.stride[i];
      count *= index[i];
      if (i < axis) before_axis *= index[i];
    }
  }
  // f(run, first element of x) for runs [b, e).
  template <class F>
  void each(int64_t b, int64_t e, F f) const {
    int64_t at[kMaxRank], base = 0;
    for (int64_t i = rank - 1, rest = b; i >= 0; --i) {
      at[i] = rest % dim[i];
      rest /= dim[i];
      base += at[i] * stride[i];
    }
    for (; b < e; ++b) {
      f(b, base);
      for (int i = rank - 1; i >= 0; --i) {
        base += stride[i];
        if (++at[i] < dim[i]) break;
        base -= dim[i] * stride[i];
        at[i] = 0;
      }
    }
  }
};

// place[i] = index[i], negative ones counted from the end; throws for one outside [-size, size). The first has number
// `first`. Written so that compilers make vectors of it.
inline void find_places(const char* op, const int32_t* index, int64_t n, int64_t size, int64_t first, uint32_t* place) {
  const auto top = static_cast<uint32_t>(size);
  uint32_t bad = 0;  // its sign, once a place is negative or beyond size - 1
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t k = static_cast<uint32_t>(index[i]) + (index[i] < 0 ? top : 0);
    bad |= k | (top - 1 - k);
    place[i] = k;
  }
  if (static_cast<int32_t>(bad) >= 0) return;
  for (int64_t i = 0; i < n; ++i)
    if (index[i] < -size || index[i] >= size) throw_bad_index(op, "index", index[i], -size, size, first + i);
}

// f(position in index, element of x) for all indices of runs [b, e), in order.
template <class F>
void each_place(const char* op, const Runs& r, const int32_t* index, int64_t b, int64_t e, F f) {
  uint32_t place[kBlock];
  r.each(b, e, [&](int64_t run, int64_t base) {
    for (int64_t from = 0; from < r.length; from += kBlock) {
      const int64_t n = std::min(kBlock, r.length - from), first = run * r.length + from;
      find_places(op, index + first, n, r.size, first, place);
      if (r.across) {
#pragma GCC unroll 4
        for (int64_t i = 0; i < n; ++i) f(first + i, base + from + i + place[i] * r.step);
      } else {
#pragma GCC unroll 4
        for (int64_t i = 0; i < n; ++i) f(first + i, base + place[i]);
      }
    }
  });
}

template <class T>
void gather(const KernelArgs& a, const Runs& r) {
  const T* x = a.in[0].data<T>();
  T* y = a.out[0].data<T>();
  const auto* index = a.in[1].data<int32_t>();
  parallel_for(r.count, value_grain(2 * r.length), [&](int64_t b, int64_t e) {
    each_place("gather", r, index, b, e, [&](int64_t p, int64_t from) { y[p] = x[from]; });
  });
}

void run_gather(const KernelArgs& a) {
  const Runs r(a.in[0].shape, normalize_axis("gather", a.as<GatherAttrs>().axis, a.in[0].shape.rank), a.in[1].shape);
  if (a.in[1].numel() == 0) return;
  switch (dtype_size(a.in[0].dtype)) {
    case 1:
      return gather<uint8_t>(a, r);
    case 2:
      return gather<uint16_t>(a, r);
    case 4:
      return gather<uint32_t>(a, r);
    default:
      return gather<uint64_t>(a, r);
  }
}

// What lies before the axis shares no place and goes to threads; the rest adds in index order.
void run_gather_bwd(const KernelArgs& a) {
  const Shape& x = a.out[0].shape;
  const Runs r(x, normalize_axis("gather_bwd", a.as<GatherBwdAttrs>().axis, x.rank), a.in[1].shape);
  const auto* gy = a.in[0].data<float>();
  auto* gx = a.out[0].data<float>();
  const auto* index = a.in[1].data<int32_t>();
  std::fill_n(gx, a.out[0].numel(), 0.f);
  if (a.in[1].numel() == 0) return;
  const int64_t each = r.count / r.before_axis;
  parallel_for(r.before_axis, value_grain(2 * each * r.length), [&](int64_t b, int64_t e) {
    each_place("gather_bwd", r, index, b * each, e * each, [&](int64_t p, int64_t to) { gx[to] += gy[p]; });
  });
}

const char* refuse_long(const Shape& x, int64_t axis) {
  return x[normalize_axis("gather", axis, x.rank)] <= INT32_MAX ? nullptr : "an axis beyond what int32 counts";
}
const char* refuse_gather(const KernelArgs& a) {
  const size_t n = dtype_size(a.in[0].dtype);
  if (n != 1 && n != 2 && n != 4 && n != 8) return "elements of another size than 1, 2, 4 or 8 bytes";
  return refuse_long(a.in[0].shape, a.as<GatherAttrs>().axis);
}
const char* refuse_gather_bwd(const KernelArgs& a) {
  if (a.out[0].dtype != DType::F32) return "needs float32";
  return refuse_long(a.out[0].shape, a.as<GatherBwdAttrs>().axis);
}

}  // namespace

void register_simd_gather(KernelRegistry& r) {
  r.add("gather", KernelTier::Simd, {.name = "simd_gather", .refuse = refuse_gather, .run = run_gather});
  r.add("gather_bwd", KernelTier::Simd,
        {.name = "simd_gather_bwd", .refuse = refuse_gather_bwd, .run = run_gather_bwd});
}

}  // namespace mge
