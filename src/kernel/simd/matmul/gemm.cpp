#include "kernel/simd/matmul/gemm.h"

#include <algorithm>
#include <atomic>

#include "base/cost.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/targets.h"

#ifndef MGE_GEMM_ONCE
#define MGE_GEMM_ONCE
namespace mge::simd {
// Columns of a packed B: whole vectors of the widest target, so that every block of k starts aligned.
inline int64_t packed_pitch(int64_t n) { return (n + 15) / 16 * 16; }
// A whole operand packed for several pieces of one product, or for many products: packed_pitch(columns) * k floats. A
// piece may start at a later column, a multiple of the tile's.
struct Kept {
  float* data;
  int64_t columns;
  bool ready = false;
  int64_t first = 0;
  float* block(int64_t pc, int64_t kc, int64_t j) const { return data + pc * packed_pitch(columns) + (first + j) * kc; }
};
enum class Way { ByShape, Straight, Turned };
// What follows a product, for a piece that starts at this row and column of C.
struct Finish {
  const float* bias;  // of the columns of the piece, or null
  const BlockFn* done;
  int64_t row, column;
  bool any() const { return bias || done; }
  void operator()(int64_t i, int64_t rows, int64_t j, int64_t columns) const {
    if (done) (*done)(row + i, rows, column + j, columns);
  }
};
}  // namespace mge::simd
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/matmul/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_few_rows-inl.h"
#include "kernel/simd/matmul/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mge::simd::HWY_NAMESPACE {

// Rows and columns of C worked on at a time (cache blocking, loop tiling): a small block of A leaves L2 to B.
constexpr int64_t kMC = 4 * kMR;
constexpr int64_t kTurned = (kMR + kLanes - 1) / kLanes * kLanes;  // a row of a transposed tile
constexpr int64_t kFewNC = 8 * kNR;
// Columns of B beside many rows: half of L2, but a megabyte where L2 is smaller, since A comes by once for each block.
// NOTE(perf): one thread of a Xeon with 2 MiB, 1024^3: 154 GFLOP/s, 129 with all of L2.
int64_t wide_block(int64_t kc) {
  const int64_t bytes = std::max<int64_t>(machine().l2 / 2, 1 << 20);
  return std::max(kFewNC, bytes / int64_t{sizeof(float)} / kc / kNR * kNR);
}

// Whether panels of a packed B are used for enough rows that the way of the next ones is hidden by sums.
bool fetches_panels(int64_t m) { return kFetchesPanels && m > 4 * kMR; }
// Columns of B beside few rows, all of A and the next columns, which are on their way. NOTE(perf): 128 rows, one core
// of Zen 5, weights beyond the third cache: 512x512 268 to 262 us, 512x2048 1072 to 1045, 2048x512 1087 to 1077.
int64_t few_block(int64_t m, int64_t n, int64_t kc) {
  const int64_t floats = machine().l2 * 7 / 8 / int64_t{sizeof(float)} - m * kc;
  const int64_t most = std::clamp<int64_t>(floats / 2 / kc / kNR * kNR, 2 * kNR, kFewNC);
  const int64_t panels = (n + kNR - 1) / kNR, blocks = (panels * kNR + most - 1) / most;
  return (panels + blocks - 1) / blocks * kNR;
}

// Rows [i, i + m) and columns [j, j + n) of C, which are complete at `c`.
void finish_block(const Finish& f, int64_t i, int64_t m, int64_t j, int64_t n, float* c, int64_t ldc) {
  for (int64_t r = 0; f.bias && r < m; ++r) add_n(f.bias + j, n, c + r * ldc);
  f(i, m, j, n);
}

