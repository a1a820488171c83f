// Normalisation, softmax and their statistics.
#include "op/norm/batch_norm.h"

#include <array>

#include "compat/emit.h"
#include "compat/enums.h"
#include "op/loss/softmax.h"
#include "op/norm/layer_norm.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(ParamDim, "BatchNorm", "ParamDim", DIM_11HW, DIM_1CHW, DIM_1C11, DIM_111C)

struct BatchNorm {
  ParamDim param_dim = ParamDim::DIM_11HW;
  FwdMode fwd_mode = FwdMode::TRAINING;
  double epsilon = 1e-4, avg_factor = 1, scale = 1, bias = 0;
  static constexpr auto fields() {
    using P = BatchNorm;
    return field_list("param_dim", &P::param_dim, "fwd_mode", &P::fwd_mode, "epsilon", &P::epsilon, "avg_factor",
                      &P::avg_factor, "scale", &P::scale, "bias", &P::bias);
  }
};
struct Norm {
  bool affine = true;
  double eps = 1e-5;
};
struct LayerNorm : Norm {
  int64_t normalized_dim = 1, normalized_size = 1;
  static constexpr auto fields() {
    using P = LayerNorm;
    return field_list("affine", &Norm::affine, "eps", &Norm::eps, "normalized_dim", &P::normalized_dim,
                      "normalized_size", &P::normalized_size);
  }
};
struct GroupNorm : Norm {
  int64_t group = 1;
  Format format = Format::NCHW;
  static constexpr auto fields() {
    using P = GroupNorm;
    return field_list("affine", &Norm::affine, "eps", &Norm::eps, "group", &P::group, "format", &P::format);
  }
};
struct GeneralNorm : Norm {
  int64_t axis_start = 0, axis_end = 0;
  static constexpr auto fields() {
    using P = GeneralNorm;
    return field_list("affine", &Norm::affine, "eps", &Norm::eps, "axis_start", &P::axis_start, "axis_end",
                      &P::axis_end);
  }
};
struct Lrn {
  int64_t n = 5;
  double k = 2, alpha = 1e-4, beta = 0.75;
  static constexpr auto fields() {
    return field_list("n", &Lrn::n, "k", &Lrn::k, "alpha", &Lrn::alpha, "beta", &Lrn::beta);
  }
};
struct Softmax {
  int64_t axis = -1;
  static constexpr auto fields() { return field_list("axis", &Softmax::axis); }
};

// Outputs: [new mean, new variance,] mean of the batch, 1 / deviation, reserve, y.
void batch_norm(Emitter& em, const BatchNorm& p, In in, Out& out) {
  const Val& x = in[0];
  const Attrs attrs = make_attrs(BatchNormAttrs{p.epsilon});
  const Val reserve = nothing(x, DType::U8);
  if (p.fwd_mode == FwdMode::INFERENCE) {
    MGE_CHECK(in.size() == 5, Value, "BatchNorm: INFERENCE needs x, scale, bias, mean and variance; got {} inputs.",
              in.size());
    const Val none = nothing(x);
    // Other parameters than one for each channel are spread as they are.
    auto composed = [&] {
      const Val scale = wide(in[1]) / unary("sqrt", wide(in[4]) + p.epsilon);
      return cast((wide(x) - wide(in[3])) * scale + wide(in[2]), x.dtype());
    };
    const bool channels = now(in[1]).rank != 4 || now(in[1]) == Shape{1, now(x)[1], 1, 1};
    const Val y = channels ? emit_all(em, "batch_norm_infer", in, attrs)[0] : composed();
    out = {in[3], in[4], none, none, reserve, y};
    return;
  }
  MGE_CHECK(in.size() == 3 || in.size() == 5, Value, "BatchNorm: TRAINING needs 3 or 5 inputs; got {}.", in.size());
  const Out r = emit_all(em, "batch_norm_train", in.subspan(0, 3), attrs);  // y, mean, variance, rstd
  if (in.size() == 5) {
    const int64_t n = x.shape().numel() / x.shape()[1];
    const double unbiased = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(n - 1, 1));
    auto towards = [&](const Val& old, const Val& now) {
      return old * (1 - p.avg_factor) + em.detached(now) * p.avg_factor;
    };
    out.push_back(towards(in[3], r[1]));
    out.push_back(towards(in[4], r[2] * unbiased));
  }
  out.insert(out.end(), {r[1], r[3], reserve, r[0]});
}

