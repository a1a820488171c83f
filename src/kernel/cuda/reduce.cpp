// reduce, and fused regions that end in one, in the order of kernel/reduce_order.h: same bits as the CPU.
#include "kernel/cuda/region.h"
#include "kernel/reduce_order.h"
#include "op/in_build.h"

namespace mge::cuda {
namespace {

enum class Step : uint64_t { Rows, Columns, Parts };
constexpr const char* kSteps[] = {"reduce_rows", "reduce_columns", "reduce_parts"};

struct Mode {
  const char *op, *identity[4];  // by Compute: Bool is unused
};
constexpr Mode kSum{"add", {"", "0", "0.0f", "0.0"}}, kProduct{"mul", {"", "1", "1.0f", "1.0"}},
    kMax{"maximum", {"", "-0x7fffffffffffffffll - 1", "-kInfinity", "-double(kInfinity)"}},
    kMin{"minimum", {"", "0x7fffffffffffffffll", "kInfinity", "double(kInfinity)"}};
const Mode& mode_of(ReduceMode m) {
  return m == ReduceMode::Max ? kMax : m == ReduceMode::Min ? kMin : m == ReduceMode::Prod ? kProduct : kSum;
}
Compute accumulator(ReduceMode mode, DType t) {
  if (t == DType::F64 || reduces_in_double(mode, t)) return Compute::F64;
  return is_float(t) || mode == ReduceMode::Mean ? Compute::F32 : Compute::I64;
}
DType dtype_of(Compute c) { return c == Compute::F64 ? DType::F64 : c == Compute::F32 ? DType::F32 : DType::I64; }

// One reduction on its way: every step makes the next one's input.
class Reduction {
 public:
  /// `region`: what makes the elements; null: they are a.in[0].
  Reduction(const KernelArgs& a, const TensorArg& out, ReduceMode mode, DType t, const FusedRegion* region,
            uint64_t number)
      : a_(a), out_(out), mode_(mode), from_(t), acc_(accumulator(mode, t)), region_(region), number_(number) {}

  void run(const Shape& shape, uint32_t mask, std::span<void* const> written) {
    count_ = out_.numel();
    total_ = shape.numel();
    written_ = written;
    if (region_) {
      full_.shape = shape;
      full_.layout = Layout::contiguous(shape);
      SmallVec<const TensorArg*, 8> operands{&full_};
      for (auto& t : a_.in) operands.push_back(&t);
      nest_ = make_nest(shape, {operands.data(), operands.size()});
    }
    if (count_ == 0) return;
    detail::AxisRun runs[kMaxRank];
    const int n_runs = total_ ? detail::merge_axes(shape, mask, runs) : 0;
    left_ = 0;
    for (int i = 0; i < n_runs; ++i) left_ += runs[i].reduced;
    if (left_ == 0) return step(Step::Columns, 1, total_ ? 1 : 0, count_, true);  // a copy, or the identity
    int64_t width = 1, size = total_;
    for (int i = n_runs - 1; i >= 0; --i) {
      if (!runs[i].reduced) {
        width *= runs[i].size;
        continue;
      }
      const int64_t outer = size / width / runs[i].size;
      size = outer * width;
      reduce_run(outer, runs[i].size, width, --left_ == 0);
    }
  }

 private:
  // x [outer, len, width] -> [outer, width]
  void reduce_run(int64_t outer, int64_t len, int64_t width, bool last) {
    const int64_t block = width == 1 ? kRowBlock : kColumnBlock;
    int64_t blocks = (len + block - 1) / block;
    step(width == 1 ? Step::Rows : Step::Columns, outer, len, width, last && blocks == 1);
    while (blocks > 1) {
      const int64_t parts = blocks;
      blocks = (blocks + 63) / 64;
      step(Step::Parts, outer, parts, width, last && blocks == 1);
    }
  }

  void step(Step s, int64_t outer, int64_t len, int64_t width, bool last) {
    const int64_t block = s == Step::Rows ? kRowBlock : kColumnBlock,
                  blocks = std::max<int64_t>(1, (len + block - 1) / block);
    const int64_t results = outer * blocks * width;
    RefPtr<Storage> part;
    if (!last) part = engine().scratch(a_, static_cast<size_t>(results) * compute_size(acc_));
    Words w{last ? 0 : address(part->ptr),
            address(out_.ptr),
            outer,
            len,
            width,
            blocks,
            mode_ == ReduceMode::Mean,
            bits_of(count_ ? static_cast<double>(total_ / count_) : 0)};
    const bool makes = region_ && !parts_;
    if (makes)
      push_operands(w, a_, written_, nest_);
    else
      w.push_back(parts_ ? address(parts_->ptr) : address(a_.in[0].ptr));
    const Code& code = code_of(key(s), [&] { return new Code(name(), text(s)); });
    const int64_t threads = s == Step::Rows ? outer * blocks * 32 : results;
    engine().launch(a_, code, cover(threads, 128), {w.data(), w.size()});
    parts_ = std::move(part);
  }

