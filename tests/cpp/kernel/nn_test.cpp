// Every kernel of the neural-network ops against plain float64 loops written here, for each dtype, tier and instruction
// set, and with 1, 2 and 3 threads, which must give the same bits.
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "base/philox.h"
#include "core/half.h"
#include "each_target.h"
#include "nn_arrays.h"
#include "on_machine.h"
#include "op/conv/conv2d.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"
#include "op/matmul/matmul.h"
#include "op/norm/batch_norm.h"
#include "op/norm/layer_norm.h"
#include "op/optim/optim.h"
#include "op/pool/pool.h"
#include "op/rng/rng.h"

namespace mge::testing_nn {
namespace {

struct Case {
  std::string name;
  const char* op;
  Attrs attrs;
  std::vector<Array> in;
  std::vector<Array> want;
  double tol = 4e-6;  // float32, relative to 1 + |value|
};

std::mt19937 gen(7);

Array uniform(const Shape& s, double lo = -1, double hi = 1) {
  std::uniform_real_distribution<double> d(lo, hi);
  Array a{s, {}, true};
  for (int64_t i = 0; i < s.numel(); ++i) a.v.push_back(static_cast<double>(static_cast<float>(d(gen))));
  return a;
}
Array labels(const Shape& s, int64_t classes, int64_t lo = 0) {
  std::uniform_int_distribution<int64_t> d(lo, classes - 1);
  Array a{s, {}, false};
  for (int64_t i = 0; i < s.numel(); ++i) a.v.push_back(static_cast<double>(d(gen)));
  return a;
}
Array zeros(const Shape& s) { return {s, std::vector<double>(static_cast<size_t>(s.numel())), true}; }

// ---- matmul ----

Case matmul_case(const std::string& name, Shape sa, Shape sb, bool ta, bool tb, double tol = 4e-6) {
  Array a = uniform(sa), b = uniform(sb);
  MatmulGeom g = matmul_geom({ta, tb}, sa, sb);
  Shape ys = g.batch;
  ys.push_back(g.m), ys.push_back(g.n);
  Array y = zeros(ys);
  for (int64_t p = 0; p < g.batch.numel(); ++p) {
    auto matrix = [&](const Shape& s) {  // which matrix of s serves batch p
      int64_t at = 0, q = p, step = 1;
      for (int i = g.batch.rank - 1; i >= 0; --i) {
        int ax = i - (g.batch.rank - (s.rank - 2));
        int64_t ix = q % g.batch[i];
        q /= g.batch[i];
        if (ax >= 0) at += (s[ax] == 1 ? 0 : ix) * step, step *= s[ax];
      }
      return at;
    };
    const double *pa = a.v.data() + matrix(sa) * g.m * g.k, *pb = b.v.data() + matrix(sb) * g.k * g.n;
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j)
        for (int64_t k = 0; k < g.k; ++k)
          y.v[static_cast<size_t>((p * g.m + i) * g.n + j)] +=
              pa[ta ? k * g.m + i : i * g.k + k] * pb[tb ? j * g.k + k : k * g.n + j];
  }
  return {name, "matmul", make_attrs(MatmulAttrs{ta, tb}), {a, b}, {y}, tol};
}

// ---- convolution: one product visited at a time ----

struct ConvSetup {
  int64_t n, c, h, w, o, kh, kw, sh = 1, sw = 1, ph = 0, pw = 0, dh = 1, dw = 1, groups = 1;
  bool five = false;
};

template <class F>
void each_product(const ConvGeom& g, F f) {
  int64_t cg = g.c / g.groups, og = g.o / g.groups;
  for (int64_t n = 0; n < g.n; ++n)
    for (int64_t o = 0; o < g.o; ++o)
      for (int64_t c = 0; c < cg; ++c)
        for (int64_t r = 0; r < g.kh; ++r)
          for (int64_t s = 0; s < g.kw; ++s)
            for (int64_t oy = 0; oy < g.oh; ++oy)
              for (int64_t ox = 0; ox < g.ow; ++ox) {
                int64_t y = oy * g.sh - g.ph + r * g.dh, x = ox * g.sw - g.pw + s * g.dw;
                if (y < 0 || y >= g.h || x < 0 || x >= g.w) continue;
                f(static_cast<size_t>(((n * g.c + o / og * cg + c) * g.h + y) * g.w + x),
                  static_cast<size_t>(((o * cg + c) * g.kh + r) * g.kw + s),
                  static_cast<size_t>(((n * g.o + o) * g.oh + oy) * g.ow + ox));
              }
}

void add_conv_cases(std::vector<Case>& out, const std::string& name, const ConvSetup& s, double tol = 4e-6) {
  Ints stride{s.sh, s.sw}, pad{s.ph, s.pw}, dilate{s.dh, s.dw};
  Shape xs{s.n, s.c, s.h, s.w}, ws = s.five ? Shape{s.groups, s.o / s.groups, s.c / s.groups, s.kh, s.kw}
                                            : Shape{s.o, s.c / s.groups, s.kh, s.kw};
  Conv2dAttrs at{stride, pad, dilate, s.groups};
  ConvGeom g = conv_geom(at, xs, ws);
  Shape ys{g.n, g.o, g.oh, g.ow};
  Array x = uniform(xs), w = uniform(ws), gy = uniform(ys), bias = uniform({1, g.o, 1, 1}), y = zeros(ys),
        gx = zeros(xs), gw = zeros(ws);
  each_product(g, [&](size_t i, size_t j, size_t k) {
    y.v[k] += x.v[i] * w.v[j];
    gx.v[i] += gy.v[k] * w.v[j];
    gw.v[j] += gy.v[k] * x.v[i];
  });
  Array yb = y;
  for (size_t i = 0; i < yb.v.size(); ++i)
    yb.v[i] += bias.v[i / static_cast<size_t>(g.oh * g.ow) % static_cast<size_t>(g.o)];
  out.push_back({name + "_fwd", "conv2d", make_attrs(at), {x, w}, {y}, tol});
  out.push_back({name + "_bias", "conv2d", make_attrs(at), {x, w, bias}, {yb}, tol});
  out.push_back({name + "_dx", "conv2d_dx", make_attrs(Conv2dDxAttrs{at, to_ints(xs)}), {gy, w}, {gx}, tol});
  out.push_back({name + "_dw", "conv2d_dw", make_attrs(Conv2dDwAttrs{at, to_ints(ws)}), {x, gy}, {gw}, tol * 2});
}

// ---- pooling ----

void add_pool_cases(std::vector<Case>& out, const std::string& name, const Shape& xs, const PoolAttrs& at) {
  Array x = uniform(xs);
  for (size_t i = 0; i < x.v.size(); i += 3) x.v[i] = std::round(x.v[i]);  // ties
  PoolGeom g = pool_geom(at, xs);
  Shape ys{g.n, g.c, g.oh, g.ow};
  Array gy = uniform(ys), v = uniform(xs), y = zeros(ys), gx = zeros(xs), took = zeros(ys);
  Array avg[2] = {zeros(ys), zeros(ys)}, avg_gx[2] = {zeros(xs), zeros(xs)};
  for (int64_t o = 0; o < ys.numel(); ++o) {
    int64_t plane = o / (g.oh * g.ow), oy = o / g.ow % g.oh, ox = o % g.ow, best = -1, count = 0;
    double sum = 0;
    auto each = [&](auto f) {
      for (int64_t i = oy * g.sh - g.ph; i < oy * g.sh - g.ph + g.kh; ++i)
        for (int64_t j = ox * g.sw - g.pw; j < ox * g.sw - g.pw + g.kw; ++j)
          if (i >= 0 && i < g.h && j >= 0 && j < g.w) f(static_cast<size_t>((plane * g.h + i) * g.w + j));
    };
    each([&](size_t i) {
      if (best < 0 || x.v[i] > x.v[static_cast<size_t>(best)]) best = static_cast<int64_t>(i);
      sum += x.v[i];
      ++count;
    });
    size_t ob = static_cast<size_t>(o), bb = static_cast<size_t>(best);
    y.v[ob] = x.v[bb];
    gx.v[bb] += gy.v[ob];
    took.v[ob] = v.v[bb];
    for (int pad : {0, 1}) {
      double div = static_cast<double>(pad ? g.kh * g.kw : count);
      avg[pad].v[ob] = sum / div;
      each([&](size_t i) { avg_gx[pad].v[i] += gy.v[ob] / div; });
    }
  }
  out.push_back({name + "_max", "max_pool2d", make_attrs(at), {x}, {y}});
  out.push_back({name + "_max_bwd", "max_pool2d_bwd", make_attrs(at), {x, y, gy}, {gx}});
  out.push_back({name + "_max_take", "max_pool2d_take", make_attrs(at), {x, y, v}, {took}});
  for (int pad : {0, 1}) {
    std::string which = pad ? "_avg_include" : "_avg";
    out.push_back({name + which,
                   "avg_pool2d",
                   make_attrs(AvgPoolAttrs{at.kernel, at.stride, at.pad, pad == 1}),
                   {x},
                   {avg[pad]}});
    out.push_back({name + which + "_bwd",
                   "avg_pool2d_bwd",
                   make_attrs(AvgPoolBwdAttrs{at.kernel, at.stride, at.pad, pad == 1, to_ints(xs)}),
                   {gy},
                   {avg_gx[pad]}});
  }
}

// ---- normalisation ----

void add_batch_norm_cases(std::vector<Case>& out, const std::string& name, const Shape& xs, double offset = 0) {
  double eps = 1e-3;
  int64_t C = xs[1], inner = xs.numel() / xs[0] / C;
  Shape ss = batch_norm_stat_shape(xs);
  Array x = uniform(xs, offset - 2, offset + 2), gy = uniform(xs), w = uniform(ss), b = uniform(ss), mean = zeros(ss),
        var = zeros(ss), rstd = zeros(ss), y = zeros(xs), gx = zeros(xs), gw = zeros(ss), gb = zeros(ss);
  double n = static_cast<double>(xs.numel() / C);
  auto channel = [&](size_t i) { return i / static_cast<size_t>(inner) % static_cast<size_t>(C); };
  for (size_t i = 0; i < x.v.size(); ++i) mean.v[channel(i)] += x.v[i] / n;
  for (size_t i = 0; i < x.v.size(); ++i) var.v[channel(i)] += std::pow(x.v[i] - mean.v[channel(i)], 2) / n;
  for (size_t c = 0; c < rstd.v.size(); ++c) rstd.v[c] = 1 / std::sqrt(var.v[c] + eps);
  auto xhat = [&](size_t i) { return (x.v[i] - mean.v[channel(i)]) * rstd.v[channel(i)]; };
  for (size_t i = 0; i < x.v.size(); ++i) {
    size_t c = channel(i);
    y.v[i] = xhat(i) * w.v[c] + b.v[c];
    gb.v[c] += gy.v[i];
    gw.v[c] += gy.v[i] * xhat(i);
  }
  for (size_t i = 0; i < x.v.size(); ++i) {
    size_t c = channel(i);
    gx.v[i] = w.v[c] * rstd.v[c] * (gy.v[i] - gb.v[c] / n - xhat(i) * gw.v[c] / n);
  }
  double tol = 1e-5 * (1 + std::abs(offset));
  out.push_back(
      {name + "_train", "batch_norm_train", make_attrs(BatchNormAttrs{eps}), {x, w, b}, {y, mean, var, rstd}, tol});
  out.push_back({name + "_bwd", "batch_norm_bwd", nullptr, {x, gy, w, mean, rstd}, {gx, gw, gb}, tol * 3});
  out.push_back({name + "_infer", "batch_norm_infer", make_attrs(BatchNormAttrs{eps}), {x, w, b, mean, var}, {y}, tol});
}

void add_layer_norm_cases(std::vector<Case>& out, const std::string& name, const Shape& xs, int64_t n_axes,
                          bool affine) {
  double eps = 1e-3;
  LayerNormGeom g = layer_norm_geom(xs, n_axes);
  Shape ps(xs.d + (xs.rank - n_axes), static_cast<size_t>(n_axes)), ss = xs;
  for (int i = xs.rank - static_cast<int>(n_axes); i < xs.rank; ++i) ss[i] = 1;
  Array x = uniform(xs), gy = uniform(xs), w = uniform(ps), b = uniform(ps), y = zeros(xs), mean = zeros(ss),
        rstd = zeros(ss), gx = zeros(xs), gw = zeros(affine ? ps : Shape{0}), gb = gw;
  double n = static_cast<double>(g.size);
  for (int64_t r = 0; r < g.rows; ++r) {
    size_t first = static_cast<size_t>(r * g.size), size = static_cast<size_t>(g.size), row = static_cast<size_t>(r);
    double m = 0, var = 0, sum = 0, dot = 0;
    for (size_t i = 0; i < size; ++i) m += x.v[first + i] / n;
    for (size_t i = 0; i < size; ++i) var += std::pow(x.v[first + i] - m, 2) / n;
    double rs = 1 / std::sqrt(var + eps);
    mean.v[row] = m, rstd.v[row] = rs;
    for (size_t i = 0; i < size; ++i) {
      double h = (x.v[first + i] - m) * rs, wi = affine ? w.v[i] : 1, gi = gy.v[first + i];
      y.v[first + i] = affine ? h * wi + b.v[i] : h;
      sum += gi * wi, dot += gi * wi * h;
      if (affine) gw.v[i] += gi * h, gb.v[i] += gi;
    }
    for (size_t i = 0; i < size; ++i) {
      double h = (x.v[first + i] - m) * rs;
      gx.v[first + i] = rs * (gy.v[first + i] * (affine ? w.v[i] : 1) - sum / n - h * dot / n);
    }
  }
  std::vector<Array> fin{x}, bin{x, gy, mean, rstd};
  if (affine) fin.push_back(w), fin.push_back(b), bin.push_back(w);
  out.push_back({name, "layer_norm", make_attrs(LayerNormAttrs{n_axes, eps}), fin, {y, mean, rstd}, 1e-5});
  out.push_back({name + "_bwd", "layer_norm_bwd", make_attrs(LayerNormBwdAttrs{n_axes}), bin, {gx, gw, gb}, 2e-5});
}

// ---- softmax and loss ----

void add_softmax_cases(std::vector<Case>& out, const std::string& name, const Shape& xs, int64_t axis) {
  AxisGeom g = axis_geom(xs, normalize_axis("test", axis, xs.rank));
  Shape ls = xs;
  ls.erase(normalize_axis("test", axis, xs.rank));
  Array x = uniform(xs, -20, 20), gy = uniform(xs), p = zeros(xs), logp = zeros(xs), gx = zeros(xs), log_gx = zeros(xs),
        loss = zeros(ls), gl = uniform(ls), label = labels(ls, g.size), xent_gx = zeros(xs);
  for (int64_t r = 0; r < g.outer * g.inner; ++r) {
    auto at = [&](int64_t k) { return static_cast<size_t>((r / g.inner * g.size + k) * g.inner + r % g.inner); };
    size_t row = static_cast<size_t>(r);
    double top = -1e300, sum = 0, dot = 0, total = 0;
    for (int64_t k = 0; k < g.size; ++k) top = std::max(top, x.v[at(k)]);
    for (int64_t k = 0; k < g.size; ++k) sum += std::exp(x.v[at(k)] - top);
    for (int64_t k = 0; k < g.size; ++k) {
      logp.v[at(k)] = x.v[at(k)] - top - std::log(sum);
      p.v[at(k)] = std::exp(logp.v[at(k)]);
      dot += p.v[at(k)] * gy.v[at(k)], total += gy.v[at(k)];
    }
    loss.v[row] = -logp.v[at(static_cast<int64_t>(label.v[row]))];
    for (int64_t k = 0; k < g.size; ++k) {
      gx.v[at(k)] = p.v[at(k)] * (gy.v[at(k)] - dot);
      log_gx.v[at(k)] = gy.v[at(k)] - p.v[at(k)] * total;
      xent_gx.v[at(k)] = (p.v[at(k)] - (k == static_cast<int64_t>(label.v[row]) ? 1 : 0)) * gl.v[row];
    }
  }
  Attrs sm = make_attrs(SoftmaxAttrs{axis}), xe = make_attrs(XentAttrs{axis});
  out.push_back({name + "_softmax", "softmax", sm, {x}, {p}});
  out.push_back({name + "_softmax_bwd", "softmax_bwd", sm, {p, gy}, {gx}, 1e-5});
  out.push_back({name + "_logsoftmax", "logsoftmax", sm, {x}, {logp}});
  out.push_back({name + "_logsoftmax_bwd", "logsoftmax_bwd", sm, {logp, gy}, {log_gx}, 4e-5});
  out.push_back({name + "_xent", "softmax_xent", xe, {x, label}, {loss, p}});
  out.push_back({name + "_xent_bwd", "softmax_xent_bwd", xe, {p, label, gl}, {xent_gx}});
}

void add_indexing_cases(std::vector<Case>& out) {
  Shape xs{3, 5, 4};
  for (int axis : {0, 1, 2}) {
    Shape is = xs;
    is.erase(axis);
    AxisGeom g = axis_geom(xs, axis);
    Array x = uniform(xs), index = labels(is, xs[axis]), v = uniform(is), picked = zeros(is), set = x;
    for (int64_t r = 0; r < is.numel(); ++r) {
      size_t at = static_cast<size_t>(
          (r / g.inner * g.size + static_cast<int64_t>(index.v[static_cast<size_t>(r)])) * g.inner + r % g.inner);
      picked.v[static_cast<size_t>(r)] = x.v[at];
      set.v[at] = v.v[static_cast<size_t>(r)];
    }
    std::string name = "axis" + std::to_string(axis);
    out.push_back({name + "_pick", "indexing_one_hot", make_attrs(OneHotAttrs{axis}), {x, index}, {picked}});
    out.push_back({name + "_set", "set_one_hot", make_attrs(OneHotAttrs{axis}), {x, index, v}, {set}});

    Array ix = labels({2, 3}, xs[axis], -xs[axis]);
    Shape ys(xs.d, static_cast<size_t>(axis));
    ys.push_back(2), ys.push_back(3);
    for (int i = axis + 1; i < 3; ++i) ys.push_back(xs[i]);
    Array taken = zeros(ys), gy = uniform(ys), gx = zeros(xs);
    for (int64_t o = 0; o < g.outer; ++o)
      for (int64_t k = 0; k < 6; ++k)
        for (int64_t i = 0; i < g.inner; ++i) {
          int64_t from = static_cast<int64_t>(ix.v[static_cast<size_t>(k)]);
          if (from < 0) from += xs[axis];
          size_t src = static_cast<size_t>((o * g.size + from) * g.inner + i),
                 dst = static_cast<size_t>((o * 6 + k) * g.inner + i);
          taken.v[dst] = x.v[src];
          gx.v[src] += gy.v[dst];
        }
    out.push_back({name + "_take", "take", make_attrs(TakeAttrs{axis}), {x, ix}, {taken}});
    out.push_back({name + "_take_bwd", "take_bwd", make_attrs(TakeBwdAttrs{axis, to_ints(xs)}), {gy, ix}, {gx}});
  }
}

void add_optim_cases(std::vector<Case>& out) {
  Shape s{37, 3};
  Array w = uniform(s), g = uniform(s), m = uniform(s), v = uniform(s, 0, 1), lr{{}, {0.125}, true}, t{{}, {3}, true};
  for (double wd : {0.0, 0.01}) {
    std::string tail = wd ? "_decay" : "";
    Array w1 = w;
    for (size_t i = 0; i < w.v.size(); ++i) w1.v[i] = w.v[i] - 0.125 * (g.v[i] + wd * w.v[i]);
    out.push_back({"sgd" + tail, "sgd_update", make_attrs(SgdAttrs{wd}), {w, g, lr}, {w1}});
    for (bool nesterov : {false, true}) {
      Array w2 = w, m2 = m;
      for (size_t i = 0; i < w.v.size(); ++i) {
        double d = g.v[i] + wd * w.v[i], mi = 0.9 * m.v[i] + d;
        m2.v[i] = mi;
        w2.v[i] = w.v[i] - 0.125 * (nesterov ? d + 0.9 * mi : mi);
      }
      out.push_back({"momentum" + tail + (nesterov ? "_nesterov" : ""),
                     "sgd_momentum_update",
                     make_attrs(SgdMomentumAttrs{0.9, wd, nesterov}),
                     {w, g, lr, m},
                     {w2, m2}});
    }
    for (bool decoupled : {false, true}) {
      Array w2 = w, m2 = m, v2 = v;
      for (size_t i = 0; i < w.v.size(); ++i) {
        double d = g.v[i] + (decoupled ? 0 : wd * w.v[i]);
        m2.v[i] = 0.9 * m.v[i] + 0.1 * d;
        v2.v[i] = 0.99 * v.v[i] + 0.01 * d * d;
        double delta = m2.v[i] / (1 - std::pow(0.9, 3)) / (std::sqrt(v2.v[i] / (1 - std::pow(0.99, 3))) + 1e-8);
        w2.v[i] = w.v[i] - 0.125 * (delta + (decoupled ? wd * w.v[i] : 0));
      }
      out.push_back({std::string(decoupled ? "adamw" : "adam") + tail,
                     "adam_update",
                     make_attrs(AdamAttrs{0.9, 0.99, 1e-8, wd, decoupled}),
                     {w, g, m, v, lr, t},
                     {w2, m2, v2},
                     1e-5});
    }
  }
}

std::vector<Case> make_cases() {
  std::vector<Case> c;
  c.push_back(matmul_case("plain", {7, 5}, {5, 9}, false, false));
  c.push_back(matmul_case("ta", {5, 7}, {5, 33}, true, false));
  c.push_back(matmul_case("tb", {64, 400}, {120, 400}, false, true, 2e-5));
  c.push_back(matmul_case("tatb", {5, 7}, {9, 5}, true, true));
  c.push_back(matmul_case("batch", {3, 7, 5}, {3, 5, 9}, false, false));
  c.push_back(matmul_case("batch_one_b", {3, 7, 5}, {5, 9}, false, false));
  c.push_back(matmul_case("batch_one_b_ta", {3, 5, 7}, {5, 9}, true, false));
  c.push_back(matmul_case("batch_one_a", {7, 5}, {4, 5, 9}, false, false));
  c.push_back(matmul_case("batch_broadcast", {2, 1, 3, 4}, {5, 6, 4}, false, true));
  c.push_back(matmul_case("no_inner", {3, 0}, {0, 4}, false, false));
  c.push_back(matmul_case("no_rows", {0, 3}, {3, 4}, false, false));
  c.push_back(matmul_case("large", {256, 300}, {300, 260}, false, false, 2e-5));
  c.push_back(matmul_case("large_tb", {4, 64, 300}, {260, 300}, false, true, 2e-5));
  c.push_back(matmul_case("large_ta", {300, 256}, {300, 260}, true, false, 2e-5));
  c.push_back(matmul_case("large_batch", {12, 64, 64}, {12, 64, 512}, false, false, 1e-5));
  c.push_back(matmul_case("few_rows", {3, 2000}, {600, 2000}, false, true, 4e-5));

  add_conv_cases(c, "lenet1", {.n = 2, .c = 1, .h = 28, .w = 28, .o = 6, .kh = 5, .kw = 5, .ph = 2, .pw = 2});
  add_conv_cases(c, "lenet2", {.n = 2, .c = 6, .h = 14, .w = 14, .o = 16, .kh = 5, .kw = 5}, 1e-5);
  add_conv_cases(c, "odd",
                 {.n = 2, .c = 3, .h = 9, .w = 11, .o = 5, .kh = 3, .kw = 2, .sh = 2, .sw = 3, .ph = 1, .pw = 0});
  add_conv_cases(c, "dilated",
                 {.n = 1, .c = 4, .h = 12, .w = 13, .o = 7, .kh = 3, .kw = 3, .ph = 2, .pw = 1, .dh = 2, .dw = 3});
  add_conv_cases(
      c, "groups",
      {.n = 2, .c = 6, .h = 7, .w = 7, .o = 4, .kh = 3, .kw = 3, .ph = 1, .pw = 1, .groups = 2, .five = true});
  add_conv_cases(c, "groups4d", {.n = 2, .c = 6, .h = 7, .w = 7, .o = 4, .kh = 3, .kw = 3, .groups = 2});
  add_conv_cases(c, "depthwise",
                 {.n = 2,
                  .c = 8,
                  .h = 9,
                  .w = 9,
                  .o = 8,
                  .kh = 3,
                  .kw = 3,
                  .sh = 2,
                  .sw = 2,
                  .ph = 1,
                  .pw = 1,
                  .groups = 8,
                  .five = true});
  add_conv_cases(c, "empty_batch", {.n = 0, .c = 3, .h = 5, .w = 5, .o = 4, .kh = 3, .kw = 3});
  add_conv_cases(c, "wide", {.n = 2, .c = 130, .h = 9, .w = 11, .o = 136, .kh = 3, .kw = 3, .ph = 1, .pw = 1}, 4e-5);
  add_conv_cases(c, "wide_stride",
                 {.n = 3, .c = 72, .h = 29, .w = 31, .o = 130, .kh = 3, .kw = 2, .sh = 2, .sw = 2, .ph = 1, .pw = 0},
                 4e-5);
  add_conv_cases(c, "wide_1x1", {.n = 1, .c = 64, .h = 30, .w = 31, .o = 90, .kh = 1, .kw = 1}, 4e-5);
  add_conv_cases(c, "wide_1x1_batch", {.n = 2, .c = 64, .h = 30, .w = 31, .o = 90, .kh = 1, .kw = 1}, 4e-5);

  add_pool_cases(c, "pool2x2", {2, 3, 8, 10}, {{2, 2}, {}, {0, 0}});
  add_pool_cases(c, "pool3s2p1", {1, 2, 9, 7}, {{3, 3}, {2, 2}, {1, 1}});
  add_pool_cases(c, "pool_odd", {2, 2, 11, 23}, {{3, 2}, {1, 3}, {2, 0}});

  add_batch_norm_cases(c, "bn4d", {4, 5, 6, 7});
  add_batch_norm_cases(c, "bn4d_blocks", {9, 3, 50, 41});
  add_batch_norm_cases(c, "bn4d_offset", {4, 3, 20, 20}, 1000);
  add_batch_norm_cases(c, "bn2d", {33, 70});
  add_batch_norm_cases(c, "bn2d_blocks", {700, 33});
  add_batch_norm_cases(c, "bn3d", {5, 4, 9});
  add_batch_norm_cases(c, "bn_small_planes", {5, 4, 2, 2});

  add_layer_norm_cases(c, "ln", {6, 37}, 1, true);
  add_layer_norm_cases(c, "ln_two", {70, 3, 8, 5}, 2, true);
  add_layer_norm_cases(c, "ln_plain", {6, 37}, 1, false);
  add_layer_norm_cases(c, "ln_all", {4, 5}, 2, true);

  add_softmax_cases(c, "last", {64, 10}, 1);
  add_softmax_cases(c, "last_long", {3, 1000}, -1);
  add_softmax_cases(c, "middle", {3, 7, 21}, 1);
  add_softmax_cases(c, "first", {5, 40}, 0);
  add_softmax_cases(c, "vector", {17}, 0);
  add_indexing_cases(c);
  add_optim_cases(c);
  return c;
}
const std::vector<Case>& cases() {
  static const auto* c = new std::vector<Case>(make_cases());
  return *c;
}

void expect_near(const Case& c, const std::vector<Array>& got, double tol, const std::string& who) {
  ASSERT_EQ(got.size(), c.want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].shape, c.want[o].shape) << who;
    for (size_t i = 0; i < got[o].v.size(); ++i)
      ASSERT_NEAR(got[o].v[i], c.want[o].v[i], tol * (1 + std::abs(c.want[o].v[i])))
          << who << " output " << o << " at " << i;
  }
}

