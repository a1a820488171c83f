// Recurrent layers. The weight of the state is packed once. Whoever has some rows and some units of the state computes
// their products and then their cells, and leaves the state in the form that the next product reads.
#include <algorithm>
#include <cstring>

#include "base/cost.h"
#include "base/parallel.h"
#include "kernel/cost.h"
#include "kernel/simd/matmul/gemm_scratch.h"
#include "kernel/simd/nn_simd.h"
#include "kernel/simd/targets.h"
#include "op/recurrence/recurrence.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/recurrence/recurrence.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/simd/matmul/gemm_tile-inl.h"
#include "kernel/simd/nn_vec-inl.h"
#include "kernel/simd/vec-inl.h"
#include "op/in_build.h"

#ifndef MGE_NN_RECURRENCE_ONCE
#define MGE_NN_RECURRENCE_ONCE
namespace mge::simd_nn {

// Hidden units that are computed together: a cache line of the state, which the product of the next step reads as such.
constexpr int64_t kUnits = 16;

// Groups of them between a product and its cells, where a thread has so many: rows in long pieces come faster.
constexpr int64_t kGroups = 16;

// Some units of one row of a step; a gate is `hidden` floats from the next, in the product kUnits, and there a group of
// units follows the other. Forward: gates, product and c_prev in; h, c, acts out.
struct CellRow {
  CellKind kind;
  int64_t units, hidden;
  const float *gates, *product, *c_prev;
  float *h, *c, *acts;
};
// Backward: gh, gc (null: none), dh and dc from the step after, and what forward left; pre [G*H] and dc out.
struct CellGradRow {
  CellKind kind;
  int64_t units, hidden;
  const float *h, *gh, *dh, *acts, *c, *c_prev, *gc, *g_acts;
  float *dc, *pre;
};

// The part of a step that one thread has: tiles of rows, groups of units.
struct Part {
  int64_t tile, last_tile, group, last_group;
};

// One step of all rows, cut into `tiles`. Pointers are to its first row; `in` and `out` are the lines (gemm_tile-inl.h)
// of the state, or of the gradients of the gates, that the product reads and that it leaves for the next step. Null:
// there is none.
struct Step {
  const RecurrenceGeom& g;
  int64_t tiles;
  const float *packed, *in;
  float* out;
  // Every second step goes over the weights from the end: what does not fit the second cache is then read from further
  // away, not all of it.
  bool from_end = false;
};
struct ForwardStep : Step {
  const float *gates, *c_prev;
  float *h, *c, *acts;
};
struct BackwardStep : Step {
  const float *h, *gh, *acts, *c, *c_prev, *gc, *g_acts;
  float *dc, *pre, *dh;
};

}  // namespace mge::simd_nn
#endif

