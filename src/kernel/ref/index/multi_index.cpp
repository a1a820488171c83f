// x[i, j, ..]: the indices become element offsets once, then blocks that lie together in x are moved whole.
#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/index/multi_index.h"

namespace mge {
namespace {

using Offsets = std::vector<int64_t>;

struct Places {
  Offsets outer, index, inner;  // element offsets in x; a place is the sum of one of each
  int64_t block = 1;            // elements that follow each place
  int64_t count() const { return static_cast<int64_t>(outer.size() * index.size() * inner.size()); }
};

Offsets product(const Shape& x, const Layout& l, std::span<const int64_t> axes) {
  Offsets out{0};
  for (int64_t a : axes) {
    Offsets next;
    next.reserve(out.size() * static_cast<size_t>(x[static_cast<int>(a)]));
    for (int64_t o : out)
      for (int64_t i = 0; i < x[static_cast<int>(a)]; ++i) next.push_back(o + i * l.stride[a]);
    out = std::move(next);
  }
  return out;
}

// Adds to the offsets, which have the shape `all`, where an index that broadcasts to it points along an axis.
void add_index(const char* op, const TensorArg& index, const Shape& all, int64_t size, int64_t stride, Offsets& to) {
  if (to.empty()) return;
  const auto* values = index.data<int32_t>();
  auto offset = [&](int64_t from) {
    const int64_t v = values[from];
    if (v < -size || v >= size) throw_bad_index(op, "index", v, -size, size, from);
    return (v < 0 ? v + size : v) * stride;
  };
  const Shape& s = index.shape;
  const Layout own = Layout::contiguous(s);
  const int shift = all.rank - s.rank, last = all.rank - 1;
  const bool whole = s == all;  // then one row is all there is
  const int64_t width = whole ? all.numel() : last < 0 ? 1 : all[last];
  const bool one = !whole && (shift > last || s[last - shift] == 1);  // the same for a whole row
  int64_t pos[kMaxRank] = {};
  for (size_t row = 0; row < to.size(); row += static_cast<size_t>(width)) {
    int64_t from = 0;
    for (int d = 0; !whole && d + shift < last; ++d)
      if (s[d] != 1) from += pos[d + shift] * own.stride[d];
    int64_t* line = to.data() + row;
    if (one) {
      const int64_t add = offset(from);
      for (int64_t i = 0; i < width; ++i) line[i] += add;
    } else {
      for (int64_t i = 0; i < width; ++i) line[i] += offset(from + i);
    }
    for (int d = last - 1; !whole && d >= 0 && ++pos[d] == all[d]; --d) pos[d] = 0;
  }
}

Places find_places(const KernelArgs& a, const Shape& x, size_t first_index) {
  const auto& at = a.as<MultiIndexAttrs>();
  const char* op = a.op->name.c_str();
  SmallVec<Shape, kMaxRank> shapes;
  for (size_t i = first_index; i < a.in.size(); ++i) shapes.push_back(a.in[i].shape);
  MultiIndexGeom g = multi_index_geom(op, at, x, {shapes.data(), shapes.size()});
  Layout l = Layout::contiguous(x);
  Places p;
  while (!g.inner_axes.empty() && l.stride[g.inner_axes.back()] == p.block) {
    p.block *= x[static_cast<int>(g.inner_axes.back())];
    g.inner_axes.pop_back();
  }
  p.outer = product(x, l, {g.outer_axes.data(), g.outer_axes.size()});
  p.inner = product(x, l, {g.inner_axes.data(), g.inner_axes.size()});
  p.index.assign(static_cast<size_t>(g.index.numel()), 0);
  for (size_t k = 0; k < shapes.size(); ++k) {
    const auto axis = static_cast<int>(at.axes[k]);
    add_index(op, a.in[first_index + k], g.index, x[axis], l.stride[axis], p.index);
  }
  return p;
}

template <size_t kBytes>
void move_fixed(char* to, const char* from, size_t) {
  std::memcpy(to, from, kBytes);
}
void move_any(char* to, const char* from, size_t bytes) { std::memcpy(to, from, bytes); }

void get(const KernelArgs& a, const Places& p) {
  size_t one = dtype_size(a.in[0].dtype), bytes = static_cast<size_t>(p.block) * one;
  auto* move = bytes == 4 ? move_fixed<4> : bytes == 8 ? move_fixed<8> : bytes == 16 ? move_fixed<16> : move_any;
  const char* x = a.in[0].data<char>();
  char* y = a.out[0].data<char>();
  auto m = static_cast<int64_t>(p.index.size());
  int64_t rows = static_cast<int64_t>(p.outer.size()) * m;
  parallel_for(rows, step_grain(0.125 * bytes * p.inner.size()), [&](int64_t row, int64_t end) {
    char* to = y + static_cast<size_t>(row) * p.inner.size() * bytes;
    for (int64_t o = row / m, k = row % m; row < end; ++row) {
      int64_t base = p.outer[static_cast<size_t>(o)] + p.index[static_cast<size_t>(k)];
      for (int64_t i : p.inner) {
        move(to, x + static_cast<size_t>(base + i) * one, bytes);
        to += bytes;
      }
      if (++k == m) k = 0, ++o;
    }
  });
}

void run_get(const KernelArgs& a) { get(a, find_places(a, a.in[0].shape, 1)); }

// Which places come again later on; empty where none does.
std::vector<bool> come_again(const Offsets& index) {
  std::vector<bool> again(index.size());
  bool any = false;
  auto note = [&](size_t i, bool is_new) {
    again[i] = !is_new;
    any |= !is_new;
  };
  const auto extent =
      index.empty() ? size_t{0} : static_cast<size_t>(*std::max_element(index.begin(), index.end())) + 1;
  if (extent / 64 <= index.size()) {  // a bit for each place
    std::vector<bool> seen(extent);
    for (size_t i = index.size(); i-- > 0;) {
      const auto at = static_cast<size_t>(index[i]);
      note(i, !seen[at]);
      seen[at] = true;
    }
  } else {  // a few of many
    std::unordered_set<int64_t> seen;
    for (size_t i = index.size(); i-- > 0;) note(i, seen.insert(index[i]).second);
  }
  if (!any) again.clear();
  return again;
}

void run_get_last(const KernelArgs& a) {
  const Places p = find_places(a, a.in[0].shape, 1);
  get(a, p);
  size_t bytes = static_cast<size_t>(p.block) * dtype_size(a.in[0].dtype);
  // Later positions in the result name the same element only through the indices.
  const std::vector<bool> hidden = come_again(p.index);
  if (hidden.empty()) return;
  auto n = static_cast<int64_t>(p.inner.size()), m = static_cast<int64_t>(p.index.size());
  for (int64_t i = 0; i < p.count(); ++i)
    if (hidden[static_cast<size_t>(i / n % m)])
      std::memset(a.out[0].data<char>() + static_cast<size_t>(i) * bytes, 0, bytes);
}

// Runs put(place in x, position in v, elements) so that equal places come in the order of v: threads share the axes
// that are not indexed.
template <class F>
void each_put(const Places& p, F put) {
  auto n = static_cast<int64_t>(p.inner.size()), m = static_cast<int64_t>(p.index.size());
  int64_t columns = p.outer.size() == 1 && n == 1 ? std::max<int64_t>(1, p.block / 64) : 1;
  int64_t width = (p.block + columns - 1) / std::max<int64_t>(1, columns);
  parallel_for(
      static_cast<int64_t>(p.outer.size()) * n * columns, step_grain(0.5 * m * width), [&](int64_t task, int64_t end) {
        for (; task < end; ++task) {
          int64_t c = task % columns * width, o = task / columns / n, i = task / columns % n;
          int64_t len = std::min(width, p.block - c);
          for (int64_t k = 0; k < m && len > 0; ++k)
            put(p.outer[static_cast<size_t>(o)] + p.index[static_cast<size_t>(k)] + p.inner[static_cast<size_t>(i)] + c,
                ((o * m + k) * n + i) * p.block + c, len);
        }
      });
}

void run_set(const KernelArgs& a) {
  Places p = find_places(a, a.in[0].shape, 2);
  size_t bytes = dtype_size(a.in[0].dtype);
  if (a.out[0].ptr != a.in[0].ptr) copy_strided(a.in[0], a.out[0]);
  const char* v = a.in[1].data<char>();
  char* y = a.out[0].data<char>();
  if (p.block == 1 && bytes == 4)  // no call for each
    return each_put(p, [&](int64_t to, int64_t from, int64_t) { std::memcpy(y + to * 4, v + from * 4, 4); });
  each_put(p, [&](int64_t to, int64_t from, int64_t n) {
    std::memcpy(y + static_cast<size_t>(to) * bytes, v + static_cast<size_t>(from) * bytes,
                static_cast<size_t>(n) * bytes);
  });
}

template <class T>
void incr(const KernelArgs& a) {
  Places p = find_places(a, a.in[0].shape, 2);
  if (a.out[0].ptr != a.in[0].ptr) copy_strided(a.in[0], a.out[0]);
  const T* v = a.in[1].data<T>();
  T* y = a.out[0].data<T>();
  each_put(p, [&](int64_t to, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[to + i] = y[to + i] + v[from + i];
  });
}

struct IndexIncr {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    incr<T>(a);
  }
};

const char* refuse_packed(const KernelArgs& a) { return dtype_size(a.in[0].dtype) ? nullptr : "packed dtype"; }
const char* refuse_not_int32(const KernelArgs& a) { return a.in[0].dtype == DType::I32 ? nullptr : "needs int32"; }

// int32 wraps, as NumPy does.
void run_incr_int(const KernelArgs& a) { incr<uint32_t>(a); }

}  // namespace

void register_ref_multi_index(KernelRegistry& r) {
  auto add = [&](OpName op, const char* name, void (*run)(const KernelArgs&), uint32_t flags) MGE_INLINED {
    r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_packed, .run = run, .flags = flags});
  };
  add("index_get", "ref_index_get", run_get, 0);
  add("index_get_last", "ref_index_get_last", run_get_last, 0);
  add("index_set", "ref_index_set", run_set, kInPlace0);
  ref::add_floating<IndexIncr>(r, "index_incr", "ref_index_incr");
  r.add("index_incr", KernelTier::Ref,
        Kernel{.name = "ref_index_incr_i32", .refuse = refuse_not_int32, .run = run_incr_int, .flags = kInPlace0});
}

}  // namespace mge