  Key key(Step s) const {
    const bool makes = region_ && !parts_;
    return {static_cast<uint64_t>(Family::RegionReduce),
            static_cast<uint64_t>(s),
            static_cast<uint64_t>(mode_of(mode_).op[1]),
            static_cast<uint64_t>(acc_),
            static_cast<uint64_t>(out_.dtype),
            parts_ ? 99 : static_cast<uint64_t>(from_),
            makes ? number_ : 0,
            makes ? static_cast<uint64_t>(nest_.rank) : 0};
  }
  const char* name() const { return region_ && !parts_ ? "mge_fused_reduce" : "mge_reduce"; }
  std::string text(Step s) const {
    const Mode& m = mode_of(mode_);
    const DType t = dtype_of(acc_), pair[] = {t, t};
    std::string text = "#include \"kernel/cuda/device/region.cuh\"\n";
    text += format("typedef {} A;\ntypedef {} O;\n#define kIdentity ({})\n", compute_type(acc_),
                   storage_type(out_.dtype), m.identity[static_cast<int>(acc_)]);
    text += body_text(region_of(OpRegistry::global().get(m.op), nullptr, pair), "combine");
    const bool makes = region_ && !parts_;
    text += "struct Args {\n  A* part;\n  O* out;\n  i64 outer, len, width, blocks, mean;\n  double count;\n";
    if (makes) {
      const size_t written = written_.size();
      text += operand_members(*region_, written, nest_.rank) + "};\n" + body_text(*region_) +
              element_text(*region_, written, written + 1, nest_.rank, false, "i64");
      const char* type = storage_type(region_->dtype_of(body_results(*region_).back()));
      text += format(
          "__device__ inline A element_at(const Args& a, i64 at) {{\n  Compute<{0}> y;\n  element(a, at, y);\n"
          "  return load_as<A>(Store<{0}>::from(y));\n}}\n",
          type);
    } else {
      text += format("  const {}* x;\n}};\n", parts_ ? compute_type(acc_) : storage_type(from_));
      text += format("__device__ inline A element_at(const Args& a, i64 at) {{ return {}a.x[at]); }}\n",
                     parts_ ? "A(" : "load_as<A>(");
    }
    text += "#include \"kernel/cuda/device/reduce.cuh\"\n";
    return text + format("extern \"C\" __global__ void {}(const __grid_constant__ Args a) {{ {}(a); }}\n", name(),
                         kSteps[static_cast<int>(s)]);
  }

  const KernelArgs& a_;
  const TensorArg& out_;
  ReduceMode mode_;
  DType from_;
  Compute acc_;
  const FusedRegion* region_;
  uint64_t number_;
  TensorArg full_;
  Nest nest_;
  std::span<void* const> written_;
  RefPtr<Storage> parts_;  // what the step before has made
  int64_t count_ = 0, total_ = 0;
  int left_ = 0;
};

void run_reduce(const KernelArgs& a) {
  const auto& at = a.as<ReduceAttrs>();
  const TensorArg& x = a.in[0];
  Reduction(a, a.out[0], parse_reduce_mode(at.mode), x.dtype, nullptr, 0)
      .run(x.shape, reduced_axes(at.axes, x.shape.rank), {});
}
const char* refuse_dtype(const KernelArgs& a) {
  return storage_type(a.in[0].dtype) && storage_type(a.out[0].dtype) ? nullptr : "this dtype has no kernels on the GPU";
}

void run_fused_reduce(const KernelArgs& a) {
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  const FusedStep& step = r.steps[static_cast<size_t>(r.reduction())];
  const auto& at = attrs_as<ReduceAttrs>(step.attrs.get());
  Shape full;
  for (auto& t : a.in) full = broadcast_shapes("fused", full, t.shape);
  const TensorArg* out = nullptr;
  SmallVec<void*, 4> written;
  for (size_t o = 0; o < r.outputs.size(); ++o) {
    if (-1 - r.outputs[o] == r.reduction())
      out = &a.out[o];
    else
      written.push_back(a.out[o].ptr);
  }
  Reduction(a, *out, parse_reduce_mode(at.mode), r.dtype_of(step.args[0]), &r, region_number(a.attrs))
      .run(full, reduced_axes(at.axes, full.rank), {written.data(), written.size()});
}
const char* refuse_fused_reduce(const KernelArgs& a) {
  if (a.in.size() > 16) return "more than 16 inputs";
  const auto& r = attrs_as<FusedRegion>(a.attrs);
  if (r.reduction() < 0) return "the region has no reduction";
  bool given = false;
  for (int o : r.outputs) given |= -1 - o == r.reduction();
  return given ? refuse_region(r) : "the reduction is no result";
}

}  // namespace

void register_cuda_reduce(KernelRegistry& r) {
  r.add("reduce", KernelTier::Simd, {.name = "nvrtc_reduce", .refuse = refuse_dtype, .run = run_reduce},
        DeviceKind::Cuda);
  r.add("fused", KernelTier::Simd,
        {.name = "nvrtc_fused_reduce", .refuse = refuse_fused_reduce, .run = run_fused_reduce, .flags = kStridedInputs},
        DeviceKind::Cuda);
}

}  // namespace mge::cuda