class Nn : public testing::TestWithParam<size_t> {};

TEST_P(Nn, RefMatchesPlainLoopsInEveryDtype) {
  const Case& c = cases()[GetParam()];
  expect_near(c, run_one(c.op, c.attrs, c.in, DType::F32, KernelTier::Ref), c.tol, "float32");
  bool large =
      c.name.starts_with("wide") || c.name.starts_with("large");  // slow loops; float32 has shown the shape works
  if (large) return;
  expect_near(c, run_one(c.op, c.attrs, c.in, DType::F64, KernelTier::Ref), 1e-11, "float64");
  if (c.tol > 1e-4) return;  // offsets that 16 bits cannot hold
  double grow = 1;
  for (auto& a : c.in) grow = std::max(grow, std::sqrt(static_cast<double>(a.shape.numel())));
  for (KernelTier tier : {KernelTier::Ref, KernelTier::Simd, KernelTier::Library}) {
    expect_near(c, run_one(c.op, c.attrs, c.in, DType::F16, tier), 2e-3 * grow, "float16");
    expect_near(c, run_one(c.op, c.attrs, c.in, DType::BF16, tier), 2e-2 * grow, "bfloat16");
  }
}

TEST_P(Nn, EveryKernelMatchesPlainLoopsWithAnyThreads) {
  const Case& c = cases()[GetParam()];
  simd::each_target([&] {
    for (KernelTier tier : {KernelTier::Simd, KernelTier::Library})
      for (const Kernel* k : kernels_that_accept(c.op, c.attrs, c.in, DType::F32, tier)) {
        std::vector<Array> first;
        for (int threads : {1, 2, 3}) {
          set_num_threads(threads);
          auto got = run_kernel(*k, c.op, c.attrs, c.in, DType::F32);
          if (threads == 1) {
            expect_near(c, got, c.tol, k->name);
            first = got;
          } else {
            for (size_t o = 0; o < got.size(); ++o)
              ASSERT_EQ(got[o].v, first[o].v) << k->name << " with " << threads << " threads";
          }
        }
        set_num_threads(1);
      }
  });
}