HWY_BEFORE_NAMESPACE();
namespace mge::simd_nn::HWY_NAMESPACE {

namespace body_t = mge::body::HWY_NAMESPACE;
namespace gemm = mge::simd::HWY_NAMESPACE;
HWY_INLINE VF tanh_v(VF x) { return body_t::tanh(body_t::VF(x)).v; }
HWY_INLINE VF sigmoid_v(VF x) { return body_t::sigmoid(body_t::VF(x)).v; }

// What the row after this one reads and writes: pieces too short for a hardware prefetcher to follow.
HWY_INLINE void next_row(const float* in, const float* out, int64_t at) {
  __builtin_prefetch(in + at);
  __builtin_prefetch(out + at, 1);
}

void cell_row(const CellRow& r) {
  const int64_t n = r.hidden, more = (r.kind == CellKind::Lstm ? 4 : 1) * kUnits - kUnits;
  auto pre = [&](int64_t gate, int64_t i, int k) HWY_ATTR {
    return hn::Add(load_n(r.gates + gate * n + i, k), load_n(r.product + i / kUnits * more + gate * kUnits + i, k));
  };
  if (r.kind == CellKind::Tanh)
    return each_vector(r.units, [&](int64_t i, int k) HWY_ATTR { store_n(tanh_v(pre(0, i, k)), r.h + i, k); });
  if (r.kind == CellKind::Relu)
    return each_vector(r.units, [&](int64_t i, int k) HWY_ATTR {
      const VF v = pre(0, i, k);  // NaN stays
      store_n(hn::IfThenElse(hn::Le(v, hn::Zero(DF())), hn::Zero(DF()), v), r.h + i, k);
    });
  each_vector(r.units, [&](int64_t i, int k) HWY_ATTR {
    for (int64_t gate = 4; gate < 8; ++gate) next_row(r.gates, r.acts, gate * n + i);
    const VF in = sigmoid_v(pre(0, i, k)), forget = sigmoid_v(pre(1, i, k)), cell = tanh_v(pre(2, i, k)),
             out = sigmoid_v(pre(3, i, k));
    const VF c = hn::Add(hn::Mul(forget, load_n(r.c_prev + i, k)), hn::Mul(in, cell));
    store_n(in, r.acts + i, k);
    store_n(forget, r.acts + n + i, k);
    store_n(cell, r.acts + 2 * n + i, k);
    store_n(out, r.acts + 3 * n + i, k);
    store_n(c, r.c + i, k);
    store_n(hn::Mul(out, tanh_v(c)), r.h + i, k);
  });
}

void cell_grad_row(const CellGradRow& r) {
  const int64_t n = r.hidden;
  const VF one = set(1.0f);
  each_vector(r.units, [&](int64_t i, int k) HWY_ATTR {
    const VF gh = hn::Add(load_n(r.gh + i, k), load_n(r.dh + i, k));
    if (r.kind != CellKind::Lstm) {
      const VF h = load_n(r.h + i, k);
      const VF v = r.kind == CellKind::Tanh ? hn::Mul(gh, hn::Sub(one, hn::Mul(h, h)))
                                            : hn::IfThenElseZero(hn::Gt(h, hn::Zero(DF())), gh);
      return store_n(v, r.pre + i, k);
    }
    for (int64_t gate = 4; gate < 8; ++gate) next_row(r.acts, r.pre, gate * n + i);
    auto act = [&](int64_t gate) HWY_ATTR { return load_n(r.acts + gate * n + i, k); };
    auto with_extra = [&](VF v, int64_t gate)
                          HWY_ATTR { return r.g_acts ? hn::Add(v, load_n(r.g_acts + gate * n + i, k)) : v; };
    auto sigmoid_slope = [&](VF y) HWY_ATTR { return hn::Mul(y, hn::Sub(one, y)); };
    const VF in = act(0), forget = act(1), cell = act(2), out = act(3), tc = tanh_v(load_n(r.c + i, k));
    VF gc = hn::Add(load_n(r.gc + i, k), load_n(r.dc + i, k));
    gc = hn::Add(gc, hn::Mul(hn::Mul(gh, out), hn::Sub(one, hn::Mul(tc, tc))));
    store_n(hn::Mul(with_extra(hn::Mul(gc, cell), 0), sigmoid_slope(in)), r.pre + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gc, load_n(r.c_prev + i, k)), 1), sigmoid_slope(forget)), r.pre + n + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gc, in), 2), hn::Sub(one, hn::Mul(cell, cell))), r.pre + 2 * n + i, k);
    store_n(hn::Mul(with_extra(hn::Mul(gh, tc), 3), sigmoid_slope(out)), r.pre + 3 * n + i, k);
    store_n(hn::Mul(gc, forget), r.dc + i, k);
  });
}

// ---- products of a step

using gemm::kNR;
int64_t gates_of(const RecurrenceGeom& g) { return g.gates / g.hidden; }
int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Rows in lines, for a product over k: one block of k after the other, each as gemm::pack_lines leaves it.
int64_t lines_floats(int64_t rows, int64_t k) {
  const int64_t block = gemm::k_block(k);
  return (k + block - 1) / block * gemm::whole_lines(block) * rows;
}
// Row i, which is the r-th of a tile of mr rows: floats [u, u + n) of its k.
void put_floats(const float* from, int64_t n, int64_t u, int64_t i, int64_t r, int64_t mr, int64_t rows, int64_t k,
                float* lines) {
  const int64_t block = gemm::k_block(k);
  for (int64_t b = u / block; n > 0; ++b) {
    const int64_t kc = std::min(block, k - b * block), end = std::min(u + n - b * block, kc);
    float* first = lines + b * gemm::whole_lines(block) * rows + (i - r) * gemm::whole_lines(kc) + r * gemm::kLine;
    int64_t p = u - b * block;
    n -= end - p, u += end - p;
    for (int64_t now; p < end; p += now, from += now) {
      const int64_t in_line = p % gemm::kLine;
      float* line = first + (p - in_line) * mr;
      now = std::min(gemm::kLine - in_line, end - p);
      if (now == gemm::kLine)
        gemm::copy_n(from, gemm::kLine, line);
      else
        gemm::copy_n(from, now, line + in_line);
    }
  }
}

