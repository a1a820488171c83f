// Picking and placing by index; order.
#include <algorithm>
#include <numeric>

#include "op/index/indexing.h"
#include "op/index/multi_index.h"
#include "op/index/sort.h"
#include "op/shape/shape_ops.h"
#include "op/vision/vision.h"
#include "serial/mgb/write_impl.h"

namespace mge::serial::mgb {
namespace {

/// Indices for its IndexingMultiAxisVec: vectors of one length, the last axis first.
struct Index {
  compat::Rows items;
  Vars vars;
  Shape shape;     // of the indices together
  VarId sizes;     // as a value
  int64_t at = 0;  // where their one dimension comes to lie
};

Index index_of(Oprs& w, const Ints& axes, size_t first, int rank) {
  Index ix;
  Vars given;
  for (size_t i = 0; i < axes.size(); ++i) {
    given.push_back(w.in(first + i));
    ix.shape = i ? broadcast_shapes("dump", ix.shape, w.meta(first + i).shape) : w.meta(first + i).shape;
  }
  ix.sizes = given.size() == 1 ? w.shape_of(given[0]) : w.opr1("GetVarShapeV1", "OptionalAxisV1", {}, given);
  std::vector<size_t> order(axes.size());
  std::iota(order.begin(), order.end(), 0);
  const Ints all = Oprs::normal(axes, rank);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a] > all[b]; });
  for (size_t i : order) {
    const Shape& s = w.meta(first + i).shape;
    VarId v = given[i];
    if (s != ix.shape) v = w.broadcast(v, ix.sizes);
    if (ix.shape.rank > 1) v = w.reshape(v, {-1});
    ix.items.push_back({all[i], 0, 0, 0, 1});
    ix.vars.push_back(v);
  }
  const int64_t low = *std::min_element(all.begin(), all.end()), high = *std::max_element(all.begin(), all.end());
  ix.at = high - low + 1 == static_cast<int64_t>(all.size()) ? low : 0;
  return ix;
}

/// One dimension at `ix.at` becomes those of the indices at `at`.
VarId spread(Oprs& w, VarId y, const Index& ix, int64_t at, int rest) {
  const int n = ix.shape.rank;
  if (n == 0) y = rest ? w.remove_axes(y, {ix.at}, rest + 1) : y;
  if (n > 1) {
    const VarId sizes = w.shape_of(y);
    Vars parts;
    if (ix.at > 0) parts.push_back(w.part(sizes, 0, ix.at));
    parts.push_back(ix.sizes);
    if (ix.at < rest) parts.push_back(w.part(sizes, ix.at + 1, INT32_MAX));
    y = w.reshape(y, w.join(parts));
  }
  if (ix.at == at || n == 0) return y;
  Ints perm;
  auto source = [&](int64_t k) { return k < ix.at ? k : k + n; };  // of a dimension that is not indexed
  for (int64_t k = 0; k < at; ++k) perm.push_back(source(k));
  for (int i = 0; i < n; ++i) perm.push_back(ix.at + i);
  for (int64_t k = at; k < rest; ++k) perm.push_back(source(k));
  return w.dimshuffle(y, perm, rest + n);
}

void get(Oprs& w, const Ints& axes, int64_t at) {
  const int rank = w.meta(0).shape.rank;
  const Index ix = index_of(w, axes, 1, rank);
  const Meta& m = w.meta(0);
  const bool quantised = is_quant(m.dtype);  // those it does not pick; back and forth gives the same integers
  Vars in{quantised ? w.convert(w.in(0), DType::F32) : w.in(0)};
  in.insert(in.end(), ix.vars.begin(), ix.vars.end());
  VarId y = w.opr1("IndexingMultiAxisVec", "IndexDescMaskDump", {{"items", ix.items}}, in);
  if (quantised) y = w.convert(y, m.dtype, m.quant);
  w.result(spread(w, y, ix, at, rank - static_cast<int>(axes.size())));
}
void take(Oprs& w) {
  const int64_t axis = w.attrs<TakeAttrs>().axis;
  const int64_t at = axis < 0 ? axis + w.meta(0).shape.rank : axis;
  get(w, {at}, at);
}
void index_get(Oprs& w) {
  const auto& at = w.attrs<MultiIndexAttrs>();
  get(w, at.axes, at.at);
}