// x, dy, mean, rstd, scale -> dscale, dbias, dx
void batch_norm_backward(Emitter& em, const BatchNorm&, In in, Out& out) {
  const Val args[] = {in[0], in[1], in[4], in[2], in[3]};
  const Out g = emit_all(em, "batch_norm_bwd", args);
  out = {g[1], g[2], g[0]};
}

/// Parameters in float32 do not widen the result.
Val in_dtype_of(const Val& y, const Val& x) { return is_float(x.dtype()) ? cast(y, x.dtype()) : y; }

void check_affine(const char* who, In in) {
  MGE_CHECK(in.size() != 2, Value, "{}: takes weight and bias, or neither; got one.", who);
}

Out layer_normed(Emitter& em, In in, int64_t n_axes, double eps) {
  return emit_all(em, "layer_norm", in, make_attrs(LayerNormAttrs{n_axes, eps}));
}

Val without(const Val& stat, int rank, const Ints& axes) {
  if (stat.rank() == rank) return squeeze(stat, axes);
  return stat;
}

void layer_norm(Emitter& em, const LayerNorm& p, In in, Out& out) {
  check_affine("LayerNorm", in);
  const Shape s = now(in[0]);
  const int64_t n_axes = p.normalized_dim;
  MGE_CHECK(n_axes >= 1 && n_axes <= s.rank, Value, "LayerNorm: normalized_dim {} does not fit {}.", n_axes, s.str());
  const Out r = layer_normed(em, in, n_axes, p.eps);
  Ints ones;  // the statistics keep the normalised axes, with size 1
  for (int64_t i = s.rank - n_axes; i < s.rank; ++i) ones.push_back(i);
  out = {in_dtype_of(r[0], in[0]), without(r[1], s.rank, ones), without(r[2], s.rank, ones)};
}

void group_normed(const char* who, Emitter& em, double eps, int64_t groups, Format format, In in, Out& out) {
  check_affine(who, in);
  const Val& x = in[0];
  const Shape s = now(x);
  MGE_CHECK(format == Format::NCHW, NotImplemented, "{}: format must be NCHW; got {}.", who, name_of(format));
  MGE_CHECK(s.rank == 4, Value, "{}: the input needs 4 dimensions (N, C, H, W); got {}.", who, s.str());
  MGE_CHECK(groups > 0 && s[1] % groups == 0, Assertion, "{}: {} channels do not fall into {} groups.", who, s[1],
            groups);
  dim(x, 1);
  SizeValues by_group{{s[0], groups, -1}, {}};
  if (const Val sizes = em.size_operand(x)) {
    const Val parts[] = {slice(sizes, 0, 0, 1), int_table(x, std::array{groups, int64_t{-1}}, Shape{2})};
    by_group.operand = concat(parts, 0);
  }
  const Val rows = emit_sized("reshape", {x}, ShapeAttrs{by_group.now}, "shape", by_group);
  const Out r = layer_normed(em, {&rows, 1}, 1, eps);
  Val y = reshape(r[0], x.sizes());
  if (in.size() == 3) y = y * shaped(in[1], {1, s[1], 1, 1}) + shaped(in[2], {1, s[1], 1, 1});
  out = {in_dtype_of(y, x), wide(without(r[1], 3, {2})), wide(without(r[2], 3, {2}))};
}
void group_norm(Emitter& em, const GroupNorm& p, In in, Out& out) {
  group_normed("GroupNorm", em, p.eps, p.group, p.format, in, out);
}
void instance_norm(Emitter& em, const GroupNorm& p, In in, Out& out) {
  MGE_CHECK(in[0].rank() == 4, Value, "InstanceNorm: the input needs 4 dimensions (N, C, H, W); got {}.",
            in[0].shape().str());
  group_normed("InstanceNorm", em, p.eps, dim(in[0], 1), p.format, in, out);
}

