// Random graphs of all ops that fit: dtypes, shapes, broadcasting, views, constants that rules look for, Vars with
// commits, random ops on one generator. The seed is the graph.
//   RandomGraph r(seed);  ir::Graph g = r.make(40);
#pragma once
#include <array>
#include <cstring>
#include <limits>
#include <random>

#include "ir/builder.h"
#include "ir/graph.h"
#include "kernel/run.h"
#include "op/elementwise/scalar_body.h"
#include "op/elementwise/typecvt.h"
#include "op/loss/softmax.h"
#include "op/pool/pool.h"
#include "op/reduce/reduce.h"
#include "op/rng/rng.h"
#include "op/shape/shape_ops.h"

namespace mge {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : rng_(seed), g_("fuzz") {}

  ir::Graph make(int ops) {
    for (int i = 0; i < 3 + pick(3); ++i) values_.push_back(g_.add_input(format("x{}", i), random_meta()));
    for (int i = 0; i < 1 + pick(2); ++i) values_.push_back(g_.add_var(format("w{}", i), random_meta()));
    state_ = g_.add_var("state", typed(DType::I32, Shape{4}));
    ir::ValueId state = state_;
    for (int i = 0; i < ops; ++i) {
      if (pick(12) == 0)
        draw(&state);
      else if (pick(5) == 0)
        values_.push_back(constant());
      else
        add_something();
      g_.loc("fuzz.py", i + 1);
    }
    g_.commit(g_.vars().size() - 1, state);
    for (size_t i = 0; i + 1 < g_.vars().size(); ++i)
      for (int tries = 0; tries < 20; ++tries)
        if (ir::ValueId v = any(); g_.meta(v).same_type(g_.meta(g_.vars()[i].in))) {
          g_.commit(i, v);
          break;
        }
    for (int i = 0; i < 4; ++i)
      g_.add_output(format("y{}", i), values_[values_.size() - 1 - pick_of(std::min<size_t>(values_.size(), 10))]);
    return std::move(g_);
  }

  /// Numbers with all that makes arithmetic hard.
  Buffer numbers(const Meta& m) {
    Buffer b = allocate_buffer(m);
    const int64_t n = m.shape.numel();
    const size_t size = dtype_size(m.dtype);
    for (int64_t i = 0; i < n; ++i)
      store(m.dtype, static_cast<char*>(b.storage->ptr) + static_cast<size_t>(i) * size, number());
    return b;
  }
  static Buffer generator() {
    Meta m;
    m.dtype = DType::I32;
    m.shape = Shape{4};
    Buffer b = allocate_buffer(m);
    const int32_t s[] = {7, 0, 0, 0};
    std::memcpy(b.storage->ptr, s, sizeof s);
    return b;
  }
  bool chance(int n) { return pick(n) == 0; }
  int pick(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }

 private:
  size_t pick_of(size_t n) { return rng_() % n; }
  ir::ValueId any() { return values_[pick_of(values_.size())]; }
  ir::ValueId recent() { return values_[values_.size() - 1 - pick_of(std::min<size_t>(values_.size(), 4))]; }

  static Meta typed(DType t, Shape s) {
    Meta m;
    m.dtype = t;
    m.shape = s;
    return m;
  }
  DType dtype() {
    constexpr DType kTypes[] = {DType::F32, DType::F32,  DType::F32, DType::F32, DType::F32,
                                DType::F16, DType::BF16, DType::F64, DType::I32, DType::I32,
                                DType::I64, DType::U8,   DType::I8,  DType::I16, DType::Bool};
    return kTypes[pick(std::size(kTypes))];
  }
  Shape shape() {
    constexpr std::array<std::array<int, 4>, 3> kSizes{{{2, 3, 4, 4}, {1, 3, 4, 4}, {2, 3, 1, 1}}};
    auto& s = kSizes[pick_of(3)];
    const int skip = pick(5);
    Shape out;
    for (int i = skip; i < 4; ++i) out.push_back(s[static_cast<size_t>(i)]);
    return out;
  }
  Meta random_meta() { return typed(dtype(), shape()); }

