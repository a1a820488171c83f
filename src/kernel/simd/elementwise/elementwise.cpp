// Elementwise kernels: which rows to run, over what memory. The arithmetic is in the rows (row_loops-inl.h).
#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/copy.h"
#include "kernel/kernel.h"
#include "kernel/layouts.h"
#include "kernel/simd/elementwise/row_table.h"
#include "kernel/simd/elementwise/rows.h"
#include "kernel/simd/shape/moves.h"
#include "op/elementwise/elementwise.h"
#include "op/elementwise/typecvt.h"
#include "op/in_build.h"

namespace mge {
namespace simd {

void RowTable::set(const char* op, OpRows rows) {
  OpRows& r = by_op[OpRegistry::global().registered(op)->id];
  for (RowPair OpRows::*p : {&OpRows::f32, &OpRows::i32, &OpRows::b8, &OpRows::f16, &OpRows::bf16})
    if ((rows.*p).row) r.*p = rows.*p;
}

namespace {

RowTable make_table() {
  RowTable t;
  t.by_op.resize(OpRegistry::global().size());
  fill_cheap_rows(t);
  fill_exp_rows(t);
  fill_trig_rows(t);
  fill_binary_rows(t);
  fill_move_rows(t);
  return t;
}
RowTable& mutable_table() {
  static RowTable* t = new RowTable(make_table());
  return *t;
}

constexpr int64_t kPiece = 8192;   // of a long row
constexpr int64_t kTile = 512;     // elements of a gathered or converted tile
constexpr int64_t kShortRow = 32;  // rows below this are gathered into tiles instead of run one by one

// The grain of items of so many elements each.
int64_t grain_for(int64_t elements) { return value_grain(2 * elements); }
// Whether so few elements are one thread's work: the team is a microsecond away, and they are most of what is run.
bool stays_here(int64_t elements) { return 0.5 * costs().value * static_cast<double>(elements) <= costs().piece; }

// One call: row function, operands, and for 16-bit floats the conversions around a float32 row.
struct Job {
  RowFn row = nullptr, streamed = nullptr;
  RowFn load = nullptr, store = nullptr;  // float16/bfloat16 <-> float32; null when the row takes memory as it is
  int n_in = 0;
  const char* in[3];
  char* out = nullptr;
  int64_t in_size[3], out_size = 0;  // bytes of an element
  bool stream = false;               // the result is written past the cache (non-temporal stores)
};

RowPair find(const OpDef& op, DType in, DType out) {
  const RowTable& t = mutable_table();
  if (op.scalar && op.scalar->selects) {
    if (in != out) return {};
    switch (dtype_info(in).bits) {
      case 8:
        return {t.where[0], nullptr};
      case 16:
        return {t.where[1], nullptr};
      case 32:
        return {t.where[2], nullptr};
      default:
        return {};
    }
  }
  if (op.scalar) {
    const OpRows& r = t.by_op[op.id];
    if (out != (op.scalar->bool_out ? DType::Bool : in)) return {};
    switch (in) {
      case DType::F32:
        return r.f32;
      case DType::I32:
        return r.i32;
      case DType::Bool:
        return r.b8;
      case DType::F16:
        return r.f16;
      case DType::BF16:
        return r.bf16;
      default:
        return {};
    }
  }
  if (in > DType::F64 || out > DType::F64) return {};
  static const OpDef* typecvt = &OpRegistry::global().get("typecvt");
  return {&op == typecvt ? t.cast[static_cast<int>(in)][static_cast<int>(out)] : nullptr, nullptr};
}

bool is_half(DType t) { return t == DType::F16 || t == DType::BF16; }

// The rows for a call; job.row is null when there is none.
void pick(const KernelArgs& a, Job& job) {
  const DType in = a.in[a.in.size() - 1].dtype, out = a.out[0].dtype;
  const RowPair rows = find(*a.op, in, out);
  job.row = rows.row;
  job.streamed = rows.streamed;
  if (job.row || !is_half(in) || !a.op->scalar) return;
  const bool bool_out = a.op->scalar->bool_out;
  job.row = find(*a.op, DType::F32, bool_out ? DType::Bool : DType::F32).row;
  const RowTable& t = mutable_table();
  job.load = t.cast[static_cast<int>(in)][static_cast<int>(DType::F32)];
  if (!bool_out) job.store = t.cast[static_cast<int>(DType::F32)][static_cast<int>(in)];
  if (!job.load || (!bool_out && !job.store)) job.row = nullptr;  // a build without that dtype
}

void run_span(const Job& job, const void* const* in, const int64_t* stride, void* out, int64_t n);

// 16-bit floats: tiles are widened to float32, computed and narrowed. Kept out of line, so that its buffers do not
// weigh on the frame of the plain case.
[[gnu::noinline]] void run_converted(const Job& job, const void* const* in, const int64_t* stride, void* out,
                                     int64_t n) {
  alignas(64) float tile[3][kTile], result[kTile];
  const int64_t one = 1;
  const char* p[3];
  for (int k = 0; k < job.n_in; ++k) p[k] = static_cast<const char*>(in[k]);
  char* o = static_cast<char*>(out);
  for (int64_t i = 0; i < n; i += kTile) {
    const int64_t m = std::min(kTile, n - i);
    const void* from[3];
    for (int k = 0; k < job.n_in; ++k) {
      const void* raw = p[k];
      job.load(&raw, &one, tile[k], stride[k] ? m : 1);
      from[k] = tile[k];
      p[k] += stride[k] * m * job.in_size[k];
    }
    job.row(from, stride, job.store ? static_cast<void*>(result) : o, m);
    if (job.store) {
      const void* r = result;
      job.store(&r, &one, o, m);
    }
    o += m * job.out_size;
  }
}
// Rows without streaming stores of their own write a short piece that stays in the first cache, from where it goes past
// the caches to memory while the next piece is fetched.
[[gnu::noinline]] void run_streamed(const Job& job, const void* const* in, const int64_t* stride, void* out,
                                    int64_t n) {
  constexpr int64_t kBytes = 1024;
  alignas(64) char piece[kBytes];
  Job plain = job;
  plain.stream = false;
  const int64_t step = kBytes / job.out_size;
  const char* p[3] = {};
  for (int k = 0; k < job.n_in; ++k) p[k] = static_cast<const char*>(in[k]);
  for (int64_t i = 0; i < n; i += step) {
    const int64_t m = std::min(step, n - i);
    const void* from[3] = {p[0], p[1], p[2]};
    run_span(plain, from, stride, piece, m);
    const void* next[2] = {};
    for (int k = 0, found = 0; k < job.n_in; ++k) {
      p[k] += stride[k] * m * job.in_size[k];
      if (stride[k] && job.in_size[k] >= job.out_size && found < 2 && i + 2 * step <= n) next[found++] = p[k];
    }
    stream_copy(static_cast<char*>(out) + i * job.out_size, piece, static_cast<size_t>(m * job.out_size), next[0],
                next[1]);
  }
}
// n elements whose operands are contiguous (stride 1) or a single value (stride 0). A thread that streamed calls
// stream_end() when it is done.
[[gnu::noinline]] void run_past_cache(const Job& job, const void* const* in, const int64_t* stride, void* out,
                                      int64_t n) {
  const auto to_line = static_cast<int64_t>((64 - reinterpret_cast<uintptr_t>(out) % 64) % 64);
  const int64_t head = std::min(n, to_line / job.out_size);
  if (head) job.row(in, stride, out, head);
  const void* rest[3];
  for (int k = 0; k < job.n_in; ++k) rest[k] = static_cast<const char*>(in[k]) + head * stride[k] * job.in_size[k];
  job.streamed(rest, stride, static_cast<char*>(out) + head * job.out_size, n - head);
}
void run_span(const Job& job, const void* const* in, const int64_t* stride, void* out, int64_t n) {
  if (job.stream && job.streamed)
    run_past_cache(job, in, stride, out, n);
  else if (job.stream)
    run_streamed(job, in, stride, out, n);
  else if (job.load)
    run_converted(job, in, stride, out, n);
  else
    job.row(in, stride, out, n);
}

void run_contiguous(const Job& job, const int64_t* stride, int64_t n) {
  if (stays_here(n)) {
    const void* in[3] = {job.in[0], job.in[1], job.in[2]};
    return run_span(job, in, stride, job.out, n);
  }
  // Ranges start at multiples of 64 elements, so that threads do not share cache lines of the output.
  parallel_for((n + 63) / 64, grain_for(64), [&](int64_t b, int64_t e) {
    b *= 64;
    e = std::min(e * 64, n);
    const void* in[3];
    for (int k = 0; k < job.n_in; ++k) in[k] = job.in[k] + b * stride[k] * job.in_size[k];
    run_span(job, in, stride, job.out + b * job.out_size, e - b);
    if (job.stream) stream_end();
  });
}

// Position in a loop nest, one offset per operand (0 = output).
struct Cursor {
  int64_t index[kMaxRank] = {}, offset[4] = {};
  Cursor(const LoopNest& nest, int dims, int64_t at) {
    for (int i = dims - 1; i >= 0; --i) {
      index[i] = at % nest.size[i];
      at /= nest.size[i];
      for (int k = 0; k < nest.operands; ++k) offset[k] += index[i] * nest.stride[k][i];
    }
  }
  // One step in dim i, carrying into the dims before it.
  void advance(const LoopNest& nest, int i) {
    for (; i >= 0; --i) {
      for (int k = 0; k < nest.operands; ++k) offset[k] += nest.stride[k][i];
      if (++index[i] < nest.size[i]) return;
      for (int k = 0; k < nest.operands; ++k) offset[k] -= nest.size[i] * nest.stride[k][i];
      index[i] = 0;
    }
  }
};

// Long innermost rows with strides 0 and 1: run each row as it lies.
void run_rows(Job job, const LoopNest& nest) {
  const int inner = nest.rank - 1;
  const int64_t len = nest.size[inner];
  int64_t rows = 1, stride[3];
  for (int i = 0; i < inner; ++i) rows *= nest.size[i];
  for (int k = 0; k < job.n_in; ++k) stride[k] = nest.stride[k + 1][inner];
  const int64_t piece = std::min(len, kPiece), pieces = (len + piece - 1) / piece;
  if (job.stream && len * job.out_size < 512) job.stream = false;
  // A matrix whose rows are not cut: one step from row to row. Rows are short, so that what surrounds them counts.
  auto matrix = [&](int64_t b, int64_t e) {
    const void* in[3];
    int64_t step[3];
    for (int k = 0; k < job.n_in; ++k) {
      step[k] = nest.stride[k + 1][0] * job.in_size[k];
      in[k] = job.in[k] + b * step[k];
    }
    const int64_t out_step = nest.stride[0][0] * job.out_size;
    char* out = job.out + b * out_step;
    for (; b < e; ++b, out += out_step) {
      run_span(job, in, stride, out, len);
      for (int k = 0; k < job.n_in; ++k) in[k] = static_cast<const char*>(in[k]) + step[k];
    }
    if (job.stream) stream_end();
  };
  auto body = [&](int64_t b, int64_t e) {
    if (inner == 1 && pieces == 1) return matrix(b, e);
    Cursor at(nest, inner, b / pieces);
    for (int64_t i = b, part = b % pieces; i < e; ++i) {
      const int64_t from = part * piece, n = std::min(piece, len - from);
      const void* in[3];
      for (int k = 0; k < job.n_in; ++k) in[k] = job.in[k] + (at.offset[k + 1] + from * stride[k]) * job.in_size[k];
      run_span(job, in, stride, job.out + (at.offset[0] + from) * job.out_size, n);
      if (++part == pieces) {
        part = 0;
        at.advance(nest, inner - 1);
      }
    }
    if (job.stream) stream_end();
  };
  if (stays_here(rows * len))
    body(0, rows * pieces);
  else
    parallel_for(rows * pieces, grain_for(piece), body);
}

// Copies elements [start, start+n) of operand k, in nest order, between its strided memory and a dense buffer.
template <class T, bool kToBuffer>
void move_tile(const LoopNest& nest, int k, char* memory, int64_t start, int64_t n, char* buffer) {
  const int inner = nest.rank - 1;
  const int64_t* stride = nest.stride[k];
  const int64_t len = nest.size[inner], step = stride[inner];
  int64_t index[kMaxRank], offset = 0;
  for (int i = inner; i >= 0; --i) {
    index[i] = start % nest.size[i];
    start /= nest.size[i];
    offset += index[i] * stride[i];
  }
  T *mem = reinterpret_cast<T*>(memory), *buf = reinterpret_cast<T*>(buffer);
  for (;;) {
    const int64_t run = std::min(n, len - index[inner]);
    T* p = mem + offset;
    for (int64_t j = 0; j < run; ++j) {
      if constexpr (kToBuffer)
        buf[j] = p[j * step];
      else
        p[j * step] = buf[j];
    }
    n -= run;
    if (n == 0) return;
    buf += run;
    offset -= index[inner] * step;
    index[inner] = 0;
    for (int i = inner - 1; i >= 0; --i) {
      offset += stride[i];
      if (++index[i] < nest.size[i]) break;
      offset -= nest.size[i] * stride[i];
      index[i] = 0;
    }
  }
}
template <bool kToBuffer>
void move_tile(int64_t size, const LoopNest& nest, int k, const char* memory, int64_t start, int64_t n, char* buffer) {
  char* m = const_cast<char*>(memory);
  switch (size) {
    case 1:
      return move_tile<uint8_t, kToBuffer>(nest, k, m, start, n, buffer);
    case 2:
      return move_tile<uint16_t, kToBuffer>(nest, k, m, start, n, buffer);
    default:
      return move_tile<uint32_t, kToBuffer>(nest, k, m, start, n, buffer);
  }
}

// How operand k of a nest is read when elements are taken in order.
enum class Access : uint8_t {
  Single,    // one value
  Flat,      // as it lies
  Periodic,  // a short dense block over and over: expanded once
  Gather,
};
Access classify(const LoopNest& nest, int k, int64_t* period) {
  int64_t dense = 1, repeat = 1;
  bool flat = true;
  int first = nest.rank;  // dims before it have stride 0
  for (int i = nest.rank - 1; i >= 0; --i) {
    flat = flat && nest.stride[k][i] == dense;
    dense *= nest.size[i];
    if (nest.stride[k][i]) {
      first = i;
      repeat = dense;
    }
  }
  if (first == nest.rank) return Access::Single;
  if (flat) return Access::Flat;
  if (first == 0 || repeat > kTile / 2) return Access::Gather;
  *period = std::max(*period, repeat);  // periods divide each other: all are products of trailing dims
  return Access::Periodic;
}

// Anything else: tiles of consecutive elements are gathered, computed and put back.
void run_gathered(Job job, const LoopNest& nest) {
  job.stream = false;  // pieces are too short
  int64_t total = 1, period = 1, stride[3];
  for (int i = 0; i < nest.rank; ++i) total *= nest.size[i];
  Access access[4];
  for (int k = 0; k < nest.operands; ++k) access[k] = classify(nest, k, &period);
  for (int k = 0; k < job.n_in; ++k) stride[k] = access[k + 1] != Access::Single;
  const int64_t tile_size = kTile / period * period, tiles = (total + tile_size - 1) / tile_size;
  auto body = [&](int64_t b, int64_t e) {
    alignas(64) char tile[3][kTile * 4], result[kTile * 4];
    const void* in[3];
    for (int k = 0; k < job.n_in; ++k) {
      in[k] = access[k + 1] == Access::Single ? static_cast<const void*>(job.in[k]) : tile[k];
      if (access[k + 1] == Access::Periodic)
        move_tile<true>(job.in_size[k], nest, k + 1, job.in[k], 0, std::min(tile_size, total), tile[k]);
    }
    for (int64_t t = b; t < e; ++t) {
      const int64_t start = t * tile_size, n = std::min(tile_size, total - start);
      for (int k = 0; k < job.n_in; ++k) {
        if (access[k + 1] == Access::Flat)
          in[k] = job.in[k] + start * job.in_size[k];
        else if (access[k + 1] == Access::Gather)
          move_tile<true>(job.in_size[k], nest, k + 1, job.in[k], start, n, tile[k]);
      }
      if (access[0] == Access::Flat) {
        run_span(job, in, stride, job.out + start * job.out_size, n);
      } else {
        run_span(job, in, stride, result, n);
        move_tile<false>(job.out_size, nest, 0, job.out, start, n, result);
      }
    }
  };
  if (stays_here(total))
    body(0, tiles);
  else
    parallel_for(tiles, grain_for(kTile), body);
}

// A block of a transposed operand (unit stride across rows) as dense rows of kBlockCols.
constexpr int64_t kBlockRows = 16, kBlockCols = 64;
template <class T>
void transpose_block(const char* from, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols, char* to) {
  auto* s = reinterpret_cast<const T*>(from);
  auto* d = reinterpret_cast<T*>(to);
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) d[r * kBlockCols + c] = s[r * row_stride + c * col_stride];
}
void transpose_block(int64_t size, const char* from, int64_t row_stride, int64_t col_stride, int64_t rows, int64_t cols,
                     char* to) {
  switch (size) {
    case 1:
      return transpose_block<uint8_t>(from, row_stride, col_stride, rows, cols, to);
    case 2:
      return transpose_block<uint16_t>(from, row_stride, col_stride, rows, cols, to);
    default:
      return transpose_block<uint32_t>(from, row_stride, col_stride, rows, cols, to);
  }
}
// An operand that runs along the second innermost dim (a transposed matrix, channels last read as channels first):
// blocks of both dims, so that every cache line fetched is used up.
bool is_transposed(const LoopNest& nest, int k) {
  return nest.stride[k][nest.rank - 2] == 1 && static_cast<uint64_t>(nest.stride[k][nest.rank - 1]) > 1;
}
void run_blocked(Job job, const LoopNest& nest) {
  job.stream = false;  // pieces are too short
  const int inner = nest.rank - 1, mid = nest.rank - 2;
  const int64_t row_blocks = (nest.size[mid] + kBlockRows - 1) / kBlockRows,
                col_blocks = (nest.size[inner] + kBlockCols - 1) / kBlockCols;
  int64_t outer = 1;
  for (int i = 0; i < mid; ++i) outer *= nest.size[i];
  auto body = [&](int64_t b, int64_t e) {
    alignas(64) char tile[3][kBlockRows * kBlockCols * 4];
    for (int64_t item = b; item < e; ++item) {
      const int64_t c = item % col_blocks * kBlockCols, r = item / col_blocks % row_blocks * kBlockRows;
      const int64_t cols = std::min(kBlockCols, nest.size[inner] - c), rows = std::min(kBlockRows, nest.size[mid] - r);
      Cursor at(nest, mid, item / col_blocks / row_blocks);
      const char* base[3];
      int64_t stride[3], row_step[3];
      for (int k = 0; k < job.n_in; ++k) {
        const int64_t* st = nest.stride[k + 1];
        base[k] = job.in[k] + (at.offset[k + 1] + r * st[mid] + c * st[inner]) * job.in_size[k];
        stride[k] = st[inner];
        row_step[k] = st[mid] * job.in_size[k];
        if (static_cast<uint64_t>(st[inner]) <= 1) continue;
        transpose_block(job.in_size[k], base[k], st[mid], st[inner], rows, cols, tile[k]);
        base[k] = tile[k];
        stride[k] = 1;
        row_step[k] = kBlockCols * job.in_size[k];
      }
      for (int64_t i = 0; i < rows; ++i) {
        const void* in[3];
        for (int k = 0; k < job.n_in; ++k) in[k] = base[k] + i * row_step[k];
        run_span(job, in, stride, job.out + (at.offset[0] + (r + i) * nest.stride[0][mid] + c) * job.out_size, cols);
      }
    }
  };
  const int64_t items = outer * row_blocks * col_blocks;
  if (stays_here(outer * nest.size[mid] * nest.size[inner]))
    body(0, items);
  else
    parallel_for(items, grain_for(kBlockRows * kBlockCols), body);
}

// The nest with the dims in the order of the output's strides, so that outputs that are not row-major (channels last)
// still give long rows.
LoopNest nest_in_output_order(const TensorArg& out, std::span<const TensorArg* const> operands) {
  if (out.contiguous()) return make_loop_nest(out.shape, operands);
  TensorArg moved[4];
  const TensorArg* p[4];
  for (size_t k = 0; k < operands.size(); ++k) {
    moved[k] = *operands[k];
    p[k] = &moved[k];
  }
  sort_axes_by_output(moved[0], {moved + 1, operands.size() - 1});
  return make_loop_nest(moved[0].shape, {p, operands.size()});
}

// Short rows of operands that lie flat or repeat (a value per channel of channels-last images): the repeated ones are
// expanded to a tile once, and the rest is long spans.
bool repeats(const LoopNest& nest) {
  if (nest.rank < 2 || nest.size[nest.rank - 1] > kTile / 2) return false;
  int64_t period = 1;
  for (int k = 0; k < nest.operands; ++k)
    if (classify(nest, k, &period) == Access::Gather) return false;
  return classify(nest, 0, &period) == Access::Flat;
}

[[gnu::noinline]] void run_strided(const Job& job, const KernelArgs& a) {
  const TensorArg* operands[4] = {&a.out[0]};
  for (int k = 0; k < job.n_in; ++k) operands[k + 1] = &a.in[static_cast<size_t>(k)];
  LoopNest nest = nest_in_output_order(a.out[0], {operands, static_cast<size_t>(job.n_in) + 1});
  if (nest.rank == 0) {
    const int64_t stride[3] = {};
    return run_contiguous(job, stride, 1);
  }
  const int inner = nest.rank - 1;
  if (repeats(nest)) return run_gathered(job, nest);
  bool rows = nest.stride[0][inner] == 1 && (nest.rank == 1 || nest.size[inner] >= kShortRow);
  for (int k = 1; k < nest.operands && rows; ++k) rows = static_cast<uint64_t>(nest.stride[k][inner]) <= 1;
  if (rows) return run_rows(job, nest);
  bool blocks = nest.rank >= 2 && nest.stride[0][inner] == 1 && nest.size[inner] >= 16;
  bool transposed = false;
  for (int k = 1; k < nest.operands && blocks; ++k) transposed = transposed || is_transposed(nest, k);
  return blocks && transposed ? run_blocked(job, nest) : run_gathered(job, nest);
}

// Same shape and row-major, in one pass.
bool is_dense(const TensorArg& t, const Shape& shape) {
  if (t.shape.rank != shape.rank) return false;
  int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (t.shape.d[i] != shape.d[i]) return false;
    if (t.layout.stride[i] != step && shape.d[i] != 1) return false;
    step *= shape.d[i];
  }
  return true;
}

void run(const KernelArgs& a) {
  const TensorArg& out = a.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  Job job;
  pick(a, job);
  job.n_in = static_cast<int>(a.in.size());
  job.out = static_cast<char*>(out.ptr);
  job.out_size = static_cast<int64_t>(dtype_size(out.dtype));
  int64_t stride[3];
  bool simple = is_dense(out, out.shape);
  for (int k = 0; k < job.n_in; ++k) {
    const TensorArg& t = a.in[static_cast<size_t>(k)];
    job.in[k] = static_cast<const char*>(t.ptr);
    job.in_size[k] = static_cast<int64_t>(dtype_size(t.dtype));
    stride[k] = is_dense(t, out.shape);
    simple = simple && (stride[k] || t.numel() == 1);
  }
  if (streams(n * job.out_size)) {
    job.stream = true;
    for (int k = 0; k < job.n_in; ++k) job.stream = job.stream && job.in[k] != job.out;  // in place: the line is here
  }
  if (simple) return run_contiguous(job, stride, n);
  run_strided(job, a);
}

const char* refuse(const KernelArgs& a) {
  Job job;
  pick(a, job);
  return job.row ? nullptr : "no vector code for this dtype";
}

}  // namespace

