// Memory and arguments for calling one kernel from a test.
//   TestTensor x(DType::F32, {2, 3});   Call c("add", nullptr, {&x, &y});   c.run(KernelTier::Simd);   c.out.bytes
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace mge::testing_kernels {

/// A contiguous tensor, optionally starting `shift` elements after a 64-byte boundary; `arg` may be given other
/// strides.
struct TestTensor {
  std::vector<char> memory;
  size_t size = 0;
  TensorArg arg;

  TestTensor() = default;
  TestTensor(DType t, const Shape& s, int64_t shift = 0) {
    size = dtype_bytes(t, s.numel());
    memory.assign(size + 128 + static_cast<size_t>(shift) * dtype_size(t), 0);
    auto base = (reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64;
    arg.ptr = reinterpret_cast<char*>(base) + shift * static_cast<int64_t>(dtype_size(t));
    arg.dtype = t;
    arg.shape = s;
    arg.layout = Layout::contiguous(s);
  }
  TestTensor(TestTensor&&) = default;
  TestTensor& operator=(TestTensor&&) = default;
  template <class T>
  T* data() const {
    return static_cast<T*>(arg.ptr);
  }
  std::string bytes() const { return std::string(static_cast<const char*>(arg.ptr), size); }
  void fill(const void* from) { std::memcpy(arg.ptr, from, size); }
};

/// One op on given inputs, its outputs allocated by inference.
struct Call {
  const OpDef& op;
  Attrs attrs;
  std::vector<TensorArg> in;

  Call(const char* name, Attrs a, std::vector<TensorArg> inputs)
      : op(OpRegistry::global().get(name)), attrs(std::move(a)), in(std::move(inputs)) {}
  Meta infer() const {
    std::vector<Meta> metas(in.size());
    std::vector<const Meta*> p;
    for (size_t i = 0; i < in.size(); ++i) {
      metas[i].dtype = in[i].dtype;
      metas[i].shape = in[i].shape;
      p.push_back(&metas[i]);
    }
    Meta out;
    infer_op(op, attrs.get(), p, {&out, 1});
    return out;
  }
  /// The kernel that the tier picks; `out` receives the result, made here unless it has memory already.
  const Kernel& run(KernelTier tier, TestTensor& out, int64_t shift = 0) const {
    Meta m = infer();
    if (!out.arg.ptr) out = TestTensor(m.dtype, m.shape, shift);
    KernelArgs a{&op, attrs.get(), in, {&out.arg, 1}, nullptr};
    const Kernel& k = *KernelRegistry::global().find(a, tier).kernel;
    k.run(a);
    return k;
  }
};

}  // namespace mge::testing_kernels
