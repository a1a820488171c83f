#include "pass/fuse_preprocess.h"

#include <algorithm>

#include "op/shape/shape_ops.h"
#include "op/vision/byte_table.h"
#include "pass/rewrite.h"

namespace mge::pass {
namespace {

using ir::ConstTensor;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

constexpr int64_t kMaxChannels = 64;

const Ints kToNchw{0, 3, 1, 2};

// One chain from the bytes on. The table is kept as a tensor of the layout the chain is in, with the 256 bytes along
// the axis of images and 1 for height and width, so each step is done to it by the very same op.
struct Chain {
  Graph& g;
  const ir::Evaluator& evaluate;
  ValueId at;             // the value reached
  int channel_axis = -1;  // of that value; -1: not known yet, all steps so far treat channels alike
  int64_t channels = 1;
  bool transposed = false;
  int steps = 0;
  ConstTensor table = {};
  std::vector<NodeId> nodes = {};

  bool image() const { return g.meta(at).shape.rank == 4; }

  Shape table_shape(int64_t c) const {
    Shape s = {256};
    for (int i = 1; i < g.meta(at).shape.rank; ++i) s.push_back(i == channel_axis ? c : 1);
    return s;
  }
  ConstTensor run(const OpDef& op, const Attrs& attrs, std::span<const ConstTensor> in) const {
    SmallVec<const Meta*, 4> metas;
    for (auto& t : in) metas.push_back(&t.meta);
    ConstTensor out;
    infer_op(op, attrs.get(), {metas.data(), metas.size()}, {&out.meta, 1});
    evaluate(op, attrs.get(), in, {&out, 1});
    return out;
  }

  /// The channels that constant `v` tells apart, when it can stand beside the chain in any size of images: 1, or those
  /// of axis `*axis`; 0 when it cannot.
  int64_t told_apart(ValueId v, int* axis) const {
    const ir::Constant* c = g.constant_of(v);
    const Shape& s = g.meta(v).shape;
    const int rank = g.meta(at).shape.rank;
    if (!c || !c->storage || s.rank > rank) return 0;
    int64_t n = 1;
    for (int i = 0; i < s.rank; ++i) {
      if (s[i] == 1) continue;
      const int where = rank - s.rank + i;
      if (n != 1 || where == 0) return 0;
      n = s[i];
      *axis = where;
    }
    return n > kMaxChannels ? 0 : n;
  }

  /// Takes the only reader of `at` along. False: the chain ends here.
  bool grow() {
    if (g.escapes(at) || g.value(at).users.size() != 1) return false;
    return grow(g.value(at).users[0]);
  }
  bool grow(NodeId n) {
    const ir::Node& x = g.node(n);
    if (x.outputs.size() != 1 || !x.sizes.empty()) return false;
    if (x.op->name == "transpose") {
      if (transposed || !image() || !(attrs_as<PermAttrs>(x.attrs.get()).perm == kToNchw)) return false;
      if (channels > 1 && channel_axis != 3) return false;
      if (table.storage) table = run(*x.op, x.attrs, {&table, 1});
      transposed = true;
      if (channels > 1) channel_axis = 1;
      return take(n);
    }
    if (!x.op->is(kElementwise)) return false;
    if (!table.storage) {  // the cast of the bytes
      if (x.op->name != "typecvt" || !is_float(g.meta(x.outputs[0]).dtype)) return false;
      return start(x) && take(n);
    }
    if (!is_float(g.meta(x.outputs[0]).dtype) || !(g.meta(x.outputs[0]).shape == g.meta(at).shape)) return false;
    std::vector<ConstTensor> in;
    int64_t most = channels;
    int axis = channel_axis;
    for (ValueId v : x.inputs) {
      if (v == at) continue;
      int own = -1;
      const int64_t k = told_apart(v, &own);
      if (k == 0 || (k > 1 && most > 1 && (k != most || own != axis))) return false;
      if (k > 1) {
        // Before a transposition channels are last; after it, or without one, they may be the second axis.
        if (transposed ? own != 1 : own != 3 && own != 1) return false;
        most = k;
        axis = own;
      }
    }
    if (most > 1 && !image()) return false;
    channels = most;
    channel_axis = axis;
    for (ValueId v : x.inputs) {
      const ir::Constant* c = g.constant_of(v);
      in.push_back(v == at ? table : ConstTensor{g.meta(v), c->storage, c->offset});
    }
    table = run(*x.op, x.attrs, in);
    ++steps;
    return take(n);
  }
  bool take(NodeId n) {
    nodes.push_back(n);
    at = g.node(n).outputs[0];
    return true;
  }
  // 0..255 as bytes, then the cast.
  bool start(const ir::Node& x) {
    ConstTensor bytes;
    bytes.meta = g.meta(at);
    bytes.meta.shape = table_shape(1);
    bytes.storage = allocate_storage({}, 256);
    for (int i = 0; i < 256; ++i) static_cast<uint8_t*>(bytes.storage->ptr)[i] = static_cast<uint8_t>(i);
    table = run(*x.op, x.attrs, {&bytes, 1});
    return true;
  }
};

bool fuse_from(Graph& g, ValueId bytes, NodeId first, const ir::Evaluator& evaluate) {
  Chain c{g, evaluate, bytes};
  try {
    for (bool more = c.grow(first); more;) more = c.grow();
  } catch (const Error&) {
    return false;  // something that cannot be evaluated stays as it is
  }
  if (!c.table.storage || c.nodes.size() < 2) return false;

  // [256, ..., C, ...] as [C, 256].
  const OpRegistry& ops = OpRegistry::global();
  const int64_t rows = c.channels;
  ConstTensor t = c.run(ops.get("reshape"), make_attrs(ShapeAttrs{{256, rows}}), {&c.table, 1});
  t = c.run(ops.get("transpose"), make_attrs(PermAttrs{{1, 0}}), {&t, 1});
  ByteTableAttrs a;
  a.to_nchw = c.transposed;
  if (!c.transposed && rows > 1) a.axis = c.channel_axis;
  const NodeId last = c.nodes.back();
  const ValueId in[] = {bytes, g.add_constant(t.meta, t.storage, t.offset)};
  const NodeId made = g.add_node(ops.get("byte_table"), make_attrs(a), in, g.node(c.nodes.front()).loc, last);
  replace_value(g, c.at, g.node(made).outputs[0]);
  for (NodeId n : c.nodes) g.stand_for(made, n);
  for (size_t i = c.nodes.size(); i-- > 0;) g.erase(c.nodes[i]);
  return true;
}

}  // namespace

bool fuse_preprocess(Graph& g, const ir::Evaluator& evaluate) {
  bool changed = false;
  std::vector<ValueId> starts(g.inputs().begin(), g.inputs().end());
  for (NodeId n : g.order())
    for (ValueId v : g.node(n).outputs) starts.push_back(v);
  for (ValueId v : starts) {
    if (g.value(v).erased || g.meta(v).dtype != DType::U8 || g.meta(v).shape.rank == 0) continue;
    auto readers = g.value(v).users;  // a copy: the list changes
    for (NodeId n : readers)
      if (!g.node(n).erased) changed |= fuse_from(g, v, n, evaluate);
  }
  return changed;
}

}  // namespace mge::pass