// One thread's share of a product that is not of few rows.
template <bool ta>
void multiply(bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc, bool accumulate, const Finish& finish, Kept* kept) {
  constexpr RowsAre kRows = ta ? RowsAre::Across : RowsAre::Lines;
  const int64_t kc_max = k_block(k);
  // Reading in place saves the packing pass; packing saves cache conflicts and pages when the operand is read often.
  const bool a_in_place = ta && (n <= kNR || m <= kMR);
  const bool b_in_place = !tb && !kept && (m <= 2 * kMR || (k <= 128 && n <= 512 && m <= 8 * kMR));
  // Few rows: all of A stays in L2 beside a narrow block of B. Many: a wide block of B, and A comes by once for each.
  const bool few = m * kc_max * int64_t{sizeof(float)} <= machine().l2 * 5 / 16;
  const bool comes = few && kept && kept->ready && fetches_panels(m);
  const int64_t mc_max = few ? m : kMC, nc_max = comes ? few_block(m, n, kc_max) : few ? kFewNC : wide_block(kc_max);
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    const bool add = accumulate || pc > 0;
    for (int64_t jc = 0; jc < n; jc += nc_max) {
      const int64_t nc = std::min(nc_max, n - jc);
      const float* b_block = tb ? b + jc * ldb + pc : b + pc * ldb + jc;
      float* packed_b = b_in_place ? nullptr
                        : kept     ? kept->block(pc, kc, jc)
                                   : scratch(Scratch::PackB, kc * (nc + kLanes));
      const bool packs_b = packed_b && !(kept && kept->ready);
      if (tb && packs_b) pack_columns(tb, b_block, ldb, nc, kc, packed_b);
      for (int64_t ic = 0; ic < m; ic += mc_max) {
        const int64_t mc = std::min(mc_max, m - ic);
        const float* a_block = ta ? a + pc * lda + ic : a + ic * lda + pc;
        // After the last panels what lies behind them: mostly the weight of the next product.
        const float* after = !comes                        ? nullptr
                             : jc + nc < n || pc + kc == k ? packed_b + kc * nc
                                                           : kept->block(pc + kc, std::min(kc_max, k - pc - kc), 0);
        const Operand bo = b_in_place ? Operand{b_block, ldb} : Operand{packed_b, 0, after};
        float* c_block = c + ic * ldc + jc;
        float* packed_a = a_in_place ? nullptr : scratch(Scratch::PackA, whole_lines(kc) * mc + kLanes);
        const Operand ao = packed_a ? Operand{packed_a, 0} : Operand{a_block, lda};
        const FreshRows rows{a_block, lda, packed_a, few};
        const FreshRows* fresh = packed_a && (!few || jc == 0) ? &rows : nullptr;
        if (packs_b && !tb && ic == 0)
          multiply_block_packing<kRows>(mc, nc, kc, ao, fresh, b_block, ldb, packed_b, c_block, ldc, add);
        else if (fresh)
          multiply_tiles_packing<kRows>(RowTiles(mc), 0, nc, kc, rows, bo, c_block, ldc, add);
        else
          multiply_block<kRows>(mc, nc, kc, ao, bo, c_block, ldc, add);
        if (pc + kc == k && finish.any()) finish_block(finish, ic, mc, jc, nc, c_block, ldc);
      }
    }
  }
  if (kept) kept->ready = true;
}

// C[cols][mr] = (C if add) + the transpose of t[mr][kNR], then + bias if there is one.
void store_turned(const float* t, int64_t mr, int64_t cols, float* c, int64_t ldc, bool add, const float* bias) {
  HWY_ALIGN float turned[kNR * kTurned];
  transpose(t, kNR, mr, cols, turned, kTurned);
  for (int64_t j = 0; j < cols; ++j) {
    float* HWY_RESTRICT row = turned + j * kTurned;
    if (add) add_n(c + j * ldc, mr, row);
    if (bias) add_n(bias, mr, row);
    copy_n(row, mr, c + j * ldc);
  }
}

// A·Bᵀ as the transpose of B·Aᵀ: rows of B are copied as they lie and the smaller A is turned around instead. The bits
// are the same, since every element is the same chain of multiply-adds.
void multiply_turned(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
                     float* c, int64_t ldc, bool accumulate, const Finish& finish, Kept* kept) {
  constexpr int64_t kTogether = 8;  // tiles of columns that are finished in one go
  const int64_t kc_max = k_block(k);
  const RowTiles rows(n);
  HWY_ALIGN float t[kMR * kNR];
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    const bool add = accumulate || pc > 0, last = pc + kc == k;
    for (int64_t ic = 0; ic < m; ic += kFewNC) {
      const int64_t mc = std::min(kFewNC, m - ic);
      float* columns = kept ? kept->block(pc, kc, ic) : scratch(Scratch::PackB, kc * (mc + kLanes));
      if (!(kept && kept->ready)) pack_columns(true, a + ic * lda + pc, lda, mc, kc, columns);
      float* lines = scratch(Scratch::PackA, whole_lines(kc) * kMR);
      int64_t finished = 0;
      for (int64_t r = 0; r < rows.count; ++r) {
        const int64_t i = rows.begin(r), mr = rows.begin(r + 1) - i;
        for (int64_t j = 0; j < mc; j += kNR) {
          const int64_t cols = std::min<int64_t>(kNR, mc - j);
          const float* panel = columns + j * kc;
          const int64_t ps = panel_stride(mc, j);
          if (j == 0)
            multiply_tile_packing<RowsAre::Lines>(mr, cols, kc, b + i * ldb + pc, ldb, panel, ps, t, kNR, false, lines);
          else
            multiply_tile<RowsAre::Lines>(mr, cols, kc, lines, 0, panel, ps, t, kNR, false);
          store_turned(t, mr, cols, c + (ic + j) * ldc + i, ldc, add, last && finish.bias ? finish.bias + i : nullptr);
        }
        if (last && finish.done && ((r + 1) % kTogether == 0 || r + 1 == rows.count)) {
          finish(ic, mc, finished, i + mr - finished);
          finished = i + mr;
        }
      }
    }
  }
  if (kept) kept->ready = true;
}

