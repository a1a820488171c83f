#include "op/shape/shape_ops.h"

#include <algorithm>
#include <cmath>

#include "op/compose.h"
#include "op/emitter.h"
#include "op/in_build.h"
#include "op/quant/quantize.h"

namespace mge {
namespace {

// Of ops that give the same elements in another shape.
void keep_channels(InferCtx& c) {
  if (!c.x(0).quant.per_tensor()) c.out[0].quant = reshaped(c.x(0).quant, c.shape(0), c.out[0].shape);
}

void infer_reshape(InferCtx& c) {
  const Ints& want = attrs_as<ShapeAttrs>(c.attrs).shape;
  const Shape& in = c.shape(0);
  Shape out = to_shape(want);
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < out.rank; ++i) {
    if (out[i] == -1) {
      MGE_CHECK(unknown < 0, Value, "reshape: only one dimension can be -1; got {}.", out.str());
      unknown = i;
    } else {
      MGE_CHECK(out[i] >= 0, Value, "reshape: a dimension cannot be {}; got {}. Use -1 once to infer it.", out[i],
                out.str());
      MGE_CHECK(out[i] == 0 || known <= PTRDIFF_MAX / 16 / out[i], Value, "reshape: the size of shape {} overflows.",
                out.str());
      known *= out[i];
    }
  }
  int64_t n = in.numel();
  if (unknown >= 0) {
    MGE_CHECK(known != 0, Value, "reshape: the -1 in {} could be anything, since another dimension is 0; got x {}.",
              out.str(), in.str());
    MGE_CHECK(n % known == 0, Value, "reshape: cannot turn {} ({} elements) into {}; {} is not a multiple of {}.",
              in.str(), n, out.str(), n, known);
    out[unknown] = n / known;
  }
  // MegEngine lets an empty tensor take any empty shape, even of another rank.
  MGE_CHECK(unknown >= 0 || n == known, Value, "reshape: cannot turn {} ({} elements) into {} ({} elements).", in.str(),
            n, out.str(), known);
  c.out[0] = c.x(0);
  c.out[0].shape = out;
  keep_channels(c);
}

// A reshape of a strided tensor is a view when every group of merged or split dims is internally contiguous.
bool view_reshape(const ViewCtx& v) {
  const Shape &is = v.in_shape, &os = v.out_shape;
  v.out->offset = v.in.offset;
  if (v.in.is_contiguous(is)) {
    Layout l = Layout::contiguous(os);
    l.offset = v.in.offset;
    *v.out = l;
    return true;
  }
  if (is.numel() == 0) return false;
  int i = 0, o = 0;
  while (i < is.rank || o < os.rank) {
    while (i < is.rank && is[i] == 1) ++i;
    while (o < os.rank && os[o] == 1) v.out->stride[o++] = 1;
    if (i >= is.rank || o >= os.rank) break;
    int i0 = i, o0 = o;
    int64_t ni = is[i++], no = os[o++];
    while (ni != no) {
      if (ni < no)
        ni *= is[i++];
      else
        no *= os[o++];
    }
    // Strides of size-1 dims mean nothing: each dim is held against the next one that has more.
    int64_t dense = v.in.stride[i - 1] * is[i - 1];
    for (int k = i - 2; k >= i0; --k) {
      if (is[k] == 1) continue;
      if (v.in.stride[k] != dense) return false;
      dense *= is[k];
    }
    int64_t step = v.in.stride[i - 1];
    for (int k = o - 1; k >= o0; --k) {
      v.out->stride[k] = step;
      step *= os[k];
    }
  }
  return true;
}

void infer_transpose(InferCtx& c) {
  const Ints& p = attrs_as<PermAttrs>(c.attrs).perm;
  const Shape& s = c.shape(0);
  MGE_CHECK(static_cast<int>(p.size()) == s.rank, Value, "transpose: perm {} must name each of the {} axes of {} once.",
            print_attr(p), int{s.rank}, s.str());
  Meta& m = c.out[0] = c.x(0);
  unsigned seen = 0;
  for (int i = 0; i < s.rank; ++i) {
    MGE_CHECK(p[i] >= 0 && p[i] < s.rank && !(seen >> p[i] & 1), Value,
              "transpose: perm {} must name each of the {} axes of {} once.", print_attr(p), int{s.rank}, s.str());
    seen |= 1u << p[i];
    m.shape[i] = s[static_cast<int>(p[i])];
  }
  m.quant = transposed(m.quant, p.data(), s.rank);
}
bool view_transpose(const ViewCtx& v) {
  const Ints& p = attrs_as<PermAttrs>(v.attrs).perm;
  v.out->offset = v.in.offset;
  for (size_t i = 0; i < p.size(); ++i) v.out->stride[i] = v.in.stride[p[i]];
  return true;
}

void infer_broadcast_to(InferCtx& c) {
  Shape out = to_shape(attrs_as<ShapeAttrs>(c.attrs).shape);
  const Shape& in = c.shape(0);
  check_shape("broadcast_to", out);
  bool ok = in.rank <= out.rank;
  for (int i = 0; ok && i < in.rank; ++i) {
    int64_t d = in[in.rank - 1 - i], o = out[out.rank - 1 - i];
    ok = d == o || d == 1;
  }
  MGE_CHECK(ok, Value,
            "broadcast_to: {} does not broadcast to {}; aligned from the right, each size must be equal or 1.",
            in.str(), out.str());
  check_per_tensor(c, 0);
  c.out[0] = c.x(0);
  c.out[0].shape = out;
}
bool view_broadcast_to(const ViewCtx& v) {
  int shift = v.out_shape.rank - v.in_shape.rank;
  v.out->offset = v.in.offset;
  for (int i = 0; i < v.out_shape.rank; ++i)
    v.out->stride[i] = i < shift || (v.in_shape[i - shift] == 1 && v.out_shape[i] != 1) ? 0 : v.in.stride[i - shift];
  return true;
}

void infer_expand_dims(InferCtx& c) {
  const Ints& axes = attrs_as<AxesAttrs>(c.attrs).axes;
  int rank = c.shape(0).rank + static_cast<int>(axes.size());
  MGE_CHECK(rank <= kMaxRank, Value, "expand_dims: the result would have {} dimensions; at most {} are supported.",
            rank, kMaxRank);
  Ints norm;
  for (int64_t a : axes) {
    MGE_CHECK(a >= -rank && a < rank, Value,
              "expand_dims: axis {} is out of range for a tensor with {} dimensions; valid are {}..{}.", a,
              c.shape(0).rank, -rank, rank - 1);
    norm.push_back(a < 0 ? a + rank : a);
  }
  std::sort(norm.begin(), norm.end());
  for (size_t i = 1; i < norm.size(); ++i)
    MGE_CHECK(norm[i] != norm[i - 1], Value, "expand_dims: axis {} is named twice.", norm[i]);
  c.out[0] = c.x(0);
  for (int64_t a : norm) c.out[0].shape.insert(static_cast<int>(a), 1);
  keep_channels(c);
}
void infer_squeeze(InferCtx& c) {
  const Ints& axes = attrs_as<AxesAttrs>(c.attrs).axes;
  const Shape& s = c.shape(0);
  unsigned drop = 0;
  for (int i = 0; i < s.rank; ++i)
    if (axes.empty() && s[i] == 1) drop |= 1u << i;
  for (int64_t a : axes) {
    int i = normalize_axis("squeeze", a, s.rank);
    MGE_CHECK(s[i] == 1, Value, "squeeze: axis {} of {} has size {}, not 1.", a, s.str(), s[i]);
    drop |= 1u << i;
  }
  Meta& m = c.out[0] = c.x(0);
  m.shape.rank = 0;
  for (int i = 0; i < s.rank; ++i)
    if (!(drop >> i & 1)) m.shape.push_back(s[i]);
  keep_channels(c);
}

// An op of its own, not a reshape: it carries no sizes, so a recorded graph takes another batch size unchanged.
void infer_flatten(InferCtx& c) {
  const auto& a = attrs_as<RangeAttrs>(c.attrs);
  const Shape& s = c.shape(0);
  Meta& m = c.out[0] = c.x(0);
  if (s.rank == 0) {
    m.shape = Shape{1};
    return;
  }
  int start = normalize_axis("flatten", a.start, s.rank), end = normalize_axis("flatten", a.end, s.rank);
  MGE_CHECK(start <= end, Value, "flatten: start axis {} comes after end axis {} in {}.", a.start, a.end, s.str());
  m.shape.rank = 0;
  for (int i = 0; i < s.rank; ++i) {
    if (i > start && i <= end)
      m.shape[start] *= s[i];
    else
      m.shape.push_back(s[i]);
  }
  keep_channels(c);
}

int64_t slice_len(int64_t start, int64_t stop, int64_t step) {
  const int64_t span = step > 0 ? stop - start : start - stop;
  if (span <= 0) return 0;
  const auto stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);  // of any size
  return static_cast<int64_t>((static_cast<uint64_t>(span) - 1) / stride + 1);
}
void check_slice(const char* who, const SliceAttrs& a, const Shape& s, Shape* out) {
  if (a.python) return check_slice(who, resolved_slice(a, s), s, out);
  size_t n = a.axes.size();
  MGE_CHECK(a.starts.size() == n && a.stops.size() == n && a.steps.size() == n, Value,
            "{}: axes, starts, stops and steps must have one length; got {}, {}, {}, {}.", who, n, a.starts.size(),
            a.stops.size(), a.steps.size());
  *out = s;
  unsigned seen = 0;
  for (size_t i = 0; i < n; ++i) {
    MGE_CHECK(a.axes[i] >= 0 && a.axes[i] < s.rank, Index, "{}: axis {} is out of range for {}.", who, a.axes[i],
              s.str());
    int64_t size = s[static_cast<int>(a.axes[i])], step = a.steps[i];
    MGE_CHECK(!(seen >> a.axes[i] & 1), Value, "{}: axis {} is named twice.", who, a.axes[i]);
    seen |= 1u << a.axes[i];
    MGE_CHECK(step != 0, Value, "{}: a slice step cannot be 0.", who);
    constexpr int64_t kFar = int64_t{1} << 60;  // no axis is as long, and nothing below overflows
    for (int64_t bound : {a.starts[i], a.stops[i], step})
      MGE_CHECK(bound >= -kFar && bound <= kFar, Index, "{}: [{}:{}:{}] leaves axis {} of {}.", who, a.starts[i],
                a.stops[i], step, a.axes[i], s.str());
    int64_t len = slice_len(a.starts[i], a.stops[i], step);
    int64_t first = a.starts[i], last = first + (len - 1) * step;
    MGE_CHECK(len == 0 || (first >= 0 && first < size && last >= 0 && last < size), Index,
              "{}: [{}:{}:{}] leaves axis {} of {}.", who, first, a.stops[i], step, a.axes[i], s.str());
    (*out)[static_cast<int>(a.axes[i])] = len;
  }
}
void infer_slice(InferCtx& c) {
  Shape out;
  check_per_tensor(c, 0);
  check_slice("slice", attrs_as<SliceAttrs>(c.attrs), c.shape(0), &out);
  c.out[0] = c.x(0);
  c.out[0].shape = out;
}
bool view_slice(const ViewCtx& v) {
  *v.out = slice_layout(attrs_as<SliceAttrs>(v.attrs), v.in_shape, v.in);
  return true;
}
void infer_set_slice(InferCtx& c) {
  Shape region;
  check_slice("set_slice", attrs_as<SliceAttrs>(c.attrs), c.shape(0), &region);
  MGE_CHECK(c.shape(1) == region, Value, "set_slice: the value has shape {} but the region {}.", c.shape(1).str(),
            region.str());
  MGE_CHECK(c.dtype(0) == c.dtype(1), Type, "set_slice: the value is {} but the tensor {}.", dtype_name(c.dtype(1)),
            dtype_name(c.dtype(0)));
  check_same_quant(c, 1);
  c.out[0] = c.x(0);
}

