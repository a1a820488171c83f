#include <cmath>

#include "kernel/ref/nn_ref.h"
#include "op/in_build.h"
#include "op/index/indexing.h"
#include "op/loss/loss.h"
#include "op/loss/softmax.h"

namespace mge {
namespace {

template <class A>
AxisGeom geom(const KernelArgs& a) {
  const Shape& s = a.in[0].shape;
  return axis_geom(s, normalize_axis(a.op->name.c_str(), a.as<A>().axis, s.rank));
}

// f(row number, offset of its first element); elements of a row are g.inner apart.
template <class F>
void each_row(const AxisGeom& g, F f) {
  for (int64_t o = 0; o < g.outer; ++o)
    for (int64_t i = 0; i < g.inner; ++i) f(o * g.inner + i, o * g.size * g.inner + i);
}

// max and log(sum(exp(x - max))) of one row
template <class T>
std::pair<double, double> max_and_logsum(const AxisGeom& g, const T* x) {
  double top = -INFINITY, sum = 0;
  for (int64_t k = 0; k < g.size; ++k) {
    double v = static_cast<double>(x[k * g.inner]);
    if (v > top || v != v) top = v;
  }
  for (int64_t k = 0; k < g.size; ++k) sum += std::exp(static_cast<double>(x[k * g.inner]) - top);
  return {top, std::log(sum)};
}

struct Softmax {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<SoftmaxAttrs>(a);
    each_row(g, [&](int64_t, int64_t first) {
      const T* x = a.in[0].data<T>() + first;
      T* y = a.out[0].data<T>() + first;
      auto [top, logsum] = max_and_logsum(g, x);
      for (int64_t k = 0; k < g.size; ++k)
        y[k * g.inner] = static_cast<T>(std::exp(static_cast<double>(x[k * g.inner]) - top - logsum));
    });
  }
};

struct Logsoftmax {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<SoftmaxAttrs>(a);
    each_row(g, [&](int64_t, int64_t first) {
      const T* x = a.in[0].data<T>() + first;
      T* y = a.out[0].data<T>() + first;
      auto [top, logsum] = max_and_logsum(g, x);
      for (int64_t k = 0; k < g.size; ++k)
        y[k * g.inner] = static_cast<T>(static_cast<double>(x[k * g.inner]) - top - logsum);
    });
  }
};

struct SoftmaxBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<SoftmaxAttrs>(a);
    const T *y = a.in[0].data<T>(), *gy = a.in[1].data<T>();
    T* gx = a.out[0].data<T>();
    each_row(g, [&](int64_t, int64_t first) {
      double dot = 0;
      for (int64_t k = 0; k < g.size; ++k)
        dot += static_cast<double>(y[first + k * g.inner]) * static_cast<double>(gy[first + k * g.inner]);
      for (int64_t k = 0; k < g.size; ++k) {
        int64_t i = first + k * g.inner;
        gx[i] = static_cast<T>(static_cast<double>(y[i]) * (static_cast<double>(gy[i]) - dot));
      }
    });
  }
};

struct LogsoftmaxBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<SoftmaxAttrs>(a);
    const T *y = a.in[0].data<T>(), *gy = a.in[1].data<T>();
    T* gx = a.out[0].data<T>();
    each_row(g, [&](int64_t, int64_t first) {
      double sum = 0;
      for (int64_t k = 0; k < g.size; ++k) sum += static_cast<double>(gy[first + k * g.inner]);
      for (int64_t k = 0; k < g.size; ++k) {
        int64_t i = first + k * g.inner;
        gx[i] = static_cast<T>(static_cast<double>(gy[i]) - std::exp(static_cast<double>(y[i])) * sum);
      }
    });
  }
};

int64_t label_of(const KernelArgs& a, const AxisGeom& g, int64_t row) {
  int64_t label = a.in[1].data<int32_t>()[row];
  if (label < 0 || label >= g.size) throw_bad_index(a.op->name.c_str(), "label", label, 0, g.size, row);
  return label;
}

struct SoftmaxXent {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<XentAttrs>(a);
    each_row(g, [&](int64_t row, int64_t first) {
      const T* x = a.in[0].data<T>() + first;
      T* p = a.out[1].data<T>() + first;
      int64_t label = label_of(a, g, row);
      auto [top, logsum] = max_and_logsum(g, x);
      a.out[0].data<T>()[row] = static_cast<T>(logsum - (static_cast<double>(x[label * g.inner]) - top));
      for (int64_t k = 0; k < g.size; ++k)
        p[k * g.inner] = static_cast<T>(std::exp(static_cast<double>(x[k * g.inner]) - top - logsum));
    });
  }
};

struct SoftmaxXentBwd {
  template <class T>
  static void run(const KernelArgs& a, DType) {
    AxisGeom g = geom<XentAttrs>(a);
    const T* p = a.in[0].data<T>();
    T* gx = a.out[0].data<T>();
    each_row(g, [&](int64_t row, int64_t first) {
      int64_t label = label_of(a, g, row);
      T gl = a.in[2].data<T>()[row];
      for (int64_t k = 0; k < g.size; ++k) {
        int64_t i = first + k * g.inner;
        gx[i] = (p[i] - T(k == label ? 1 : 0)) * gl;
      }
    });
  }
};

}  // namespace

void register_ref_softmax(KernelRegistry& r) {
  ref::add_floating<Softmax>(r, "softmax", "ref_softmax");
  ref::add_floating<SoftmaxBwd>(r, "softmax_bwd", "ref_softmax_bwd");
  ref::add_floating<Logsoftmax>(r, "logsoftmax", "ref_logsoftmax");
  ref::add_floating<LogsoftmaxBwd>(r, "logsoftmax_bwd", "ref_logsoftmax_bwd");
  ref::add_floating<SoftmaxXent>(r, "softmax_xent", "ref_softmax_xent");
  ref::add_floating<SoftmaxXentBwd>(r, "softmax_xent_bwd", "ref_softmax_xent_bwd");
}

}  // namespace mge