  double number() {
    constexpr double kSpecial[] = {0.0, -0.0, 1, -1, 2, 0.5, 4, 3, 255, 1e-42, 65504, 1e30};
    switch (pick(8)) {
      case 0:
        return kSpecial[pick(std::size(kSpecial))];
      case 1:
        return pick(6) ? 0.25 : pick(2) ? std::numeric_limits<double>::infinity() : std::nan("");
      default:
        return (static_cast<double>(rng_()) / 4294967296.0 - 0.4) * 5;
    }
  }
  static void store(DType t, void* p, double v) {
    Meta m = typed(t, Shape{});
    ir::Graph g;  // its builder knows how numbers are written
    const bool whole = is_int(t) || t == DType::Bool;
    if (whole) v = v == v && std::abs(v) < 100 ? std::trunc(v) : 3;
    if (whole && is_unsigned(t)) v = std::abs(v);
    std::memcpy(p, g.constant_of(ir::add_scalar(g, v, m))->data(), dtype_size(t));
  }
  ir::ValueId constant() {
    if (pick(3)) return ir::add_scalar(g_, number_fitting(), last_const_);
    Meta m = random_meta();
    Buffer b = numbers(m);
    return g_.add_constant_copy(m, b.storage->ptr);
  }
  double number_fitting() {
    last_const_ = typed(dtype(), pick(3) ? Shape{} : Shape{1, 1});
    constexpr double kLiked[] = {0.0, -0.0, 1, -1, 2, 0.5, 4, 3};
    double v = kLiked[pick(std::size(kLiked))];
    if (is_int(last_const_.dtype)) v = is_unsigned(last_const_.dtype) ? std::abs(std::trunc(v)) : std::trunc(v);
    return v;
  }

  // Tries an op; what does not fit is no error here.
  bool emit(const OpDef& op, Attrs attrs, std::vector<ir::ValueId> in) {
    ir::GraphBuilder b(&g_, {.loc = g_.loc("fuzz.py", static_cast<int>(values_.size()))});
    std::vector<Val> vals, out;
    for (ir::ValueId v : in) vals.push_back(b.val(v));
    if (!attrs && op.has_attrs) attrs = op.schema.build(op.name, {});
    out.resize(op.n_out(attrs.get()));
    try {
      b.emit(op, attrs, vals, out);
    } catch (const Error&) {
      return false;
    }
    for (auto& v : out)
      if (v && v.meta().shape.numel() <= 4096) values_.push_back(ir::GraphBuilder::id(v));
    return true;
  }
  bool emit(const char* op, Attrs attrs, std::vector<ir::ValueId> in) {
    return emit(OpRegistry::global().get(op), std::move(attrs), std::move(in));
  }

  void draw(ir::ValueId* state) {
    const size_t before = values_.size();
    bool ok = pick(2) ? emit("rng_uniform", make_attrs(RngUniformAttrs{to_ints(shape())}), {*state})
                      : emit("dropout", nullptr, {any(), *state});
    if (!ok) return;
    *state = values_.back();
    values_.pop_back();
    if (values_.size() < before) return;
  }

