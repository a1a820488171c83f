#include "kernel/copy.h"

#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/layouts.h"

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
void transpose_plain(const T* src, int64_t src_stride, T* dst, int64_t dst_stride, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) dst[r * dst_stride + c] = src[c * src_stride + r];
}
void transpose_any(size_t size, const void* src, int64_t src_stride, void* dst, int64_t dst_stride, int64_t rows,
                   int64_t cols, bool) {
  auto as = [&](auto t) {
    using T = decltype(t);
    transpose_plain(static_cast<const T*>(src), src_stride, static_cast<T*>(dst), dst_stride, rows, cols);
  };
  switch (size) {
    case 1:
      return as(uint8_t());
    case 2:
      return as(uint16_t());
    case 4:
      return as(uint32_t());
    default:
      return as(uint64_t());
  }
}
void copy_plain(void* dst, const void* src, size_t bytes) { std::memcpy(dst, src, bytes); }

MoveKernels g_moves{transpose_any, copy_plain, [] {}};

constexpr int64_t kPieceBytes = 64 << 10;  // of a long run; a thread takes several when there are many

// Offsets of both sides at item `at` of dims [0, dims) of a nest, the dim `skip` left out.
struct Offsets {
  int64_t dst = 0, src = 0, index[kMaxRank];
  Offsets(const LoopNest& n, int dims, int skip, int64_t at) {
    for (int i = dims - 1; i >= 0; --i) {
      if (i == skip) continue;
      index[i] = at % n.size[i];
      at /= n.size[i];
      dst += index[i] * n.stride[0][i];
      src += index[i] * n.stride[1][i];
    }
  }
  // Past some items of the last of the dims, which has as many left.
  void pass(const LoopNest& n, int dims, int64_t items) {
    dst += (items - 1) * n.stride[0][dims - 1];
    src += (items - 1) * n.stride[1][dims - 1];
    index[dims - 1] += items - 1;
    advance(n, dims);
  }
  // To the next item.
  void advance(const LoopNest& n, int dims, int skip = -1) {
    for (int i = dims - 1; i >= 0; --i) {
      if (i == skip) continue;
      dst += n.stride[0][i];
      src += n.stride[1][i];
      if (++index[i] < n.size[i]) return;
      dst -= n.size[i] * n.stride[0][i];
      src -= n.size[i] * n.stride[1][i];
      index[i] = 0;
    }
  }
};

struct Job {
  LoopNest nest;
  const char* src;
  char* dst;
  int64_t size;   // bytes of an element
  int64_t total;  // elements
  bool stream;    // the result does not fit the cache: write past it
  int inner() const { return nest.rank - 1; }
};

// Long runs that lie dense on both sides.
void copy_runs(const Job& j) {
  const int64_t len = j.nest.size[j.inner()], rows = j.total / len;
  const int64_t piece = std::min(len, std::max<int64_t>(1, kPieceBytes / j.size)), pieces = (len + piece - 1) / piece;
  parallel_for(rows * pieces, byte_grain(piece * j.size), [&](int64_t b, int64_t e) {
    Offsets at(j.nest, j.inner(), -1, b / pieces);
    auto* move = j.stream ? g_moves.stream_copy : copy_plain;
    for (int64_t part = b % pieces; b < e; ++b) {
      const int64_t from = part * piece, n = std::min(piece, len - from);
      move(j.dst + (at.dst + from) * j.size, j.src + (at.src + from) * j.size, static_cast<size_t>(n * j.size));
      if (++part < pieces) continue;
      part = 0;
      at.advance(j.nest, j.inner());
    }
    if (j.stream) g_moves.stream_end();
  });
}

// Dim `across` is dense in the source, the innermost one in the destination: blocks of both, so that every cache line
// that is fetched is used up.
void copy_transposed(const Job& j, int across) {
  const LoopNest& n = j.nest;
  const int inner = j.inner();
  const int64_t rows = n.size[across], cols = n.size[inner];
  // Past the cache lines are written whole and at once: a single column of them, and long blocks, so that each of its
  // 16 rows in the source is read as a stream. Else both sides stay in the first cache; few columns: longer blocks.
  const int64_t block_cols = j.stream ? 64 / j.size : 64;
  const int64_t block_rows = j.stream ? 1024 : std::max<int64_t>(64, 64 * block_cols / cols);
  const int64_t row_blocks = (rows + block_rows - 1) / block_rows, col_blocks = (cols + block_cols - 1) / block_cols;
  const int64_t outer = j.total / (rows * cols), blocks = row_blocks * col_blocks;
  const int64_t block_bytes = std::min(rows, block_rows) * std::min(cols, block_cols) * j.size;
  parallel_for(outer * blocks, byte_grain(block_bytes), [&](int64_t b, int64_t e) {
    Offsets at(n, inner, across, b / blocks);
    for (int64_t part = b % blocks; b < e; ++b) {
      const int64_t c = part % col_blocks * block_cols, r = part / col_blocks * block_rows;
      g_moves.transpose(static_cast<size_t>(j.size), j.src + (at.src + r + c * n.stride[1][inner]) * j.size,
                        n.stride[1][inner], j.dst + (at.dst + r * n.stride[0][across] + c) * j.size,
                        n.stride[0][across], std::min(block_rows, rows - r), std::min(block_cols, cols - c), j.stream);
      if (++part < blocks) continue;
      part = 0;
      at.advance(n, inner, across);
    }
  });
}

