// Joining, cutting and rearranging; copies.
#include "op/shape/shape_ops.h"

#include <array>
#include <numeric>

#include "compat/emit.h"
#include "op/shape/copy_to.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(PaddingMode, "Padding", "PaddingMode", REPLICATE, REFLECT, CONSTANT)

struct Join {
  int64_t axis = 0;
  NodeParam comp_node;
  static constexpr auto fields() { return field_list("axis", &Join::axis, "comp_node", &Join::comp_node); }
};
struct Split {
  int64_t axis = 0, nsections = 0;
  static constexpr auto fields() { return field_list("axis", &Split::axis, "nsections", &Split::nsections); }
};
struct Broadcast {
  Ints shape{};
  static constexpr auto fields() { return field_list("shape", &Broadcast::shape); }
};
struct Reshape {
  int64_t axis = kNoAxis;
  Ints shape{};
  static constexpr auto fields() { return field_list("axis", &Reshape::axis, "shape", &Reshape::shape); }
};
struct Dimshuffle {
  Ints pattern{};
  static constexpr auto fields() { return field_list("pattern", &Dimshuffle::pattern); }
};
struct Axes {
  Ints axis{};
  static constexpr auto fields() { return field_list("axis", &Axes::axis); }
};
struct AxisSteps {
  Rows desc;  // method (0 adds, 1 removes), axis
  static constexpr auto fields() { return field_list("desc", &AxisSteps::desc); }
};
struct GetVarShape {
  int64_t axis = kNoAxis;
  static constexpr auto fields() { return field_list("axis", &GetVarShape::axis); }
};
struct Factor {
  int64_t factor = 1;
  static constexpr auto fields() { return field_list("factor", &Factor::factor); }
};
struct Copy {
  NodeParam comp_node;
  static constexpr auto fields() { return field_list("comp_node", &Copy::comp_node); }
};
struct Barrier {
  NodeParam comp_node;
  int64_t nr_outputs = 0;
  static constexpr auto fields() {
    return field_list("comp_node", &Barrier::comp_node, "nr_outputs", &Barrier::nr_outputs);
  }
};
struct Padding {
  int64_t front_offset_dim0 = 0, front_offset_dim1 = 0, front_offset_dim2 = 0, front_offset_dim3 = 0;
  int64_t front_offset_dim4 = 0, front_offset_dim5 = 0, front_offset_dim6 = 0;
  int64_t back_offset_dim0 = 0, back_offset_dim1 = 0, back_offset_dim2 = 0, back_offset_dim3 = 0;
  int64_t back_offset_dim4 = 0, back_offset_dim5 = 0, back_offset_dim6 = 0;
  double padding_val = 0;
  PaddingMode padding_mode = PaddingMode::CONSTANT;
  static constexpr auto fields() {
    using P = Padding;
    return field_list("front_offset_dim0", &P::front_offset_dim0, "front_offset_dim1", &P::front_offset_dim1,
                      "front_offset_dim2", &P::front_offset_dim2, "front_offset_dim3", &P::front_offset_dim3,
                      "front_offset_dim4", &P::front_offset_dim4, "front_offset_dim5", &P::front_offset_dim5,
                      "front_offset_dim6", &P::front_offset_dim6, "back_offset_dim0", &P::back_offset_dim0,
                      "back_offset_dim1", &P::back_offset_dim1, "back_offset_dim2", &P::back_offset_dim2,
                      "back_offset_dim3", &P::back_offset_dim3, "back_offset_dim4", &P::back_offset_dim4,
                      "back_offset_dim5", &P::back_offset_dim5, "back_offset_dim6", &P::back_offset_dim6, "padding_val",
                      &P::padding_val, "padding_mode", &P::padding_mode);
  }
};
struct PackSplit {
  Ints offsets{};
  Rows shapes;
  static constexpr auto fields() { return field_list("offsets", &PackSplit::offsets, "shapes", &PackSplit::shapes); }
};
struct PackConcat {
  Ints offsets{};
  static constexpr auto fields() { return field_list("offsets", &PackConcat::offsets); }
};