  void add_something() {
    const int kind = pick(10);
    for (int tries = 0; tries < 30; ++tries) {
      if (kind < 5 ? elementwise() : kind < 9 ? mover() : anything()) return;
    }
  }
  // What rules look for: a number beside a tensor, and things that undo each other.
  bool arithmetic() {
    constexpr const char* kBinary[] = {"add", "sub", "mul", "div", "pow", "floor_div", "maximum"};
    constexpr const char* kUnary[] = {"neg", "neg", "abs", "relu", "square", "exp", "log"};
    const ir::ValueId x = pick(3) ? recent() : any();
    if (chance(3)) return emit(kUnary[pick(std::size(kUnary))], nullptr, {x});
    constexpr double kLiked[] = {0.0, -0.0, 1, -1, 2, 0.5, 4, 3, 12};
    double v = kLiked[pick(std::size(kLiked))];
    const DType t = g_.meta(x).dtype;
    if (is_int(t)) v = is_unsigned(t) ? std::abs(std::trunc(v)) : std::trunc(v);
    const ir::ValueId c = ir::add_scalar(g_, v, typed(t, pick(4) ? Shape{} : Shape{1}));
    return emit(kBinary[pick(std::size(kBinary))], nullptr, pick(4) ? std::vector{x, c} : std::vector{c, x});
  }
  bool elementwise() {
    if (chance(2)) return arithmetic();
    const OpRegistry& r = OpRegistry::global();
    const OpDef& op = r.at(static_cast<OpId>(pick_of(r.size())));
    if (!op.is(kElementwise) || !op.scalar) return false;
    std::vector<ir::ValueId> in;
    for (size_t i = 0; i < op.inputs.size(); ++i) in.push_back(pick(3) ? recent() : any());
    if (in.size() == 2 && chance(8)) in[1] = in[0];
    return emit(op, nullptr, std::move(in));
  }
  bool mover() {
    const ir::ValueId x = pick(3) ? recent() : any();
    const Shape& s = g_.meta(x).shape;
    switch (pick(12)) {
      case 0: {
        Ints perm;
        for (int i = 0; i < s.rank; ++i) perm.push_back(i);
        std::shuffle(perm.begin(), perm.end(), rng_);
        return emit("transpose", make_attrs(PermAttrs{perm}), {x});
      }
      case 1:
        return emit("reshape", make_attrs(ShapeAttrs{pick(2) ? Ints{-1} : pick(2) ? Ints{2, -1} : to_ints(s)}), {x});
      case 2:
        return emit("expand_dims", make_attrs(AxesAttrs{{pick(s.rank + 1)}}), {x});
      case 3:
        return emit("squeeze", nullptr, {x});
      case 4:
        return emit("flatten", pick(2) ? nullptr : make_attrs(RangeAttrs{std::max(0, s.rank - 2), -1}), {x});
      case 5: {
        Shape t = s;
        for (int i = 0; i < t.rank; ++i)
          if (t[i] == 1 && pick(2)) t[i] = 2;
        if (pick(2) && t.rank < 4) t.insert(0, 2);
        return emit("broadcast_to", make_attrs(ShapeAttrs{to_ints(t)}), {x});
      }
      case 6: {
        if (s.rank == 0) return false;
        const int axis = pick(s.rank);
        const bool back = chance(4);
        SliceAttrs a{{axis},
                     {back ? SliceAttrs::kOpen : pick(2)},
                     {back ? -SliceAttrs::kOpen : SliceAttrs::kOpen},
                     {back ? -1 : 1 + pick(2)},
                     true};
        return emit("slice", make_attrs(a), {x});
      }
      case 7:
        return emit("typecvt", make_attrs(TypeCvtAttrs{dtype()}), {x});
      case 8:
        return emit("concat", make_attrs(AxisAttrs{s.rank ? pick(s.rank) : 0}),
                    pick(3) ? std::vector{x, any()} : std::vector{x});
      case 9: {
        constexpr const char* kModes[] = {"sum", "mean", "max", "min", "prod"};
        ReduceAttrs a{kModes[pick(5)], {}, pick(2) == 0};
        if (s.rank && pick(4)) a.axes = {pick(s.rank)};
        return emit("reduce", make_attrs(a), {x});
      }
      case 10:
        return emit("copy", nullptr, {x});
      default:
        return emit("shape_of", nullptr, {x});
    }
  }
  // Any registered op with its default attributes, except those that act on the world, that compilers make, or whose
  // operands must be of a kind that random numbers are not (positions).
  bool anything() {
    const OpRegistry& r = OpRegistry::global();
    const OpDef& op = r.at(static_cast<OpId>(pick_of(r.size())));
    for (const char* no :
         {"copy_to", "svd", "matinv", "eye", "full", "ctc_loss", "recurrence", "recurrence_bwd", "ctc_loss_bwd"})
      if (op.name == no) return false;
    if (op.is(kEffect) || op.is(kRandom) || op.name.starts_with("rng_") || op.name.find("fused") != std::string::npos)
      return false;
    std::vector<ir::ValueId> in;
    const size_t n = op.required + (op.inputs.size() > op.required ? pick_of(2) : 0);
    for (size_t i = 0; i < n; ++i) in.push_back(pick(3) ? recent() : any());
    if (in.size() > 1 && chance(4)) in[1] = in[0];
    return emit(op, nullptr, std::move(in));
  }

  std::mt19937 rng_;
  ir::Graph g_;
  std::vector<ir::ValueId> values_;
  ir::ValueId state_ = ir::kNone;
  Meta last_const_;
};

}  // namespace mge
