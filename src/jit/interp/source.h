// What the kernels of op `fused` share: operands along a linear index, and memory for registers.
#pragma once
#include <algorithm>
#include <cstring>

#include "core/memory_source.h"
#include "jit/interp/lower.h"
#include "kernel/copy.h"
#include "kernel/run.h"

namespace mge::interp {

constexpr size_t kMaxInputs = 16, kMaxTargets = 17;

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

/// Registers and copies of inputs, `tile` elements each, on this thread.
inline char* scratch_of(const Lowered& l, size_t n_in, int64_t tile) {
  const size_t bytes = (static_cast<size_t>(l.registers) + n_in) * static_cast<size_t>(tile) * 8;
  static thread_local struct Scratch { RefPtr<Storage> memory; } scratch;
  if (!scratch.memory || scratch.memory->bytes < bytes) {
    const UseMemory pool(UseMemory::kPool);  // it outlives the network, whose own the memory may be
    scratch.memory = allocate_storage({}, bytes);
  }
  return static_cast<char*>(scratch.memory->ptr);
}

}  // namespace mge::interp
