// Picking and placing moves bytes, so it serves every dtype of a whole number of bytes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/ref/nn_ref.h"
#include "kernel/row_io.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/loss/softmax.h"
#include "op/shape/shape_ops.h"

namespace mge {
namespace {

const char* refuse_packed(const KernelArgs& a) { return dtype_size(a.in[0].dtype) ? nullptr : "packed dtype"; }

AxisGeom one_hot_geom(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  return axis_geom(s, normalize_axis(a.op->name.c_str(), a.as<OneHotAttrs>().axis, s.rank));
}

// f(row number, element offset of what the row's index names)
template <class F>
void each_picked(const KernelArgs& a, const AxisGeom& g, F f) {
  const auto* index = a.in[1].data<int32_t>();
  for (int64_t row = 0; row < g.outer * g.inner; ++row) {
    int64_t k = index[row];
    if (k < 0 || k >= g.size) throw_bad_index(a.op->name.c_str(), "index", k, 0, g.size, row);
    f(row, (row / g.inner * g.size + k) * g.inner + row % g.inner);
  }
}

void run_indexing_one_hot(const KernelArgs& a) {
  size_t bytes = dtype_size(a.in[0].dtype);
  each_picked(a, one_hot_geom(a), [&](int64_t row, int64_t at) {
    std::memcpy(a.out[0].data<char>() + static_cast<size_t>(row) * bytes,
                a.in[0].data<char>() + static_cast<size_t>(at) * bytes, bytes);
  });
}

// x may be a broadcast zero, so it is read through its strides; index and v are made contiguous here.
void run_set_one_hot(const KernelArgs& a) {
  size_t bytes = dtype_size(a.in[0].dtype);
  std::vector<char> memory[2];
  SmallVec<TensorArg, 3> in(a.in.begin(), a.in.end());
  for (size_t i : {1, 2}) {
    if (in[i].contiguous()) continue;
    auto& m = memory[i - 1];
    m.resize(static_cast<size_t>(in[i].numel()) * dtype_size(in[i].dtype));
    TensorArg flat = in[i];
    flat.ptr = m.data();
    flat.layout = Layout::contiguous(flat.shape);
    copy_strided(in[i], flat);
    in[i] = flat;
  }
  KernelArgs c = a;
  c.in = {in.data(), in.size()};
  each_picked(c, one_hot_geom(a), [](int64_t, int64_t) {});  // an error comes before the first element is written
  if (a.out[0].ptr != a.in[0].ptr) copy_strided(a.in[0], a.out[0]);
  each_picked(c, one_hot_geom(a), [&](int64_t row, int64_t at) {
    std::memcpy(a.out[0].data<char>() + static_cast<size_t>(at) * bytes,
                in[2].data<char>() + static_cast<size_t>(row) * bytes, bytes);
  });
}

// f(position in index, index made non-negative)
template <class F>
void each_index(const KernelArgs& a, int64_t size, F f) {
  const auto* index = a.in[1].data<int32_t>();
  for (int64_t i = 0; i < a.in[1].numel(); ++i) {
    int64_t k = index[i];
    if (k < -size || k >= size) throw_bad_index(a.op->name.c_str(), "index", k, -size, size, i);
    f(i, k < 0 ? k + size : k);
  }
}

void run_wrap_index(const KernelArgs& a) {
  const auto& at = a.as<WrapIndexAttrs>();
  const TensorArg& x = a.in[0];
  auto* y = a.out[0].data<int32_t>();
  const int64_t lo = at.negative ? -at.size : 0, n = x.numel();
  int64_t whole[kRowTile];
  double real[kRowTile];
  auto each_tile = [&](bool write) {
    for (int64_t from = 0; from < n; from += kRowTile) {
      const int64_t m = std::min(kRowTile, n - from);
      const char* p = x.data<char>() + from * static_cast<int64_t>(dtype_size(x.dtype));
      load_row(x.dtype, p, 1, Compute::I64, whole, m);
      if (is_float(x.dtype)) {
        load_row(x.dtype, p, 1, Compute::F64, real, m);
        for (int64_t i = 0; i < m; ++i)
          MGE_CHECK(real[i] == std::trunc(real[i]), Value, "{}: {} must be whole numbers; got {} at position {}.",
                    at.who, at.what, real[i], from + i);
      }
      for (int64_t i = 0; i < m; ++i) {
        const int64_t k = whole[i];
        if (k < lo || k >= at.size) throw_bad_index(at.who.c_str(), at.what.c_str(), k, lo, at.size, from + i);
        if (write) y[from + i] = static_cast<int32_t>(k < 0 ? k + at.size : k);
      }
    }
  };
  if (a.out[0].ptr == x.ptr && n > kRowTile) each_tile(false);  // an error comes before the operand is written over
  each_tile(true);
}

// Lanes of their own and no branch: compilers make vectors of it.
template <class T>
bool any_outside(const T* x, int64_t n, T low, T high) {
  constexpr int kLanes = 16;
  int32_t bad[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) bad[l] |= (x[i + l] < low ? 1 : 0) | (x[i + l] > high ? 1 : 0);
  for (; i < n; ++i) bad[0] |= (x[i] < low ? 1 : 0) | (x[i] > high ? 1 : 0);
  return std::any_of(bad, bad + kLanes, [](int32_t b) { return b != 0; });
}
// The float next to a bound on its inner side: a float lies beyond it exactly where it lies beyond the bound.
float at_least(double bound) {
  const auto f = static_cast<float>(bound);
  return f < bound ? std::nextafter(f, std::numeric_limits<float>::infinity()) : f;
}

void run_check_range(const KernelArgs& a) {
  const auto& at = a.as<CheckRangeAttrs>();
  const TensorArg& x = a.in[0];
  const int64_t n = x.numel(), size = static_cast<int64_t>(dtype_size(x.dtype));
  const float low = at_least(at.low), high = -at_least(-at.high);
  double row[kRowTile];
  for (int64_t from = 0; from < n; from += kRowTile) {
    const int64_t m = std::min(kRowTile, n - from);
    if (x.dtype == DType::F32 && !any_outside(x.data<float>() + from, m, low, high)) continue;
    load_row(x.dtype, x.data<char>() + from * size, 1, Compute::F64, row, m);
    if (!any_outside(row, m, at.low, at.high)) continue;
    int64_t i = 0;
    while (!(row[i] < at.low || row[i] > at.high)) ++i;
    fail(ErrorKind::Value, "{}: {} must lie in {}..{}; got {} at position {}.{}{}", at.who, at.what, at.low, at.high,
         row[i], from + i, at.way_out.empty() ? "" : " ", at.way_out);
  }
  if (a.out[0].ptr != x.ptr) std::memcpy(a.out[0].ptr, x.ptr, static_cast<size_t>(n * size));
}

void run_take(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  AxisGeom g = axis_geom(s, normalize_axis("take", a.as<TakeAttrs>().axis, s.rank));
  int64_t count = a.in[1].numel();
  size_t bytes = static_cast<size_t>(g.inner) * dtype_size(a.in[0].dtype);
  const char* x = a.in[0].data<char>();
  char* y = a.out[0].data<char>();
  each_index(a, g.size, [&](int64_t i, int64_t k) {
    for (int64_t o = 0; o < g.outer; ++o)
      std::memcpy(y + static_cast<size_t>(o * count + i) * bytes, x + static_cast<size_t>(o * g.size + k) * bytes,
                  bytes);
  });
}

// Each element adds in the order of the index; threads share what is around it.
struct TakeBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    const Shape& s = a.out[0].shape;
    AxisGeom g = axis_geom(s, normalize_axis("take_bwd", a.as<TakeBwdAttrs>().axis, s.rank));
    std::vector<int64_t> place(static_cast<size_t>(a.in[1].numel()));
    each_index(a, g.size, [&](int64_t i, int64_t k) { place[static_cast<size_t>(i)] = k * g.inner; });
    if (a.out[0].numel() == 0) return;
    const auto count = static_cast<int64_t>(place.size());
    const T* gy = a.in[0].data<T>();
    T* gx = a.out[0].data<T>();
    const int64_t n = g.inner;
    const int64_t columns = std::clamp<int64_t>(num_threads() / g.outer, 1, std::max<int64_t>(1, n / kColumns));
    parallel_for(g.outer * columns, value_grain(2 * count * (n / columns)), [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        const int64_t from = b % columns * n / columns, to = (b % columns + 1) * n / columns, width = to - from;
        T* x = gx + b / columns * g.size * n + from;
        const T* y = gy + b / columns * count * n + from;
        for (int64_t k = 0; k < g.size; ++k) std::fill_n(x + k * n, width, T(0));
        if (n == 1) {
          for (int64_t i = 0; i < count; ++i) x[place[static_cast<size_t>(i)]] += y[i];
          continue;
        }
        for (int64_t i = 0; i < count; ++i, y += n) {
          T* row = x + place[static_cast<size_t>(i)];
          for (int64_t j = 0; j < width; ++j) row[j] += y[j];
        }
      }
    });
  }
  static constexpr int64_t kColumns = 64;  // at least so many go to a thread
};

