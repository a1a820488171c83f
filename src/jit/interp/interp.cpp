#include "jit/interp/interp.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/cost.h"
#include "base/parallel.h"
#include "jit/interp/lower.h"
#include "kernel/copy.h"
#include "kernel/layouts.h"
#include "kernel/run.h"

namespace mge {
namespace {

using interp::Lowered;
using interp::RowCall;

constexpr size_t kMaxInputs = 16;

// One operand of the node, seen along the output's linear index.
struct Source {
  const char* base = nullptr;
  size_t size = 0;  // bytes of an element
  enum { Row, Single, Nest } kind = Row;
  LoopNest nest;      // Nest: dims of (output, this), merged
  int64_t inner = 1;  // Nest: length and step of the innermost dim
  int64_t step = 0;

  Source(const TensorArg& out, const TensorArg& t) : base(static_cast<const char*>(t.ptr)), size(dtype_size(t.dtype)) {
    const TensorArg* both[] = {&out, &t};
    nest = make_loop_nest(out.shape, both);
    if (nest.rank == 0) {
      kind = Single;
    } else if (nest.rank == 1 && nest.stride[1][0] == 1) {
      kind = Row;
    } else if (nest.rank == 1 && nest.stride[1][0] == 0) {
      kind = Single;
    } else {
      kind = Nest;
      inner = nest.size[nest.rank - 1];
      step = nest.stride[1][nest.rank - 1];
    }
  }

  const char* at(int64_t row, int64_t col) const {
    int64_t off = col * step;
    for (int i = nest.rank - 2; i >= 0; --i) {
      off += row % nest.size[i] * nest.stride[1][i];
      row /= nest.size[i];
    }
    return base + off * static_cast<int64_t>(size);
  }

  /// The operand for elements [b, b+n): a pointer into the tensor where one row serves, else a copy in `pack`.
  const void* get(int64_t b, int64_t n, char* pack, int64_t* stride) const {
    *stride = kind != Single;
    if (kind == Single) return base;
    if (kind == Row) return base + b * static_cast<int64_t>(size);
    int64_t row = b / inner, col = b % inner;
    if (col + n <= inner && (step == 0 || step == 1)) {
      *stride = step;
      return at(row, col);
    }
    for (char* to = pack; n > 0; ++row, col = 0) {
      int64_t len = std::min(n, inner - col);
      copy_run(at(row, col), to, len);
      to += len * static_cast<int64_t>(size);
      n -= len;
    }
    return pack;
  }

