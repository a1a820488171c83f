// Running sums and products. A line along the axis is cut into blocks of a fixed length whose totals are scanned first,
// so the bits do not depend on the number of threads.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/loss/softmax.h"
#include "op/reduce/scan.h"

namespace mge {
namespace {

constexpr int64_t kBlock = 1 << 15;  // elements of a line that one range scans
constexpr int64_t kTogether = 8;     // lines along the last axis scanned together
constexpr int64_t kColumns = 64;     // neighbouring lines scanned together when the axis is not the last

template <class T>
using Wide = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

struct Sum {
  template <class A>
  static constexpr A identity = A(0);
  template <class A>
  static A apply(A a, A b) {
    return a + b;
  }
};
struct Product {
  template <class A>
  static constexpr A identity = A(1);
  template <class A>
  static A apply(A a, A b) {
    return a * b;
  }
};

struct Line {
  AxisGeom g;
  bool exclusive, reverse;
  int64_t step() const { return reverse ? -g.inner : g.inner; }
  int64_t first(int64_t outer, int64_t inner) const {
    return outer * g.size * g.inner + inner + (reverse ? (g.size - 1) * g.inner : 0);
  }
};

template <class Op, class T>
void scan_block(const T* x, T* y, int64_t step, int64_t n, Wide<T> acc, bool exclusive) {
  for (int64_t i = 0; i < n; ++i, x += step, y += step) {
    Wide<T> next = Op::apply(acc, static_cast<Wide<T>>(*x));
    *y = static_cast<T>(exclusive ? acc : next);
    acc = next;
  }
}
template <class Op, class T>
Wide<T> block_total(const T* x, int64_t step, int64_t n) {
  Wide<T> acc = Op::template identity<Wide<T>>;
  for (int64_t i = 0; i < n; ++i, x += step) acc = Op::apply(acc, static_cast<Wide<T>>(*x));
  return acc;
}

// Lines `apart` elements from each other, element after element of all: one line alone waits for the sum before it.
template <class Op, class T>
void scan_together(const Line& l, const T* x, T* y, int64_t apart) {
  Wide<T> acc[kTogether];  // in registers, once the loops over it are unrolled
#pragma GCC unroll 8
  for (Wide<T>& a : acc) a = Op::template identity<Wide<T>>;
  const bool exclusive = l.exclusive;
  const int64_t step = l.step();
  for (int64_t left = l.g.size; left > 0; --left, x += step, y += step)
#pragma GCC unroll 8
    for (int64_t j = 0; j < kTogether; ++j) {
      const Wide<T> next = Op::apply(acc[j], static_cast<Wide<T>>(x[j * apart]));
      y[j * apart] = static_cast<T>(exclusive ? acc[j] : next);
      acc[j] = next;
    }
}

// A line is long: blocks of one line.
template <class Op, class T>
void scan_lines(const Line& l, const T* x, T* y) {
  const int64_t lines = l.g.outer * l.g.inner, blocks = (l.g.size + kBlock - 1) / kBlock;
  std::vector<Wide<T>> start(static_cast<size_t>(lines * blocks), Op::template identity<Wide<T>>);
  auto each = [&](auto fn) {
    int64_t grain = value_grain(std::min(kBlock, l.g.size));
    parallel_for(lines * blocks, grain, [&](int64_t b, int64_t e) {
      for (; b < e; ++b) {
        int64_t line = b / blocks, from = b % blocks * kBlock;
        int64_t at = l.first(line / l.g.inner, line % l.g.inner) + from * l.step();
        fn(b, at, std::min(kBlock, l.g.size - from));
      }
    });
  };
  if (blocks > 1) {
    each([&](int64_t b, int64_t at, int64_t n) { start[b] = block_total<Op>(x + at, l.step(), n); });
    for (int64_t line = 0; line < lines; ++line) {
      Wide<T> acc = Op::template identity<Wide<T>>;
      for (int64_t b = line * blocks; b < (line + 1) * blocks; ++b) {
        Wide<T> total = start[b];
        start[b] = acc;
        acc = Op::apply(acc, total);
      }
    }
  }
  each([&](int64_t b, int64_t at, int64_t n) { scan_block<Op>(x + at, y + at, l.step(), n, start[b], l.exclusive); });
}

// The axis is the last one and no line is cut: several lines at a time, with the sums of scan_lines.
template <class Op, class T>
void scan_rows(const Line& l, const T* x, T* y) {
  const int64_t groups = (l.g.outer + kTogether - 1) / kTogether;
  parallel_for(groups, value_grain(l.g.size * kTogether), [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      const int64_t from = b * kTogether, end = std::min(from + kTogether, l.g.outer);
      if (end - from == kTogether) {
        scan_together<Op>(l, x + l.first(from, 0), y + l.first(from, 0), l.g.size);
        continue;
      }
      for (int64_t row = from; row < end; ++row)
        scan_block<Op>(x + l.first(row, 0), y + l.first(row, 0), l.step(), l.g.size, Op::template identity<Wide<T>>,
                       l.exclusive);
    }
  });
}

// The axis is not the last one: neighbouring lines side by side, row after row. Same sums as scan_lines for one block.
template <class Op, class T>
void scan_columns(const Line& l, const T* x, T* y) {
  const int64_t groups = (l.g.inner + kColumns - 1) / kColumns;
  int64_t grain = value_grain(l.g.size * kColumns);
  parallel_for(l.g.outer * groups, grain, [&](int64_t b, int64_t e) {
    for (; b < e; ++b) {
      int64_t from = b % groups * kColumns, n = std::min(kColumns, l.g.inner - from);
      int64_t at = l.first(b / groups, from);
      Wide<T> acc[kColumns];
      std::fill_n(acc, n, Op::template identity<Wide<T>>);
      for (int64_t i = 0; i < l.g.size; ++i, at += l.step())
        for (int64_t j = 0; j < n; ++j) {
          Wide<T> next = Op::apply(acc[j], static_cast<Wide<T>>(x[at + j]));
          y[at + j] = static_cast<T>(l.exclusive ? acc[j] : next);
          acc[j] = next;
        }
    }
  });
}

template <class Op, class T>
void scan(const Line& l, const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  auto run = l.g.size > kBlock ? scan_lines<Op, T> : l.g.inner == 1 ? scan_rows<Op, T> : scan_columns<Op, T>;
  run(l, a.in[0].data<T>(), a.out[0].data<T>());
}

template <class Attrs>
Line line_of(const KernelArgs& a, const Attrs& at, bool exclusive) {
  const Shape& s = a.in[0].shape;
  return {axis_geom(s, normalize_axis(a.op->name.c_str(), at.axis, s.rank)), exclusive, at.reverse};
}
Line line_of(const KernelArgs& a, bool sum) {
  return sum ? line_of(a, a.as<CumsumAttrs>(), a.as<CumsumAttrs>().exclusive) : line_of(a, a.as<ScanAttrs>(), false);
}

template <class Op>
void run_scan(const KernelArgs& a) {
  Line l = line_of(a, std::is_same_v<Op, Sum>);
  switch (a.in[0].dtype) {
    case DType::F32:
      return scan<Op, float>(l, a);
    case DType::F64:
      return scan<Op, double>(l, a);
    case DType::U8:
      return scan<Op, uint8_t>(l, a);
    case DType::I8:
      return scan<Op, int8_t>(l, a);
    case DType::U16:
      return scan<Op, uint16_t>(l, a);
    case DType::I16:
      return scan<Op, int16_t>(l, a);
    case DType::I32:
      return scan<Op, int32_t>(l, a);
    case DType::I64:
      return scan<Op, int64_t>(l, a);
    default:
      return ref::through_float(
          a, [](const KernelArgs& f, DType) { scan<Op, float>(line_of(f, std::is_same_v<Op, Sum>), f); });
  }
}

struct AffineScan {
  template <class T>
  static void run(const KernelArgs& args, DType) {
    Line l = line_of(args, false);
    const T *a = args.in[0].data<T>(), *b = args.in[1].data<T>();
    T* y = args.out[0].data<T>();
    parallel_for(l.g.outer * l.g.inner, value_grain(l.g.size), [&](int64_t line, int64_t end) {
      for (; line < end; ++line) {
        int64_t at = l.first(line / l.g.inner, line % l.g.inner);
        double acc = 0;
        for (int64_t i = 0; i < l.g.size; ++i, at += l.step()) {
          acc = static_cast<double>(a[at]) * acc + static_cast<double>(b[at]);
          y[at] = static_cast<T>(acc);
        }
      }
    });
  }
};

}  // namespace

void register_ref_scan(KernelRegistry& r) {
  r.add("cumsum", KernelTier::Ref, Kernel{.name = "scan_sum", .run = run_scan<Sum>});
  r.add("cumprod", KernelTier::Ref, Kernel{.name = "scan_product", .run = run_scan<Product>});
  ref::add_floating<AffineScan>(r, "affine_scan", "scan_affine");
}

}  // namespace mge
