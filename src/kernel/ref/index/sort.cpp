// A stable sort of positions; topk is its beginning.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "kernel/sort_key.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/index/sort.h"
#include "op/loss/softmax.h"

namespace mge {
namespace {

const char* refuse_unordered(const KernelArgs& a) {
  return with_sort_key(a.in[0].dtype, [](auto) {}) ? nullptr : "dtype without order";
}

// Sorts each row of x along `axis` and keeps the first `keep` elements, by position when `by_place`.
void order_rows(const KernelArgs& a, int64_t axis, bool descending, int64_t keep, bool by_place) {
  const TensorArg& x = a.in[0];
  AxisGeom g = axis_geom(x.shape, normalize_axis(a.op->name.c_str(), axis, x.shape.rank));
  size_t bytes = dtype_size(x.dtype);
  auto* place = a.out[1].data<int32_t>();
  std::vector<int32_t> order(static_cast<size_t>(g.size));
  with_sort_key(x.dtype, [&](auto key_at) {
    for (int64_t row = 0; row < g.outer * g.inner; ++row) {
      int64_t first = row / g.inner * g.size * g.inner + row % g.inner;
      auto key = [&](int32_t i) { return key_at(x.ptr, first + i * g.inner); };
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t i, int32_t j) { return descending ? key(i) > key(j) : key(i) < key(j); });
      if (by_place) std::sort(order.begin(), order.begin() + keep);
      int64_t to = row / g.inner * keep * g.inner + row % g.inner;
      for (int64_t i = 0; i < keep; ++i) {
        int64_t from = first + order[static_cast<size_t>(i)] * g.inner, dst = to + i * g.inner;
        place[dst] = order[static_cast<size_t>(i)];
        std::memcpy(a.out[0].data<char>() + static_cast<size_t>(dst) * bytes,
                    x.data<char>() + static_cast<size_t>(from) * bytes, bytes);
      }
    }
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

// f(position in index, element of x that it names). What lies before the axis is independent and goes to threads;
// behind it positions come in order.
template <class F>
void each_gathered(const char* op, const Shape& x, int axis, const TensorArg& index, F f) {
  Layout strides = Layout::contiguous(x);
  const auto* values = index.data<int32_t>();
  int64_t size = x[axis], outer = 1;
  for (int i = 0; i < axis; ++i) outer *= index.shape[i];
  if (index.numel() == 0) return;
  int64_t each = index.numel() / outer;
  parallel_for(outer, value_grain(each), [&](int64_t first, int64_t end) {
    int64_t at[kMaxRank] = {};
    for (int64_t rest = first, i = axis - 1; i >= 0; --i) {
      at[i] = rest % index.shape[static_cast<int>(i)];
      rest /= index.shape[static_cast<int>(i)];
    }
    for (int64_t p = first * each; p < end * each; ++p) {
      int64_t k = values[p];
      if (k < -size || k >= size) throw_bad_index(op, "index", k, -size, size, p);
      int64_t offset = (k < 0 ? k + size : k) * strides.stride[axis];
      for (int i = 0; i < x.rank; ++i)
        if (i != axis) offset += at[i] * strides.stride[i];
      f(p, offset);
      for (int i = x.rank - 1; i >= 0 && ++at[i] == index.shape[i]; --i) at[i] = 0;
    }
  });
}

void run_gather(const KernelArgs& a) {
  size_t bytes = dtype_size(a.in[0].dtype);
  int axis = normalize_axis("gather", a.as<GatherAttrs>().axis, a.in[0].shape.rank);
  each_gathered("gather", a.in[0].shape, axis, a.in[1], [&](int64_t p, int64_t from) {
    std::memcpy(a.out[0].data<char>() + static_cast<size_t>(p) * bytes,
                a.in[0].data<char>() + static_cast<size_t>(from) * bytes, bytes);
  });
}

struct GatherBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    int axis = normalize_axis("gather_bwd", a.as<GatherBwdAttrs>().axis, a.out[0].shape.rank);
    const T* gy = a.in[0].data<T>();
    T* gx = a.out[0].data<T>();
    std::fill_n(gx, a.out[0].numel(), T(0));
    each_gathered("gather_bwd", a.out[0].shape, axis, a.in[1], [&](int64_t p, int64_t to) { gx[to] += gy[p]; });
  }
};

const char* refuse_packed(const KernelArgs& a) { return dtype_size(a.in[0].dtype) ? nullptr : "packed dtype"; }

}  // namespace

void register_ref_sort(KernelRegistry& r) {
  r.add("sort", KernelTier::Ref, Kernel{.name = "ref_sort", .refuse = refuse_unordered, .run = run_sort});
  r.add("topk", KernelTier::Ref, Kernel{.name = "ref_topk", .refuse = refuse_unordered, .run = run_topk});
  r.add("gather", KernelTier::Ref, Kernel{.name = "ref_gather", .refuse = refuse_packed, .run = run_gather});
  ref::add_floating<GatherBwd>(r, "gather_bwd", "ref_gather_bwd");
}

}  // namespace mge