// Runs of a few elements: a loop over them inside of one over the dim before.
constexpr int64_t kFew = 16;
template <class T>
void copy_short_runs(const Job& j) {
  const LoopNest& n = j.nest;
  const int inner = j.inner(), mid = inner - 1;
  const int64_t len = n.size[inner], ss = n.stride[1][inner], ds = n.stride[0][inner];
  const int64_t ms = n.stride[1][mid], md = n.stride[0][mid];
  parallel_for(j.total / len, byte_grain(len * j.size), [&](int64_t b, int64_t e) {
    Offsets at(n, inner, -1, b);
    while (b < e) {
      const int64_t rows = std::min(e - b, n.size[mid] - at.index[mid]);
      const T* s = reinterpret_cast<const T*>(j.src) + at.src;
      T* d = reinterpret_cast<T*>(j.dst) + at.dst;
      if (ss == 0) {
        for (int64_t r = 0; r < rows; ++r, s += ms, d += md) {
          const T value = *s;
          for (int64_t k = 0; k < len; ++k) d[k * ds] = value;
        }
      } else {
        for (int64_t r = 0; r < rows; ++r, s += ms, d += md)
          for (int64_t k = 0; k < len; ++k) d[k * ds] = s[k * ss];
      }
      at.pass(n, inner, rows);
      b += rows;
    }
  });
}

template <class T>
void copy_elements(const Job& j) {
  const LoopNest& n = j.nest;
  if (n.rank > 1 && n.size[j.inner()] < kFew) return copy_short_runs<T>(j);
  const int inner = j.inner();
  const int64_t len = n.size[inner], ss = n.stride[1][inner], ds = n.stride[0][inner], rows = j.total / len;
  auto* src = reinterpret_cast<const T*>(j.src);
  auto* dst = reinterpret_cast<T*>(j.dst);
  // One value for a whole tensor is a single run.
  const int64_t piece = std::min(len, std::max<int64_t>(1, kPieceBytes / j.size)), pieces = (len + piece - 1) / piece;
  parallel_for(rows * pieces, byte_grain(piece * j.size), [&](int64_t b, int64_t e) {
    Offsets at(n, inner, -1, b / pieces);
    for (int64_t part = b % pieces; b < e; ++b) {
      const int64_t from = part * piece, count = std::min(piece, len - from);
      const T* s = src + at.src + from * ss;
      T* d = dst + at.dst + from * ds;
      if (ss == 0 && ds == 1)
        std::fill_n(d, count, *s);
      else
        for (int64_t k = 0; k < count; ++k) d[k * ds] = s[k * ss];
      if (++part < pieces) continue;
      part = 0;
      at.advance(n, inner);
    }
  });
}

}  // namespace

void set_move_kernels(const MoveKernels& k) { g_moves = k; }

void copy_strided(const TensorArg& src, const TensorArg& dst) {
  MGE_ASSERT(src.dtype == dst.dtype && src.shape == dst.shape, "copy of unlike tensors {} and {}", src.shape.str(),
             dst.shape.str());
  Job j;
  j.total = dst.numel();
  if (j.total == 0) return;
  j.size = static_cast<int64_t>(dtype_size(dst.dtype));
  if (j.size == 0) fail(ErrorKind::NotImplemented, "copy: packed dtype {} has no strided copy.", dtype_name(dst.dtype));
  TensorArg to = dst, from = src;
  if (!dst.contiguous()) sort_axes_by_output(to, {&from, 1});
  const TensorArg* operands[] = {&to, &from};
  j.nest = make_loop_nest(to.shape, operands);
  j.src = static_cast<const char*>(src.ptr);
  j.dst = static_cast<char*>(dst.ptr);
  if (j.nest.rank == 0) return void(std::memcpy(j.dst, j.src, static_cast<size_t>(j.size)));
  const int inner = j.inner();
  const int64_t ss = j.nest.stride[1][inner], ds = j.nest.stride[0][inner];
  j.stream = streams(j.total * j.size);
  if (ss == 1 && ds == 1 && (j.nest.rank == 1 || j.nest.size[inner] * j.size >= 64)) return copy_runs(j);
  if (ss > 1 && ds == 1)
    for (int i = inner - 1; i >= 0; --i)
      if (j.nest.stride[1][i] == 1 && j.nest.size[i] > 1) return copy_transposed(j, i);
  switch (j.size) {
    case 1:
      return copy_elements<uint8_t>(j);
    case 2:
      return copy_elements<uint16_t>(j);
    case 4:
      return copy_elements<uint32_t>(j);
    default:
      return copy_elements<uint64_t>(j);
  }
}

}  // namespace mge