// A·Bᵀ of few rows of A, by shape.
bool turns(bool ta, bool tb, int64_t m, int64_t n) { return !ta && tb && m < n && m <= kFewNC; }

// One thread's share: C[m,n] (+)= op(A)·op(B), then what follows. `kept` is B, or A when turned.
void sgemm_serial(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                  int64_t ldb, float* c, int64_t ldc, bool accumulate, const Finish& finish, Way way, Kept* kept) {
  if (way == Way::ByShape && few_rows(ta, tb, m, n, k, a, lda, b, ldb, c, ldc, accumulate)) {
    finish_block(finish, 0, m, 0, n, c, ldc);
  } else if (way == Way::Turned || (way == Way::ByShape && turns(ta, tb, m, n))) {
    multiply_turned(m, n, k, a, lda, b, ldb, c, ldc, accumulate, finish, kept);
  } else {
    (ta ? multiply<true> : multiply<false>)(tb, m, n, k, a, lda, b, ldb, c, ldc, accumulate, finish, kept);
  }
}

// Products smaller than any tile, one after the other: sums as everywhere else.
void multiply_tiny(int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   int64_t stride_a, const float* b, int64_t ldb, int64_t stride_b, float* c, int64_t ldc,
                   int64_t stride_c, bool accumulate) {
  const hn::CappedTag<float, 1> d;
  const int64_t ai = ta ? 1 : lda, ap = ta ? lda : 1, bp = tb ? 1 : ldb, bj = tb ? ldb : 1;
  for (; batch > 0; --batch, a += stride_a, b += stride_b, c += stride_c)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        auto sum = hn::Zero(d);
        for (int64_t p = 0; p < k; ++p)
          sum = hn::MulAdd(hn::Set(d, a[i * ai + p * ap]), hn::Set(d, b[p * bp + j * bj]), sum);
        float* to = c + i * ldc + j;
        hn::StoreU(accumulate ? hn::Add(hn::LoadU(d, to), sum) : sum, d, to);
      }
}

// Panels [begin, end) of op(B)[k,n], as multiply leaves them.
void pack_panels_of(bool tb, int64_t n, int64_t k, const float* b, int64_t ldb, int64_t begin, int64_t end, float* to) {
  const int64_t kc_max = k_block(k), j = begin * kNR, columns = std::min(n, end * kNR) - j;
  const Kept kept{to, n};
  for (int64_t pc = 0; pc < k; pc += kc_max) {
    const int64_t kc = std::min(kc_max, k - pc);
    pack_columns(tb, tb ? b + j * ldb + pc : b + pc * ldb + j, ldb, columns, kc, kept.block(pc, kc, j));
  }
}

