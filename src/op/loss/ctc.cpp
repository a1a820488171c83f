#include "op/loss/ctc.h"

#include <algorithm>
#include <cmath>

#include "op/compose.h"
#include "op/in_build.h"
#include "op/nn.h"
#include "op/reduce/scan.h"

namespace mge {
namespace {

void check_ctc(const InferCtx& c) {
  nn::check_float(c, 0);
  nn::check_rank(c, 0, 3, 3);
  for (size_t i = 1; i < 4; ++i) nn::check_dtype(c, i, DType::I32);
  const Shape& p = c.shape(0);
  for (size_t i : {1, 3}) nn::check_shape_is(c, i, Shape{p[1]}, format("(one length for each of pred {})", p.str()));
  const Shape& l = c.shape(2);
  MGE_CHECK(l.rank == 1 || (l.rank == 2 && l[0] == p[1]), Value,
            "{}: label must be [N,S] or one row of all labels; got {} for pred {}.", c.op->name, l.str(), p.str());
  int64_t blank = attrs_as<CtcAttrs>(c.attrs).blank;
  MGE_CHECK(blank >= 0 && blank < p[2], Value, "{}: blank must be a class of 0..{}; got {}.", c.op->name, p[2] - 1,
            blank);
}

void infer_ctc(InferCtx& c) {
  check_ctc(c);
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = Shape{c.shape(0)[1]};
}
void infer_ctc_bwd(InferCtx& c) {
  check_ctc(c);
  nn::check_dtype(c, 4, c.dtype(0));
  nn::check_shape_is(c, 4, Shape{c.shape(0)[1]}, "(one loss per sequence)");
  c.out[0].dtype = c.dtype(0);
  c.out[0].shape = c.shape(0);
}

// In logs, "never" is a finite number far below all that happens, so that gradients of the parts stay finite.
constexpr double kNever = -1e30, kHappens = -1e29;

Val log_add(const Val& a, const Val& b) { return binary("logaddexp", a, b); }
Val less(const Val& a, const Val& b) { return binary("lt", a, b); }
Val never_unless(const Val& cond, const Val& x) { return select(cond, x, scalar_like(x, kNever)); }

// All sequences of a batch at once, over the states blank, l1, blank, l2, .. blank of the longest label.
struct Lattice {
  int64_t steps, batch, states;
  Val image, symbol;      // int32 [N,1] and [N,states]
  Val length, last;       // int32 [N,1]: steps of each sequence, and the number of its last state
  Val skips;              // bool [N,states]: may come from two states before
  std::vector<Val> logp;  // float64 [N,states] of each step

