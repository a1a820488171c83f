#include "op/matmul/matmul.h"

#include <algorithm>
#include <charconv>

#include "op/elementwise/scalar_body.h"
#include "op/emitter.h"
#include "op/in_build.h"
#include "op/nn.h"

namespace mge {
namespace {

// Whole numbers are multiplied and added as such, modulo 2^32 or 2^64.
void check_number(const InferCtx& c, size_t i) {
  if (c.dtype(i) != DType::I32 && c.dtype(i) != DType::I64) nn::check_float(c, i);
  if (i) nn::check_dtype(c, i, c.dtype(0));
}

Shape batch_of(const Shape& s) { return Shape(s.d, s.rank - 2); }

void infer_matmul(InferCtx& c) {
  const MatmulAttrs& at = matmul_attrs(*c.op, c.attrs);
  for (size_t i = 0; i < 2; ++i) {
    check_number(c, i);
    nn::check_rank(c, i, 2, kMaxRank);
  }
  const Shape &a = c.shape(0), &b = c.shape(1);
  int64_t m = a[a.rank - (at.ta ? 1 : 2)], ka = a[a.rank - (at.ta ? 2 : 1)];
  int64_t kb = b[b.rank - (at.tb ? 1 : 2)], n = b[b.rank - (at.tb ? 2 : 1)];
  if (ka != kb) {
    int64_t flip_a = m, flip_b = n;  // the inner size after transposing one side the other way
    const char* hint = flip_a == kb && flip_b == ka ? " Transposing either side would match."
                       : flip_b == ka ? (at.tb ? " transpose_b=False would match." : " transpose_b=True would match.")
                       : flip_a == kb ? (at.ta ? " transpose_a=False would match." : " transpose_a=True would match.")
                                      : "";
    fail(ErrorKind::Value, "matmul: inner sizes differ, {} against {}; got a {}{}, b {}{}.{}", ka, kb, a.str(),
         at.ta ? " (transposed)" : "", b.str(), at.tb ? " (transposed)" : "", hint);
  }
  if (matmul_inputs(*c.op, c.attrs, c.n()) == 3) {
    check_number(c, 2);
    nn::check_shape_is(c, 2, Shape{n}, "(columns of the result)");
  }
  Meta& y = c.out[0];
  y.dtype = c.dtype(0);
  y.shape = broadcast_shapes("matmul (batch dimensions)", batch_of(a), batch_of(b));
  y.shape.push_back(m);
  y.shape.push_back(n);
}

double cost_matmul(const InferCtx& c) {
  MatmulGeom g = matmul_geom(matmul_attrs(*c.op, c.attrs), c.shape(0), c.shape(1));
  return 2.0 * static_cast<double>(g.batch.numel()) * static_cast<double>(g.m) * static_cast<double>(g.n) *
         static_cast<double>(g.k);
}

void infer_matmul_fused(InferCtx& c) {
  const auto& at = attrs_as<MatmulFusedAttrs>(c.attrs);
  const size_t own = matmul_inputs(*c.op, c.attrs, c.n());
  MGE_CHECK(c.n() >= own, Type, "matmul_fused: attributes {} need {} inputs or more; got {}.", c.attrs->print(), own,
            c.n());
  nn::check_float(c, 0);
  infer_matmul(c);
  std::vector<bool> used(c.n() - own);
  for (const MatmulStep& s : parse_steps(at.steps))
    for (int k : s.args) {
      if (k == MatmulStep::kProduct) continue;
      const size_t i = own + static_cast<size_t>(k);
      MGE_CHECK(i < c.n(), Type, "matmul_fused: steps \"{}\" need {} operands after the product's; got {}.", at.steps,
                k + 1, c.n() - own);
      used[static_cast<size_t>(k)] = true;
      nn::check_dtype(c, i, c.dtype(0));
      MGE_CHECK(step_operand(c.shape(i), c.out[0].shape) != StepOperand::None, Value,
                "matmul_fused: operand {} of the steps must be like the result {}, one of its matrices, a row, or one "
                "value; got {}.",
                k, c.out[0].shape.str(), c.shape(i).str());
    }
  MGE_CHECK(std::ranges::find(used, false) == used.end(), Type,
            "matmul_fused: steps \"{}\" use some of the {} operands that follow the product's, not all.", at.steps,
            used.size());
}

void decompose_matmul_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& at = attrs_as<MatmulFusedAttrs>(attrs);
  const size_t own = at.has_bias ? 3 : 2;
  Val y;
  em.emit(OpRegistry::global().get("matmul"), make_attrs<MatmulAttrs>(at), in.first(own), {&y, 1});
  for (const MatmulStep& s : parse_steps(at.steps)) {
    SmallVec<Val, 2> args;
    for (int k : s.args) args.push_back(k == MatmulStep::kProduct ? y : in[own + static_cast<size_t>(k)]);
    em.emit(*s.op, nullptr, {args.data(), args.size()}, {&y, 1});
  }
  out[0] = y;
}

[[noreturn]] void fail_step(std::string_view step) {
  fail(ErrorKind::Value,
       "matmul_fused: steps are elementwise ops of y, the result so far, such as \"mul(y,0) gelu(y)\", where 0 is the "
       "first operand after the product's; got \"{}\".",
       step);
}

// "add(y,0)"
MatmulStep parse_step(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')') fail_step(text);
  MatmulStep s{OpRegistry::global().find(text.substr(0, open)), {}};
  if (!s.op || !fusable_step(*s.op)) fail_step(text);
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  bool product = false;
  for (size_t comma = 0; comma != std::string_view::npos;) {
    comma = rest.find(',');
    const std::string_view arg = rest.substr(0, comma);
    int k = MatmulStep::kProduct;
    if (arg == "y") {
      product = true;
    } else {
      const auto [end, error] = std::from_chars(arg.data(), arg.data() + arg.size(), k);
      if (error != std::errc() || end != arg.data() + arg.size() || k < 0) fail_step(text);
    }
    s.args.push_back(k);
    if (comma != std::string_view::npos) rest = rest.substr(comma + 1);
  }
  if (!product || s.args.size() != s.op->scalar->arity) fail_step(text);
  return s;
}

}  // namespace