// Lanes and tile rows of the compiled target, for cutting C between threads.
void tile_shape(int64_t* rows, int64_t* cols) {
  *rows = kMR;
  *cols = kNR;
}

}  // namespace mge::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd {
namespace {
HWY_EXPORT(sgemm_serial);
HWY_EXPORT(turns);
HWY_EXPORT(tile_shape);
HWY_EXPORT(pack_panels_of);
HWY_EXPORT(multiply_tiny);

struct Grid {
  int64_t rows, cols;  // pieces of C
};

// Pieces for `parts` threads with the least operand traffic, no piece smaller than a tile.
Grid choose_grid(int64_t m, int64_t n, int64_t parts) {
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  const int64_t max_rows = std::max<int64_t>(1, m / mr), max_cols = std::max<int64_t>(1, n / nr);
  Grid best{1, 1};
  double best_cost = 1e300;
  for (int64_t r = 1; r <= std::min(parts, max_rows); ++r) {
    const int64_t c = std::min(parts / r, max_cols);
    // Time of the largest piece, then what each piece has to read.
    const double cost = static_cast<double>(m) / r * (static_cast<double>(n) / c) * 1e3 + static_cast<double>(m) / r +
                        static_cast<double>(n) / c;
    if (cost <= best_cost) best_cost = cost, best = {r, c};
  }
  return best;
}

int64_t cut(int64_t size, int64_t i, int64_t pieces, int64_t unit) {
  const int64_t units = (size + unit - 1) / unit;
  return std::min(size, units * i / pieces * unit);
}

struct Product {
  bool ta, tb;
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool accumulate;
  const float* bias;
  const BlockFn* done;
  int64_t row;  // of C, counted over the batch
  // Rows [i0, i1) and columns [j0, j1) of C.
  void piece(int64_t i0, int64_t i1, int64_t j0, int64_t j1, Way way = Way::ByShape, Kept* kept = nullptr) const {
    HWY_DYNAMIC_DISPATCH(sgemm_serial)
    (ta, tb, i1 - i0, j1 - j0, k, a + (ta ? i0 : i0 * lda), lda, b + (tb ? j0 * ldb : j0), ldb, c + i0 * ldc + j0, ldc,
     accumulate, {bias ? bias + j0 : nullptr, done, row + i0, j0}, way, kept);
  }
};

// One product on many threads, some of which may be late: a core shared with another thread is half as fast. Blocks of
// C are cut into narrow pieces; whoever takes several of one block packs the operand they share once.
constexpr int64_t kManyThreads = 4, kPieces = 8;
constexpr int64_t kOneColumn = 32;  // rows from which one column is worth turning
constexpr int64_t kTiny = 48;       // multiply-adds of a product that no tile is filled by
bool shared_out(const Product& p, int64_t threads, double worth) {
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  if (threads < kManyThreads || p.m < 4 * mr || p.n < 4 * nr || worth < static_cast<double>(2 * threads)) return false;
  Grid grid = choose_grid(p.m, p.n, threads);
  const bool turned = HWY_DYNAMIC_DISPATCH(turns)(p.ta, p.tb, p.m / grid.rows, p.n / grid.cols);
  // What is kept stays in L2 beside what passes by.
  int64_t& blocks = turned ? grid.rows : grid.cols;
  const int64_t size = turned ? p.m : p.n, cut_size = turned ? p.n : p.m;
  auto kept_floats = [&] { return packed_pitch((size + blocks - 1) / blocks + 16) * p.k; };
  auto kept_bytes = [&] { return kept_floats() * int64_t{sizeof(float)}; };
  while (kept_bytes() > machine().l2 / 2 && size / blocks >= 4 * nr) ++blocks;
  if (kept_bytes() > machine().l2) return false;  // a long k: packed block by block instead, in little memory
  const int64_t lines = turned ? grid.cols : grid.rows;
  const int64_t most = std::max<int64_t>(1, cut_size / (2 * mr) / lines);
  const int64_t each =
      std::clamp<int64_t>(std::min(kPieces * threads, static_cast<int64_t>(worth)) / (blocks * lines), 1, most);
  static std::atomic<uint64_t> products{0};
  const uint64_t product = ++products;
  const int64_t pieces = lines * each, floats = kept_floats();
  parallel_for(
      blocks * pieces, 1,
      [&](int64_t begin, int64_t end) {
        thread_local uint64_t kept_product = 0;
        thread_local int64_t kept_block = 0;
        thread_local Kept kept{nullptr, 0};
        for (int64_t t = begin; t < end; ++t) {
          const int64_t s = t / pieces, r = t % pieces;
          if (kept_product != product || kept_block != s) {
            kept_product = product, kept_block = s;
            kept = {scratch(Scratch::PackB, floats), 0};
          }
          const int64_t s0 = cut(size, s, blocks, 16), s1 = cut(size, s + 1, blocks, 16);
          kept.columns = s1 - s0;
          const int64_t r0 = cut(cut_size, r, pieces, mr), r1 = cut(cut_size, r + 1, pieces, mr);
          if (s0 == s1 || r0 == r1) continue;
          if (turned)
            p.piece(s0, s1, r0, r1, Way::Turned, &kept);
          else
            p.piece(r0, r1, s0, s1, Way::Straight, &kept);
        }
      },
      kPieces);
  return true;
}

}  // namespace

