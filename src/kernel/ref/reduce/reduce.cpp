#include "op/reduce/reduce.h"

#include <limits>

#include "base/cost.h"
#include "core/half.h"
#include "kernel/reduce_order.h"
#include "op/elementwise/scalar_math.h"
#include "op/in_build.h"

namespace mge {
namespace {

namespace bs = body::scalar;

template <class A>
struct SumOp {
  static constexpr A identity = 0;
  static A apply(A a, A b) { return a + b; }
};
template <>
struct SumOp<int64_t> {
  static constexpr int64_t identity = 0;
  static int64_t apply(int64_t a, int64_t b) { return (bs::Int64(a) + bs::Int64(b)).v; }
};
template <class A>
struct ProdOp {
  static constexpr A identity = 1;
  static A apply(A a, A b) { return a * b; }
};
template <>
struct ProdOp<int64_t> {
  static constexpr int64_t identity = 1;
  static int64_t apply(int64_t a, int64_t b) { return (bs::Int64(a) * bs::Int64(b)).v; }
};
template <class A>
struct MaxOp {
  static constexpr A identity =
      std::numeric_limits<A>::has_infinity ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::min();
  static A apply(A a, A b) { return bs::maximum(a, b); }
};
template <class A>
struct MinOp {
  static constexpr A identity =
      std::numeric_limits<A>::has_infinity ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
  static A apply(A a, A b) { return bs::minimum(a, b); }
};

template <class Op, class A>
void row_leaf(const A* x, int64_t rows, int64_t n, A* y) {
  for (int64_t r = 0; r < rows; ++r, x += n) {
    A lane[kRowLanes];
    std::fill_n(lane, kRowLanes, Op::identity);
    int64_t i = 0;
    for (; i + kRowLanes <= n; i += kRowLanes)  // of fixed length: compilers make vectors of it
      for (int l = 0; l < kRowLanes; ++l) lane[l] = Op::apply(lane[l], x[i + l]);
    for (int l = 0; i < n; ++i, ++l) lane[l] = Op::apply(lane[l], x[i]);
    for (int half = kRowLanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = Op::apply(lane[l], lane[l + half]);
    y[r] = lane[0];
  }
}
template <class Op, class A>
void column_leaf(A* acc, const A* x, int64_t stride, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < n; ++c) acc[c] = Op::apply(acc[c], x[r * stride + c]);
}

template <class A>
void run_as(const KernelArgs& a, ReduceMode mode) {
  run_reduce<A>(a, ref_reduce_leaves<A>(mode), mode == ReduceMode::Mean);
}
void run(const KernelArgs& a) {
  ReduceMode mode = parse_reduce_mode(a.as<ReduceAttrs>().mode);
  DType t = a.in[0].dtype;
  if (t == DType::F64 || reduces_in_double(mode, t)) return run_as<double>(a, mode);
  if (is_float(t) || mode == ReduceMode::Mean) return run_as<float>(a, mode);
  return run_as<int64_t>(a, mode);
}

// x [outer, len, inner] -> index [outer, inner]; the first of equals wins, NaN wins over all.
template <class T, bool kMax>
void arg_search(const KernelArgs& a, int64_t outer, int64_t len, int64_t inner) {
  auto* x = a.in[0].data<const T>();
  auto* y = a.out[0].data<int32_t>();
  auto value = [](T v) {
    if constexpr (std::is_class_v<T>)
      return static_cast<float>(v);
    else
      return v;
  };
  auto search = [&](int64_t i) {
    const T* p = x + i / inner * len * inner + i % inner;
    auto best = value(p[0]);
    int32_t at = 0;
    for (int64_t k = 1; k < len && best == best; ++k) {
      auto v = value(p[k * inner]);
      if ((kMax ? v > best : v < best) || v != v) {
        best = v;
        at = static_cast<int32_t>(k);
      }
    }
    y[i] = at;
  };
  parallel_for(outer * inner, value_grain(len), [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) search(i);
  });
}
template <bool kMax>
void run_arg(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const Shape& s = a.in[0].shape;
  const int axis = normalize_axis("argmax", a.as<ArgReduceAttrs>().axis, s.rank);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= s[i];
  for (int i = axis + 1; i < s.rank; ++i) inner *= s[i];
  switch (a.in[0].dtype) {
    case DType::Bool:
    case DType::U8:
      return arg_search<uint8_t, kMax>(a, outer, s[axis], inner);
    case DType::I8:
      return arg_search<int8_t, kMax>(a, outer, s[axis], inner);
    case DType::U16:
      return arg_search<uint16_t, kMax>(a, outer, s[axis], inner);
    case DType::I16:
      return arg_search<int16_t, kMax>(a, outer, s[axis], inner);
    case DType::I32:
      return arg_search<int32_t, kMax>(a, outer, s[axis], inner);
    case DType::I64:
      return arg_search<int64_t, kMax>(a, outer, s[axis], inner);
    case DType::F16:
      return arg_search<Half, kMax>(a, outer, s[axis], inner);
    case DType::BF16:
      return arg_search<BFloat, kMax>(a, outer, s[axis], inner);
    case DType::F32:
      return arg_search<float, kMax>(a, outer, s[axis], inner);
    case DType::F64:
      return arg_search<double, kMax>(a, outer, s[axis], inner);
    default:
      MGE_ASSERT(false, "argmax of {}", dtype_name(a.in[0].dtype));
  }
}

}  // namespace

template <class A>
ReduceLeaves<A> ref_reduce_leaves(ReduceMode mode) {
  auto leaves = []<class Op>(Op) {
    return ReduceLeaves<A>{Op::identity, row_leaf<Op, A>, column_leaf<Op, A>, Op::apply, load_accumulators<A>};
  };
  switch (mode) {
    case ReduceMode::Max:
      return leaves(MaxOp<A>());
    case ReduceMode::Min:
      return leaves(MinOp<A>());
    case ReduceMode::Prod:
      return leaves(ProdOp<A>());
    default:
      return leaves(SumOp<A>());
  }
}
template ReduceLeaves<float> ref_reduce_leaves(ReduceMode);
template ReduceLeaves<double> ref_reduce_leaves(ReduceMode);
template ReduceLeaves<int64_t> ref_reduce_leaves(ReduceMode);

void register_ref_reduce(KernelRegistry& r) {
  r.add("reduce", KernelTier::Ref, {.name = "ref_reduce", .run = run});
  r.add("argmax", KernelTier::Ref, {.name = "ref_argmax", .run = run_arg<true>});
  r.add("argmin", KernelTier::Ref, {.name = "ref_argmin", .run = run_arg<false>});
}

}  // namespace mge