// Weights in panels of kNR columns, all of them whole: one block of k after the other.
int64_t packed_floats(int64_t columns, int64_t k) { return up(columns, kNR) * k; }

// Columns of the forward product: kUnits units of each gate, then the next kUnits.
int64_t forward_columns(const RecurrenceGeom& g) { return up(g.hidden, kUnits) * gates_of(g); }
void pack_forward(const RecurrenceGeom& g, const float* w, int64_t begin, int64_t end, float* packed) {
  constexpr int64_t kWide = std::min<int64_t>(kUnits, kNR);
  const int64_t gates = gates_of(g), block = gemm::k_block(g.hidden), n = up(forward_columns(g), kNR);
  for (int64_t j = begin * kUnits; j < end * kUnits; j += kWide) {
    const int64_t unit = j / (kUnits * gates) * kUnits + j % kUnits, gate = j / kUnits % gates;
    const int64_t count = std::clamp<int64_t>(g.hidden - unit, 0, kWide);
    for (int64_t pc = 0; pc < g.hidden; pc += block) {
      const int64_t kc = std::min(block, g.hidden - pc);
      float* to = packed + pc * n + j / kNR * kNR * kc + j % kNR;
      if (count > 0) gemm::transpose(w + (gate * g.hidden + unit) * g.hidden + pc, g.hidden, count, kc, to, kNR);
      for (int64_t p = 0; p < kc; ++p) std::fill(to + p * kNR + count, to + p * kNR + kWide, 0.f);
    }
  }
}
void pack_backward(const RecurrenceGeom& g, const float* w, int64_t begin, int64_t end, float* packed) {
  const int64_t block = gemm::k_block(g.gates), n = up(g.hidden, kNR);
  for (int64_t j = begin * kNR; j < std::min(end * kNR, g.hidden); j += kNR)
    for (int64_t pc = 0; pc < g.gates; pc += block) {
      const int64_t kc = std::min(block, g.gates - pc);
      gemm::pack_straight(w + pc * g.hidden + j, g.hidden, std::min<int64_t>(kNR, g.hidden - j), kc,
                          packed + pc * n + j * kc, kNR);
    }
}

// One row times kPanels panels of the weights, which are `next` floats apart: so many sums are under way that loads
// never wait for them. Each is the chain of multiply-adds of a tile.
template <int kPanels>
void multiply_row(int64_t k, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t next,
                  float* HWY_RESTRICT c, bool add) {
  constexpr int kAll = kPanels * gemm::kNV;
  const DF d;
  VF sum[kAll];
#pragma GCC unroll 16
  for (VF& v : sum) v = hn::Zero(d);
  for (int64_t p = 0; p < k; ++p, b += kNR) {
    const VF x = hn::Set(d, a[p]);
#pragma GCC unroll 16
    for (int v = 0; v < kAll; ++v)
      sum[v] = hn::MulAdd(x, hn::LoadU(d, b + v / gemm::kNV * next + v % gemm::kNV * gemm::kLanes), sum[v]);
  }
#pragma GCC unroll 16
  for (int v = 0; v < kAll; ++v) {
    float* to = c + v * gemm::kLanes;
    hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[v]) : sum[v], d, to);
  }
}

// c[rows of the part][columns] = the rows in `lines` times columns [j, j + columns) of the packed weights, of which
// there are n. Each sum is that of sgemm (gemm.h).
void multiply_columns(const gemm::RowTiles& rows, const Part& part, int64_t k, const float* lines, const float* packed,
                      int64_t n, int64_t j, int64_t columns, float* c, bool from_end) {
  constexpr int64_t kTogether = 4;  // panels beside a single row
  const int64_t block = gemm::k_block(k), first = rows.begin(part.tile), panels = (j + columns - 1) / kNR - j / kNR + 1;
  for (int64_t pc = 0; pc < k; pc += block, lines += gemm::whole_lines(block) * rows.m) {
    const int64_t kc = std::min(block, k - pc);
    auto panel_of = [&](int64_t s) { return j / kNR + (from_end ? panels - 1 - s : s); };
    for (int64_t s = 0, now; s < panels; s += now) {
      now = 1;
      const int64_t last = panel_of(std::min(panels, s + kTogether) - 1), low = std::min(panel_of(s), last);
      if (rows.m == 1 && s + kTogether <= panels && low * kNR >= j && (low + kTogether) * kNR <= j + columns) {
        now = kTogether;
        multiply_row<kTogether>(kc, lines, packed + pc * n + low * kNR * kc, kNR * kc, c + low * kNR - j, pc > 0);
        continue;
      }
      const int64_t from = std::max(j, panel_of(s) * kNR), to = std::min(j + columns, (panel_of(s) + 1) * kNR);
      const float* panel = packed + pc * n + panel_of(s) * kNR * kc + from % kNR;
      for (int64_t t = part.tile; t < part.last_tile; ++t) {  // inside: a panel stays in L1
        const int64_t i = rows.begin(t), mr = rows.begin(t + 1) - i;
        gemm::multiply_tile<gemm::RowsAre::Lines>(mr, to - from, kc, lines + i * gemm::whole_lines(kc), 0, panel, kNR,
                                                  c + (i - first) * columns + from - j, columns, pc > 0);
      }
    }
  }
}

