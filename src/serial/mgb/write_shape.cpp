// Joining, cutting, rearranging; reductions and products, which go by axes.
#include <algorithm>
#include <numeric>

#include "op/linalg/linalg.h"
#include "op/matmul/matmul.h"
#include "op/quant/product.h"
#include "op/reduce/reduce.h"
#include "op/reduce/scan.h"
#include "op/shape/shape_ops.h"
#include "serial/mgb/write_impl.h"

namespace mge::serial::mgb {
namespace {

/// MegEngine's loader does not take an operator that changes nothing, as far as it can see.
bool changes_nothing(Oprs& w) {
  auto there = [](const Shape& s) { return s.rank ? s : Shape{1}; };
  return w.node().sizes.empty() && there(w.meta(0).shape) == there(w.out_meta().shape);
}

void reshape(Oprs& w) {
  if (w.node().sizes.empty() && changes_nothing(w)) return w.result(w.in(0));
  if (w.out_meta().shape.rank == 0) {
    w.sizes_are_written();  // there are none
    return w.result(w.reshape(w.in(0), {1}));
  }
  const Oprs::Sizes s = w.sizes("shape");
  int64_t open = 7;
  // The size to be found: where it is written as -1, or would be by a value (a graph of any sizes has one such value).
  for (size_t i = 0; i < s.now.size(); ++i)
    if (s.now[i] < 0) open = static_cast<int64_t>(i);
  w.result(w.reshape(w.in(0), s.var, open));
}
void flatten(Oprs& w) {
  const auto& at = w.attrs<RangeAttrs>();
  const int rank = w.meta(0).shape.rank;
  if (rank < 2) return w.result(w.in(0));
  const int64_t start = at.start < 0 ? at.start + rank : at.start, end = at.end < 0 ? at.end + rank : at.end;
  if (start == end) return w.result(w.in(0));
  const VarId shape = start == 0 && end == rank - 1 ? Oprs::kNoVar : w.shape_of(w.in(0));
  Vars parts;
  if (start > 0) parts.push_back(w.part(shape, 0, start));
  parts.push_back(w.ints({-1}));
  if (end + 1 < rank) parts.push_back(w.part(shape, end + 1, INT32_MAX));
  w.result(w.reshape(w.in(0), w.join(parts), start));
}
void transpose(Oprs& w) {
  const int rank = w.meta(0).shape.rank;
  const Ints perm = Oprs::normal(w.attrs<PermAttrs>().perm, rank);
  if (std::is_sorted(perm.begin(), perm.end())) return w.result(w.in(0));
  w.result(w.dimshuffle(w.in(0), perm, rank));
}
void broadcast_to(Oprs& w) {
  if (w.out_meta().shape.rank == 0) w.sizes_are_written();  // there are none
  if (w.out_meta().shape.rank == 0 || (w.node().sizes.empty() && changes_nothing(w))) return w.result(w.in(0));
  w.result(w.broadcast(w.in(0), w.sizes("shape").var));
}
// A reduction to a shape that is told by a tensor, of as many axes there.
void sum_to(Oprs& w) {
  if (w.node().sizes.empty() && changes_nothing(w)) return w.result(w.in(0));
  const int more = w.meta(0).shape.rank - w.out_meta().shape.rank;
  if (w.out_meta().shape.rank == 0) {
    w.sizes_are_written();  // there are none
    return w.result(w.opr1("ReduceV2", "Reduce", {{"mode", int64_t{0} /* SUM */}}, {w.in(0), w.ints({1})}));
  }
  const VarId shape = w.sizes("shape").var;
  const std::vector<int64_t> ones(static_cast<size_t>(more), 1);
  const VarId target = more ? w.join({w.ints(ones), shape}) : shape;
  const VarId y = w.opr1("ReduceV2", "Reduce", {{"mode", int64_t{0} /* SUM */}}, {w.in(0), target});
  w.result(more ? w.reshape(y, shape) : y);
}
void expand_dims(Oprs& w) {
  const int rank = w.out_meta().shape.rank;
  if (w.meta(0).shape.rank == 0) {
    const std::vector<int64_t> ones(static_cast<size_t>(rank), 1);
    return w.result(rank == 1 ? w.in(0) : w.reshape(w.in(0), w.ints(ones)));
  }
  w.result(w.add_axes(w.in(0), Oprs::normal(w.attrs<AxesAttrs>().axes, rank)));
}
void squeeze(Oprs& w) {
  const Shape& s = w.meta(0).shape;
  Ints axes = Oprs::normal(w.attrs<AxesAttrs>().axes, s.rank);
  if (axes.empty())
    for (int i = 0; i < s.rank; ++i)
      if (s[i] == 1) axes.push_back(i);
  w.result(w.remove_axes(w.in(0), axes, s.rank));
}

/// Rows of items and the vars behind them, last axis first.
struct Key {
  compat::Rows items;
  Vars vars;
  Ints picked;  // axes that single numbers take away
};
Key key_of(Oprs& w) {
  const auto& at = w.attrs<SliceAttrs>();
  const int rank = w.meta(0).shape.rank;
  std::vector<size_t> order(at.axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return at.axes[a] > at.axes[b]; });
  Key k;
  for (size_t i : order) {
    const int64_t axis = at.axes[i] < 0 ? at.axes[i] + rank : at.axes[i], start = at.starts[i], stop = at.stops[i],
                  step = at.steps[i];
    const VarId begin = w.size_var("starts", static_cast<int>(i)), end = w.size_var("stops", static_cast<int>(i));
    auto var = [&](VarId v, int64_t n) { return v != Oprs::kNoVar ? v : w.ints({n}); };
    constexpr int64_t kOpen = SliceAttrs::kOpen;
    if (at.python && step == 0) {
      k.items.push_back({axis, 0, 0, 0, 1});
      k.vars.push_back(var(begin, start));
      k.picked.push_back(axis);
      continue;
    }
    const bool down = step < 0;
    const bool has_begin = begin != Oprs::kNoVar || (at.python ? start != (down ? kOpen : 0) : start != 0 || down);
    const bool has_end = end != Oprs::kNoVar || (at.python ? stop != (down ? -kOpen : kOpen) : stop >= 0);
    if (!has_begin && !has_end && step == 1) continue;  // MegEngine's loader takes no item that says nothing
    k.items.push_back({axis, has_begin, has_end, step != 1, 0});
    if (has_begin) k.vars.push_back(var(begin, start));
    if (has_end) k.vars.push_back(var(end, stop));
    if (step != 1) k.vars.push_back(w.ints({step}));
  }
  return k;
}
void slice(Oprs& w) {
  const Key k = key_of(w);
  Vars in{w.in(0)};
  if (k.items.empty()) return w.result(in[0]);
  in.insert(in.end(), k.vars.begin(), k.vars.end());
  const VarId y = w.opr1("Subtensor", "IndexDescMaskDump", {{"items", k.items}}, in);
  // A number takes its axis away there; here it stays with size 1. Nothing is left of a vector but one element.
  const bool vector = w.meta(0).shape.rank == static_cast<int>(k.picked.size());
  w.result(vector ? (w.meta(0).shape.rank == 1 ? y : w.add_axes(y, Ints(k.picked.begin() + 1, k.picked.end())))
                  : w.add_axes(y, k.picked));
}
void set_slice(Oprs& w) {
  const Key k = key_of(w);
  if (k.items.empty()) return w.result(w.in(1));
  // A number takes its axis away from the value, too.
  Vars in{w.in(0), w.remove_axes(w.in(1), k.picked, w.meta(1).shape.rank)};
  in.insert(in.end(), k.vars.begin(), k.vars.end());
  w.result(w.opr1("SetSubtensor", "IndexDescMaskDump", {{"items", k.items}}, in));
}
void concat(Oprs& w) {
  Vars in;
  for (size_t i = 0; i < w.n_in(); ++i) in.push_back(w.in(i));
  int64_t axis = w.attrs<AxisAttrs>().axis;
  if (axis < 0) axis += w.out_meta().shape.rank;
  w.result(w.join(in, axis));
}
void shape_of(Oprs& w) { w.result(w.shape_of(w.in(0))); }
std::string refuse_scalar(const Graph& g, const ir::Node& n) {
  return g.meta(n.inputs[0]).shape.rank ? std::string() : "the sizes of a scalar";
}
void count_of(Oprs& w) {
  const auto& at = w.attrs<CountAttrs>();
  VarId all = Oprs::kNoVar;
  const int64_t rank = w.meta(0).shape[0];
  for (int64_t a : at.axes) {
    const int64_t i = a < 0 ? a + rank : a;
    const VarId one = w.part(w.in(0), i, i + 1);
    all = all == Oprs::kNoVar ? one : w.elemwise("MUL", {all, one});
  }
  if (all == Oprs::kNoVar) all = w.ints({1});
  w.result(Oprs::narrow(w.out_meta().dtype) == DType::I32 ? all : w.convert(all, w.out_meta().dtype));
}
void full(Oprs& w) {
  const VarId one = w.number(w.attrs<FullAttrs>().value, w.out_meta().dtype);
  w.result(w.out_meta().shape.rank ? w.broadcast(one, w.sizes("shape").var) : one);
}
void fill_like(Oprs& w) {
  const VarId one = w.number(w.attrs<ValueAttrs>().value, w.out_meta().dtype);
  w.result(w.out_meta().shape.rank ? w.broadcast(one, w.shape_of(w.in(0))) : one);
}

const char* mode_name(const std::string& mode) {
  return mode == "sum" ? "SUM" : mode == "mean" ? "MEAN" : mode == "max" ? "MAX" : mode == "min" ? "MIN" : "PRODUCT";
}
void reduce(Oprs& w) {
  const auto& at = w.attrs<ReduceAttrs>();
  const int rank = w.meta(0).shape.rank;
  const char* mode = mode_name(at.mode);
  const uint32_t mask = reduced_axes(at.axes, rank);
  VarId y = w.in(0);
  // Theirs give the type they get, or float32 of float16.
  const DType from = w.meta(0).dtype, to = w.out_meta().dtype;
  int64_t data_type = from == DType::F16 && to == DType::F32 ? 2 : 0;
  if (Oprs::narrow(from) != Oprs::narrow(to) && !data_type) y = w.convert(y, to);
  if (rank == 0) return w.result(data_type ? w.convert(y, to) : y);
  if (mask == (1u << rank) - 1 && !at.keepdims) {
    static constexpr const char* kNames[] = {"SUM", "SUM_SQR", "PRODUCT", "MIN", "MAX", "MEAN"};
    int64_t number = 0;
    while (std::string_view(kNames[number]) != mode) ++number;
    return w.result(w.opr1("ReduceV2", "Reduce", {{"mode", number}, {"data_type", data_type}}, {y, w.ints({1})}));
  }
  Ints gone;
  for (int i = rank; i-- > 0;)
    if (mask >> i & 1) {
      y = w.reduce(mode, y, i, std::exchange(data_type, 0));
      gone.push_back(i);
    }
  w.result(at.keepdims ? y : w.remove_axes(y, gone, rank));
}
void arg_reduce(Oprs& w) {
  const auto& at = w.attrs<ArgReduceAttrs>();
  const int rank = w.meta(0).shape.rank;
  const int64_t axis = at.axis < 0 ? at.axis + rank : at.axis;
  const VarId y = w.opr1(w.node().op->name == "argmax" ? "Argmax" : "Argmin", "Axis", {{"axis", axis}}, {w.in(0)});
  w.result(at.keepdims ? y : w.remove_axes(y, {axis}, rank));
}
void cumsum(Oprs& w) {
  const auto& at = w.attrs<CumsumAttrs>();
  const int64_t axis = at.axis < 0 ? at.axis + w.meta(0).shape.rank : at.axis;
  w.result(
      w.opr1("CumsumV1", "Cumsum", {{"axis", axis}, {"exclusive", at.exclusive}, {"reverse", at.reverse}}, {w.in(0)}));
}

VarId product(Oprs& w, const char* type, VarId a, VarId b, bool ta, bool tb) {
  Fields f{{"transposeA", ta}, {"transposeB", tb}};
  if (w.meta(0).dtype == DType::F16) f.push_back({"compute_mode", int64_t{1}});  // ours sum in float32
  const VarId y = w.opr1(type, "MatrixMul", f, {a, b});
  w.last().comp_node = "xpux:0";
  return y;
}

/// The sizes of the batch that a and b have together, as a vector.
VarId joint_batch(Oprs& w, VarId a, int na, VarId b, int nb, int batch) {
  auto sizes = [&](VarId x, int n) {
    Vars parts;
    if (n < batch) parts.push_back(w.ints(std::vector<int64_t>(static_cast<size_t>(batch - n), 1)));
    if (n > 0) parts.push_back(w.part(w.shape_of(x), 0, n));
    return w.join(parts);
  };
  return w.elemwise("MAX", {sizes(a, na), sizes(b, nb)});
}

VarId multiplied(Oprs& w, const MatmulAttrs& at, VarId a, VarId b) {
  const Shape &sa = w.meta(0).shape, &sb = w.meta(1).shape;
  VarId y;
  const int ra = sa.rank, rb = sb.rank;
  if (ra == 2 && rb == 2) {
    y = product(w, "MatrixMulV2", a, b, at.ta, at.tb);
  } else if (rb == 2 && !at.ta) {  // rows of all matrices together
    // A weight says how many columns there are; of a matrix that is computed they may be others later.
    const bool varies = !w.graph().constant_of(w.node().inputs[1]);
    const VarId rows = varies ? w.reshape(a, w.join({w.ints({-1}), w.part(w.shape_of(a), ra - 1, INT32_MAX)}), 0)
                              : w.reshape(a, {-1, sa.back()});
    const VarId flat = product(w, "MatrixMulV2", rows, b, false, at.tb);
    const VarId n = varies ? w.part(w.shape_of(flat), 1, 2) : w.ints({w.out_meta().shape.back()});
    y = w.reshape(flat, w.join({w.part(w.shape_of(a), 0, ra - 1), n}));
  } else {
    bool same = ra == rb;
    for (int i = 0; same && i < ra - 2; ++i) same = sa[i] == sb[i];
    const int batch = w.out_meta().shape.rank - 2;
    VarId sizes = Oprs::kNoVar;
    if (!same) {
      sizes = joint_batch(w, a, ra - 2, b, rb - 2, batch);
      // One that has the whole batch already is left alone: a broadcast of it would change nothing.
      auto fits = [&](const Shape& s) { return std::equal(s.begin(), s.end() - 2, w.out_meta().shape.begin()); };
      if (ra - 2 != batch || !fits(sa)) a = w.broadcast(a, w.join({sizes, w.part(w.shape_of(a), ra - 2, INT32_MAX)}));
      if (rb - 2 != batch || !fits(sb)) b = w.broadcast(b, w.join({sizes, w.part(w.shape_of(b), rb - 2, INT32_MAX)}));
    } else if (batch != 1) {
      sizes = w.part(w.shape_of(a), 0, batch);
    }
    auto flat = [&](VarId x) {
      return w.reshape(x, w.join({w.ints({-1}), w.part(w.shape_of(x), batch, INT32_MAX)}), 0);
    };
    if (batch != 1) {
      a = flat(a);
      b = flat(b);
    }
    y = product(w, "BatchedMatrixMulV2", a, b, at.ta, at.tb);
    if (batch != 1) y = w.reshape(y, w.join({sizes, w.part(w.shape_of(y), 1, INT32_MAX)}));
  }
  return y;
}
void matmul(Oprs& w) {
  const VarId y = multiplied(w, w.attrs<MatmulAttrs>(), w.in(0), w.in(1));
  w.result(w.n_in() > 2 ? w.elemwise("ADD", {y, w.in(2)}) : y);
}
// Matrices of 8 bits give one of 32 there, whose scale is the product; other products are made of the real numbers.
void qmatmul(Oprs& w) {
  const auto& at = w.attrs<QMatmulAttrs>();
  const bool exact = w.meta(0).dtype == DType::QI8 && w.meta(1).dtype == DType::QI8 && w.meta(0).shape.rank == 2 &&
                     w.meta(1).shape.rank == 2;
  VarId y;
  if (exact) {
    y = product(w, "MatrixMulV2", w.in(0), w.in(1), at.ta, at.tb);
    if (w.n_in() > 2) y = w.elemwise("ADD", {w.in(2), y});
  } else {
    y = multiplied(w, at, w.convert(w.in(0), DType::F32), w.convert(w.in(1), DType::F32));
    if (w.n_in() > 2) y = w.elemwise("ADD", {y, w.convert(w.in(2), DType::F32)});
  }
  const Meta& out = w.out_meta();
  if (at.act == "relu") y = w.elemwise("RELU", {exact ? w.convert(y, DType::F32) : y});
  const Quant sum = product_quant(w.meta(0).quant, w.meta(1).quant, at.tb ? 0 : 1);
  const bool done = exact && at.act != "relu" && out.dtype == DType::QI32 && out.quant == sum;
  w.result(done || (!exact && out.dtype == DType::F32) ? y : w.convert(y, out.dtype, out.quant));
}
std::string refuse_matmul(const Graph& g, const ir::Node& n) {
  const Meta& m = g.meta(n.inputs[0]);
  return is_float(m.dtype) ? std::string() : format("of {}", dtype_name(m.dtype));
}

void eye(Oprs& w) {
  const auto& at = w.attrs<EyeAttrs>();
  const VarId y =
      w.opr1("Eye", "Eye", {{"k", at.k}, {"dtype", compat::TypeParam{at.dtype, {}}}}, {w.ints({at.rows, at.cols})});
  w.last().comp_node = "xpux:0";
  w.result(y);
}
std::string fixed_sizes(const Graph&, const ir::Node& n) {
  return n.sizes.empty() ? std::string() : "of sizes that vary";
}
void matinv(Oprs& w) { w.result(w.opr1("MatrixInverse", "Empty", {}, {w.in(0)})); }
void svd(Oprs& w) {
  const Vars v = w.opr("SVD", "SVD", {{"full_matrices", w.attrs<SvdAttrs>().full_matrices}}, {w.in(0)}, 3);
  for (size_t i = 0; i < 3; ++i) w.result(v[i == 0 ? 1 : i == 1 ? 0 : 2], i);  // ours: s, u, vh
}

}  // namespace

std::span<const RuleRow> shape_rules() {
  static const std::vector<RuleRow> rows = {
      {"reshape", reshape},
      {"flatten", flatten},
      {"transpose", transpose},
      {"broadcast_to", broadcast_to},
      {"sum_to", sum_to},
      {"expand_dims", expand_dims},
      {"squeeze", squeeze},
      {"slice", slice},
      {"set_slice", set_slice},
      {"concat", concat},
      {"shape_of", shape_of, refuse_scalar},
      {"count_of", count_of},
      {"full", full},
      {"fill_like", fill_like},
      {"reduce", reduce},
      {"argmax", arg_reduce},
      {"argmin", arg_reduce},
      {"cumsum", cumsum},
      {"matmul", matmul, refuse_matmul},
      {"qmatmul", qmatmul},
      {"eye", eye, fixed_sizes},
      {"matinv", matinv},
      {"svd", svd},
  };
  return rows;
}

}  // namespace mge::serial::mgb
