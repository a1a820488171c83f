// Operators that the original writes for gradients, from the rules of their forward classes: the forward is emitted
// again, recorded, and walked back by the vjp rules of its ops. What nobody reads of it is dropped later.
#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compat/emit.h"
#include "op/index/multi_index.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

/// Hands everything on to another emitter and keeps a list of what was emitted.
class Recorder final : public Emitter {
 public:
  explicit Recorder(Emitter& to) : to_(to) {}

  Val follow(const Val& v) {  // a value whose gradient is wanted
    needs_.insert(v.p.get());
    return mine(v);
  }
  Val mine(Val v) {
    if (v) v.em = this;
    return v;
  }
  Val theirs(Val v) {
    if (v) v.em = &to_;
    return v;
  }

  void emit(const OpDef& op, const Attrs& attrs, std::span<const Val> given, std::span<Val> out) override {
    if (!op.vjp && op.decompose) return op.decompose(*this, attrs.get(), given, out);
    Step s{&op, attrs, {given.begin(), given.end()}, {}};
    std::vector<const Meta*> metas;
    for (auto& v : given) metas.push_back(&to_.meta(v));
    std::vector<DType> want(given.size());
    if (promote_op(op, metas, want))
      for (size_t i = 0; i < given.size(); ++i) s.in[i] = cast(mine(given[i]), want[i]);
    bool needed = false;
    for (auto& v : s.in) {
      needed |= needs_.contains(v.p.get());
      v = theirs(v);
    }
    to_.emit(op, attrs, s.in, out);
    for (auto& v : out) {
      s.out.push_back(v);
      if (needed) needs_.insert(v.p.get());
      v.em = this;
    }
    if (needed) steps_.push_back(std::move(s));
  }

  /// Gradients of all that was followed, given those of some results.
  void backward(std::span<const std::pair<Val, Val>> seeds) {
    for (auto& [y, gy] : seeds) give(y, theirs(gy));
    for (size_t k = steps_.size(); k-- > 0;) {
      Step& s = steps_[k];
      std::vector<Val> gys, gxs(s.in.size()), sizes;
      bool any = false;
      for (auto& y : s.out) {
        auto at = grads_.find(y.p.get());
        gys.push_back(at == grads_.end() ? Val() : at->second);
        any |= static_cast<bool>(gys.back());
      }
      if (!any) continue;
      MGE_CHECK(s.op->vjp, NotImplemented, "{}: this op has no gradient.", s.op->name);
      if (!gys[0]) gys[0] = zeros(s.out[0], s.out[0].sizes());  // rules take it for granted
      std::vector<Meta> in, out;
      VjpCtx c;
      c.wanted = 0;
      for (size_t i = 0; i < s.in.size(); ++i) {
        in.push_back(to_.meta(s.in[i]));
        sizes.push_back(to_.size_operand(s.in[i]));
        if (i < 64 && needs_.contains(s.in[i].p.get())) c.wanted |= uint64_t{1} << i;
      }
      for (auto& y : s.out) out.push_back(to_.meta(y));
      if (s.attrs)
        for (auto& z : s.attrs->sizes())
          if (!(s.op->sized_vjp >> z.field & 1)) to_.fix(Val{&to_, z.value});
      c.em = &to_;
      c.op = s.op;
      c.attrs = s.attrs.get();
      c.saved_in = s.in;
      c.saved_out = s.out;
      c.in_metas = in;
      c.out_metas = out;
      c.in_sizes = sizes;
      c.gys = gys;
      c.gxs = gxs;
      s.op->vjp(c);
      for (size_t i = 0; i < s.in.size(); ++i)
        if (gxs[i] && needs_.contains(s.in[i].p.get())) give(s.in[i], gxs[i]);
    }
  }
  Val gradient(const Val& x) {
    auto at = grads_.find(x.p.get());
    return at == grads_.end() ? zeros(theirs(x), theirs(x).sizes()) : at->second;
  }

  const Meta& meta(const Val& v) override { return to_.meta(v); }
  Val constant(double value, DType dtype, const Val& like) override { return mine(to_.constant(value, dtype, like)); }
  Val literal(const Meta& m, const void* data) override { return mine(to_.literal(m, data)); }
  std::optional<HostValue> known(const Val& v) override { return to_.known(v); }
  Val size_operand(const Val& v) override { return mine(to_.size_operand(v)); }
  bool any_size(const Val& v) override { return to_.any_size(v); }
  SizeValue size_value(const Val& v, int64_t guess) override {
    SizeValue s = to_.size_value(theirs(v), guess);
    return {s.now, mine(s.operand)};
  }
  std::optional<SizeValues> size_values(const Val& v) override {
    std::optional<SizeValues> s = to_.size_values(theirs(v));
    if (s) s->operand = mine(s->operand);
    return s;
  }
  void fix(const Val& v) override { to_.fix(v); }