void infer_concat(InferCtx& c) {
  int rank = c.shape(0).rank;
  MGE_CHECK(rank > 0, Value,
            "concat: needs tensors of at least one dimension; got a scalar. Use stack or expand_dims.");
  int axis = normalize_axis("concat", attrs_as<AxisAttrs>(c.attrs).axis, rank);
  Meta& m = c.out[0] = c.x(0);
  for (size_t i = 1; i < c.n(); ++i) {
    const Shape& s = c.shape(i);
    bool ok = s.rank == rank;
    for (int k = 0; ok && k < rank; ++k) ok = k == axis || s[k] == m.shape[k];
    MGE_CHECK(ok, Value, "concat: shapes must agree except on axis {}; input 0 is {}, input {} is {}.{}", axis,
              c.shape(0).str(), i, s.str(),
              s.rank == rank ? "" : " expand_dims adds an axis, stack joins along a new one.");
    MGE_CHECK(c.dtype(i) == m.dtype, Type, "concat: inputs must share one dtype; got {} and {}. Cast one with astype.",
              dtype_name(m.dtype), dtype_name(c.dtype(i)));
    check_same_quant(c, i);
    m.shape[axis] += s[axis];
    check_shape("concat", m.shape);
  }
}

// A number that integers of `t` do not hold would become another one.
void check_fill(const InferCtx& c, double v, DType t) {
  if (!is_int(t)) return;
  const int bits = dtype_info(t).bits - !is_unsigned(t);
  const double top = std::ldexp(1.0, bits), whole = std::trunc(v);
  MGE_CHECK(whole < top && whole >= (is_unsigned(t) ? 0 : -top), Value, "{}: {} does not fit {}. Name a wider dtype.",
            c.op->name, v, dtype_name(t));
}