  // x[s - by], or with a negative `by` x[s + |by|].
  static Val moved(const Val& x, int64_t by, double fill) {
    int64_t n = x.shape()[1], k = std::min(by < 0 ? -by : by, n);
    return by < 0 ? padded(slice_axis(x, 1, k, n), 1, 0, k, fill) : padded(slice_axis(x, 1, 0, n - k), 1, k, 0, fill);
  }
  Val before_end(int64_t t) const { return less(scalar_like(length, static_cast<double>(t)), length); }
};

// The number of each sequence's last step.
Val checked_steps(std::span<const Val> in) {
  return checked_index(in[1] - 1.0, in[0].shape()[0], "ctc_loss: pred_lengths - 1");
}

Lattice lattice_of(const AttrsBase* attrs, std::span<const Val> in) {
  const Val &label = in[2], &counts = in[3];
  const Shape p = in[0].shape(), l = label.shape();
  const double blank = static_cast<double>(attrs_as<CtcAttrs>(attrs).blank);
  const int64_t n = p[1], most = l.rank == 2 ? l[1] : l[0];
  Lattice q{p[0], n, 2 * most + 1, {}, {}, {}, {}, {}, {}};
  const Shape column{n, 1};
  q.image = reshape(iota(label, n), column);
  q.length = reshape(checked_steps(in), column) + 1.0;
  Val count = reshape(checked_index(counts, most + 1, "ctc_loss: label_lengths"), column);
  q.last = count + count;
  Val labels = label, place = iota(label, most);
  if (l.rank == 1) {  // joined: each starts where those before it end
    Val end = label.em->emit1("cumsum", {counts}, make_attrs(CumsumAttrs{0, false, false}));
    end = checked_index(end, most + 1, "ctc_loss: joined label_lengths");
    Val at = reshape(end, column) - count + place;
    Val last_label = scalar_like(at, static_cast<double>(std::max<int64_t>(most - 1, 0)));
    labels = most == 0 ? filled(label, blank, DType::I32, Shape{n, 0}) : take_rows(label, 0, minimum(at, last_label));
  }
  Val none = filled(label, blank, DType::I32, Shape{n, most});
  labels = checked_index(select(less(place, count), labels, none), p[2], "ctc_loss: label");
  const Shape deep{n, most, 1};
  Val pairs = reshape(concat({reshape(none, deep), reshape(labels, deep)}, 2), Shape{n, 2 * most});
  q.symbol = concat({pairs, filled(label, blank, DType::I32, column)}, 1);

  Val number = iota(label, q.states), two = scalar_like(number, 2);
  Val odd = binary("eq", binary("mod", number, two), scalar_like(number, 1));
  q.skips = binary("logical_and", binary("logical_and", odd, less(two, number)),
                   binary("ne", q.symbol, Lattice::moved(q.symbol, 2, -1)));
  Val pred = cast(in[0], DType::F64), all = index_get(pred, {1, 2}, 1, {q.image, q.symbol});
  Val real = less(scalar_like(all, 0), all);
  all = never_unless(real, unary("log", select(real, all, scalar_like(all, 1))));
  for (int64_t t = 0; t < q.steps; ++t) q.logp.push_back(element(all, 0, t));
  return q;
}

// The log probabilities of all beginnings that end in each state, for each step; past its end a sequence stands still.
std::vector<Val> forward(const Lattice& q, double never = kNever) {
  std::vector<Val> alpha;
  for (int64_t t = 0; t < q.steps; ++t) {
    if (t == 0) {
      Val number = iota(q.symbol, q.states);
      alpha.push_back(select(less(number, scalar_like(number, 2)), q.logp[0], scalar_like(q.logp[0], never)));
      continue;
    }
    const Val& a = alpha.back();
    Val sum = log_add(log_add(a, Lattice::moved(a, 1, kNever)), never_unless(q.skips, Lattice::moved(a, 2, kNever)));
    alpha.push_back(select(q.before_end(t), sum + q.logp[static_cast<size_t>(t)], a));
  }
  return alpha;
}
// log p [N,1] from the last step of forward.
Val total_of(const Lattice& q, const Val& alpha) {
  Val before = maximum(q.last - 1.0, scalar_like(q.last, 0));
  auto at = [&](const Val& state) { return index_get(alpha, {0, 1}, 0, {q.image, state}); };
  return log_add(at(q.last), never_unless(less(scalar_like(q.last, 0), q.last), at(before)));
}

void decompose_ctc(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Shape loss{in[0].shape()[1]};
  if (in[0].shape()[0] == 0) return void(out[0] = cast(checked_steps(in), in[0].dtype()));  // no length is right
  if (loss[0] == 0) return void(out[0] = filled(in[0], 0, in[0].dtype(), loss));
  Lattice q = lattice_of(attrs, in);
  Val total = total_of(q, forward(q).back());
  for (Val& p : q.logp) p = maximum(p, scalar_like(p, kCtcFloor));
  Val floor = total_of(q, forward(q, kCtcFloor).back());
  Val y = -select(less(scalar_like(total, kHappens), total), total, floor);
  out[0] = cast(reshape(y, loss), in[0].dtype());
}

void decompose_ctc_bwd(Emitter&, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const Shape p = in[0].shape();
  if (p[0] == 0) checked_steps(in);
  if (p[0] == 0 || p[1] == 0) return void(out[0] = zeros_like(in[0]));
  Lattice q = lattice_of(attrs, in);
  std::vector<Val> alpha = forward(q), share(alpha.size());
  Val total = total_of(q, alpha.back());
  // beta leaves out the step itself, so alpha + beta is the log probability of all paths through a state.
  Val number = iota(q.symbol, q.states), ahead = Lattice::moved(cast(q.skips, DType::I32), -2, 0);
  ahead = cast(ahead, DType::Bool);
  Val is_end = binary("logical_and", less(q.last - 2.0, number), binary("le", number, q.last));
  Val end = never_unless(is_end, filled(total, 0, DType::F64, is_end.shape())), beta;
  for (int64_t t = q.steps - 1; t >= 0; --t) {
    auto k = static_cast<size_t>(t);
    if (!beta) {
      beta = end;
    } else {
      Val via = beta + q.logp[k + 1];
      Val sum =
          log_add(log_add(via, Lattice::moved(via, -1, kNever)), never_unless(ahead, Lattice::moved(via, -2, kNever)));
      beta = select(q.before_end(t + 1), sum, end);
    }
    Val path = alpha[k] + beta;
    Val counts = binary("logical_and", q.before_end(t), less(scalar_like(path, kHappens), path));
    Val part = select(counts, unary("exp", select(counts, path - q.logp[k] - total, scalar_like(path, 0))),
                      scalar_like(path, 0));
    share[k] = reshape(part, Shape{1, q.batch, q.states});
  }
  Val none = filled(total, 0, DType::F64, p), sum = index_incr(none, concat(share, 0), {1, 2}, 1, {q.image, q.symbol});
  out[0] = cast(-(reshape(cast(in[4], DType::F64), Shape{p[1], 1}) * sum), in[0].dtype());
}

}  // namespace

void register_ctc(OpRegistry& r) {
  r.op("ctc_loss")
      .attrs<CtcAttrs>()
      .in("pred", "pred_lengths", "label", "label_lengths")
      .out("loss")
      .refuses(0b1110)
      .infer(infer_ctc)
      .decompose(decompose_ctc)
      .doc("-log p(label | pred) for each sequence, summed over all alignments in log space and double.");
  r.op("ctc_loss_bwd")
      .attrs<CtcAttrs>()
      .in("pred", "pred_lengths", "label", "label_lengths", "gy")
      .out("gpred")
      .refuses(0b1110)
      .infer(infer_ctc_bwd)
      .decompose(decompose_ctc_bwd)
      .doc("Gradient of ctc_loss in pred, by the forward and backward recursions.");
}

}  // namespace mge