 private:
  struct Step {
    const OpDef* op;
    Attrs attrs;
    std::vector<Val> in, out;
  };
  void give(const Val& x, const Val& g) {
    Val& sum = grads_[x.p.get()];
    sum = sum ? sum + g : g;
  }

  Emitter& to_;
  std::vector<Step> steps_;
  std::unordered_set<const ValImpl*> needs_;
  std::unordered_map<const ValImpl*, Val> grads_;
};

constexpr int kImage = -1;  // an operand that is no input: the sizes of the image, as the incoming gradient has them
constexpr int kNone = -2;

/// By places among the inputs of the backward operator: the operands of the forward one, and the gradients of its
/// first results. `wanted`: the operands whose gradients come out.
struct Row {
  std::string_view name, forward;
  std::array<FileType, 2> files;
  std::array<int, 4> operands;
  std::array<int, 3> gys;
  std::array<int, 4> wanted;
};
constexpr int N = kNone;
constexpr Row kRows[] = {
    {"PoolingBackward", "Pooling", {{{"PoolingBackwardV1", 1}}}, {0, N, N, N}, {2, N, N}, {0, N, N, N}},
    {"AdaptivePoolingBackward",
     "AdaptivePooling",
     {{{"AdaptivePoolingBackwardV1", 1}}},
     {0, 1, N, N},
     {3, N, N},
     {0, N, N, N}},
    {"Convolution3DBackwardFilter",
     "Convolution3D",
     {{{"Convolution3DBackwardFilter", 1}, {"Convolution3DBackwardFilter", 2}}},
     {0, 2, N, N},
     {1, N, N},
     {1, N, N, N}},
    {"RegionRestrictedConvolutionBackwardFilter",
     "RegionRestrictedConvolution",
     {{{"RegionRestrictedConvolutionBackwardFilter", 1}}},
     {0, 4, 2, 3},
     {1, N, N},
     {1, N, N, N}},
    {"GroupLocalBackwardData",
     "GroupLocal",
     {{{"GroupLocalBackwardDataV2", 1}}},
     {2, 0, N, N},
     {1, N, N},
     {0, N, N, N}},
    {"GroupLocalBackwardFilter",
     "GroupLocal",
     {{{"GroupLocalBackwardFilterV2", 1}}},
     {0, 2, N, N},
     {1, N, N},
     {1, N, N, N}},
    {"CorrelationBackwardData1",
     "Correlation",
     {{{"CorrelationBackwardData1", 1}}},
     {1, 2, N, N},
     {0, N, N},
     {0, N, N, N}},
    {"CorrelationBackwardData2",
     "Correlation",
     {{{"CorrelationBackwardData2", 1}}},
     {1, 2, N, N},
     {0, N, N},
     {1, N, N, N}},
    {"ResizeBackward", "Resize", {{{"ResizeBackward", 1}}}, {1, kImage, N, N}, {0, N, N}, {0, N, N, N}},
    {"RemapBackwardData", "Remap", {{{"RemapBackwardDataV1", 1}}}, {2, 0, N, N}, {1, N, N}, {0, N, N, N}},
    {"RemapBackwardMat", "Remap", {{{"RemapBackwardMatV1", 1}}}, {0, 1, N, N}, {2, N, N}, {1, N, N, N}},
    {"ROIAlignBackward", "ROIAlign", {{{"ROIAlignBackwardV1", 1}}}, {1, 2, N, N}, {0, N, N}, {0, N, N, N}},
    {"ROIPoolingBackward", "ROIPooling", {{{"ROIPoolingBackward", 1}}}, {1, 2, kImage, N}, {0, N, N}, {0, N, N, N}},
    {"PaddingBackward", "Padding", {{{"PaddingBackward", 1}}}, {1, N, N, N}, {0, N, N}, {0, N, N, N}},
    {"Images2NeibsBackward", "Images2Neibs", {{{"Images2NeibsBackward", 1}}}, {1, N, N, N}, {0, N, N}, {0, N, N, N}},
    {"SlidingWindowTransposeBackward",
     "SlidingWindowTranspose",
     {{{"SlidingWindowTransposeBackward", 1}}},
     {1, N, N, N},
     {0, N, N},
     {0, N, N, N}},
    {"LRNBackward", "LRN", {{{"LRNBackward", 1}}}, {0, N, N, N}, {2, N, N}, {0, N, N, N}},
    {"LSTMBackward", "LSTM", {{{"LSTMBackward", 1}}}, {0, 2, 3, 7}, {4, 5, 6}, {0, 1, 2, 3}},
    {"RNNBackward", "RNN", {{{"RNNBackward", 1}}}, {0, 2, 5, N}, {3, 4, N}, {0, 1, 2, N}},
    // dy, x, weight, mean, 1 / deviation; the bias is not there, and no gradient depends on what it is.
    {"LayerNormBackward", "LayerNorm", {{{"LayerNormBackward", 1}}}, {1, 2, 2, N}, {0, N, N}, {0, 1, 2, N}},
    {"GeneralNormBackward", "GeneralNorm", {{{"GeneralNormBackward", 1}}}, {1, 2, 2, N}, {0, N, N}, {0, 1, 2, N}},
    {"GroupNormBackward",
     "GroupNorm",
     {{{"GroupNormBackward", 1}, {"GroupNormBackward", 2}}},
     {1, 2, 2, N},
     {0, N, N},
     {0, 1, 2, N}},
    {"InstanceNormBackward",
     "InstanceNorm",
     {{{"InstanceNormBackward", 1}, {"InstanceNormBackward", 2}}},
     {1, 2, 2, N},
     {0, N, N},
     {0, 1, 2, N}},
};