void infer_fill_like(InferCtx& c) {
  check_fill(c, attrs_as<ValueAttrs>(c.attrs).value, c.dtype(0));
  c.out[0] = c.x(0);
}
void infer_full(InferCtx& c) {
  const auto& a = attrs_as<FullAttrs>(c.attrs);
  check_fill(c, a.value, a.dtype);
  c.out[0].shape = to_shape(a.shape);
  c.out[0].dtype = a.dtype;
  check_shape("full", c.out[0].shape);
}
void infer_same(InferCtx& c) { c.out[0] = c.x(0); }
bool view_same(const ViewCtx& v) {
  *v.out = v.in;
  return true;
}

// A tensor of sizes takes 32 bits, as MegEngine's do.
void infer_shape_of(InferCtx& c) {
  for (int64_t d : c.shape(0))
    MGE_CHECK(d <= INT32_MAX, Value, "shape_of: a size of {} does not fit int32; got x {}.", d, c.shape(0).str());
  c.out[0].dtype = DType::I32;
  c.out[0].shape = Shape{c.shape(0).rank};
}
void decompose_shape_of(Emitter& em, const AttrsBase*, std::span<const Val> in, std::span<Val> out) {
  std::vector<Val> parts;
  for (int64_t d : in[0].shape())
    parts.push_back(reshape(em.constant(static_cast<double>(d), DType::I32, in[0]), Shape{1}));
  out[0] = parts.empty() ? filled(in[0], 0, DType::I32, Shape{0}) : concat(parts, 0);
}
void decompose_count_of(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& a = attrs_as<CountAttrs>(attrs);
  out[0] = em.constant(1, a.dtype, in[0]);
  for (int64_t axis : a.axes) out[0] = out[0] * cast(element(in[0], 0, axis), a.dtype);
}
void infer_count_of(InferCtx& c) {
  const auto& a = attrs_as<CountAttrs>(c.attrs);
  MGE_CHECK(c.shape(0).rank == 1 && c.dtype(0) == DType::I32, Value, "count_of: needs int32 sizes; got {}.",
            c.x(0).str());
  for (int64_t axis : a.axes)
    MGE_CHECK(axis >= 0 && axis < c.shape(0)[0], Value, "count_of: axis {} is out of range for {} sizes.", axis,
              c.shape(0)[0]);
  c.out[0].dtype = a.dtype;
  c.out[0].shape = Shape{};
}
void infer_sum_to(InferCtx& c) {
  const Shape out = to_shape(attrs_as<ShapeAttrs>(c.attrs).shape);
  check_shape("sum_to", out);
  MGE_CHECK(is_float(c.dtype(0)) || c.dtype(0) == DType::C64, Type,
            "sum_to: sums gradients, which are floating point or complex; got {}.", c.x(0).str());
  const Shape& in = c.shape(0);
  bool ok = out.rank <= in.rank;
  for (int i = 0; ok && i < out.rank; ++i) {
    int64_t d = in[in.rank - 1 - i], o = out[out.rank - 1 - i];
    ok = d == o || o == 1;
  }
  MGE_CHECK(ok, Value, "sum_to: {} is no broadcast of {}.", in.str(), out.str());
  c.out[0] = c.x(0);
  c.out[0].shape = out;
}
bool view_sum_to(const ViewCtx& v) {
  if (!(v.in_shape == v.out_shape)) return false;
  *v.out = v.in;
  return true;
}
void decompose_sum_to(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  out[0] = summed_to(in[0], to_shape(attrs_as<ShapeAttrs>(attrs).shape));
}