// Writing over an input, where a kernel says it may, changes nothing.
TEST_P(Nn, InPlaceGivesTheSameBits) {
  const Case& c = cases()[GetParam()];
  for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref})
    for (const Kernel* k : kernels_that_accept(c.op, c.attrs, c.in, DType::F32, tier)) {
      auto want = run_kernel(*k, c.op, c.attrs, c.in, DType::F32);
      for (size_t i = 0; i < c.in.size(); ++i) {
        Bound b(c.op, c.attrs, c.in, DType::F32);
        bool any = false;
        for (size_t o = 0; o < b.out.size() && !any; ++o)
          if (k->in_place(o, i) && b.out[o].dtype == b.in[i].dtype && b.out[o].shape == b.in[i].shape)
            b.out[o].ptr = b.in[i].ptr, any = true;
        if (!any) continue;
        auto got = b.run(*k);
        for (size_t o = 0; o < got.size(); ++o)
          ASSERT_EQ(got[o].v, want[o].v) << k->name << " output " << o << " with input " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Nn, testing::Range<size_t>(0, cases().size()), [](const auto& i) {
  return cases()[i.param].name + (cases()[i.param].op == std::string("matmul") ? "_matmul" : "");
});

// ---- choice ----

const char* chosen(const char* op, Attrs attrs, const std::vector<Shape>& shapes) {
  std::vector<Array> in;
  for (auto& s : shapes) in.push_back(zeros(s));
  Bound b(op, std::move(attrs), in, DType::F32);
  return KernelRegistry::global().find(b.args(), KernelTier::Library).kernel->name;
}

TEST(NnChoice, SmallShapesGoToSimdAndLargeOnesToTheLibrary) {
  const testing_kernels::OnMachine fitted({});
  Attrs pad1 = make_attrs(Conv2dAttrs{.pad = {1, 1}}), none = make_attrs(Conv2dAttrs{});
  EXPECT_STREQ(chosen("conv2d", none, {{64, 1, 32, 32}, {6, 1, 5, 5}}), "simd_conv2d");
  EXPECT_STREQ(chosen("conv2d", none, {{64, 6, 14, 14}, {16, 6, 5, 5}}), "simd_conv2d");
  EXPECT_STREQ(chosen("conv2d", make_attrs(Conv2dAttrs{.groups = 32}), {{1, 32, 9, 9}, {32, 1, 1, 3, 3}}),
               "simd_conv2d_depthwise");
  EXPECT_STREQ(chosen("conv2d_dw", make_attrs(Conv2dDwAttrs{{.pad = {1, 1}}, {512, 512, 3, 3}}),
                      {{16, 512, 2, 2}, {16, 512, 2, 2}}),
               "simd_conv2d_dw_product");
  EXPECT_STREQ(
      chosen("conv2d_dx", make_attrs(Conv2dDxAttrs{{}, {16, 512, 7, 7}}), {{16, 2048, 7, 7}, {2048, 512, 1, 1}}),
      "simd_conv2d_dx_product");
  EXPECT_STREQ(chosen("matmul", make_attrs(MatmulAttrs{false, true}), {{64, 400}, {120, 400}}), "simd_gemm");
#ifdef MGE_WITH_ONEDNN
  if (!(hwy::SupportedTargets() & HWY_AVX3)) GTEST_SKIP() << "needs AVX-512";
  EXPECT_STREQ(chosen("conv2d", pad1, {{8, 256, 14, 14}, {256, 256, 3, 3}}), "simd_conv2d_winograd4");
  EXPECT_STREQ(chosen("conv2d", pad1, {{1, 512, 7, 7}, {512, 512, 3, 3}}), "simd_conv2d_winograd");
  EXPECT_STREQ(chosen("conv2d", pad1, {{1, 512, 4, 4}, {512, 512, 3, 3}}), "simd_conv2d_lines");
  EXPECT_STREQ(chosen("conv2d", none, {{1, 64, 56, 56}, {256, 64, 1, 1}}), "simd_conv2d_lines");
  EXPECT_STREQ(
      chosen("conv2d", make_attrs(Conv2dAttrs{.stride = {2, 2}, .pad = {3, 3}}), {{1, 3, 224, 224}, {64, 3, 7, 7}}),
      "simd_conv2d_first");
  EXPECT_STREQ(chosen("conv2d_fused", make_attrs(Conv2dFusedAttrs{{.pad = {1, 1}}, false, false, false, "relu"}),
                      {{1, 64, 56, 56}, {64, 64, 3, 3}}),
               "simd_conv2d_winograd4");
  EXPECT_STREQ(chosen("conv2d_fused", make_attrs(Conv2dFusedAttrs{{}, true, false, false, "relu"}),
                      {{1, 64, 56, 56}, {256, 64, 1, 1}, {1, 256, 1, 1}}),
               "simd_conv2d_lines");
  EXPECT_STREQ(chosen("matmul", make_attrs(MatmulAttrs{}), {{512, 512}, {512, 512}}), "simd_gemm");
  EXPECT_STREQ(chosen("matmul", make_attrs(MatmulAttrs{false, true}), {{128, 512}, {512, 512}}), "simd_gemm");
  EXPECT_STREQ(chosen("matmul", make_attrs(MatmulAttrs{false, true}), {{8, 1024}, {1024, 1024}}), "onednn_matmul");
  EXPECT_STREQ(chosen("matmul_fused", make_attrs(MatmulFusedAttrs{{false, true}, false, "add(y,0)"}),
                      {{8, 1024}, {1024, 1024}, {1024}}),
               "onednn_matmul_fused");
  EXPECT_STREQ(chosen("matmul", make_attrs(MatmulAttrs{true, false}), {{4096, 64}, {4096, 256}}), "simd_gemm");
#endif
}

// ---- same bits ----

float relu(float v) { return v > 0 || v != v ? v : 0; }

class FusedConv : public testing::TestWithParam<std::tuple<KernelTier, int>> {};

TEST_P(FusedConv, SameBitsAsTheStepsOneByOne) {
  auto [tier, shape] = GetParam();
  ConvSetup s = shape == 0 ? ConvSetup{.n = 2, .c = 6, .h = 14, .w = 14, .o = 16, .kh = 5, .kw = 5}
                : shape == 1
                    ? ConvSetup{.n = 2, .c = 130, .h = 9, .w = 11, .o = 136, .kh = 3, .kw = 3, .ph = 1, .pw = 1}
                    : ConvSetup{.n = 1, .c = 64, .h = 30, .w = 31, .o = 90, .kh = 1, .kw = 1};
  Ints pad{s.ph, s.pw};
  Array x = uniform({s.n, s.c, s.h, s.w}), w = uniform({s.o, s.c, s.kh, s.kw});
  auto y = run_one("conv2d", make_attrs(Conv2dAttrs{.pad = pad}), {x, w}, DType::F32, tier)[0];
  Array bias = uniform({1, s.o, 1, 1}), scale = uniform({1, s.o, 1, 1}), shift = uniform({1, s.o, 1, 1}),
        add = uniform(y.shape);
  size_t pixels = static_cast<size_t>(y.shape[2] * y.shape[3]);
  for (int mask = 0; mask < 16; ++mask) {
    Conv2dFusedAttrs at{{.pad = pad}, bool(mask & 1), bool(mask & 2), bool(mask & 4), mask & 8 ? "relu" : "none"};
    std::vector<Array> in{x, w};
    if (at.has_bias) in.push_back(bias);
    if (at.has_scale) in.push_back(scale), in.push_back(shift);
    if (at.has_add) in.push_back(add);
    auto got = run_one("conv2d_fused", make_attrs(at), in, DType::F32, tier)[0];
    for (size_t i = 0; i < got.v.size(); ++i) {
      size_t c = i / pixels % static_cast<size_t>(s.o);
      auto f = [](double v) { return static_cast<float>(v); };
      float v = f(y.v[i]);
      if (at.has_bias) v = v + f(bias.v[c]);
      if (at.has_scale) {
        v = v * f(scale.v[c]);
        v = v + f(shift.v[c]);
      }
      if (at.has_add) v = v + f(add.v[i]);
      if (mask & 8) v = relu(v);
      ASSERT_EQ(f(got.v[i]), v) << "steps " << mask << " at " << i;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Fast, FusedConv,
                         testing::Combine(testing::Values(KernelTier::Library, KernelTier::Simd),
                                          testing::Values(0, 1, 2)));
INSTANTIATE_TEST_SUITE_P(Ref, FusedConv, testing::Values(std::tuple(KernelTier::Ref, 0)));

TEST(NnBits, BatchNormInferIsItsStepsOneByOne) {
  Array x = uniform({3, 9, 5, 7}), w = uniform({9}), b = uniform({9}), mean = uniform({9}), var = uniform({9}, 0, 2);
  for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref}) {
    auto y = run_one("batch_norm_infer", make_attrs(BatchNormAttrs{1e-5}), {x, w, b, mean, var}, DType::F32, tier)[0];
    for (size_t i = 0; i < x.v.size(); ++i) {
      size_t c = i / 35 % 9;
      auto f = [](double v) { return static_cast<float>(v); };
      float scale = f(w.v[c]) / std::sqrt(f(var.v[c]) + f(1e-5));
      float product = f(mean.v[c]) * scale, shift = f(b.v[c]) - product, scaled = f(x.v[i]) * scale;
      ASSERT_EQ(f(y.v[i]), scaled + shift) << i;
    }
  }
}

TEST(NnBits, OptimizersAndMaxPoolingAgreeWithRef) {
  simd::each_target([] {
    for (const Case& c : cases()) {
      std::string op = c.op;
      if (op.find("_update") == std::string::npos && op.find("max_pool2d") == std::string::npos) continue;
      auto a = run_one(c.op, c.attrs, c.in, DType::F32, KernelTier::Simd),
           b = run_one(c.op, c.attrs, c.in, DType::F32, KernelTier::Ref);
      for (size_t o = 0; o < a.size(); ++o) ASSERT_EQ(a[o].v, b[o].v) << c.name;
    }
  });
}

TEST(NnBits, MaxPoolKeepsNaN) {
  Array x = uniform({1, 1, 4, 34});
  x.v[5] = NAN;
  for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref}) {
    auto y = run_one("max_pool2d", make_attrs(PoolAttrs{{2, 2}, {}, {0, 0}}), {x}, DType::F32, tier)[0];
    EXPECT_TRUE(std::isnan(y.v[2]));
    EXPECT_FALSE(std::isnan(y.v[1]));
  }
}