const MatmulAttrs& matmul_attrs(const OpDef& op, const AttrsBase* attrs) {
  if (op.name == "matmul") return attrs_as<MatmulAttrs>(attrs);
  return attrs_as<MatmulFusedAttrs>(attrs);
}

size_t matmul_inputs(const OpDef& op, const AttrsBase* attrs, size_t given) {
  if (op.name == "matmul") return given;
  return attrs_as<MatmulFusedAttrs>(attrs).has_bias ? 3 : 2;
}

bool fusable_step(const OpDef& op) {
  const ScalarBody* b = op.scalar;
  const bool floats = b && (b->domain == Domain::Float || b->domain == Domain::Number || b->domain == Domain::Any);
  return floats && b->arity <= 2 && !b->bool_out && !b->selects;
}

MatmulSteps parse_steps(std::string_view text) {
  MatmulSteps steps;
  for (size_t space = 0; !text.empty(); text = space == std::string_view::npos ? "" : text.substr(space + 1)) {
    space = text.find(' ');
    steps.push_back(parse_step(text.substr(0, space)));
  }
  return steps;
}

std::string print_steps(const MatmulSteps& steps) {
  std::string text;
  for (const MatmulStep& s : steps) {
    text += (text.empty() ? "" : " ") + s.op->name + "(";
    for (size_t i = 0; i < s.args.size(); ++i)
      text += (i ? "," : "") + (s.args[i] == MatmulStep::kProduct ? "y" : std::to_string(s.args[i]));
    text += ")";
  }
  return text;
}

StepOperand step_operand(const Shape& s, const Shape& y) {
  if (s == y) return StepOperand::Like;
  if (s.rank > y.rank) return StepOperand::None;
  int same = 0;  // axes of y, from the right, that the operand has; the others are 1
  while (same < s.rank && s[s.rank - 1 - same] == y[y.rank - 1 - same]) ++same;
  for (int i = 0; i < s.rank - same; ++i)
    if (s[i] != 1) return StepOperand::None;
  if (s.numel() == 1) return StepOperand::One;
  return same == 1 ? StepOperand::Row : same == 2 ? StepOperand::Matrix : StepOperand::None;
}

MatmulGeom matmul_geom(const MatmulAttrs& at, const Shape& a, const Shape& b) {
  return {a[a.rank - (at.ta ? 1 : 2)], b[b.rank - (at.tb ? 2 : 1)], a[a.rank - (at.ta ? 2 : 1)],
          broadcast_shapes("matmul", batch_of(a), batch_of(b))};
}

void register_matmul(OpRegistry& r) {
  r.op("matmul")
      .attrs<MatmulAttrs>()
      .in("a", "b")
      .opt("bias")
      .out("y")
      .infer(infer_matmul)
      .amp(Amp::Low)
      .cost(cost_matmul)
      .promote(Promote::Product)
      .traits(kComputeBound)
      .doc(
          "Matrix product over the last two axes, plus bias; ta and tb transpose an operand first; batch dimensions "
          "broadcast. Integers give int32 or int64, exact modulo its range.");
  r.op("matmul_fused")
      .attrs<MatmulFusedAttrs>()
      .in("a", "b")
      .opt("extra0", "extra1", "extra2", "extra3", "extra4")
      .out("y")
      .infer(infer_matmul_fused)
      .decompose(decompose_matmul_fused)
      .cost(cost_matmul)
      .traits(kComputeBound | kNoGrad)
      .doc(
          "matmul, then elementwise steps on its result, each rounded: the same bits as those ops alone. Made by a "
          "pass, so it has no gradient. After a, b and the bias come the operands of the steps, by number.");
}

}  // namespace mge
