#include "compat/emit.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <numeric>

#include "op/index/indexing.h"
#include "op/index/multi_index.h"
#include "op/quant/quantize.h"
#include "op/reduce/scan.h"
#include "op/shape/copy_to.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {

Out emit_all(Emitter& em, const char* op, In in, Attrs attrs) {
  const OpDef& def = OpRegistry::global().get(op);
  Out out(def.n_out(attrs.get()));
  em.emit(def, attrs, in, out);
  return out;
}

Val slice(const Val& x, int64_t axis, int64_t begin, int64_t end, int64_t step) {
  if (begin == 0 && end == now(x)[static_cast<int>(axis)] && step == 1 && !x.em->any_size(x)) return x;
  return emit("slice", {x}, SliceAttrs{{axis}, {begin}, {end}, {step}});
}
Val trimmed(const Val& x, int64_t axis, int64_t before, int64_t after) {
  const int64_t stop = after ? -after : SliceAttrs::kOpen;
  return emit("slice", {x},
              SliceAttrs{.axes = {axis}, .starts = {before}, .stops = {stop}, .steps = {1}, .python = true});
}
Val pick(const Val& x, int64_t axis, int64_t i) {
  return squeeze(emit("slice", {x}, SliceAttrs{{axis}, {i}, {i + 1}, {1}}), {axis});
}
Val flipped(const Val& x, int64_t axis) {
  return emit("slice", {x}, SliceAttrs{{axis}, {SliceAttrs::kOpen}, {-SliceAttrs::kOpen}, {-1}, true});
}
Val expand(const Val& x, Ints axes) { return emit("expand_dims", {x}, AxesAttrs{std::move(axes)}); }
Val squeeze(const Val& x, Ints axes) { return emit("squeeze", {x}, AxesAttrs{std::move(axes)}); }
Val concat(In xs, int64_t axis) {
  if (xs.size() == 1) return xs[0];
  return emit_all(*xs[0].em, "concat", xs, make_attrs(AxisAttrs{axis}))[0];
}
Val stack(In xs, int64_t axis) {
  Out parts;
  for (auto& x : xs) parts.push_back(expand(x, {axis}));
  return concat(parts, axis);
}
Val shaped(const Val& x, std::initializer_list<int64_t> sizes) { return reshape(x, Shape(sizes)); }

namespace {

/// The number `value` in the dtype of x; in a quantised one, what is stored.
Val stored(const Val& x, double value) {
  if (!is_quant(x.dtype())) return x.em->constant(value, x.dtype(), x);
  const Quant& q = x.meta().quant;
  MGE_CHECK(q.per_tensor(), NotImplemented,
            "pad: {} is quantised per channel. Take its values with astype(\"float32\").", x.meta().str());
  const double real = (value - q.zero_point) * static_cast<float>(q.scale);
  return quantized(x.em->constant(real, DType::F32, x), x.meta().qtype());
}

/// For any sizes: the new ones are computed, and x lies between the same distances from both ends.
Val padded_any(const Val& x, std::span<const std::pair<int64_t, int64_t>> widths, double value) {
  SliceAttrs at{.axes = {}, .starts = {}, .stops = {}, .steps = {}, .python = true};
  std::vector<int64_t> more;
  Ints shape = to_ints(now(x));
  for (size_t i = 0; i < shape.size(); ++i) {
    auto [before, after] = i < widths.size() ? widths[i] : std::pair<int64_t, int64_t>{};
    more.push_back(before + after);
    shape[i] += before + after;
    at.axes.push_back(static_cast<int64_t>(i));
    at.starts.push_back(before);
    at.stops.push_back(after ? -after : SliceAttrs::kOpen);
    at.steps.push_back(1);
  }
  const Val sizes = x.em->size_operand(x) + int_table(x, more, Shape{static_cast<int64_t>(more.size())});
  const Val base = emit_sized("broadcast_to", {stored(x, value)}, ShapeAttrs{shape}, "shape", SizeValues{shape, sizes});
  return emit("set_slice", {base, x}, std::move(at));
}

}  // namespace

Val padded(const Val& x, std::span<const std::pair<int64_t, int64_t>> widths, double value) {
  if (x.em->any_size(x) && std::ranges::any_of(widths, [](auto& w) { return w.first || w.second; }))
    return padded_any(x, widths, value);
  if (x.em->any_size(x)) return x;
  Shape shape = x.shape();
  SliceAttrs at;
  bool any = false;
  for (int i = 0; i < shape.rank; ++i) {
    auto [before, after] =
        i < static_cast<int>(widths.size()) ? widths[static_cast<size_t>(i)] : std::pair<int64_t, int64_t>{};
    any |= before || after;
    at.axes.push_back(i);
    at.starts.push_back(before);
    at.stops.push_back(before + shape[i]);
    at.steps.push_back(1);
    shape[i] += before + after;
  }
  if (!any) return x;
  return emit("set_slice", {broadcast_to(stored(x, value), shape), x}, std::move(at));
}