// f(row, its place in its tile, rows of that tile, its place in the part)
template <class F>
void each_row(const gemm::RowTiles& rows, const Part& part, F f) {
  for (int64_t t = part.tile, at = 0; t < part.last_tile; ++t) {
    const int64_t first = rows.begin(t), mr = rows.begin(t + 1) - first;
    for (int64_t r = 0; r < mr; ++r, ++at) f(first + r, r, mr, at);
  }
}

// The state before the first step, as lines.
void put_state(const Step& s, const float* state, float* lines) {
  const gemm::RowTiles rows(s.g.batch, s.tiles);
  each_row(rows, {0, s.tiles, 0, 0}, [&](int64_t b, int64_t r, int64_t mr, int64_t) {
    put_floats(state + b * s.g.hidden, s.g.hidden, 0, b, r, mr, s.g.batch, s.g.hidden, lines);
  });
}

void forward_part(const ForwardStep& s, const Part& part) {
  const RecurrenceGeom& g = s.g;
  const gemm::RowTiles rows(g.batch, s.tiles);
  const int64_t wide = kUnits * gates_of(g), n = up(forward_columns(g), kNR);
  const int64_t count = rows.begin(part.last_tile) - rows.begin(part.tile);
  for (int64_t group = part.group, now; group < part.last_group; group += now) {
    now = std::min(kGroups, part.last_group - group);
    const int64_t columns = now * wide, u = group * kUnits, units = std::min(now * kUnits, g.hidden - u);
    float* product = simd::scratch(simd::Scratch::Out, count * columns);
    multiply_columns(rows, part, g.hidden, s.in, s.packed, n, group * wide, columns, product, s.from_end);
    each_row(rows, part, [&](int64_t b, int64_t r, int64_t mr, int64_t i) {
      const int64_t at = b * g.hidden + u, gates = b * g.gates + u;
      CellRow row{g.kind, units, g.hidden, s.gates + gates, product + i * columns, nullptr, s.h + at, nullptr, nullptr};
      if (s.c) row.c_prev = s.c_prev + at, row.c = s.c + at, row.acts = s.acts + gates;
      cell_row(row);
      if (s.out) put_floats(s.h + at, units, u, b, r, mr, g.batch, g.hidden, s.out);
    });
  }
}

void backward_part(const BackwardStep& s, const Part& part) {
  const RecurrenceGeom& g = s.g;
  const gemm::RowTiles rows(g.batch, s.tiles);
  const int64_t n = up(g.hidden, kNR), last = std::min(g.hidden, part.last_group * kUnits);
  const int64_t count = rows.begin(part.last_tile) - rows.begin(part.tile);
  float* dh = simd::scratch(simd::Scratch::Out, count * kGroups * kUnits);
  for (int64_t u = part.group * kUnits, units; u < last; u += units) {
    units = std::min(kGroups * kUnits, last - u);
    if (s.in)
      multiply_columns(rows, part, g.gates, s.in, s.packed, n, u, units, dh, s.from_end);
    else
      std::fill_n(dh, count * units, 0.f);
    each_row(rows, part, [&](int64_t b, int64_t r, int64_t mr, int64_t i) {
      const int64_t at = b * g.hidden + u, wide = b * g.gates + u;
      if (s.dh) return gemm::copy_n(dh + i * units, units, s.dh + at);
      CellGradRow row{g.kind,  units,   g.hidden, s.h + at, s.gh + at, dh + i * units, nullptr,
                      nullptr, nullptr, nullptr,  nullptr,  nullptr,   s.pre + wide};
      if (s.acts) {
        row.acts = s.acts + wide, row.c = s.c + at, row.c_prev = s.c_prev + at, row.gc = s.gc + at, row.dc = s.dc + at;
        if (s.g_acts) row.g_acts = s.g_acts + wide;
      }
      cell_grad_row(row);
      for (int64_t gate = 0; gate < g.gates; gate += g.hidden)
        put_floats(s.pre + wide + gate, units, gate + u, b, r, mr, g.batch, g.gates, s.out);
    });
  }
}

