// Reductions, casts, products, linear algebra, running sums.
#include "op/matmul/matmul.h"

#include "compat/emit.h"
#include "compat/enums.h"
#include "op/linalg/linalg.h"
#include "op/reduce/reduce.h"
#include "op/reduce/scan.h"
#include "op/shape/shape_ops.h"

namespace mge::compat {
namespace {

MGE_COMPAT_ENUM(ReduceKind, "Reduce", "Mode", SUM, SUM_SQR, PRODUCT, MIN, MAX, MEAN)
MGE_COMPAT_ENUM(ReduceType, "Reduce", "DataType", DEFAULT, FLOAT_IO16xC32, FLOAT_O32xC32, FLOAT_O16xC32, QUINT_I8xO32,
                QINT_I8xO32)
MGE_COMPAT_ENUM(MatrixFormat, "BatchedMatrixMul", "Format", DEFAULT, MK4, MK8, MK4_DOT, N32K4_DOT)

struct Reduce {
  ReduceKind mode = ReduceKind::SUM;
  int64_t axis = kIntMax;
  ReduceType data_type = ReduceType::DEFAULT;
  bool keepdim = true;
  static constexpr auto fields() {
    using P = Reduce;
    return field_list("mode", &P::mode, "axis", &P::axis, "data_type", &P::data_type, "keepdim", &P::keepdim);
  }
};
struct TypeCvt {
  TypeParam dtype;
  static constexpr auto fields() { return field_list("dtype", &TypeCvt::dtype); }
};
struct MatrixMul : Policy {
  bool transposeA = false, transposeB = false;
  ComputeMode compute_mode = ComputeMode::DEFAULT;
  MatrixFormat format = MatrixFormat::DEFAULT;
  int64_t dimA = 0, dimB = 0;
  static constexpr auto fields() {
    using P = MatrixMul;
    return std::tuple_cat(field_list("transposeA", &P::transposeA, "transposeB", &P::transposeB, "compute_mode",
                                     &P::compute_mode, "format", &P::format),
                          policy_fields(), field_list("dimA", &P::dimA, "dimB", &P::dimB));
  }
};
struct Svd {
  bool full_matrices = false, compute_uv = true;
  static constexpr auto fields() {
    return field_list("full_matrices", &Svd::full_matrices, "compute_uv", &Svd::compute_uv);
  }
};
struct Cumsum {
  int64_t axis = kIntMax;
  bool exclusive = true, reverse = false;
  static constexpr auto fields() {
    return field_list("axis", &Cumsum::axis, "exclusive", &Cumsum::exclusive, "reverse", &Cumsum::reverse);
  }
};
struct CrossParams {
  int64_t axisa = -1, axisb = -1, axisc = -1;
  static constexpr auto fields() {
    using P = CrossParams;
    return field_list("axisa", &P::axisa, "axisb", &P::axisb, "axisc", &P::axisc);
  }
};

void reduce_rule(Emitter&, const Reduce& p, In in, Out& out) {
  static const char* const kModes[] = {"sum", "sum", "prod", "min", "max", "mean"};
  const char* mode = kModes[static_cast<int>(p.mode)];
  MGE_CHECK(p.data_type < ReduceType::QUINT_I8xO32, NotImplemented,
            "Reduce: data_type {} arrives with the quantised ops.", name_of(p.data_type));
  // Sums of float16 are made in float32 in any case; the type says what comes out.
  const bool widen = p.data_type == ReduceType::FLOAT_O32xC32, narrow = p.data_type == ReduceType::FLOAT_O16xC32;
  auto finished = [&](const Val& y) {
    if (narrow) return cast(y, DType::F16);
    return !widen && is_float(in[0].dtype()) ? cast(y, in[0].dtype()) : y;
  };
  Val x = widen || narrow ? wide(in[0]) : in[0];
  if (p.mode == ReduceKind::SUM_SQR) x = unary("square", x);
  if (in.size() == 1) {
    const bool all = p.axis == kIntMax;
    return out.push_back(finished(reduce(x, mode, all ? Ints{} : Ints{p.axis}, !all && p.keepdim)));
  }
  // Down to a shape: the axes that it lacks or has with size 1 go.
  if (p.mode == ReduceKind::SUM && x.em->any_size(x))
    if (const SizeValues to = sizes_of("Reduce", "the target shape", in[1]); to.operand)
      return out.push_back(finished(emit_sized("sum_to", {x}, ShapeAttrs{to.now}, "shape", to)));
  const Shape want = to_shape(known_ints("Reduce", "the target shape", in[1]));
  // One element of all there are, whatever sizes and how many axes there will be.
  if (want.numel() == 1)
    return out.push_back(
        finished(reshape(now(x).numel() == 1 && !x.em->any_size(x) ? x : reduce(x, mode, Ints{}, false), want)));
  // Which ones those are is a matter of the sizes now: with others it is another reduction.
  const Shape have = x.shape();
  const int lead = have.rank - want.rank;
  MGE_CHECK(lead >= 0, Value, "Reduce: {} cannot be reduced to {}.", have.str(), want.str());
  Ints axes;
  for (int i = 0; i < have.rank; ++i)
    if (i < lead || (want[i - lead] == 1 && (have[i] != 1 || x.em->any_size(x)))) axes.push_back(i);
  out.push_back(finished(reshape(axes.empty() ? x : reduce(x, mode, axes, false), want)));
}

void type_cvt(Emitter&, const TypeCvt& p, In in, Out& out) {
  MGE_CHECK(p.dtype.dtype, Type, "TypeCvt: needs a dtype; got None.");
  out.push_back(converted(in[0], p.dtype));
}

Val dot(const Val& a, const Val& b) {
  MGE_CHECK(a.rank() <= 1 && b.rank() <= 1, Assertion, "Dot: needs vectors; got {} and {}. Use MatrixMul.",
            a.shape().str(), b.shape().str());
  MGE_CHECK(a.rank() == 0 || b.rank() == 0 || now(a) == now(b), Value, "Dot: the vectors differ in length, {} and {}.",
            a.shape().str(), b.shape().str());
  return sum(a * b);
}
void dot_rule(Emitter&, const None&, In in, Out& out) { out.push_back(dot(in[0], in[1])); }

// Vectors are taken as a row or a column, as np.matmul does.
void matrix_mul(Emitter&, const MatrixMul& p, In in, Out& out) {
  MGE_CHECK(p.format == MatrixFormat::DEFAULT, NotImplemented, "MatrixMul: format must be DEFAULT; got {}.",
            name_of(p.format));
  const Val &a = in[0], &b = in[1];
  const int na = a.rank(), nb = b.rank();
  MGE_CHECK(na && nb, Assertion, "MatrixMul: a 0-d tensor has no matrix product; got {} and {}.", a.shape().str(),
            b.shape().str());
  if (na == 1 && nb == 1) return out.push_back(dot(a, b));
  if (na == 1) return out.push_back(squeeze(matmul(shaped(a, {1, -1}), b, false, p.transposeB), {-2}));
  if (nb == 1) return out.push_back(squeeze(matmul(a, shaped(b, {-1, 1}), p.transposeA, false), {-1}));
  out.push_back(matmul(a, b, p.transposeA, p.transposeB));
}

void matrix_inverse(Emitter&, const None&, In in, Out& out) { out.push_back(unary("matinv", in[0])); }

void svd(Emitter& em, const Svd& p, In in, Out& out) {
  Out suv = emit_all(em, "svd", in, make_attrs(SvdAttrs{p.full_matrices && p.compute_uv}));
  out = p.compute_uv ? Out{suv[1], suv[0], suv[2]} : Out{Val{}, suv[0], Val{}};
}

void cumsum(Emitter&, const Cumsum& p, In in, Out& out) {
  out.push_back(emit("cumsum", {in[0]}, CumsumAttrs{p.axis == kIntMax ? 0 : p.axis, p.exclusive, p.reverse}));
}

Out vector_parts(const Val& given, int64_t axis, const char* who) {
  Val v = given;
  if (v.shape() == Shape{2}) {
    Val both[] = {v, filled(v, Shape{1}, 0, v.dtype())};
    v = concat(both, 0);
  }
  const int at = normalize_axis("Cross", axis, v.rank());
  MGE_CHECK(v.shape()[at] == 3, Value, "Cross: {} must have length 3 along axis {}; got {}.", who, axis,
            v.shape().str());
  return {pick(v, at, 0), pick(v, at, 1), pick(v, at, 2)};
}
void cross(Emitter&, const CrossParams& p, In in, Out& out) {
  const Out a = vector_parts(in[0], p.axisa, "a"), b = vector_parts(in[1], p.axisb, "b");
  const Val rows[] = {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
  out.push_back(stack(rows, normalize_axis("Cross", p.axisc, rows[0].rank() + 1)));
}

}  // namespace

void add_math(Table& t) {
  t.add<Reduce, reduce_rule>("Reduce", {1, 2}, "ReduceV2@1");
  t.add<TypeCvt, type_cvt>("TypeCvt", {1, 1}, "TypeCvtV2@1");
  t.add<None, matrix_inverse>("MatrixInverse", {1, 1}, "MatrixInverse@1");
  t.add<MatrixMul, matrix_mul>("MatrixMul", {2, 2}, "MatrixMulV2@1");
  t.add<MatrixMul, matrix_mul>("BatchedMatrixMul", {2, 2}, "BatchedMatrixMulV2@1");
  t.add<None, dot_rule>("Dot", {2, 2}, "Dot@1");
  t.add<Svd, svd>("SVD", {1, 1}, "SVD@1");
  t.add<Cumsum, cumsum>("Cumsum", {1, 1}, "CumsumV1@1");
  t.add<CrossParams, cross>("Cross", {2, 2}, "Cross@1");
}

}  // namespace mge::compat