void run_nonzero(const KernelArgs& a) {
  auto* out = a.out[0].data<int32_t>();
  const int64_t n = a.in[0].numel();
  const size_t width = dtype_size(a.in[0].dtype);
  const char* p = a.in[0].data<char>();
  const bool floating = is_float(a.in[0].dtype);
  int32_t count = 0;
  auto each = [&]<class T>(T sign) {  // -0.0 is 0 too
    for (int64_t i = 0; i < n; ++i) {
      T v;
      std::memcpy(&v, p + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      if (floating ? static_cast<T>(v & static_cast<T>(~sign)) : v) out[count++] = static_cast<int32_t>(i);
    }
  };
  switch (width) {
    case 1:
      each(uint8_t{0});
      break;
    case 2:
      each(uint16_t{0x8000});
      break;
    case 4:
      each(uint32_t{1} << 31);
      break;
    default:
      each(uint64_t{1} << 63);
  }
  std::fill(out + count, out + n, 0);
  *a.out[1].data<int32_t>() = count;
}
const char* refuse_nonzero(const KernelArgs& a) {
  const DType t = a.in[0].dtype;
  return t == DType::Bool || is_int(t) || is_float(t) ? nullptr : "neither integers nor floating point";
}

void run_unravel(const KernelArgs& a) {
  const Ints& shape = a.as<ShapeAttrs>().shape;
  const int64_t n = a.in[0].numel();
  const auto* in = a.in[0].data<const int32_t>();
  auto* out = a.out[0].data<int32_t>();
  for (int64_t k = 0; k < n; ++k) {
    int64_t rest = in[k];
    for (size_t i = shape.size(); i-- > 0;) {
      const int64_t size = std::max<int64_t>(shape[i], 1);
      out[static_cast<int64_t>(i) * n + k] = static_cast<int32_t>(rest % size);
      rest /= size;
    }
  }
}

}  // namespace

void register_ref_indexing(KernelRegistry& r) {
  auto add = [&](OpName op, const char* name, void (*run)(const KernelArgs&), uint32_t flags) MGE_INLINED {
    r.add(op, KernelTier::Ref, Kernel{.name = name, .refuse = refuse_packed, .run = run, .flags = flags});
  };
  add("indexing_one_hot", "ref_indexing_one_hot", run_indexing_one_hot, 0);
  add("set_one_hot", "ref_set_one_hot", run_set_one_hot, kStridedInputs | kInPlace0);
  add("take", "ref_take", run_take, 0);
  add("wrap_index", "ref_wrap_index", run_wrap_index, kInPlace0);
  add("check_range", "ref_check_range", run_check_range, kInPlace0);
  r.add("nonzero", KernelTier::Ref,
        Kernel{.name = "ref_nonzero", .refuse = refuse_nonzero, .run = run_nonzero, .alias = {-1, -1, -1, -1}});
  add("unravel", "ref_unravel", run_unravel, 0);
  ref::add_floating<TakeBwd>(r, "take_bwd", "ref_take_bwd");
}

}  // namespace mge
