#include "jit/interp/rows.h"

#include "base/cost.h"
#include "base/parallel.h"
#include "jit/interp/source.h"
#include "kernel/reduce_order.h"
#include "op/in_build.h"

namespace mge::interp {
namespace {

// Rows of a group stay in the first cache as long as they are short; a long row is a group of its own.
constexpr int64_t kGroup = 1024;
// One group of the pairwise tree of op reduce, and a few rows of it in the second cache.
constexpr int64_t kMaxLength = 16 * kRowBlock;

struct RowSpace {
  Shape full, kept;  // of every element, and of one value for each row
  int64_t rows = 1, length = 1;
  uint32_t row_inputs = 0;
};

bool widens_to(const Shape& x, const Shape& full) {
  if (x.rank > full.rank) return false;
  for (int k = 0; k < x.rank; ++k)
    if (x[k] != 1 && x[k] != full[full.rank - x.rank + k]) return false;
  return true;
}

/// Null, or why the first reduction of the region is not one of rows. All operands together have the full shape.
const char* find_space(const KernelArgs& a, RowSpace* s) {
  for (auto& t : a.in) s->full = broadcast_shapes("fused", s->full, t.shape);
  s->kept = s->full;
  for (const FusedStep& x : attrs_as<FusedRegion>(a.attrs).steps) {
    if (!x.op->is(kReduction)) continue;
    const uint32_t axes = reduced_axes(attrs_as<ReduceAttrs>(x.attrs.get()).axes, s->full.rank);
    for (int i = 0; i < s->full.rank; ++i) {
      const bool reduced = axes >> i & 1;
      if (s->full[i] != 1 && !reduced && s->length > 1) return "reduces other axes than the last ones";
      if (reduced) s->kept[i] = 1;
      (reduced ? s->length : s->rows) *= s->full[i];
    }
    break;
  }
  if (s->full.numel() == 0 || s->length == 1) return "nothing is reduced";
  if (s->length > kMaxLength) return "rows of more than 16384 elements";
  for (size_t i = 0; i < a.in.size(); ++i) {
    const Shape& x = a.in[i].shape;
    bool row = true;
    for (int k = 0; k < x.rank; ++k) row &= x[k] == 1 || s->kept[s->full.rank - x.rank + k] != 1;
    s->row_inputs |= static_cast<uint32_t>(row) << i;
  }
  return nullptr;
}

// Whether all steps go by these rows.
const char* refuse_rows(const KernelArgs& a) {
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  if (a.in.size() > kMaxInputs) return "more than 16 inputs";
  if (!r.staged()) return "no step reads what was reduced";
  for (const FusedStep& x : r.steps)
    if (x.op->is(kReduction) && r.dtype_of(x.args[0]) != DType::F32) return "reduces other numbers than float32";
  std::vector<Meta> metas(a.in.size());
  SmallVec<const Meta*, 8> in;
  for (size_t i = 0; i < a.in.size(); ++i) {
    metas[i].dtype = a.in[i].dtype, metas[i].shape = a.in[i].shape;
    in.push_back(&metas[i]);
  }
  const std::vector<Shape> shapes = step_shapes(r, {in.data(), in.size()});
  auto shape_of = [&](int arg) -> const Shape& {
    return arg >= 0 ? a.in[static_cast<size_t>(arg)].shape : shapes[static_cast<size_t>(-1 - arg)];
  };
  const Shape& full = shape_of(r.steps[static_cast<size_t>(r.reduction())].args[0]);
  for (auto& t : a.in)
    if (!widens_to(t.shape, full)) return "an input of another shape";
  RowSpace s;
  if (const char* why = find_space(a, &s)) return why;
  std::vector<bool> read(r.steps.size());
  for (auto& x : r.steps)
    for (int arg : x.args)
      if (arg < 0) read[static_cast<size_t>(-1 - arg)] = true;
  for (size_t k = 0; k < shapes.size(); ++k) {
    const FusedStep& x = r.steps[k];
    if (!x.op->is(kReduction)) {
      if (!(shapes[k] == s.full) && !(shapes[k] == s.kept)) return "a step of another shape";
      continue;
    }
    const auto& at = attrs_as<ReduceAttrs>(x.attrs.get());
    if (!(shape_of(x.args[0]) == s.full)) return "reduces something of another shape";
    const uint32_t axes = reduced_axes(at.axes, s.full.rank);
    for (int i = 0; i < s.full.rank; ++i)
      if (s.full[i] != 1 && (axes >> i & 1) != (s.kept[i] == 1)) return "reduces unlike rows";
    if (!at.keepdims && read[k]) return "a reduction without its axes is read";
  }
  return lowered_rows(a.attrs, s.row_inputs).refusal;
}

ReduceLeaves<float> leaves_of(ReduceMode mode) {
#ifdef MGE_WITH_SIMD
  return simd_reduce_leaves(mode);
#else
  return ref_reduce_leaves<float>(mode);
#endif
}

// y[r] = the row x[r*n .. r*n+n) in the order of op reduce.
void reduce_rows(ReduceMode mode, const ReduceLeaves<float>& leaves, const float* x, int64_t rows, int64_t n,
                 float* y) {
  if (n <= kRowBlock) {
    leaves.rows(x, rows, n, y);
  } else {
    const int64_t full = n / kRowBlock, left = n % kRowBlock;
    float part[kMaxLength / kRowBlock];
    for (int64_t r = 0; r < rows; ++r, x += n) {
      leaves.rows(x, full, kRowBlock, part);
      if (left) leaves.rows(x + full * kRowBlock, 1, left, part + full);
      y[r] = detail::pairwise(leaves, part, full + (left != 0));
    }
  }
  if (mode == ReduceMode::Mean)
    for (int64_t r = 0; r < rows; ++r) y[r] /= static_cast<float>(n);
}

// All steps for some rows. Operands are pointers to the first of them.
struct Group {
  const Lowered& l;
  std::span<const ReduceLeaves<float>> leaves;  // by mode
  int64_t rows, length;
  const char* in[kMaxInputs];
  int64_t stride[kMaxInputs];
  uint32_t repeated;  // inputs with one row for all
  char* target[kMaxTargets];
  char* registers;
  size_t register_bytes;

