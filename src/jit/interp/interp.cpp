#include "jit/interp/interp.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/cost.h"
#include "base/parallel.h"
#include "jit/interp/lower.h"
#include "jit/interp/rows.h"
#include "jit/interp/source.h"
#include "kernel/copy.h"
#include "kernel/layouts.h"
#include "kernel/reduce_order.h"
#include "kernel/run.h"
#include "op/in_build.h"

namespace mge {
namespace {

using interp::kMaxInputs;
using interp::kMaxTargets;
using interp::Lowered;
using interp::Operand;
using interp::RowCall;
using interp::scratch_of;
using interp::Source;

// One tile [b, b+n) of every target; to[t] is where the first element of the tile goes.
void run_tile(const Lowered& l, std::span<const Source> in, char* const* to, int64_t b, int64_t n, char* scratch) {
  const auto reg_bytes = static_cast<size_t>(l.tile) * 8;
  const void* ptr[kMaxInputs];
  int64_t stride[kMaxInputs];
  char* pack = scratch + static_cast<size_t>(l.registers) * reg_bytes;
  for (size_t i = 0; i < in.size(); ++i) ptr[i] = in[i].get(b, n, pack + i * reg_bytes, &stride[i]);
  auto place = [&](Operand at) {
    return at.kind == Operand::Target ? to[at.index] : scratch + static_cast<size_t>(at.index) * reg_bytes;
  };
  for (const RowCall& c : l.calls) {
    const void* args[3];
    int64_t steps[3];
    for (int k = 0; k < c.n_in; ++k) {
      bool input = c.in[k].kind == Operand::Input;
      args[k] = input ? ptr[c.in[k].index] : place(c.in[k]);
      steps[k] = input ? stride[c.in[k].index] : 1;
    }
    c.fn(args, steps, place(c.out), n);
  }
  for (size_t t = 0; t < l.targets.size(); ++t) {
    const Operand from = l.targets[t].from;
    if (from.index < 0) continue;
    const size_t size = dtype_size(l.targets[t].dtype);
    const bool input = from.kind == Operand::Input, one = input && stride[from.index] == 0;
    const char* p = input ? static_cast<const char*>(ptr[from.index]) : place(from);
    if (!one)
      std::memcpy(to[t], p, static_cast<size_t>(n) * size);
    else
      for (int64_t i = 0; i < n; ++i) std::memcpy(to[t] + static_cast<size_t>(i) * size, p, size);
  }
}

void run_fused(const KernelArgs& a) {
  TensorArg out = a.out[0];
  int64_t total = out.numel();
  if (total == 0) return;
  const Lowered& l = interp::lowered(a.attrs);
  SmallVec<TensorArg, 8> operands(a.in.begin(), a.in.end());
  if (!out.contiguous()) sort_axes_by_output(out, {operands.data(), operands.size()});  // tiles follow the memory
  SmallVec<Source, 8> in;
  for (auto& t : operands) in.emplace_back(out, t);
  int64_t tiles = (total + l.tile - 1) / l.tile;
  int64_t grain = value_grain(0.5 * l.tile * l.calls.size());
  parallel_for(tiles, grain, [&](int64_t b, int64_t e) {
    char* scratch = scratch_of(l, in.size(), l.tile);
    for (; b < e; ++b) {
      char* to[kMaxTargets];
      for (size_t t = 0; t < l.targets.size(); ++t)
        to[t] = a.out[t].data<char>() + b * l.tile * static_cast<int64_t>(dtype_size(l.targets[t].dtype));
      run_tile(l, {in.data(), in.size()}, to, b * l.tile, std::min(l.tile, total - b * l.tile), scratch);
    }
  });
}

// All outputs lie alike: a tile is one range of each.
void fused_layouts(const KernelArgs& a, TensorArg* in, TensorArg* out) {
  keep_channels_last(a, in, out);
  for (size_t o = 1; o < a.out.size(); ++o) out[o].layout = out[0].layout;
}

Shape full_shape(std::span<const TensorArg> in) {
  Shape s;
  for (auto& t : in) s = broadcast_shapes("fused", s, t.shape);
  return s;
}

// The reduction asks for elements in its own order (kernel/reduce_order.h) and gets them computed: every element once,
// none of them ever in memory unless it is a result too. Order and leaves are those of op reduce, hence its bits.
template <class A>
void run_reduced(const KernelArgs& a, const Lowered& l, const ReduceLeaves<A>& leaves, ReduceMode mode) {
  const FusedStep& step = l.region().steps[static_cast<size_t>(l.reduction)];
  TensorArg full;
  full.shape = full_shape(a.in);
  full.layout = Layout::contiguous(full.shape);
  SmallVec<Source, 8> in;
  for (auto& t : a.in) in.emplace_back(full, t);
  const size_t read = l.targets.size() - 1;  // the target the reduction reads
  const DType dtype = l.targets[read].dtype;
  auto make = [&](int64_t at, int64_t n, A* dst) {
    char* scratch = scratch_of(l, in.size(), l.tile);
    alignas(64) char other[kRowTile * 8];  // elements that are not accumulators yet
    const bool same = dtype == kDTypeOf<A>;
    const int64_t most = same ? l.tile : std::min(l.tile, kRowTile);
    for (int64_t i = 0; i < n; i += most) {
      const int64_t m = std::min(most, n - i);
      char* to[kMaxTargets];
      for (size_t t = 0, o = 0; t < read; ++t, ++o) {
        if (static_cast<int>(o) == l.reduced_output) ++o;
        to[t] = a.out[o].data<char>() + (at + i) * static_cast<int64_t>(dtype_size(l.targets[t].dtype));
      }
      to[read] = same ? reinterpret_cast<char*>(dst + i) : other;
      run_tile(l, {in.data(), in.size()}, to, at + i, m, scratch);
      if (!same) load_row(dtype, other, 1, kComputeOf<A>, dst + i, m);
    }
  };
  const MakeElements<A> elements(make);
  const uint32_t mask = reduced_axes(attrs_as<ReduceAttrs>(step.attrs.get()).axes, full.shape.rank);
  reduce_elements<A>(full.shape, mask, {nullptr, dtype, &elements}, a.out[static_cast<size_t>(l.reduced_output)],
                     leaves, mode == ReduceMode::Mean);
}

void run_fused_reduce(const KernelArgs& a) {
  const Lowered& l = interp::lowered(a.attrs);
  const FusedStep& step = l.region().steps[static_cast<size_t>(l.reduction)];
  const ReduceMode mode = parse_reduce_mode(attrs_as<ReduceAttrs>(step.attrs.get()).mode);
  const DType t = l.targets.back().dtype;
  if (t == DType::F64 || reduces_in_double(mode, t))
    return run_reduced<double>(a, l, ref_reduce_leaves<double>(mode), mode);
  if (!is_float(t) && mode != ReduceMode::Mean)
    return run_reduced<int64_t>(a, l, ref_reduce_leaves<int64_t>(mode), mode);
#ifdef MGE_WITH_SIMD
  return run_reduced<float>(a, l, simd_reduce_leaves(mode), mode);
#else
  return run_reduced<float>(a, l, ref_reduce_leaves<float>(mode), mode);
#endif
}

const char* refuse_any(const KernelArgs& a) {
  if (a.in.size() > kMaxInputs) return "more than 16 inputs";
  return interp::lowered(a.attrs).refusal;
}
const char* refuse_split(const KernelArgs& a) {
  if (a.in.size() > kMaxInputs) return "more than 16 inputs";
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  if (!r.staged()) return "no step reads what was reduced";
  const interp::Split& s = interp::split(a.attrs);
  if (s.refusal) return s.refusal;
  const char* first = interp::lowered(s.before.get()).refusal;
  return first ? first : interp::lowered(s.after.get()).refusal;
}

// Up to the reduction, then what follows it, over what was reduced: small as a rule, and in cache.
void run_split(const KernelArgs& a) {
  const interp::Split& s = interp::split(a.attrs);
  auto part = [&](const Attrs& attrs, std::span<const TensorArg> in, std::span<const TensorArg> out) {
    KernelArgs p = a;
    p.attrs = attrs.get(), p.in = in, p.out = out;
    return p;
  };
  SmallVec<TensorArg, 8> in, out;
  for (int i : s.before_in) in.push_back(a.in[static_cast<size_t>(i)]);
  for (int o : s.before_out) out.push_back(a.out[static_cast<size_t>(o)]);
  Buffer own;
  if (static_cast<size_t>(s.reduced) == out.size()) {
    const auto& r = attrs_as<FusedRegion>(s.before.get());
    const FusedStep& step = r.steps[static_cast<size_t>(r.reduction())];
    Meta x, y;
    x.dtype = r.dtype_of(step.args[0]);
    x.shape = full_shape({in.data(), in.size()});
    const Meta* from = &x;
    infer_op(*step.op, step.attrs.get(), {&from, 1}, {&y, 1});
    own = allocate_buffer(y);
    out.push_back(make_arg(y, own));
  }
  run_fused_reduce(part(s.before, {in.data(), in.size()}, {out.data(), out.size()}));
  SmallVec<TensorArg, 8> rest{out[static_cast<size_t>(s.reduced)]}, results;
  for (int i : s.after_in) rest.push_back(a.in[static_cast<size_t>(i)]);
  for (int o : s.after_out) results.push_back(a.out[static_cast<size_t>(o)]);
  run_fused(part(s.after, {rest.data(), rest.size()}, {results.data(), results.size()}));
}
const char* refuse_fused(const KernelArgs& a) {
  if (const char* why = refuse_any(a)) return why;
  return interp::lowered(a.attrs).reduction >= 0 ? "the region has a reduction" : nullptr;
}
const char* refuse_fused_reduce(const KernelArgs& a) {
  if (const char* why = refuse_any(a)) return why;
  const Lowered& l = interp::lowered(a.attrs);
  if (l.reduction < 0) return "the region has no reduction";
  return l.reduced_output < 0 ? "the reduction is no result" : nullptr;
}

// A view that repeats a value to the shape of `like`.
TensorArg widened(const TensorArg& x, const Shape& shape) {
  TensorArg wide = x;
  wide.shape = shape;
  wide.layout.offset = 0;
  for (int i = 0; i < shape.rank; ++i) {
    int ax = i - (shape.rank - x.shape.rank);
    wide.layout.stride[i] = ax < 0 || x.shape[ax] == 1 ? 0 : x.layout.stride[ax];
  }
  return wide;
}

// One step after the other over whole tensors, with the reference kernels: what the tile interpreter is compared with.
void run_fused_ref(const KernelArgs& a) {
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  const Shape full = r.staged() ? Shape() : full_shape(a.in);
  std::vector<Meta> metas(r.inputs.size() + r.steps.size());
  std::vector<Buffer> values(metas.size());
  auto keep = [](const TensorArg& t) {  // the caller owns the memory; strides may reach before ptr: no bounds here
    return Buffer{wrap_storage(t.ptr, 0, false, [] {}), t.layout};
  };
  for (size_t i = 0; i < a.in.size(); ++i) {
    metas[i].dtype = a.in[i].dtype;
    metas[i].shape = a.in[i].shape;
    values[i] = keep(a.in[i]);
    values[i].layout.offset = 0;  // ptr includes it
  }
  auto value_of = [&](int x) {
    return x >= 0 ? static_cast<size_t>(x) : r.inputs.size() + static_cast<size_t>(-1 - x);
  };
  const bool staged = r.staged();
  for (size_t k = 0; k < r.steps.size(); ++k) {
    const FusedStep& s = r.steps[k];
    SmallVec<OpInput, 3> in;
    SmallVec<const Meta*, 3> in_metas;
    Meta wide;
    Buffer repeated;
    for (int x : s.args) {
      size_t v = value_of(x);
      in.push_back({&metas[v], &values[v]});
      in_metas.push_back(&metas[v]);
    }
    if (!staged && static_cast<int>(k) == r.reduction()) {
      wide = *in_metas[0];
      wide.shape = full;
      repeated = keep(widened(make_arg(*in_metas[0], *in[0].buffer), full));
      in[0] = {&wide, &repeated};
      in_metas[0] = &wide;
    }
    size_t o = r.inputs.size() + k;
    infer_op(*s.op, s.attrs.get(), {in_metas.data(), in_metas.size()}, {&metas[o], 1});
    run_op(*s.op, s.attrs.get(), {in.data(), in.size()}, {&metas[o], 1}, {&values[o], 1}, {.ref_only = true});
  }
  // The steps may broadcast to less than the inputs together do; the view repeats what is missing.
  for (size_t o = 0; o < r.outputs.size(); ++o) {
    size_t v = value_of(r.outputs[o]);
    copy_strided(widened(make_arg(metas[v], values[v]), a.out[o].shape), a.out[o]);
  }
}

}  // namespace

bool interp_can_fuse(const OpDef& op, const AttrsBase*, std::span<const DType> in, DType out) {
  if (in.empty() || in.size() > 3) return false;
  DType t = in.back();
  if (t > DType::F64 || out > DType::F64) return false;  // complex64 has no rows
  if (op.name == "reduce") return true;                  // every dtype that has rows can be accumulated
  for (size_t i = 0; i + 1 < in.size(); ++i)
    if (in[i] != t && !(i == 0 && in.size() == 3 && in[0] == DType::Bool)) return false;
  auto narrow = [](DType d) { return d == DType::F16 || d == DType::BF16; };
  if (op.name == "typecvt" || !narrow(t)) return interp::row_of(op, t, out) != nullptr;
  const OpDef& cvt = OpRegistry::global().get("typecvt");
  return interp::row_of(cvt, t, DType::F32) && interp::row_of(cvt, DType::F32, t) &&
         interp::row_of(op, DType::F32, out == t ? DType::F32 : out);
}

void register_interp_kernels(KernelRegistry& r) {
  r.add("fused", KernelTier::Simd,
        {.name = "interp_fused",
         .refuse = refuse_fused,
         .run = run_fused,
         .flags = kStridedInputs | kInPlaceAll,
         .layouts = fused_layouts});
  r.add(
      "fused", KernelTier::Simd,
      {.name = "interp_fused_reduce", .refuse = refuse_fused_reduce, .run = run_fused_reduce, .flags = kStridedInputs});
  interp::register_rows(r);
  r.add("fused", KernelTier::Simd,
        {.name = "interp_fused_split", .refuse = refuse_split, .run = run_split, .flags = kStridedInputs});
  r.add("fused", KernelTier::Ref, {.name = "interp_fused_ref", .run = run_fused_ref, .flags = kStridedInputs});
}

void install_interp() {
  static std::once_flag once;
  std::call_once(once, [] { register_interp_kernels(KernelRegistry::global()); });
}

}  // namespace mge