// expand_dims, squeeze and flatten are names for reshapes.
template <void (*infer)(InferCtx&)>
void decompose_as_reshape(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Meta* x = &in[0].meta();
  Meta y;
  InferCtx c{nullptr, attrs, {&x, 1}, {&y, 1}};
  infer(c);
  out[0] = reshape(in[0], y.shape);
}
void decompose_fill_like(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  out[0] = broadcast_to(scalar_like(in[0], attrs_as<ValueAttrs>(attrs).value), in[0].shape());
}

}  // namespace

SliceAttrs resolved_slice(const SliceAttrs& a, const Shape& shape) {
  SliceAttrs r = a;
  r.python = false;
  if (!a.python || a.starts.size() != a.axes.size() || a.stops.size() != a.axes.size() ||
      a.steps.size() != a.axes.size())
    return r;  // refused by check_slice
  for (size_t i = 0; i < a.axes.size(); ++i) {
    if (a.axes[i] < 0 || a.axes[i] >= shape.rank) continue;
    const int64_t size = shape[static_cast<int>(a.axes[i])];
    int64_t start = a.starts[i], stop = a.stops[i], step = a.steps[i];
    auto from_end = [size](int64_t v) { return v < 0 ? v + size : v; };
    if (step == 0) {
      MGE_CHECK(start >= -size && start < size, Index, "index {} is out of bounds for axis {} with size {}", start,
                a.axes[i], size);
      start = from_end(start);
      stop = start + 1;
      step = 1;
    } else {
      // Python: the clamped bounds, then the stop that is reached exactly.
      const int64_t all = std::max<int64_t>(size, 1);
      step = std::clamp(step, -all, all);  // one that leaves the axis at once is as good as any other
      const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
      start = start == -SliceAttrs::kOpen ? low : std::clamp(from_end(start), low, high);
      stop = stop == -SliceAttrs::kOpen ? low : std::clamp(from_end(stop), low, high);
      const int64_t len = slice_len(start, stop, step);
      stop = start + len * step;
      if (len == 0) start = stop = std::max<int64_t>(start, 0);
      if (step < 0 && stop < 0) stop = -1;
    }
    r.starts[i] = start;
    r.stops[i] = stop;
    r.steps[i] = step;
  }
  return r;
}