Out on_node(In in, const NodeParam& node) {
  Out out;
  for (auto& x : in) out.push_back(moved(x, node));
  return out;
}
void concat_rule(Emitter& em, const Join& p, In in, Out& out) {
  Out xs = on_node(in, p.comp_node);
  for (auto& x : xs)
    if (x.rank() == 0) x = shaped(x, {1});  // scalars count as vectors of one element
  out = emit_all(em, "concat", xs, make_attrs(AxisAttrs{p.axis}));
}
void stack_rule(Emitter& em, const Join& p, In in, Out& out) {
  Out xs = on_node(in, p.comp_node);
  for (auto& x : xs) {
    MGE_CHECK(x.shape() == in[0].shape(), Value, "Stack: all tensors must have one shape; got {} and {}.",
              in[0].shape().str(), x.shape().str());
    x = expand(x, {p.axis});
  }
  out = emit_all(em, "concat", xs, make_attrs(AxisAttrs{p.axis}));
}

/// Where sizes of parts may be others later: each part begins where the one before it ends. False: they may not.
bool split_sized(const Val& x, int axis, In parts, Out& out) {
  std::vector<SizeValues> sizes;
  bool any = false;
  for (auto& v : parts) {
    sizes.push_back(sizes_of("Split", "the size of a part", v));
    MGE_CHECK(sizes.back().now.size() == 1, Value, "Split: the size of a part must be one number; got {}.",
              v.meta().str());
    any |= static_cast<bool>(sizes.back().operand);
  }
  if (!any) return false;
  const int starts = field_index<SliceAttrs>("starts"), stops = field_index<SliceAttrs>("stops");
  Val at = int_table(parts[0], std::array{int64_t{0}}, Shape{1});
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const int64_t end = begin + sizes[i].now[0];
    const Val next = at + cast(shaped(parts[i], {1}), DType::I32);
    std::vector<SizeOperand> operands;
    if (x.em->size_values(at)->operand) operands.push_back({starts, 0, at.p});
    if (x.em->size_values(next)->operand) operands.push_back({stops, 0, next.p});
    const SliceAttrs attrs{{axis}, {begin}, {end}, {1}};
    out.push_back(x.em->emit1("slice", {x}, make_attrs(attrs, std::move(operands))));
    at = next;
    begin = end;
  }
  return true;
}

void split(Emitter&, const Split& p, In in, Out& out) {
  const Val& x = in[0];
  const int axis = normalize_axis("Split", p.axis, x.rank());
  if (in.size() > 1 && split_sized(x, axis, in.subspan(1), out)) return;
  const int64_t size = dim(x, axis);
  Ints sizes;
  for (size_t i = 1; i < in.size(); ++i) sizes.push_back(known_int("Split", "the size of a part", in[i]));
  if (sizes.empty()) {
    const int64_t n = p.nsections;
    MGE_CHECK(n > 0 && n <= size, Value, "Split: cannot cut an axis of size {} into {} parts.", size, n);
    for (int64_t i = 0, at = 0; i < n; at += sizes.back(), ++i) sizes.push_back((size - at + n - i - 1) / (n - i));
  }
  int64_t at = 0;
  for (int64_t n : sizes) {
    MGE_CHECK(n >= 0 && at + n <= size, Value, "Split: parts of {} exceed size {} of axis {}.",
              print_attr(AttrValue(sizes)), size, axis);
    out.push_back(slice(x, axis, at, at + n));
    at += n;
  }
  MGE_CHECK(at == size, Value, "Split: parts of {} do not make up size {} of axis {}.", print_attr(AttrValue(sizes)),
            size, axis);
}