/// Height and width of dy [N, C, H, W] as an operand.
[[maybe_unused]] Val image_sizes(Emitter& em, const Val& dy) {
  if (const Val all = em.size_operand(dy)) return slice(all, 0, 2, 4);
  return int_table(dy, std::array{now(dy)[2], now(dy)[3]}, Shape{2});
}

template <size_t kRow>
void backward(Emitter& em, const void* params, In in, Out& out) {
  constexpr Row r = kRows[kRow];
  const OpClass& forward = get(r.forward);
  for (int i : r.operands)
    MGE_CHECK(i < static_cast<int>(in.size()), Value, "{}: needs more than {} inputs.", r.name, in.size());
  for (int i : r.gys)
    MGE_CHECK(i < static_cast<int>(in.size()), Value, "{}: needs more than {} inputs.", r.name, in.size());
  const bool norm = r.operands[1] == r.operands[2] && r.operands[1] >= 0, plain = norm && in.size() == 4;
  Recorder tape(em);
  std::vector<Val> args;  // of this emitter; copies, so that an operand given twice has two gradients
  for (size_t i = 0; i < r.operands.size(); ++i) {
    if (r.operands[i] == kNone || (plain && i)) break;
    args.push_back(r.operands[i] == kImage ? image_sizes(em, in[0])
                                           : unary("copy", in[static_cast<size_t>(r.operands[i])]));
  }
  std::vector<Val> followed;
  for (size_t i = 0; i < args.size(); ++i) {
    const bool wanted = std::find(r.wanted.begin(), r.wanted.end(), static_cast<int>(i)) != r.wanted.end();
    followed.push_back(wanted ? tape.follow(args[i]) : tape.mine(args[i]));
  }
  Out results;
  if (forward.effect == Effect::Generator) {  // drawn from nothing: no dropout in a graph that was saved
    const int32_t state[4] = {};
    Meta m;
    m.dtype = DType::I32;
    m.shape = Shape{4};
    followed.push_back(tape.literal(m, state));
  }
  forward.rule(tape, params, followed, results);
  std::vector<std::pair<Val, Val>> seeds;
  for (size_t i = 0; i < r.gys.size(); ++i) {
    if (r.gys[i] == kNone) break;
    const Val& dy = in[static_cast<size_t>(r.gys[i])];
    MGE_CHECK(now(dy) == now(results[i]), Value, "{}: the gradient has shape {}, but the result {}.", r.name,
              now(dy).str(), now(results[i]).str());
    seeds.emplace_back(results[i], dy);
  }
  tape.backward(seeds);
  for (int w : r.wanted)
    if (w >= 0)
      out.push_back(static_cast<size_t>(w) < args.size() ? tape.gradient(args[static_cast<size_t>(w)])
                                                         : nothing(in[0]));
}

