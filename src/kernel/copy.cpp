#include "kernel/copy.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"

namespace mge {

LoopNest make_loop_nest(const Shape& shape, std::span<const TensorArg* const> operands) {
  LoopNest n;
  n.operands = static_cast<int>(operands.size());
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] == 1) continue;
    int64_t st[4];
    for (int k = 0; k < n.operands; ++k) {
      const TensorArg& t = *operands[k];
      int ax = i - (shape.rank - t.shape.rank);
      st[k] = ax < 0 || t.shape[ax] == 1 ? 0 : t.layout.stride[ax];
    }
    bool merge = n.rank > 0;
    for (int k = 0; k < n.operands && merge; ++k) merge = n.stride[k][n.rank - 1] == st[k] * shape[i];
    if (merge) {
      n.size[n.rank - 1] *= shape[i];
      for (int k = 0; k < n.operands; ++k) n.stride[k][n.rank - 1] = st[k];
    } else {
      n.size[n.rank] = shape[i];
      for (int k = 0; k < n.operands; ++k) n.stride[k][n.rank] = st[k];
      ++n.rank;
    }
  }
  return n;
}

namespace {

template <class T>
void copy_rows(const LoopNest& n, const T* src, T* dst, int64_t rows, int64_t begin, int64_t end) {
  int inner = n.rank - 1;
  int64_t len = n.size[inner], ss = n.stride[1][inner], ds = n.stride[0][inner];
  (void)rows;
  for (int64_t r = begin; r < end; ++r) {
    int64_t so = 0, d_o = 0, q = r;
    for (int i = inner - 1; i >= 0; --i) {
      int64_t ix = q % n.size[i];
      q /= n.size[i];
      so += ix * n.stride[1][i];
      d_o += ix * n.stride[0][i];
    }
    const T* s = src + so;
    T* d = dst + d_o;
    if (ss == 1 && ds == 1) {
      std::memcpy(d, s, static_cast<size_t>(len) * sizeof(T));
    } else {
      for (int64_t j = 0; j < len; ++j) d[j * ds] = s[j * ss];
    }
  }
}

// Two innermost dims swapped between source and destination: square tiles keep both sides inside the cache.
template <class T>
void copy_tiles(const LoopNest& n, const T* src, T* dst, int64_t begin, int64_t end) {
  constexpr int64_t kTile = 32;
  int a = n.rank - 2, b = n.rank - 1;
  int64_t na = n.size[a], nb = n.size[b];
  for (int64_t r = begin; r < end; ++r) {
    int64_t so = 0, d_o = 0, q = r;
    for (int i = a - 1; i >= 0; --i) {
      int64_t ix = q % n.size[i];
      q /= n.size[i];
      so += ix * n.stride[1][i];
      d_o += ix * n.stride[0][i];
    }
    for (int64_t i0 = 0; i0 < na; i0 += kTile)
      for (int64_t j0 = 0; j0 < nb; j0 += kTile)
        for (int64_t i = i0; i < std::min(na, i0 + kTile); ++i)
          for (int64_t j = j0; j < std::min(nb, j0 + kTile); ++j)
            dst[d_o + i * n.stride[0][a] + j * n.stride[0][b]] = src[so + i * n.stride[1][a] + j * n.stride[1][b]];
  }
}

template <class T>
void copy_typed(const TensorArg& src, const TensorArg& dst) {
  const TensorArg* ops[] = {&dst, &src};
  LoopNest n = make_loop_nest(dst.shape, ops);
  if (n.rank == 0) {
    *dst.data<T>() = *src.data<T>();
    return;
  }
  int64_t total = 1;
  for (int i = 0; i < n.rank; ++i) total *= n.size[i];
  bool tiles = n.rank >= 2 && n.stride[1][n.rank - 1] != 1 && n.stride[1][n.rank - 2] == 1;
  int64_t per_row = tiles ? n.size[n.rank - 1] * n.size[n.rank - 2] : n.size[n.rank - 1];
  int64_t rows = total / per_row;
  int64_t grain = std::max<int64_t>(1, 32768 / per_row);
  const T* s = src.data<T>();
  T* d = dst.data<T>();
  parallel_for(rows, grain, [&](int64_t b, int64_t e) {
    if (tiles)
      copy_tiles<T>(n, s, d, b, e);
    else
      copy_rows<T>(n, s, d, rows, b, e);
  });
}

}  // namespace

void copy_strided(const TensorArg& src, const TensorArg& dst) {
  MGE_ASSERT(src.dtype == dst.dtype && src.shape == dst.shape, "copy of unlike tensors {} and {}", src.shape.str(),
             dst.shape.str());
  if (dst.numel() == 0) return;
  switch (dtype_size(dst.dtype)) {
    case 1:
      return copy_typed<uint8_t>(src, dst);
    case 2:
      return copy_typed<uint16_t>(src, dst);
    case 4:
      return copy_typed<uint32_t>(src, dst);
    case 8:
      return copy_typed<uint64_t>(src, dst);
    default:
      fail(ErrorKind::NotImplemented, "copy: packed dtype {} has no strided copy.", dtype_name(dst.dtype));
  }
}

}  // namespace mge