void index_put(Oprs& w) {
  const auto& at = w.attrs<MultiIndexAttrs>();
  const int rank = w.meta(0).shape.rank;
  const Index ix = index_of(w, at.axes, 2, rank);
  const int rest = rank - static_cast<int>(at.axes.size()), n = ix.shape.rank;
  VarId v = w.in(1);
  if (ix.at != at.at && n > 0) {  // the dimensions of the index come to where the operator has them
    Ints perm;
    auto source = [&](int64_t k) { return k < at.at ? k : k + n; };
    for (int64_t k = 0; k < ix.at; ++k) perm.push_back(source(k));
    for (int i = 0; i < n; ++i) perm.push_back(at.at + i);
    for (int64_t k = ix.at; k < rest; ++k) perm.push_back(source(k));
    v = w.dimshuffle(v, perm, rest + n);
  }
  if (n > 1) {
    const VarId sizes = w.shape_of(v);
    Vars parts;
    if (ix.at > 0) parts.push_back(w.part(sizes, 0, ix.at));
    parts.push_back(w.ints({-1}));
    if (ix.at < rest) parts.push_back(w.part(sizes, ix.at + n, INT32_MAX));
    v = w.reshape(v, w.join(parts), ix.at);
  } else if (n == 0 && rest) {
    v = w.add_axes(v, {ix.at});
  }
  Vars in{w.in(0), v};
  in.insert(in.end(), ix.vars.begin(), ix.vars.end());
  const char* type = w.node().op->name == "index_set" ? "IndexingSetMultiAxisVec" : "IndexingIncrMultiAxisVec";
  w.result(w.opr1(type, "IndexDescMaskDump", {{"items", ix.items}}, in));
}

// y[i][j] = x[index[i][j]][j]: the other axes count.
void gather(Oprs& w) {
  const int64_t given = w.attrs<GatherAttrs>().axis;
  const Shape& s = w.meta(1).shape;
  const int rank = s.rank;
  const int64_t axis = given < 0 ? given + rank : given;
  compat::Rows items;
  Vars in{w.in(0)};
  const VarId sizes = rank > 1 ? w.shape_of(w.in(1)) : Oprs::kNoVar;
  for (int i = rank; i-- > 0;) {
    items.push_back({i, 0, 0, 0, 1});
    if (i == axis) {
      in.push_back(rank > 1 ? w.reshape(w.in(1), {-1}) : w.in(1));
      continue;
    }
    if (w.graph().is_sized()) {  // 0, 1, … along axis i, as many as there are then
      const VarId ones = w.broadcast(w.ints({1}), w.part(sizes, i, i + 1));
      VarId at = w.opr1("CumsumV1", "Cumsum", {{"axis", int64_t{0}}, {"exclusive", true}, {"reverse", false}}, {ones});
      Ints axes;
      for (int k = 0; k < rank; ++k)
        if (k != i) axes.push_back(k);
      in.push_back(w.reshape(w.broadcast(w.add_axes(at, axes), sizes), {-1}));
      continue;
    }
    std::vector<int64_t> count(static_cast<size_t>(s.numel()));
    int64_t inner = 1;
    for (int k = i + 1; k < rank; ++k) inner *= s[k];
    for (int64_t k = 0; k < s.numel(); ++k) count[static_cast<size_t>(k)] = k / inner % s[i];
    in.push_back(w.ints(count));
  }
  const VarId flat = w.opr1("IndexingMultiAxisVec", "IndexDescMaskDump", {{"items", items}}, in);
  w.result(rank > 1 ? w.reshape(flat, sizes) : flat);
}

void one_hot(Oprs& w) {
  const int64_t given = w.attrs<OneHotAttrs>().axis;
  const int rank = w.meta(0).shape.rank;
  const int64_t axis = given < 0 ? given + rank : given;
  const VarId y = w.opr1("IndexingOneHot", "Axis", {{"axis", axis}}, {w.in(0), w.in(1)});
  w.result(w.remove_axes(y, {axis}, rank));
}
void set_one_hot(Oprs& w) {
  const int64_t given = w.attrs<OneHotAttrs>().axis;
  const int rank = w.meta(0).shape.rank;
  const int64_t axis = given < 0 ? given + rank : given;
  VarId v = w.in(2);
  if (w.meta(2).shape.rank == rank - 1) v = w.meta(2).shape.rank ? w.add_axes(v, {axis}) : w.reshape(v, {1});
  w.result(w.opr1("IndexingSetOneHot", "Axis", {{"axis", axis}}, {w.in(0), w.in(1), v}));
}
std::string refuse_vector(const Graph& g, const ir::Node& n) {
  return g.meta(n.inputs[0]).shape.rank < 2 ? "of a vector" : "";
}