 private:
  void copy_run(const char* from, char* to, int64_t n) const {
    if (step == 1) {
      std::memcpy(to, from, static_cast<size_t>(n) * size);
      return;
    }
    switch (size) {
      case 1:
        return copy_as<uint8_t>(from, to, n);
      case 2:
        return copy_as<uint16_t>(from, to, n);
      case 4:
        return copy_as<uint32_t>(from, to, n);
      default:
        return copy_as<uint64_t>(from, to, n);
    }
  }
  template <class T>
  void copy_as(const char* from, char* to, int64_t n) const {
    const T* f = reinterpret_cast<const T*>(from);
    T* t = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) t[i] = f[i * step];
  }
};

void run_tile(const Lowered& l, std::span<const Source> in, char* out, size_t out_size, int64_t b, int64_t n,
              char* scratch) {
  const auto reg_bytes = static_cast<size_t>(l.tile) * 8;
  const void* ptr[kMaxInputs];
  int64_t stride[kMaxInputs];
  char* pack = scratch + static_cast<size_t>(l.registers) * reg_bytes;
  for (size_t i = 0; i < in.size(); ++i) ptr[i] = in[i].get(b, n, pack + i * reg_bytes, &stride[i]);
  for (const RowCall& c : l.calls) {
    const void* args[3];
    int64_t steps[3];
    for (int k = 0; k < c.n_in; ++k) {
      bool reg = c.in[k].input < 0;
      args[k] = reg ? scratch + static_cast<size_t>(c.in[k].reg) * reg_bytes : ptr[c.in[k].input];
      steps[k] = reg ? 1 : stride[c.in[k].input];
    }
    void* to = c.out < 0 ? out + b * static_cast<int64_t>(out_size) : scratch + static_cast<size_t>(c.out) * reg_bytes;
    c.fn(args, steps, to, n);
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
  size_t scratch_bytes = (static_cast<size_t>(l.registers) + in.size()) * static_cast<size_t>(l.tile) * 8;
  int64_t tiles = (total + l.tile - 1) / l.tile;
  int64_t grain = value_grain(0.5 * l.tile * l.calls.size());
  parallel_for(tiles, grain, [&](int64_t b, int64_t e) {
    static thread_local struct Scratch { RefPtr<Storage> memory; } scratch;
    if (!scratch.memory || scratch.memory->bytes < scratch_bytes) scratch.memory = allocate_storage({}, scratch_bytes);
    for (; b < e; ++b)
      run_tile(l, {in.data(), in.size()}, static_cast<char*>(out.ptr), dtype_size(out.dtype), b * l.tile,
               std::min(l.tile, total - b * l.tile), static_cast<char*>(scratch.memory->ptr));
  });
}

const char* refuse_fused(const KernelArgs& a) {
  if (a.in.size() > kMaxInputs) return "more than 16 inputs";
  return interp::lowered(a.attrs).refusal;
}

// One step after the other over whole tensors, with the reference kernels: what the tile interpreter is compared with.
void run_fused_ref(const KernelArgs& a) {
  FusedRegion r = FusedRegion::parse(attrs_as<FusedAttrs>(a.attrs).region);
  std::vector<Meta> metas(r.inputs.size() + r.steps.size());
  std::vector<Buffer> values(metas.size());
  auto keep = [](const TensorArg&
                     t) {  // the caller owns the memory; strides may reach before ptr, so bounds are not known here
    return Buffer{wrap_storage(t.ptr, 0, false, [] {}), t.layout};
  };
  for (size_t i = 0; i < a.in.size(); ++i) {
    metas[i].dtype = a.in[i].dtype;
    metas[i].shape = a.in[i].shape;
    values[i] = keep(a.in[i]);
    values[i].layout.offset = 0;  // ptr includes it
  }
  for (size_t k = 0; k < r.steps.size(); ++k) {
    const FusedStep& s = r.steps[k];
    SmallVec<OpInput, 3> in;
    SmallVec<const Meta*, 3> in_metas;
    for (int x : s.args) {
      size_t v = x >= 0 ? static_cast<size_t>(x) : r.inputs.size() + static_cast<size_t>(-1 - x);
      in.push_back({&metas[v], &values[v]});
      in_metas.push_back(&metas[v]);
    }
    size_t o = r.inputs.size() + k;
    infer_op(*s.op, s.attrs.get(), {in_metas.data(), in_metas.size()}, {&metas[o], 1});
    run_op(*s.op, s.attrs.get(), {in.data(), in.size()}, {&metas[o], 1}, {&values[o], 1}, {.ref_only = true});
  }
  // The steps may broadcast to less than the inputs together do; the view repeats what is missing.
  TensorArg last = make_arg(metas.back(), values.back());
  TensorArg wide = a.out[0];
  wide.ptr = last.ptr;
  wide.layout.offset = 0;
  for (int i = 0; i < wide.shape.rank; ++i) {
    int ax = i - (wide.shape.rank - last.shape.rank);
    wide.layout.stride[i] = ax < 0 || last.shape[ax] == 1 ? 0 : last.layout.stride[ax];
  }
  copy_strided(wide, a.out[0]);
}

}  // namespace

bool interp_can_fuse(const OpDef& op, const AttrsBase*, std::span<const DType> in, DType out) {
  if (in.empty() || in.size() > 3) return false;
  DType t = in.back();
  if (t > DType::F64 || out > DType::F64) return false;  // complex64 has no rows
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
         .flags = kStridedInputs | kInPlaceAny,
         .layouts = keep_channels_last});
  r.add("fused", KernelTier::Ref, {.name = "interp_fused_ref", .run = run_fused_ref, .flags = kStridedInputs});
}

void install_interp() {
  static std::once_flag once;
  std::call_once(once, [] { register_interp_kernels(KernelRegistry::global()); });
}

}  // namespace mge
