// Reference kernels of all elementwise ops: rows are converted to the compute type, run through the op's scalar body,
// and converted back. Any strides, any dtype the op takes.
#include <algorithm>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/row_io.h"
#include "op/in_build.h"

namespace mge {
namespace {

// Calls fn(offsets, n) for pieces of at most kRowTile elements along the innermost merged dim; offsets[k] and the
// element steps are in elements of operand k (0 = output).
template <class F>
void for_each_tile(const LoopNest& nest, F fn) {
  const int inner = nest.rank - 1;
  const int64_t len = inner < 0 ? 1 : nest.size[inner], tiles = (len + kRowTile - 1) / kRowTile;
  int64_t rows = 1;
  for (int i = 0; i < inner; ++i) rows *= nest.size[i];
  int64_t grain = value_grain(std::min(len, kRowTile));
  parallel_for(rows * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t offset[4] = {}, row = item / tiles, at = item % tiles * kRowTile;
      for (int k = 0; k < nest.operands && inner >= 0; ++k) offset[k] = at * nest.stride[k][inner];
      for (int i = inner - 1; i >= 0; --i) {
        int64_t index = row % nest.size[i];
        row /= nest.size[i];
        for (int k = 0; k < nest.operands; ++k) offset[k] += index * nest.stride[k][i];
      }
      fn(offset, std::min(kRowTile, len - at));
    }
  });
}
const void* at(const TensorArg& t, int64_t offset) {
  return static_cast<const char*>(t.ptr) + offset * static_cast<int64_t>(dtype_size(t.dtype));
}
void* at_out(const TensorArg& t, int64_t offset) {
  return static_cast<char*>(t.ptr) + offset * static_cast<int64_t>(dtype_size(t.dtype));
}
int64_t inner_stride(const LoopNest& nest, int k) { return nest.rank ? nest.stride[k][nest.rank - 1] : 0; }

void run_elementwise(const KernelArgs& a) {
  const TensorArg& out = a.out[0];
  if (out.numel() == 0) return;
  const ScalarBody& body = *a.op->scalar;
  const int n_in = static_cast<int>(a.in.size());
  const TensorArg* operands[4] = {&out};
  for (int k = 0; k < n_in; ++k) operands[k + 1] = &a.in[k];
  LoopNest nest = make_loop_nest(out.shape, {operands, static_cast<size_t>(n_in) + 1});
  const Compute in_type = compute_of(a.in[n_in - 1].dtype), out_type = body.bool_out ? Compute::Bool : in_type;
  const RowFn row = body.row[static_cast<int>(in_type)];
  for_each_tile(nest, [&](const int64_t* offset, int64_t n) {
    alignas(64) char tile[3][kRowTile * 8], result[kRowTile * 8];
    const void* in[3];
    int64_t stride[3];
    for (int k = 0; k < n_in; ++k) {
      int64_t s = inner_stride(nest, k + 1);
      stride[k] = s != 0;
      in[k] = tile[k];
      load_row(a.in[k].dtype, at(a.in[k], offset[k + 1]), s, compute_of(a.in[k].dtype), tile[k], s ? n : 1);
    }
    row(in, stride, result, n);
    store_row(out.dtype, at_out(out, offset[0]), inner_stride(nest, 0), out_type, result, n);
  });
}

void run_typecvt(const KernelArgs& a) {
  const TensorArg &x = a.in[0], &y = a.out[0];
  if (y.numel() == 0) return;
  const TensorArg* operands[] = {&y, &x};
  LoopNest nest = make_loop_nest(y.shape, operands);
  const Compute c = compute_of(x.dtype);
  for_each_tile(nest, [&](const int64_t* offset, int64_t n) {
    alignas(64) char tile[kRowTile * 8];
    load_row(x.dtype, at(x, offset[1]), inner_stride(nest, 1), c, tile, n);
    store_row(y.dtype, at_out(y, offset[0]), inner_stride(nest, 0), c, tile, n);
  });
}

const char* refuse_complex(const KernelArgs& a) {
  return a.in[0].dtype <= DType::F64 && a.out[0].dtype <= DType::F64 ? nullptr : "complex64 has a kernel of its own";
}

const char* refuse_unknown_dtype(const KernelArgs& a) {
  if (!a.op->scalar) return nullptr;
  const TensorArg& x = a.in[a.in.size() - 1];
  bool known = x.dtype <= DType::F64 && a.op->scalar->row[static_cast<int>(compute_of(x.dtype))];
  return known ? nullptr : "no scalar body for this dtype";
}

}  // namespace

void register_ref_elementwise(KernelRegistry& r) {
  OpRegistry& ops = OpRegistry::global();
  for (size_t id = 0; id < ops.size(); ++id) {
    const OpDef& op = ops.at(static_cast<OpId>(id));
    if (op.scalar)
      r.add(op.name, KernelTier::Ref,
            {.name = "ref_elementwise",
             .refuse = refuse_unknown_dtype,
             .run = run_elementwise,
             .flags = kStridedInputs | kInPlaceAny});
  }
  r.add("typecvt", KernelTier::Ref,
        {.name = "ref_typecvt", .refuse = refuse_complex, .run = run_typecvt, .flags = kStridedInputs | kInPlace0});
}

}  // namespace mge