Val padded_by_index(const Val& x, std::span<const std::pair<int64_t, int64_t>> widths, std::string_view mode) {
  Val y = x;
  for (size_t axis = 0; axis < widths.size(); ++axis) {
    auto [before, after] = widths[axis];
    if (!before && !after) continue;
    if (const SizeValue size = size_at(x, static_cast<int>(axis)); size.operand) {
      const SizeValue all{size.now + before + after, size.operand + static_cast<double>(before + after)};
      const Val last = size.operand - 1.0, zero = scalar_like(last, 0);
      Val j = iota(x, all) - static_cast<double>(before);
      if (mode == "reflect") {  // widths are less than the size, so that one turn at each end is enough
        MGE_CHECK(before < size.now && after < size.now, Value, "pad: axis {} of {} is too short for widths {} and {}.",
                  axis, now(x).str(), before, after);
        j = last - unary("abs", last - unary("abs", j));
      }
      y = take(y, binary("minimum", binary("maximum", j, zero), last), static_cast<int64_t>(axis));
      continue;
    }
    const int64_t n = x.shape()[static_cast<int>(axis)];
    MGE_CHECK(n > 0, Value, "pad: axis {} of {} has no element to repeat.", axis, x.shape().str());
    std::vector<int64_t> source;
    for (int64_t i = -before; i < n + after; ++i) {
      int64_t j = i;
      if (mode == "reflect" && n > 1) {
        const int64_t period = 2 * (n - 1);
        j = ((i % period) + period) % period;
        if (j >= n) j = period - j;
      }
      source.push_back(std::clamp<int64_t>(j, 0, n - 1));
    }
    y = take(y, int_table(x, source, Shape{static_cast<int64_t>(source.size())}), static_cast<int64_t>(axis));
  }
  return y;
}

namespace {

Meta meta_like(const Val& like, const Shape& shape, DType t) {
  Meta m;
  m.shape = shape;
  m.dtype = t;
  m.cn = like.meta().cn;
  return m;
}

}  // namespace

Val int_table(const Val& like, std::span<const int64_t> values, const Shape& shape) {
  std::vector<int32_t> v(values.begin(), values.end());
  return like.em->literal(meta_like(like, shape, DType::I32), v.data());
}
Val float_table(const Val& like, std::span<const double> values, const Shape& shape) {
  std::vector<float> v(values.begin(), values.end());
  return like.em->literal(meta_like(like, shape, DType::F32), v.data());
}
Val range(const Val& like, int64_t n, const Shape& shape) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return int_table(like, v, shape);
}
Val iota(const Val& like, const SizeValue& n) {
  if (!n.operand) return range(like, n.now, Shape{n.now});
  const Val one = like.em->constant(1, DType::I32, like);
  const Val ones = emit_sized("broadcast_to", {one}, ShapeAttrs{{n.now}}, "shape", SizeValues{{n.now}, n.operand});
  return emit("cumsum", {ones}, CumsumAttrs{0, true, false});
}
Val filled(const Val& like, const Shape& shape, double value, DType dtype) {
  return broadcast_to(like.em->constant(value, dtype, like), shape);
}
Val nothing(const Val& like, DType dtype) {
  const char no_bytes = 0;
  return like.em->literal(meta_like(like, Shape{0}, dtype), &no_bytes);
}

Val take(const Val& x, const Val& index, int64_t axis) { return emit("take", {x, index}, TakeAttrs{axis}); }
Val index_get(const Val& x, In index, Ints axes, int64_t at) {
  Out in{x};
  in.insert(in.end(), index.begin(), index.end());
  return emit_all(*x.em, "index_get", in, make_attrs(MultiIndexAttrs{std::move(axes), at}))[0];
}
Val less(const Val& a, const Val& b) { return binary("lt", a, b); }
Val positive(const Val& x) { return less(scalar_like(x, 0), x); }
Val where0(const Val& cond, const Val& x) { return select(cond, x, scalar_like(x, 0)); }
Val clip(const Val& x, double lo, double hi) {
  return binary("maximum", binary("minimum", x, scalar_like(x, hi)), scalar_like(x, lo));
}
Val sum(const Val& x, Ints axes, bool keepdims) { return reduce(x, "sum", std::move(axes), keepdims); }
Val mean(const Val& x, Ints axes, bool keepdims) { return reduce(x, "mean", std::move(axes), keepdims); }
Val wide(const Val& x) { return x.dtype() == DType::F16 || x.dtype() == DType::BF16 ? cast(x, DType::F32) : x; }
Val number(const Val& x, double v) { return x.em->constant(v, is_float(x.dtype()) ? x.dtype() : DType::F32, x); }

Val converted(const Val& x, const TypeParam& t) { return t.dtype ? quantized(x, {*t.dtype, t.quant}) : x; }

Val moved(const Val& x, const NodeParam& device) {
  if (device.name.empty()) return x;
  const CompNode* to = CompNode::get(device.name);
  const CompNode* from = x.meta().cn ? x.meta().cn : CompNode::default_node();
  return to == from ? x : emit("copy_to", {x}, CopyToAttrs{device.name, false});
}

