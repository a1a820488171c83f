#include "op/recurrence/recurrence.h"

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

CellKind kind_of(const RecurrenceAttrs& at) {
  if (at.mode == "tanh") return CellKind::Tanh;
  if (at.mode == "relu") return CellKind::Relu;
  MGE_CHECK(at.mode == "lstm", Value, "recurrence: mode must be tanh, relu or lstm; got {}.", at.mode);
  return CellKind::Lstm;
}

void check_weight(const InferCtx& c, size_t i, CellKind kind, const Shape& sequence, bool of_gates) {
  nn::check_rank(c, i, 2, 2);
  const Shape& w = c.shape(i);
  const int64_t count = kind == CellKind::Lstm ? 4 : 1, width = sequence[2];
  MGE_CHECK(w[0] == count * w[1] && width == (of_gates ? w[0] : w[1]), Value,
            "{}: w must be [{} * hidden, hidden] for a sequence of width {}; got {}.", c.op->name, count, width,
            w.str());
}

void infer_recurrence(InferCtx& c) {
  const auto& at = attrs_as<RecurrenceAttrs>(c.attrs);
  const CellKind kind = kind_of(at);
  const bool lstm = kind == CellKind::Lstm;
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  nn::check_rank(c, 0, 3, 3);
  check_weight(c, 1, kind, c.shape(0), true);
  MGE_CHECK(c.n() == (lstm ? 4u : 3u), Type, "recurrence: {} needs {}.", at.mode,
            lstm ? "both h0 and c0" : "h0 and no c0");
  const Shape state{c.shape(0)[1], c.shape(1)[1]}, sequence{c.shape(0)[0], state[0], state[1]};
  for (size_t i = 2; i < c.n(); ++i) nn::check_shape_is(c, i, state, "(batch, hidden)");
  c.out[0].shape = sequence;
  c.out[1].shape = lstm ? sequence : Shape{0};
  c.out[2].shape = lstm ? c.shape(0) : Shape{0};
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

void infer_recurrence_bwd(InferCtx& c) {
  const auto& at = attrs_as<RecurrenceAttrs>(c.attrs);
  const CellKind kind = kind_of(at);
  const bool lstm = kind == CellKind::Lstm;
  for (size_t i = 0; i < c.n(); ++i) nn::check_float(c, i);
  nn::check_rank(c, kHs, 3, 3);
  check_weight(c, kW, kind, c.shape(kHs), false);
  MGE_CHECK(lstm ? c.n() == kGradActs || c.n() == kGradActs + 1 : c.n() == kActs, Type,
            "recurrence_bwd: {} takes {} inputs; got {}.", at.mode, lstm ? "7 or 8" : "3", c.n());
  const Shape &hs = c.shape(kHs), state{hs[1], hs[2]}, gates{hs[0], hs[1], c.shape(kW)[0]};
  nn::check_shape_is(c, kGradHs, hs, "(that of hs)");
  if (lstm) {
    for (size_t i : {kActs, kGradActs})
      if (i < c.n()) nn::check_shape_is(c, i, gates, "(steps, batch, 4 * hidden)");
    for (size_t i : {kCs, kGradCs}) nn::check_shape_is(c, i, hs, "(that of hs)");
    nn::check_shape_is(c, kC0, state, "(batch, hidden)");
  }
  c.out[0].shape = gates;
  c.out[1].shape = state;
  c.out[2].shape = lstm ? state : Shape{0};
  for (Meta& m : c.out) m.dtype = c.dtype(0);
}

// Step t of a sequence, without the first axis.
Val step_of(const Val& x, int64_t t) { return element(x, 0, t); }
Val columns_of(const Val& x, int64_t from, int64_t count) { return slice_axis(x, 1, from, from + count); }
Val as_step(const Val& x) { return reshape(x, Shape{1, x.shape()[0], x.shape()[1]}); }

void decompose_recurrence(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  RecurrenceGeom g = recurrence_geom(attrs_as<RecurrenceAttrs>(attrs), in[0].shape(), in[1].shape());
  Val gates = wide(in[0]), w = wide(in[1]), h = wide(in[2]), c;
  const bool lstm = g.kind == CellKind::Lstm;
  if (lstm) c = wide(in[3]);
  auto steps = static_cast<size_t>(g.steps);
  std::vector<Val> hs(steps), cs(lstm ? steps : 0), acts(lstm ? steps : 0);
  for (int64_t k = 0; k < g.steps; ++k) {
    auto t = static_cast<size_t>(g.at(k));
    Val pre = step_of(gates, g.at(k)) + matmul(h, w, false, true);
    if (lstm) {
      auto gate = [&](int64_t i, const char* act) { return unary(act, columns_of(pre, i * g.hidden, g.hidden)); };
      Val i = gate(0, "sigmoid"), f = gate(1, "sigmoid"), a = gate(2, "tanh"), o = gate(3, "sigmoid");
      c = f * c + i * a;
      h = o * unary("tanh", c);
      cs[t] = as_step(c);
      acts[t] = as_step(concat({i, f, a, o}, 1));
    } else {
      h = unary(g.kind == CellKind::Tanh ? "tanh" : "relu", pre);
    }
    hs[t] = as_step(h);
  }
  auto whole = [&](const std::vector<Val>& parts, int64_t width) {
    return parts.empty() ? filled(w, 0, w.dtype(), Shape{0, g.batch, width}) : concat(parts, 0);
  };
  out[0] = whole(hs, g.hidden);
  out[1] = lstm ? whole(cs, g.hidden) : filled(w, 0, w.dtype(), Shape{0});
  out[2] = lstm ? whole(acts, g.gates) : filled(w, 0, w.dtype(), Shape{0});
  for (Val& v : out) v = cast(v, in[0].dtype());
}

// The same walk as the kernel's, in ops: what gradients of gradients go through.
void decompose_recurrence_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> given, std::span<Val> out) {
  SmallVec<Val, 8> in;
  for (const Val& v : given) in.push_back(wide(v));
  const Val &w = in[kW], &hs = in[kHs];
  const Shape& s = hs.shape();
  RecurrenceGeom g = recurrence_geom(attrs_as<RecurrenceAttrs>(attrs), Shape{s[0], s[1], w.shape()[0]}, w.shape());
  const int64_t width = g.hidden;
  const bool lstm = g.kind == CellKind::Lstm;
  if (g.steps == 0) {
    auto none = [&](const Shape& shape) { return broadcast_to(scalar_like(w, 0), shape); };
    out[0] = none({0, g.batch, g.gates}), out[1] = none({g.batch, width});
    out[2] = none(lstm ? Shape{g.batch, width} : Shape{0});
    for (Val& v : out) v = cast(v, given[0].dtype());
    return;
  }
  std::vector<Val> pre(static_cast<size_t>(g.steps));
  Val dh, dc;
  for (int64_t k = g.steps - 1; k >= 0; --k) {
    const int64_t t = g.at(k);
    Val gh = step_of(in[kGradHs], t);
    if (dh) gh = gh + dh;
    Val gpre;
    if (!lstm) {
      Val h = step_of(hs, t);
      gpre = g.kind == CellKind::Tanh ? binary("tanh_grad", h, gh) : binary("relu_grad", h, gh);
    } else {
      Val act = step_of(in[kActs], t), extra = in.size() > kGradActs ? step_of(in[kGradActs], t) : Val();
      auto gate = [&](int64_t i) { return columns_of(act, i * width, width); };
      auto with_extra = [&](Val v, int64_t i) { return extra ? v + columns_of(extra, i * width, width) : v; };
      Val i = gate(0), f = gate(1), a = gate(2), o = gate(3), tc = unary("tanh", step_of(in[kCs], t));
      Val gc = step_of(in[kGradCs], t) + gh * o * (1.0 - tc * tc);
      if (dc) gc = gc + dc;
      Val c_prev = g.before(k) < 0 ? in[kC0] : step_of(in[kCs], g.before(k));
      gpre = concat({with_extra(gc * a, 0) * i * (1.0 - i), with_extra(gc * c_prev, 1) * f * (1.0 - f),
                     with_extra(gc * i, 2) * (1.0 - a * a), with_extra(gh * tc, 3) * o * (1.0 - o)},
                    1);
      dc = gc * f;
    }
    dh = matmul(gpre, w, false, false);
    pre[static_cast<size_t>(t)] = reshape(gpre, Shape{1, g.batch, g.gates});
  }
  out[0] = concat(pre, 0);
  out[1] = dh;
  out[2] = lstm ? dc : broadcast_to(scalar_like(w, 0), Shape{0});
  for (Val& v : out) v = cast(v, given[0].dtype());
}

}  // namespace

RecurrenceGeom recurrence_geom(const RecurrenceAttrs& at, const Shape& gates, const Shape& w) {
  return {gates[0], gates[1], w[1], w[0], kind_of(at), at.reverse};
}

void register_recurrence(OpRegistry& r) {
  r.op("recurrence")
      .attrs<RecurrenceAttrs>()
      .in("gates", "w", "h0")
      .opt("c0")
      .out("hs", "cs", "acts")
      .infer(infer_recurrence)
      .decompose(decompose_recurrence)
      .promote(Promote::Float)
      .doc("The states of a recurrent layer at every step; cs and acts (gates after their activation) are for lstm.");
  r.op("recurrence_bwd")
      .attrs<RecurrenceAttrs>()
      .in("w", "hs", "g_hs")
      .opt("acts", "cs", "c0", "g_cs", "g_acts")
      .out("g_gates", "g_h0", "g_c0")
      .infer(infer_recurrence_bwd)
      .promote(Promote::Float)
      .decompose(decompose_recurrence_bwd)
      .doc("Gradients of recurrence in gates and the initial state.");
}

}  // namespace mge