struct SoftmaxParams {
  int64_t axis = -1;
  static constexpr auto fields() { return field_list("axis", &SoftmaxParams::axis); }
};
// y, dy
void softmax_backward(Emitter&, const SoftmaxParams& p, In in, Out& out) {
  const Val &y = in[0], &dy = in[1];
  out.push_back(y * (dy - sum(y * dy, {p.axis}, true)));
}
// dy, places, x: dy back where it came from in each row
void argsort_backward(Emitter& em, const None&, In in, Out& out) {
  const Val &dy = in[0], &like = in[2];
  const Val rows = expand(iota(dy, size_at(dy, 0)), {1});
  const Val args[] = {zeros(dy, like.sizes()), dy, rows, cast(in[1], DType::I32)};
  out.push_back(emit_all(em, "index_incr", args, make_attrs(MultiIndexAttrs{{0, 1}, 0}))[0]);
}
struct DiagParams {
  int64_t k = 0;
  static constexpr auto fields() { return field_list("k", &DiagParams::k); }
};
// the shape of x, dy: a diagonal is put back into zeros, a matrix gives its diagonal
void diag_backward(Emitter& em, const DiagParams& p, In in, Out& out) {
  const SizeValues s = sizes_of("DiagBackward", "the shape", in[0]);
  const Val& dy = in[1];
  const OpClass& diag = get("Diag");
  const std::shared_ptr<const void> params = diag.build(std::array{NamedParam{"k", p.k}});
  if (s.now.size() == 1) return diag.rule(em, params.get(), std::array{dy}, out);
  const Val zero = em.constant(0, dy.dtype(), dy);
  const Val x = emit_sized("broadcast_to", {zero}, ShapeAttrs{s.now}, "shape", s);
  const int64_t rows = s.now[0], cols = s.now[1], down = std::max<int64_t>(-p.k, 0), right = std::max<int64_t>(p.k, 0);
  std::vector<int64_t> at;
  for (int64_t i = 0; i + down < rows && i + right < cols; ++i) at.push_back((i + down) * cols + i + right);
  for (int axis : {0, 1}) dim(x, axis);  // the places are those of these sizes
  const Val args[] = {shaped(x, {-1}), dy, int_table(x, at, Shape{static_cast<int64_t>(at.size())})};
  out.push_back(reshape(emit_all(em, "index_set", args, make_attrs(MultiIndexAttrs{{0}, 0}))[0], Shape{rows, cols}));
}

using Rule = void (*)(Emitter&, const void*, In, Out&);

template <size_t... kRow>
constexpr std::array<Rule, sizeof...(kRow)> rules(std::index_sequence<kRow...>) {
#ifdef MGE_LITE_ONLY  // has no vjp rules
  return {};
#else
  return {backward<kRow>...};
#endif
}

void add_rows(Table& t) {
  constexpr auto kRules = rules(std::make_index_sequence<std::size(kRows)>());
  const OpDef* mul = OpRegistry::global().find("mul");
  const bool gradients = mul && mul->vjp;  // of what this runtime registered
  for (size_t i = 0; i < std::size(kRows); ++i) {
    const Row& r = kRows[i];
    auto forward = std::find_if(t.classes.begin(), t.classes.end(), [&](auto& c) { return c.name == r.forward; });
    if (forward == t.classes.end()) continue;  // not in this build
    OpClass c = *forward;
    c.name = r.name;
    c.in_python = false;
    c.effect = Effect::None;
    c.min_in = 2, c.max_in = -1;
    c.files.clear();
    for (auto& f : r.files)
      if (!f.name.empty()) c.files.push_back(f);
    c.rule = gradients ? kRules[i] : nullptr;
    if (!c.rule) c.absent = "a gradient, which needs the training package";
    t.classes.push_back(std::move(c));
  }
}

}  // namespace

void add_backward(Table& t) {
  add_rows(t);
  t.add_file_type<SoftmaxParams, softmax_backward>("SoftmaxBackward", {2, 2}, "SoftmaxBackward@1");
  t.add_file_type<None, argsort_backward>("ArgsortBackward", {3, 3}, "ArgsortBackward@1");
  t.add_file_type<DiagParams, diag_backward>("DiagBackward", {2, 2}, "DiagBackward@1");
}

}  // namespace mge::compat