namespace {

template <class T>
void append(const HostValue& h, std::vector<double>& out) {
  for (size_t i = 0; i + sizeof(T) <= h.bytes.size(); i += sizeof(T)) {
    T v;
    std::memcpy(&v, h.bytes.data() + i, sizeof v);
    out.push_back(static_cast<double>(v));
  }
}

std::vector<double> known_numbers(std::string_view who, const char* what, const Val& v) {
  std::optional<HostValue> h = v.em->known(v);
  MGE_CHECK(h, NotImplemented,
            "{}: {} must be known while the graph is built; got a computed value {}. Give it as a constant.", who, what,
            v.meta().str());
  std::vector<double> out;
  switch (h->dtype) {
    case DType::Bool:
    case DType::U8:
      append<uint8_t>(*h, out);
      break;
    case DType::I8:
      append<int8_t>(*h, out);
      break;
    case DType::U16:
      append<uint16_t>(*h, out);
      break;
    case DType::I16:
      append<int16_t>(*h, out);
      break;
    case DType::I32:
      append<int32_t>(*h, out);
      break;
    case DType::I64:
      append<int64_t>(*h, out);
      break;
    case DType::F32:
      append<float>(*h, out);
      break;
    case DType::F64:
      append<double>(*h, out);
      break;
    default:
      fail(ErrorKind::Type, "{}: {} cannot be of {}.", who, what, dtype_name(h->dtype));
  }
  return out;
}

}  // namespace

Ints known_ints(std::string_view who, const char* what, const Val& v) {
  Ints out;
  for (double d : known_numbers(who, what, v)) {
    MGE_CHECK(d == std::floor(d), Type, "{}: {} must hold integers; got {}.", who, what, d);
    out.push_back(static_cast<int64_t>(d));
  }
  return out;
}
int64_t known_int(std::string_view who, const char* what, const Val& v) {
  Ints all = known_ints(who, what, v);
  MGE_CHECK(all.size() == 1, Value, "{}: {} must be one number; got {}.", who, what, v.meta().str());
  return all[0];
}
double known_number(std::string_view who, const char* what, const Val& v) {
  std::vector<double> all = known_numbers(who, what, v);
  MGE_CHECK(all.size() == 1, Value, "{}: {} must be one number; got {}.", who, what, v.meta().str());
  return all[0];
}
SizeValues sizes_of(std::string_view who, const char* what, const Val& v) {
  // Sizes that were scaled are floating point in files.
  const bool whole = is_int(v.dtype());
  if (std::optional<SizeValues> s = v.em->size_values(whole ? v : cast(v, DType::I32)); s && (whole || s->operand))
    return *s;
  return {known_ints(who, what, v), {}};
}
SizeValues sizes_operand(std::string_view who, In in, size_t i, const Ints& fixed) {
  return i < in.size() ? sizes_of(who, "the shape", in[i]) : SizeValues{fixed, {}};
}
SizeValue size_at(const SizeValues& s, size_t i) {
  if (!s.operand) return {s.now[i], {}};
  const int64_t at = static_cast<int64_t>(i);
  return {s.now[i], cast(emit("slice", {s.operand}, SliceAttrs{{0}, {at}, {at + 1}, {1}}), DType::I32)};
}
SizeValue size_at(const Val& x, int axis) {
  return size_at(SizeValues{to_ints(now(x)), x.em->size_operand(x)}, static_cast<size_t>(axis));
}
int64_t dim(const Val& x, int axis) {
  const int at = axis < 0 ? axis + x.rank() : axis;
  if (const Val sizes = x.em->size_operand(x)) x.em->fix(emit("slice", {sizes}, SliceAttrs{{0}, {at}, {at + 1}, {1}}));
  return now(x)[at];
}
SizeValues joined(std::span<const SizePart> parts) {
  SizeValues out;
  Out sizes;
  Val varies;
  for (const SizePart& part : parts) {
    out.now.push_back(part.now);
    sizes.push_back(part.operand);
    if (part.operand) varies = part.operand;
  }
  if (!varies) return out;
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] = size_value(varies, parts[i]);
  out.operand = concat(sizes, 0);
  return out;
}
Val size_value(const Val& like, const SizeValue& size) {
  return size.operand ? size.operand : int_table(like, {&size.now, 1}, Shape{1});
}
Val broadcast_as(const Val& x, const SizeValues& shape) {
  return emit_sized("broadcast_to", {x}, ShapeAttrs{shape.now}, "shape", shape);
}
Val shaped_as(const Val& x, std::initializer_list<SizePart> parts) {
  const SizeValues s = joined(parts);
  return emit_sized("reshape", {x}, ShapeAttrs{s.now}, "shape", s);
}
Ints shape_operand(std::string_view who, In in, size_t i, const Ints& fixed) {
  return i < in.size() ? known_ints(who, "the shape", in[i]) : fixed;
}

std::string_view member_name(const EnumInfo& e, int64_t value) { return e.members.at(static_cast<size_t>(value)); }
std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace mge::compat