const RowTable& row_table() { return mutable_table(); }

}  // namespace simd

RowFn find_row(const OpDef& op, DType in, DType out) { return simd::find(op, in, out).row; }
void rebuild_rows_for_test() { simd::mutable_table() = simd::make_table(); }

namespace {
template <class... Ops>
constexpr bool any_here(body::scalar::OpList<Ops...>) {
  return (vectors_in_build(Ops::name) || ...);
}
template <class... Lists>
constexpr bool any_of_lists() {
  return (any_here(Lists()) || ...);
}
}  // namespace

void register_simd_elementwise(KernelRegistry& r) {
  using namespace body::scalar;
  if constexpr (!any_of_lists<CheapUnaryOps, ExpUnaryOps, TrigUnaryOps, TestOps, BoolOps, ArithOps, MathBinaryOps,
                              CompareOps, ShiftOps, GradOps, OpList<Where>>() &&
                !in_build("typecvt"))
    return;
  const OpRegistry& ops = OpRegistry::global();
  const simd::RowTable& t = simd::row_table();
  for (size_t id = 0; id < ops.size(); ++id) {
    const OpDef& op = ops.at(static_cast<OpId>(id));
    const simd::OpRows& rows = t.by_op[id];
    if (op.scalar && (op.scalar->selects || rows.f32.row || rows.i32.row || rows.b8.row))
      r.add(op.name, KernelTier::Simd,
            {.name = "simd_elementwise",
             .refuse = simd::refuse,
             .run = simd::run,
             .flags = kStridedInputs | kInPlaceAny,
             .layouts = keep_channels_last});
  }
  r.add("typecvt", KernelTier::Simd,
        {.name = "simd_typecvt",
         .refuse = simd::refuse,
         .run = simd::run,
         .flags = kStridedInputs | kInPlace0,
         .layouts = keep_channels_last});
}

}  // namespace mge