Layout slice_layout(const SliceAttrs& a, const Shape& shape, const Layout& layout) {
  if (a.python) return slice_layout(resolved_slice(a, shape), shape, layout);
  Layout out = layout;
  bool empty = shape.numel() == 0;
  for (size_t i = 0; i < a.axes.size(); ++i) {
    int ax = static_cast<int>(a.axes[i]);
    empty |= slice_len(a.starts[i], a.stops[i], a.steps[i]) == 0;
    out.offset += a.starts[i] * layout.stride[ax];
    out.stride[ax] = layout.stride[ax] * a.steps[i];
  }
  if (empty) out.offset = layout.offset;  // a region of nothing begins where its tensor does, not behind its end
  return out;
}

void register_shape_ops(OpRegistry& r) {
  r.op("reshape")
      .traits(kQuantised | kPacked)
      .attrs<ShapeAttrs>()
      .in("x")
      .out("y")
      .infer(infer_reshape)
      .keeps_format(KeepsFormat::First)
      .view(view_reshape)
      .doc("The same elements in another shape; one dimension may be -1.");
  r.op("transpose")
      .traits(kQuantised)
      .attrs<PermAttrs>()
      .in("x")
      .out("y")
      .infer(infer_transpose)
      .view(view_transpose)
      .doc("Reorders the axes: y.shape[i] = x.shape[perm[i]].");
  r.op("broadcast_to")
      .traits(kQuantised)
      .attrs<ShapeAttrs>()
      .in("x")
      .out("y")
      .infer(infer_broadcast_to)
      .keeps_format(KeepsFormat::First)
      .view(view_broadcast_to)
      .doc("Repeats size-1 and missing leading axes up to shape.");
  r.op("expand_dims")
      .traits(kQuantised | kPacked)
      .attrs<AxesAttrs>()
      .in("x")
      .out("y")
      .infer(infer_expand_dims)
      .view(view_reshape)
      .decompose(decompose_as_reshape<infer_expand_dims>)
      .doc("Inserts axes of size 1 at the positions they have in the result.");
  r.op("squeeze")
      .traits(kQuantised | kPacked)
      .attrs<AxesAttrs>()
      .in("x")
      .out("y")
      .infer(infer_squeeze)
      .view(view_reshape)
      .decompose(decompose_as_reshape<infer_squeeze>)
      .doc("Removes axes of size 1; all of them when none is named.");
  r.op("flatten")
      .traits(kQuantised | kPacked)
      .attrs<RangeAttrs>()
      .in("x")
      .out("y")
      .infer(infer_flatten)
      .view(view_reshape)
      .decompose(decompose_as_reshape<infer_flatten>)
      .doc("Joins the axes start..end into one.");
  r.op("slice")
      .traits(kQuantised)
      .attrs<SliceAttrs>()
      .in("x")
      .out("y")
      .infer(infer_slice)
      .keeps_format(KeepsFormat::First)
      .view(view_slice)
      .doc("A strided region of x.");
  r.op("set_slice")
      .traits(kQuantised)
      .attrs<SliceAttrs>()
      .in("x", "v")
      .out("y")
      .infer(infer_set_slice)
      .keeps_format(KeepsFormat::Any)
      .doc("x with the region replaced by v.");
  r.op("concat")
      .traits(kQuantised)
      .attrs<AxisAttrs>()
      .variadic_in("xs")
      .out("y")
      .infer(infer_concat)
      .keeps_format(KeepsFormat::Any)
      .promote(Promote::Arith)
      .doc("Joins tensors along an existing axis.");
  r.op("shape_of")
      .traits(kQuantised | kPacked)
      .in("x")
      .out("sizes")
      .infer(infer_shape_of)
      .traits(kNoGrad)
      .decompose(decompose_shape_of)
      .doc("The sizes of x as int32; known before x is computed.");
  r.op("count_of")
      .attrs<CountAttrs>()
      .in("sizes")
      .out("y")
      .infer(infer_count_of)
      .traits(kNoGrad)
      .decompose(decompose_count_of)
      .doc("The product of some sizes as a number of a dtype.");
  r.op("sum_to")
      .attrs<ShapeAttrs>()
      .in("x")
      .out("y")
      .infer(infer_sum_to)
      .view(view_sum_to)
      .decompose(decompose_sum_to)
      .doc("Sums over the axes that a broadcast of `shape` to the shape of x has repeated.");
  r.op("full").attrs<FullAttrs>().out("y").infer(infer_full).traits(kNoGrad).doc("A tensor filled with one value.");
  r.op("fill_like")
      .attrs<ValueAttrs>()
      .in("x")
      .out("y")
      .infer(infer_fill_like)
      .keeps_format(KeepsFormat::First)
      .traits(kNoGrad)
      .decompose(decompose_fill_like)
      .doc("One value in the shape and dtype of x.");
  r.op("copy")
      .traits(kQuantised | kPacked)
      .in("x")
      .out("y")
      .infer(infer_same)
      .keeps_format(KeepsFormat::First)
      .view(view_same)
      .doc("The same value as a new tensor.");
}

}  // namespace mge
