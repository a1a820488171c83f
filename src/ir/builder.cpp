#include "ir/builder.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/features.h"
#include "op/quant/real.h"

namespace mge::ir {
namespace {

struct IrVal final : ValImpl {
  IrVal(ValueId i, const Meta& m) : id(i), meta(m) {}
  ValueId id;
  Meta meta;  // a copy: rules hold references to it across emits
};

uint16_t to_half(float f) {  // round to nearest even
  uint32_t x = std::bit_cast<uint32_t>(f), sign = x >> 16 & 0x8000;
  x &= 0x7fffffff;
  if (x >= 0x7f800000) return static_cast<uint16_t>(sign | 0x7c00 | (x > 0x7f800000 ? 0x200 : 0));
  if (x >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // above the largest half
  if (x < 0x38800000) {                                              // subnormal: let the FPU round at 2^-24
    float r = std::bit_cast<float>(x) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(r) - 0x3f000000));
  }
  return static_cast<uint16_t>(sign | ((x - 0x38000000 + 0xfff + (x >> 13 & 1)) >> 13));
}

uint16_t to_bfloat(float f) {
  uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(x >> 16 | 0x40);
  return static_cast<uint16_t>((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

template <class T>
size_t store(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
  return sizeof v;
}

size_t store_scalar(void* p, double v, DType t) {
  switch (t) {
    case DType::Bool:
      return store(p, static_cast<uint8_t>(v != 0));
    case DType::U8:
      return store(p, static_cast<uint8_t>(v));
    case DType::I8:
      return store(p, static_cast<int8_t>(v));
    case DType::U16:
      return store(p, static_cast<uint16_t>(v));
    case DType::I16:
      return store(p, static_cast<int16_t>(v));
    case DType::I32:
      return store(p, static_cast<int32_t>(v));
    case DType::I64:
      return store(p, static_cast<int64_t>(v));
    case DType::F16:
      return store(p, to_half(static_cast<float>(v)));
    case DType::BF16:
      return store(p, to_bfloat(static_cast<float>(v)));
    case DType::F32:
      return store(p, static_cast<float>(v));
    case DType::F64:
      return store(p, v);
    case DType::C64:
      return store(p, std::array{static_cast<float>(v), 0.0f});
    default:
      fail(ErrorKind::Type, "constant: a {} cannot be made from a number.", dtype_name(t));
  }
}

}  // namespace

Val GraphBuilder::val(ValueId v) { return {this, RefPtr<ValImpl>(new IrVal(v, g_->meta(v)))}; }
ValueId GraphBuilder::id(const Val& v) { return static_cast<const IrVal*>(v.p.get())->id; }
const Meta& GraphBuilder::meta(const Val& v) { return static_cast<const IrVal*>(v.p.get())->meta; }

void GraphBuilder::emit(const OpDef& op, const Attrs& attrs, std::span<const Val> in, std::span<Val> out) {
  SmallVec<const Meta*, 6> metas;
  SmallVec<ValueId, 6> ids;
  for (auto& v : in) {
    metas.push_back(&meta(v));
    ids.push_back(id(v));
    if (has("quantised") && !takes_as_is(op, metas.back()->dtype)) return emit_on_quantised(*this, op, attrs, in, out);
  }
  SmallVec<DType, 6> want(in.size());
  if (promote_op(op, {metas.data(), metas.size()}, {want.data(), want.size()}))
    for (size_t i = 0; i < in.size(); ++i)
      if (want[i] != metas[i]->dtype) ids[i] = id(cast(in[i], want[i]));
  const bool sized = attrs && !attrs->sizes().empty();
  NodeId n = g_->add_node(op, sized ? op.schema.build(op.name, attrs->values()) : attrs, {ids.data(), ids.size()},
                          at_.loc, at_.before);
  // What is made from nothing is where the op is whose part it is.
  if (ids.empty() && at_.before != kNone && !g_->node(at_.before).outputs.empty())
    for (ValueId v : g_->node(n).outputs) g_->place(v, g_->meta(g_->node(at_.before).outputs[0]).cn);
  if (has("sizes") && sized)
    for (auto& s : attrs->sizes()) g_->add_size(n, {s.field, s.element, static_cast<const IrVal*>(s.value.get())->id});
  if (has("sizes") && any_sizes_) note_sizes(n, sized);
  for (size_t i = 0; i < out.size(); ++i) out[i] = val(g_->node(n).outputs[i]);
}

void GraphBuilder::let_sizes_vary() {
  MGE_ASSERT(evaluate_, "sizes cannot be followed without an evaluator");
  if (!has("sizes")) return;  // the model was read by a build that has them, and no attribute waited for any
  any_sizes_ = true;
  for (ValueId v : g_->inputs())
    if (g_->meta(v).shape.rank) put(vary_, v);
}

void GraphBuilder::put(std::vector<bool>& set, ValueId v) {
  if (static_cast<size_t>(v) >= set.size()) set.resize(static_cast<size_t>(v) + 1);
  set[static_cast<size_t>(v)] = true;
}

void GraphBuilder::note_sizes(NodeId n, bool sized) {
  static const OpDef& shape_of = OpRegistry::global().get("shape_of");
  const Node& x = g_->node(n);
  bool vary = sized, sizes = false, constants = true;
  for (ValueId v : x.inputs) {
    vary |= in(vary_, v);
    sizes |= in(sizes_, v);
    constants &= in(sizes_, v) || in(fixed_, v) || g_->constant_of(v);
  }
  if (x.op == &shape_of) {
    if (vary) put(sizes_, x.outputs[0]);
    return;
  }
  for (ValueId v : x.outputs) {
    if (vary) put(vary_, v);
    if (constants && !vary && !takes_token(*x.op)) put(sizes ? sizes_ : fixed_, v);
  }
}

Val GraphBuilder::size_operand(const Val& v) {
  if (!has("sizes") || !any_size(v)) return {};
  auto [at, fresh] = shapes_.try_emplace(id(v), kNone);
  if (fresh) {
    const Val s = emit1("shape_of", {v});
    shapes_[id(v)] = id(s);
    return s;
  }
  return val(at->second);
}

std::optional<SizeValues> GraphBuilder::size_values(const Val& v) {
  std::optional<ConstTensor> c = folded(id(v));
  if (!c || !is_int(c->meta.dtype)) return std::nullopt;
  SizeValues out{{}, in(sizes_, id(v)) ? v : Val()};
  for (int64_t i = 0; i < c->meta.shape.numel(); ++i) out.now.push_back(integer_at(*c, i));
  return out;
}

void GraphBuilder::fix(const Val& v) {
  if (!has("sizes") || !in(sizes_, id(v))) return;
  std::optional<ConstTensor> c = folded(id(v));
  MGE_ASSERT(c, "a size that cannot be computed");
  const char* p = static_cast<const char*>(c->storage->ptr) + c->offset;
  g_->add_guard({id(v), std::vector<char>(p, p + c->meta.bytes()), at_.loc});
}

Val GraphBuilder::constant(double value, DType dtype, const Val& like) {
  Meta m;
  m.dtype = dtype;
  m.cn = like ? meta(like).cn : nullptr;
  return val(add_scalar(*g_, value, m));
}

Val GraphBuilder::literal(const Meta& m, const void* data) { return val(g_->add_constant_copy(m, data)); }

std::optional<HostValue> GraphBuilder::known(const Val& v) {
  std::optional<ConstTensor> c = folded(id(v));
  if (!c) return std::nullopt;
  fix(v);
  const char* p = static_cast<const char*>(c->storage->ptr) + c->offset;
  return HostValue{c->meta.dtype, c->meta.shape, std::vector<char>(p, p + c->meta.bytes())};
}

// Shape arithmetic in a graph: a few integers computed from constants. Large values are left to constant folding.
std::optional<ConstTensor> GraphBuilder::folded(ValueId v) {
  constexpr int64_t kTiny = 64;
  if (const Constant* c = g_->constant_of(v)) {
    if (!c->storage) return std::nullopt;
    return ConstTensor{g_->meta(v), c->storage, c->offset};
  }
  if (auto at = folds_.find(v); at != folds_.end()) return at->second;
  const Value& x = g_->value(v);
  if (!evaluate_ || x.kind != ValueKind::Result || x.meta.shape.numel() > kTiny) return std::nullopt;
  const Node& n = g_->node(x.producer);
  if (takes_token(*n.op)) return std::nullopt;
  if (has("sizes") && any_sizes_ && n.op->name == "shape_of") {
    const Shape& s = g_->meta(n.inputs[0]).shape;
    RefPtr<Storage> numbers = allocate_storage({}, std::max<size_t>(x.meta.bytes(), 1));
    for (int i = 0; i < s.rank; ++i) static_cast<int32_t*>(numbers->ptr)[i] = static_cast<int32_t>(s[i]);
    return folds_.emplace(v, ConstTensor{x.meta, numbers, 0}).first->second;
  }
  std::vector<ConstTensor> in, out;
  for (ValueId i : n.inputs) {
    auto c = folded(i);
    if (!c) return std::nullopt;
    in.push_back(std::move(*c));
  }
  for (ValueId o : n.outputs) out.push_back({g_->meta(o), nullptr, 0});
  evaluate_(*n.op, n.attrs.get(), in, out);
  for (size_t i = 0; i < out.size(); ++i) folds_.emplace(n.outputs[i], out[i]);
  return folds_.at(v);
}

ValueId add_scalar(Graph& g, double value, const Meta& m) {
  std::vector<char> bytes(m.bytes());
  for (size_t i = 0; i < bytes.size();) i += store_scalar(&bytes[i], value, m.dtype);
  return g.add_constant_copy(m, bytes.data());
}

bool decompose_node(Graph& g, NodeId n) {
  const Node& x = g.node(n);
  if (!x.op->decompose) return false;
  GraphBuilder b(&g, {x.loc, n});
  Rewrite rewrite(g);
  SmallVec<Val, 6> in;
  for (ValueId v : x.inputs) in.push_back(b.val(v));
  SmallVec<Val, 4> out(x.outputs.size());
  x.op->decompose(b, x.attrs.get(), {in.data(), in.size()}, {out.data(), out.size()});
  for (size_t i = 0; i < out.size(); ++i)
    // Parts promote what the whole takes as it is: float16 values beside float32 scales.
    if (out[i]) g.replace_all_uses(x.outputs[i], GraphBuilder::id(cast(out[i], g.meta(x.outputs[i]).dtype)));
  rewrite.erase(n);
  return true;
}

}  // namespace mge::ir