void sgemm_batched(int64_t batch, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                   int64_t stride_a, const float* b, int64_t ldb, int64_t stride_b, float* c, int64_t ldc,
                   int64_t stride_c, bool accumulate, const float* bias, const BlockFn* done) {
  if (batch <= 0 || m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (int64_t i = 0; i < batch; ++i)
      for (int64_t r = 0; r < m; ++r) {
        float* row = c + i * stride_c + r * ldc;
        if (!accumulate) std::fill_n(row, n, 0.f);
        for (int64_t j = 0; bias && j < n; ++j) row[j] += bias[j];
      }
    if (done) (*done)(0, batch * m, 0, n);
    return;
  }
  const double work = costs().fma * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  if (!bias && !done) {
    // One column is the transpose of one row, for which the matrix is read as it lies.
    if (n == 1 && m >= kOneColumn && ldc == 1)
      return sgemm_batched(batch, !tb, !ta, 1, m, k, b, ldb, stride_b, a, lda, stride_a, c, m, stride_c, accumulate);
    if (batch > 1 && m * n * k <= kTiny)
      return parallel_for(batch, step_grain(m * n * k), [&](int64_t begin, int64_t end) {
        HWY_DYNAMIC_DISPATCH(multiply_tiny)
        (end - begin, ta, tb, m, n, k, a + begin * stride_a, lda, stride_a, b + begin * stride_b, ldb, stride_b,
         c + begin * stride_c, ldc, stride_c, accumulate);
      });
  }
  auto product = [&](int64_t i) {
    return Product{ta,  tb,         m,    n,    k,    a + i * stride_a, lda, b + i * stride_b, ldb, c + i * stride_c,
                   ldc, accumulate, bias, done, i * m};
  };
  const int64_t threads = num_threads();
  // Each piece packs what it reads, so there are no more than there is work for.
  const double worth = work * static_cast<double>(batch) / std::max(costs().piece, 1e-3);
  if (threads == 1 || worth < 2) {
    for (int64_t i = 0; i < batch; ++i) product(i).piece(0, m, 0, n);
    return;
  }
  if (batch == 1 && shared_out(product(0), threads, worth)) return;
  Grid grid{1, 1};
  if (batch < 4 * threads) {
    const int64_t wanted = batch == 1 ? threads : 4 * threads;
    grid = choose_grid(m, n, (static_cast<int64_t>(std::min(worth, static_cast<double>(wanted))) + batch - 1) / batch);
  }
  const int64_t pieces = grid.rows * grid.cols;
  parallel_for(batch * pieces, grain_of(work / static_cast<double>(pieces)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t % pieces / grid.cols, s = t % grid.cols;
      product(t / pieces)
          .piece(cut(m, r, grid.rows, 1), cut(m, r + 1, grid.rows, 1), cut(n, s, grid.cols, 16),
                 cut(n, s + 1, grid.cols, 16));
    }
  });
}

int64_t packed_floats(int64_t n, int64_t k) { return packed_pitch(n) * k; }

void pack_b(bool tb, int64_t n, int64_t k, const float* b, int64_t ldb, float* to) {
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  parallel_for((n + nr - 1) / nr, value_grain(4 * nr * k), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(pack_panels_of)(tb, n, k, b, ldb, begin, end, to);
  });
}

void sgemm_packed(bool ta, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* packed, float* c,
                  int64_t ldc, const float* bias, const BlockFn* done) {
  if (m * n * k == 0) return sgemm(ta, false, m, n, k, a, lda, nullptr, n, c, ldc, false, bias, done);
  int64_t mr, nr;
  HWY_DYNAMIC_DISPATCH(tile_shape)(&mr, &nr);
  const Product p{ta, false, m, n, k, a, lda, packed, n, c, ldc, false, bias, done, 0};
  const double work = costs().fma * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  const auto threads =
      static_cast<int64_t>(std::clamp(work / std::max(costs().piece, 1e-3), 1.0, static_cast<double>(num_threads())));
  // Nothing is packed but rows of A, so columns may be cut finely; whoever is late leaves some to others.
  const Grid grid = threads == 1 ? Grid{1, 1} : choose_grid(m, n, threads < kManyThreads ? threads : 4 * threads);
  parallel_for(grid.rows * grid.cols, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t % grid.rows, s = t / grid.rows;
      const int64_t i0 = cut(m, r, grid.rows, 1), i1 = cut(m, r + 1, grid.rows, 1);
      const int64_t j0 = cut(n, s, grid.cols, nr), j1 = cut(n, s + 1, grid.cols, nr);
      if (i0 == i1 || j0 == j1) continue;
      Kept kept{const_cast<float*>(packed), n, true, j0};
      p.piece(i0, i1, j0, j1, Way::Straight, &kept);
    }
  });
}

void sgemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
           float* c, int64_t ldc, bool accumulate, const float* bias, const BlockFn* done) {
  sgemm_batched(1, ta, tb, m, n, k, a, lda, 0, b, ldb, 0, c, ldc, 0, accumulate, bias, done);
}

}  // namespace mge::simd
#endif
