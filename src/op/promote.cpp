#include "op/promote.h"

#include <algorithm>

#include "op/elementwise/scalar_body.h"

namespace mge {
namespace {

int kind(DType t) {
  if (t == DType::Bool) return 1;
  if (is_int(t)) return 2;
  return is_float(t) ? 3 : 0;
}

// NumPy's promotion of two dtypes of one kind, in 32 bits at most; a tensor that has 64 keeps them.
DType join(DType like, DType other) {
  auto size = [](DType t) { return static_cast<int64_t>(dtype_size(t)); };
  if (other == like || like == DType::F64 || like == DType::I64) return like;
  if (is_float(like)) return DType::F32;
  if (is_unsigned(like) == is_unsigned(other)) return size(other) > size(like) ? in_32_bits(other) : like;
  const DType with_sign = is_unsigned(like) ? other : like, without = is_unsigned(like) ? like : other;
  return std::max(size(with_sign), 2 * size(without)) <= 2 ? DType::I16 : DType::I32;
}

}  // namespace

bool has_kind(DType t) { return kind(t) != 0; }
bool ranks_above(DType t, DType like) { return kind(t) > kind(like); }

DType number_beside(DType natural, DType like) {
  if (is_quant(like)) return DType::F32;
  return ranks_above(natural, like) ? natural : like;
}

DType array_beside(DType given, DType like) {
  if (kind(given) > kind(like)) return in_32_bits(given);
  return kind(given) < kind(like) ? like : join(like, given);
}

DType constant_dtype(std::span<const DType> strong, std::span<const DType> weak) {
  auto top = [](std::span<const DType> ts) {
    int k = 0;
    for (DType t : ts) k = std::max(k, kind(t));
    return k;
  };
  const bool numbers = top(weak) > top(strong);
  const std::span<const DType> group = numbers ? weak : strong;
  const int highest = top(group);
  DType common{};
  bool any = false;
  for (DType t : group) {
    if (kind(t) != highest) continue;
    common = !any ? t : highest ? join(common, t) : promote_types("result_type", common, t);
    any = true;
  }
  MGE_CHECK(any, Value, "result_type: needs at least one tensor, array or number.");
  return common;
}

DType promote_types(std::string_view who, DType a, DType b) {
  if (a == b) return a;
  if (is_quant(a) || is_quant(b)) {
    MGE_CHECK(!(is_quant(a) && is_quant(b)), Type, "{}: quantised dtypes {} and {} differ.", who, dtype_name(a),
              dtype_name(b));
    return is_quant(a) ? a : b;
  }
  auto real = [](DType t) { return is_float(t) || is_int(t) || t == DType::Bool; };
  if ((a == DType::C64 && real(b)) || (b == DType::C64 && real(a))) return DType::C64;
  auto category = [](DType t) { return is_float(t) ? 3 : is_int(t) ? 2 : t == DType::Bool ? 1 : 0; };
  int ca = category(a), cb = category(b);
  MGE_CHECK(ca && cb, Type, "{}: no common dtype for {} and {}. Cast one with astype.", who, dtype_name(a),
            dtype_name(b));
  if (ca != cb) {
    if (a == DType::F64 || b == DType::F64) return DType::F64;
    return DType::F32;
  }
  if (ca == 3) {  // float16 with anything else counts as float32
    if (a == DType::F64 || b == DType::F64) return DType::F64;
    return DType::F32;
  }
  MGE_CHECK(is_unsigned(a) == is_unsigned(b), Type,
            "{}: dtype promotion rule between different signedness is undefined; got {} and {}. Cast one with astype.",
            who, dtype_name(a), dtype_name(b));
  return std::max(a, b);  // I8 < I16 < I32 < I64 and U8 < U16 by declaration order
}

DType amp_dtype(Amp amp, DType t, DType low, DType high) {
  if (amp == Amp::None || !is_float(t)) return t;
  return amp == Amp::Low ? low : high;
}

namespace {

// What sums of products are kept in.
DType summed(const OpDef& op, DType t) {
  const bool narrow = t == DType::Bool || (is_int(t) && dtype_size(t) < 4);
  return op.promote == Promote::Product && narrow ? DType::I32 : t;
}

// Ops whose first operands are images that may have 16 bits beside parameters in float32.
struct Mixed {
  std::string_view op;
  size_t images;
};
constexpr Mixed kMixed[] = {{"batch_norm_train", 1}, {"batch_norm_bwd", 2}};
const Mixed* mixed_of(const OpDef& op) {
  auto at = std::ranges::find(kMixed, std::string_view(op.name), &Mixed::op);
  return at == std::end(kMixed) ? nullptr : at;
}
bool is_mixed(const Mixed& m, std::span<const Meta* const> in) {
  const DType t = in[0]->dtype;
  if ((t != DType::F16 && t != DType::BF16) || in.size() <= m.images) return false;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i]->dtype != (i < m.images ? t : DType::F32)) return false;
  return true;
}

}  // namespace

bool takes_mixed(const OpDef& op) { return mixed_of(op); }

bool promote_op(const OpDef& op, std::span<const Meta* const> in, std::span<DType> want) {
  for (size_t i = 0; i < in.size(); ++i) want[i] = in[i]->dtype;
  if (op.promote == Promote::None || in.empty()) return false;
  if (op.promote == Promote::Bool) {
    for (auto* m : in)
      MGE_CHECK(m->dtype == DType::Bool, Type, "{}: needs bool tensors; got {}. Compare first, for example x > 0.",
                op.name, dtype_name(m->dtype));
    return false;
  }
  if (const Mixed* m = mixed_of(op); m && is_mixed(*m, in)) return false;
  const size_t first = op.scalar && op.scalar->selects ? 1 : 0;  // the condition of a select keeps its dtype
  DType common = in[first]->dtype;
  for (size_t i = first + 1; i < in.size(); ++i) {
    if (op.promote == Promote::Same)
      MGE_CHECK(in[i]->dtype == common, Type, "{}: inputs must share one dtype; got {} and {}. Cast one with astype.",
                op.name, dtype_name(common), dtype_name(in[i]->dtype));
    else if (in[i]->dtype != common)
      common = promote_types(op.name, summed(op, common), summed(op, in[i]->dtype));
  }
  if (op.promote == Promote::Float && (is_int(common) || common == DType::Bool)) common = DType::F32;
  common = summed(op, common);
  bool any = false;
  for (size_t i = first; i < in.size(); ++i) {
    any |= want[i] != common;
    want[i] = common;
  }
  return any;
}

}  // namespace mge