void broadcast(Emitter&, const Broadcast& p, In in, Out& out) {
  const SizeValues shape = sizes_operand("Broadcast", in, 1, p.shape);
  for (int64_t n : shape.now)
    MGE_CHECK(n >= 0, Value, "Broadcast: a size cannot be negative; got {}.", print_attr(AttrValue(shape.now)));
  out.push_back(emit_sized("broadcast_to", {in[0]}, ShapeAttrs{shape.now}, "shape", shape));
}
void reshape_rule(Emitter&, const Reshape& p, In in, Out& out) {
  SizeValues shape = sizes_operand("Reshape", in, 1, p.shape);
  if (p.axis != kNoAxis) {  // its size follows from the others
    const auto n = static_cast<int64_t>(shape.now.size());
    MGE_CHECK(p.axis >= 0 && p.axis < n, Value, "Reshape: axis {} is not one of {}.", p.axis,
              print_attr(AttrValue(shape.now)));
    shape.now[static_cast<size_t>(p.axis)] = -1;
    if (shape.operand) {
      const Val open = int_table(in[0], std::array{int64_t{-1}}, Shape{1}), all = cast(shape.operand, DType::I32);
      Out parts;
      if (p.axis > 0) parts.push_back(slice(all, 0, 0, p.axis));
      parts.push_back(open);
      if (p.axis + 1 < n) parts.push_back(slice(all, 0, p.axis + 1, n));
      shape.operand = concat(parts, 0);
    }
  }
  out.push_back(emit_sized("reshape", {in[0]}, ShapeAttrs{shape.now}, "shape", shape));
}

// -1 makes an axis of size 1; axes that are not named must have size 1 and go.
void dimshuffle(Emitter&, const Dimshuffle& p, In in, Out& out) {
  const int rank = in[0].rank();
  Ints perm, fresh, gone;
  std::vector<bool> used(static_cast<size_t>(rank));
  for (size_t i = 0; i < p.pattern.size(); ++i) {
    const int64_t a = p.pattern[i];
    if (a < 0) {
      fresh.push_back(static_cast<int64_t>(i));
      continue;
    }
    MGE_CHECK(a < rank && !used[static_cast<size_t>(a)], Value, "Dimshuffle: the pattern {} does not fit {}.",
              print_attr(AttrValue(p.pattern)), in[0].shape().str());
    used[static_cast<size_t>(a)] = true;
    perm.push_back(a);
  }
  for (int i = 0; i < rank; ++i)
    if (!used[static_cast<size_t>(i)]) gone.push_back(i);
  Val x = in[0];
  if (!gone.empty()) {
    x = squeeze(x, gone);
    for (auto& a : perm)
      for (size_t i = gone.size(); i-- > 0;)
        if (gone[i] < a) --a;
  }
  x = transpose(x, perm);
  out.push_back(fresh.empty() ? x : expand(x, fresh));
}
void add_axis(Emitter&, const Axes& p, In in, Out& out) {
  Val x = in[0];
  for (int64_t a : p.axis) x = expand(x, {a});
  out.push_back(x);
}
void remove_axis(Emitter&, const Axes& p, In in, Out& out) {
  Val x = in[0];
  for (int64_t a : p.axis) x = squeeze(x, {a});
  out.push_back(x);
}

// What AddAxis and RemoveAxis are in files, step by step.
void add_remove_axis(Emitter&, const AxisSteps& p, In in, Out& out) {
  Val x = in[0];
  for (auto& step : p.desc) {
    MGE_CHECK(step.size() == 2, Value, "AxisAddRemove: a step is (method, axis); got {} numbers.", step.size());
    x = step[0] ? squeeze(x, {step[1]}) : expand(x, {step[1]});
  }
  out.push_back(x);
}

/// The sizes that several tensors have when they are broadcast, as a value; empty where no size varies.
Val joint_sizes(In in) {
  int rank = 0;
  bool any = false;
  for (auto& x : in) {
    rank = std::max(rank, x.rank());
    any |= x.em->any_size(x);
  }
  if (!any) return {};
  Val all;
  for (auto& x : in) {
    Val s = x.em->size_operand(x);
    if (!s) s = int_table(in[0], {now(x).begin(), now(x).end()}, Shape{x.rank()});
    if (x.rank() < rank) {
      const std::vector<int64_t> ones(static_cast<size_t>(rank - x.rank()), 1);
      const Val parts[] = {int_table(in[0], ones, Shape{rank - x.rank()}), s};
      s = concat(parts, 0);
    }
    all = all ? binary("maximum", all, s) : s;
  }
  return all;
}