/// x as rows along `axis`, and the way back.
struct Rows {
  VarId flat, lead;  // [-1, n]; the sizes of the others
  Ints back;
  int rank;
};
Rows rows_of(Oprs& w, int64_t axis) {
  const Shape& s = w.meta(0).shape;
  Rows r{w.in(0), Oprs::kNoVar, {}, s.rank};
  if (axis < 0) axis += s.rank;
  if (axis != s.rank - 1) {
    Ints perm;
    for (int i = 0; i < s.rank; ++i)
      if (i != axis) perm.push_back(i);
    perm.push_back(axis);
    r.back.resize(static_cast<size_t>(s.rank));
    for (int i = 0; i < s.rank; ++i) r.back[static_cast<size_t>(perm[static_cast<size_t>(i)])] = i;
    r.flat = w.dimshuffle(r.flat, perm, s.rank);
  }
  if (s.rank == 2) return r;
  const VarId sizes = w.shape_of(r.flat);
  if (s.rank > 1) r.lead = w.part(sizes, 0, s.rank - 1);
  r.flat = w.reshape(r.flat, w.join({w.ints({-1}), w.part(sizes, s.rank - 1, INT32_MAX)}), 0);
  return r;
}
VarId from_rows(Oprs& w, VarId y, const Rows& r) {
  if (r.rank == 1) y = w.reshape(y, {-1});
  if (r.rank > 2) y = w.reshape(y, w.join({r.lead, w.part(w.shape_of(y), 1, 2)}));
  return r.back.empty() ? y : w.dimshuffle(y, r.back, r.rank);
}
void ordered(Oprs& w, const Vars& v, const Rows& r) {
  for (size_t i = 0; i < 2; ++i)
    if (w.used(i)) w.result(from_rows(w, v[i], r), i);
}
void sort(Oprs& w) {
  const auto& at = w.attrs<SortAttrs>();
  const Rows r = rows_of(w, at.axis);
  ordered(w, w.opr("Argsort", "Argsort", {{"order", int64_t{at.descending}}}, {r.flat}, 2), r);
}
void topk(Oprs& w) {
  const auto& at = w.attrs<TopkAttrs>();
  const Rows r = rows_of(w, at.axis);
  VarId k = w.size_var("k", SizeOperand::kWhole);  // negative: the largest
  if (k == Oprs::kNoVar)
    k = w.ints({at.descending ? -at.k : at.k});
  else if (at.descending)
    k = w.elemwise("NEGATE", {k});
  ordered(w, w.opr("TopK", "TopK", {{"mode", int64_t{at.sorted ? 2 : 1}}}, {r.flat, k}, 2), r);
}
std::string refuse_topk(const Graph&, const ir::Node& n) {
  return n.sizes.empty() && attrs_as<TopkAttrs>(n.attrs.get()).k == 0 ? "with k=0" : "";
}
void wrap_index(Oprs& w) {
  const auto& at = w.attrs<WrapIndexAttrs>();
  if (!at.negative) {  // a check alone
    w.sizes_are_written();
    return w.result(w.in(0));
  }
  VarId size = w.size_var("size", SizeOperand::kWhole);
  if (size == Oprs::kNoVar) size = w.ints({at.size});
  w.result(w.elemwise("MOD", {w.elemwise("ADD", {w.in(0), size}), size}));
}

// Their list has as many entries as there are; ours is as long as x and comes with a count. Where it is cut there at
// once, the two are the same.
void nonzero(Oprs& w) {
  VarId mask = w.in(0);
  if (w.meta(0).dtype != DType::Bool) mask = w.compare("NEQ", {mask, w.number(0, w.meta(0).dtype)});
  const VarId flat = w.meta(0).shape.rank > 1 ? w.reshape(mask, {-1}) : mask;
  const Vars v = w.opr("CondTake", "CondTake", {{"mode", int64_t{0}}, {"val", 1.0}}, {flat, flat}, 2);
  w.result(v[1], 0);
  w.result(w.shape_of(v[1]), 1);
}
std::string refuse_uncut(const Graph& g, const ir::Node& n) {
  for (ir::NodeId u : g.value(n.outputs[0]).users) {
    const ir::Node& x = g.node(u);
    const bool cut = x.op->name == "slice" && x.sizes.size() == 1 && x.sizes[0].value == n.outputs[1];
    if (!cut) return "a list of places that is not cut at its count";
  }
  return g.escapes(n.outputs[0]) ? "a list of places that is not cut at its count" : std::string();
}

