#include "op/elementwise/fused.h"

#include <charconv>

#include "op/emitter.h"
#include "op/in_build.h"

namespace mge {
namespace {

class RegionParser {
 public:
  explicit RegionParser(std::string_view t) : text_(t) {}

  FusedRegion run() {
    FusedRegion r;
    expect('(');
    while (!take(')')) {
      if (!r.inputs.empty()) expect(',');
      DType t;
      if (!find_dtype(word(), &t)) error("expected a dtype");
      r.inputs.push_back(t);
    }
    while (pos_ < text_.size()) {
      expect(' ');
      if (text_.substr(pos_, 3) == "-> ") {
        outputs(r);
        break;
      }
      if (word() != "t" + std::to_string(r.steps.size())) error("steps must be numbered t0, t1, ...");
      expect('=');
      step(r);
    }
    if (r.steps.empty()) error("a region needs a step");
    if (r.outputs.empty()) r.add_output(-static_cast<int>(r.steps.size()));
    return r;
  }

 private:
  void step(FusedRegion& r) {
    std::string_view name = word();
    const OpDef* op = OpRegistry::global().find(name);
    if (!op) error("there is no op '" + std::string(name) + "'");
    SmallVec<int, 3> args;
    expect('(');
    while (!take(')')) {
      if (!args.empty()) expect(',');
      args.push_back(operand(r));
    }
    std::vector<NamedAttr> given;
    if (take('{')) {
      while (!take('}')) {
        if (!given.empty()) expect(',');
        std::string key(word());
        expect('=');
        const AttrValue* like = nullptr;
        for (auto& d : op->schema.defaults)
          if (d.name == key) like = &d.value;
        if (!like) error("there is no attribute '" + key + "'");
        given.push_back({key, parse_attr(op->name, raw_value(), *like)});
      }
    }
    r.add(*op, op->has_attrs ? op->schema.build(op->name, given) : nullptr, {args.data(), args.size()});
  }
  void outputs(FusedRegion& r) {
    pos_ += 3;
    do {
      int code = operand(r);
      if (code >= 0) error("an input is no result");
      r.add_output(code);
    } while (take(','));
    if (pos_ < text_.size()) error("the results must come last");
  }
  int operand(const FusedRegion& r) {
    std::string_view w = word();
    size_t k = 0;
    bool ok = w.size() > 1 && std::from_chars(w.data() + 1, w.data() + w.size(), k).ptr == w.data() + w.size();
    if (ok && w[0] == 'i' && k < r.inputs.size()) return static_cast<int>(k);
    if (ok && w[0] == 't' && k < r.steps.size()) return -1 - static_cast<int>(k);
    error("'" + std::string(w) + "' is not an operand");
  }
  std::string_view raw_value() {
    size_t start = pos_;
    int depth = 0;
    for (bool quoted = false; pos_ < text_.size(); ++pos_) {
      char c = text_[pos_];
      if (c == '"') quoted = !quoted;
      if (quoted) continue;
      depth += (c == '[') - (c == ']');
      if (depth == 0 && (c == ',' || c == '}')) break;
    }
    return text_.substr(start, pos_ - start);
  }
  std::string_view word() {
    size_t start = pos_;
    while (pos_ < text_.size() && (isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_')) ++pos_;
    return text_.substr(start, pos_ - start);
  }
  bool take(char c) {
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) error(format("expected '{}'", c));
  }
  [[noreturn]] void error(const std::string& why) const {
    fail(ErrorKind::Value, "fused: region column {}: {}; the region is '{}'.", pos_ + 1, why, std::string(text_));
  }
  std::string_view text_;
  size_t pos_ = 0;
};

Shape full_shape(std::span<const Meta* const> in) {
  Shape s;
  for (size_t i = 0; i < in.size(); ++i) s = i == 0 ? in[0]->shape : broadcast_shapes("fused", s, in[i]->shape);
  return s;
}

Meta operand_meta(const FusedRegion& r, std::span<const Meta* const> in, std::span<const Meta> steps, int arg) {
  Meta m;
  m.dtype = r.dtype_of(arg);
  m.shape = arg >= 0 ? in[static_cast<size_t>(arg)]->shape : steps[static_cast<size_t>(-1 - arg)].shape;
  return m;
}

size_t count_fused(const AttrsBase* attrs) { return attrs ? attrs_as<FusedRegion>(attrs).outputs.size() : 1; }

void infer_fused(InferCtx& c) {
  const auto& r = attrs_as<FusedRegion>(c.attrs);
  MGE_CHECK(!r.outputs.empty(), Value, "fused: the region is empty. It is made by a pass, from ops that are not.");
  MGE_CHECK(r.inputs.size() == c.n(), Value, "fused: the region takes {} inputs; got {}.", r.inputs.size(), c.n());
  for (size_t i = 0; i < c.n(); ++i)
    MGE_CHECK(c.dtype(i) == r.inputs[i], Type, "fused: input {} must be {}; got {}.", i, dtype_name(r.inputs[i]),
              dtype_name(c.dtype(i)));
  if (r.staged()) {
    const std::vector<Shape> shapes = step_shapes(r, c.in);
    for (size_t o = 0; o < r.outputs.size(); ++o) {
      c.out[o].dtype = r.dtype_of(r.outputs[o]);
      c.out[o].shape = shapes[static_cast<size_t>(-1 - r.outputs[o])];
    }
    return;
  }
  const Shape full = full_shape(c.in);
  for (size_t o = 0; o < r.outputs.size(); ++o) {
    c.out[o].dtype = r.dtype_of(r.outputs[o]);
    c.out[o].shape = full;
    if (-1 - r.outputs[o] != r.reduction()) continue;
    const FusedStep& s = r.steps[static_cast<size_t>(r.reduction())];
    Meta x = c.out[o];
    x.dtype = r.dtype_of(s.args[0]);
    const Meta* in = &x;
    infer_op(*s.op, s.attrs.get(), {&in, 1}, {&c.out[o], 1});
  }
}

double cost_fused(const InferCtx& c) {
  const auto& r = attrs_as<FusedRegion>(c.attrs);
  if (!r.staged()) return static_cast<double>(r.steps.size()) * static_cast<double>(full_shape(c.in).numel());
  double work = 0;
  const std::vector<Shape> shapes = step_shapes(r, c.in);
  for (size_t k = 0; k < shapes.size(); ++k) {
    const int from = r.steps[k].args[0];
    const Shape& x = from >= 0 ? c.shape(static_cast<size_t>(from)) : shapes[static_cast<size_t>(-1 - from)];
    work += static_cast<double>((r.steps[k].op->is(kReduction) ? x : shapes[k]).numel());
  }
  return work;
}

void decompose_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  const auto& r = attrs_as<FusedRegion>(attrs);
  const bool staged = r.staged();
  SmallVec<const Meta*, 8> metas;
  for (auto& v : in) metas.push_back(&v.meta());
  const Shape full = staged ? Shape() : full_shape({metas.data(), metas.size()});
  std::vector<Val> steps;
  for (auto& s : r.steps) {
    SmallVec<Val, 3> args;
    for (int a : s.args) args.push_back(a >= 0 ? in[static_cast<size_t>(a)] : steps[static_cast<size_t>(-1 - a)]);
    if (!staged && static_cast<int>(steps.size()) == r.reduction()) args[0] = broadcast_to(args[0], full);
    Val v;
    em.emit(*s.op, s.attrs, {args.data(), args.size()}, {&v, 1});
    steps.push_back(v);
  }
  for (size_t o = 0; o < out.size(); ++o) {
    int k = -1 - r.outputs[o];
    const bool as_is = staged || k == r.reduction();
    out[o] = as_is ? steps[static_cast<size_t>(k)] : broadcast_to(steps[static_cast<size_t>(k)], full);
  }
}

// The dtype of a step's result does not depend on shapes; a reduction's axes need some.
Shape any_shape(const OpDef& op) {
  Shape s;
  for (int i = 0; op.is(kReduction) && i < kMaxRank; ++i) s.push_back(1);
  return s;
}

}  // namespace

int FusedRegion::add(const OpDef& op, Attrs attrs, std::span<const int> args) {
  bool reduces = op.name == "reduce";
  MGE_CHECK(reduces || (op.is(kElementwise) && op.outputs.size() == 1), Value,
            "fused: {} is neither an elementwise op with one result nor reduce.", op.name);
  SmallVec<Meta, 3> metas(args.size());
  SmallVec<const Meta*, 3> in;
  for (size_t i = 0; i < args.size(); ++i) {
    metas[i].dtype = dtype_of(args[i]);
    metas[i].shape = any_shape(op);
    in.push_back(&metas[i]);
  }
  Meta out;
  infer_op(op, attrs.get(), {in.data(), in.size()}, {&out, 1});
  steps.push_back({&op, std::move(attrs), SmallVec<int, 3>(args.begin(), args.end()), out.dtype});
  return -static_cast<int>(steps.size());
}

void FusedRegion::add_output(int step) {
  MGE_CHECK(step < 0 && static_cast<size_t>(-1 - step) < steps.size(), Value, "fused: {} is no step.", step);
  for (int o : outputs) MGE_CHECK(o != step, Value, "fused: t{} is a result twice.", -1 - step);
  outputs.push_back(step);
}

int FusedRegion::reduction() const {
  for (size_t k = steps.size(); k-- > 0;)
    if (steps[k].op->is(kReduction)) return static_cast<int>(k);
  return -1;
}

bool FusedRegion::staged() const {
  int reductions = 0;
  for (auto& s : steps) {
    reductions += s.op->is(kReduction);
    for (int a : s.args)
      if (a < 0 && steps[static_cast<size_t>(-1 - a)].op->is(kReduction)) return true;
  }
  return reductions > 1;
}

std::vector<Shape> step_shapes(const FusedRegion& r, std::span<const Meta* const> in) {
  std::vector<Meta> steps;
  for (auto& s : r.steps) {
    SmallVec<Meta, 3> metas;
    SmallVec<const Meta*, 3> args;
    for (int a : s.args) metas.push_back(operand_meta(r, in, steps, a));
    for (auto& m : metas) args.push_back(&m);
    steps.emplace_back();
    infer_op(*s.op, s.attrs.get(), {args.data(), args.size()}, {&steps.back(), 1});
  }
  std::vector<Shape> out;
  for (auto& m : steps) out.push_back(m.shape);
  return out;
}

uint64_t FusedRegion::hash() const {
  uint64_t h = hash_mix(0xf05ed, inputs.size());
  for (DType t : inputs) h = hash_mix(h, static_cast<uint64_t>(t));
  for (auto& s : steps) {
    h = hash_mix(hash_mix(h, s.op->id), attrs_hash(s.attrs.get()));
    for (int a : s.args) h = hash_mix(h, static_cast<uint64_t>(a));
  }
  for (int o : outputs) h = hash_mix(h, static_cast<uint64_t>(o));
  return h;
}

std::string FusedRegion::print() const {
  auto name = [](int code) { return code >= 0 ? "i" + std::to_string(code) : "t" + std::to_string(-1 - code); };
  std::string s = "(";
  for (size_t i = 0; i < inputs.size(); ++i) s += (i ? "," : "") + std::string(dtype_name(inputs[i]));
  s += ")";
  for (size_t k = 0; k < steps.size(); ++k) {
    const FusedStep& st = steps[k];
    s += " t" + std::to_string(k) + "=" + st.op->name + "(";
    for (size_t i = 0; i < st.args.size(); ++i) s += (i ? "," : "") + name(st.args[i]);
    s += ")";
    if (!st.attrs) continue;
    std::string attrs;
    for (auto& a : st.attrs->values()) attrs += (attrs.empty() ? "{" : ",") + a.name + "=" + print_attr(a.value);
    if (!attrs.empty()) s += attrs + "}";
  }
  if (outputs.size() == 1 && outputs[0] == -static_cast<int>(steps.size())) return s;
  for (size_t o = 0; o < outputs.size(); ++o) s += (o ? "," : " -> ") + name(outputs[o]);
  return s;
}

FusedRegion FusedRegion::parse(std::string_view text) { return RegionParser(text).run(); }

AttrsOf<FusedRegion>::AttrsOf(FusedRegion r) : AttrsBase(&detail::type_tag<FusedRegion>), value(std::move(r)) {
  set_hash(value.hash());
}

bool AttrsOf<FusedRegion>::equal(const AttrsBase& o) const {
  return o.type() == type() && o.hash() == hash() && static_cast<const AttrsOf&>(o).value == value;
}

std::vector<NamedAttr> AttrsOf<FusedRegion>::values() const {
  return {{"region", value.steps.empty() ? std::string() : value.print()}};
}

template <>
AttrSchema make_schema<FusedRegion>() {
  AttrSchema s;
  s.defaults = {{"region", std::string()}};
  s.build = [](std::string_view who, std::span<const NamedAttr> given) -> Attrs {
    FusedRegion r;
    for (auto& g : given) {
      if (g.name != "region") throw_unknown_attr(who, g.name, AttrsOf<FusedRegion>(FusedRegion()).values());
      AttrValue text = coerce_attr(format("{}: attribute 'region'", who), g.value, std::string());
      if (!std::get<std::string>(text).empty()) r = FusedRegion::parse(std::get<std::string>(text));
    }
    return make_attrs(std::move(r));
  };
  return s;
}

void register_fused(OpRegistry& r) {
  r.op("fused")
      .attrs<FusedRegion>()
      .variadic_in("xs")
      .variadic_out("y", count_fused)
      .infer(infer_fused)
      .cost(cost_fused)
      .decompose(decompose_fused)
      .traits(kNoGrad)
      .doc("Several elementwise ops in one pass over memory. Not differentiable: passes make it after autodiff.");
}

}  // namespace mge