void get_var_shape(Emitter&, const GetVarShape& p, In in, Out& out) {
  if (const Val all = joint_sizes(in)) {
    if (p.axis == kNoAxis) return out.push_back(all);
    const int64_t at = normalize_axis("GetVarShape", p.axis, static_cast<int>(now(all)[0]));
    return out.push_back(slice(all, 0, at, at + 1));
  }
  Shape s = in[0].shape();
  for (auto& x : in) s = broadcast_shapes("GetVarShape", s, x.shape());
  if (p.axis == kNoAxis) return out.push_back(int_table(in[0], {s.begin(), s.end()}, Shape{s.rank}));
  const int64_t n = s[normalize_axis("GetVarShape", p.axis, s.rank)];
  out.push_back(int_table(in[0], {&n, 1}, Shape{1}));
}

// (..., C * r * r, H, W) to (..., C, H * r, W * r)
void pixel_shuffle(Emitter&, const Factor& p, In in, Out& out) {
  Shape s = in[0].shape();
  const int64_t r = p.factor;
  MGE_CHECK(r > 0 && s.rank >= 3 && s[s.rank - 3] % (r * r) == 0, Value,
            "PixelShuffle: needs (..., C * {} * {}, H, W); got {}.", r, r, s.str());
  const int64_t c = s[s.rank - 3] / (r * r), h = s[s.rank - 2], w = s[s.rank - 1];
  const int64_t n = std::accumulate(s.begin(), s.end() - 3, int64_t{1}, std::multiplies<>());
  const Val parts = transpose(shaped(in[0], {n, c, r, r, h, w}), {0, 1, 4, 2, 5, 3});
  s[s.rank - 3] = c;
  s[s.rank - 2] = h * r;
  s[s.rank - 1] = w * r;
  out.push_back(reshape(parts, s));
}
void pixel_unshuffle(Emitter&, const Factor& p, In in, Out& out) {
  Shape s = in[0].shape();
  const int64_t r = p.factor;
  MGE_CHECK(r > 0 && s.rank >= 3 && s[s.rank - 2] % r == 0 && s[s.rank - 1] % r == 0, Value,
            "PixelShuffleBackward: needs (..., C, H * {}, W * {}); got {}.", r, r, s.str());
  const int64_t c = s[s.rank - 3], h = s[s.rank - 2] / r, w = s[s.rank - 1] / r;
  const int64_t n = std::accumulate(s.begin(), s.end() - 3, int64_t{1}, std::multiplies<>());
  const Val parts = transpose(shaped(in[0], {n, c, h, r, w, r}), {0, 1, 3, 5, 2, 4});
  s[s.rank - 3] = c * r * r;
  s[s.rank - 2] = h;
  s[s.rank - 1] = w;
  out.push_back(reshape(parts, s));
}

void identity(Emitter&, const None&, In in, Out& out) { out.push_back(unary("copy", in[0])); }
void copy(Emitter&, const Copy& p, In in, Out& out) {
  const CompNode* to = p.comp_node.name.empty() ? CompNode::default_node() : CompNode::get(p.comp_node.name);
  const CompNode* from = in[0].meta().cn ? in[0].meta().cn : CompNode::default_node();
  out.push_back(to == from ? unary("copy", in[0]) : emit("copy_to", {in[0]}, CopyToAttrs{to->logical, false}));
}
void barrier(Emitter&, const Barrier& p, In in, Out& out) {
  MGE_CHECK(!in.empty() || p.nr_outputs == 0, Value, "Barrier: needs an input to give {} outputs.", p.nr_outputs);
  for (int64_t i = 0; i < p.nr_outputs; ++i) out.push_back(moved(nothing(in[0], DType::I32), p.comp_node));
}