// Theirs takes boxes in the order of their scores and repeats the last place behind its count.
/// How many are kept at most, a number there: min(the number, how many there are) is one. kNone: it is not known.
int64_t most_kept(const Graph& g, const ir::Node& n) {
  if (n.sizes.empty()) return attrs_as<NmsAttrs>(n.attrs.get()).max_output;
  const ir::NodeId from = g.value(n.sizes[0].value).producer;
  if (from == ir::kNone || g.node(from).op->name != "minimum") return ir::kNone;
  for (ir::ValueId v : g.node(from).inputs) {
    const ir::Constant* c = g.constant_of(v);
    if (!c || !c->storage || g.meta(v).shape.numel() != 1) continue;
    if (g.meta(v).dtype == DType::I32) return *static_cast<const int32_t*>(c->data());
    if (g.meta(v).dtype == DType::I64) return *static_cast<const int64_t*>(c->data());
  }
  return ir::kNone;
}
VarId picked(Oprs& w, VarId x, VarId index) {
  return w.opr1("IndexingMultiAxisVec", "IndexDescMaskDump", {{"items", compat::Rows{{0, 0, 0, 0, 1}}}}, {x, index});
}
void nms(Oprs& w) {
  const VarId scores = w.reshape(w.in(1), {1, -1});
  const VarId order = w.reshape(w.opr("Argsort", "Argsort", {{"order", int64_t{1}}}, {scores}, 2)[1], {-1});
  const VarId boxes = w.add_axes(picked(w, w.in(0), order), {0});
  w.sizes_are_written();
  const Vars kept = w.opr(
      "NMSKeepMGB", "NMSKeep",
      {{"iou_thresh", w.attrs<NmsAttrs>().iou_thresh}, {"max_output", most_kept(w.graph(), w.node())}}, {boxes}, 2);
  VarId places = picked(w, order, w.reshape(kept[0], {-1}));
  if (!refuse_uncut(w.graph(), w.node()).empty()) {  // behind the count ours has -1
    Ints all(static_cast<size_t>(w.attrs<NmsAttrs>().max_output));
    std::iota(all.begin(), all.end(), 0);
    const VarId there = w.convert(w.compare("LT", {w.ints(all), kept[1]}), DType::I32), one = w.ints({1});
    places = w.elemwise("SUB", {w.elemwise("MUL", {w.elemwise("ADD", {places, one}), there}), one});
  }
  w.result(places, 0);
  w.result(kept[1], 1);
}
std::string refuse_nms(const Graph& g, const ir::Node& n) {
  const int64_t most = most_kept(g, n);
  if (most == ir::kNone) return "without max_output, which must be a number there";
  return most < 1 ? "with max_output=0" : n.sizes.empty() ? "" : refuse_uncut(g, n);
}

// One row of places per axis: place / inner % size.
void unravel(Oprs& w) {
  const Oprs::Sizes s = w.sizes("shape");
  const int rank = static_cast<int>(s.now.size());
  Vars rows(static_cast<size_t>(rank));
  VarId inner = Oprs::kNoVar;
  for (int i = rank; i-- > 0;) {
    const VarId size = w.part(s.var, i, i + 1);
    const bool last = i + 1 == rank;  // MegEngine's own rewriting stumbles over x // 1
    const VarId row = w.elemwise("MOD", {last ? w.in(0) : w.elemwise("FLOOR_DIV", {w.in(0), inner}), size});
    rows[static_cast<size_t>(i)] = w.add_axes(row, {0});
    inner = last ? size : w.elemwise("MUL", {inner, size});
  }
  w.result(w.join(rows));
}

}  // namespace

std::span<const RuleRow> index_rules() {
  static const std::vector<RuleRow> rows = {
      {"take", take},
      {"index_get", index_get},
      {"index_set", index_put},
      {"index_incr", index_put},
      {"gather", gather},
      {"indexing_one_hot", one_hot, refuse_vector},
      {"set_one_hot", set_one_hot, refuse_vector},
      {"sort", sort},
      {"topk", topk, refuse_topk},
      {"wrap_index", wrap_index},
      {"nonzero", nonzero, refuse_uncut},
      {"nms", nms, refuse_nms},
      {"unravel", unravel},
  };
  return rows;
}

}  // namespace mge::serial::mgb
