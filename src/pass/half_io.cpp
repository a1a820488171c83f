#include "pass/half_io.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "op/elementwise/typecvt.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

// Floating operands of these are positions, boxes or step counts: 11 bits of significand would move them.
constexpr std::string_view kPositions[] = {"remap",           "remap_dx", "remap_dmap", "roi_align",   "roi_align_bwd",
                                           "roi_pooling",     "nms",      "wrap_index", "check_range", "resize",
                                           "roi_pooling_bwd", "sort",     "topk",       "argmax",      "argmin"};

struct HalfIo {
  Graph& g;
  DType half;
  const OpDef& cast = OpRegistry::global().get("typecvt");
  std::unordered_map<ValueId, ValueId> halves = {};  // of a float32 value: what it is in 16 bits

  ValueId cast_to(DType t, ValueId v, NodeId before, ir::LocId loc) {
    return g.node(g.add_node(cast, make_attrs(TypeCvtAttrs{t}), {&v, 1}, loc, before)).outputs[0];
  }
  ValueId half_of(ValueId v, NodeId n) {
    auto [at, fresh] = halves.try_emplace(v, kNone);
    if (fresh) {
      const NodeId p = g.value(v).producer;
      at->second = cast_to(half, v, n, p == kNone ? g.node(n).loc : g.node(p).loc);
    }
    return at->second;
  }
  /// A constant whose numbers the format loses: too large for it, or one number that would become 0.
  bool lost(ValueId v) const {
    const ir::Constant* c = g.constant_of(v);
    if (!c || !c->storage || half == DType::BF16) return false;
    const int64_t n = g.meta(v).shape.numel();
    const auto* p = static_cast<const char*>(c->data());
    for (int64_t i = 0; i < n; ++i) {
      float x;
      std::memcpy(&x, p + static_cast<size_t>(i) * sizeof x, sizeof x);
      const float size = std::abs(x);
      if (std::isfinite(size) && size > 65504.0f) return true;
      if (n == 1 && size != 0 && size < 0x1p-14f) return true;
    }
    return false;
  }
  bool stays(const ir::Node& x) const {
    if (ir::takes_token(*x.op) || x.op->name == "fill_like" || x.op->name == "byte_table") return true;
    if (std::ranges::find(kPositions, std::string_view(x.op->name)) != std::end(kPositions)) return true;
    return std::ranges::any_of(
        x.inputs, [&](ValueId v) { return is_quant(g.meta(v).dtype) || (g.meta(v).dtype == DType::F32 && lost(v)); });
  }

  bool convert(NodeId n) {
    const ir::Node& x = g.node(n);
    if (x.op == &cast) {  // a cast that is wanted anyhow
      const ValueId from = x.inputs[0], to = x.outputs[0];
      if (g.meta(from).dtype == half && g.meta(to).dtype == DType::F32) return halves[to] = from, false;
      if (g.meta(from).dtype == DType::F32 && g.meta(to).dtype == half) {
        auto [at, fresh] = halves.try_emplace(from, to);
        if (fresh) return false;
        replace_value(g, to, at->second);
        g.erase(n);
        return true;
      }
    }
    const bool widens = x.op == &cast && g.meta(x.outputs[0]).dtype == DType::F32;
    bool any = widens;
    for (ValueId v : x.inputs) any |= g.meta(v).dtype == DType::F32;
    if (!any || stays(x)) return false;
    const Attrs attrs = widens ? make_attrs(TypeCvtAttrs{half}) : x.attrs;
    SmallVec<ValueId, 6> in;
    SmallVec<Meta, 6> metas;
    SmallVec<const Meta*, 6> pointers;
    // Statistics and parameters of a normalisation are few and stay as accurate as they are.
    auto halved = [&](size_t i) {
      return g.meta(x.inputs[i]).dtype == DType::F32 && (i == 0 || x.op->amp != Amp::Norm);
    };
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      metas.push_back(g.meta(x.inputs[i]));
      if (halved(i)) metas.back().dtype = half;
    }
    for (auto& m : metas) pointers.push_back(&m);
    SmallVec<Meta, 4> out(x.outputs.size());
    try {
      infer_op(*x.op, attrs.get(), {pointers.data(), pointers.size()}, {out.data(), out.size()});
    } catch (const Error&) {
      return false;  // takes no 16-bit operands
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const Meta& was = g.meta(x.outputs[i]);
      if (!(out[i].shape == was.shape) || (out[i].dtype != was.dtype && was.dtype != DType::F32)) return false;
    }
    for (size_t i = 0; i < x.inputs.size(); ++i) in.push_back(halved(i) ? half_of(x.inputs[i], n) : x.inputs[i]);
    const NodeId made = g.add_node(*x.op, attrs, {in.data(), in.size()}, x.loc, n);
    for (auto& s : x.sizes) g.add_size(made, s);
    g.stand_for(made, n);
    for (size_t i = 0; i < x.outputs.size(); ++i) {
      const ValueId was = x.outputs[i], now = g.node(made).outputs[i];
      if (g.meta(now).same_type(g.meta(was))) {
        replace_value(g, was, now);
        continue;
      }
      if (!g.value(was).name.empty()) g.set_name(now, g.value(was).name);
      const ValueId back = cast_to(DType::F32, now, n, x.loc);
      g.replace_all_uses(was, back);
      halves[back] = now;
    }
    g.erase(n);
    return true;
  }
};

}  // namespace

bool half_io(Graph& g, DType half) {
  HalfIo io{g, half};
  bool changed = false;
  for (NodeId n : g.order()) changed |= io.convert(n);
  return changed;
}

}  // namespace mge::pass