  char* place(Operand o) const {
    return o.kind == Operand::Target ? target[o.index] : registers + static_cast<size_t>(o.index) * register_bytes;
  }
  const char* read(Operand o, int64_t* step) const {
    const bool input = o.kind == Operand::Input;
    *step = input ? stride[o.index] : 1;
    return input ? in[o.index] : place(o);
  }

  bool repeats(Operand o) const { return o.kind == Operand::Input && (repeated >> o.index & 1); }

  void call(const RowCall& c) const {
    const char* at[3] = {};
    int64_t step[3] = {};
    bool mixed = false;
    for (int k = 0; k < c.n_in; ++k) {
      at[k] = read(c.in[k], &step[k]);
      mixed |= repeats(c.in[k]) || (c.in[k].per_row && !c.out.per_row && step[k] != 0);
    }
    if (c.reduces)
      return reduce_rows(c.mode, leaves[static_cast<size_t>(c.mode)], reinterpret_cast<const float*>(at[0]), rows,
                         length, reinterpret_cast<float*>(place(c.out)));
    const void* args[3] = {at[0], at[1], at[2]};
    if (!mixed) return c.fn(args, step, place(c.out), c.out.per_row ? rows : rows * length);
    int64_t within[3] = {}, next[3] = {};  // a value of the row is the same for all its elements
    for (int k = 0; k < c.n_in; ++k) {
      within[k] = c.in[k].per_row ? 0 : step[k];
      next[k] = repeats(c.in[k]) ? 0 : step[k] * (c.in[k].per_row ? 1 : length) * c.in[k].size;
    }
    char* to = place(c.out);
    for (int64_t r = 0; r < rows; ++r, to += length * c.out.size) {
      c.fn(args, within, to, length);
      for (int k = 0; k < c.n_in; ++k) args[k] = static_cast<const char*>(args[k]) + next[k];
    }
  }