// ---- random numbers ----

Array rng_state(int32_t seed, int64_t counter) {
  return {{4},
          {double(seed), 0, double(static_cast<int32_t>(counter)), double(static_cast<int32_t>(counter >> 32))},
          false};
}

TEST(NnRng, UniformIsThePhiloxStreamInEveryTier) {
  for (int64_t n : {1, 5, 1024, 5000})
    simd::each_target([&] {
      int64_t counter = 0xfffffffell;  // crosses 32 bits
      Attrs at = make_attrs(RngUniformAttrs{{n}, -2, 3});
      for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref}) {
        auto out = run_one("rng_uniform", at, {rng_state(42, counter)}, DType::F32, tier);
        for (int64_t i = 0; i < n; ++i) {
          float u =
              philox_uniform(Philox{42}(static_cast<uint64_t>(counter + i / 4))[static_cast<size_t>(i % 4)]) * 5.0f;
          ASSERT_EQ(static_cast<float>(out[0].v[static_cast<size_t>(i)]), u + -2.0f) << i;
        }
        int64_t next = counter + (n + 3) / 4;
        EXPECT_EQ(out[1].v, rng_state(42, next).v);
      }
    });
}

TEST(NnRng, NormalHasItsMomentsAndMatchesRef) {
  Attrs at = make_attrs(RngNormalAttrs{{100001}, 2, 0.5});
  auto ref = run_one("rng_normal", at, {rng_state(7, 0)}, DType::F32, KernelTier::Ref)[0];
  double sum = 0, sq = 0, cube = 0;
  for (double v : ref.v) sum += v - 2, sq += (v - 2) * (v - 2), cube += std::pow((v - 2) / 0.5, 3);
  double n = static_cast<double>(ref.v.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(sq / n, 0.25, 0.01);
  EXPECT_NEAR(cube / n, 0, 0.05);
  simd::each_target([&] {
    auto got = run_one("rng_normal", at, {rng_state(7, 0)}, DType::F32, KernelTier::Simd)[0];
    for (size_t i = 0; i < got.v.size(); ++i) ASSERT_NEAR(got.v[i], ref.v[i], 4e-6 * (1 + std::abs(ref.v[i]))) << i;
  });
}

TEST(NnRng, DropoutKeepsTheShareItSays) {
  Array x = uniform({33, 313});
  Attrs at = make_attrs(DropoutAttrs{0.3});
  auto ref = run_one("dropout", at, {x, rng_state(1, 9)}, DType::F32, KernelTier::Ref);
  double kept = 0;
  for (size_t i = 0; i < x.v.size(); ++i) {
    double m = ref[1].v[i];
    ASSERT_TRUE(m == 0 || m == static_cast<double>(static_cast<float>(1 / 0.7)));
    ASSERT_EQ(static_cast<float>(ref[0].v[i]), static_cast<float>(x.v[i]) * static_cast<float>(m));
    kept += m != 0;
  }
  EXPECT_NEAR(kept / static_cast<double>(x.v.size()), 0.7, 0.02);
  simd::each_target([&] {
    auto got = run_one("dropout", at, {x, rng_state(1, 9)}, DType::F32, KernelTier::Simd);
    for (size_t o = 0; o < 3; ++o) ASSERT_EQ(got[o].v, ref[o].v);
  });
}

// ---- errors that only the data can show ----

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Index);
    return e.text();
  }
  return "no error";
}

