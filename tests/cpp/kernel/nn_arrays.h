// Runs one kernel on values given as float64, in the dtype asked for.
//   auto y = run_one("softmax", attrs, {x}, DType::F32, KernelTier::Simd)[0];
#pragma once
#include <string>
#include <vector>

#include "core/half.h"
#include "kernel/copy.h"
#include "kernel/kernel.h"

namespace mge::testing_nn {

struct Array {
  Shape shape;
  std::vector<double> v;
  bool floating = true;  // otherwise int32
};

inline double load(const TensorArg& t, int64_t i) {
  switch (t.dtype) {
    case DType::F64:
      return t.data<double>()[i];
    case DType::F32:
      return static_cast<double>(t.data<float>()[i]);
    case DType::F16:
      return static_cast<double>(half_to_float(t.data<uint16_t>()[i]));
    case DType::BF16:
      return static_cast<double>(bfloat_to_float(t.data<uint16_t>()[i]));
    default:
      return static_cast<double>(t.data<int32_t>()[i]);
  }
}
inline void store(const TensorArg& t, int64_t i, double v) {
  switch (t.dtype) {
    case DType::F64:
      t.data<double>()[i] = v;
      return;
    case DType::F32:
      t.data<float>()[i] = static_cast<float>(v);
      return;
    case DType::F16:
      t.data<uint16_t>()[i] = float_to_half(static_cast<float>(v));
      return;
    case DType::BF16:
      t.data<uint16_t>()[i] = float_to_bfloat(static_cast<float>(v));
      return;
    default:
      t.data<int32_t>()[i] = static_cast<int32_t>(v);
  }
}

/// Inputs and outputs in memory, outputs shaped by inference.
struct Bound {
  const OpDef& op;
  Attrs attrs;
  std::vector<std::vector<char>> memory;
  std::vector<TensorArg> in, out;

  Bound(const char* name, Attrs at, const std::vector<Array>& inputs, DType dtype)
      : op(OpRegistry::global().get(name)), attrs(std::move(at)) {
    std::vector<Meta> metas(inputs.size()), outs(op.outputs.size());
    std::vector<const Meta*> p;
    memory.reserve(inputs.size() + outs.size() + 1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      metas[i].dtype = inputs[i].floating ? dtype : DType::I32;
      metas[i].shape = inputs[i].shape;
      p.push_back(&metas[i]);
      in.push_back(make(metas[i]));
      for (int64_t k = 0; k < inputs[i].shape.numel(); ++k) store(in[i], k, inputs[i].v[static_cast<size_t>(k)]);
    }
    infer_op(op, attrs.get(), p, outs);
    for (auto& m : outs) out.push_back(make(m));
  }
  TensorArg make(const Meta& m) {
    auto& bytes = memory.emplace_back(m.bytes() + 128, static_cast<char>(0x7b));
    auto base = (reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64;
    return {reinterpret_cast<void*>(base), m.dtype, m.shape, Layout::contiguous(m.shape)};
  }
  KernelArgs args() const { return {&op, attrs.get(), in, out, nullptr}; }
  std::vector<Array> run(const Kernel& k) {
    // In the memory order the kernel asks for, as run_op does it.
    std::vector<TensorArg> given = in, wanted = in, result = out;
    std::vector<std::vector<char>> copies;
    KernelArgs a{&op, attrs.get(), wanted, result, nullptr};
    if (k.layouts) k.layouts(a, wanted.data(), result.data());
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].layout.same_strides(wanted[i].shape, given[i].layout)) continue;
      auto& bytes = copies.emplace_back(static_cast<size_t>(given[i].numel()) * dtype_size(given[i].dtype) + 64);
      wanted[i].ptr = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
      copy_strided(given[i], wanted[i]);
    }
    std::vector<char> workspace;
    if (k.workspace) {
      workspace.resize(k.workspace(a) + 64);
      a.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    }
    k.run(a);
    std::vector<Array> r;
    for (auto& t : result) {
      Array v{t.shape, {}, is_float(t.dtype)};
      for (int64_t i = 0; i < t.numel(); ++i) {
        int64_t at = 0, rest = i;
        for (int d = t.shape.rank - 1; d >= 0; --d) at += rest % t.shape[d] * t.layout.stride[d], rest /= t.shape[d];
        v.v.push_back(load(t, at));
      }
      r.push_back(std::move(v));
    }
    return r;
  }
};

inline std::vector<Array> run_one(const char* op, Attrs attrs, const std::vector<Array>& in, DType dtype,
                                  KernelTier tier) {
  Bound b(op, std::move(attrs), in, dtype);
  return b.run(*KernelRegistry::global().find(b.args(), tier).kernel);
}
inline std::vector<Array> run_kernel(const Kernel& k, const char* op, Attrs attrs, const std::vector<Array>& in,
                                     DType dtype) {
  return Bound(op, std::move(attrs), in, dtype).run(k);
}
inline std::vector<const Kernel*> kernels_that_accept(const char* op, Attrs attrs, const std::vector<Array>& in,
                                                      DType dtype, KernelTier tier) {
  Bound b(op, std::move(attrs), in, dtype);
  std::vector<const Kernel*> r;
  for (auto& k : KernelRegistry::global().list(b.op.id))
    if (k->tier == tier && (!k->refuse || !k->refuse(b.args()))) r.push_back(k.get());
  return r;
}

}  // namespace mge::testing_nn
