#include "op/elementwise/fused.h"

#include <charconv>

#include "op/emitter.h"

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
      if (word() != "t" + std::to_string(r.steps.size())) error("steps must be numbered t0, t1, ...");
      expect('=');
      step(r);
    }
    if (r.steps.empty()) error("a region needs a step");
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

void infer_fused(InferCtx& c) {
  FusedRegion r = FusedRegion::parse(attrs_as<FusedAttrs>(c.attrs).region);
  MGE_CHECK(r.inputs.size() == c.n(), Value, "fused: the region takes {} inputs; got {}.", r.inputs.size(), c.n());
  for (size_t i = 0; i < c.n(); ++i) {
    MGE_CHECK(c.dtype(i) == r.inputs[i], Type, "fused: input {} must be {}; got {}.", i, dtype_name(r.inputs[i]),
              dtype_name(c.dtype(i)));
    c.out[0].shape = i == 0 ? c.shape(0) : broadcast_shapes("fused", c.out[0].shape, c.shape(i));
  }
  c.out[0].dtype = r.steps.back().dtype;
}

double cost_fused(const InferCtx& c) {
  FusedRegion r = FusedRegion::parse(attrs_as<FusedAttrs>(c.attrs).region);
  Shape s;
  for (size_t i = 0; i < c.n(); ++i) s = broadcast_shapes("fused", s, c.shape(i));
  return static_cast<double>(r.steps.size()) * static_cast<double>(s.numel());
}

void decompose_fused(Emitter& em, const AttrsBase* attrs, std::span<const Val> in, std::span<Val> out) {
  FusedRegion r = FusedRegion::parse(attrs_as<FusedAttrs>(attrs).region);
  std::vector<Val> steps;
  for (auto& s : r.steps) {
    SmallVec<Val, 3> args;
    for (int a : s.args) args.push_back(a >= 0 ? in[static_cast<size_t>(a)] : steps[static_cast<size_t>(-1 - a)]);
    Val v;
    em.emit(*s.op, s.attrs, {args.data(), args.size()}, {&v, 1});
    steps.push_back(v);
  }
  out[0] = steps.back();
}

}  // namespace

int FusedRegion::add(const OpDef& op, Attrs attrs, std::span<const int> args) {
  MGE_CHECK(op.is(kElementwise) && op.n_out() == 1, Value, "fused: {} is not an elementwise op with one result.",
            op.name);
  SmallVec<Meta, 3> metas(args.size());
  SmallVec<const Meta*, 3> in;
  for (size_t i = 0; i < args.size(); ++i) {
    metas[i].dtype = dtype_of(args[i]);
    in.push_back(&metas[i]);
  }
  Meta out;
  infer_op(op, attrs.get(), {in.data(), in.size()}, {&out, 1});
  steps.push_back({&op, std::move(attrs), SmallVec<int, 3>(args.begin(), args.end()), out.dtype});
  return -static_cast<int>(steps.size());
}

std::string FusedRegion::print() const {
  std::string s = "(";
  for (size_t i = 0; i < inputs.size(); ++i) s += (i ? "," : "") + std::string(dtype_name(inputs[i]));
  s += ")";
  for (size_t k = 0; k < steps.size(); ++k) {
    const FusedStep& st = steps[k];
    s += " t" + std::to_string(k) + "=" + st.op->name + "(";
    for (size_t i = 0; i < st.args.size(); ++i)
      s +=
          (i ? "," : "") + (st.args[i] >= 0 ? "i" + std::to_string(st.args[i]) : "t" + std::to_string(-1 - st.args[i]));
    s += ")";
    if (!st.attrs) continue;
    std::string attrs;
    for (auto& a : st.attrs->values()) attrs += (attrs.empty() ? "{" : ",") + a.name + "=" + print_attr(a.value);
    if (!attrs.empty()) s += attrs + "}";
  }
  return s;
}

FusedRegion FusedRegion::parse(std::string_view text) { return RegionParser(text).run(); }

void register_fused(OpRegistry& r) {
  r.op("fused")
      .attrs<FusedAttrs>()
      .variadic_in("xs")
      .out("y")
      .infer(infer_fused)
      .cost(cost_fused)
      .decompose(decompose_fused)
      .traits(kNoGrad)
      .doc("Several elementwise ops in one pass over memory. Not differentiable: passes make it after autodiff.");
}

}  // namespace mge