TEST(NnErrors, LabelsAndIndicesOutOfRange) {
  Array x = uniform({2, 10}), bad{{2}, {3, 10}, false}, gl = uniform({2}), v = uniform({2}), low{{2}, {-11, 0}, false};
  for (KernelTier tier : {KernelTier::Simd, KernelTier::Ref}) {
    EXPECT_EQ(error_of([&] {
                run_one("softmax_xent", make_attrs(XentAttrs{1}), {x, bad}, DType::F32, tier);
              }),
              "softmax_xent: label 10 at position 1 is out of range; valid are 0..9 (10 classes).");
    EXPECT_EQ(error_of([&] {
                run_one("softmax_xent_bwd", make_attrs(XentAttrs{1}), {x, bad, gl}, DType::F32, tier);
              }),
              "softmax_xent_bwd: label 10 at position 1 is out of range; valid are 0..9 (10 classes).");
    EXPECT_EQ(error_of([&] {
                run_one("indexing_one_hot", make_attrs(OneHotAttrs{1}), {x, bad}, DType::F32, tier);
              }),
              "indexing_one_hot: index 10 at position 1 is out of range; valid are 0..9 (10 entries).");
    EXPECT_EQ(error_of([&] {
                run_one("set_one_hot", make_attrs(OneHotAttrs{1}), {x, bad, v}, DType::F32, tier);
              }),
              "set_one_hot: index 10 at position 1 is out of range; valid are 0..9 (10 entries).");
    EXPECT_EQ(error_of([&] {
                run_one("take", make_attrs(TakeAttrs{1}), {x, low}, DType::F32, tier);
              }),
              "take: index -11 at position 0 is out of range; valid are -10..9 (10 entries).");
  }
}