  void finish(size_t t) const {
    const Operand from = l.targets[t].from;
    if (from.index < 0) return;
    int64_t step;
    const char* p = read(from, &step);
    const size_t n = static_cast<size_t>(rows * (from.per_row ? 1 : length));
    std::memcpy(target[t], p, n * from.size);  // never an input: a result is a step
  }
};

void run_rows(const KernelArgs& a) {
  RowSpace s;
  find_space(a, &s);
  const Lowered& l = lowered_rows(a.attrs, s.row_inputs);
  TensorArg full, kept;
  full.shape = s.full, full.layout = Layout::contiguous(s.full);
  kept.shape = s.kept, kept.layout = Layout::contiguous(s.kept);
  SmallVec<Source, 8> in;
  for (size_t i = 0; i < a.in.size(); ++i) in.emplace_back(s.row_inputs >> i & 1 ? kept : full, a.in[i]);
  uint32_t repeated = 0, reduced = 0;  // a reduction reads its rows one behind the other
  for (const RowCall& c : l.calls)
    if (c.reduces && c.in[0].kind == Operand::Input) reduced |= 1u << c.in[0].index;
  for (size_t i = 0; i < in.size(); ++i) {
    const Source& x = in[i];
    bool one = !((s.row_inputs | reduced) >> i & 1) && x.kind == Source::Nest && x.inner == s.length && x.step == 1;
    for (int k = 0; k + 1 < x.nest.rank; ++k) one &= x.nest.stride[1][k] == 0;
    repeated |= static_cast<uint32_t>(one) << i;
  }
  SmallVec<ReduceLeaves<float>, 5> leaves;
  for (ReduceMode m : {ReduceMode::Sum, ReduceMode::Mean, ReduceMode::Max, ReduceMode::Min, ReduceMode::Prod})
    leaves.push_back(leaves_of(m));
  const int64_t group = std::max<int64_t>(1, kGroup / s.length), tile = group * s.length;
  const int64_t groups = (s.rows + group - 1) / group;
  parallel_for(groups, value_grain(0.5 * static_cast<double>(tile) * static_cast<double>(l.calls.size())),
               [&](int64_t b, int64_t e) {
                 const size_t bytes = static_cast<size_t>(tile) * 8;
                 char* scratch = scratch_of(l, in.size(), tile);
                 for (; b < e; ++b) {
                   const int64_t row = b * group, rows = std::min(group, s.rows - row);
                   Group g{l, {leaves.data(), leaves.size()}, rows, s.length, {}, {}, repeated, {}, scratch, bytes};
                   char* pack = scratch + static_cast<size_t>(l.registers) * bytes;
                   for (size_t i = 0; i < in.size(); ++i, pack += bytes) {
                     const int64_t each = s.row_inputs >> i & 1 ? 1 : s.length;
                     if (repeated >> i & 1) {
                       g.in[i] = in[i].base, g.stride[i] = 1;
                       continue;
                     }
                     const void* p = in[i].get(row * each, rows * each, pack, &g.stride[i]);
                     if ((reduced >> i & 1) && g.stride[i] == 0) {
                       std::fill_n(reinterpret_cast<float*>(pack), rows * each, *static_cast<const float*>(p));
                       p = pack, g.stride[i] = 1;
                     }
                     g.in[i] = static_cast<const char*>(p);
                   }
                   for (size_t t = 0; t < l.targets.size(); ++t) {
                     const int64_t each = l.targets[t].per_row ? 1 : s.length;
                     const auto size = static_cast<int64_t>(dtype_size(l.targets[t].dtype));
                     g.target[t] = a.out[t].data<char>() + row * each * size;
                   }
                   for (const RowCall& c : l.calls) g.call(c);
                   for (size_t t = 0; t < l.targets.size(); ++t) g.finish(t);
                 }
               });
}

}  // namespace

void register_rows(KernelRegistry& r) {
  r.add("fused", KernelTier::Simd,
        {.name = "interp_fused_rows", .refuse = refuse_rows, .run = run_rows, .flags = kStridedInputs | kInPlaceAll});
}

}  // namespace mge::interp