// Axes start..end move to the back, where layer_norm works.
void general_norm(Emitter& em, const GeneralNorm& p, In in, Out& out) {
  check_affine("GeneralNorm", in);
  const Shape s = now(in[0]);
  MGE_CHECK(p.axis_start >= 0 && p.axis_start < p.axis_end && p.axis_end <= s.rank, Value,
            "GeneralNorm: axes {} to {} do not fit {}.", p.axis_start, p.axis_end, s.str());
  Ints perm, back(static_cast<size_t>(s.rank), 0);
  SizeValues rows;
  Out parts;
  const Val sizes = em.size_operand(in[0]);
  for (int i = 0; i < s.rank; ++i)
    if (i < p.axis_start || i >= p.axis_end) {
      perm.push_back(i);
      rows.now.push_back(s[i]);
      if (sizes) parts.push_back(slice(sizes, 0, i, i + 1));
    }
  if (!parts.empty()) rows.operand = concat(parts, 0);
  auto shaped_rows = [&](const Val& v) { return emit_sized("reshape", {v}, ShapeAttrs{rows.now}, "shape", rows); };
  for (int64_t i = p.axis_start; i < p.axis_end; ++i) perm.push_back(i);
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const bool last = p.axis_end == s.rank;
  Out args(in.begin(), in.end());
  if (!last) args[0] = transpose(in[0], perm);
  const Out r = layer_normed(em, args, p.axis_end - p.axis_start, p.eps);
  out = {last ? r[0] : transpose(r[0], back), shaped_rows(r[1]), shaped_rows(r[2])};
}

void lrn(Emitter&, const Lrn& p, In in, Out& out) {
  const Val& x = in[0];
  MGE_CHECK(p.n % 2 == 1, Value, "LRN: n must be odd; got {}.", p.n);
  MGE_CHECK(x.rank() == 4, Value, "LRN: the input needs 4 dimensions (N, C, H, W); got {}.", now(x).str());
  const std::pair<int64_t, int64_t> widths[] = {{0, 0}, {p.n / 2, p.n / 2}};
  const Val squares = padded(unary("square", x), widths);
  Val total = trimmed(squares, 1, 0, p.n - 1);
  for (int64_t i = 1; i < p.n; ++i) total = total + trimmed(squares, 1, i, p.n - 1 - i);
  const Val base = total * p.alpha + p.k;
  out.push_back(in_dtype_of(x * binary("pow", base, scalar_like(base, -p.beta)), x));
}

void softmax(Emitter&, const Softmax& p, In in, Out& out) {
  out.push_back(emit("softmax", {in[0]}, SoftmaxAttrs{p.axis}));
}

}  // namespace

void add_normalization(Table& t) {
  t.add<BatchNorm, batch_norm>("BatchNorm", {3, 5}, "BatchNormV1@1");
  t.add<BatchNorm, batch_norm_backward>("BatchNormBackward", {5, 6}, "BatchNormBackwardV1@1");
  t.add<LayerNorm, layer_norm>("LayerNorm", {1, 3}, "LayerNorm@1");
  t.add<GroupNorm, group_norm>("GroupNorm", {1, 3}, "GroupNorm@1 GroupNorm@2");
  t.add<GroupNorm, instance_norm>("InstanceNorm", {1, 3}, "InstanceNorm@1 InstanceNorm@2");
  t.add<GeneralNorm, general_norm>("GeneralNorm", {1, 3}, "GeneralNorm@1");
  t.add<Lrn, lrn>("LRN", {1, 1}, "LRN@1");
  t.add<Softmax, softmax>("Softmax", {1, 1}, "Softmax@1 Softmax@2");
}

}  // namespace mge::compat