// ---- strided operands of matmul ----

TEST(NnMatmul, ReadsViewsInPlace) {
  std::vector<float> memory(4 * 6 * 10);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i % 13) - 6;
  std::vector<float> weight(6 * 8);
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i % 7) - 3;
  struct View {
    int64_t batch, row, col;
  };
  for (View v : {View{60, 10, 1}, View{60, 1, 10}, View{6, 24, 1}, View{60, 0, 1}, View{0, 10, 1}, View{60, 10, -1},
                 View{60, 20, 2}}) {
    TensorArg a{memory.data() + (v.col < 0 ? 5 : 0), DType::F32, Shape{3, 3, 6}, {}};
    if (v.col == 2) a.shape = Shape{3, 3, 5};
    a.layout.stride[0] = v.batch, a.layout.stride[1] = v.row, a.layout.stride[2] = v.col;
    TensorArg b{weight.data(), DType::F32, Shape{a.shape[2], 8}, Layout::contiguous(Shape{a.shape[2], 8})};
    std::vector<float> y(3 * 3 * 8);
    TensorArg out{y.data(), DType::F32, Shape{3, 3, 8}, Layout::contiguous(Shape{3, 3, 8})};
    TensorArg in[] = {a, b};
    Attrs at = make_attrs(MatmulAttrs{});
    KernelArgs args{&OpRegistry::global().get("matmul"), at.get(), in, {&out, 1}, nullptr};
    const Kernel& k = *KernelRegistry::global().find(args, KernelTier::Simd).kernel;
    ASSERT_TRUE(k.flags & kStridedInputs);
    k.run(args);
    for (int64_t p = 0; p < 3; ++p)
      for (int64_t i = 0; i < 3; ++i)
        for (int64_t j = 0; j < 8; ++j) {
          float want = 0;
          for (int64_t q = 0; q < a.shape[2]; ++q)
            want += a.data<float>()[p * v.batch + i * v.row + q * v.col] * weight[static_cast<size_t>(q * 8 + j)];
          ASSERT_EQ(y[static_cast<size_t>((p * 3 + i) * 8 + j)], want) << v.batch << " " << v.row << " " << v.col;
        }
  }
}

}  // namespace
}  // namespace mge::testing_nn