int64_t least_tiles(int64_t rows) { return gemm::RowTiles(rows).count; }
int64_t panel_columns() { return kNR; }

}  // namespace mge::simd_nn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mge::simd_nn {
namespace {

HWY_EXPORT(lines_floats);
HWY_EXPORT(put_state);
HWY_EXPORT(least_tiles);
HWY_EXPORT(packed_floats);
HWY_EXPORT(forward_columns);
HWY_EXPORT(pack_forward);
HWY_EXPORT(pack_backward);
HWY_EXPORT(forward_part);
HWY_EXPORT(backward_part);
HWY_EXPORT(panel_columns);

int64_t groups(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// Two buffers of lines: step i reads one and writes the other.
struct LinePair {
  LinePair(int64_t rows, int64_t k)
      : floats(HWY_DYNAMIC_DISPATCH(lines_floats)(rows, k)), data(simd::scratch(simd::Scratch::Planes, 2 * floats)) {}
  float* in(int64_t i) const { return data + i % 2 * floats; }
  float* out(int64_t i) const { return in(i + 1); }
  int64_t floats;
  float* data;
};

// How a step is cut, into blocks of rows and of units (cost::recurrence_rows). Threads that share rows wait for each
// other after each step, since the next one reads what all have written; one that has rows of its own does all steps.
struct Cut {
  Cut(const RecurrenceGeom& g, int64_t weights) : g(g) {
    const int64_t n = groups(g.hidden, kUnits), threads = num_threads();
    const double work = costs().fma * static_cast<double>(g.batch * g.gates) * static_cast<double>(g.hidden);
    const int64_t worth = std::clamp<int64_t>(static_cast<int64_t>(work / std::max(costs().piece, 1e-3)), 1, threads);
    rows = cost::recurrence_rows(g.batch, weights, worth);
    units = std::clamp<int64_t>(groups(worth, rows), 1, std::max<int64_t>(1, n));
    tiles = groups(HWY_DYNAMIC_DISPATCH(least_tiles)(g.batch), rows) * rows;
  }
  // fn(step, part) for all parts of `steps` steps.
  template <class F>
  void run(int64_t steps, F fn) const {
    const int64_t n = groups(g.hidden, kUnits);
    auto some = [&](int64_t first, int64_t last) {
      parallel_for(rows * units, 1, [&](int64_t x, int64_t end) {
        for (; x < end; ++x) {
          const int64_t r = x % rows, u = x / rows;
          const Part part{tiles / rows * r, tiles / rows * (r + 1), n * u / units, n * (u + 1) / units};
          for (int64_t i = first; i < last; ++i) fn(i, part);
        }
      });
    };
    if (units == 1) return some(0, steps);
    for (int64_t i = 0; i < steps; ++i) some(i, i + 1);
  }
  const RecurrenceGeom& g;
  int64_t rows, units, tiles;
};

RecurrenceGeom forward_geom(const KernelArgs& a) {
  return recurrence_geom(a.as<RecurrenceAttrs>(), a.in[0].shape, a.in[1].shape);
}
int64_t weight_floats(const RecurrenceGeom& g) {
  return HWY_DYNAMIC_DISPATCH(packed_floats)(HWY_DYNAMIC_DISPATCH(forward_columns)(g), g.hidden);
}
void pack_weight(const RecurrenceGeom& g, const float* w, float* to) {
  const int64_t columns = HWY_DYNAMIC_DISPATCH(forward_columns)(g);
  parallel_for(columns / kUnits, value_grain(4 * kUnits * g.hidden), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(pack_forward)(g, w, b, e, to);
  });
}
size_t prepared_bytes(const KernelArgs& a) {
  return static_cast<size_t>(weight_floats(forward_geom(a))) * sizeof(float);
}
void prepare(const KernelArgs& a, void* to) {
  pack_weight(forward_geom(a), a.in[1].data<float>(), static_cast<float*>(to));
}

void run_recurrence(const KernelArgs& a) {
  const RecurrenceGeom g = forward_geom(a);
  if (g.batch * g.hidden == 0) return;
  const bool lstm = g.kind == CellKind::Lstm;
  const auto* packed = static_cast<const float*>(a.prepared);
  if (!packed) {
    float* to = simd::scratch(simd::Scratch::Weight, weight_floats(g));
    pack_weight(g, a.in[1].data<float>(), to);
    packed = to;
  }
  LinePair lines(g.batch, g.hidden);
  const Cut cut(g, g.gates * g.hidden * int64_t{sizeof(float)});
  HWY_DYNAMIC_DISPATCH(put_state)({g, cut.tiles, packed, nullptr, nullptr}, a.in[2].data<float>(), lines.in(0));
  const int64_t state = g.batch * g.hidden, size = g.batch * g.gates;
  float *hs = a.out[0].data<float>(), *cs = a.out[1].data<float>(), *acts = a.out[2].data<float>();
  cut.run(g.steps, [&](int64_t k, const Part& part) {
    const int64_t t = g.at(k), last = g.before(k);
    ForwardStep step{{g, cut.tiles, packed, lines.in(k), k + 1 < g.steps ? lines.out(k) : nullptr, k % 2 == 1},
                     a.in[0].data<float>() + t * size,
                     nullptr,
                     hs + t * state,
                     nullptr,
                     nullptr};
    if (lstm) {
      step.c_prev = k == 0 ? a.in[3].data<float>() : cs + last * state;
      step.c = cs + t * state, step.acts = acts + t * size;
    }
    HWY_DYNAMIC_DISPATCH(forward_part)(step, part);
  });
}

void run_recurrence_bwd(const KernelArgs& a) {
  const Shape& s = a.in[kHs].shape;
  const RecurrenceGeom g =
      recurrence_geom(a.as<RecurrenceAttrs>(), Shape{s[0], s[1], a.in[kW].shape[0]}, a.in[kW].shape);
  if (g.batch * g.hidden == 0) return;
  const bool lstm = g.kind == CellKind::Lstm;
  float* packed = simd::scratch(simd::Scratch::Weight, HWY_DYNAMIC_DISPATCH(packed_floats)(g.hidden, g.gates));
  const int64_t panel = HWY_DYNAMIC_DISPATCH(panel_columns)();
  parallel_for(groups(g.hidden, panel), value_grain(4 * panel * g.gates), [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(pack_backward)(g, a.in[kW].data<float>(), b, e, packed);
  });
  LinePair lines(g.batch, g.gates);
  const int64_t state = g.batch * g.hidden, size = g.batch * g.gates;
  float *pre = a.out[0].data<float>(), *dc = lstm ? a.out[2].data<float>() : nullptr;
  if (lstm) std::memset(dc, 0, static_cast<size_t>(state) * sizeof(float));
  const Cut cut(g, g.gates * g.hidden * int64_t{sizeof(float)});
  cut.run(g.steps + 1, [&](int64_t i, const Part& part) {
    BackwardStep step{{g, cut.tiles, packed, i > 0 ? lines.in(i) : nullptr, lines.out(i), i % 2 == 1}};
    if (i == g.steps) {  // what reaches the initial state
      step.dh = a.out[1].data<float>();
      return HWY_DYNAMIC_DISPATCH(backward_part)(step, part);
    }
    const int64_t k = g.steps - 1 - i, t = g.at(k);
    step.h = a.in[kHs].data<float>() + t * state, step.gh = a.in[kGradHs].data<float>() + t * state;
    step.pre = pre + t * size;
    if (lstm) {
      const float* cs = a.in[kCs].data<float>();
      step.acts = a.in[kActs].data<float>() + t * size, step.c = cs + t * state;
      step.c_prev = k == 0 ? a.in[kC0].data<float>() : cs + g.before(k) * state;
      step.gc = a.in[kGradCs].data<float>() + t * state, step.dc = dc;
      if (a.in.size() > kGradActs) step.g_acts = a.in[kGradActs].data<float>() + t * size;
    }
    HWY_DYNAMIC_DISPATCH(backward_part)(step, part);
  });
}

}  // namespace

void register_recurrence(KernelRegistry& r) {
  r.add("recurrence", KernelTier::Simd,
        Kernel{.name = "simd_recurrence",
               .refuse = refuse_not_f32,
               .run = run_recurrence,
               .prepare = {1, prepared_bytes, prepare}});
  add(r, "recurrence_bwd", "simd_recurrence_bwd", run_recurrence_bwd);
}

}  // namespace mge::simd_nn
#endif