void padding(Emitter&, const Padding& p, In in, Out& out) {
  const int64_t front[] = {p.front_offset_dim0, p.front_offset_dim1, p.front_offset_dim2, p.front_offset_dim3,
                           p.front_offset_dim4, p.front_offset_dim5, p.front_offset_dim6};
  const int64_t back[] = {p.back_offset_dim0, p.back_offset_dim1, p.back_offset_dim2, p.back_offset_dim3,
                          p.back_offset_dim4, p.back_offset_dim5, p.back_offset_dim6};
  const int rank = in[0].rank();
  std::vector<std::pair<int64_t, int64_t>> widths;
  bool any = false;
  for (int i = 0; i < 7; ++i) {
    MGE_CHECK(front[i] >= 0 && back[i] >= 0 && (i < rank || (!front[i] && !back[i])), Value,
              "Padding: offsets {} and {} of axis {} do not fit {}.", front[i], back[i], i, in[0].shape().str());
    any |= front[i] || back[i];
    if (i < rank) widths.emplace_back(front[i], back[i]);
  }
  if (!any) return out.push_back(unary("copy", in[0]));
  if (p.padding_mode == PaddingMode::CONSTANT) return out.push_back(padded(in[0], widths, p.padding_val));
  out.push_back(padded_by_index(in[0], widths, p.padding_mode == PaddingMode::REFLECT ? "reflect" : "replicate"));
}

void check_offsets(const char* who, const Ints& offsets, size_t n) {
  MGE_CHECK(offsets.size() == 2 * n, Value, "{}: {} tensors need {} offsets, begin and end of each; got {}.", who, n,
            2 * n, offsets.size());
}
void pack_split(Emitter&, const PackSplit& p, In in, Out& out) {
  check_offsets("ParamPackSplit", p.offsets, p.shapes.size());
  for (size_t i = 0; i < p.shapes.size(); ++i)
    out.push_back(reshape(slice(in[0], 0, p.offsets[2 * i], p.offsets[2 * i + 1]), to_shape(p.shapes[i])));
}
void pack_concat(Emitter&, const PackConcat& p, In in, Out& out) {
  In tensors = in.subspan(0, in.size() - 1);  // the last holds the offsets once more
  check_offsets("ParamPackConcat", p.offsets, tensors.size());
  Out parts;
  int64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t begin = p.offsets[2 * i];
    if (begin > at) parts.push_back(filled(tensors[i], Shape{begin - at}, 0, tensors[i].dtype()));
    parts.push_back(shaped(tensors[i], {-1}));
    at = p.offsets[2 * i + 1];
  }
  out.push_back(concat(parts, 0));
}

}  // namespace

void add_shapes(Table& t) {
  t.add<Join, concat_rule>("Concat", {1, -1}, "Concat@1");
  t.add<Join, stack_rule>("Stack", {1, -1});
  t.add<Split, split>("Split", {1, -1}, "Split@1");
  t.add<Broadcast, broadcast>("Broadcast", {1, 2}, "Broadcast@1");
  t.add<Reshape, reshape_rule>("Reshape", {1, 2}, "ReshapeV1@1");
  t.add<Dimshuffle, dimshuffle>("Dimshuffle", {1, 1}, "Dimshuffle@1");
  t.add<Axes, add_axis>("AddAxis", {1, 1});
  t.add<Axes, remove_axis>("RemoveAxis", {1, 1});
  t.add_file_type<AxisSteps, add_remove_axis>("AxisAddRemove", {1, 1}, "AxisAddRemove@1");
  t.add<GetVarShape, get_var_shape>("GetVarShape", {1, -1}, "GetVarShapeV1@1");
  t.add<Factor, pixel_shuffle>("PixelShuffle", {1, 1});
  t.add<Factor, pixel_unshuffle>("PixelShuffleBackward", {1, 1});
  t.add<None, identity>("Identity", {1, 1}, "Identity@1");
  t.add<None, identity>("FastpathCopy", {1, 1});
  t.add<Copy, copy>("Copy", {1, 1}, "Copy@1");
  t.add<Copy, copy>("Borrow", {1, 1});
  t.add<Barrier, barrier>("Barrier", {0, -1});
  t.add<Padding, padding>("Padding", {1, 1}, "Padding@1");
  t.add<PackSplit, pack_split>("ParamPackSplit", {1, 1});
  t.add<PackConcat, pack_concat>("ParamPackConcat", {2, -1});
}

}  // namespace mge::compat
